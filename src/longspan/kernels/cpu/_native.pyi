"""The compiled part of the `cpu` backend; absent where no C++ compiler was found."""

def instruction_sets() -> list[str]:
    """The vector instruction sets that this machine can run, best first."""
