from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from longspan.recipes import (
    Plan,
    Planned,
    comparison,
    long_documents,
    longer_texts,
    narrow_ideas,
    narrow_windows,
    over_seeds,
    scales,
    unanswerable,
    window_table,
)
from longspan.recipes.narrow_windows import spread
from longspan.recipes.window_table import PUBLISHED
from longspan.training import RunConfig, Stage
from longspan.weights.conversions import variance_of


def config(**changes: object) -> RunConfig:
    given = {"task": {"name": "recall"}, "stages": (Stage(steps=2),), "output": "runs"}
    return RunConfig(**{**given, **changes})  # type: ignore[arg-type]


def test_a_table_has_all_rows_of_its_plan() -> None:
    plan = comparison("recall", ("full", "window"), seeds=1)
    assert replace(plan, table=("window", "other", "full")).line_of("full") == 2
    with pytest.raises(ValueError, match="table has no row 'window'"):
        replace(plan, table=("full",))


def test_places_tell_runs_apart(tmp_path: Path) -> None:
    one = Planned(row="a row: ×10", config=config())
    others = [
        replace(one, config=config(seed=1)),
        replace(one, config=config(precision="bf16")),
        replace(one, config=config(stages=(Stage(steps=3),))),
        replace(one, row="another"),
    ]
    places = [run.place for run in (one, *others)]
    assert len(set(places)) == len(places)
    assert all(set(place) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") for place in places)
    # Where the runs are kept does not make them others, nor whether blocks are compiled.
    assert replace(one, config=config(output="elsewhere")).place == one.place
    assert replace(one, config=config(compiled=True)).place == one.place
    assert one.inside(tmp_path).folder == tmp_path / one.place


def test_places_do_not_follow_defaults() -> None:
    own = config(stages=(Stage(steps=2, batch=4),), mechanism={"kind": "Attention"})
    assert own.told() == {
        "task": {"name": "recall", "data": None, "settings": {}},
        "mechanism": {"kind": "Attention"},
        "stages": [{"steps": 2, "batch": 4}],
    }


def test_rows_in_order_and_seeds_of_each() -> None:
    runs = over_seeds("b", config(), (0, 1)) + over_seeds("a", config(), (0, 1))
    plan = Plan(title="t", about="", runs=tuple(runs))
    assert plan.rows == ("b", "a") and [run.config.seed for run in plan.runs] == [0, 1, 0, 1]
    changed = plan.with_set(["stages.*.steps=7"])
    assert {run.config.steps for run in changed.runs} == {7}
    with pytest.raises(ValueError, match="no runs"):
        Plan(title="t", about="", runs=())


def test_window_table_has_the_reports_rows() -> None:
    plan = window_table(seeds=(0,))
    rows = plan.rows
    for words in (
        "learning rate ×100",
        "average variance 10, without",
        "fixed variance 100, with",
        "window 108, with global",
        "k = 0.6, with",
        "k = 0.5, without",
    ):
        assert any(words in row for row in rows), words
    assert len(rows) == len(plan.runs) == 3 + 2 * 5 + 4 + 2 * 5
    assert set(PUBLISHED) <= set(rows)
    assert all(run.published == PUBLISHED.get(run.row) for run in plan.runs)
    learned = next(run for run in plan.runs if "k = 0.6, with " in run.row)
    first, second, third = learned.config.stages
    assert first.cut is False and second.cut is third.cut is True
    assert second.reach_from == first.name and second.fresh and not third.fresh
    assert second.trains == third.trains == "all but reach"
    # Their reach is learned in the same stage, of the same average variance.
    for said in ("with", "without"):
        one, other = (
            next(
                run.config
                for run in plan.runs
                if run.row == f"long: learned, k = {k}, {said} global tokens"
            )
            for k in (0.5, 0.6)
        )
        (soft, *_), (too, *_) = one.stages, other.stages
        assert replace(soft, mechanism=None) == replace(too, mechanism=None)
        for first, whole in ((soft, one), (too, other)):
            asked = first.mechanism_of(whole.mechanism)
            assert variance_of(asked["mean_reach"], asked["threshold"]) == pytest.approx(100)
    # Every run can be written down and read again.
    assert all(RunConfig.from_dict(run.config.as_dict()) == run.config for run in plan.runs)


def test_parts_of_the_window_table() -> None:
    plan = window_table(parts=("long",), as_wide=(90, 95), long=1024, seeds=(0,))
    assert len(plan.rows) == 2 * 7 and "long: window 95, with global tokens" in plan.rows
    assert {run.config.task["settings"]["length"] for run in plan.runs} == {1024}
    two = next(run.config for run in plan.runs if "k = 0.5" in run.row)
    assert two.stages[0].task == {
        "settings": {"length": 384, "by": "paragraph", "global_tokens": False}
    }
    paragraphs = {"settings": {"length": 384, "by": "paragraph"}}
    assert two.stages[1].task == paragraphs and two.stages[2].task is None
    fixed = next(run.config for run in plan.runs if "window 95" in run.row)
    assert [own.task for own in fixed.stages] == [paragraphs, None]
    alone = window_table(parts=("long",), paragraphs=0, seeds=(0,))
    stages = {run.row: [own.name for own in run.config.stages] for run in alone.runs}
    assert stages["long: window 108, with global tokens"] == ["long"]
    assert stages["long: learned, k = 0.5, with global tokens"] == ["short", "long"]
    with pytest.raises(ValueError, match="parts are among free, soft"):
        window_table(parts=("short",))


def test_long_documents_have_the_same_pairs() -> None:
    plan = long_documents(reach=40, seeds=(0,))
    configs = {run.row: run.config for run in plan.runs}
    assert len(configs) == len(plan.runs) == 16
    more = configs["full attention, 4 times the steps"].stages
    assert [own.steps for own in more] == [1400, 4 * 450]
    bird: Any = configs["BigBird"].mechanism
    assert bird["block"] * (bird["window"] + bird["drawn"]) == 80
    assert configs["fixed, 512 tokens"].stages[1].batch == 8 * configs["fixed"].stages[1].batch
    for row, config in configs.items():
        first, second = config.stages
        assert first.task == {"settings": {"length": 384, "by": "paragraph"}} and not second.fresh
        wide = {"mean_reach": 160} if row == "learned, wide first" else None
        assert first.mechanism == wide and second.mechanism is None and second.task is None
    for kind in ("fixed", "learned"):
        # Of both kinds of windows global tokens have the same, unless the row says otherwise.
        for row, projected in {"": True, ", no projections for global tokens": False}.items():
            own: Any = configs[kind + row].mechanism
            assert own.get("global_projections", False) is projected
        assert configs[f"{kind}, no global tokens"].task["settings"]["global_tokens"] is False
    some = long_documents(seeds=(0, 1)).of_rows(("learned", "fixed"))
    assert some.rows == ("learned", "fixed") and len(some.runs) == 4
    # They stay where they are in the table of all.
    assert [some.line_of(row) for row in some.rows] == [4, 1]
    assert some.of_rows(("fixed",)).line_of("fixed") == 1 == plan.line_of("fixed")
    with pytest.raises(ValueError, match=r"are full attention; fixed; .*; got 'wide'"):
        plan.of_rows(("wide",))


def test_long_documents_without_paragraphs() -> None:
    plan = long_documents(paragraphs=0, steps=900, seeds=(0,))
    stages = {run.row: run.config.stages for run in plan.runs}
    assert len(stages) == 16 and stages["learned"][0].name == "train"
    wide = stages.pop("learned, wide first")
    assert [own.steps for own in wide] == [225, 225, 450]
    assert all(len(own) == 1 for own in stages.values())


def test_scales_carry_the_reach_network_alone() -> None:
    plan = scales(lengths=(1024, 2048), batches=(8, 4), seeds=(0,))
    assert len(plan.rows) == 10
    configs = {run.row: run.config for run in plan.runs}
    paragraphs = {"settings": {"length": 384, "by": "paragraph"}}
    for row, config in configs.items():
        *_, last = config.stages
        assert last.task is None and last.batch == (8 if row.startswith("1,024") else 4)
        assert config.stages[0].task == paragraphs
    first, second, third = configs["2,048: learned on paragraphs"].stages
    assert first.trains == "all" and second.trains == third.trains == "all but reach"
    assert second.reach_from == first.name and second.fresh and not third.fresh
    assert second.task == paragraphs
    learned = configs["1,024: learned to the end"].stages
    assert [own.trains for own in learned] == ["all", "all"]
    again = configs["1,024: learned on articles"].stages
    assert again[:2] == learned and again[2].fresh and again[2].reach_from == learned[1].name
    assert [own.steps for own in again[2:]] == [own.steps for own in learned]
    kept = configs["2,048: learned on paragraphs, all of it kept"].stages
    assert kept[0] == first and not kept[1].fresh and kept[1].trains == "all but reach"
    alone = {run.row: run.config for run in scales(paragraphs=0, seeds=(0,)).runs}
    assert [len(own.stages) for own in alone.values()] == [1, 2, 2, 1, 2] * 2
    with pytest.raises(ValueError, match="one for each of the 1 lengths, got 2"):
        scales(lengths=(1024,))


def test_unanswerable_questions_are_learned_from_wrong_paragraphs() -> None:
    plan = unanswerable(seeds=(0,), no_answer=1.5)
    assert plan.rows == ("full attention", "fixed 16", "learned 16")
    for run in plan.runs:
        settings = run.config.task["settings"]
        assert settings["mismatched"] == 0.5 and settings["no_answer"] == 1.5


def test_narrow_windows_change_one_thing_at_a_time() -> None:
    plan = narrow_windows(start="mini", seeds=(0, 1))
    assert len(plan.rows) == 34 + 4 and len(plan.runs) == 2 * len(plan.rows)
    assert len({run.place for run in plan.runs}) == len(plan.runs)
    configs = {run.row: run.config for run in plan.runs if run.config.seed == 0}
    centre = configs["learned 16, without global tokens"]
    for row, config in configs.items():
        if not row.startswith("learned 16, ") or "with global" in row or config is centre:
            continue
        changed = {
            name for name in centre.mechanism | config.mechanism  # type: ignore[operator]
            if centre.mechanism.get(name) != config.mechanism.get(name)  # type: ignore[union-attr]
        }  # fmt: skip
        assert len(changed) + (config.stages != centre.stages) == 1, row
    other = configs["learned 16, with global tokens"]
    assert other.task["settings"].pop("global_tokens") is True
    assert centre.task["settings"].pop("global_tokens") is False
    assert other == centre


def test_windows_of_heads_are_as_many_as_the_model_has(tmp_path: Path) -> None:
    def windows(start: str | None) -> list[int]:
        runs = narrow_windows(start=start, seeds=(0,)).runs
        own = next(run.config for run in runs if "another for each head" in run.row)
        assert isinstance(own.mechanism, dict)
        return list(own.mechanism["left"])

    (tmp_path / "config.json").write_text('{"num_attention_heads": 16}')
    assert [len(windows(own)) for own in (None, "mini", str(tmp_path))] == [4, 12, 16]


def test_ideas_change_one_thing_and_take_as_many_steps() -> None:
    plan = narrow_ideas(start="mini", seeds=(0,))
    assert len(plan.rows) == 20 + 4 and len({run.place for run in plan.runs}) == len(plan.rows)
    first = plan.runs[0].config
    for run in plan.runs[:20]:
        assert sum(own.steps for own in run.config.stages) == 1400, run.row
        assert "dev" not in run.config.task["settings"]
        mechanism = run.config.mechanism
        assert isinstance(mechanism, dict) and isinstance(first.mechanism, dict)
        changed = {name for name in mechanism if mechanism[name] != first.mechanism.get(name)}
        assert (len(run.config.stages) > 1) + (len(changed - {"spread"})) <= 1, run.row
    for run in plan.runs[20:]:
        means = [own.mechanism and own.mechanism["mean_reach"] for own in run.config.stages]
        assert means == [64, 32, None], run.row


def test_longer_texts_are_read_without_training_on_them() -> None:
    plan = longer_texts(lengths=(512, 1024))
    assert len(plan.runs) == 6 and plan.rows[:2] == (
        "384 tokens: full attention", "384 tokens: a window of 128",
    )  # fmt: skip
    for run, length in zip(plan.runs, (384, 384, 512, 512, 1024, 1024), strict=True):
        first, last = run.config.stages
        assert run.config.mechanism == {"kind": "FullAttention"} and first.mechanism is None
        assert last.steps == 0 and last.task == {"settings": {"length": length, "by": "article"}}
        assert last.mechanism is not None
        assert last.mechanism["kind"] == (
            "SlidingWindow" if "window" in run.row else "FullAttention"
        )


@pytest.mark.parametrize(("mean", "heads"), [(16, 12), (16, 4), (8, 1)])
def test_spread_windows_have_their_mean(mean: int, heads: int) -> None:
    found = spread(mean, heads)
    assert len(found) == heads and sum(found) == mean * heads
    assert found == sorted(found) and found[0] >= 1
    if heads > 1:
        assert 40 < found[-1] / found[0] < 90


def test_mechanisms_are_compared_with_the_same_of_everything_else() -> None:
    plan = comparison("recall", ("full", "window", "learned"), seeds=2, steps=5)
    assert plan.rows == ("full", "window", "learned") and len(plan.runs) == 6
    for run in plan.runs:
        cuts = [own.cut for own in run.config.stages]
        assert cuts == ([False, True] if run.row == "learned" else [None, None])
        stages = tuple(replace(own, cut=None) for own in run.config.stages)
        assert replace(run.config, mechanism=None, seed=0, stages=stages) == replace(
            plan.runs[0].config, mechanism=None, seed=0
        )
    assert [own.steps for own in plan.runs[0].config.stages] == [2, 3]
    (alone,) = comparison("recall", ("learned",), seeds=1, steps=5, soft=0).runs[0].config.stages
    assert alone.steps == 5 and alone.cut is True
    with pytest.raises(ValueError, match="soft must be a share"):
        comparison("recall", soft=1)
    for wrong in ((), ("full", "full")):
        with pytest.raises(ValueError, match="at least one, and each once"):
            comparison("recall", wrong)
    with pytest.raises(ValueError, match="among full, window"):
        comparison("recall", ("wide",))
    with pytest.raises(ValueError, match="looks ahead"):
        comparison("recall", ("bigbird",))


@pytest.mark.parametrize(
    ("recipe", "option"),
    [
        (scales, "steps"), (scales, "short_steps"), (window_table, "long_steps"),
        (window_table, "steps"), (long_documents, "steps"), (longer_texts, "paragraphs"),
        (narrow_windows, "steps"),
    ],
)  # fmt: skip
def test_recipes_train(recipe: Any, option: str) -> None:
    """A stage of no steps measures, which is nobody's wish here."""
    with pytest.raises(ValueError, match="must be at least 1, got 0"):
        recipe(**{option: 0})
