"""What an op costs per element, beside reading and writing its arrays.

>>> cost_of("add"), cost_of("div"), cost_of("tanh"), is_expensive("tanh")
(1, 2, 20, True)

The unit is an addition in a loop over vectors. Each op's statement says its class, which is CHEAP
unless said otherwise; who fuses, saves, computes again and shares work out to threads asks here.
Measured on AVX-512, nanoseconds per float32 in cache: an addition 0.1, a square root 0.4, functions
of libmvec 0.4 to 2, those of scipy, one number after another, 4 to 5000.
"""

from __future__ import annotations

from gradof.ir.opinfo import OPS
from gradof.ops.registry import Op

CHEAP = 1  # an instruction, or a few that are as fast
DIVISION = 2  # a quotient or a root, of which a processor computes few at a time
CALL = 20  # a function: tens of instructions, or a call that saves the registers around itself


def cost_of(kind: str) -> int:
    """What one element of an op costs; CHEAP for instructions that are no op."""
    record = OPS.get(kind)
    return record.cost if isinstance(record, Op) else CHEAP


def is_expensive(kind: str) -> bool:
    """Whether an op costs as much as a function."""
    return cost_of(kind) >= CALL
