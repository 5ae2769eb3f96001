"""A task of random tokens, small enough to train on in seconds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from longspan.tasks import NOT_COUNTED, Batch, Task
from longspan.training import RunConfig, Stage


class Tiny(Task):
    """Texts of random tokens, each of a length of its own.

    The answer to a text is where its token 1 is, its class whether that is in the first half; the
    next token is the one before, plus one.
    """

    name = "tiny"
    vocabulary, pad = 16, 0

    def __init__(
        self,
        data: str | None = None,
        *,
        objective: str = "next",
        length: int = 24,
        examples: int = 40,
        cache: Any = None,
    ) -> None:
        self.data, self.length, self.files = data, length, []
        self.objective = objective  # type: ignore[assignment]
        self.settings = {"objective": objective, "length": length, "examples": examples}
        self.metric = {"next": "bits", "masked": "bits"}.get(objective, "accuracy")
        self.lower_is_better = self.metric == "bits"
        self.classes = {"classes": 2, "tags": 3}.get(objective)
        self.train: Sequence[int] = range(examples)
        self.dev: Sequence[int] = range(10)

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

    def score(self, outputs: Mapping[int, Any], split: str = "dev") -> dict[str, float]:
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

    def predictions(self, outputs: Mapping[int, Any], split: str = "dev") -> list[dict[str, Any]]:
        return [{"number": number, "output": own} for number, own in outputs.items()]


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
        task={"name": "tests.training.tiny:Tiny"},
        output=str(output),
        stages=stages,
        model=model,
        **options,
    )


def metrics_of(run: Path) -> list[dict[str, Any]]:
    """The lines that a run has written."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def stage(**options: Any) -> Stage:
    return Stage(**{"steps": 6, "batch": 4, "learning_rate": 1e-2, "record_every": 2, **options})
