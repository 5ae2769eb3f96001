"""The `cpu` backend: C++ kernels, reached through a small compiled module.

The compiled module is built at installation where a C++ compiler is found. Without it this package
imports as usual, `available()` says so, and the backend refuses every problem.
"""

from .launch import backward, forward, unsupported_reasons
from .native import available, instruction_sets

__all__ = ["available", "backward", "forward", "instruction_sets", "unsupported_reasons"]
