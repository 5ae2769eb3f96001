"""Writing on: against loops that compute everything anew."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from longspan.models import Config, LanguageModel, Sampling, Translator
from longspan.nn import Attention, SlidingWindow
from longspan.patterns import Causal, Window

VOCAB = 5


def model() -> LanguageModel:
    torch.manual_seed(0)
    made = LanguageModel(
        Config(vocab=VOCAB, width=16, heads=2, layers=2, positions="rotary"),
        lambda layer: Attention(Window(3, 0)),
    )
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return made.eval()


def beginning() -> Tensor:
    return torch.tensor([[0, 1, 2], [4, 4, 1]])


def test_greedy() -> None:
    made, x = model(), beginning()
    found = made.generate(x, 6)
    for _ in range(6):
        x = torch.cat([x, made(x)[:, -1].argmax(-1, keepdim=True)], 1)
    assert torch.equal(found, x)


def log_probability(made: LanguageModel, x: Tensor, start: int) -> Tensor:
    scores = made(x)[:, :-1].log_softmax(-1)
    return scores.gather(-1, x[:, 1:, None])[:, start - 1 :, 0].sum(-1)


def test_enough_beams_find_the_best() -> None:
    made, x = model(), beginning()
    found = made.generate(x, 3, beams=VOCAB**2)
    for b in range(2):
        every = torch.tensor(list(itertools.product(range(VOCAB), repeat=3)))
        whole = torch.cat([x[b].expand(len(every), 3), every], 1)
        best = whole[log_probability(made, whole, 3).argmax()]
        assert torch.equal(found[b], best)


def test_one_beam_is_greedy() -> None:
    from longspan.models.generation import beam_search

    made, x = model(), beginning()

    def next_scores(new: Tensor, cache: object) -> Tensor:
        return made(new, cache=cache)[:, -1]  # type: ignore[arg-type]

    found = beam_search(next_scores, made.decoder.new_cache(), x, 5, beams=1)
    assert torch.equal(found, made.generate(x, 5))


def test_end_is_repeated() -> None:
    made, x = model(), beginning()
    plain = made.generate(x, 6)
    end = int(plain[0, 4])
    found = made.generate(x, 6, end=end)
    for b in range(2):
        row = found[b, 3:].tolist()
        if end in row:
            assert set(row[row.index(end) :]) == {end}


def test_sampling_draws_as_the_model_says() -> None:
    made, x = model(), beginning()[:1].expand(4000, -1)
    source = torch.Generator().manual_seed(0)
    found = made.generate(x, 1, sampling=Sampling(temperature=2.0), generator=source)[:, -1]
    share = torch.bincount(found, minlength=VOCAB) / 4000
    expected = (made(x[:1])[0, -1] / 2.0).softmax(-1)
    torch.testing.assert_close(share, expected, atol=0.03, rtol=0)


def test_top_k_and_top_p() -> None:
    scores = torch.tensor([[3.0, 2.0, 1.0, 0.0]]).expand(500, -1)
    assert set(Sampling(top_k=2).draw(scores).tolist()) <= {0, 1}
    assert set(Sampling(top_p=0.5).draw(scores).tolist()) == {0}
    assert set(Sampling(temperature=0.0).draw(scores).tolist()) == {0}


@pytest.mark.parametrize("temperature", [1e-38, 1e-42, 1e-300])
def test_the_coldest_draws_are_the_likeliest(temperature: float) -> None:
    scores = torch.tensor([[3.0, 2.0, 1.0, 0.0], [-1.0, -4.0, float("-inf"), -0.5]])
    for options in ({}, {"top_k": 2}, {"top_p": 0.5}):
        own = Sampling(temperature, **options)
        assert own.draw(scores).tolist() == [0, 3]


def test_training_mode_comes_back() -> None:
    """Of each part: one may have been frozen."""
    made = model().train()
    made.decoder.blocks[0].eval()
    before = [part.training for part in made.modules()]
    made.generate(beginning(), 1)
    assert [part.training for part in made.modules()] == before


def test_padding_on_the_right_is_refused() -> None:
    """A sample would go on after a token that is not there."""
    made, x = model(), beginning()
    real = torch.tensor([[True, True, True], [True, True, False]])
    for beams in (1, 2):
        with pytest.raises(ValueError, match=r"generate: key_padding .* pad on the left"):
            made.generate(x, 2, key_padding=real, beams=beams)
    found = made.generate(x.flip(-1), 2, key_padding=real.flip(-1))
    assert torch.equal(found[1:, 1:], made.generate(x.flip(-1)[1:, 1:], 2))
    with pytest.raises(TypeError, match="generate: key_padding must be a bool tensor, got an int"):
        made.generate(x, 2, key_padding=real.long())


def test_translation() -> None:
    torch.manual_seed(0)
    made = Translator(
        Config(vocab=VOCAB, width=16, heads=2, layers=1),
        lambda layer: Attention(),
        lambda layer: Attention(Causal()),
    ).eval()
    source = torch.tensor([[1, 2, 3, 4], [4, 3, 2, 1]])
    greedy = made.translate(source, 5, begin=0, beams=1)
    x = torch.zeros(2, 1, dtype=torch.int64)
    for _ in range(5):
        x = torch.cat([x, made(source, x)[:, -1].argmax(-1, keepdim=True)], 1)
    assert torch.equal(greedy, x)
    assert made.translate(source, 5, begin=0, beams=3).shape == (2, 6)


def test_a_source_text_may_have_global_tokens() -> None:
    torch.manual_seed(1)
    made = Translator(
        Config(vocab=VOCAB, width=16, heads=2, layers=1),
        lambda layer: SlidingWindow(16, 2, left=1),
        lambda layer: Attention(Causal()),
    ).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_()
    source = torch.randint(0, VOCAB, (2, 12))
    tokens = torch.zeros(2, 12, dtype=torch.bool)
    tokens[:, :2] = True
    found = made.translate(source, 5, begin=0, global_tokens=tokens, beams=1)
    x = torch.zeros(2, 1, dtype=torch.int64)
    for _ in range(5):
        scores = made(source, x, global_tokens=tokens)
        x = torch.cat([x, scores[:, -1].argmax(-1, keepdim=True)], 1)
    assert torch.equal(found, x)
    assert not torch.equal(found, made.translate(source, 5, begin=0, beams=1))


def test_translation_leaves_modes_alone() -> None:
    made = Translator(
        Config(vocab=VOCAB, width=16, heads=2, layers=1),
        lambda layer: Attention(),
        lambda layer: Attention(Causal()),
    )
    made.body.encoder.eval()
    before = [part.training for part in made.modules()]
    made.translate(beginning(), 2, begin=0, beams=2)
    assert [part.training for part in made.modules()] == before


@pytest.mark.parametrize("beams", [1, 3])
def test_all_samples_may_end_early(beams: int) -> None:
    made, x = model(), beginning()[:1]
    end = int(made.generate(x, 1, beams=beams)[0, -1])
    assert made.generate(x, 6, beams=beams, end=end).shape[1] < 9


def test_learned_positions_end_in_a_cache_too() -> None:
    model = LanguageModel(
        Config(vocab=9, width=8, heads=2, layers=1, length=8), lambda layer: Attention(Causal())
    )
    with pytest.raises(ValueError, match="at most 8, the config's length, got 9 with those before"):
        model.generate(torch.tensor([[1, 2, 3]]), 10)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"temperature": -1.0}, "temperature must be at least 0, got -1"),
        ({"top_k": 0}, "top_k must be at least 1, got 0"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1, got 0"),
        ({"top_p": 1.5}, "top_p must be above 0 and at most 1, got 1.5"),
    ],
)
def test_draws_that_cannot_be(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Sampling(**options).check()
