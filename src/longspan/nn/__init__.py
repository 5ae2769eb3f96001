"""Mechanisms: attention as modules."""

from .learned_window import LearnedWindow
from .mechanism import Mechanism, Setting

__all__ = ["LearnedWindow", "Mechanism", "Setting"]
