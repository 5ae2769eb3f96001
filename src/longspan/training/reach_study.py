"""What learned windows have learned: which tokens look far, in which layers and heads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import need_int
from ..nn import LearnedWindow
from ..nn.modes import evaluating
from ..tasks import Batch, Task
from .learner import Learner, on_device
from .reach_labels import LEVELS, NONE, labels_of
from .reach_sums import ByLevel, Explained, LayerSums, Spread

__all__ = ["study_reach"]

EXAMPLES = 512
BATCH = 16

# Tokens that are named for how far they look: so many, of those that occur at least so often.
NAMED = 20
NAMED_IN_A_LAYER = 8
OFTEN = 10

# Of these the means of every head are given, too.
FOR_HEADS = ("kind", "distance")


@torch.no_grad()
def study_reach(
    learner: Learner,
    task: Task,
    *,
    examples: int = EXAMPLES,
    batch: int = BATCH,
    told: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Looks at the reaches of a trained model on dev examples, as JSON can hold them.

    Counted are real tokens that are not global: a global token sees all, whatever its reach. Of a
    translator, these are the layers of the encoder.

    Args:
        learner: the model; it stays where it is.
        task: whose dev examples are read.
        examples: how many, spread evenly over all.
        batch: how many at once.
        told: how many of how many examples are done.

    Returns:
        `layers`: mean and quantiles of each layer and head, and the share of reaches that are at
        `max_reach`. `by`: mean reach by what is known of a token (`reach_labels.LEVELS`), over all
        layers and in each. `explained`: shares of the variance of ln(reach). `named`: the tokens
        that look furthest, and least far.
    """
    need_int("reaches: examples", examples, at_least=1)
    need_int("reaches: batch", batch, at_least=1)
    windows = _windows(learner)
    device = next(learner.parameters()).device
    numbers = _spread_evenly(len(task.dev), examples)
    lengths = task.lengths("dev")
    if lengths is not None:
        numbers.sort(key=lambda number: -lengths[number])
    sums: list[LayerSums] = []
    with evaluating(learner), learner.autocast():
        for first in range(0, len(numbers), batch):
            given = task.batch(numbers[first : first + batch], "dev")
            labels = labels_of(task, given)
            there, padded = on_device(given, device)
            learner.objective.scores(learner, there, padded)
            tokens, counted = _read(there)
            labels = {name: own.to(device, non_blocking=True) for name, own in labels.items()}
            places = counted.flatten().nonzero()[:, 0]
            flat = {name: own.flatten()[places] for name, own in labels.items()}
            flat["token"] = tokens.flatten()[places]
            sizes = {"token": task.vocabulary} | {name: len(LEVELS[name]) for name in labels}
            sums = sums or [
                LayerSums(own.num_heads, own.max_reach, sizes, device) for _, own in windows
            ]
            for own, (_, window) in zip(sums, windows, strict=True):
                assert window.last_reach is not None
                own.add(window.last_reach.transpose(0, 1).flatten(1)[:, places], flat)
            if told is not None:
                told(min(first + batch, len(numbers)), len(numbers))
    if not sums or not sums[0].tokens:
        raise ValueError("reaches: all tokens of the dev examples are global: none has a reach")
    return {
        "task": task.name,
        "split": "dev",
        "examples": len(numbers),
        "tokens": sums[0].tokens,
        "layers": [
            {
                "layer": number,
                **_spread(own.of_all()),
                "max_reach": own.max_reach,
                "heads": [_spread(head) for head in own.of_heads()],
            }
            for own, (number, _) in zip(sums, windows, strict=True)
        ],
        "by": _by(sums),
        "explained": _explained([own.explained() for own in sums]),
        "named": _named(task, [own.by("token") for own in sums]),
    }


def _windows(learner: Learner) -> list[tuple[int, LearnedWindow]]:
    """The learned windows, each with the number of its layer."""
    all_of_them = learner.mechanisms()
    both = learner.objective.body == "both"
    found = [
        (number, own)
        for number, own in enumerate(all_of_them)
        if isinstance(own, LearnedWindow) and not (both and own.causal)
    ]
    if not found:
        kinds = " and ".join(dict.fromkeys(type(own).__name__ for own in all_of_them))
        raise ValueError(
            f"reaches: the model has no learned windows, its layers have {kinds}: name a run "
            "whose mechanism is LearnedWindow"
        )
    return found


def _spread_evenly(count: int, wanted: int) -> list[int]:
    wanted = min(count, wanted)
    return [number * count // wanted for number in range(wanted)]


def _read(batch: Batch) -> tuple[Tensor, Tensor]:
    """The tokens that the windows read, and which of them count."""
    if batch.source is not None:
        return batch.source["tokens"], batch.source["real"]
    if batch.global_tokens is None:
        return batch.tokens, batch.real
    return batch.tokens, batch.real & ~batch.global_tokens


def _spread(found: Spread) -> dict[str, Any]:
    return {
        "mean": _short(found.mean),
        "quantiles": [_short(own) for own in found.quantiles],
        "at_most": _short(found.at_most),
    }


def _by(sums: Sequence[LayerSums]) -> dict[str, Any]:
    """Mean reaches by label, of what some token has a label of."""
    found = {}
    for name in LEVELS:
        if name not in sums[0].levels:
            continue
        own = [layer.by(name) for layer in sums]
        tokens = own[0].tokens[:NONE]
        if not tokens.any():
            continue
        pooled = torch.stack([layer.reach.mean(0) for layer in own]).mean(0)
        found[name] = {
            "levels": list(LEVELS[name]),
            "tokens": tokens.long().tolist(),
            "mean": _means(pooled[:NONE], tokens),
            "layers": [_means(layer.reach.mean(0)[:NONE], tokens) for layer in own],
        }
        if name in FOR_HEADS:
            found[name]["heads"] = [
                [_means(head[:NONE], tokens) for head in layer.reach] for layer in own
            ]
    return found


def _means(sums: Tensor, tokens: Tensor) -> list[float | None]:
    return [
        _short(own) if count else None
        for own, count in zip((sums / tokens).tolist(), tokens.tolist(), strict=True)
    ]


def _explained(layers: Sequence[Explained]) -> dict[str, Any]:
    """Shares of the variance in each layer, and of that in all of them: what layers explain by
    their means, and the rest within layers.
    """
    values = sum(own.values for own in layers)
    mean = sum(own.values * own.mean for own in layers) / values
    between = sum(own.values * (own.mean - mean) ** 2 for own in layers)
    total = between + sum(own.total for own in layers)
    whole = {"layer": _share(between, total)}
    for name in layers[0].by:
        parts = [own.by[name] for own in layers]
        known = [part for part in parts if part is not None]
        whole[name] = _share(sum(known), total) if len(known) == len(parts) else None
    return {
        "all": whole,
        "layers": [
            {name: _share(part, own.total) for name, part in own.by.items()} for own in layers
        ],
    }


def _share(part: float | None, total: float) -> float | None:
    return None if part is None or total <= 0 else _short(part / total)


def _named(task: Task, layers: Sequence[ByLevel]) -> dict[str, Any]:
    """The tokens that look furthest and least far, each with its mean reach and how often it is
    there.
    """
    pooled = torch.stack([own.reach.mean(0) for own in layers]).mean(0)
    tokens = layers[0].tokens
    return {
        "all": _furthest(task, pooled, tokens, NAMED),
        "layers": [_furthest(task, own.reach.mean(0), tokens, NAMED_IN_A_LAYER) for own in layers],
    }


def _furthest(task: Task, sums: Tensor, tokens: Tensor, most: int) -> dict[str, Any]:
    often = (tokens[:NONE] >= OFTEN).nonzero()[:, 0]
    means = sums[often] / tokens[often]
    order = often[means.argsort(descending=True, stable=True)].tolist()
    # None is named twice.
    most = min(most, len(order) // 2)
    chosen = {"far": order[:most], "near": order[len(order) - most :][::-1]}
    return {
        end: [
            {
                "token": text,
                "mean": _short(float(sums[token] / tokens[token])),
                "tokens": int(tokens[token]),
            }
            for token, text in zip(own, task.texts(own), strict=True)
        ]
        for end, own in chosen.items()
    }


def _short(value: float) -> float:
    """Five digits, which is more than a mean of reaches is worth."""
    return float(f"{value:.5g}")
