"""Modules in evaluation mode for a while."""

from __future__ import annotations

import pytest
from torch import nn

from longspan.nn.modes import evaluating


@pytest.mark.parametrize("fails", [False, True])
def test_every_part_has_its_own_mode_again(fails: bool) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Dropout(), nn.Linear(2, 2)))
    model[1][0].eval()
    before = [part.training for part in model.modules()]
    assert len(set(before)) == 2
    try:
        with evaluating(model):
            assert not any(part.training for part in model.modules())
            if fails:
                raise ArithmeticError
    except ArithmeticError:
        assert fails
    assert [part.training for part in model.modules()] == before
