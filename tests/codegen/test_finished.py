"""Sums over rows that their kernel writes in the dtype and shape they are wanted in."""

from __future__ import annotations

import pytest

from gradof.codegen.gpu.execute import emit_torch
from gradof.codegen.loopnest import LoopNest
from gradof.ir.parser import parse_graph
from gradof.ir.types import BF16, F32, DType

SUM = """graph f(%x : bf16[4,6], %w : bf16[4,6]):
 %a : f32[4,6] = cast[dtype=f32](%x)
 %b : f32[4,6] = cast[dtype=f32](%w)
 %p : f32[4,6] = mul(%a, %b)
 %s : f32[1,6] = sum[dims=(0,), keepdims=True](%p)
"""


class Kernel:
    """Of which only the nest is looked at."""

    source = ""

    def __init__(self, nest: LoopNest, device: str) -> None:
        self.nest = nest


@pytest.mark.parametrize(("rest", "dtype", "shape", "left"), [
    (" %r : f32[6] = reshape[shape=(6,)](%s)\n %c : bf16[6] = cast[dtype=bf16](%r)\n"
     " return (%c)", BF16, (6,), ""),
    (" %c : bf16[1,6] = cast[dtype=bf16](%s)\n %r : bf16[6] = reshape[shape=(6,)](%c)\n"
     " return (%r)", BF16, (6,), ""),
    (" %c : bf16[1,6] = cast[dtype=bf16](%s)\n return (%s, %c)", F32, (1, 6), "bfloat16"),
    (" %c : f64[1,6] = cast[dtype=f64](%s)\n return (%c)", F32, (1, 6), "float64"),
    (" %r : f32[2,3] = reshape[shape=(2, 3)](%s)\n return (%r)", F32, (1, 6), "reshape"),
])  # fmt: skip
def test_a_fold_writes_what_is_wanted_of_it_alone(
    rest: str, dtype: DType, shape: tuple[int, ...], left: str
) -> None:
    made = emit_torch(parse_graph(SUM + rest), make_kernel=Kernel)
    (kernel,) = made.kernels
    (output,) = kernel.nest.outputs
    assert (output.dtype, output.shape) == (dtype, shape)
    text = made.source.split('"""')[2]
    assert left in text and ("=" in text.split("\n", 2)[2]) == bool(left)
