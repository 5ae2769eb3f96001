"""Several optimisers as one, each for weights of its own."""

from __future__ import annotations

from typing import Any

from torch.optim import Optimizer

__all__ = ["SideBySide"]


class SideBySide:
    """Optimisers that step together. Their groups and states are one list, one after the other."""

    def __init__(self, *optimizers: Optimizer) -> None:
        self.optimizers = optimizers

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return [group for own in self.optimizers for group in own.param_groups]

    def step(self) -> None:
        for own in self.optimizers:
            own.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        for own in self.optimizers:
            own.zero_grad(set_to_none=set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """As that of one optimiser, whose weights are numbered on."""
        state: dict[int, Any] = {}
        groups: list[dict[str, Any]] = []
        for own in self.optimizers:
            whole, first = own.state_dict(), _weights(groups)
            state |= {first + number: value for number, value in whole["state"].items()}
            for group in whole["param_groups"]:
                groups.append({**group, "params": [first + own for own in group["params"]]})
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, whole: dict[str, Any]) -> None:
        groups, done = list(whole["param_groups"]), 0
        for own in self.optimizers:
            mine = groups[: len(own.param_groups)]
            groups = groups[len(mine) :]
            count = _weights(mine)
            numbers = range(done, done + count)
            state = {key - done: value for key, value in whole["state"].items() if key in numbers}
            moved = [
                {**group, "params": [number - done for number in group["params"]]} for group in mine
            ]
            own.load_state_dict({"state": state, "param_groups": moved})
            done += count


def _weights(groups: list[dict[str, Any]]) -> int:
    return sum(len(group["params"]) for group in groups)
