"""`python -m longspan.bench.gpu`: measures, and writes the record; needs torch and Triton alone."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from . import ROWS, measure, tune
from .text import lines_of

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    asked = _parser().parse_args(arguments)
    try:
        if asked.tune:
            tune(asked.output / "tune.json", quick=asked.quick, budget=asked.budget, say=_say)
            return 0
        measure(
            asked.only,
            quick=asked.quick,
            peers=asked.peers,
            budget=asked.budget,
            path=asked.output / "bench.json",
            on_row=lambda row: _say(f"… {row.name}: {row.title}"),
            on_result=lambda result, total: _say("\n".join(lines_of(result, total))),
            say=_say,
        )
    except (ValueError, ImportError, OSError) as error:
        _say(f"Error: {error}")
        return 2
    _say(f"saved {asked.output / 'bench.json'}")
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m longspan.bench.gpu", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True, help="a folder for the record")
    parser.add_argument("--only", nargs="+", metavar="ROW", help=f"rows: {', '.join(ROWS)}")
    parser.add_argument("--quick", action="store_true", help="small inputs: does all of it run?")
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="longspan alone")
    parser.add_argument("--budget", type=float, help="seconds after which no row begins")
    parser.add_argument(
        "--tune", action="store_true", help="time launch options of the kernels instead"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
