"""From what a run's config says to tasks and models."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from ..errors import need_text
from ..models import Config, Encoder, LanguageModel, Translator
from ..nn import Attention, LearnedWindow, Mechanism, MultiheadAttention
from ..nn.describing import KINDS, mechanism_from
from ..patterns.expressions import parse_pattern
from ..tasks import Task, make
from .config import RunConfig
from .learner import Learner
from .naming import check_keys
from .objectives import Objective, objective_of
from .saving import carry_over, described_model
from .stage import Stage
from .starting import check_tokens, is_run, stage_of

__all__ = ["build", "objective_for", "sizes_of", "tasks_of"]

# What describes a fixed combination, all together.
DESCRIBED = ("text", "ints", "floats", "tensors")

# Kinds of checkpoints of transformers that a run can start from.
BERTS = ("bert", "roberta", "xlm-roberta", "camembert")


def tasks_of(config: RunConfig, given: Task | None = None) -> list[Task]:
    """The task of each stage; stages with the same one share it.

    Args:
        given: a task that is there already, for stages that change nothing of it.
    """
    known: dict[str, Task] = {}
    found = [_task_of(config, stage, given, known) for stage in config.stages]
    for own in found:
        if len(own.dev) == 0:
            raise ValueError(
                f"{own.name}: there are no examples to be measured on; give the task a dev part "
                "that is not empty"
            )
    return found


def _task_of(config: RunConfig, stage: Stage, given: Task | None, known: dict[str, Task]) -> Task:
    changed = dict(stage.task or {})
    same = stage.length is None or (given is not None and stage.length == given.length)
    if given is not None and not changed and same:
        return given
    asked = changed if "name" in changed else {**config.task, **changed}
    settings = dict(asked.get("settings") or {})
    if "name" not in changed:
        settings = {**(config.task.get("settings") or {}), **settings}
    if stage.length is not None:
        settings["length"] = stage.length
    key = repr((asked["name"], asked.get("data"), sorted(settings.items(), key=str)))
    if key not in known:
        like = None if "name" in changed else given
        known[key] = _made(asked["name"], asked.get("data"), settings, like)
    return known[key]


def _made(name: str, data: Any, settings: dict[str, Any], like: Task | None) -> Task:
    if like is not None:
        kind: Any = type(like)
        return kind(like.data, **{**like.settings, **settings})
    return make(name, data=data, **settings)


def objective_for(task: Task) -> Objective:
    """A task's objective, with what it has to know of the task."""
    settings: dict[str, Any] = {}
    if task.objective in ("classes", "tags"):
        settings["classes"] = task.classes
    if task.objective in ("translation", "next"):
        settings["end"] = task.end
    return objective_of(task.objective, settings)


def sizes_of(config: RunConfig, tasks: list[Task]) -> Config:
    """The model's sizes: as the config says, or the run that it starts from, with room for every
    task.
    """
    asked = dict(config.model)
    if config.start is not None and is_run(config.start):
        check_tokens(config.start, tasks)
        theirs = described_model(stage_of(config.start))["config"]
        # Positions may be more.
        asked = {name: own for name, own in theirs.items() if name != "length"} | asked
    vocabulary, length = max(own.vocabulary for own in tasks), max(own.length for own in tasks)
    asked.setdefault("vocab", vocabulary)
    asked.setdefault("length", length)
    sizes = Config(**asked)
    if sizes.vocab < vocabulary:
        raise ValueError(
            f"model.vocab is {sizes.vocab}, but the task has {vocabulary} tokens; leave it out"
        )
    if sizes.positions == "learned" and sizes.length < length:
        raise ValueError(
            f"model.length is {sizes.length}, but examples have up to {length} tokens; leave it "
            "out, or give positions='rotary'"
        )
    return sizes


def build(config: RunConfig, stage: Stage, task: Task, tasks: list[Task]) -> Learner:
    """The model of a stage with its initial weights: those that the run starts from, or such as
    follow from the seed, of which those of the body are the same whatever the mechanism.
    """
    objective = objective_for(task)
    if config.start is not None and not is_run(config.start):
        return _started(config, stage, objective, tasks)
    sizes = sizes_of(config, tasks)

    def mechanisms(causal: bool) -> Callable[[int], Mechanism]:
        return _mechanisms(config, stage, sizes, causal, tasks)

    torch.manual_seed(config.seed)
    body: nn.Module
    if objective.body == "decoder":
        body = LanguageModel(sizes, mechanisms(True))
    elif objective.body == "both":
        body = Translator(sizes, mechanisms(False), mechanisms(True))
    else:
        body = Encoder(sizes, mechanisms(False))
    learner = Learner(body, objective)
    _draw(learner, config.seed)
    if config.start is not None:
        carry_over(learner, stage_of(config.start))
    return learner


def _started(config: RunConfig, stage: Stage, objective: Objective, tasks: list[Task]) -> Learner:
    """A model with the weights of a checkpoint of transformers."""
    from transformers import AutoConfig

    from .. import hf

    if objective.body != "encoder":
        raise ValueError(
            f"start: checkpoints become encoders, and {objective.name!r} needs a "
            f"{objective.body}; give model instead"
        )
    assert config.start is not None
    asked = dict(config.model)
    attention_dropout = asked.pop("attention_dropout", None)
    if asked:
        raise ValueError(
            f"model: what start brings cannot be changed but for attention_dropout; leave out "
            f"{', '.join(asked)}"
        )
    theirs: Any = AutoConfig.from_pretrained(config.start)
    length = max(own.length for own in tasks)
    for own in tasks:
        own.need_vocabulary(theirs.vocab_size, config.start)
    torch.manual_seed(config.seed)
    if attention_dropout is not None and theirs.model_type not in BERTS:
        raise ValueError(
            f"model: attention_dropout is that of {config.start}, a {theirs.model_type}; leave it "
            "out"
        )
    if theirs.model_type == "longformer" and config.mechanism is None:
        with _quiet_loading():
            body = hf.from_longformer(config.start)
    elif theirs.model_type == "big_bird" and config.mechanism is None:
        with _quiet_loading():
            body = hf.from_bigbird(config.start, length=length)
    elif theirs.model_type in BERTS:
        sizes = Config(
            vocab=theirs.vocab_size,
            width=theirs.hidden_size,
            layers=theirs.num_hidden_layers,
            heads=theirs.num_attention_heads,
            length=length,
        )
        mechanisms = _mechanisms(config, stage, sizes, False, tasks)
        with _quiet_loading():
            body = hf.from_bert(
                config.start, mechanisms, length, attention_dropout=attention_dropout
            )
    else:
        raise ValueError(
            f"start: {config.start} is a {theirs.model_type}; {', '.join(BERTS)} take any "
            "mechanism, longformer and big_bird bring their own (leave mechanism out)"
        )
    for parameter in body.parameters():
        # A checkpoint may have less; training keeps its weights in float32, whatever the precision.
        if parameter.dtype in (torch.float16, torch.bfloat16):
            parameter.data = parameter.data.float()
    learner = Learner(body, objective)
    _draw(learner.head, config.seed)
    return learner


@contextmanager
def _quiet_loading() -> Iterator[None]:
    """Without the progress bar of transformers where nobody would see it move."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    if not sys.stderr.isatty():
        logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _mechanisms(
    config: RunConfig, stage: Stage, sizes: Config, causal: bool, tasks: list[Task]
) -> Callable[[int], Mechanism]:
    """A mechanism for the number of a layer."""
    filled = {
        "embed_dim": sizes.width, "num_heads": sizes.heads, "length": sizes.length,
        "causal": causal, "most_global": _most_global(tasks),
    }  # fmt: skip
    asked = config.mechanism or {"kind": "Attention"}
    if isinstance(asked, list) and len(asked) != sizes.layers:
        raise ValueError(
            f"mechanism must be one, or a list with one for each of {sizes.layers} layers, got "
            f"{len(asked)}"
        )

    def made(layer: int) -> Mechanism:
        own = stage.mechanism_of(asked[layer] if isinstance(asked, list) else asked)
        if stage.cut is not None or stage.windows is not None:
            # What is wrong with it is said, also where the stage has something else in its place.
            with torch.random.fork_rng(devices=[]):
                _mechanism(own, filled | {"seed": layer}, causal)
        own |= _staged(stage, own["kind"], layer, sizes.layers)
        return _mechanism(own, filled | {"seed": layer}, causal)

    return made


def _staged(stage: Stage, kind: str, layer: int, layers: int) -> dict[str, Any]:
    """What the stage says of the mechanism of one layer."""
    found: dict[str, Any] = {}
    if stage.cut is not None:
        if kind != "LearnedWindow":
            raise ValueError(
                f"stage {stage.name!r}: cut is of learned windows, the mechanism is {kind}; leave "
                "it out"
            )
        found["soft"] = not stage.cut
    if stage.windows is not None:
        if kind != "SlidingWindow":
            raise ValueError(
                f"stage {stage.name!r}: windows are of SlidingWindow, the mechanism is {kind}; "
                "leave them out"
            )
        if isinstance(stage.windows, tuple) and len(stage.windows) != layers:
            raise ValueError(
                f"stage {stage.name!r}: windows must be one number, or one for each of {layers} "
                f"layers, got {len(stage.windows)}"
            )
        found["left"] = stage.windows[layer] if isinstance(stage.windows, tuple) else stage.windows
    return found


def _most_global(tasks: list[Task]) -> int | None:
    """How many global tokens an example has at most; None where that is not known."""
    known = [own.most_global for own in tasks if own.most_global is not None]
    return max(known) or None if len(known) == len(tasks) else None


def _mechanism(asked: dict[str, Any], filled: dict[str, Any], causal: bool) -> Mechanism:
    """A mechanism by its description, with what it leaves out filled in."""
    kind = asked["kind"]
    if kind == "Attention":
        return _attention(asked, causal)
    known = inspect.signature(KINDS[kind]).parameters
    check_keys(f"mechanism {kind}", asked, ("kind", *known))
    whole = {name: value for name, value in filled.items() if name in known} | asked
    for name, parameter in known.items():
        if parameter.default is inspect.Parameter.empty and name not in whole:
            raise ValueError(f"mechanism {kind}: {name} is missing")
    return mechanism_from(whole)


def _attention(asked: dict[str, Any], causal: bool) -> Mechanism:
    """One of a pattern, which is written as in Python; or as it was described; or of everything."""
    check_keys("mechanism Attention", asked, ("kind", "pattern", *DESCRIBED))
    missing = [key for key in DESCRIBED if key not in asked]
    if not missing and "pattern" not in asked:
        return mechanism_from(asked)
    if len(missing) < len(DESCRIBED):
        raise ValueError(
            "mechanism Attention: give a pattern, such as 'Window(8, 8) | Global(1)', or all of "
            f"{', '.join(DESCRIBED)}, as a description has them"
        )
    text = asked.get("pattern", "Causal()" if causal else "Full()")
    need_text("mechanism Attention: pattern", text)
    return Attention(parse_pattern(text))


def _draw(module: nn.Module, seed: int) -> None:
    """Initial weights: normal with a standard deviation of 0.02, biases 0, and the mechanisms' own
    from generators of their own.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, part in module.named_modules():
            if "mechanism" in name.split("."):
                continue
            if isinstance(part, (nn.Linear, nn.Embedding)):
                part.weight.normal_(std=0.02, generator=generator)
            if isinstance(part, nn.Linear) and part.bias is not None:
                part.bias.zero_()
        for number, part in enumerate(module.modules()):
            if isinstance(part, LearnedWindow):
                own = torch.Generator().manual_seed(seed + number)
                for matrix in part.W_p:
                    nn.init.xavier_uniform_(matrix, generator=own)
    for part in module.modules():
        if isinstance(part, MultiheadAttention):
            part.copy_projections()
