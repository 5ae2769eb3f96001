"""What is tuned: which kernels, on which calls, and the launch options to try.

Hopper has kernels of its own for windows and learned reaches. Plain Triton takes what those do not,
such as dropout and global tokens, and on other cards everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

from ...kernels.triton.configs import HOPPER, HopperOptions

__all__ = ["HEAD_DIMS", "KERNELS", "Group", "Options", "candidates_of", "groups", "pasted"]

Options = dict[str, int]

HEAD_DIMS = (64, 128, 32)
SIMPLE, OTHERS = ("window", "learned"), ("dropout", "global")

# A kernel, and the pass that runs it.
KERNELS = {"outputs": "forward", "queries": "backward", "keys": "backward"}

# Of plain Triton.
WARPS, STAGES, REGISTERS = (4, 8), (2, 3, 4), (None, 128, 168, 240)

# Of the kernels for Hopper.
PROGRAMS, RINGS, STEPS, TURNS = (2, 3, 4), (2, 3, 4), (32, 64), (1, 2)
SHARED = 228 << 10  # bytes of a multiprocessor, for all its programs


class Group(NamedTuple):
    """What has options of its own.

    Attributes:
        kernel: `"outputs"`, `"queries"` or `"keys"`.
        kind: of call: `"window"`, `"learned"` for a reach with its bell, a window with `"dropout"`,
            or with `"global"` tokens.
        head_dim: of queries, keys and values.
        hopper: whether it is the kernel for Hopper.
    """

    kernel: str
    kind: str
    head_dim: int
    hopper: bool = False

    @property
    def overridden(self) -> str:
        """The name under which `configs.override` knows the kernel."""
        return f"hopper {self.kernel}" if self.hopper else self.kernel

    def __str__(self) -> str:
        family = "Hopper" if self.hopper else "plain"
        return f"{family} {self.kernel}, {self.kind}, head size {self.head_dim}"


def groups(quick: bool, hopper: bool) -> list[Group]:
    """All that is tuned, the most used first; of a quick look, one head size and one kind for each
    family.
    """
    sizes = HEAD_DIMS[:1] if quick else HEAD_DIMS
    plain = OTHERS if hopper else SIMPLE + OTHERS
    simple, rest = (SIMPLE[:1], plain[:1]) if quick else (SIMPLE, plain)
    found = [Group(k, kind, d, True) for d, kind, k in product(sizes, simple, KERNELS)]
    more = [Group(k, kind, d) for d, kind, k in product(sizes, rest, KERNELS)]
    return found + more if hopper else more


def candidates_of(group: Group) -> list[Options]:
    """The options to try; of those for Hopper, without what cannot fit."""
    return _for_hopper(group) if group.hopper else _plain()


def _plain() -> list[Options]:
    found = []
    for warps, stages, registers in product(WARPS, STAGES, REGISTERS):
        options = {"num_warps": warps, "num_stages": stages}
        found.append(options if registers is None else options | {"maxnreg": registers})
    return found


def _for_hopper(group: Group) -> list[Options]:
    """A step loads two tiles, and a ring of them has to be there for every program: the least that
    shared memory holds.
    """
    found = []
    # The forward has no turns to choose.
    turns = TURNS[-1:] if group.kernel == "outputs" else TURNS
    for programs, ring, step, turn in product(PROGRAMS, RINGS, STEPS, turns):
        if programs * ring * step * 2 * group.head_dim * 2 <= SHARED:
            found.append({"programs": programs, "ring": ring, "turns": turn, "step": step})
    return found


def pasted(found: Sequence[dict[str, Any]]) -> str:
    """What was found, as Python for `configs.py`: the table for Hopper, with one choice for both
    kinds of call; and for plain Triton what `options` should return, call by call.

    Args:
        found: of `tuning.timed`, by group.
    """
    lines = ["HOPPER = {"]
    for (kernel, size), now in HOPPER.items():
        mine = [f for f in found if f["hopper"] and (f["kernel"], f["head_dim"]) == (kernel, size)]
        chosen = _together(mine)
        said = "" if chosen else "  # as it was"
        lines.append(f'    ("{kernel}", {size}): {_written(chosen or now)},{said}')
    lines = [*lines, "}"] if any(f["hopper"] for f in found) else []
    for one in found:
        if not one["hopper"] and isinstance(one["best"], dict):
            best = ", ".join(f'"{name}": {value}' for name, value in one["best"].items())
            lines += [
                f"# options(): {one['kernel']}, {one['kind']}, head size {one['head_dim']}",
                f"return {{{best}}}",
            ]
    return "\n".join(lines)


def _together(found: Sequence[dict[str, Any]]) -> HopperOptions | None:
    """The options with the least time in all, each kind's against its own best; None when the ones
    that are there are as good.
    """
    shares: dict[str, float] = {}
    times = [{k: t for k, t in f["all"].items() if not isinstance(t, str)} for f in found]
    times = [one for one in times if one]
    for name in set.intersection(*map(set, times)) if times else ():
        shares[name] = sum(one[name] / min(one.values()) for one in times)
    if not shares:
        return None
    best = min(sorted(shares), key=lambda name: shares[name])
    if best == "as it is":
        return None
    return HopperOptions(**{k: int(v) for k, v in (pair.split("=") for pair in best.split())})


def _written(options: HopperOptions) -> str:
    fields = [str(options.programs), str(options.ring)]
    for name in ("turns", "step"):
        if getattr(options, name) != HopperOptions._field_defaults[name]:
            fields.append(f"{name}={getattr(options, name)}")
    return f"HopperOptions({', '.join(fields)})"
