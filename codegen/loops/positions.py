"""Cells that follow from where they are, as instructions: positions, and tests of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from gradof.codegen.fusion.access import Axes
from gradof.codegen.loops.ir import Level, Operand
from gradof.ir.attrs import Attr
from gradof.ir.core import Loc, Value
from gradof.ir.types import BOOL, I64, DType


class Scheduler(Protocol):
    """What `lower` has of a nest that it makes."""

    columns: frozenset[int]
    nest_order: list[int]

    def emit(
        self, op: str, args: tuple[Operand, ...], dtype: DType, *, level: Level | None = None,
        stage: int | None = None, hint: str | None = None, loc: Loc | None = None,
        attrs: Mapping[str, Attr] | None = None,
    ) -> str:  # fmt: skip
        """Add an instruction; its name."""
        ...


def within(made: Scheduler, value: Value, axes: Axes) -> str:
    """Whether a position is in a range; see `within` of the registry."""
    assert value.node is not None
    dim, start, stop = (value.node.attrs[k] for k in ("dim", "start", "stop"))
    shape = value.shape
    assert isinstance(dim, int) and isinstance(start, int) and isinstance(stop, int) and shape
    if axes[dim] is None:  # of the one position that there is
        return made.emit("cast", (start <= 0 < stop,), BOOL, attrs={"dtype": BOOL})
    at, level = position(made, axes[dim])
    found = [
        made.emit(op, (at, n), BOOL, level=level)
        for op, n, bound in (("ge", start, 0), ("lt", stop, shape[dim])) if n != bound
    ]  # fmt: skip
    if not found:
        return made.emit("cast", (True,), BOOL, attrs={"dtype": BOOL})
    return found[0] if len(found) == 1 else made.emit("logical_and", tuple(found), BOOL)


def numbered(made: Scheduler, value: Value, axes: Axes) -> str:
    """The number of an element; see `position` of the registry. The last dim comes last."""
    shape = value.shape
    assert shape is not None
    name, stride = "", 1
    for axis, size in zip(reversed(axes), reversed(shape), strict=True):
        if axis is not None:
            term, level = position(made, axis)
            if stride != 1:
                term = made.emit("mul", (term, stride), I64, level=level)
            name = made.emit("add", (term, name), I64) if name else term
        stride *= size
    return name or made.emit("cast", (0,), I64, attrs={"dtype": I64})


def position(made: Scheduler, axis: int | None) -> tuple[str, Level]:
    """The position along an axis."""
    assert axis is not None
    level: Level = "cell" if axis in made.columns else "row"
    attrs: dict[str, Attr] = {"axis": made.nest_order.index(axis)}
    return made.emit("index", (), I64, level=level, stage=0, attrs=attrs), level
