"""Several runs of a plan at once, each in a process of its own: small models leave most of a GPU to
others.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..recipes import Plan, Planned
from ..training import RunConfig
from ..training.records import write_json
from .records import Done
from .runner import finished, take_up

__all__ = ["run_at_once"]

# Seconds between two looks at what the processes have done.
PAUSE = 0.5


def run_at_once(
    plan: Plan, folder: Path, *, jobs: int, records: Path | None, say: Callable[[str], None]
) -> list[Done]:
    """As `runner.run_plan`, with so many runs at once.

    Raises:
        ValueError: a run failed; all others are done.
    """
    folder.mkdir(parents=True, exist_ok=True)
    logs = folder / "jobs"
    logs.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".plan-") as place:
        path = Path(place) / "plan.json"
        write_json(path, _as_dict(plan))
        command = [sys.executable, "-m", __name__, str(path), str(folder), str(records or "")]
        started: list[subprocess.Popen[bytes]] = []
        with _told_to_end():
            try:
                for number in range(jobs):
                    started.append(_started(command, logs / f"{number}.log", jobs))
                _watch(plan, folder, records, started, say)
            finally:
                for process in started:
                    process.terminate()
                    process.wait()
    broken = [number for number, process in enumerate(started) if process.returncode]
    if broken:
        log = logs / f"{broken[0]}.log"
        last = [line for line in log.read_text(encoding="utf-8").splitlines() if line.strip()]
        raise ValueError(f"{last[-1] if last else 'a process ended without a word'} ({log})")
    done = [finished(planned, folder, records) for planned in plan.runs]
    return [one for one in done if one is not None]


@contextmanager
def _told_to_end() -> Iterator[None]:
    """Whoever ends this process from outside ends those that it has started, too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _started(command: list[str], log: Path, jobs: int) -> subprocess.Popen[bytes]:
    threads = max((os.cpu_count() or 1) // jobs, 1)
    own = {"OMP_NUM_THREADS": str(threads)} | os.environ
    with log.open("wb") as file:
        return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=own)


def _watch(
    plan: Plan,
    folder: Path,
    records: Path | None,
    started: list[subprocess.Popen[bytes]],
    say: Callable[[str], None],
) -> None:
    """Tells of every run that ends, until all processes have."""
    waiting = [planned for planned in plan.runs if finished(planned, folder, records) is None]
    while True:
        running = any(process.poll() is None for process in started)
        for planned in list(waiting):
            if finished(planned, folder, records) is not None:
                waiting.remove(planned)
                count = len(plan.runs) - len(waiting)
                say(f"{count} of {len(plan.runs)}: {planned.row}, seed {planned.config.seed}")
        if not running:
            return
        time.sleep(PAUSE)


def _as_dict(plan: Plan) -> dict[str, Any]:
    """All of a plan: what is left out here is missing in the records."""
    runs = [
        {
            "row": one.row,
            "name": one.name,
            "published": one.published,
            "config": one.config.as_dict(),
        }
        for one in plan.runs
    ]
    return {"title": plan.title, "about": plan.about, "table": list(plan.table), "runs": runs}


def _plan_of(content: dict[str, Any]) -> Plan:
    runs = tuple(
        Planned(**{**own, "config": RunConfig.from_dict(own["config"])}) for own in content["runs"]
    )
    return Plan(**{**content, "table": tuple(content["table"]), "runs": runs})


@contextmanager
def _claimed(folder: Path, planned: Planned) -> Iterator[bool]:
    """Whether nobody else makes this run; the claim goes with the process, however it ends."""
    place = folder / "jobs" / f"{planned.place}.claim"
    with place.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def main(path: Path, folder: Path, records: Path | None) -> int:
    """One process: makes the runs that nobody else has made or begun. One that fails is left, by
    the others too, however it ended; the exit code tells of it, and the end of the log.
    """
    plan = _plan_of(json.loads(path.read_text(encoding="utf-8")))
    failures = []
    for planned in plan.runs:
        begun = path.with_name(f"{planned.place}.begun")
        with _claimed(folder, planned) as mine:
            if not mine or begun.exists() or finished(planned, folder, records) is not None:
                continue
            begun.touch()
            try:
                take_up(plan, planned, folder, records)
            except Exception as error:
                if not isinstance(error, (ValueError, OSError, ImportError)):
                    traceback.print_exc()
                failures.append(f"{planned.place}: {type(error).__name__}: {error}")
                print(failures[-1], file=sys.stderr, flush=True)
    if failures:
        print(f"\n{failures[0]}", file=sys.stderr)
    return 2 if failures else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]) if sys.argv[3] else None))
