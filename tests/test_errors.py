"""Checks that every part uses, and how their messages read."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from longspan.errors import describe, need_bool, need_int, need_number, need_tensor


def test_a_value_is_described_in_one_line() -> None:
    assert describe(torch.zeros(2, 3)) == "a float32 tensor of shape (2, 3)"
    assert describe(torch.zeros(0, dtype=torch.bool)) == "a bool tensor of shape (0,)"
    assert describe(3) == "int 3"
    assert describe("a") == "str 'a'"
    assert describe(None) == "NoneType None"
    long = describe(list(range(1000)))
    assert len(long) < 80 and long.endswith("...")


@pytest.mark.parametrize("value", [0, -3, 10**30])
def test_whole_numbers(value: int) -> None:
    need_int("a", value)
    need_number("a", value)


@pytest.mark.parametrize("value", [True, 1.0, None, "1", torch.tensor(1), [1]])
def test_what_is_no_whole_number(value: Any) -> None:
    with pytest.raises(TypeError, match=r"^a must be an int, got "):
        need_int("a", value)


def test_whole_numbers_that_are_too_small() -> None:
    need_int("a", 2, at_least=2)
    with pytest.raises(ValueError, match=r"^a must be at least 2, got 1$"):
        need_int("a", 1, at_least=2)


@pytest.mark.parametrize("value", [True, None, "1", torch.tensor(1.0), 1j])
def test_what_is_no_number(value: Any) -> None:
    need_number("a", 1.5)
    with pytest.raises(TypeError, match=r"^a must be a number, got "):
        need_number("a", value)


@pytest.mark.parametrize("value", [1, 0, None, "True", torch.tensor(True)])
def test_what_is_neither_true_nor_false(value: Any) -> None:
    need_bool("a", False)
    with pytest.raises(TypeError, match=r"^a must be True or False, got "):
        need_bool("a", value)


@pytest.mark.parametrize(
    ("kind", "fine", "wrong"),
    [
        ("bool", [torch.bool], [torch.int64, torch.float32, torch.uint8]),
        ("int", [torch.int64, torch.int32, torch.uint8], [torch.bool, torch.float32]),
        ("float", [torch.float32, torch.bfloat16], [torch.bool, torch.int64, torch.complex64]),
    ],
)
def test_tensors_of_a_kind(kind: str, fine: list[torch.dtype], wrong: list[torch.dtype]) -> None:
    for dtype in fine:
        need_tensor("a", torch.zeros(2, 3, dtype=dtype), kind, (1, 2))
        with pytest.raises(ValueError, match=r"^a must have 1 or 3 dimensions, got .*\(2, 3\)"):
            need_tensor("a", torch.zeros(2, 3, dtype=dtype), kind, (1, 3))
    for dtype in wrong:
        with pytest.raises(TypeError, match=f"^a must be an? {kind} tensor, got an? "):
            need_tensor("a", torch.zeros(2, 3, dtype=dtype), kind, (2,))
    with pytest.raises(TypeError, match=f"^a must be an? {kind} tensor, got list"):
        need_tensor("a", [1], kind, (1,))
