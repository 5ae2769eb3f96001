"""Layouts of patterns around the same tensors are one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from longspan.layout import Cut, Layout, compile_layout, dense
from longspan.layout.remembered import remembered
from longspan.patterns import Causal, Global, Mask, Pattern, PerHead, SameDocument, Window

CPU = torch.device("cpu")
N = 70


def compiled(pattern: Pattern, *exempts: Pattern | None, n: int = N, merge: bool = True) -> Layout:
    cuts = tuple(Cut(None, exempt) for exempt in exempts)
    return compile_layout(pattern, cuts, n, N, CPU, merge=merge)


def tokens() -> Tensor:
    mask = torch.zeros(2, N, dtype=torch.bool)
    mask[0, [3, 50]] = True
    mask[1, 9] = True
    return mask


PATTERNS: dict[str, tuple[Callable[[], Tensor], Callable[[Tensor], Pattern]]] = {
    "mask of tokens": (tokens, lambda x: Window(2, 2) | Global(x)),
    "positions": (lambda: torch.tensor([[3, 9], [4, -1]]), lambda x: Window(2, 2) | Global(x)),
    "documents": (lambda: torch.arange(N)[None] // 9, lambda x: SameDocument(x) & Causal()),
    "pairs": (lambda: torch.eye(N, dtype=torch.bool)[None, None], lambda x: Mask(x)),
    "heads": (tokens, lambda x: PerHead([Window(2, 2), Window(1, 1) | Global(x)])),
}


@pytest.mark.parametrize("case", PATTERNS)
def test_new_patterns_around_the_same_tensors(case: str) -> None:
    make, pattern = PATTERNS[case]
    x = make()
    one = compiled(pattern(x))
    assert compiled(pattern(x)) is one
    assert torch.equal(dense(one, 2, 2) > 0, pattern(x).dense(N).expand(2, 2, N, N))
    assert compiled(pattern(x.clone())) is not one
    if case != "pairs":  # which are for these sizes alone
        assert compiled(pattern(x), n=N - 1) is not one
    assert compiled(pattern(x), merge=False) is not one


@pytest.mark.parametrize("case", PATTERNS)
def test_a_change_in_place_is_another_layout(case: str) -> None:
    make, pattern = PATTERNS[case]
    x = make()
    before = compiled(pattern(x))
    wanted = dense(before, 2, 2)
    x.copy_(x.roll(1, -1))
    after = compiled(pattern(x))
    assert after is not before
    assert torch.equal(dense(after, 2, 2) > 0, pattern(x).dense(N).expand(2, 2, N, N))
    # Plans that were not yet made are made from what the layout had then.
    for walk in before.walks:
        walk.plan.clear()
    assert torch.equal(dense(before, 2, 2), wanted)


def test_structures_are_told_apart() -> None:
    x, y = tokens(), tokens()
    found = [
        compiled(Window(2, 2) | Global(x)),
        compiled(Window(2, 3) | Global(x)),
        compiled(Window(2, 2) | Global(x, rows=False)),
        compiled(Window(2, 2) & Global(x)),
        compiled(Window(2, 2), Global(x)),
        compiled(Window(2, 2), None, Global(x)),
        compiled(Window(2, 2), Global(x), Global(x)),
        compiled(Window(2, 2), Global(x), Global(y)),
        compiled(Window(2, 2) | Global(y)),
    ]
    assert len({id(layout) for layout in found}) == len(found)
    assert compiled(Window(2, 2), Global(x), Global(y)) is found[7]


def test_reaches_are_compiled_every_time() -> None:
    reach, x = torch.full((1, 1, N), 3, dtype=torch.int32), tokens()
    cuts = (Cut(reach, Global(x)),)
    one, two = (compile_layout(Causal(), cuts, N, N, CPU, merge=True) for _ in range(2))
    assert one is not two


class Listed(Pattern):
    """A pattern from elsewhere, with a list among its values."""

    fields = ("tokens", "listed")

    def __init__(self, tokens: Tensor, listed: list[int]) -> None:
        self.tokens, self.listed = tokens, listed

    def contains(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        return (self.tokens[j] & (j >= self.listed[0]) & (i == i))[None, None]


def test_what_cannot_be_a_key_is_compiled_every_time() -> None:
    pattern = Listed(tokens()[0], [1])
    found = [compiled(pattern), compiled(pattern)]
    assert found[0] is not found[1]
    pattern.listed[0] = 9
    assert torch.equal(dense(compiled(pattern), 1, 1) > 0, pattern.dense(N))


def test_patterns_without_tensors_are_given_as_they_are() -> None:
    static, x = Window(2, 2), tokens()
    seen: list[Pattern | None] = []

    def noted(own: tuple[Pattern | None, ...]) -> Layout:
        seen.extend(own)
        return Layout(N, N, ())

    remembered(noted, (static, None, Global(x)), (), stamp=None)
    assert seen[0] is static and seen[1] is None
    assert isinstance(seen[2], Global) and isinstance(seen[2].tokens, Tensor)
    assert seen[2].tokens is not x and torch.equal(seen[2].tokens, x)
