"""Names under which transformers and its modules know longspan."""

from __future__ import annotations

__all__ = ["EAGER", "NAME", "PLACE"]

# Of the implementation, in a config.
NAME = "longspan"

# Of the mechanism that an attention module holds.
PLACE = "longspan"

# What helps where a model wants what is not computed here.
EAGER = (
    "load the model with attn_implementation='eager', or undo longspan.hf.use by "
    "longspan.hf.restore(model)"
)
