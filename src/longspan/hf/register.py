"""Makes `attn_implementation="longspan"` known to transformers."""

from __future__ import annotations

import inspect

from .attention import attend
from .names import NAME
from .sight import sight_of

__all__ = ["register"]


def register() -> None:
    """Puts longspan under the name `"longspan"`, for every model of transformers that goes through
    its `AttentionInterface`.

        model = AutoModel.from_pretrained(name, attn_implementation="longspan")

    A model then computes the attention that it would have computed: causal or not, with padding, a
    cache, grouped heads, dropout, windows of its config, packed documents, and any mask of four
    dims. `use` puts a pattern or a mechanism there. May be called more than once.

    Differs from eager attention where a query sees nothing at all, as padding does in a causal
    model that is padded on the left: its output is 0 here, and a mean of all values there.
    `softcap`, attention sinks and `output_attentions` raise.
    """
    from transformers import AttentionInterface, __version__
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    if "q_offset" not in inspect.signature(sdpa_mask).parameters:
        # Masks were asked for in another way.
        raise ImportError(f"register: longspan needs transformers 5.10.1, got {__version__}")
    AttentionInterface.register(NAME, attend)
    # A name without a mask function of its own gets no mask at all, not even of padding.
    AttentionMaskInterface.register(NAME, sight_of)
