from typing import Any

def instruction_sets() -> list[str]: ...
def forward(problem: dict[str, Any], threads: int, instructions: str) -> None: ...
def backward(
    problem: dict[str, Any],
    threads: int,
    instructions: str,
    join_samples: bool,
    join_heads: bool,
) -> None: ...
def entmax(
    x: int, p: int, rows: int, length: int, alphas: int, threads: int, instructions: str
) -> None: ...
def entmax_backward(
    p: int,
    g: int,
    dx: int,
    dalpha: int,
    rows: int,
    length: int,
    alphas: int,
    threads: int,
    instructions: str,
) -> None: ...
def release() -> None: ...
