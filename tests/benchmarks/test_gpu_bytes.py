"""Bytes and launches of the GPU benchmark's workloads, told without a GPU: a golden."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'gradof[torch]'")
pytest.importorskip("triton", reason="triton is not installed: pip install 'gradof[triton]'")


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_bytes_over_the_least(module: Any, golden: Callable[[str], None], dtype: str) -> None:
    """A change that adds a pass over memory, or a launch, shows here."""
    found, w = module("gpu_bytes"), module("gpu_workloads")
    lines = [found.HEAD]
    for work in w.WORKLOADS:
        if dtype in work.dtypes:
            size = work.sizes[0]
            lines.append(
                found.row(work, dtype, size, *found.measure(work, size, w.DTYPES[dtype]))
            )
    golden("\n".join(lines) + "\n")


def test_a_dropout_that_kernels_draw(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found, w = module("gpu_bytes"), module("gpu_workloads")
    work = w.by_name("bias-dropout-residual-layernorm")
    monkeypatch.setenv("GRADOF_DROPOUT", "kernel")
    f, df, least = found.measure(work, work.sizes[0], w.DTYPES["bf16"])
    assert f.nbytes < 1.01 * least["forward"] and df.nbytes < 1.01 * least["backward"]
    assert [len(t.launches) for t in (f, df)] == [3, 1]  # two of them are a number each
    (kernel,) = (row for row in module("gpu_compiled").rows("dropout", "bf16", 1) if row[3] == "f")
    *_, spilled, loads, stores = kernel
    assert spilled == "0" and loads.startswith("16") and stores.startswith("16")


def test_a_kernel_is_compiled_as_a_launch_compiles_it(module: Any) -> None:
    ((*_, name, warps, _, spilled, loads, stores),) = (
        row for row in module("gpu_compiled").rows("softmax", "bf16", 1) if row[3] == "f"
    )
    assert name == "softmax_kernel" and int(warps) >= 2 and spilled == "0"
    assert loads == stores == "16"
