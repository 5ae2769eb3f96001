"""Bad input: one error each, which names the argument."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from longspan.weights import Alibi, Bell, Bias, DistanceBias, Ramp, RelativePosition, Weight

INTS = torch.ones(3, dtype=torch.int64)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Bell(0.0), ValueError, "Bell: variance .*0.0"),
        (lambda: Bell(-1), ValueError, "Bell: variance .*-1"),
        (lambda: Bell(math.nan), ValueError, "Bell: variance .*nan"),
        (lambda: Bell(True), TypeError, "Bell: variance .*True"),
        (lambda: Bell(None), TypeError, "Bell: variance .*None"),
        (lambda: Bell("9"), TypeError, "Bell: variance .*'9'"),
        (lambda: Bell([1.0]), TypeError, "Bell: variance .*list"),
        (lambda: Bell(INTS), TypeError, "Bell: variance .*int64"),
        (lambda: Bell(INTS.bool()), TypeError, "Bell: variance .*bool"),
        (lambda: Bell(torch.ones(1, 1, 1, 1)), ValueError, r"Bell: variance .*\(1, 1, 1, 1\)"),
        (lambda: Bell(1.0, threshold=0.0), ValueError, "Bell: threshold .*0.0"),
        (lambda: Bell(1.0, threshold=1.0), ValueError, "Bell: threshold .*1.0"),
        (lambda: Bell(1.0, threshold=-0.5), ValueError, "Bell: threshold .*-0.5"),
        (lambda: Bell(1.0, threshold=math.nan), ValueError, "Bell: threshold .*nan"),
        (lambda: Bell(1.0, threshold=True), TypeError, "Bell: threshold .*True"),
        (lambda: Bell(1.0, threshold=torch.tensor(0.5)), TypeError, "Bell: threshold .*tensor"),
        (lambda: Bell(1.0, max_reach=-1), ValueError, "Bell: max_reach .*-1"),
        (lambda: Bell(1.0, max_reach=2.5), TypeError, "Bell: max_reach .*2.5"),
        (lambda: Bell(1.0, max_reach=True), TypeError, "Bell: max_reach .*True"),
        (lambda: Bell(1.0, exempt=1), TypeError, "Bell: exempt .*1"),
        (lambda: Bell(1.0, exempt=INTS), TypeError, "Bell: exempt .*int64"),
        (lambda: Bell(1.0, form="factor"), ValueError, "Bell: form .*factor"),
        (lambda: Bell(1.0, form=None), (TypeError, ValueError), "Bell: form .*None"),
        (lambda: Bell(1.0, normalized=1), TypeError, "Bell: normalized .*1"),
        (lambda: Ramp(math.nan, 2.0), ValueError, "Ramp: span .*nan"),
        (lambda: Ramp(math.inf, 2.0), ValueError, "Ramp: span .*inf"),
        (lambda: Ramp(True, 2.0), TypeError, "Ramp: span .*True"),
        (lambda: Ramp(None, 2.0), TypeError, "Ramp: span .*None"),
        (lambda: Ramp(INTS, 2.0), TypeError, "Ramp: span .*int64"),
        (lambda: Ramp(torch.ones(1, 1, 1, 1), 2.0), ValueError, r"Ramp: span .*\(1, 1, 1, 1\)"),
        (lambda: Ramp(1.0, 0.0), ValueError, "Ramp: softness .*0.0"),
        (lambda: Ramp(1.0, -2), ValueError, "Ramp: softness .*-2"),
        (lambda: Ramp(1.0, math.inf), ValueError, "Ramp: softness .*inf"),
        (lambda: Ramp(1.0, math.nan), ValueError, "Ramp: softness .*nan"),
        (lambda: Ramp(1.0, False), TypeError, "Ramp: softness .*False"),
        (lambda: Ramp(1.0, torch.tensor(2.0)), TypeError, "Ramp: softness .*tensor"),
        (lambda: Ramp(1.0, 2.0, exempt="all"), TypeError, "Ramp: exempt .*'all'"),
        (lambda: Bias(0.0), TypeError, "Bias: tensor .*0.0"),
        (lambda: Bias(torch.zeros(3, 3)), ValueError, r"Bias: tensor .*\(3, 3\)"),
        (lambda: Bias(INTS[None, None, None]), TypeError, "Bias: tensor .*int64"),
        (lambda: Bias(INTS.bool()[None, None, None]), TypeError, "Bias: tensor .*bool"),
        (lambda: DistanceBias([0.0]), TypeError, "DistanceBias: table .*list"),
        (lambda: DistanceBias(INTS), TypeError, "DistanceBias: table .*int64"),
        (lambda: DistanceBias(torch.zeros(1, 1, 3)), ValueError, "DistanceBias: table"),
        (lambda: DistanceBias(torch.zeros(0)), ValueError, "DistanceBias: .*table"),
        (lambda: DistanceBias(torch.zeros(4)), ValueError, "DistanceBias: .*right"),
        (lambda: DistanceBias(torch.zeros(4), right=4), ValueError, "DistanceBias: right .*4"),
        (lambda: DistanceBias(torch.zeros(4), right=-1), ValueError, "DistanceBias: right .*-1"),
        (lambda: DistanceBias(torch.zeros(4), right=True), TypeError, "DistanceBias: right"),
        (lambda: DistanceBias(torch.zeros(4), right=1.0), TypeError, "DistanceBias: right"),
        (lambda: Alibi(0.5), TypeError, "Alibi: slopes .*0.5"),
        (lambda: Alibi(INTS), TypeError, "Alibi: slopes .*int64"),
        (lambda: Alibi(torch.zeros(3, 1)), ValueError, r"Alibi: slopes .*\(3, 1\)"),
        (lambda: RelativePosition(None), TypeError, "RelativePosition: positions .*None"),
        (lambda: RelativePosition(torch.zeros(3, 4)), ValueError, "RelativePosition: positions"),
        (lambda: RelativePosition(torch.zeros(1, 0, 4)), ValueError, "RelativePosition: .*table"),
        (lambda: RelativePosition(torch.zeros(1, 4, 4)), ValueError, "RelativePosition: .*right"),
        (
            lambda: RelativePosition(torch.zeros(1, 5, 4), right=5),
            ValueError,
            "RelativePosition: right .*5",
        ),
        (
            lambda: RelativePosition(torch.zeros(1, 5, 4), torch.zeros(4)),
            ValueError,
            "RelativePosition: content_bias",
        ),
        (
            lambda: RelativePosition(torch.zeros(1, 5, 4), None, INTS),
            TypeError,
            "RelativePosition: position_bias .*int64",
        ),
    ],
)
def test_constructors(make: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (Bell(torch.ones(3, 3, 5)), r"Bell: variance .*\(2, 3, 5\)"),
        (Bell(torch.ones(2, 1, 7)), r"Bell: variance .*\(2, 3, 5\)"),
        (Bell(torch.ones(3)), r"Bell: variance .*\(2, 3, 5\)"),
        (Bell(torch.ones(2, 1)), r"Bell: variance .*\(2, 3, 5\)"),
        (Ramp(torch.ones(5), 2.0), r"Ramp: span .*\(2, 3, 5\)"),
        (Ramp(torch.ones(3, 3, 1), 2.0), r"Ramp: span .*\(2, 3, 5\)"),
        (Bias(torch.ones(2, 3, 7, 5)), r"Bias: tensor .*\(2, 3, 5, 7\)"),
        (Bias(torch.ones(3, 1, 1, 1)), r"Bias: tensor .*\(2, 3, 5, 7\)"),
        (DistanceBias(torch.ones(2, 3)), "DistanceBias: table .* 3 heads"),
        (Alibi(torch.ones(2)), r"Alibi: slopes .*\(3,\)"),
        (RelativePosition(torch.ones(2, 3, 4)), "RelativePosition: positions .* 3 heads"),
        (RelativePosition(torch.ones(3, 3, 5)), "RelativePosition: positions .* size 4"),
        (
            RelativePosition(torch.ones(3, 3, 4), torch.ones(2, 4)),
            "RelativePosition: content_bias .* 3 heads",
        ),
        (
            RelativePosition(torch.ones(3, 3, 4), None, torch.ones(3, 5)),
            "RelativePosition: position_bias .* size 4",
        ),
    ],
)
def test_sizes_that_do_not_fit_the_call(weight: Weight, message: str) -> None:
    """For two samples, three heads, five queries, seven keys and a head size of four."""
    with pytest.raises(ValueError, match=message):
        weight.check(2, 3, 5, 7, 4)
