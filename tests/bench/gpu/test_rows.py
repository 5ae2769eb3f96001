from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable

import pytest
import torch

from longspan.bench.gpu import ROWS, Entry, Taken
from longspan.bench.gpu.contenders import OURS, Variant, Work, compared, ratios
from longspan.bench.gpu.first_call import first_call
from longspan.bench.gpu.floor import CARDS, card_of, needs_of, step_of
from longspan.bench.gpu.peers import FLEX, FLEX_SMALL
from longspan.bench.gpu.rows.calls import KINDS, first_calls
from longspan.bench.gpu.rows.eager import BUSY, NOTHING, Busy, _Nothing, _spent
from longspan.bench.gpu.rows.lengths import LENGTHS, tokens_of
from longspan.bench.gpu.rows.longformer import OUR_LAYER, PROJECTIONS, THEIR_LAYER
from longspan.bench.gpu.timing import Failure
from longspan.measure import Size

from .fakes import FakeStopwatch, bench

pytestmark = [
    pytest.mark.filterwarnings("ignore:longspan was installed without:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def test_the_targets_are_those_that_were_set() -> None:
    """Without running anything: the figures of rows whose calls are not made."""
    asked = {}
    for name in ROWS:
        if name in ("eager", "launches", "first-call", "longformer", "longformer-global"):
            continue
        result = ROWS[name].run(bench(FakeStopwatch(run=False), peers=name != "lengths"))
        asked[name] = [
            (f.target, f.stretch) if f.stretch else f.target
            for f in result.figures
            if f.target is not None
        ]
    assert asked == {
        "window-128": [(1.75, 2.2), (1.9, 2.3)],
        "window-256": [1.5, 1.6],
        "window-512": [1.4, 1.5],
        "window-128-d128": [1.5, 1.5],
        "window-128-d32": [1.3, 1.5],
        "window-128-n65536": [1.7, 1.9],
        "learned-independent": [(3.0, 3.5)],
        "learned-smooth": [],
        "learned-long-tailed": [],
        "global-first": [1.5, 1.5],
        "global-scattered": [1.5, 1.5],
        "bigbird": [1.2, 1.2],
        "lengths": [15, 15],
        "training": [],
        "reaches": [],
    }


def test_the_most_important_rows_come_first() -> None:
    assert list(ROWS)[:2] == ["window-128", "learned-independent"]


@pytest.mark.usefixtures("flex_on_cpu")
@pytest.mark.parametrize("name", ["window-128", "learned-independent", "global-scattered"])
def test_a_row_times_both_in_turn_and_compares_them(name: str) -> None:
    watch = FakeStopwatch({OURS: 100.0, FLEX_SMALL: 180.0, FLEX: 220.0})
    result = ROWS[name].run(bench(watch, peers=True))
    mine, theirs = result.entry(OURS), result.entry(FLEX)
    assert mine is not None and theirs is not None
    assert not mine.missing and not theirs.missing, (mine, theirs)
    # All contenders of a pass take turns in one race.
    with_mask = [race for race in watch.raced if f"{OURS}|" in race]
    assert len(with_mask) >= 2 and all(f"{FLEX}|" in race for race in with_mask)
    assert theirs.note == ""
    flex = [f for f in result.figures if f.what.endswith(f"faster than {FLEX}")]
    assert [f.value for f in flex] == pytest.approx([2.2] * len(flex))
    assert ("mask" in theirs.passes) and ("mask" not in mine.passes)
    assert ("step" in mine.passes) == name.startswith("learned")
    assert result.pairs > 0
    assert result.needs["forward"].time is not None
    # FlashAttention-2 has no CPU kernel that takes bfloat16 windows: the row goes on without it.
    for entry in result.entries:
        assert entry.passes or entry.missing


@pytest.mark.usefixtures("flex_on_cpu")
def test_smaller_blocks_are_a_peer_of_their_own_forward_alone_and_without_a_target() -> None:
    watch = FakeStopwatch({OURS: 100.0, FLEX_SMALL: 180.0, FLEX: 220.0})
    result = ROWS["window-128"].run(bench(watch, peers=True))
    small = result.entry(FLEX_SMALL)
    assert small is not None and not small.missing
    assert set(small.passes) == {"forward"}
    assert "its backward" in small.note and len(small.note) < 90
    forward, backward, other, *_ = result.figures
    assert (forward.what, forward.value) == (f"forward, faster than {FLEX}", 2.2)
    assert (backward.what, backward.value) == (f"backward, faster than {FLEX}", 2.2)
    assert other.what == f"forward, faster than {FLEX_SMALL}"
    assert other.value == 1.8 and other.target is None and other.met is None


def test_smaller_blocks_are_tried_where_they_may_pay() -> None:
    tried = []
    for name, row in ROWS.items():
        if row.compiles:
            result = row.run(bench(FakeStopwatch(run=False), peers=True))
            tried += [name] if result.entry(FLEX_SMALL) else []
    windows, patterns = tried[:3], tried[3:]
    assert windows == ["window-128", "window-256", "window-512"]
    assert patterns == ["global-first", "bigbird", "global-scattered"]


def test_peers_can_be_left_out() -> None:
    result = ROWS["window-128"].run(bench(peers=False))
    assert [entry.name for entry in result.entries] == [OURS]
    assert result.figures == []


def test_the_faster_variant_counts_pass_by_pass_and_failures_are_told() -> None:
    x = torch.ones(3, requires_grad=True)

    def good() -> Work:
        return Work(attend=lambda _: 2 * x, leaves=(x,))

    def half() -> Work:
        # A backward that fails: y does not depend on x.
        return Work(attend=lambda _: torch.ones(3), leaves=(x,))

    def broken() -> Work:
        raise RuntimeError("\n\nthe compiler says no\nat length")

    watch = FakeStopwatch({"A|one": 30.0, "A|two": 20.0})
    contenders = {
        "A": [Variant(name="one", make=good), Variant(name="two", make=half)],
        "B": [Variant(name="", make=broken)],
    }
    a, b = compared(bench(watch), contenders)
    assert a.passes["forward"].median == 20.0
    assert a.passes["backward"].median == 30.0
    assert a.note.startswith("forward: two; backward: one; two: backward: RuntimeError: ")
    assert b == Entry(name="B", missing="RuntimeError: the compiler says no")


def test_a_step_makes_a_mask_anew_only_where_it_learns() -> None:
    made = []

    def mask() -> float:
        made.append(1)
        return 2.0

    x = torch.ones(3, requires_grad=True)
    for remade, more in ((False, 0), (True, 2)):
        work = Work(attend=lambda m: m * x, leaves=(x,), mask=mask, remade=remade)
        step = work.calls()["step"]()
        before = len(made)
        step()
        step()
        assert len(made) - before == more


def test_ratios_say_why_there_are_none() -> None:
    t = Taken(100.0, 99.0, 101.0, 5)
    mine = Entry(name=OURS, passes={"forward": t})
    gone = Entry(name=FLEX, missing="not there")
    (figure,) = ratios([mine, gone], FLEX, {"forward": 1.5}, ["forward"])
    assert figure.value is None and figure.note == "not there" and figure.met is None
    eager = Entry(name=FLEX, passes={"forward": t._replace(median=150.0, how="eager")})
    (figure,) = ratios([mine, eager], FLEX, {"forward": 1.5}, ["forward"])
    assert figure.met and figure.note == "theirs: eager, ours: graph"
    assert ratios([mine], FLEX, {}) == []


def test_lengths_hold_the_number_of_tokens_up_to_65536() -> None:
    assert all(n * b == max(65536, n) for n, b in LENGTHS.items())
    assert min(LENGTHS) == 4096 and max(LENGTHS) == 262144


def test_time_per_token_is_compared_over_lengths() -> None:
    result = ROWS["lengths"].run(bench(FakeStopwatch({OURS: 100.0})))
    assert [tokens_of(entry) for entry in result.entries] == [(1, 256), (1, 512)]
    assert [figure.value for figure in result.figures] == pytest.approx([100.0, 100.0])
    assert [figure.met for figure in result.figures] == [False, False]


def test_eager_calls_are_compared_with_their_graph() -> None:
    result = ROWS["eager"].run(bench())
    against, on_host = result.figures[:4], result.figures[4:]
    assert [figure.value for figure in against] == [1.5] * 4
    assert [figure.target for figure in against] == [1.5] * 4
    assert all(figure.met for figure in against)
    assert [figure.what for figure in against[:2]] == [
        "window: eager against the graph",
        "window: eager in one thread against the graph",
    ]
    names = [figure.what for figure in on_host]
    assert "learned: backward, one thread, host time" in names
    assert (
        f"{NOTHING}: step, host time" in names and f"{BUSY}: step, one thread, host time" in names
    )
    inside = [figure for figure in on_host if "inside" in figure.what]
    assert len(inside) == 4 and all(figure.value and figure.value > 0 for figure in inside)
    assert all(f.value == 30.0 for f in on_host if f not in inside)
    assert all((f.unit, f.target) == ("µs", None) for f in on_host)
    *entries, nothing, busy = result.entries
    assert list(nothing.passes) == list(busy.passes) == ["host, step", "host, step, one thread"]
    for entry in entries:
        assert {name: taken.how for name, taken in entry.passes.items()} == {
            "eager": "eager",
            "graph": "graph",
            "eager, one thread": "eager",
            "host, forward": "host",
            "host, backward": "host",
            "host, forward inside of steps": "host",
            "host, forward inside of steps, one thread": "host",
            "host, backward, one thread": "host",
        }


def test_python_is_kept_busy_for_as_long_as_a_call_takes() -> None:
    def entry(**passes: float) -> Entry:
        taken = {name.replace("_", ", "): Taken.of([own]) for name, own in passes.items()}
        return Entry(name="", passes=taken)

    mine = entry(host_forward=100.0, **{"host_backward_one thread": 200.0})
    busy = _spent(mine, entry(**{"host_step_one thread": 60.0}))
    assert busy == pytest.approx((70e-6, 170e-6))
    x = torch.zeros(2, requires_grad=True)
    begin = time.perf_counter()
    y = _Nothing.apply(x, x, x, Busy(0.01, 0.02))
    middle = time.perf_counter()
    y.sum().backward()
    assert middle - begin >= 0.01 and time.perf_counter() - middle >= 0.02


def test_launches_are_counted_beyond_those_of_a_window() -> None:
    result = ROWS["launches"].run(bench())
    assert [figure.value for figure in result.figures] == [-1.0, -1.0]
    assert result.figures[0].target == 1 and result.figures[0].met
    assert result.figures[0].note == "3 and 2; the same"


def test_launches_that_no_profiler_saw_are_not_judged() -> None:
    class Blind(FakeStopwatch):
        def launches(self, call: Callable[[], object]) -> Counter[str]:
            return Counter()

    result = ROWS["launches"].run(bench(Blind()))
    assert [figure.met for figure in result.figures] == [None, None]


def test_longformer_without_transformers_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    result = ROWS["longformer"].run(bench(peers=True))
    assert "not installed" in result.missing


@pytest.mark.parametrize("name", ["longformer", "longformer-global"])
def test_longformer_is_timed_layer_and_part(name: str) -> None:
    pytest.importorskip("transformers")
    watch = FakeStopwatch({THEIR_LAYER: 900.0, PROJECTIONS: 100.0, OUR_LAYER: 90.0, "": 40.0})
    result = ROWS[name].run(bench(watch, peers=True))
    assert [figure.value for figure in result.figures] == pytest.approx([20.0, 10.0] * 2)
    assert all(figure.met for figure in result.figures)
    assert watch.captured == [True, True]


def test_our_longformer_layer_is_timed_alone() -> None:
    result = ROWS["longformer"].run(bench(peers=False))
    assert all(not entry.missing for entry in result.entries)
    assert result.figures == []


def test_a_first_call_is_timed_in_a_process_of_its_own() -> None:
    (found,) = first_calls(["window"], "cpu", "torch").values()
    assert isinstance(found, dict), found
    assert found["forward"] > 0 and found["backward"] > 0


def test_a_process_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert first_calls(["window"], "cpu", "torch") == {"window": Failure("it said nothing")}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_first_call_runs(kind: str) -> None:
    found = first_call(kind, torch.device("cpu"), "torch")
    assert set(found) == {"forward", "backward"}


def test_the_floor_of_the_main_window() -> None:
    """As published beside the targets: 31 and 62 µs of bytes, 22 and 55 of flops."""
    size = Size(batch=4, heads=16, length=4096, head_dim=64, dtype=torch.bfloat16)
    needs = needs_of(size, 64 * 4096 * 257, card_of("NVIDIA H200"))
    times = [(round(n.bytes_time or 0), round(n.flops_time or 0)) for n in needs.values()]
    assert times == [(31, 22), (63, 55)]
    step = step_of(needs)
    assert step.time == pytest.approx(sum(n.time or 0 for n in needs.values()))
    assert step.flops == 64 * 4096 * 257 * 64 * 14
    unknown = needs_of(size, 1, None)
    assert unknown["forward"].time is None and step_of(unknown).time is None
    assert card_of("Another") is None
    assert card_of("NVIDIA H200 NVL") == CARDS["H200"]


def test_training_is_compared_with_all_pairs() -> None:
    result = ROWS["training"].run(bench(peers=True))
    assert len(result.entries) == 6 and len(result.figures) == 10
    assert not [entry.name for entry in result.entries if entry.missing]
    assert all(figure.value is not None and figure.target is None for figure in result.figures)


def test_reaches_are_compared_with_pytorchs_operations() -> None:
    result = ROWS["reaches"].run(bench(peers=True))
    assert not [entry.name for entry in result.entries if entry.missing]
    # Small inputs are the same size twice.
    assert len(result.figures) == 6
    assert all(figure.value is not None and figure.target is None for figure in result.figures)
    alone = ROWS["reaches"].run(bench(peers=False))
    assert len(alone.entries) == 3 and not alone.figures
