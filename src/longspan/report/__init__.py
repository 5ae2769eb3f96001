"""Reports: run folders into one page of HTML that needs nothing else."""

from .page import write

__all__ = ["write"]
