"""What holds for every mechanism under a model: its function is that of a text alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from longspan.hf import use
from longspan.nn import Attention, BigBird, LearnedWindow, SlidingWindow
from longspan.normalizers import Entmax
from longspan.patterns import Random, Window
from longspan.weights import Alibi, Bell

from .tiny import hidden, model, transformers

LONGEST = 40

MECHANISMS: dict[str, Any] = {
    "sliding": SlidingWindow(32, 4, left=[1, 2, 3, 4]),
    "bigbird": BigBird(LONGEST, block=4, drawn=1),
    "bigbird, extra": BigBird(LONGEST, block=4, drawn=1, tokens="extra"),
    "learned": LearnedWindow(32, 4, mean_reach=3, max_reach=6),
    "learned, pairs": LearnedWindow(32, 4, mean_reach=3, max_reach=6, budget="pairs"),
    "attention": Attention(Window(3, 2), weight=Alibi(torch.rand(4)), normalizer=Entmax(1.5)),
    "attention, bell": Attention(
        Window(9, 9) | Random(1, block=2, length=LONGEST), weight=Bell(9.0, threshold=0.4)
    ),
}

lengths = st.lists(st.integers(1, 30), min_size=1, max_size=4)


def global_tokens(input_ids: Tensor) -> Tensor:
    """Some words, which some texts have many of, and some none."""
    return input_ids % 7 == 0


def made_with(name: str) -> Any:
    made = model("bert")
    finder = None if name == "bigbird" else global_tokens
    use(made, MECHANISMS[name], global_tokens=finder)
    torch.manual_seed(4)
    with torch.no_grad():
        for own, parameter in made.named_parameters():
            if "longspan" in own:
                parameter.add_(0.2 * torch.randn(parameter.shape))
    return made


def texts(sizes: list[int]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(sum(sizes))
    return [torch.randint(3, 40, (size,), generator=generator) for size in sizes]


def padded(own: list[Tensor], length: int, side: str) -> tuple[Tensor, Tensor, Tensor]:
    """Texts in one batch, which of their tokens are real, and where in their text these are. What
    is in the padding is of no interest.
    """
    ids = torch.randint(0, 40, (len(own), length), generator=torch.Generator().manual_seed(9))
    mask, places = torch.zeros_like(ids), torch.zeros_like(ids)
    for row, text in enumerate(own):
        size = len(text)
        here = slice(0, size) if side == "right" else slice(length - size, length)
        ids[row, here], mask[row, here], places[row, here] = text, 1, torch.arange(size)
    return ids, mask, places


@pytest.mark.parametrize("name", MECHANISMS)
def test_company_and_padding_change_nothing(name: str) -> None:
    """Any lengths, any padding, on either side, whatever else is in the batch; blocks are counted
    from the first place, so that they want theirs at the end.
    """
    made = made_with(name)
    counted = name.startswith("bigbird") or name == "attention, bell"

    @settings(max_examples=12)
    @given(lengths, st.integers(0, 9), st.sampled_from(["right"] if counted else ["right", "left"]))
    def holds(sizes: list[int], more: int, side: str) -> None:
        own = texts(sizes)
        ids, mask, places = padded(own, max(sizes) + more, side)
        with torch.no_grad():
            together = hidden(made, ids, mask, position_ids=places)
            for row, text in enumerate(own):
                alone = hidden(made, text[None])[0]
                found = together[row][mask[row].bool()]
                torch.testing.assert_close(found, alone, atol=2e-5, rtol=1e-5)

    holds()


@pytest.mark.parametrize("name", MECHANISMS)
def test_calls_before_change_nothing(name: str) -> None:
    """Longer ones, shorter ones, with and without padding, in training and out of it."""
    made = made_with(name)
    ids, mask, _ = padded(texts([17, 9]), 20, "right")
    first = hidden(made, ids, mask)
    other, real, _ = padded(texts([33, 5, 12]), 36, "right")
    hidden(made, other, real).sum().backward()
    hidden(made, other[:, :7])
    made.train()
    hidden(made, other, real)
    made.eval()
    assert torch.equal(hidden(made, ids, mask), first)


def test_windows_of_different_texts_stay_apart_in_one_row() -> None:
    """Texts one after another without padding, as a collator of transformers puts them."""
    made = model("llama")
    use(made, Attention(Window(3, 0), weight=Alibi(nn.Parameter(torch.rand(4)))))
    own = texts([7, 1, 12])
    collator = transformers.DataCollatorWithFlattening()
    batch = collator([{"input_ids": text.tolist()} for text in own])
    found = hidden(made, batch["input_ids"], position_ids=batch["position_ids"], use_cache=False)
    alone = [hidden(made, text[None], use_cache=False)[0] for text in own]
    torch.testing.assert_close(found[0], torch.cat(alone), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["pattern", "learned"])
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_beams_within_a_window(kind: str, name: str) -> None:
    """With padding on the left, from a cache as without one."""
    made = model(kind, writes=True)
    learned = LearnedWindow(32, 4, mean_reach=3, max_reach=6, causal=True)
    use(made, learned if name == "learned" else Window(3, 0))
    ids, mask, _ = padded(texts([11, 6]), 11, "left")
    options: dict[str, Any] = dict(
        attention_mask=mask, max_new_tokens=6, num_beams=3, do_sample=False
    )
    found = made.generate(ids, **options)
    assert torch.equal(found, made.generate(ids, use_cache=False, **options))
