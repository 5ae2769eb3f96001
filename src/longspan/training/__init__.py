"""Training in stages, on Accelerate. Needs accelerate and safetensors: `longspan[train]`."""

from .building import build
from .config import RunConfig
from .estimating import StageCost, estimate
from .evaluating import evaluate
from .guard import NotFiniteError
from .learner import Learner
from .loading import Trained, load
from .objectives import OBJECTIVES, Objective
from .run import train
from .stage import Stage

__all__ = [
    "OBJECTIVES",
    "Learner",
    "NotFiniteError",
    "Objective",
    "RunConfig",
    "Stage",
    "StageCost",
    "Trained",
    "build",
    "estimate",
    "evaluate",
    "load",
    "train",
]
