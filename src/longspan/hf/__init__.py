"""longspan under Hugging Face models. Needs transformers, which is loaded by the first call."""

from .bert import from_bert
from .bigbird import from_bigbird
from .checking import Check, check
from .heads import head_of
from .layers import restore, use
from .lengthen import lengthen
from .longformer import from_longformer
from .profiling import Profile, profile
from .register import register
from .saving import load, load_adapter, save, save_adapter

__all__ = [
    "Check",
    "Profile",
    "check",
    "from_bert",
    "from_bigbird",
    "from_longformer",
    "head_of",
    "lengthen",
    "load",
    "load_adapter",
    "profile",
    "register",
    "restore",
    "save",
    "save_adapter",
    "use",
]
