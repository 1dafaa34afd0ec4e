"""Every op of torch's table on a device: values, first and second gradients, judged by float64."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

from gradof.testing.coverage import cover_named, op_names
from gradof.testing.coverage_page import REASONS

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]  # the table's own
pytest.importorskip("expecttest", reason="torch's table of ops needs expecttest")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    # reading the table takes seconds, for nothing where all of it is skipped
    runs = torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1"
    metafunc.parametrize("name", op_names() if runs else ["every op"])


@pytest.fixture(autouse=True)
def full_precision() -> Iterator[None]:
    """cuDNN multiplies float32 in TF32 by default, in another order in eager's convolutions."""
    with torch.backends.cudnn.flags(allow_tf32=False):
        yield


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_op(name: str, dtype: str, device: str) -> None:
    row = cover_named(name, dtype, limit=8 if device == "cuda" else 2, device=device)
    problems = [text for _, text in (*row.errors, *row.wrong)]
    if name in REASONS:
        assert not row.wrong, row.wrong[:3]
    else:
        assert not problems, "\n".join(problems[:5])
