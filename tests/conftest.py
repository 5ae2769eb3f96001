"""What every test shares: one seed, poisoned memory, no chance, no GPU tests without a GPU."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from importlib.util import find_spec

# Before NumPy is loaded: Triton's interpreter multiplies small matrices, and threads only wait.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
import torch
from hypothesis import settings

settings.register_profile("longspan", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("longspan")

# Triton decides when it is imported whether it interprets kernels; where there is no GPU, tests of
# its kernels want that.
if find_spec("triton") is not None and not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
    import triton.language  # noqa: F401

    del os.environ["TRITON_INTERPRET"]

# A shell starts what it runs in the background deaf to Ctrl-C, and so would be all processes that
# tests start and end by it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Some operators have no deterministic form on a GPU, and say so there once poisoning is on.
NOT_DETERMINISTIC = "ignore:.*does not have a deterministic implementation:UserWarning"

# PyTorch says so of its own thread for gradients, once.
NO_CONTEXT = "ignore:Attempting to run cuBLAS, but there was no current CUDA context:UserWarning"

# PyTorch says so of parts of its own: of what compiling imports and looks at, and of every profile.
OF_PARTS = (
    "ignore:.torch.jit.script:DeprecationWarning",
    "ignore:The .grad attribute of a Tensor that is not a leaf Tensor:UserWarning",
    "ignore:.*Profiler clears events at the end of each cycle:UserWarning",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("gpu") is None:
            continue
        for expected in (NOT_DETERMINISTIC, NO_CONTEXT, *OF_PARTS):
            item.add_marker(pytest.mark.filterwarnings(expected))
        if not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Tests are small: threads only wait for each other. A test of threads sets their number."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _poisoned(request: pytest.FixtureRequest) -> Iterator[None]:
    """Memory that nobody wrote holds NaN: `torch.empty` and all its kin.

    torch does so itself in its deterministic mode. Integers are the largest there is, bools True.
    """
    before = torch.are_deterministic_algorithms_enabled()
    only_warns = torch.is_deterministic_algorithms_warn_only_enabled()
    filled = torch.utils.deterministic.fill_uninitialized_memory
    on_gpu = request.node.get_closest_marker("gpu") is not None
    torch.use_deterministic_algorithms(True, warn_only=on_gpu)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(before, warn_only=only_warns)
    torch.utils.deterministic.fill_uninitialized_memory = filled


@pytest.fixture
def any_order(_poisoned: None) -> None:
    """Takes torch's deterministic mode off, and the poison with it.

    For tests of whether our own code gives the same bits without that mode.
    """
    torch.use_deterministic_algorithms(False)
