"""longspan under Hugging Face models. Needs transformers, which is loaded by the first call."""

from .checking import Check, check
from .layers import restore, use
from .lengthen import lengthen
from .profiling import Profile, profile
from .register import register

__all__ = ["Check", "Profile", "check", "lengthen", "profile", "register", "restore", "use"]
