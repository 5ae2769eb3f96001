"""Groups of parameters with learning rates of their own."""

from __future__ import annotations

import pytest
from torch import nn

from longspan.nn import LearnedWindow, parameter_groups


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.first = LearnedWindow(8, 2, mean_reach=2, max_reach=4)
        self.again = self.first


def test_reach_has_its_own_rate() -> None:
    model = Two()
    rest, reach = parameter_groups(model, 0.1, reach_factor=10)
    assert (rest["name"], rest["lr"], reach["name"], reach["lr"]) == ("rest", 0.1, "reach", 1.0)
    assert [id(p) for p in reach["params"]] == [id(model.first.W_p), id(model.first.U_d)]
    assert len(rest["params"]) == 2


def test_frozen_reach_has_no_group() -> None:
    model = Two()
    model.first.load_reach(LearnedWindow(8, 2, mean_reach=2, max_reach=4))
    (rest,) = parameter_groups(model, 0.1, reach_factor=10)
    assert rest["name"] == "rest"


def test_a_rate_of_reaches_that_are_not_there() -> None:
    """Such as before windows are put into a model, which would then learn at the others' rate."""
    model = nn.Linear(3, 3)
    with pytest.raises(ValueError, match="the model has none: put them into it first"):
        parameter_groups(model, 0.1, reach_factor=10)
    assert len(parameter_groups(model, 0.1)) == 1
