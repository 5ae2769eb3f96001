"""Stages: what trains, what is carried over, and what starts anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from longspan import report
from longspan.nn import Attention, LearnedWindow, SlidingWindow
from longspan.patterns import Causal, Global, Window
from longspan.training import RunConfig, estimate, load, train
from longspan.training.building import build, tasks_of
from longspan.training.saving import load_learner, read

from .tiny import LEARNED, SLIDING, Tiny, config_for, metrics_of, stage

pytest.importorskip("accelerate")


def weights(run: Path, name: str) -> dict[str, Tensor]:
    return read(run / "stages" / name)[1]


def is_reach(name: str) -> bool:
    return name.endswith((".W_p", ".U_d"))


def windows(run: Path, name: str) -> list[LearnedWindow]:
    found = load_learner(run / "stages" / name).mechanisms()
    assert all(isinstance(own, LearnedWindow) for own in found)
    return found  # type: ignore[return-value]


def initial(config: RunConfig, task: Any, number: int = 0) -> dict[str, Tensor]:
    tasks = tasks_of(config, task)
    return build(config, config.stages[number], tasks[number], tasks).state_dict()


TWO_STAGES = (
    stage(name="strategy", length=12, cut=False, reach_rate=10.0),
    stage(
        name="scale",
        length=24,
        cut=True,
        fresh=True,
        reach_from="strategy",
        trains="all but reach",
        mechanism={"mean_reach": 6, "max_reach": 12},
    ),
)


@pytest.mark.parametrize("objective", ["spans", "next"])
def test_two_stages_of_the_learned_window(objective: str, tmp_path: Path) -> None:
    """The first is short and soft, and all of it trains. The second is longer and cut; its backbone
    starts anew, and U_d and W_p are those of the first, bit by bit.
    """
    task = Tiny(objective=objective, length=12)
    config = config_for(tmp_path, *TWO_STAGES, mechanism=LEARNED)
    train(config, task=task)
    first, second = weights(tmp_path, "strategy"), weights(tmp_path, "scale")
    start = initial(config, task, 1)
    compared = 0
    for name, own in second.items():
        if is_reach(name):
            assert torch.equal(own, first[name]), name
            assert not torch.equal(own, start[name]), name
            compared += 1
    assert compared == 4
    strategy, scale = windows(tmp_path, "strategy"), windows(tmp_path, "scale")
    assert [own.soft for own in strategy] == [True, True]
    assert [own.soft for own in scale] == [False, False]
    assert scale[0].mean_reach == 6 and scale[0].max_reach == 12 and strategy[0].mean_reach == 3
    # One step from the initial weights is the length of a learning rate; more are not far.
    name = next(key for key in start if key.endswith("blocks.0.mlp.0.weight"))
    assert 0 < float((second[name] - start[name]).abs().max()) < 6.5e-2
    reach = [own["reach"] for own in metrics_of(tmp_path) if own["kind"] == "train"]
    assert all(len(own["layer"]) == 2 and len(own["heads"][0]) == 2 for own in reach)
    if objective == "spans":
        # The first token is global, and has no part in the budget.
        assert reach[0]["layer"][0]["mean"] == pytest.approx(3, rel=0.1)
        assert reach[-1]["layer"][0]["mean"] == pytest.approx(6, rel=0.1)


def test_reach_of_another_run(tmp_path: Path) -> None:
    """From any other run, and frozen whatever else trains."""
    task = Tiny(objective="spans")
    train(config_for(tmp_path / "a", stage(cut=False), mechanism=LEARNED), task=task)
    second = config_for(
        tmp_path / "b", stage(reach_from=str(tmp_path / "a")), mechanism=LEARNED, seed=5
    )
    train(second, task=task)
    first, found = weights(tmp_path / "a", "train"), weights(tmp_path / "b", "train")
    for name, own in found.items():
        assert torch.equal(own, first[name]) == is_reach(name) or name.endswith("factor"), name


def test_one_stage(tmp_path: Path) -> None:
    """Cut from the start, and everything trains."""
    task = Tiny(objective="spans")
    config = config_for(tmp_path, stage(cut=True), mechanism=LEARNED)
    train(config, task=task)
    start, found = initial(config, task), weights(tmp_path, "train")
    still = {name for name, own in found.items() if torch.equal(own, start[name])}
    assert still == {name for name in found if name.endswith("factor")}
    assert not any(own.soft for own in windows(tmp_path, "train"))


@pytest.mark.parametrize("trains", ["reach", "all but reach"])
def test_what_trains(trains: str, tmp_path: Path) -> None:
    task = Tiny(objective="spans")
    config = config_for(tmp_path, stage(trains=trains, warmup=0), mechanism=LEARNED)
    train(config, task=task)
    start, found = initial(config, task), weights(tmp_path, "train")
    for name, own in found.items():
        moves = is_reach(name) == (trains == "reach") and not name.endswith("factor")
        # W_p has no gradient while U_d is 0: it moves from the second step on.
        assert torch.equal(own, start[name]) != moves, name


def test_windows_of_stages(tmp_path: Path) -> None:
    """Longformer's: each stage has longer texts and wider windows, and goes on with the weights."""
    task = Tiny(objective="next", length=12)
    config = config_for(
        tmp_path,
        stage(name="narrow", windows=[1, 2], steps=3),
        stage(name="wide", windows=[4, 8], length=24, steps=3, learning_rate=0.0),
        mechanism=SLIDING,
    )
    train(config, task=task)
    lefts = []
    for name in ("narrow", "wide"):
        found = load_learner(tmp_path / "stages" / name).mechanisms()
        assert all(isinstance(own, SlidingWindow) and own.causal for own in found)
        lefts.append([own.settings["left"] for own in found])
    assert lefts == [[1, 2], [4, 8]]
    first, second = weights(tmp_path, "narrow"), weights(tmp_path, "wide")
    assert all(torch.equal(own, first[name]) for name, own in second.items())


def test_the_running_factor_grows_with_the_budget(tmp_path: Path) -> None:
    config = config_for(
        tmp_path,
        stage(name="small"),
        stage(name="large", steps=1, mechanism={"mean_reach": 6, "max_reach": 16}),
        mechanism=LEARNED,
    )
    train(config, task=Tiny())
    small, large = windows(tmp_path, "small")[0].factor, windows(tmp_path, "large")[0].factor
    assert float(large / small) == pytest.approx(2, rel=0.1)


def test_pretrained_and_fine_tuned(tmp_path: Path) -> None:
    """Another task with another head; the body goes on."""
    config = config_for(
        tmp_path,
        stage(name="pretrain"),
        stage(name="tune", task={"settings": {"objective": "classes"}}, learning_rate=0.0),
        mechanism=SLIDING,
    )
    result = train(config, task=Tiny(objective="masked"))
    assert result["metric"] == "accuracy"
    first, second = weights(tmp_path, "pretrain"), weights(tmp_path, "tune")
    body = [name for name in second if name.startswith("body.")]
    assert all(torch.equal(second[name], first[name]) for name in body)
    assert "head.pooled.weight" in second and "head.pooled.weight" not in first
    described = json.loads((tmp_path / "config.json").read_text())["described"]["tasks"]
    assert [own["settings"]["objective"] for own in described] == ["masked", "classes"]
    other = config.with_set([f"output={tmp_path / 'other'}", "stages.tune.task.name=recall"])
    other = other.with_set(['stages.tune.task.settings={"length": 24, "distance": 4}'])
    with pytest.raises(ValueError, match="has a model of kind Encoder, and the stage needs"):
        train(other, task=Tiny(objective="masked"))
    assert RunConfig.read(tmp_path) == config
    trained = load(tmp_path, task=Tiny(objective="classes"))
    assert set(trained.outputs()) == set(range(10))


@pytest.mark.parametrize("mechanism", [LEARNED, SLIDING, None])
def test_started_from_a_checkpoint(mechanism: Any, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.BertConfig(
        vocab_size=16, intermediate_size=24, max_position_embeddings=16, **sizes
    )
    transformers.BertModel(config).save_pretrained(tmp_path / "bert")
    run = RunConfig(
        task={"name": "tests.training.tiny:Tiny"},
        start=str(tmp_path / "bert"),
        mechanism=mechanism,
        stages=(stage(steps=2),),
        output=str(tmp_path / "run"),
    )
    task = Tiny(objective="spans")
    assert train(run, task=task)["steps"] == 2
    model: Any = load(tmp_path / "run", task=task).model
    assert model.body.config.length == 24 and model.body.config.norm == "post"
    assert model.body.config.attention_dropout == 0.1
    calm = run.with_set([f"output={tmp_path / 'calm'}", "model.attention_dropout=0"])
    train(calm, task=task)
    model = load(tmp_path / "calm", task=task).model
    assert model.body.config.attention_dropout == 0 and model.body.config.dropout == 0.1
    with pytest.raises(ValueError, match=r"model: what start brings cannot be changed .* width"):
        train(run.with_set([f"output={tmp_path / 'wide'}", "model.width=99"]), task=task)
    task.vocabulary = 17
    with pytest.raises(ValueError, match=r"numbered up to 16, but .*bert knows 16"):
        train(run.with_set([f"output={tmp_path / 'other'}"]), task=task)
    with pytest.raises(ValueError, match="checkpoints become encoders"):
        train(run.with_set([f"output={tmp_path / 'another'}"]), task=Tiny())


def test_started_from_a_run_and_fresh(tmp_path: Path) -> None:
    """Weights that a run started from are its initial ones."""
    task = Tiny(objective="spans")
    train(config_for(tmp_path / "a", stage(), mechanism=SLIDING), task=task)
    stages = (stage(name="one"), stage(name="two", fresh=True, learning_rate=0.0))
    start = str(tmp_path / "a")
    train(config_for(tmp_path / "b", *stages, mechanism=SLIDING, start=start), task=task)
    first, found = weights(tmp_path / "a", "train"), weights(tmp_path / "b", "two")
    assert all(torch.equal(own, first[name]) for name, own in found.items())


def test_started_from_a_longformer(tmp_path: Path) -> None:
    """Which brings its own mechanism, and takes no other."""
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.LongformerConfig(
        vocab_size=16,
        intermediate_size=24,
        max_position_embeddings=40,
        attention_window=[4, 8],
        **sizes,
    )
    transformers.LongformerModel(config).save_pretrained(tmp_path / "theirs")
    run = RunConfig(
        task={"name": "tests.training.tiny:Tiny"},
        start=str(tmp_path / "theirs"),
        stages=(stage(steps=2),),
        output=str(tmp_path / "run"),
    )
    task = Tiny(objective="spans")
    assert train(run, task=task)["steps"] == 2
    found = load_learner(tmp_path / "run" / "stages" / "train").mechanisms()
    assert [own.settings["left"] for own in found] == [2, 4]
    other = run.with_set([f"output={tmp_path / 'other'}", 'mechanism={"kind": "Attention"}'])
    with pytest.raises(ValueError, match=r"is a longformer; .*bring their own"):
        train(other, task=task)
    calm = run.with_set([f"output={tmp_path / 'calm'}", "model.attention_dropout=0"])
    with pytest.raises(ValueError, match=r"attention_dropout is that of .* a longformer"):
        train(calm, task=task)


def test_the_body_starts_the_same_whatever_the_mechanism(tmp_path: Path) -> None:
    task = Tiny(objective="spans")
    found = [
        initial(config_for(tmp_path, stage(), mechanism=own), task)
        for own in (LEARNED, SLIDING, {"kind": "BigBird", "block": 4, "drawn": 1}, None)
    ]
    for name, own in found[3].items():
        for other in found[:3]:
            assert torch.equal(own, other[name]), name
    sliding = found[1]
    prefix = "body.blocks.1.attention."
    assert torch.equal(
        sliding[f"{prefix}mechanism.k_global.weight"], sliding[f"{prefix}k_proj.weight"]
    )
    other = initial(config_for(tmp_path, stage(), seed=1), task)
    assert not torch.equal(other["body.tokens.weight"], found[3]["body.tokens.weight"])


@pytest.mark.parametrize(
    ("own", "mechanism", "says"),
    [
        ({"cut": True}, SLIDING, "cut is of learned windows, the mechanism is SlidingWindow"),
        ({"windows": 3}, LEARNED, "windows are of SlidingWindow, the mechanism is LearnedWindow"),
        ({"windows": [3]}, SLIDING, "one for each of 2 layers, got 1"),
        ({"trains": "reach"}, SLIDING, "the model has no learned window"),
        ({"reach_from": "x"}, LEARNED, "x"),
        ({}, {**LEARNED, "mean_reech": 3}, "no 'mean_reech'; did you mean 'mean_reach'"),
        ({}, [LEARNED], "one for each of 2 layers, got 1"),
    ],
)
def test_errors(own: Any, mechanism: Any, says: str, tmp_path: Path) -> None:
    config = config_for(tmp_path / "run", stage(**own), mechanism=mechanism)
    with pytest.raises((ValueError, OSError), match=says):
        train(config, task=Tiny())


def test_sizes_that_do_not_fit(tmp_path: Path) -> None:
    for model, says in (
        ({"vocab": 9}, r"model\.vocab is 9, but the task has 16 tokens"),
        ({"length": 9, "positions": "learned"}, r"model\.length is 9, but examples have up to 24"),
    ):
        with pytest.raises(ValueError, match=says):
            train(config_for(tmp_path / "run", stage(), model=model), task=Tiny())


def test_half_a_checkpoint_is_trained_in_float32(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.BertConfig(
        vocab_size=16, intermediate_size=24, max_position_embeddings=24, **sizes
    )
    transformers.BertModel(config).half().save_pretrained(tmp_path / "bert")
    run = config_for(tmp_path / "run", stage(steps=2), start=str(tmp_path / "bert"), model={})
    run = RunConfig(**{**run.as_dict(), "model": {}, "stages": run.stages, "mechanism": LEARNED})
    capfd.readouterr()
    # Another test may have turned them off.
    transformers.utils.logging.enable_progress_bar()
    train(run, task=Tiny(objective="spans"))
    found = weights(tmp_path / "run", "train")
    assert {own.dtype for name, own in found.items() if "factor" not in name} == {torch.float32}
    # Nobody sees a bar move where there is no terminal.
    assert "Loading weights" not in capfd.readouterr().err
    assert transformers.utils.logging.is_progress_bar_enabled()


@pytest.mark.parametrize("by_length", [False, True])
def test_examples_of_similar_length_come_together(tmp_path: Path, by_length: bool) -> None:
    class Known(Tiny):
        """Knows its lengths, and notes its batches."""

        taken: ClassVar[list[list[int]]] = []
        measured: ClassVar[list[int]] = []

        def lengths(self, split: str = "train") -> list[int]:
            return [len(self._text(n, split)) for n in range(len(self.examples(split)))]

        def batch(self, numbers: Any, split: str = "train") -> Any:
            sizes = [len(self._text(n, split)) for n in numbers]
            if split == "train":
                self.taken.append(sizes)
            elif len(numbers) > 1:
                self.measured += sizes
            return super().batch(numbers, split)

    config = config_for(tmp_path / "run", stage(steps=10, by_length=by_length))
    train(config, task=Known())
    spread = [max(sizes) - min(sizes) for sizes in Known.taken]
    assert sorted(n for sizes in Known.taken for n in sizes) == sorted(Known().lengths())
    assert (max(spread) <= 3) == by_length
    # What is measured is the same in any order; long ones come first.
    assert Known.measured[:10] == sorted(Known.measured[:10], reverse=True)


def test_a_pattern_is_written_as_in_python(tmp_path: Path) -> None:
    """And the model that is left is made again with it."""
    own = {"kind": "Attention", "pattern": "Causal() & (Window(3, 0) | Global(1))"}
    config = config_for(tmp_path / "run", stage(), mechanism=own)
    train(config)
    for one in load(tmp_path / "run").model.mechanisms():
        assert isinstance(one, Attention)
        assert one.meaning.pattern == Causal() & (Window(3, 0) | Global(1))
    wrong = {"kind": "Attention", "pattern": "Window(3"}
    with pytest.raises(ValueError, match="Window"):
        train(config_for(tmp_path / "wrong", stage(), mechanism=wrong))
    both = {"kind": "Attention", "pattern": "Causal()", "text": "x"}
    with pytest.raises(ValueError, match="give a pattern"):
        train(config_for(tmp_path / "both", stage(), mechanism=both))


def test_a_reach_from_nowhere_is_said_before_anything_is_trained(tmp_path: Path) -> None:
    stages = stage(name="strategy"), stage(name="scale", reach_from="stratgy")
    config = config_for(tmp_path / "run", *stages, mechanism=LEARNED)
    says = r"stage 'scale': reach_from is no stage before it .* 'stratgy' \(did you mean 'strategy'"
    with pytest.raises(ValueError, match=says):
        train(config)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_a_stage_of_no_steps_measures_what_it_begins_with(tmp_path: Path) -> None:
    first = train(config_for(tmp_path / "a", stage(), mechanism=LEARNED), task=Tiny())
    still = stage(name="measured", steps=0, evaluate_every=2)
    config = config_for(
        tmp_path / "b", still, mechanism=LEARNED, start=str(tmp_path / "a"), model={}
    )
    found = train(config, task=Tiny())
    assert found["metrics"] == first["metrics"] and found["loss"] == first["loss"]
    assert found["steps"] == 0 and found["tokens_per_second"] is None and found["seconds"] > 0
    (line,) = metrics_of(tmp_path / "b")
    assert line["kind"] == "dev" and line["stage"] == "measured"
    before, after = weights(tmp_path / "a", "train"), weights(tmp_path / "b", "measured")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    # Between stages that train, too; and what it would cost is told.
    stages = (stage(name="one"), still, stage(name="two"))
    whole = train(config_for(tmp_path / "c", *stages, mechanism=LEARNED), task=Tiny())
    assert whole["steps"] == 12
    (cost,) = estimate(config, task=Tiny())
    assert cost.seconds is not None and cost.seconds == cost.evaluation and cost.seconds > 0
    page = report.write([tmp_path / "b", tmp_path / "c"], tmp_path / "report.html").read_text()
    assert "measured" in page


def test_a_stage_may_have_another_mechanism(tmp_path: Path) -> None:
    """With none of the settings of the run's own."""
    other = stage(name="other", steps=0, mechanism={"kind": "SlidingWindow", "left": 5})
    config = config_for(tmp_path / "a", stage(name="one"), other, mechanism=LEARNED)
    found = train(config, task=Tiny())
    assert found["mechanism"] == "SlidingWindow" and found["mean_reach"] is None
    for own in load_learner(tmp_path / "a" / "stages" / "other").mechanisms():
        assert isinstance(own, SlidingWindow) and own.settings["left"] == 5
    with pytest.raises(ValueError, match=r"stage 'other': .* did you mean 'SlidingWindow'"):
        config_for(
            tmp_path / "b", stage(name="other", mechanism={"kind": "SlidingWindw"}),
            mechanism=LEARNED,
        )  # fmt: skip


def test_a_fresh_window_after_another_mechanism(tmp_path: Path) -> None:
    """There is no reach to begin with: it is a new one."""
    fixed = {"kind": "SlidingWindow", "left": 3}
    stages = stage(name="one"), stage(name="two", mechanism=fixed), stage(name="three", fresh=True)
    config = config_for(tmp_path / "a", *stages, mechanism=LEARNED)
    train(config, task=Tiny())
    assert windows(tmp_path / "a", "three")
    learned = stage(name="three", fresh=True, mechanism=LEARNED)
    config = config_for(tmp_path / "b", stage(name="one"), learned, mechanism=SLIDING)
    train(config, task=Tiny())
    assert windows(tmp_path / "b", "three")


def test_nothing_trains_is_said_before_anything_is_trained(tmp_path: Path) -> None:
    stages = stage(name="one"), stage(name="two", trains="reach", reach_from="one")
    with pytest.raises(ValueError, match="stage 'two': nothing trains"):
        train(config_for(tmp_path / "run", *stages, mechanism=LEARNED), task=Tiny())
    assert not (tmp_path / "run").exists()


def test_a_budget_after_none(tmp_path: Path) -> None:
    """The running factor of causal windows begins with what the budget asks for."""
    free = LEARNED | {"budget": None, "initial_variance": 1.0}
    other = {"budget": "reach", "initial_variance": None, "mean_reach": 6}
    stages = stage(name="free"), stage(name="asked", steps=1, learning_rate=0.0, mechanism=other)
    found = train(config_for(tmp_path, *stages, mechanism=free), task=Tiny())
    assert found["mean_reach"] > 3
    assert float(windows(tmp_path, "asked")[0].factor) == pytest.approx(6, rel=0.2)


def test_positions_that_were_not_learned_are_copies(tmp_path: Path) -> None:
    """A model that is drawn has room for every stage; what a longer one finds was learned."""
    own = {"positions": "learned", "length": 24}
    stages = stage(name="short", length=8), stage(name="long", length=24, steps=0)
    config = config_for(tmp_path, *stages, mechanism=SLIDING, model=own)
    train(config, task=Tiny(objective="spans", length=8))
    short, long = (
        next(x for name, x in weights(tmp_path, own).items() if name.endswith("positions.weight"))
        for own in ("short", "long")
    )
    assert torch.equal(long[:8], short[:8]) and not torch.equal(short[8:16], short[:8])
    assert torch.equal(long[8:16], short[:8]) and torch.equal(long[16:], short[:8])


def test_nothing_to_be_measured_on_is_said_before_anything_is_trained(tmp_path: Path) -> None:
    task = Tiny()
    task.dev = range(0)
    with pytest.raises(ValueError, match="tiny: there are no examples to be measured on"):
        train(config_for(tmp_path / "run", stage(), mechanism=LEARNED), task=task)
    assert not (tmp_path / "run").exists()
