"""Which function computes an instruction of a tile, and whether it may be told where to write.

    calls = Calls(values, torch=True)
    calls.lowering(i).text              # "np.add", or a function of torch
    calls.may_have_out(i)               # whether that takes out=
    calls.used_torch                    # whether any was torch's
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradof.codegen.cpu.lowering import Lowering, lowering
from gradof.codegen.cpu.tile_torch import (
    BROADCAST,
    SCALAR_LOOPS,
    extreme,
    tile_function,
    writing,
)
from gradof.codegen.cpu.tile_values import Values
from gradof.codegen.loopnest import Instr
from gradof.ir.types import BOOL, F32, F64, I64
from gradof.ops.registry import get_op

# Ops whose own lowering makes arrays on the way: statements that write over `y`. Where exp
# overflows, a sigmoid is 0, as it is in native code.
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
        self.used_torch = False

    def lowering(self, i: Instr) -> Lowering:
        """The call that computes an elementwise op."""
        record = get_op(i.op)
        if not self.is_torch(i):
            return lowering(record, "numpy")
        self.used_torch = True
        function = writing(i.op) if self.is_faster(i) else tile_function(record)
        return Lowering("function", f"torch_{i.op}", function)

    def extreme(self, i: Instr) -> Callable[[Any], Any] | None:
        """Torch's function of a `reduce` to the largest or smallest; None: numpy's is called."""
        if not self.torch or i.dtype not in (F32, F64):
            return None
        self.used_torch = True
        return extreme(str(i.attrs["kind"]))

    def is_torch(self, i: Instr) -> bool:
        """Whether it is computed by torch's function."""
        if not self.torch or i.op in STEPS:
            return False
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
