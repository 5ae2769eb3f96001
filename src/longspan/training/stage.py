"""One stage of training, as data: for how long, on what, what learns, and how fast."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from ..errors import describe, need_bool, need_int, need_number, need_text
from ..paths import expanded
from .naming import check_keys, need_names

__all__ = ["Stage"]

CHOICES = {
    "schedule": ("cosine", "linear", "constant"),
    "trains": ("all", "reach", "all but reach"),
    "optimizer": ("adamw", "muon"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """One stage of training.

    A stage goes on with the weights of the one before it, unless it is `fresh`. The optimiser
    starts anew in each.

    Attributes:
        name: of the stage; no two of a run have the same.
        steps: of the optimiser; 0 measures the model that the stage begins with.
        batch: examples at once, in each process. A step has batch · accumulate · processes.
        length: the most tokens of an example; None is the task's own.
        learning_rate: the highest.
        warmup: steps in which it rises to that from 0; a share of the steps when below 1.
        schedule: how it falls afterwards: `"cosine"` or `"linear"` to 0, or `"constant"`.
        weight_decay: of matrices; vectors (biases, norms) have none.
        betas: of AdamW.
        eps: of AdamW.
        clip: the longest gradient, over all weights; None for no limit.
        trains: `"all"`, `"reach"` (only the networks of learned windows), or `"all but reach"`.
        reach_rate: the reach networks' learning rate is so many times as large.
        cut: whether learned windows cut pairs beyond their reach, or weigh them softly; None as the
            mechanism says.
        windows: tokens to each side of sliding windows: a number, or one for each layer; None as
            the mechanism says.
        mechanism: settings of the mechanism that are others in this stage, such as `mean_reach`; or
            another mechanism, by its kind, with all of its settings.
        reach_from: where the reach networks come from, which are then frozen: the name of an
            earlier stage, or the folder of another run.
        fresh: starts with the initial weights again.
        task: what is another in this stage: `{"settings": {…}}`, or with a `name` another task.
        by_length: examples of a step are of similar length, where the task knows their lengths:
            less is padding.
        accumulate: batches whose gradients are summed for a step.
        checkpointing: blocks are computed again in the backward pass, which saves memory.
        record_every: steps between two lines of metrics.
        evaluate_every: steps between evaluations; None for the last step alone.
        evaluate_on: examples of dev to be measured on, the first ones; None for all.
        save_every: steps between checkpoints; None for every five minutes, at the next line of
            metrics.
        optimizer: `"adamw"`, or `"muon"` for the matrices of blocks (Jordan et al. 2024) with AdamW
            for the rest.
        matrix_rate: Muon's learning rate is so many times as large: its steps, of the same size as
            AdamW's, may be.
    """

    name: str = "train"
    steps: int
    batch: int = 8
    length: int | None = None
    learning_rate: float = 3e-4
    warmup: float = 0.1
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-8
    clip: float | None = 1.0
    trains: Literal["all", "reach", "all but reach"] = "all"
    reach_rate: float = 1.0
    cut: bool | None = None
    windows: int | tuple[int, ...] | None = None
    mechanism: dict[str, Any] | None = None
    reach_from: str | None = None
    fresh: bool = False
    task: dict[str, Any] | None = None
    by_length: bool = False
    accumulate: int = 1
    checkpointing: bool = False
    record_every: int = 10
    evaluate_every: int | None = None
    evaluate_on: int | None = None
    save_every: int | None = None
    optimizer: Literal["adamw", "muon"] = "adamw"
    matrix_rate: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name or set(self.name) & set("/\\."):
            raise ValueError(
                "Stage: name must be a word that can name a folder, without / and dots, got "
                f"{describe(self.name)}"
            )
        need_int(f"Stage {self.name!r}: steps", self.steps, at_least=0)
        for name in ("batch", "accumulate", "record_every"):
            need_int(f"Stage {self.name!r}: {name}", getattr(self, name), at_least=1)
        for name in ("length", "evaluate_every", "evaluate_on", "save_every"):
            if getattr(self, name) is not None:
                need_int(f"Stage {self.name!r}: {name}", getattr(self, name), at_least=1)
        for name in (
            "learning_rate",
            "warmup",
            "weight_decay",
            "reach_rate",
            "eps",
            "clip",
            "matrix_rate",
        ):
            value = getattr(self, name)
            if value is None and name == "clip":
                continue
            need_number(f"Stage {self.name!r}: {name}", value)
            if value < 0 or (name in ("clip", "eps") and value == 0):
                least = {"clip": "be above 0, or None for no limit", "eps": "be above 0"}
                raise ValueError(
                    f"Stage {self.name!r}: {name} must {least.get(name, 'not be below 0')}, got "
                    f"{value}"
                )
        for name in ("fresh", "by_length", "checkpointing"):
            need_bool(f"Stage {self.name!r}: {name}", getattr(self, name))
        if self.cut is not None:
            need_bool(f"Stage {self.name!r}: cut", self.cut)
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise ValueError(
                    f"Stage {self.name!r}: {name} must be one of {', '.join(known)}, got "
                    f"{describe(getattr(self, name))}"
                )
        if self.mechanism is not None:
            need_names(f"Stage {self.name!r}: mechanism", self.mechanism)
        if self.task is not None:
            check_keys(f"Stage {self.name!r}: task", self.task, ("name", "data", "settings"))
            need_names(f"Stage {self.name!r}: task.settings", self.task.get("settings", {}))
        if self.reach_from is not None:
            need_text(f"Stage {self.name!r}: reach_from", self.reach_from)
            if self.reach_from.startswith("~"):
                object.__setattr__(self, "reach_from", str(expanded(self.reach_from)))
        self._check_lists()

    def _check_lists(self) -> None:
        if not isinstance(self.betas, list | tuple) or len(self.betas) != 2:
            raise TypeError(
                f"Stage {self.name!r}: betas must be two numbers, got {describe(self.betas)}"
            )
        for beta in self.betas:
            need_number(f"Stage {self.name!r}: betas", beta)
        if self.windows is not None:
            each = self.windows if isinstance(self.windows, list | tuple) else [self.windows]
            for window in each:
                need_int(f"Stage {self.name!r}: windows", window, at_least=0)
        # JSON has lists only.
        object.__setattr__(self, "betas", tuple(self.betas))
        if isinstance(self.windows, list):
            object.__setattr__(self, "windows", tuple(self.windows))

    def mechanism_of(self, whole: dict[str, Any]) -> dict[str, Any]:
        """What a layer's mechanism, as the run describes it, is in this stage."""
        changed = self.mechanism or {}
        if changed.get("kind", whole["kind"]) != whole["kind"]:
            return dict(changed)
        return whole | changed

    @property
    def warmup_steps(self) -> int:
        return round(self.warmup * self.steps) if self.warmup < 1 else int(self.warmup)

    def as_dict(self) -> dict[str, Any]:
        """What JSON can hold; `Stage.from_dict` reads it."""
        found = asdict(self)
        found["betas"] = list(self.betas)
        if isinstance(self.windows, tuple):
            found["windows"] = list(self.windows)
        return found

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> Stage:
        check_keys("Stage", given, [field.name for field in fields(cls)])
        if "steps" not in given:
            raise ValueError(f"Stage {given.get('name', 'train')!r}: steps are missing")
        return cls(**given)
