from __future__ import annotations

import pytest
import torch
from torch import Tensor

from longspan.bench.gpu.contenders import Variant, Work
from longspan.bench.gpu.tuning import CANDIDATES, Group, _told, groups, timed
from longspan.kernels.triton.arguments import Made
from longspan.kernels.triton.configs import options, override

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


def test_the_candidates_are_all_combinations() -> None:
    assert len(CANDIDATES) == 24
    assert {"num_warps": 4, "num_stages": 2} in CANDIDATES
    assert {"num_warps": 8, "num_stages": 4, "maxnreg": 240} in CANDIDATES


def test_the_most_used_group_comes_first() -> None:
    assert groups(quick=False)[0] == Group("outputs", "window", 64)
    assert len(groups(quick=False)) == 18
    assert len(groups(quick=True)) == 3


@pytest.mark.parametrize(
    "group", [Group("outputs", "window", 32), Group("keys", "learned", 32)], ids=str
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

    found = timed(bench(Broken()), Group("outputs", "window", 32), CANDIDATES[:1])
    assert found["best"] is None
    assert found["all"]["num_warps=4 num_stages=2"] == "RuntimeError: out of registers"
    assert _told(found).endswith("nothing ran")


def test_options_as_they_are_may_be_the_best() -> None:
    watch = FakeStopwatch({"as it is": 10.0, "num": 80.0})
    found = timed(bench(watch), Group("outputs", "window", 32), CANDIDATES[:2])
    assert found["best"] == "as it is"
    assert "with as it is" in _told(found)
