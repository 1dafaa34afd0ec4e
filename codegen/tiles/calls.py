"""Which function computes an instruction of a tile, and whether it may be told where to write.

    calls = Calls(values, torch=True)
    calls.lowering(i).text              # "np.add", or a function of torch
    calls.may_have_out(i)               # whether that takes out=
    calls.writing(i)                    # torch.add, of tensors, if that is to compute it
    calls.of_rows(i)                    # ("torch_amax", its function), if that is to reduce rows
    calls.of_torch                      # the names of those that were torch's
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradof.codegen.loops.ir import Instr, Operand
from gradof.codegen.lowering.numpy import Lowering, lowering
from gradof.codegen.tiles.torch_calls import (
    BROADCAST,
    EXTREMES,
    ONE_PASS,
    SCALAR_LOOPS,
    extreme,
    of_torch,
    row_total,
    tile_function,
    writing,
)
from gradof.codegen.tiles.values import Values
from gradof.ir.types import BOOL, F32, F64, I64
from gradof.ops.registry import get_op

# Ops whose own lowering makes arrays on the way: statements that write over `y`, where torch is not
# there to do it in one pass. Where exp overflows, a sigmoid is 0, as it is in native code.
STEPS = {
    "rsqrt": ("np.sqrt({x}, out={y})", "np.true_divide(1, {y}, out={y})"),
    "sigmoid": (
        "np.negative({x}, out={y})", "np.exp({y}, out={y})", "np.add({y}, 1, out={y})",
        "np.true_divide(1, {y}, out={y})",
    ),
}  # fmt: skip


class Calls:
    """What the instructions whose memory is `values` are computed by; `torch`: also by torch."""

    def __init__(self, values: Values, torch: bool) -> None:
        self.values = values
        self.torch = torch
        self.of_torch: set[str] = set()

    def lowering(self, i: Instr) -> Lowering:
        """The call that computes an elementwise op of arrays."""
        record = get_op(i.op)
        if not self.is_torch(i):
            return lowering(record, "numpy")
        self.of_torch.add(i.op)
        return Lowering("function", f"torch_{i.op}", tile_function(record))

    def writing(self, i: Instr) -> Callable[..., Any] | None:
        """Torch's function of its operands as tensors, which writes where it is told to."""
        if i.attrs or not self.is_torch(i) or not self.may_have_out(i):
            return None
        self.of_torch.add(i.op)
        return writing(i.op)

    def fused(self, i: Instr) -> tuple[str, Callable[..., Any], Sequence[Operand], str]:
        """Torch's function of `addcmul` or `addcdiv`, its name, operands, and keyword argument."""
        self.of_torch.add(i.op)
        c, p, q = i.args
        by = i.attrs["by"]
        assert isinstance(by, float)
        for factor, cells in ((p, q), (q, p)) if i.op == "addcmul" else ():
            if not isinstance(factor, str):
                return "torch_add", of_torch("add"), (c, cells), f", alpha={by * factor!r}"
        return f"torch_{i.op}", of_torch(i.op), (c, p, q), f", value={by!r}" if by != 1 else ""

    def of_rows(self, i: Instr) -> tuple[str, Callable[[Any], Any]] | None:
        """Torch's function of a tensor's rows that reduces them; None: numpy's is called."""
        nest = self.values.nest
        if not self.torch or i.dtype not in (F32, F64) or i.op not in ("total", "reduce"):
            return None
        columns = set(range(nest.rows, len(nest.sizes)))
        if len(columns) != 1 or columns - self.values.varies[str(i.args[0])]:
            return None
        kind = str(i.attrs["kind"])
        if i.op == "total" and nest.rows:  # else columns may be cut: Note [Sums of tiles]
            self.of_torch.add(i.op)
            return "torch_total", row_total()
        if kind in EXTREMES:
            self.of_torch.add(kind)
            return f"torch_a{kind}", extreme(kind)
        return None

    def is_torch(self, i: Instr) -> bool:
        """Whether it is computed by torch's function."""
        if not self.torch:
            return False
        if i.op in ONE_PASS:
            return i.level == "cell" and i.dtype in (F32, F64) and self.same_dtype(i)
        return get_op(i.op).torch is not None or self.is_faster(i)

    def is_faster(self, i: Instr) -> bool:
        """Whether torch has faster loops than numpy for it: what is broadcast, and some others."""
        if i.level != "cell" or i.dtype not in (F32, F64):
            return False
        if i.dtype in SCALAR_LOOPS.get(i.op, ()):
            return self.same_dtype(i)
        if i.op not in BROADCAST:
            return False
        varies = self.values.varies
        if not self.same_dtype(i):
            return False
        return any(varies[str(a)] and varies[str(a)] != varies[i.name] for a in i.args)

    def may_have_out(self, i: Instr) -> bool:
        """Whether its call may be told where to write."""
        if self.is_torch(i):
            return i.level == "cell" and self.same_dtype(i)
        return lowering(get_op(i.op), "numpy").writes == "in place"

    def same_dtype(self, i: Instr) -> bool:
        """Whether its operands are values of its own dtype."""
        made = self.values.made  # without what is within a `pick`
        return all(a in made and made[str(a)].dtype == i.dtype for a in i.args)

    def is_select(self, i: Instr) -> bool:
        """Whether it is a `where` over cells that `chosen` computes."""
        if i.op != "where" or i.level != "cell" or i.dtype not in (F32, F64, I64):
            return False
        made = self.values.made
        dtypes = [made[a].dtype for a in i.args if isinstance(a, str)]
        is_mask = isinstance(i.args[0], str) and dtypes[0] == BOOL
        return is_mask and all(d == i.dtype for d in dtypes[1:])

    def number(self, i: Instr) -> str | None:
        """The factor of a product with an input's cells that is one number for the whole kernel.

        It is 1 where the caller asks for the gradients of a sum; then the product is the input.
        """
        if i.op != "mul" or i.level != "cell" or not self.same_dtype(i):
            return None
        made, varies = self.values.made, self.values.varies
        for number, cells in (i.args, i.args[::-1]):
            one, other = made[str(number)], made[str(cells)]
            if one.level == "once" and other.op == "load":
                if varies[other.name] == varies[i.name] and not varies[one.name]:
                    return one.name
        return None
