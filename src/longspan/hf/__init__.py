"""longspan under Hugging Face models. Needs transformers, which is loaded by the first call."""

from .layers import restore, use
from .lengthen import lengthen
from .profiling import Profile, profile
from .register import register
from .saving import load, load_adapter, save, save_adapter

__all__ = [
    "Profile",
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
