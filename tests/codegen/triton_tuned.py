"""Every tile that could be chosen, in triton's interpreter, by a timer that says what it is told.

`python -m tests.codegen.triton_tuned` prints {case: [tile, ...]}, the tiles that a nest was run
with; each made the numbers of whole numpy arrays, and the one named fastest was chosen.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import astuple
from typing import Any

import numpy as np
import torch

from gradof.codegen.loops.interpret import run_nest
from gradof.codegen.triton import kernel as kernel_module
from gradof.codegen.triton import tune
from gradof.codegen.triton.blocks import Blocks
from gradof.codegen.triton.kernel import TritonKernel
from gradof.codegen.triton.planned import Planned
from tests import sample
from tests.codegen.triton_cases import arrays, nests

CASES = {"rms norm": 1 << 14, "softmax": 8, "folds": 1 << 14, "three axes": 8, "exp f32": 1 << 14}


def tiles(name: str, most: int) -> list[tuple[int, ...]]:
    """The tiles a nest was timed with; the last is the fastest, and must be the one kept."""
    (nest,) = nests(name)
    given = arrays(nest, strided=False)
    tensors = [torch.from_numpy(a) for a in given]
    want = run_nest(nest, given)
    timed: list[Blocks] = []
    real = tune.candidates

    def candidates(
        default: Blocks, form: str, n_columns: int, most: int, folds: bool
    ) -> tuple[Blocks, ...]:
        found = real(default, form, 1 << 20, 1 << 14, folds)  # as if rows were long
        timed.extend(found)
        return found

    def seconds(launch: Callable[[], Any], device: Any) -> float:
        for a, b in zip(launch(), want, strict=True):
            whole = 64 * np.finfo(b.dtype).eps * np.nanmax(np.abs(b[np.isfinite(b)]), initial=0)
            np.testing.assert_allclose(a.numpy(), b, rtol=1e-5, atol=whole)
        seconds.calls += 1  # type: ignore[attr-defined]
        return float(-seconds.calls)  # type: ignore[attr-defined]

    seconds.calls = 0  # type: ignore[attr-defined]
    tune.applies = lambda device, positions: True
    tune.key = lambda *parts: f"tile-{name}"
    tune.candidates, tune.seconds_of = candidates, seconds
    vars(kernel_module)["multiprocessors"] = lambda device: 1  # rows are not few
    kernel = TritonKernel(nest, most)
    try:
        planned = kernel._plan(tensors)
    finally:
        tune.candidates = real
    assert isinstance(planned, Planned)
    assert seconds.calls == len(timed)  # type: ignore[attr-defined]
    last = timed[-1]
    chosen = planned.constants
    tile = (chosen["BR"], chosen["BC"], planned.arguments[-1], chosen["num_warps"])
    assert tile == astuple(last)
    return [astuple(b) for b in timed]


def main() -> None:
    """Run all cases."""
    np.seterr(all="ignore")
    print(json.dumps({name: tiles(name, most) for name, most in sample.part(CASES.items())}))


if __name__ == "__main__":
    main()
