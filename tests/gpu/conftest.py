"""Where the tests of this folder run: on a CUDA device, or on the CPU in triton's interpreter.

    PYTHONPATH=. python -m pytest -m gpu
    GRADOF_BACKEND=triton TRITON_INTERPRET=1 python -m pytest tests/gpu

The second runs those that ask for `device`; `tests/runtime/test_gpu_interpreted.py` is part of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture
def device() -> Iterator[str]:
    """The device of the tests: "cuda" where there is one, else "cpu", and the interpreter."""
    import torch

    torch.manual_seed(0)
    if torch.cuda.is_available():
        yield "cuda"
        torch.cuda.synchronize()  # what a kernel did wrong is this test's
    else:
        assert os.environ["TRITON_INTERPRET"] == "1"
        yield "cpu"
