"""What a model learns: a task's targets joined to a head and a loss, and what is read from it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..models import (
    Classification,
    Config,
    Encoder,
    LanguageModel,
    MaskedTokens,
    SpanAnswers,
    Tagging,
    Translator,
)
from ..tasks import NOT_COUNTED, Batch
from .naming import unknown

if TYPE_CHECKING:
    from .learner import Learner

__all__ = ["OBJECTIVES", "Objective", "config_of", "objective_of"]

# Answers are at most so many tokens long, and so many of them are given for a text.
LONGEST, BEST = 30, 20


class Objective:
    """One way to learn.

    Attributes:
        name: as tasks say it.
        body: the model that it needs: `"encoder"`, `"decoder"` or `"both"`.
        target: which of a batch's targets is asked for.
    """

    name: str
    body = "encoder"
    target = "tokens"

    def __init__(self, settings: dict[str, Any] | None = None) -> None:
        self.settings = dict(settings or {})

    def head(self, body: nn.Module) -> nn.Module | None:
        """What stands over the body; None where the body has it already."""
        raise NotImplementedError

    def scores(self, model: Learner, batch: Batch, padded: bool = True) -> Any:
        """What the model says, from which both loss and answers are read."""
        raise NotImplementedError

    def count(self, batch: Batch) -> int:
        """How many targets the loss is a sum over."""
        return int((self.asked(batch) >= 0).sum())

    def asked(self, batch: Batch) -> Tensor:
        return batch.targets[self.target]

    def loss_of(self, scores: Any, batch: Batch) -> Tensor:
        """Σ over targets of −ln p, float32."""
        return _each(scores, self.asked(batch)).sum()

    def decoded(self, model: Learner, scores: Any, batch: Batch) -> dict[int, Any]:
        """For the number of each example what the task scores."""
        raise NotImplementedError

    def restored(self, value: Any) -> Any:
        """What `decoded` gave, after it has been JSON."""
        return value

    def loss(self, model: Learner, batch: Batch, padded: bool = True) -> tuple[Tensor, int]:
        """The sum, and how many targets it is over."""
        return self.loss_of(self.scores(model, batch, padded), batch), self.count(batch)

    @torch.no_grad()
    def decode(self, model: Learner, batch: Batch, padded: bool = True) -> dict[int, Any]:
        """For the number of each example what the model answers, as the task scores it."""
        return self.decoded(model, self.scores(model, batch, padded), batch)

    def predict(self, model: Learner, batch: Batch, padded: bool = True) -> dict[int, Any]:
        """The same for new input, of which nobody knows what is right."""
        return self.decode(model, batch, padded)


class Spans(Objective):
    """Where an answer begins and ends: the mean of the two, for every text that has one.

    Targets `start` and `end` are int `(B,)`; `allowed`, bool `(B, N)`, says where answers may
    lie.
    """

    name, target = "spans", "start"

    def head(self, body: nn.Module) -> nn.Module:
        return SpanAnswers(config_of(body).width)

    def scores(self, model: Learner, batch: Batch, padded: bool = True) -> Any:
        allowed = batch.targets.get("allowed", batch.real)
        return model.head(model.vectors(batch, padded), allowed)

    def loss_of(self, scores: Any, batch: Batch) -> Tensor:
        begin, end = scores
        both = _each(begin, batch.targets["start"]) + _each(end, batch.targets["end"])
        return both.sum() / 2

    def decoded(self, model: Learner, scores: Any, batch: Batch) -> dict[int, Any]:
        begin, end = (own.float() for own in scores)
        n = begin.shape[1]
        longest = min(int(self.settings.get("longest", LONGEST)), n)
        ends = F.pad(end, (0, longest - 1), value=float("-inf")).unfold(1, longest, 1)
        both = begin[:, :, None] + ends
        # From the first token only "no answer" goes: where that is likely, spans from there would
        # leave no place for others among the best.
        both[:, 0, 1:] = float("-inf")
        both = both.flatten(1)
        best = both.topk(min(BEST, both.shape[1]), -1)
        found = {}
        for number, values, places in zip(
            batch.numbers, best.values.tolist(), best.indices.tolist(), strict=True
        ):
            found[number] = [
                (place // longest, place // longest + place % longest, value)
                for value, place in zip(values, places, strict=True)
                if value > float("-inf")
            ]
        return found

    def restored(self, value: Any) -> Any:
        return [tuple(own) for own in value]


class Next(Objective):
    """The next token of every token, which is the target in its place."""

    name, body = "next", "decoder"

    def head(self, body: nn.Module) -> None:
        return None

    def scores(self, model: Learner, batch: Batch, padded: bool = True) -> Tensor:
        found: Tensor = model.body(batch.tokens, key_padding=batch.real if padded else None)
        return found

    def decoded(self, model: Learner, scores: Any, batch: Batch) -> dict[int, Any]:
        target = self.asked(batch)
        bits = _each(scores, target).double().sum(-1) / math.log(2.0)
        counts = (target >= 0).sum(-1)
        right = (scores.argmax(-1) == target).sum(-1)
        each = zip(bits.tolist(), counts.tolist(), right.tolist(), strict=True)
        return dict(zip(batch.numbers, each, strict=True))

    @torch.no_grad()
    def predict(self, model: Learner, batch: Batch, padded: bool = True) -> dict[int, Any]:
        """What follows each text, token by token the likeliest, up to the task's end.

        Texts of one length go together: beside longer ones a text would be padded on the left,
        where it has other positions than it was learned at, and have less room to go on.
        """
        body, end = model.body, self.settings.get("end")
        assert isinstance(body, LanguageModel)
        lengths = batch.real.sum(-1)
        found = {}
        for n in lengths.unique().tolist():
            rows = (lengths == n).nonzero()[:, 0]
            steps = body.config.length - n + 1
            written = body.generate(batch.tokens[rows, :n], steps, end=end)
            for row, tokens in zip(rows.tolist(), written[:, n:].tolist(), strict=True):
                found[batch.numbers[row]] = _until(tokens, end)
        return {number: found[number] for number in batch.numbers}

    def restored(self, value: Any) -> Any:
        return tuple(value)


class Masked(Objective):
    """Tokens that were hidden."""

    name = "masked"

    def head(self, body: nn.Module) -> nn.Module:
        config = config_of(body)
        assert isinstance(body, Encoder)
        return MaskedTokens(body.tokens, activation=config.activation, norm_eps=config.norm_eps)

    def scores(self, model: Learner, batch: Batch, padded: bool = True) -> Tensor:
        # Only hidden tokens are scored: the vocabulary is wide.
        hidden = self.asked(batch) >= 0
        found: Tensor = model.head(model.vectors(batch, padded)[hidden])
        return found

    def loss_of(self, scores: Any, batch: Batch) -> Tensor:
        target = self.asked(batch)
        return _each(scores, target[target >= 0]).sum()

    def decoded(self, model: Learner, scores: Any, batch: Batch) -> dict[int, Any]:
        target = self.asked(batch)
        hidden = target >= 0
        wanted, owner = target[hidden], hidden.nonzero()[:, 0].tolist()
        right = (scores.argmax(-1) == wanted).tolist()
        nats = _each(scores, wanted).tolist()
        found: dict[int, Any] = {number: (0, 0, 0.0) for number in batch.numbers}
        for place, hit, own in zip(owner, right, nats, strict=True):
            before = found[batch.numbers[place]]
            found[batch.numbers[place]] = (before[0] + hit, before[1] + 1, before[2] + own)
        return found

    def restored(self, value: Any) -> Any:
        return tuple(value)


class Classes(Objective):
    """One class for a text."""

    name, target = "classes", "classes"

    def head(self, body: nn.Module) -> nn.Module:
        config = config_of(body)
        return Classification(config.width, self.settings["classes"], config.dropout)

    def scores(self, model: Learner, batch: Batch, padded: bool = True) -> Tensor:
        found: Tensor = model.head(model.vectors(batch, padded))
        return found

    def decoded(self, model: Learner, scores: Any, batch: Batch) -> dict[int, Any]:
        return dict(zip(batch.numbers, scores.argmax(-1).tolist(), strict=True))


class Tags(Objective):
    """One tag for every token."""

    name, target = "tags", "tags"

    def head(self, body: nn.Module) -> nn.Module:
        config = config_of(body)
        return Tagging(config.width, self.settings["classes"], config.dropout)

    def scores(self, model: Learner, batch: Batch, padded: bool = True) -> Tensor:
        found: Tensor = model.head(model.vectors(batch, padded))
        return found

    def decoded(self, model: Learner, scores: Any, batch: Batch) -> dict[int, Any]:
        chosen = scores.argmax(-1)
        return {
            number: chosen[place][batch.real[place]].tolist()
            for place, number in enumerate(batch.numbers)
        }


class Translation(Objective):
    """The next token of a target text, given a source text.

    `batch.tokens` begin with the token that begins every target.
    """

    name, body = "translation", "both"

    def head(self, body: nn.Module) -> None:
        return None

    def scores(self, model: Learner, batch: Batch, padded: bool = True) -> Tensor:
        source = _source(batch)
        found: Tensor = model.body(
            source["tokens"],
            batch.tokens,
            key_padding=source["real"],
            target_padding=batch.real if padded else None,
        )
        return found

    def decoded(self, model: Learner, scores: Any, batch: Batch) -> dict[int, Any]:
        source, end = _source(batch), self.settings.get("end")
        options: dict[str, Any] = {} if end is None else {"end": int(end)}
        body = model.body
        assert isinstance(body, Translator)
        # Each as long as its source, and half as much again.
        most = source["real"].sum(-1) * 3 // 2 + 8
        steps = min(int(most.max()), body.config.length - 1)
        written = body.translate(
            source["tokens"],
            steps,
            begin=int(batch.tokens[0, 0]),
            key_padding=source["real"],
            beams=int(self.settings.get("beams", 4)),
            **options,
        )
        found = {}
        rows = zip(batch.numbers, written[:, 1:].tolist(), most.tolist(), strict=True)
        for number, tokens, own in rows:
            found[number] = _until(tokens[:own], end)
        return found


OBJECTIVES: dict[str, type[Objective]] = {
    own.name: own for own in (Spans, Next, Masked, Classes, Tags, Translation)
}


def objective_of(name: str, settings: dict[str, Any] | None = None) -> Objective:
    """An objective by the name that a task gives it."""
    if name not in OBJECTIVES:
        raise ValueError(unknown("objective", name, OBJECTIVES))
    return OBJECTIVES[name](settings)


def config_of(body: nn.Module) -> Config:
    """The sizes of a model."""
    config = body.config
    assert isinstance(config, Config)
    return config


def _source(batch: Batch) -> dict[str, Tensor]:
    if batch.source is None:
        raise ValueError("translation: the batch has no source text")
    return batch.source


def _until(tokens: list[int], end: int | None) -> list[int]:
    return tokens[: tokens.index(end)] if end in tokens else tokens


def _each(scores: Tensor, target: Tensor) -> Tensor:
    """−ln p of every target, float32, 0 where nothing is asked."""
    each = F.cross_entropy(
        scores.float().flatten(0, -2),
        torch.where(target >= 0, target, NOT_COUNTED).flatten(),
        ignore_index=NOT_COUNTED,
        reduction="none",
    )
    return each.reshape(target.shape)
