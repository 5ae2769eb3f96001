"""Names under which transformers and its modules know longspan."""

from __future__ import annotations

__all__ = ["NAME", "PLACE"]

# Of the implementation, in a config.
NAME = "longspan"

# Of the mechanism that an attention module holds.
PLACE = "longspan"
