from __future__ import annotations

import pytest
import torch
from torch import Tensor

from longspan.bench.gpu.candidates import Group, candidates_of, groups, pasted
from longspan.bench.gpu.contenders import Variant, Work
from longspan.bench.gpu.tuning import _told, timed
from longspan.kernels.triton.arguments import Made
from longspan.kernels.triton.configs import HOPPER, HopperOptions, hopper_options, options, override

from .fakes import FakeStopwatch, bench

pytestmark = pytest.mark.filterwarnings("ignore:longspan was installed without:RuntimeWarning")

MADE = Made(64, 64, 64, 64, 64, 64, (), (), False, False, "ieee")


def test_options_are_overridden_for_a_while_and_for_one_kernel() -> None:
    before = {name: options(name, MADE, 2) for name in ("outputs", "keys")}
    tried = {"num_warps": 8, "num_stages": 4}
    with override("outputs", tried):
        assert options("outputs", MADE, 2) == tried
        assert options("keys", MADE, 2) == before["keys"]
        with override("outputs", {"num_warps": 1}):
            assert options("outputs", MADE, 2) == {"num_warps": 1}
        assert options("outputs", MADE, 2) == tried
        # What a launch does with its options is its own affair.
        options("outputs", MADE, 2)["num_warps"] = 2
        assert options("outputs", MADE, 2) == tried
    assert options("outputs", MADE, 2) == before["outputs"]


def test_options_come_back_after_an_error() -> None:
    before = options("keys", MADE, 2)
    with pytest.raises(RuntimeError), override("keys", {"num_warps": 8}):
        raise RuntimeError
    assert options("keys", MADE, 2) == before


PLAIN = candidates_of(Group("outputs", "dropout", 64))


def test_the_candidates_of_plain_kernels_are_all_combinations() -> None:
    assert len(PLAIN) == 24
    assert {"num_warps": 4, "num_stages": 2} in PLAIN
    assert {"num_warps": 8, "num_stages": 4, "maxnreg": 240} in PLAIN


def test_the_candidates_for_hopper_are_those_that_can_fit() -> None:
    forward = candidates_of(Group("outputs", "window", 64, True))
    backward = candidates_of(Group("queries", "window", 64, True))
    assert len(forward) == 17 and {options["turns"] for options in forward} == {2}
    assert len(backward) == 34
    large = candidates_of(Group("keys", "window", 128, True))
    assert {"programs": 2, "ring": 4, "turns": 1, "step": 32} in large
    assert {"programs": 4, "ring": 4, "turns": 1, "step": 64} not in large
    # What the kernels are launched with now can be found again.
    for (kernel, size), now in HOPPER.items():
        assert now._asdict() in candidates_of(Group(kernel, "window", size, True)), (kernel, size)


def test_every_candidate_for_hopper_names_options_of_its_launches() -> None:
    for kernel in ("outputs", "queries", "keys"):
        group = Group(kernel, "window", 64, True)
        for tried in candidates_of(group):
            with override(group.overridden, tried):
                assert hopper_options(kernel, 64) == HopperOptions(**tried)
        assert hopper_options(kernel, 64) == HOPPER[kernel, 64]


def test_the_most_used_group_comes_first() -> None:
    assert groups(quick=False, hopper=True)[0] == Group("outputs", "window", 64, True)
    assert groups(quick=False, hopper=False)[0] == Group("outputs", "window", 64)
    assert len(groups(quick=False, hopper=True)) == 36
    assert len(groups(quick=True, hopper=True)) == 6


def test_plain_kernels_are_tuned_on_what_those_for_hopper_do_not_take() -> None:
    plain = {group.kind for group in groups(quick=False, hopper=True) if not group.hopper}
    assert plain == {"dropout", "global"}
    elsewhere = groups(quick=False, hopper=False)
    assert {group.kind for group in elsewhere} == {"window", "learned", "dropout", "global"}
    assert not any(group.hopper for group in elsewhere)


@pytest.mark.parametrize(
    "group",
    [
        Group("outputs", "window", 32),
        Group("keys", "learned", 32),
        Group("queries", "dropout", 32),
        Group("outputs", "global", 32),
    ],
    ids=str,
)
def test_the_fastest_candidate_is_found(group: Group) -> None:
    watch = FakeStopwatch({"num_warps=8 num_stages=2": 50.0, "as it is": 100.0, "num": 80.0})
    candidates = [{"num_warps": 4, "num_stages": 2}, {"num_warps": 8, "num_stages": 2}]
    found = timed(bench(watch), group, candidates)
    assert found["best"] == {"num_warps": 8, "num_stages": 2}
    assert found["microseconds"] == 50.0 and found["as it is"] == 100.0
    assert found["pass"] == ("forward" if group.kernel == "outputs" else "backward")
    assert set(found["all"]) == {
        "as it is",
        "num_warps=4 num_stages=2",
        "num_warps=8 num_stages=2",
    }
    assert "100.0 → 50.0 µs with num_warps=8 num_stages=2" in _told(found)


def test_a_candidate_runs_with_its_own_options(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def make() -> Work:
        x = torch.ones(2, requires_grad=True)

        def attend(_: object) -> Tensor:
            seen.append(options("outputs", MADE, 2))
            return 2 * x

        return Work(attend=attend, leaves=(x,))

    monkeypatch.setattr(
        "longspan.bench.gpu.tuning.ours", lambda *_, **__: [Variant(name="", make=make)]
    )
    tried = [{"num_warps": 8}, {"num_warps": 2}]
    own = options("outputs", MADE, 2)
    timed(bench(), Group("outputs", "window", 32), tried)
    assert seen == [own, *tried]
    assert options("outputs", MADE, 2) == own


def test_a_group_in_which_nothing_runs_is_told() -> None:
    class Broken(FakeStopwatch):
        def _timed(self, name, make, capture):  # type: ignore[no-untyped-def]
            def fail() -> None:
                raise RuntimeError("out of registers")

            return super()._timed(name, lambda: fail, capture)

    found = timed(bench(Broken()), Group("outputs", "window", 32), PLAIN[:1])
    assert found["best"] is None
    assert found["all"]["num_warps=4 num_stages=2"] == "RuntimeError: out of registers"
    assert _told(found).endswith("nothing ran; 1 refused: RuntimeError")


def test_options_as_they_are_may_be_the_best() -> None:
    watch = FakeStopwatch({"as it is": 10.0, "num": 80.0})
    found = timed(bench(watch), Group("outputs", "window", 32), PLAIN[:2])
    assert found["best"] == "as it is"
    assert "with as it is" in _told(found)


def test_candidates_without_room_are_left_out_and_told() -> None:
    class OutOfResources(Exception):
        pass

    class Small(FakeStopwatch):
        def _timed(self, name, make, capture):  # type: ignore[no-untyped-def]
            if "programs=4" in name:

                def fail() -> None:
                    raise OutOfResources("out of resource: shared memory, Required: 270000")

                return super()._timed(name, lambda: fail, capture)
            return super()._timed(name, make, capture)

    watch = Small({"programs=3 ring=2 turns=1 step=64": 40.0, "": 90.0})
    found = timed(bench(watch), Group("queries", "window", 64, True))
    assert found["best"] == {"programs": 3, "ring": 2, "turns": 1, "step": 64}
    assert found["refused"] == {"OutOfResources": 10}
    assert found["all"]["programs=4 ring=2 turns=1 step=32"] == (
        "OutOfResources: out of resource: shared memory, Required: 270000"
    )
    assert _told(found) == (
        "Hopper queries, window, head size 64: backward 90.0 → 40.0 µs with "
        "programs=3 ring=2 turns=1 step=64; 10 refused: OutOfResources"
    )


def _found(
    kernel: str, kind: str, hopper: bool, best: object, **times: object
) -> dict[str, object]:
    group = Group(kernel, kind, 64, hopper)
    return {**group._asdict(), "best": best, "all": times.get("all", {})}


def test_what_was_found_is_printed_as_python_for_the_table() -> None:
    """The best for a window is the worst for a learned reach: neither kind is forgotten."""
    a, b = "programs=4 ring=2 turns=2 step=64", "programs=2 ring=4 turns=1 step=32"
    window = {"as it is": 100.0, a: 80.0, b: 85.0, "programs=9": "OutOfResources: no"}
    learned = {"as it is": 100.0, a: 150.0, b: 90.0}
    found = [
        _found("outputs", "window", True, {}, all=window),
        _found("outputs", "learned", True, {}, all=learned),
        _found("queries", "window", True, "as it is", all={"as it is": 10.0, a: 20.0}),
        _found("keys", "dropout", False, {"num_warps": 4, "num_stages": 2}),
    ]
    text = pasted(found)
    table, _, rest = text.partition("}\n")
    names: dict[str, object] = {"HopperOptions": HopperOptions}
    exec(table + "}", names)
    assert names["HOPPER"] == HOPPER | {("outputs", 64): HopperOptions(2, 4, turns=1, step=32)}
    assert '    ("outputs", 64): HopperOptions(2, 4, turns=1, step=32),\n' in table
    assert '    ("queries", 64): HopperOptions(2, 3),  # as it was\n' in table
    assert rest.splitlines() == [
        "# options(): keys, dropout, head size 64",
        'return {"num_warps": 4, "num_stages": 2}',
    ]
    assert pasted(found[3:]).splitlines() == rest.splitlines()
