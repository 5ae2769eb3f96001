"""`python -m longspan.bench.layers`: measures, and writes the record; needs torch and transformers,
and Triton on a GPU.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from . import PROBLEMS, run
from .markdown import save_figures

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    asked = _parser().parse_args(arguments)
    start = time.perf_counter()

    def say(text: str) -> None:
        print(f"[{time.perf_counter() - start:.0f} s] {text}", file=sys.stderr, flush=True)

    record = asked.output / "bench.json"
    try:
        report = run(
            asked.only,
            device=asked.device,
            threads=asked.threads,
            layers=asked.layers,
            quick=asked.quick,
            path=record,
            on_problem=lambda title: say(f"… {title}"),
        )
    except (ValueError, ImportError, OSError) as error:
        say(f"Error: {error}")
        return 2
    say(f"saved {record} and {save_figures(report, asked.output)}")
    print((asked.output / "figures.md").read_text(encoding="utf-8"), file=sys.stderr)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m longspan.bench.layers", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True, help="a folder for the record")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where it runs")
    parser.add_argument("--only", nargs="+", metavar="PROBLEM", help=", ".join(PROBLEMS))
    parser.add_argument("--threads", type=int, default=2, help="of torch, on a CPU")
    parser.add_argument("--layers", type=int, default=12, help="of the encoders")
    parser.add_argument("--quick", action="store_true", help="small inputs: does all of it run?")
    return parser


if __name__ == "__main__":
    sys.exit(main())
