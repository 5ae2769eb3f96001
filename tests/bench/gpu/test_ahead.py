"""Rehearsals: what would be compiled runs once, in processes that may fail."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest
import torch

from longspan.bench.gpu import ROWS
from longspan.bench.gpu.ahead import Rehearsal, compile_ahead, rehearse
from longspan.bench.gpu.contenders import Bench
from longspan.bench.gpu.timing import Failure

from .fakes import bench


def test_a_rehearsal_runs_every_call_once_and_goes_on_after_a_failure() -> None:
    ran: list[str] = []

    def broken() -> object:
        raise RuntimeError("no kernel")

    found = Rehearsal().race({"a": lambda: broken, "b": lambda: lambda: ran.append("b")})
    assert found["a"] == Failure("RuntimeError: no kernel")
    assert ran == ["b"]


@pytest.mark.filterwarnings("ignore:longspan was installed without:RuntimeWarning")
@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if not row.compiles])
def test_rows_without_a_compiling_peer_are_not_rehearsed(name: str) -> None:
    told: list[str] = []
    assert compile_ahead([ROWS[name]] * 3, bench(peers=True), say=told.append) == 0.0
    assert told == []


def test_a_row_is_rehearsed_on_the_bench_that_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Bench] = []
    row = ROWS["window-128"]
    monkeypatch.setitem(
        ROWS,
        row.name,
        type(row)(name=row.name, title=row.title, run=seen.append),  # type: ignore[arg-type]
    )
    rehearse("window-128", torch.device("cpu"), True)
    (one,) = seen
    assert one.quick and one.peers and one.compiled and one.device == torch.device("cpu")
    assert isinstance(one.watch, Rehearsal)


ROWS_TO_COMPILE = [ROWS[name] for name in ("window-128", "bigbird", "eager")]


def test_nothing_is_compiled_ahead_for_one_row_or_without_peers() -> None:
    told: list[str] = []
    assert compile_ahead(ROWS_TO_COMPILE[:1], bench(peers=True), say=told.append) == 0.0
    assert compile_ahead(ROWS_TO_COMPILE, bench(peers=False), say=told.append) == 0.0
    assert told == []


def test_each_row_has_a_process_and_those_that_fail_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []
    popen = subprocess.Popen

    def start(command: list[str], **options: object) -> object:
        name, device, quick = json.loads(command[-1])
        asked.append((name, device, quick))
        code = "import os; os._exit(int(os.environ['TORCHINDUCTOR_COMPILE_THREADS']) - 1)"
        if name == "bigbird":
            code = "import os; os._exit(3)"
        return popen([sys.executable, "-S", "-c", code], **options)  # type: ignore[call-overload]

    monkeypatch.setattr("subprocess.Popen", start)
    told: list[str] = []
    took = compile_ahead(ROWS_TO_COMPILE, bench(peers=True), say=told.append)
    assert took > 0
    assert sorted(asked) == [("bigbird", "cpu", True), ("window-128", "cpu", True)]
    assert "for 2 rows" in told[0]
    assert told[1].endswith("left to the rows themselves: bigbird")


def test_a_process_that_takes_too_long_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    popen = subprocess.Popen

    def start(command: list[str], **options: object) -> object:
        code = "import time; time.sleep(60)"
        return popen([sys.executable, "-S", "-c", code], **options)  # type: ignore[call-overload]

    monkeypatch.setattr("subprocess.Popen", start)
    told: list[str] = []
    begin = time.perf_counter()
    compile_ahead(ROWS_TO_COMPILE, bench(peers=True), seconds=0.5, say=told.append)
    assert time.perf_counter() - begin < 20
    assert "window-128, bigbird" in told[1]
