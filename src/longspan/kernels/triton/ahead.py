"""The kernels that a call lacks are compiled side by side, before the first of them is launched.

A call of a new kind has up to twenty kernels, forward and backward, of about a second each; and
Triton would compile one after the other, as they are launched. Most of that time needs no lock of
Python's: the passes of LLVM, and ptxas.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

__all__ = ["LOCAL", "NotCompiled", "compiled_together"]

Result = TypeVar("Result")


class NotCompiled(Exception):
    """A kernel that is to be launched is not compiled yet."""


class _Local(threading.local):
    """How this thread launches kernels.

    Attributes:
        only_compiled: one that is not compiled raises `NotCompiled`.
        rehearsing: all are compiled, and none is launched: what they would write is not there.
    """

    only_compiled = False
    rehearsing = False


LOCAL = _Local()


def compiled_together(
    call: Callable[[], Result], later: Callable[[], object] | None = None
) -> Result:
    """What a call gives, which may be made three times: until it lacks a kernel; to see which
    kernels it lacks; and when they are there.

    Args:
        later: what is likely to be called after it; where the call lacks kernels, those that this
            one lacks are compiled with them.
    """
    try:
        LOCAL.only_compiled = True
        return call()
    except NotCompiled:
        pass
    finally:
        LOCAL.only_compiled = False
    _rehearse(call, later)
    return call()


def _rehearse(call: Callable[[], object], later: Callable[[], object] | None) -> None:
    from triton import AsyncCompileMode

    workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    # One that cannot be compiled says so when it is to be launched.
    with ThreadPoolExecutor(workers) as pool, AsyncCompileMode(pool, ignore_errors=True):
        try:
            LOCAL.rehearsing = True
            call()
            if later is not None:
                # It is not asked for yet: what is wrong with it, or no memory, is not told here.
                with suppress(Exception):
                    later()
        finally:
            LOCAL.rehearsing = False
