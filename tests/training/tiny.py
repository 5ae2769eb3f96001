"""A task of random tokens, small enough to train on in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from longspan.training import RunConfig, Stage

NOT_COUNTED = -100


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """As `longspan.tasks` has it."""

    tokens: Tensor
    real: Tensor
    targets: dict[str, Tensor]
    numbers: list[int]
    types: Tensor | None = None
    global_tokens: Tensor | None = None
    source: dict[str, Tensor] | None = None

    def to(self, device: torch.device, *, non_blocking: bool = False) -> Batch:
        def moved(value: Any) -> Any:
            if isinstance(value, dict):
                return {name: own.to(device) for name, own in value.items()}
            return value.to(device) if isinstance(value, Tensor) else value

        return Batch(**{f.name: moved(getattr(self, f.name)) for f in fields(self)})


class Tiny:
    """Texts of random tokens, each of a length of its own.

    The answer to a text is where its token 1 is, its class whether that is in the first half; the
    next token is the one before, plus one.
    """

    name = "tiny"
    vocabulary, pad = 16, 0
    files: Sequence[Any] = ()

    def __init__(
        self,
        data: str | None = None,
        *,
        objective: str = "next",
        length: int = 24,
        examples: int = 40,
    ) -> None:
        self.data, self.objective, self.length = data, objective, length
        self.settings = {"objective": objective, "length": length, "examples": examples}
        self.metric = {"next": "bits", "masked": "bits"}.get(objective, "accuracy")
        self.lower_is_better = self.metric == "bits"
        self.classes = {"classes": 2, "tags": 3}.get(objective)
        self.train: Sequence[int] = range(examples)
        self.dev: Sequence[int] = range(10)

    def examples(self, split: str) -> Sequence[int]:
        return self.train if split == "train" else self.dev

    def _text(self, number: int, split: str) -> Tensor:
        generator = torch.Generator().manual_seed(2 * number + (split == "dev"))
        n = int(torch.randint(self.length // 2, self.length + 1, (1,), generator=generator))
        if self.objective == "next":
            first = int(torch.randint(2, 16, (1,), generator=generator))
            return (first + torch.arange(n)) % 14 + 2
        text = torch.randint(2, 16, (n,), generator=generator)
        text[int(torch.randint(0, n, (1,), generator=generator))] = 1
        return text

    def batch(self, numbers: Sequence[int], split: str = "train") -> Batch:
        texts = [self._text(number, split) for number in numbers]
        longest = max(len(text) for text in texts)
        tokens = torch.zeros(len(texts), longest, dtype=torch.int64)
        real = torch.zeros(len(texts), longest, dtype=torch.bool)
        for row, text in enumerate(texts):
            tokens[row, : len(text)], real[row, : len(text)] = text, True
        return self._asked(tokens, real, list(numbers))

    def _asked(self, tokens: Tensor, real: Tensor, numbers: list[int]) -> Batch:
        where = (tokens == 1).int().argmax(-1)
        none = torch.full_like(tokens, NOT_COUNTED)
        targets: dict[str, Tensor]
        if self.objective == "spans":
            targets = {"start": where, "end": where, "allowed": real}
        elif self.objective == "next":
            own = none.clone()
            own[:, :-1] = torch.where(real[:, 1:], tokens[:, 1:], NOT_COUNTED)
            targets = {"tokens": own}
        elif self.objective == "masked":
            own = none.clone()
            own[:, 2] = tokens[:, 2]
            tokens = tokens.clone()
            tokens[:, 2] = 0
            targets = {"tokens": own}
        elif self.objective == "tags":
            targets = {"tags": torch.where(real, tokens % 3, NOT_COUNTED)}
        elif self.objective == "translation":
            own = none.clone()
            own[:, :-1] = torch.where(real[:, 1:], tokens[:, 1:], NOT_COUNTED)
            source = {"tokens": tokens, "real": real}
            return Batch(
                tokens=tokens, real=real, targets={"tokens": own}, numbers=numbers, source=source
            )
        else:
            targets = {"classes": (where >= real.sum(-1) // 2).long()}
        first = torch.zeros_like(real)
        first[:, 0] = self.objective != "next"
        return Batch(
            tokens=tokens,
            real=real,
            targets=targets,
            numbers=numbers,
            types=torch.zeros_like(tokens),
            global_tokens=first if self.objective != "next" else None,
        )

    def score(self, outputs: dict[int, Any], split: str = "dev") -> dict[str, float]:
        if self.objective == "next":
            return {
                "bits": sum(o[0] for o in outputs.values()) / sum(o[1] for o in outputs.values())
            }
        if self.objective == "masked":
            return {
                "bits": sum(o[2] for o in outputs.values()) / sum(o[1] for o in outputs.values())
            }
        right = 0.0
        for number, own in outputs.items():
            asked = self.batch([number], split).targets
            if self.objective == "spans":
                right += own[0][0] == int(asked["start"][0])
            elif self.objective == "classes":
                right += own == int(asked["classes"][0])
            elif self.objective == "tags":
                right += own == asked["tags"][0].tolist()
        return {"accuracy": right / len(outputs)}

    def prediction_file(self, outputs: dict[int, Any], split: str = "dev") -> Any:
        return [{"number": number, "output": own} for number, own in outputs.items()]

    def texts(self, tokens: Sequence[int]) -> list[str]:
        return [str(token) for token in tokens]

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "data": self.data, "settings": self.settings, "files": []}


LEARNED = {"kind": "LearnedWindow", "mean_reach": 3, "max_reach": 8}
SLIDING = {"kind": "SlidingWindow", "left": 3}


def config_for(output: Path, *stages: Stage, **options: Any) -> RunConfig:
    model = {
        "width": 16,
        "layers": 2,
        "heads": 2,
        "positions": "rotary",
        **options.pop("model", {}),
    }
    return RunConfig(
        task={"name": "tiny"}, output=str(output), stages=stages, model=model, **options
    )


def stage(**options: Any) -> Stage:
    return Stage(**{"steps": 6, "batch": 4, "learning_rate": 1e-2, "record_every": 2, **options})
