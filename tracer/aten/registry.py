"""Adaptors: how one call of an aten op becomes IR.

    @aten("addmv.default")
    def addmv(c: Call, x: Expr, a: Expr, v: Expr, *, beta: Number = 1, alpha: Number = 1) -> Expr:
        return ...

An adaptor gets the call and the op's arguments: tensors as `Expr`, lists of tensors as lists of
`Expr`, everything else as torch passed it. It returns one `Expr` per result, or None for a result
that the IR does not have (using it later is an UnsupportedOpError). `c.type(i)` is the IR type of
the real result `i`, which the recorder compares with what was emitted.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from gradof.ir.attrs import Dense
from gradof.ir.types import BOOL, C128, F64, I64, DType, TensorType
from gradof.ops.expr import Emitter, Expr, F, Number
from gradof.tracer.aten.types import from_torch_dtype, type_of

Operand = Expr | Number
Results = Expr | None | Sequence[Expr | None]
Adaptor = Callable[..., Results]
AdaptorT = TypeVar("AdaptorT", bound=Adaptor)

ADAPTORS: dict[str, Adaptor] = {}
_NUMBERS: dict[type, DType] = {bool: BOOL, int: I64, float: F64, complex: C128}
RANDOM: set[str] = set()


def aten(*names: str, random: bool = False) -> Callable[[AdaptorT], AdaptorT]:
    """Register an adaptor for overloads such as "add.Tensor"."""

    def register(adaptor: AdaptorT) -> AdaptorT:
        taken = _of_numbers(adaptor) if _needs_a_tensor(adaptor) else adaptor
        for name in names:
            assert name not in ADAPTORS, f"aten.{name} has two adaptors"
            ADAPTORS[name] = taken
            if random:
                RANDOM.add(name)
        return adaptor

    return register


def _needs_a_tensor(adaptor: Adaptor) -> bool:
    """Whether an adaptor's first operand is no number."""
    operands = list(inspect.signature(adaptor).parameters.values())[1:2]
    return bool(operands) and operands[0].annotation in (Expr, "Expr")


def _of_numbers(adaptor: Adaptor) -> Adaptor:
    """The adaptor, for a number, too: within vmap torch casts and reshapes Python's numbers."""

    @functools.wraps(adaptor)
    def run(c: Call, *args: Any, **kwargs: Any) -> Results:
        if args and not isinstance(args[0], Expr) and type(args[0]) in _NUMBERS:
            number = TensorType(_NUMBERS[type(args[0])], (), c.type().device)
            args = (c.full(args[0], number), *args[1:])
        return adaptor(c, *args, **kwargs)

    return run


class Call:
    """One call of an aten op: its real arguments and results, and where to emit."""

    __slots__ = ("args", "emitter", "func", "kwargs", "results")

    def __init__(
        self,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        results: Sequence[torch.Tensor],
        emitter: Emitter,
    ) -> None:
        self.func = func
        self.args = args
        self.kwargs = kwargs
        self.results = results
        self.emitter = emitter

    def type(self, index: int = 0) -> TensorType:
        """The IR type of real result `index`."""
        return type_of(self.results[index])

    def constant(self, value: Dense) -> Expr:
        """A dense constant."""
        return self.emitter.wrap(self.emitter.body.constant(value))

    def full(self, value: Number, like: TensorType | None = None) -> Expr:
        """A tensor of one value, of the type of the first result unless `like` is given."""
        like = like or self.type()
        number = scalar_for(value, like)
        return F.full.with_emitter(self.emitter)(
            dtype=like.dtype, shape=like.shape, device=like.device, value=number
        )

    def common_dtype(self) -> DType:
        """torch's promoted dtype of the operands (Python scalars and 0-d tensors are weak)."""
        numbers = (bool, int, float, complex)
        operands = [a for a in self.args if isinstance(a, (torch.Tensor, *numbers))]
        found = operands[0]
        if len(operands) > 1:
            return from_torch_dtype(torch.result_type(operands[0], operands[1]))
        assert isinstance(found, torch.Tensor)
        return from_torch_dtype(found.dtype)


def scalar_for(value: Number, type_: TensorType) -> Number:
    """`value` as a Python number of the kind of the dtype."""
    if type_.dtype is BOOL:
        return bool(value)
    if type_.dtype.is_float and not isinstance(value, complex):
        return float(value)
    if type_.dtype.kind in ("int", "uint") and not isinstance(value, complex) and value == value:
        return int(value)
    return value
