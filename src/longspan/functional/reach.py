"""Where a reach becomes an integer, once, for every backend."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from ..kernels.problem import BellReach, BellTerm, RampReach, RampTerm, Reach, SameReach, Term
from ..layout import Cut
from ..remembering import plainly
from ..weights import Bell, Ramp, Weight, reach_of
from ..weights.conversions import FARTHEST

__all__ = ["cut_of", "integer_reach", "reach_source"]


def integer_reach(weight: Weight, device: torch.device) -> Tensor | None:
    """How far each query looks under a weight, int32 `(B|1, H|1, N|1)`, or None when the weight
    cuts nothing.

    Without gradient. A bell with threshold k has ⌊√(−2·variance·ln k) + 10⁻³⌋; a ramp the largest d
    at which it is above 0; then the smaller of that and `max_reach`. −1 is a query that does not
    even see itself.
    """
    if isinstance(weight, Ramp):
        span = torch.as_tensor(weight.per_token(), dtype=torch.float64, device=device).detach()
        # In float32 and float64 alike: softness + span − d is above 0 exactly when d is below the
        # sum.
        reach = ((weight.softness + span).ceil() - 1).nan_to_num(0).clamp(-1, FARTHEST)
        return _three_dims(reach.to(torch.int32))
    if not isinstance(weight, Bell):
        return None
    most = FARTHEST if weight.max_reach is None else min(weight.max_reach, FARTHEST)
    if weight.threshold is not None:
        # A number is one of Python's, whatever the default dtype of tensors is.
        dtype = None if isinstance(weight.variance, Tensor) else torch.float64
        variance = torch.as_tensor(weight.variance, dtype=dtype, device=device)
        return _three_dims(reach_of(variance, weight.threshold)).clamp(max=most)
    if weight.max_reach is not None:
        return torch.full((1, 1, 1), most, dtype=torch.int32, device=device)
    return None


def cut_of(weight: Weight, n: int, device: torch.device) -> Cut:
    """What a weight does to existence, for n queries."""
    reach = integer_reach(weight, device)
    if reach is not None:
        reach = reach.expand(*reach.shape[:2], n)
    return Cut(reach, weight.exempt)


def reach_source(weight: Weight, term: Term) -> Reach | None:
    """What a kernel computes `integer_reach` from, with the tensor of the weight's term; None when
    the weight cuts nothing. Computes nothing itself.
    """
    if isinstance(weight, Ramp):
        assert isinstance(term, RampTerm)
        if isinstance(weight.span, Tensor):
            return RampReach(term.number, term.given, weight.softness)
        return SameReach(term.number, _ramp_reach(weight.span, weight.softness))
    if not isinstance(weight, Bell) or (weight.threshold is None and weight.max_reach is None):
        return None
    assert isinstance(term, BellTerm)
    most = FARTHEST if weight.max_reach is None else min(weight.max_reach, FARTHEST)
    if weight.threshold is None:
        return SameReach(term.number, most)
    if isinstance(weight.variance, Tensor):
        return BellReach(term.number, term.given, weight.threshold, most)
    return SameReach(term.number, _bell_reach(weight.variance, weight.threshold, most))


@lru_cache(maxsize=256)
@plainly()
def _bell_reach(variance: float, threshold: float, most: int) -> int:
    found = integer_reach(Bell(variance, threshold=threshold, max_reach=most), torch.device("cpu"))
    assert found is not None
    return int(found)


@lru_cache(maxsize=256)
@plainly()
def _ramp_reach(span: float, softness: float) -> int:
    found = integer_reach(Ramp(span, softness), torch.device("cpu"))
    assert found is not None
    return int(found)


def _three_dims(x: Tensor) -> Tensor:
    return x.reshape((1,) * (3 - x.dim()) + tuple(x.shape))
