"""Patterns as text, such as `Causal() & (Window(4, 0) | Strided(4))`: read, never run."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from .base import LARGEST, Full, Pattern, PerHead
from .causal import Causal
from .documents import SameDocument
from .fixed import Fixed, Summaries
from .global_tokens import Global
from .mask import Mask
from .presets import bigbird, longformer, sparse_fixed, sparse_strided
from .random_blocks import Random
from .strided import Strided
from .window import BlockWindow, Window

__all__ = ["parse_pattern"]

MAKERS: dict[str, Callable[..., Pattern]] = {
    maker.__name__: maker
    for maker in (
        *(
            Full,
            Causal,
            Window,
            BlockWindow,
            Global,
            Random,
            Strided,
            Fixed,
            Summaries,
            SameDocument,
            Mask,
            PerHead,
        ),
        *(longformer, bigbird, sparse_strided, sparse_fixed),
    )
}


def parse_pattern(text: str, values: Mapping[str, int | Tensor] | None = None) -> Pattern:
    """Reads a pattern that is written as in Python.

    Patterns and presets are called by name with whole numbers, True, False, None and lists (lists
    of numbers become tensors), and joined with `|` and `&`. Nothing else is read, and nothing is
    evaluated.

    Args:
        text: the expression.
        values: what names in arguments stand for.

    Raises:
        ValueError: the text is not such an expression, or a pattern refuses its arguments.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval")
        pattern = _read(tree.body, values or {})
    except SyntaxError as error:
        raise ValueError(f"{text!r} is not an expression: {error.msg}") from None
    except RecursionError:
        raise ValueError("the expression is nested too deeply") from None
    if not isinstance(pattern, Pattern):
        raise ValueError(f"{text!r} is not a pattern; write one such as 'Window(3, 3) | Global(1)'")
    return pattern


def _read(node: ast.expr, values: Mapping[str, Any]) -> Any:
    match node:
        case ast.BinOp(left, ast.BitOr(), right):
            return _operand(left, values) | _operand(right, values)
        case ast.BinOp(left, ast.BitAnd(), right):
            return _operand(left, values) & _operand(right, values)
        case ast.Call(ast.Name(name), arguments, keywords) if name in MAKERS:
            return _made(name, arguments, keywords, values)
        case ast.Call(ast.Name(name)):
            raise ValueError(f"there is no pattern {name!r}; there are {', '.join(MAKERS)}")
        case ast.Name(name) if name in values:
            return values[name]
        case ast.Name(name) if name in MAKERS:
            raise ValueError(f"{name} needs its arguments: write {name}(…)")
        case ast.List(items) | ast.Tuple(items):
            return _listed([_read(item, values) for item in items], node)
        case ast.UnaryOp(ast.USub(), operand):
            number = _read(operand, values)
            if isinstance(number, int) and not isinstance(number, bool):
                return -number
        case ast.Constant(bool() | None as constant):
            return constant
        case ast.Constant(int() as number):
            return _small(number)
    raise ValueError(
        f"cannot read {ast.unparse(node)!r}: an expression holds patterns, whole numbers, True, "
        f"False, None, lists{''.join(f', {name}' for name in values)}, | and &"
    )


def _operand(node: ast.expr, values: Mapping[str, Any]) -> Pattern:
    pattern = _read(node, values)
    if not isinstance(pattern, Pattern):
        raise ValueError(f"| and & join patterns, and {ast.unparse(node)!r} is none")
    return pattern


def _made(
    name: str, arguments: list[ast.expr], keywords: list[ast.keyword], values: Mapping[str, Any]
) -> Pattern:
    given = [_read(argument, values) for argument in arguments]
    named = {}
    for keyword in keywords:
        if keyword.arg is None:
            raise ValueError(f"{name}: ** is not read; name the arguments")
        named[keyword.arg] = _read(keyword.value, values)
    signature = inspect.signature(MAKERS[name])
    try:
        signature.bind(*given, **named)
    except TypeError as error:
        raise ValueError(f"{name}: {error}; it takes ({', '.join(signature.parameters)})") from None
    try:
        return MAKERS[name](*given, **named)
    except TypeError as error:
        raise ValueError(str(error)) from None


def _listed(items: list[Any], node: ast.expr) -> list[Any] | Tensor:
    """Patterns stay a list, numbers become a tensor; what is not a rectangle stays lists."""
    if all(isinstance(item, Pattern) for item in items):
        return items
    if any(isinstance(item, Pattern) or item is None for item in items):
        raise ValueError(f"a list holds patterns or numbers, not both: {ast.unparse(node)}")
    if len({getattr(item, "shape", None) for item in items}) > 1:
        return [item.tolist() if isinstance(item, Tensor) else item for item in items]
    if isinstance(items[0], Tensor):
        return torch.stack(items)
    return torch.tensor(items)


def _small(number: int) -> int:
    if number > LARGEST:
        raise ValueError(f"{number} is too large: at most {LARGEST}")
    return number
