"""Type inference shared by families of ops.

>>> binary(NUMBERS).infer([TensorType(F32, (4, 1)), TensorType(F32, (3,))], {})
(f32[4,3],)

A tensor shape of None (known only at run time) makes the result's shape None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gradof.errors import InferenceError
from gradof.ir.attrs import Attr
from gradof.ir.builder import Builder
from gradof.ir.core import Graph
from gradof.ir.extent import is_whole
from gradof.ir.types import BOOL, DType, ScalarType, TensorType, Type
from gradof.ops.expr import Emitter
from gradof.ops.registry import Family

Kinds = frozenset[str]
FLOATS: Kinds = frozenset({"float"})
NUMBERS: Kinds = frozenset({"float", "int", "uint"})
ANY: Kinds = frozenset({"float", "int", "uint", "bool"})
INEXACT: Kinds = FLOATS | {"complex"}
ARITHMETIC: Kinds = NUMBERS | {"complex"}
ALL: Kinds = ANY | {"complex"}
INTEGERS: Kinds = frozenset({"int", "uint"})
LOGICAL: Kinds = frozenset({"int", "uint", "bool"})
_RANK = {"bool": 0, "uint": 1, "int": 1, "float": 2, "complex": 3}
Shape = tuple[int, ...] | None


def tensor(type_: Type, what: str = "the operand") -> TensorType:
    """The type as a tensor type; InferenceError for scalars and sizes."""
    if not isinstance(type_, TensorType):
        raise InferenceError(f"{what} must be a tensor, not {type_}")
    return type_


def known_shape(type_: TensorType) -> tuple[int, ...]:
    """The shape; InferenceError where it is known only at run time."""
    if type_.shape is None:
        raise InferenceError("this op needs an operand of known shape")
    return type_.shape


def broadcast_shapes(*shapes: Shape) -> Shape:
    """numpy's broadcasting; InferenceError for shapes that do not fit, None if any is unknown."""
    if shapes and shapes.count(shapes[0]) == len(shapes):  # nearly always
        return shapes[0]
    if any(s is None for s in shapes):
        return None
    rank = max((len(s) for s in shapes if s is not None), default=0)
    result: list[int] = []
    for axis in range(-rank, 0):
        sizes = {s[axis] for s in shapes if s is not None and len(s) >= -axis} - {1}
        if len(sizes) > 1:
            shown = ", ".join(str(list(s)) for s in shapes if s is not None)
            raise InferenceError(
                f"shapes {shown} do not broadcast together",
                hint="sizes must be equal or 1, counted from the last; reshape an operand",
            )
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)


def common(inputs: Sequence[Type], kinds: Kinds) -> tuple[DType, str, Shape]:
    """Dtype, device and broadcast shape of elementwise operands.

    Weak scalars must fit the dtype.
    """
    tensors = [t for t in inputs if isinstance(t, TensorType)]
    if not tensors:
        raise InferenceError("at least one operand must be a tensor")
    first = tensors[0]
    dt, device = first.dtype, first.device
    others = [t for t in tensors if t is not first]
    for t in others:
        if t.dtype is not dt and t.dtype != dt:
            raise InferenceError(f"operands of dtypes {dt} and {t.dtype}; insert a cast")
        if t.device != device:
            raise InferenceError(f"operands on {device} and {t.device}")
    if dt.kind not in kinds:
        raise InferenceError(f"an operand of dtype {dt} where {sorted(kinds)} is due")
    for s in inputs if len(tensors) < len(inputs) else ():
        if isinstance(s, ScalarType) and _RANK[s.kind] > _RANK[dt.kind]:
            raise InferenceError(f"a {s.kind} scalar does not fit dtype {dt}; insert a cast")
    return dt, device, broadcast_shapes(first.shape, *(t.shape for t in others))


def _elementwise(kinds: Kinds, result: DType | None) -> Family:
    def infer(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
        dt, device, shape = common(inputs, kinds)
        for t in inputs if result is None else ():
            if isinstance(t, TensorType) and t.shape == shape:
                return (t,)  # it has the dtype and the device too
        return (TensorType(result or dt, shape, device),)

    return Family(infer, frozenset({"elementwise"}))


def unary(kinds: Kinds = FLOATS) -> Family:
    """Elementwise, one operand, same dtype."""
    return _elementwise(kinds, None)


def binary(kinds: Kinds = NUMBERS) -> Family:
    """Elementwise with broadcasting, same dtype."""
    return _elementwise(kinds, None)


def predicate(kinds: Kinds = ANY) -> Family:
    """Elementwise with broadcasting, boolean result."""
    return _elementwise(kinds, BOOL)


def same_as_first() -> Family:
    """One result of the type of the first operand."""

    def infer(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
        return (inputs[0],)

    return Family(infer)


def shaped(rule: Callable[..., Shape], *, traits: frozenset[str] = frozenset()) -> Family:
    """Result of the first operand's dtype; `rule(*input shapes, **attrs)` gives the shape.

    With an unknown input shape the result's shape is unknown.
    """

    def infer(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
        types = [tensor(t) for t in inputs]
        if any(t.shape is None for t in types):
            return (types[0].with_shape(None),)
        for t in types[1:]:
            if t.device != types[0].device:
                raise InferenceError(f"operands on {types[0].device} and {t.device}")
        return (types[0].with_shape(rule(*(t.shape for t in types), **attrs)),)

    return Family(infer, traits)


def int_tuple(value: Attr, what: str) -> tuple[int, ...]:
    """An attribute as a tuple of ints; InferenceError otherwise."""
    if not isinstance(value, tuple) or not all(map(is_whole, value)):
        raise InferenceError(f"{what} must be a tuple of ints, not {value!r}")
    return tuple(v for v in value if isinstance(v, int))


def check_dims(dims: Attr, rank: int) -> tuple[int, ...]:
    """Reduction dims: distinct, in 0..rank-1; InferenceError otherwise."""
    result = int_tuple(dims, "dims")
    if any(not 0 <= d < rank for d in result) or len(set(result)) != len(result):
        raise InferenceError(f"dims {result} do not fit a tensor of rank {rank}")
    return result


def reduced_shape(shape: tuple[int, ...], dims: Attr, keepdims: Attr) -> tuple[int, ...]:
    """Shape after a reduction over `dims`."""
    axes = check_dims(dims, len(shape))
    if keepdims:
        return tuple(1 if i in axes else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in axes)


def reduction(kinds: Kinds = NUMBERS, result: DType | None = None) -> Family:
    """A reduction with attributes `dims` and `keepdims`."""

    def infer(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
        x = tensor(inputs[0])
        if x.dtype.kind not in kinds:
            raise InferenceError(f"an operand of dtype {x.dtype} where {sorted(kinds)} is due")
        shape = None
        if x.shape is not None:
            shape = reduced_shape(x.shape, attrs["dims"], attrs["keepdims"])
        return (TensorType(result or x.dtype, shape, x.device),)

    return Family(infer)


def composite(expand: Callable[..., Any], *, elementwise: bool = False) -> Family:
    """The types of an expansion, found by running it on a scratch graph."""

    def infer(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
        block = Graph("scratch").block
        emitter = Emitter(Builder(block))
        result = expand(*(emitter.wrap(block.add_param(t)) for t in inputs), **attrs)
        results = result if isinstance(result, tuple) else (result,)
        return tuple(r.value.type for r in results)

    return Family(infer, frozenset({"elementwise"} if elementwise else ()))
