"""Tasks: examples from files as batches, and how good a model's outputs are."""

from .batch import NOT_COUNTED, Batch
from .birthplaces import Birthplaces
from .bytes import Bytes
from .classify import Classify
from .inputs import InputReader, Inputs
from .masked import Masked
from .recall import Recall
from .registry import NAMES, from_description, make
from .squad import Squad
from .tag import Tag
from .task import Examples, Task
from .text_task import TextReader
from .translate import Translate

__all__ = [
    "NAMES",
    "NOT_COUNTED",
    "Batch",
    "Birthplaces",
    "Bytes",
    "Classify",
    "Examples",
    "InputReader",
    "Inputs",
    "Masked",
    "Recall",
    "Squad",
    "Tag",
    "Task",
    "TextReader",
    "Translate",
    "from_description",
    "make",
]
