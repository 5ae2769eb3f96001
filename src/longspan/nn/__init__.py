"""Mechanisms: attention as modules."""

from .learned_window import LearnedWindow
from .mechanism import Mechanism, Setting
from .parameter_groups import parameter_groups

__all__ = ["LearnedWindow", "Mechanism", "Setting", "parameter_groups"]
