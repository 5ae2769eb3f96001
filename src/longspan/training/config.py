"""What a run is: task, model, mechanism, stages. As JSON, and with single values set by name."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from ..errors import describe, need_bool, need_int, need_text
from ..models import Config
from ..nn.describing import KINDS
from ..paths import expanded
from ..tasks.reading import read_object
from .naming import check_keys, need_names, unknown, value_of
from .stage import Stage

__all__ = ["Precision", "RunConfig"]

# What may be another when a run goes on: it changes nothing that is computed.
BESIDE = ("output", "tensorboard")

Precision = Literal["float32", "bf16"]
PRECISIONS = get_args(Precision)

# What a task's description has, where it is not given.
TASK: dict[str, Any] = {"name": None, "data": None, "settings": {}}


@dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig:
    """Everything that decides what a run computes, and where it is written.

    Attributes:
        task: `{"name": …, "data": path or None, "settings": {…}}`.
        model: fields of `longspan.models.Config`; the vocabulary and the length come from the task
            where they are not given. With `start` they are those of its weights, and only
            `attention_dropout` may be another.
        start: weights to start from: a name of the Hugging Face hub, a folder that transformers
            saved, or the folder of a run.
        mechanism: `{"kind": "LearnedWindow", …}`, the rest its settings, or a list with one for
            each layer. Sizes that the model has already (`embed_dim`, `num_heads`, `length`) and
            `causal` may be left out. None is full attention.
        stages: one after the other.
        seed: of the initial weights, the order of examples and everything drawn.
        precision: `"float32"`, or `"bf16"` by autocast; weights are float32 either way.
        compiled: whether `torch.compile` compiles the blocks for training: once for all of them and
            all lengths, which takes its time. Evaluation runs as it is.
        output: the run's folder.
        tensorboard: whether metrics are written for TensorBoard, too, into the run's folder.
    """

    task: dict[str, Any]
    stages: tuple[Stage, ...]
    output: str
    model: dict[str, Any] = field(default_factory=dict)
    start: str | None = None
    mechanism: dict[str, Any] | list[dict[str, Any]] | None = None
    seed: int = 0
    precision: Precision = "float32"
    compiled: bool = False
    tensorboard: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "stages", tuple(self.stages))
        if not isinstance(self.output, str | Path):
            raise TypeError(f"RunConfig: output must be a folder, got {describe(self.output)}")
        object.__setattr__(self, "output", str(expanded(self.output)))
        if not isinstance(self.task, dict) or not self.task.get("name"):
            raise ValueError(
                f"RunConfig: task must be a dict with a name, got {describe(self.task)}"
            )
        check_keys("RunConfig: task", self.task, TASK)
        object.__setattr__(self, "task", {**TASK, **self.task})
        need_text("RunConfig: task.name", self.task["name"])
        need_names("RunConfig: task.settings", self.task["settings"])
        if self.start is not None:
            need_text("RunConfig: start", self.start)
            if self.start.startswith("~"):
                object.__setattr__(self, "start", str(expanded(self.start)))
        check_keys("RunConfig: model", self.model, [own.name for own in fields(Config)])
        for own in self._mechanisms():
            if not isinstance(own, dict) or own.get("kind") not in KINDS:
                raise ValueError(
                    f"RunConfig: mechanism must have a kind, one of {', '.join(sorted(KINDS))}, "
                    f"got {describe(own)}"
                )
        if not self.stages or not all(isinstance(own, Stage) for own in self.stages):
            raise ValueError("RunConfig: stages must be a list of at least one Stage")
        for stage in self.stages:
            kind = (stage.mechanism or {}).get("kind")
            if kind is not None and kind not in KINDS:
                raise ValueError(unknown(f"stage {stage.name!r}: mechanism", str(kind), KINDS))
        names = [stage.name for stage in self.stages]
        for number, name in enumerate(names):
            if name in names[:number]:
                raise ValueError(f"RunConfig: two stages are called {name!r}")
        if self.steps == 0 and self.start is None:
            raise ValueError(
                "RunConfig: no stage has steps, and there is no start whose model could be "
                "measured: give one of the two"
            )
        need_int("RunConfig: seed", self.seed, at_least=0)
        need_bool("RunConfig: tensorboard", self.tensorboard)
        need_bool("RunConfig: compiled", self.compiled)
        if self.precision not in PRECISIONS:
            raise ValueError(
                f"RunConfig: precision must be one of {', '.join(PRECISIONS)}, got "
                f"{describe(self.precision)}"
            )

    def _mechanisms(self) -> list[dict[str, Any]]:
        if self.mechanism is None:
            return []
        return self.mechanism if isinstance(self.mechanism, list) else [self.mechanism]

    @property
    def folder(self) -> Path:
        return Path(self.output)

    @property
    def steps(self) -> int:
        """Of all stages."""
        return sum(stage.steps for stage in self.stages)

    def as_dict(self) -> dict[str, Any]:
        """What JSON can hold; `RunConfig.from_dict` reads it."""
        found = {own.name: getattr(self, own.name) for own in fields(self)}
        found["stages"] = [stage.as_dict() for stage in self.stages]
        copied: dict[str, Any] = json.loads(json.dumps(found))
        return copied

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> RunConfig:
        check_keys("RunConfig", given, [own.name for own in fields(cls)])
        for name in ("task", "stages", "output"):
            if name not in given:
                raise ValueError(f"RunConfig: {name} is missing")
        if not isinstance(given["stages"], list):
            raise TypeError(f"RunConfig: stages must be a list, got {describe(given['stages'])}")
        stages = tuple(Stage.from_dict(own) for own in given["stages"])
        return cls(**{**given, "stages": stages})

    def computes(self) -> dict[str, Any]:
        """As `as_dict`, without what makes no other run of it."""
        return {key: value for key, value in self.as_dict().items() if key not in BESIDE}

    def told(self) -> dict[str, Any]:
        """What of it is other than by default: a setting that a later version adds leaves the names
        of runs as they are. Compiled or not it is the same run, but for rounding.
        """
        found = _without_defaults(self, self.computes())
        found.pop("compiled", None)
        stages = zip(self.stages, self.computes()["stages"], strict=True)
        return found | {"stages": [_without_defaults(own, values) for own, values in stages]}

    def save(self, path: str | Path) -> None:
        Path(path).write_text(json.dumps(self.as_dict(), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: str | Path) -> RunConfig:
        """From a JSON file, or from the `config.json` of a run's folder."""
        path = Path(path)
        path = path / "config.json" if path.is_dir() else path
        given = read_object(path)
        # A run writes down what it found, too.
        given.pop("described", None)
        return cls.from_dict(given)

    def with_set(self, settings: Iterable[str]) -> RunConfig:
        """With values changed by name, as `--set` takes them.

            config.with_set(["seed=1", "model.width=128", "stages.long.steps=100"])

        Values are read as JSON, and as a word where they are none. A stage goes by its name or
        number, and `stages.*` is all of them. Unknown keys raise, and name the nearest.
        """
        found = self.as_dict()
        for setting in settings:
            path, equals, value = setting.partition("=")
            if not equals or not path:
                raise ValueError(f"--set takes key=value, got {setting!r}")
            _set(found, path, path.split("."), value_of(value))
        return RunConfig.from_dict(found)


def _set(owner: Any, path: str, keys: list[str], value: Any) -> None:
    """Sets one value inside dicts and lists."""
    key, *rest = keys
    if isinstance(owner, list):
        for place in _places(owner, path, key):
            if rest:
                _set(owner[place], path, rest, value)
            else:
                owner[place] = value
        return
    if not isinstance(owner, dict):
        raise ValueError(f"--set {path}: there is nothing inside that has a {key!r}")
    if not rest:
        # What is checked by name is checked when the whole is read again.
        owner[key] = value
        return
    if owner.get(key) is None:
        if key not in owner:
            raise ValueError(unknown(f"--set {path}", key, owner))
        owner[key] = {}
    _set(owner[key], path, rest, value)


def _places(owner: list[Any], path: str, key: str) -> list[int]:
    if key == "*":
        return list(range(len(owner)))
    names = [own.get("name", own.get("kind")) for own in owner if isinstance(own, dict)]
    if key in names:
        return [names.index(key)]
    if key.isdigit() and int(key) < len(owner):
        return [int(key)]
    known = [str(name) for name in names] + [str(place) for place in range(len(owner))]
    raise ValueError(unknown(f"--set {path}", key, known))


def _without_defaults(owner: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Of the fields of a dataclass, those with a value of their own."""
    defaults = {
        own.name: own.default if own.default_factory is MISSING else own.default_factory()
        for own in fields(owner)
    }
    return {
        name: value
        for name, value in values.items()
        if name not in defaults or getattr(owner, name) != defaults[name]
    }
