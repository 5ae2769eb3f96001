"""Weights of BERT-like encoders of transformers, in the one transformer of `longspan.models`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..errors import describe
from ..models import Config, Encoder
from ..nn import LearnedWindow, Mechanism, MultiheadAttention
from ..nn.global_rows import GlobalRows

__all__ = ["Source", "activation_name", "base_of", "copy_into", "encoder_from", "whole"]

# A model of transformers, or where its `from_pretrained` finds one.
Source = Any

# Their names of activations, and ours.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "tanh": "tanh",
}

# For each part of our block the one that it is in a layer of theirs.
PARTS = {
    "attention.q_proj": "attention.self.query",
    "attention.k_proj": "attention.self.key",
    "attention.v_proj": "attention.self.value",
    "attention.out_proj": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "mlp.0": "intermediate.dense",
    "mlp.2": "output.dense",
    "mlp_norm": "output.LayerNorm",
}


def whole(caller: str, source: Source, *kinds: str) -> Any:
    """The model of transformers that was given, or that a path or a name of the hub stands for,
    with the head that its checkpoint was saved with.
    """
    import transformers

    if isinstance(source, (str, Path)):
        config = transformers.AutoConfig.from_pretrained(source)
        _check_kind(caller, config, kinds, repr(str(source)))
        named = (config.architectures or [""])[0]
        load = getattr(transformers, named, transformers.AutoModel)
        return load.from_pretrained(source)
    if not isinstance(source, transformers.PreTrainedModel):
        raise TypeError(
            f"{caller}: model must be a model of transformers, or a path or name that "
            f"from_pretrained takes, got {describe(source)}"
        )
    _check_kind(caller, source.config, kinds, type(source).__name__)
    return source


def _check_kind(caller: str, config: Any, kinds: tuple[str, ...], named: str) -> None:
    if config.model_type not in kinds:
        raise ValueError(
            f"{caller}: {named} must be of model_type {' or '.join(kinds)}, got "
            f"{config.model_type!r}"
        )


def base_of(caller: str, model: Any) -> Any:
    """The encoder inside a model that may have a head."""
    config = model.config
    if getattr(config, "is_decoder", False) or getattr(config, "add_cross_attention", False):
        raise ValueError(
            f"{caller}: {type(model).__name__} is a decoder (config.is_decoder), and an encoder is "
            "made here; give a model with is_decoder=False"
        )
    base = model.base_model
    if not hasattr(base, "embeddings") or not hasattr(base, "encoder"):
        raise ValueError(f"{caller}: {type(model).__name__} has no embeddings and encoder inside")
    return base


def activation_name(caller: str, theirs: Any) -> Any:
    if not isinstance(theirs, str) or theirs not in ACTIVATIONS:
        raise ValueError(
            f"{caller}: hidden_act must be one of {', '.join(ACTIVATIONS)}, got {describe(theirs)}"
        )
    return ACTIVATIONS[theirs]


def encoder_from(
    caller: str,
    base: Any,
    mechanism: Callable[[int], Mechanism],
    *,
    first: int = 0,
    scale: float = 1.0,
    attention_dropout: float = 0.0,
    more: dict[str, str] | None = None,
) -> Encoder:
    """An encoder with copies of their weights.

    Args:
        caller: whose errors these are.
        base: their encoder.
        mechanism: for the number of a layer.
        first: rows of the table of positions that are no positions.
        scale: what the embedding of tokens is multiplied by.
        attention_dropout: share of attention's weights that goes in training.
        more: names of parts of a block besides `PARTS`.
    """
    theirs, embeddings = base.config, base.embeddings
    tokens, positions = embeddings.word_embeddings.weight, embeddings.position_embeddings.weight
    types = embeddings.token_type_embeddings.weight
    config = Config(
        vocab=tokens.shape[0],
        width=tokens.shape[1],
        layers=len(base.encoder.layer),
        heads=theirs.num_attention_heads,
        hidden=theirs.intermediate_size,
        length=positions.shape[0] - first,
        positions="learned",
        norm="post",
        norm_eps=theirs.layer_norm_eps,
        embedding_norm=True,
        types=types.shape[0],
        activation=activation_name(caller, theirs.hidden_act),
        dropout=float(theirs.hidden_dropout_prob),
        attention_dropout=float(attention_dropout),
    )
    made = Encoder(config, mechanism).to(tokens.device, tokens.dtype)
    # What is the mechanism's own (draws of random blocks, networks for the reach) is there already,
    # unless their layers have it too.
    own = made.state_dict().items()
    weights = {name: value for name, value in own if ".attention.mechanism." in name}
    weights["tokens.weight"] = tokens.detach() * scale
    weights["positions.weight"] = positions.detach()[first:]
    weights["types.weight"] = types.detach()
    weights |= _named("embedding_norm", embeddings.LayerNorm)
    for number, layer in enumerate(base.encoder.layer):
        for ours, name in {**PARTS, **(more or {})}.items():
            weights |= _named(f"blocks.{number}.{ours}", layer.get_submodule(name))
    made.load_state_dict(weights)
    for block in made.blocks:
        _finish(block.attention, copied=more is None)  # type: ignore[arg-type]
    return made.train(base.training)


def _finish(attention: MultiheadAttention, *, copied: bool) -> None:
    """What of a mechanism does not follow the weights by itself."""
    mechanism = attention.mechanism
    if isinstance(mechanism, LearnedWindow):
        # In whatever dtype the weights are.
        mechanism.factor = mechanism.factor.double()
    if isinstance(mechanism, GlobalRows) and copied:
        attention.copy_projections()


def _named(name: str, part: Any) -> dict[str, Tensor]:
    """Weight and bias; one that they leave out is 0 here."""
    weight = part.weight.detach()
    missing = part.bias is None
    bias = weight.new_zeros(weight.shape[0]) if missing else part.bias.detach()
    return {f"{name}.weight": weight, f"{name}.bias": bias}


def copy_into(ours: nn.Module, theirs: Any) -> None:
    """Weight and bias of one part."""
    ours.load_state_dict({"weight": theirs.weight.detach(), "bias": theirs.bias.detach()})
