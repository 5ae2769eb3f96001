"""Runs problems: makes the contenders of a group, lets them take turns, asks for figures."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch

from .contenders import Contender, Unavailable, Work
from .machine import load, setting
from .memory import peaks
from .problem import Problem, Results
from .problems import PROBLEMS
from .records import Outcome, Report, Sample
from .timing import Effort, interleaved

__all__ = ["QUICK", "measure", "run", "using_threads"]

QUICK = Effort(rounds=2, least=1, seconds=0.5)

Told = Callable[[str], None]


def run(
    names: Iterable[str] | None = None,
    *,
    threads: int = 1,
    quick: bool = False,
    effort: Effort | None = None,
    on_problem: Told = lambda title: None,
    on_turn: Told = lambda name: None,
) -> Report:
    """Runs problems by name, all when None, and returns what was found.

    Args:
        names: of `PROBLEMS`.
        threads: of torch; one is timed by its CPU time, several by the clock on the wall.
        quick: small sizes and few rounds, to see that all of it works; figures mean little then.
        effort: how long to go on with each group of contenders.
        on_problem: told each problem's title as it begins.
        on_turn: told each contender's name before each of its turns.
    """
    chosen = list(PROBLEMS) if names is None else list(names)
    for name in chosen:
        if name not in PROBLEMS:
            raise ValueError(f"there is no problem {name!r}: choose one of {', '.join(PROBLEMS)}")
    effort = effort or (QUICK if quick else Effort())
    report = Report(setting=setting(threads) | {"quick": quick})
    with using_threads(threads):
        for name in chosen:
            problem = PROBLEMS[name](quick)
            on_problem(problem.title)
            outcomes = list(measure(problem, quick, threads, effort, on_turn))
            report.outcomes.extend(outcomes)
            report.figures.extend(problem.judge(Results(name, outcomes)))
    report.setting["load after"] = load()
    return report


def measure(
    problem: Problem, quick: bool, threads: int, effort: Effort, on_turn: Told
) -> Iterator[Outcome]:
    """What each contender of a problem does, group after group."""
    if problem.memory:
        on_turn("memory")
        yield from peaks(problem.name, problem.contenders, quick)
        return
    wall = problem.wall or threads > 1
    for group in dict.fromkeys(contender.group for contender in problem.contenders):
        members = [one for one in problem.contenders if one.group == group]
        yield from _group(problem.name, members, threads, effort, wall, on_turn)
        # A group's tensors are gone before the next one's are made.
        gc.collect()


def _group(
    problem: str,
    members: list[Contender],
    threads: int,
    effort: Effort,
    wall: bool,
    on_turn: Told,
) -> Iterator[Outcome]:
    works: dict[str, Work] = {}
    missing: dict[str, str] = {}
    calls: dict[str, Callable[[], None]] = {}
    for one in members:
        on_turn(one.name)
        try:
            work = works[one.name] = one.make(one.size)
        except Unavailable as error:
            missing[one.name] = str(error)
            continue
        if one.forward:
            calls[f"{one.name}|forward"] = work.without_gradients
        if one.both:
            calls[f"{one.name}|both"] = work.with_gradients()
    own = {one.name: one.threads or threads for one in members}

    def next_turn(call: str) -> None:
        name = call.rsplit("|", 1)[0]
        on_turn(name)
        torch.set_num_threads(own[name])

    samples = interleaved(calls, effort, wall=wall, on_turn=next_turn)
    torch.set_num_threads(threads)
    for one in members:
        if one.name in missing:
            yield Outcome(
                problem=problem,
                name=one.name,
                length=one.size.length,
                missing=missing[one.name],
            )
            continue
        work = works[one.name]
        forward = samples.get(f"{one.name}|forward")
        yield Outcome(
            problem=problem,
            name=one.name,
            length=one.size.length,
            forward=None if forward is None else _each(forward, work.repeats),
            both=samples.get(f"{one.name}|both"),
            pairs=work.pairs,
            tiles=work.tiles,
            flops=work.flops,
        )


def _each(sample: Sample, repeats: int) -> Sample:
    median, fastest, slowest = (seconds / repeats for seconds in sample[:3])
    return Sample(median, fastest, slowest, sample.rounds)


@contextmanager
def using_threads(count: int) -> Iterator[None]:
    """So many threads of torch; afterwards as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
