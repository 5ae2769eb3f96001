"""Tasks: examples from files as batches, and how good a model's outputs are."""

from .batch import NOT_COUNTED, Batch
from .registry import NAMES, from_description, make
from .task import Examples, Task

__all__ = ["NAMES", "NOT_COUNTED", "Batch", "Examples", "Task", "from_description", "make"]
