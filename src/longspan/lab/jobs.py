"""Several runs of a plan at once, each in a process of its own: small models leave most of a GPU to
others.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ..recipes import Plan, Planned
from ..training import RunConfig
from ..training.folder import TakenError
from ..training.records import write_json
from ..writing import write_text
from .records import Done
from .runner import Failed, Made, cause_of, finished, take_up

__all__ = ["run_at_once"]

# Seconds between two looks at what the processes have done.
PAUSE = 0.5

Processes = list[subprocess.Popen[bytes]]


def run_at_once(
    plan: Plan, folder: Path, *, jobs: int, records: Path | None, say: Callable[[str], None]
) -> Made:
    """As `runner.run_plan`, with so many runs at once."""
    folder.mkdir(parents=True, exist_ok=True)
    logs = folder / "jobs"
    logs.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="longspan-") as place:
        path = Path(place) / "plan.json"
        write_json(path, _as_dict(plan))
        started: Processes = []
        with _told_to_end():
            try:
                # What another command makes is looked at again when all else is made.
                for again in (False, True):
                    left = [own for own in plan.runs if _ended(own, folder, records) is None]
                    wanted = [own for own in left if not again or _taken(path, own).exists()]
                    for own in wanted:
                        _begun(path, own).unlink(missing_ok=True)
                    command = _command(path, folder, records, again)
                    for _ in range(min(jobs, len(wanted))):
                        started.append(_started(command, _log(logs, len(started)), jobs))
                    _watch(plan, left, folder, records, started, say)
            finally:
                for process in started:
                    process.terminate()
                    process.communicate()
        made = Made([], [])
        for planned in plan.runs:
            done = _ended(planned, folder, records)
            if done is not None:
                made.done.append(done)
            else:
                made.failed.append(Failed(planned, _why(path, planned, folder, started, logs)))
    return made


def _ended(planned: Planned, folder: Path, records: Path | None) -> Done | None:
    """What a run has come to; what is wrong with one is said by the process that takes it up."""
    try:
        return finished(planned, folder, records)
    except (OSError, ValueError):
        return None


def _why(path: Path, planned: Planned, folder: Path, started: Processes, logs: Path) -> str:
    """Why there is no result of a run, with where it lies and what its process has said."""
    begun, failed = _begun(path, planned), _failed(path, planned)
    by = begun.read_text(encoding="utf-8") if begun.exists() else ""
    number = next((n for n, own in enumerate(started) if str(own.pid) == by), 0)
    log = _log(logs, number)
    if failed.exists():
        why = failed.read_text(encoding="utf-8")
    elif begun.exists():
        why = f"its process ended {_how(started[number].returncode, log)}"
    else:
        why = f"no process was left to make it: one ended {_how(started[number].returncode, log)}"
    return f"{why} ({folder / planned.place}, {log})"


def _log(logs: Path, number: int) -> Path:
    """What a process has said; other commands in the same folder have theirs."""
    return logs / f"{os.getpid()}-{number}.log"


def _how(code: int, log: Path) -> str:
    """How a process ended, and its last words."""
    if code < 0:
        return f"by signal {-code}"
    said = [line for line in log.read_text(encoding="utf-8").splitlines() if line.strip()]
    return f"with exit code {code}{f', {said[-1].strip()!r}' if said else ''}"


def _begun(path: Path, planned: Planned) -> Path:
    """Has the number of the process that has taken up a run."""
    return path.with_name(f"{planned.place}.begun")


def _failed(path: Path, planned: Planned) -> Path:
    """Has the reason why a run failed."""
    return path.with_name(f"{planned.place}.failed")


def _taken(path: Path, planned: Planned) -> Path:
    """Is there if another command was making a run."""
    return path.with_name(f"{planned.place}.taken")


def _command(path: Path, folder: Path, records: Path | None, again: bool) -> list[str]:
    """What starts a process: `main`, with these arguments."""
    places = [str(path), str(folder), str(records or "")]
    return [sys.executable, "-m", __name__, *places, "again" if again else ""]


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
    # For a GPU one thread launches, and others would take the cores of those that do by waiting.
    threads = 1 if torch.cuda.is_available() else max((os.cpu_count() or 1) // jobs, 1)
    own = {"OMP_NUM_THREADS": str(threads)} | os.environ
    with log.open("wb") as file:
        # By what it reads, which is nothing, it knows that this process is still there.
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=file, stderr=subprocess.STDOUT, env=own
        )


def _watch(
    plan: Plan,
    left: list[Planned],
    folder: Path,
    records: Path | None,
    started: Processes,
    say: Callable[[str], None],
) -> None:
    """Tells of every run that ends, until all processes have."""
    waiting = list(left)
    while True:
        running = any(process.poll() is None for process in started)
        for planned in list(waiting):
            if _ended(planned, folder, records) is not None:
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


def main(path: Path, folder: Path, records: Path | None, again: bool) -> int:
    """One process: makes the runs that no other of this plan has begun. One that fails is left, by
    the others too, however it ended; the exit code tells of it, and the end of the log.

    Args:
        again: what another command makes has been left before, and is a failure now.
    """
    plan = _plan_of(json.loads(path.read_text(encoding="utf-8")))
    failures = []
    for planned in plan.runs:
        if not _mine(_begun(path, planned)):
            continue
        try:
            if finished(planned, folder, records) is None:
                take_up(plan, planned, folder, records)
        except Exception as error:
            if isinstance(error, TakenError) and not again:
                _taken(path, planned).touch()
                continue
            why = cause_of(error)
            failures.append(f"{planned.place}: {why}")
            write_text(_failed(path, planned), why)
            print(failures[-1], file=sys.stderr, flush=True)
    if failures:
        print(f"\n{failures[0]}", file=sys.stderr)
    return 2 if failures else 0


def _mine(begun: Path) -> bool:
    """Whether this process is the first to take up a run."""
    try:
        with begun.open("x", encoding="utf-8") as file:
            file.write(str(os.getpid()))
    except FileExistsError:
        return False
    return True


def _end_with_the_first() -> None:
    """Ends this process when the one that has started it is gone, however that ended."""

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    _end_with_the_first()
    _, of_plan, of_runs, of_records, looked = sys.argv
    records = Path(of_records) if of_records else None
    sys.exit(main(Path(of_plan), Path(of_runs), records, bool(looked)))
