"""Training in stages, on Accelerate. Needs accelerate and safetensors: `longspan[train]`."""

from .answering import Answer
from .building import build
from .config import RunConfig
from .estimating import StageCost, estimate
from .evaluating import evaluate
from .folder import TakenError
from .guard import NotFiniteError
from .learner import Learner
from .loading import Trained, load
from .looked import Looked
from .objectives import OBJECTIVES, Objective
from .run import train
from .stage import Stage

__all__ = [
    "OBJECTIVES",
    "Answer",
    "Learner",
    "Looked",
    "NotFiniteError",
    "Objective",
    "RunConfig",
    "Stage",
    "StageCost",
    "TakenError",
    "Trained",
    "build",
    "estimate",
    "evaluate",
    "load",
    "train",
]
