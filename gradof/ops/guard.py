"""`Guard`: the trace holds only where a value is what it was.

    %c : bool[] = gt(%total, %0)  # model.py:7
    Guard[value=True, number=0](%c)  # model.py:7        the branch that was taken

Python has read the value, to branch on it or as the size of a result. Guards stand in the
recorded graph alone; `passes.guards` splits it into the ops that decide and the path they decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gradof.errors import InferenceError
from gradof.ir.attrs import Attr
from gradof.ir.types import Type
from gradof.ops.families import tensor
from gradof.ops.registry import Family, op

Number = bool | int | float | complex


class GuardFailed(Exception):  # a signal between a prefix and its caller
    """Guard `number` of a prefix saw `value`, and not what the trace had."""

    def __init__(self, number: int, value: Number) -> None:
        super().__init__(number, value)
        self.number = number
        self.value = value


def same_number(a: Number, b: Number) -> bool:
    """Equal, two nans included; 0.0 and -0.0 differ, as Python code may tell them apart."""
    return repr(a) == repr(b)


def check_guard(x: Any, *, value: Number, number: int) -> tuple[()]:
    """Raise GuardFailed where an array or tensor of one element is not `value`."""
    found: Number = x.item()
    if not same_number(found, value):
        raise GuardFailed(number, found)
    return ()


def _infer(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    type_ = tensor(inputs[0])
    if type_.shape is None or type_.size != 1:
        raise InferenceError(f"a Guard reads one number, not {type_}")
    if not isinstance(attrs["value"], (bool, int, float, complex)):
        raise InferenceError(f"a Guard expects a number, not {attrs['value']!r}")
    return ()


op("Guard(x; value, number) -> ", family=Family(_infer), numpy=check_guard, vjp={"x": None},
   traits={"effect"}, doc="Raises where the value differs from the one that was traced.")
