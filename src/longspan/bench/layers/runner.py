"""Runs the problems of one device, and keeps what there is after each."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from pathlib import Path

import torch

from ..gpu.runner import need_gpu
from ..gpu.runner import setting as gpu_setting
from ..gpu.timing import Failure
from ..machine import load, setting
from ..problem import Problem, Results
from ..records import Outcome, Report, save
from ..runner import QUICK, measure, using_threads
from ..timing import Effort
from .problems import PROBLEMS, Device

__all__ = ["chosen", "merged", "run"]

# Steps of an encoder take from seconds to minutes on a CPU: the longest have three rounds. On a GPU
# they are short.
ON_CPU = Effort(least=6, long=10.0)
ON_GPU = Effort(rounds=25, least=10, seconds=12.0)


def chosen(names: Iterable[str] | None, device: Device) -> list[str]:
    """Problems of a device by name; all of them when None."""
    own = [name for name, entrant in PROBLEMS.items() if entrant.device == device]
    asked = own if names is None else list(names)
    for name in asked:
        if name not in own:
            raise ValueError(
                f"there is no problem {name!r} for {device}: choose one of {', '.join(own)}"
            )
    return asked


def run(
    names: Iterable[str] | None = None,
    *,
    device: Device = "cpu",
    threads: int = 2,
    layers: int = 12,
    quick: bool = False,
    effort: Effort | None = None,
    path: Path | None = None,
    on_problem: Callable[[str], None] = lambda title: None,
    on_turn: Callable[[str], None] = lambda name: None,
) -> Report:
    """Runs problems by name, all of a device when None, and returns what was found.

    Args:
        names: of `PROBLEMS`.
        device: where.
        threads: of torch, on a CPU.
        layers: of the encoders.
        quick: small sizes and few rounds, to see that all of it works.
        effort: how long to go on with each problem.
        path: of the record, which is written anew after every problem.
        on_problem: told each problem's title as it begins.
        on_turn: told each contender's name before each of its turns.
    """
    wanted = chosen(names, device)
    if device == "cuda":
        need_gpu()
        at = gpu_setting(torch.cuda.get_device_name(), quick)
        at["compiled"] = "each layer by torch.compile, and the step replayed as a CUDA graph"
    else:
        at = setting(threads) | {"dtype": "float32"}
    effort = effort or (QUICK if quick else ON_GPU if device == "cuda" else ON_CPU)
    report = Report(setting={"quick": quick, "devices": {device: at | {"layers": layers}}})
    with using_threads(threads):
        for name in wanted:
            # What was compiled for one length, or for another model, is not for this one.
            torch.compiler.reset()
            problem = PROBLEMS[name].make(quick, layers)
            on_problem(problem.title)
            report.outcomes.extend(_outcomes(problem, quick, threads, effort, on_turn))
            own = [one for one in report.outcomes if one.problem == problem.name]
            report.figures.extend(problem.judge(Results(problem.name, own)))
            del problem
            gc.collect()
            if device == "cuda":
                torch.cuda.empty_cache()
            report.setting["devices"][device]["load after"] = load()
            if path is not None:
                save(report, path)
    return report


def _outcomes(
    problem: Problem, quick: bool, threads: int, effort: Effort, on_turn: Callable[[str], None]
) -> list[Outcome]:
    """What the contenders did; the others of a run can still be timed when one of them fails."""
    try:
        return list(measure(problem, quick, threads, effort, on_turn))
    except Exception as error:
        why = Failure.of(error).reason
        return [
            Outcome(problem=problem.name, name=one.name, length=one.size.length, missing=why)
            for one in problem.contenders
        ]


def merged(reports: Iterable[Report]) -> Report:
    """Several runs as one: of a problem that ran twice, the later is taken.

    Raises:
        ValueError: for two machines of one kind.
    """
    reports = list(reports)
    devices: dict[str, dict[str, object]] = {}
    for report in reports:
        for device, at in report.setting["devices"].items():
            machine = "card" if device == "cuda" else "processor"
            if device in devices and devices[device][machine] != at[machine]:
                raise ValueError(
                    f"reports are of different machines: {devices[device][machine]} and "
                    f"{at[machine]}"
                )
            devices[device] = at
    last = {outcome.problem: report for report in reports for outcome in report.outcomes}
    order = [name for name in PROBLEMS if name in last]
    quick = any(report.setting.get("quick") for report in reports)
    return Report(
        setting={"quick": quick, "devices": devices},
        outcomes=[o for name in order for o in last[name].outcomes if o.problem == name],
        figures=[f for name in order for f in last[name].figures if f.problem == name],
    )
