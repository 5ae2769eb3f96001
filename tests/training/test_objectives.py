"""Losses against their definitions, and what is read from a model."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from longspan.lab import records
from longspan.training import OBJECTIVES, Learner
from longspan.training.building import build, tasks_of
from longspan.training.looking import looks
from longspan.training.measuring import Pairs, reaches, watched
from longspan.training.objectives import objective_of
from longspan.training.tensorboard import scalars

from .tiny import LEARNED, SLIDING, Tiny, config_for, stage


def pairs_of(learner: Learner, batch: Any) -> dict[str, float]:
    counted = Pairs()
    with watched(learner.eval()) as seen, torch.no_grad():
        learner.objective.scores(learner, batch, True)
    counted.add(seen, 9)
    return counted.summed(torch.device("cpu"))


def made(objective: str, mechanism: Any = None) -> tuple[Learner, Tiny]:
    """With weights that are large enough for answers to differ."""
    task: Any = Tiny(objective=objective)
    config = config_for(Path("nowhere"), stage(), mechanism=mechanism)
    learner = build(config, config.stages[0], task, tasks_of(config, task))
    with torch.no_grad():
        for own in learner.parameters():
            own.copy_(torch.randn_like(own) * 0.5)
    return learner.eval(), task


@pytest.mark.parametrize("objective", OBJECTIVES)
@torch.no_grad()
def test_a_sum_over_examples(objective: str) -> None:
    """Padding changes nothing: a batch has the loss and the answers of its examples."""
    learner, task = made(objective)
    own: Any = learner.objective
    numbers = [0, 3, 5, 6]
    whole, count = own.loss(learner, task.batch(numbers))
    parts = [own.loss(learner, task.batch([number]), False) for number in numbers]
    assert float(whole) == pytest.approx(sum(float(part[0]) for part in parts), rel=1e-4)
    assert count == sum(part[1] for part in parts) > 0
    together = own.decode(learner, task.batch(numbers))
    assert list(together) == numbers
    for number in numbers:
        alone = own.decode(learner, task.batch([number]))[number]
        assert len(alone) == len(together[number]) if isinstance(alone, list) else True
        if objective in ("next", "masked"):
            assert together[number] == pytest.approx(alone, rel=1e-4)
        elif objective == "spans":
            assert [pair[:2] for pair in alone[:3]] == [pair[:2] for pair in together[number][:3]]
        elif objective != "translation":
            assert together[number] == alone
    wider = task.batch(numbers).widened(16, learner.longest)
    assert wider.tokens.shape[1] > task.batch(numbers).tokens.shape[1]
    found, asked = own.loss(learner, wider)
    assert float(found) == pytest.approx(float(whole), rel=1e-4) and asked == count
    _check_same(objective, own.decode(learner, wider), together)
    again = {number: own.restored(json.loads(json.dumps(one))) for number, one in together.items()}
    assert again == together


def _check_same(objective: str, found: dict[int, Any], wanted: dict[int, Any]) -> None:
    assert list(found) == list(wanted)
    for number, one in wanted.items():
        if objective == "spans":
            assert [pair[:2] for pair in found[number][:3]] == [pair[:2] for pair in one[:3]]
        elif objective in ("next", "masked"):
            assert found[number] == pytest.approx(one, rel=1e-4)
        else:
            assert found[number] == one


@torch.no_grad()
def test_spans_are_the_best_there_are() -> None:
    """Against all pairs; none begins where it may not, or ends before it begins."""
    learner, task = made("spans")
    batch = task.batch([0, 1])
    batch.targets["allowed"][:, :3] = False
    own = objective_of("spans", {"longest": 4})
    begin, end = own.scores(learner, batch)
    found = own.decode(learner, batch)
    for row, number in enumerate(batch.numbers):
        every = [
            (float(begin[row, i] + end[row, j]), i, j)
            for i in range(begin.shape[1])
            for j in range(i, min(i + 4, begin.shape[1]))
            if bool(batch.targets["allowed"][row, [i, j]].all())
        ]
        wanted = sorted(every, reverse=True)[:20]
        assert [(i, j) for i, j, _ in found[number]] == [(i, j) for _, i, j in wanted]
        assert [own[2] for own in found[number]] == pytest.approx([own[0] for own in wanted])


@torch.no_grad()
def test_next_in_bits() -> None:
    learner, task = made("next")
    batch = task.batch([2])
    scores = learner.body(batch.tokens)[0].log_softmax(-1)
    asked = batch.targets["tokens"][0]
    each = [-float(scores[i, t]) / math.log(2) for i, t in enumerate(asked.tolist()) if t >= 0]
    right = sum(int(scores[i].argmax()) == t for i, t in enumerate(asked.tolist()))
    bits, count, hits = learner.objective.decode(learner, batch)[2]
    assert (bits, count, hits) == pytest.approx((sum(each), len(each), right), rel=1e-5)
    assert count == int(batch.real.sum()) - 1


@torch.no_grad()
def test_spans_are_the_mean_of_both_ends() -> None:
    learner, task = made("spans")
    batch = task.batch([4])
    begin, end = learner.objective.scores(learner, batch)
    at = int(batch.targets["start"][0])
    wanted = -(begin.log_softmax(-1)[0, at] + end.log_softmax(-1)[0, at]) / 2
    loss, count = learner.objective.loss(learner, batch)
    assert (float(loss), count) == (pytest.approx(float(wanted), rel=1e-5), 1)


def test_an_unknown_objective() -> None:
    with pytest.raises(ValueError, match="no 'span'; did you mean 'spans'"):
        objective_of("span")


@pytest.mark.parametrize("mechanism", [SLIDING, LEARNED, None])
def test_pairs_without_padding(mechanism: Any) -> None:
    """As counted from what is drawn: pairs within the intervals, and those of global tokens."""
    learner, task = made("spans", mechanism)
    found = pairs_of(learner, task.batch([0, 1, 2]))
    alone = [pairs_of(learner, task.batch([number])) for number in range(3)]
    assert found["pairs"] == pytest.approx(sum(own["pairs"] for own in alone) / 3)
    n = int(task.batch([1]).real.sum())
    assert ("mean_reach" in found) == (mechanism is LEARNED)
    if mechanism is None:
        assert alone[1] == {"pairs": 4 * n * n, "pairs_per_token": n}
    if mechanism is SLIDING:
        inside = sum(min(i + 3, n - 1) - max(i - 3, 0) + 1 for i in range(n))
        # The first token is seen by those too far from it, and its own row is computed apart.
        assert alone[1]["pairs"] == 4 * (inside + (n - 4) + n)


def test_the_mean_reach_is_that_of_tokens_that_have_one() -> None:
    """In whole tokens, as pairs are cut; padding and global tokens have none."""
    learner, task = made("spans", LEARNED)
    batch = task.batch([0, 1, 2])
    found = pairs_of(learner, batch)
    learner(batch)
    assert batch.global_tokens is not None
    kept = batch.real & ~batch.global_tokens
    windows: list[Any] = learner.mechanisms()
    far = torch.cat([own.whole_reach().transpose(0, 1)[:, kept].flatten() for own in windows])
    assert found["mean_reach"] == pytest.approx(float(far.double().mean()))
    for own in windows:
        own.soft = True
    soft = pairs_of(learner, batch)["mean_reach"]
    assert soft == pytest.approx(windows[0].mean_reach, rel=1e-3) and soft > found["mean_reach"]


def test_reaches() -> None:
    learner, task = made("spans", LEARNED)
    batch = task.batch([0, 1, 2])
    learner(batch)
    found = reaches(learner, batch.real)
    assert found is not None
    for layer, (own, heads) in enumerate(zip(found["layer"], found["heads"], strict=True)):
        mechanism: Any = learner.mechanisms()[layer]
        real = mechanism.last_reach.transpose(0, 1)[:, batch.real]
        assert own["mean"] == pytest.approx(float(real.mean()))
        assert own["quantiles"][0] == pytest.approx(float(real.min()))
        assert own["quantiles"][-1] == pytest.approx(float(real.max()))
        assert own["quantiles"] == sorted(own["quantiles"])
        assert sum(heads) / len(heads) == pytest.approx(own["mean"])
    assert reaches(made("spans")[0], batch.real) is None


def test_reaches_of_a_translator_are_of_both_texts() -> None:
    """A source is rarely as long as its translation."""
    learner, task = made("translation", LEARNED)
    batch = task.batch([0, 1, 2])
    assert batch.source is not None
    long = {"tokens": (batch.source["tokens"], 1), "real": (batch.source["real"], True)}
    source = {
        name: torch.nn.functional.pad(own, (5, 0), value=v) for name, (own, v) in long.items()
    }
    batch = replace(batch, source=source)
    learner(batch)
    found = reaches(learner, batch.real, source["real"])
    assert found is not None and len(found["layer"]) == len(learner.mechanisms()) == 4
    for own, told in zip(learner.mechanisms(), found["layer"], strict=True):
        window: Any = own
        real = batch.real if window.causal else source["real"]
        wanted = window.last_reach.transpose(0, 1)[:, real].mean()
        assert told["mean"] == pytest.approx(float(wanted))


def test_looks() -> None:
    """Intervals are those that attention has: changing a token outside changes nothing."""
    learner, task = made("spans", LEARNED)
    found: Any = looks(learner, task, torch.device("cpu"))
    n = len(found["tokens"])
    assert found["global"] == [True] + [False] * (n - 1) and len(found["real"]) == n
    assert len(found["layers"]) == 2 and found["answer"]["start"] <= found["answer"]["end"]
    batch = task.batch([found["number"]], "dev")
    learner(batch)
    for layer, own in enumerate(found["layers"]):
        mechanism: Any = learner.mechanisms()[layer]
        reach = mechanism.whole_reach()[0].clamp(max=mechanism.max_reach)
        assert own["mechanism"] == "LearnedWindow" and len(own["heads"]) == 2
        for head, one in enumerate(own["heads"]):
            assert (one["low"][0], one["high"][0]) == (0, n - 1)
            for token in range(1, n):
                far = int(reach[head, token])
                # What is global is listed apart.
                assert one["low"][token] == max(token - far, 1)
                assert one["high"][token] == min(token + far, n - 1)


def test_looks_of_a_decoder() -> None:
    learner, task = made("next", {"kind": "SlidingWindow", "left": 2})
    found: Any = looks(learner, task, torch.device("cpu"))
    one = found["layers"][1]["heads"][0]
    assert one["low"][:4] == [0, 0, 0, 1] and one["high"][:4] == [0, 1, 2, 3]
    # There is one text alone.
    assert found["question"] is None and found["answer"] is None


def test_a_likely_no_answer_leaves_room_for_answers() -> None:
    """From the first token goes "no answer" alone, however likely that is."""
    learner, task = made("spans")
    batch = task.batch([0, 1])
    begin = torch.zeros(batch.tokens.shape)
    begin[:, 0] = 100.0
    found = learner.objective.decoded(learner, (begin, begin.clone()), batch)
    for spans in found.values():
        assert spans[0] == (0, 0, 200.0)
        assert len(spans) == 20 and all(first > 0 for first, _, _ in spans[1:])


@torch.no_grad()
def test_what_follows_a_text_does_not_depend_on_others() -> None:
    """Whatever the positions: beside a longer text it has the same ones, and as much room."""
    for positions in ("learned", "sinusoidal", "rotary"):
        task: Any = Tiny(objective="next")
        config = config_for(Path("nowhere"), stage(), model={"positions": positions})
        learner = build(config, config.stages[0], task, tasks_of(config, task))
        for own in learner.parameters():
            own.copy_(torch.randn_like(own) * 0.5)
        numbers = [0, 1, 2, 3]
        together = learner.eval().objective.predict(learner, task.batch(numbers))
        lengths = {len(own) for own in together.values()}
        assert list(together) == numbers and len(lengths) > 1
        for number in numbers:
            alone = learner.objective.predict(learner, task.batch([number]))
            assert alone[number] == together[number], positions


@torch.no_grad()
def test_a_translation_is_as_long_alone() -> None:
    learner, task = made("translation")
    own = learner.objective
    both = own.decode(learner, task.batch([0, 3]))
    for number in (0, 3):
        batch = task.batch([number])
        assert len(own.decode(learner, batch)[number]) == len(both[number])
        assert len(both[number]) <= int(batch.real.sum()) * 3 // 2 + 8


@pytest.mark.parametrize("objective", ["next", "masked", "tags"])
@torch.no_grad()
def test_no_target_is_any_number_below_0(objective: str) -> None:
    learner, task = made(objective)
    batch = task.batch([0, 3])
    name = learner.objective.target
    other = {**batch.targets, name: batch.targets[name].clamp(min=-1)}
    if objective == "tags":
        other[name][:, 2] = -1
        batch.targets[name][:, 2] = -100
    mine, count = learner.objective.loss(learner, replace(batch, targets=other))
    wanted, asked = learner.objective.loss(learner, batch)
    assert float(mine) == float(wanted) and count == asked == batch.target_count()


@torch.no_grad()
def test_looks_of_a_translation_are_of_its_source() -> None:
    learner, task = made("translation")
    found: Any = looks(learner, task, torch.device("cpu"))
    assert len(found["layers"]) == 2


def test_layers_without_a_reach_keep_their_places() -> None:
    learner, task = made("spans", [SLIDING, LEARNED])
    batch = task.batch([0])
    learner(batch)
    found = reaches(learner, batch.real)
    assert found is not None and found["layer"][0] is None and found["heads"][0] is None
    assert found["layer"][1]["mean"] > 0 and len(found["heads"][1]) == 2
    line = {"step": 1, "stage": "a", "kind": "train", "loss": 1.0, "reach": found}
    names = [name for name, _ in scalars(line)]
    assert "reach/layer 1/mean" in names and not any("layer 0" in name for name in names)
    assert records._short(line)["reach"] == [None, round(found["layer"][1]["mean"], 3)]
