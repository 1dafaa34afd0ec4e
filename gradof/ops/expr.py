"""Operator overloading over SSA values, for rules and expansions.

>>> def rule(g: Expr, y: Expr) -> Expr:
...     return g * (1.0 - y * y)          # emits mul, sub, mul at the insert point
>>> F.sum(g, dims=(0,), keepdims=False)   # any registered op: F.<name>(inputs..., attributes...)

Weak Python scalars fold at once: `F.mul(2.0, 3.0)` is a programming error, `2.0 * 3.0` is 6.0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradof.errors import InferenceError
from gradof.ir.attrs import Attr, Dense
from gradof.ir.builder import Builder
from gradof.ir.core import Value
from gradof.ir.types import DType, ScalarType, TensorType

Number = bool | int | float | complex
Operand = "Expr | Number"


class Emitter:
    """Where expressions emit: `body` for the code, `forward` for sizes beside the forward."""

    def __init__(self, body: Builder, forward: Builder | None = None) -> None:
        self.body = body
        self.forward = forward or body

    def wrap(self, value: Value) -> Expr:
        """An expression reading `value`."""
        return Expr(value, self)


class _Typed:
    """What is known of an operand by its type."""

    __slots__ = ()

    @property
    def type(self) -> TensorType:
        """The tensor type."""
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape; InferenceError where it is known only at run time."""
        if self.type.shape is None:
            raise InferenceError("this op needs an operand of known shape")
        return self.type.shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.type.dtype

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)


class Like(_Typed):
    """The type of a value, without the value: nothing is saved for it."""

    __slots__ = ("_emitter", "_value")

    def __init__(self, value: Value, emitter: Emitter) -> None:
        self._value = value
        self._emitter = emitter

    @property
    def type(self) -> TensorType:
        """The tensor type."""
        assert isinstance(self._value.type, TensorType)
        return self._value.type

    def expand(self, g: Expr) -> Expr:
        """Broadcast `g` to this shape, known or not."""
        if self.type.shape is not None:
            return g if g.type.shape == self.shape else F.expand(g, shape=self.shape)
        size = self._emitter.forward.emit("size", self._value)
        return F.expand_to_size(g, Expr(size, self._emitter))

    def zeros(self) -> Expr:
        """A tensor of zeros of this type."""
        return F.full.with_emitter(self._emitter)(
            shape=self.shape, dtype=self.dtype, value=0.0, device=self.type.device
        )


class Expr(_Typed):
    """An SSA value with operators. Comparisons are ops: `a > b` is a boolean tensor."""

    __slots__ = ("emitter", "value")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: Value, emitter: Emitter) -> None:
        self.value = value
        self.emitter = emitter

    @property
    def type(self) -> TensorType:
        """The tensor type; InferenceError for a weak scalar."""
        if not isinstance(self.value.type, TensorType):
            raise InferenceError(f"a tensor is due, not {self.value.type}")
        return self.value.type

    @property
    def is_scalar(self) -> bool:
        """Whether this is a weak Python scalar."""
        return isinstance(self.value.type, ScalarType)

    @property
    def scalar(self) -> Number | None:
        """The Python number behind a scalar Constant, else None."""
        node = self.value.node
        if node is not None and node.kind == "Constant" and self.is_scalar:
            number = node.attrs["value"]
            assert isinstance(number, (bool, int, float, complex))
            return number
        return None

    def __add__(self, other: Any) -> Expr:
        return F.add(self, other)

    def __radd__(self, other: Any) -> Expr:
        return F.add(other, self)

    def __sub__(self, other: Any) -> Expr:
        return F.sub(self, other)

    def __rsub__(self, other: Any) -> Expr:
        return F.sub(other, self)

    def __mul__(self, other: Any) -> Expr:
        return F.mul(self, other)

    def __rmul__(self, other: Any) -> Expr:
        return F.mul(other, self)

    def __truediv__(self, other: Any) -> Expr:
        return F.div(self, other)

    def __rtruediv__(self, other: Any) -> Expr:
        return F.div(other, self)

    def __neg__(self) -> Expr:
        return F.neg(self)

    def __gt__(self, other: Any) -> Expr:
        return F.gt(self, other)

    def __ge__(self, other: Any) -> Expr:
        return F.ge(self, other)

    def __lt__(self, other: Any) -> Expr:
        return F.lt(self, other)

    def __le__(self, other: Any) -> Expr:
        return F.le(self, other)

    def __eq__(self, other: Any) -> Expr:  # type: ignore[override]
        return F.eq(self, other)

    def __ne__(self, other: Any) -> Expr:  # type: ignore[override]
        return F.ne(self, other)

    def __and__(self, other: Any) -> Expr:
        return F.logical_and(self, other)

    def __or__(self, other: Any) -> Expr:
        return F.logical_or(self, other)

    def __invert__(self) -> Expr:
        return F.logical_not(self)

    def __matmul__(self, other: Any) -> Expr:
        return (F.mm if self.rank == 2 and other.rank == 2 else F.bmm)(self, other)

    def cast(self, dtype: DType) -> Expr:
        """This value in another dtype (itself if it has it)."""
        return self if self.dtype == dtype else F.cast(self, dtype=dtype)

    def to_device(self, device: str) -> Expr:
        """This value on another device (itself if it is there)."""
        return self if self.type.device == device else F.to_device(self, device=device)

    def reshape(self, shape: tuple[int, ...]) -> Expr:
        """This value in another shape (itself if it has it)."""
        return self if self.shape == shape else F.reshape(self, shape=shape)

    def expand(self, shape: tuple[int, ...]) -> Expr:
        """Broadcast to a shape (itself if it has it)."""
        return self if self.shape == shape else F.expand(self, shape=shape)

    def permute(self, dims: tuple[int, ...]) -> Expr:
        """Permuted dims (itself for the identity)."""
        return self if dims == tuple(range(len(dims))) else F.permute(self, dims=dims)

    @property
    def mT(self) -> Expr:
        """The last two dims swapped."""
        r = self.rank
        return self.permute((*range(r - 2), r - 1, r - 2))

    def sum(self, dims: tuple[int, ...], keepdims: bool = False) -> Expr:
        """Sum over dims (itself for no dims)."""
        return F.sum(self, dims=dims, keepdims=keepdims) if dims else self

    def __repr__(self) -> str:
        return f"<Expr {self.value!r}>"


class _Call:
    """`F.<op>`: emits one op where its operands emit."""

    __slots__ = ("_emitter", "_kind")

    def __init__(self, kind: str, emitter: Emitter | None = None) -> None:
        self._kind = kind
        self._emitter = emitter

    def with_emitter(self, emitter: Emitter) -> _Call:
        """For ops without operands, such as `full`."""
        return _Call(self._kind, emitter)

    def __call__(self, *operands: Any, **attrs: Attr) -> Expr:
        results = self.multiple(*operands, **attrs)
        if len(results) != 1:
            raise InferenceError(f"{self._kind} has {len(results)} results; use .multiple")
        return results[0]

    def multiple(self, *operands: Any, **attrs: Attr) -> tuple[Expr, ...]:
        """All results of an op with several outputs."""
        emitter = self._emitter or next(
            (x.emitter for x in operands if isinstance(x, Expr)), None
        )
        if emitter is None:
            raise InferenceError(f"{self._kind} needs at least one tensor operand")
        values = _on_one_device(self._kind, [as_value(x, emitter) for x in operands], emitter)
        node = emitter.body.emit_node(self._kind, *values, **attrs)
        return tuple(Expr(v, emitter) for v in node.outputs)


class _Namespace:
    def __getattr__(self, kind: str) -> _Call:
        if kind.startswith("__"):
            raise AttributeError(kind)
        return _Call(kind)


F = _Namespace()


def zeros_for(g: Expr) -> Expr:
    """The cotangent behind a step: zero, also where `g` is nan or infinite."""
    if g.type.shape is None:  # sizes known at run time only
        return F.where(g == 0.0, g, 0.0)
    return Like(g.value, g.emitter).zeros()


def as_value(operand: Any, emitter: Emitter) -> Value:
    """The SSA value of an expression; numbers and dense arrays become Constants."""
    if isinstance(operand, Expr):
        return operand.value
    if isinstance(operand, (bool, int, float, complex, Dense)):
        return emitter.body.constant(operand)
    raise InferenceError(f"cannot use a {type(operand).__name__} as an operand")


# Their operands may be on several devices.
_ANYWHERE = frozenset({"to_device", "Opaque", "CustomRule", "once_differentiable"})


def _on_one_device(kind: str, values: list[Value], emitter: Emitter) -> list[Value]:
    """Operands, with numbers and constants of the CPU where the others are.

    torch lets a tensor without dims stand beside those of any device, and an index beside what it
    selects from; a constant has no device.
    """
    devices = {v.type.device for v in values if isinstance(v.type, TensorType)}
    if len(devices) < 2 or kind in _ANYWHERE:
        return values
    others = devices - {"cpu"}
    if len(others) != 1:
        raise InferenceError(f"operands on {' and '.join(sorted(others))}")
    (device,) = others
    return [
        Expr(v, emitter).to_device(device).value
        if isinstance(v.type, TensorType) and v.type.device == "cpu" and _goes_along(v) else v
        for v in values
    ]  # fmt: skip


def _goes_along(value: Value) -> bool:
    if _is_constant(value):
        return True
    type_ = value.type
    whole = isinstance(type_, TensorType) and type_.dtype.kind in ("int", "uint", "bool")
    return whole or (isinstance(type_, TensorType) and type_.shape == ())


def _is_constant(value: Value) -> bool:
    node = value.node
    if node is None or node.kind not in ("Constant", "cast", "reshape", "expand", "permute"):
        return False
    return all(map(_is_constant, node.inputs))


Expansion = Callable[..., Any]
