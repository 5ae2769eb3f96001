"""Compiles the kernels of some problems for GPUs that need not be there: `python -m
tests.kernels.compiling CAPABILITY`, in a process of its own, without Triton's interpreter.

Launches become compilations; what they would have computed is nobody's concern.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import sys
from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

from longspan.functional.attention import prepared
from longspan.functional.problems import problem_of
from longspan.kernels.problem import Problem
from longspan.kernels.triton import launch
from longspan.kernels.triton.window import Budget
from longspan.patterns import Causal, Full, Global, Pattern, SameDocument, Window
from longspan.weights import Bell, Bias, DistanceBias, Weight

# Of a multiprocessor, for one program.
MOST_SHARED = {80: 163 << 10, 90: 227 << 10}

# Whose scores and log-sum-exps have to be the same numbers.
SAME_NUMBERS = {f"longspan.kernels.triton.{name}" for name in ("outputs", "queries", "keys")}


class Driver:
    """As much of a driver as compiling asks for."""

    def __init__(self, capability: int) -> None:
        self.capability = capability

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")


class Forgetful(dict[Any, Any]):
    """Finds nothing again: what is found would be launched."""

    def get(self, key: Any, default: Any = None) -> None:
        return None


class Launched:
    """As much of CUDA's driver as a launch asks for; keeps what it was given."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.launched: list[tuple[Any, ...]] = []

    def cuTensorMapEncodeTiled(self, at: Any, *rest: Any) -> int:
        element, rank, address, dims, strides, box, steps, *more = rest
        arrays = (list(dims), list(strides), list(box), list(steps))
        told = repr((element, rank, address.value, *arrays, *more)).encode()
        ctypes.memmove(at.value, hashlib.sha512(told).digest() * 2, 128)
        return 0

    def cuLaunchKernelEx(self, config: Any, function: Any, parameters: Any, extra: None) -> int:
        own = config._obj
        shape = [getattr(own, name) for name, _ in own._fields_]
        sizes = self.sizes or [0] * len(parameters)
        values = [ctypes.string_at(at, n) for at, n in zip(parameters, sizes, strict=True)]
        self.launched.append((*shape, function.value, values))
        return 0


def problem(
    pattern: Pattern,
    weight: Weight | list[Weight] | None = None,
    *,
    head: int = 64,
    n: int = 300,
    padded: bool = False,
) -> Problem:
    q, k, v = (torch.zeros(1, 2, n, head, dtype=torch.bfloat16) for _ in range(3))
    real = (torch.arange(n) < n - 20)[None] if padded else None
    call = prepared(q, k, v, pattern, weight=weight, key_padding=real)
    return problem_of(call.q, call.k, call.v, call.meaning, call.settings)


def both_ways(module: Any, own: Problem) -> None:
    names = ("variance", "slopes", "tensor", "table")
    wanted = frozenset((term.number, name) for term in own.terms for name in names)
    out, limits = module.forward(own)
    module.backward(own, out, limits, torch.ones_like(out), wanted)


def of_window(q: Tensor) -> None:
    """What a learned window computes before it attends, and its gradients."""
    from longspan.kernels.triton import factor, shares

    w, u = torch.zeros(q.shape[1], q.shape[3], q.shape[3]), torch.zeros(q.shape[1], q.shape[3])
    share = shares.shares_of(q, w, u)
    shares.share_gradients(q, w, u, share, share, (True, True, True))
    shares.share_gradients(q, w, u, share, share, (True, False, False))
    real = torch.ones(q.shape[0], q.shape[2], dtype=torch.bool)
    for budget, cut in (
        (Budget(128.0, 256.0, False, 256.0, 128.0, 1.4), factor.Cut()),
        (Budget(128.0**2, 256.0**2, True, 256.0, 128.0, 0.0), factor.Cut(whole=1)),
    ):
        state = factor.budgeted(share, real, None, budget, cut)[2]
        factor.budget_gradient(share, real, None, budget, state, share, cut)


def check_votes(ptx: str) -> int:
    """How many branches depend on the vote of one warp. What is done there, up to the next branch
    or label, must be the sums made anew, and may not concern other warps.
    """
    found = ptx.split("longspan_any;\n")[1:]
    for after in found:
        _, own = re.split(r"@%p\d+ bra\s+\S+;", after, maxsplit=1)
        own = re.split(r"\n\$L__BB|\sbra", own, maxsplit=1)[0]
        assert own.count("ex2.approx") > 8 and "shfl.sync" in own
        assert not re.search(r"\bbar\.|barrier|\.shared|wgmma", own)
    return len(found)


def main(capability: int) -> None:
    triton.runtime.driver.set_active(Driver(capability))
    run, seen, votes = JITFunction.run, [], list[int]()

    def compiled(self: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        kernel = run(self, *arguments, grid=grid, warmup=True, **options)
        assert kernel.metadata.shared <= MOST_SHARED[capability], self.__name__
        if self.fn.__module__ in SAME_NUMBERS:
            assert "fma.rn.f32" not in kernel.asm["ptx"], self.__name__
        seen.append(self.__name__)
        votes.append(check_votes(kernel.asm["ptx"]))
        return kernel

    JITFunction.run = compiled
    variance = torch.ones(1, 2, 300)
    from longspan.kernels.triton import (
        bias_launch,
        call,
        driver,
        factor,
        launching,
        parameters,
        reach,
        repair,
        shares,
    )

    launching._COMPILED = Forgetful()
    vars(launching)["load"] = lambda compiled: setattr(compiled, "function", 7)
    vars(launching)["current_stream"] = lambda: 5
    seen_by = Launched()
    driver._driver = lambda: seen_by  # type: ignore[assignment]
    torch.version.cuda = "13.0"
    torch.cuda.current_device = lambda: 0

    def checked(started: Any) -> Any:
        def launched(*given: Any, **options: Any) -> None:
            """Also: does the driver know where the kernel reads its parameters? The same ones, once
            from arguments, once from notes on them.
            """
            with launching.recorded() as recording:
                started(*given, **options)
            (own,) = recording.launches
            seen_by.launched.clear()
            values = parameters.parameters_of(own.compiled, own.arguments)
            seen_by.sizes = [parameters.size_of(x) for x in values]
            known = driver.Kernel(own.compiled, own.arguments)
            for _ in range(2):
                known(own.grid, 5, parameters.Leaves(own.arguments).values)
            again = driver.Launch(*own, lambda x: None)
            for _ in range(3):  # as it comes, as it is kept, and as it was kept
                again(5, ())
            first, *others = seen_by.launched
            assert len(others) == 4 and all(other == first for other in others)
            seen_by.sizes, seen_by.launched = [], []

        return launched

    plain = checked(launching.launch)
    for module in (launch, bias_launch, call, reach, repair, shares, factor):
        vars(module)["launch"] = plain
    own_constants = shares._constants
    on_gpu = {"PART": triton.language.bfloat16}
    vars(shares)["_constants"] = lambda q: {**own_constants(q), **on_gpu}
    for dtype, head in ((torch.bfloat16, 32), (torch.float16, 24), (torch.float32, 64)):
        of_window(torch.zeros(2, 300, 3, head, dtype=dtype).transpose(1, 2))
    if capability == 90:
        of_window(torch.zeros(1, 1, 9000, 128, dtype=torch.bfloat16))
    if capability == 90:
        from longspan.kernels.triton.hopper import beside, intervals
        from longspan.kernels.triton.hopper import launch as hopper

        hopper._processors = lambda device: 132  # type: ignore[assignment]
        torch.cuda.is_current_stream_capturing = lambda: False
        own_start = checked(launching.start)
        for module in (hopper, intervals, beside):
            vars(module)["start"] = own_start
        for own in (
            problem(Window(128, 128)),
            problem(Causal(), head=128),
            problem(Full(), Bell(variance, threshold=0.5), head=32),
            problem(Window(64, 0), Bell(variance, threshold=0.5)),
            problem(SameDocument(torch.arange(300)[None] // 50), head=96),
            problem(Window(64, 64) | Global(3)),
            problem(Full(), Bell(variance, threshold=0.5, exempt=Global(3))),
            problem(Window(64, 64), padded=True),
            problem(Full(), Bell(variance, threshold=0.5, exempt=Global(3)), padded=True, head=32),
        ):
            assert hopper.takes(own)
            out, limits = hopper.forward(own)
            hopper.backward(own, out, limits, torch.ones_like(out))
        assert any(votes)
    if capability == 80:
        bell = Bell(variance, threshold=0.5, exempt=Global(3))
        both_ways(launch, problem(Window(64, 64) | Global(3), bell))
        both_ways(launch, problem(Window(64, 64)))
    else:
        biases = [Bias(torch.zeros(1, 1, 300, 300)), DistanceBias(torch.zeros(2, 99))]
        both_ways(launch, problem(Window(9, 9), biases))
    print(len(seen), "kernels:", ", ".join(sorted(set(seen))))


if __name__ == "__main__":
    main(int(sys.argv[1]))
