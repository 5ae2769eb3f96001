"""Launches that go straight to a compiled kernel. Triton looks every argument over before it finds
the kernel that it compiled for such ones, which takes longer than most kernels take to run.
"""

from __future__ import annotations

from typing import Any

__all__ = ["start"]

# Compiled kernels, and the constants that their arguments end with.
_COMPILED: dict[tuple[Any, ...], tuple[Any, tuple[Any, ...]]] = {}
MOST_COMPILED = 4096


def start(
    kernel: Any,
    key: tuple[Any, ...],
    grid: tuple[int, int],
    arguments: tuple[Any, ...],
    constants: dict[str, Any],
    **options: int,
) -> None:
    """Launches a kernel.

    Args:
        key: what tells this launch from others of the kernel that Triton would compile apart: all
            that its constants, options and numbers, and its tensors' dtypes, depend on. Tensors
            start at multiples of 16 bytes.
        grid: programs.
        arguments: without the constants, which are the kernel's last.
    """
    own = kernel, *key
    known = _COMPILED.get(own)
    if known is not None:
        known[0][grid[0], grid[1], 1](*arguments, *known[1])
        return
    compiled = kernel[grid](*arguments, **constants, **options)
    if compiled is None:
        # The interpreter compiles nothing.
        return
    if len(_COMPILED) >= MOST_COMPILED:
        _COMPILED.clear()
    names = kernel.arg_names[len(arguments) :]
    _COMPILED[own] = compiled, tuple(constants[name] for name in names)
