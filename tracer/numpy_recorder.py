"""The state of one numpy trace: the graph so far, and plain arrays on their way into it."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradof.errors import DtypeError, InferenceError, LeafTypeError, TraceError, UnsupportedOpError
from gradof.ir.attrs import Dense, from_numpy_dtype, to_numpy_dtype
from gradof.ir.builder import Builder
from gradof.ir.core import Graph, Loc, Value
from gradof.ir.types import DType, ScalarType, TensorType
from gradof.ops.expr import Emitter, Expr, F
from gradof.tracer.numpy_array import TracedArray, View
from gradof.tracer.origins import Origin, Origins
from gradof.tracer.source import user_site

Array = NDArray[Any]


@dataclass(frozen=True)
class Handlers:
    """What a TracedArray does on numpy's protocols; set by numpy_tracer, which knows them all."""

    ufunc: Callable[..., Any]
    function: Callable[..., Any]
    get_item: Callable[..., Any]
    set_item: Callable[..., Any]


class Recorder:
    """Emits IR and remembers which plain arrays became inputs or constants."""

    def __init__(self, fn: Callable[..., Any], name: str, handlers: Handlers) -> None:
        self.graph = Graph(name)
        self.builder = Builder(self.graph.block)
        self.emitter = Emitter(self.builder)
        self.handlers = handlers
        self.origins = Origins(fn, lambda o: isinstance(o, np.ndarray))
        self.free: dict[int, tuple[Array, Origin, TracedArray]] = {}
        self.baked = False  # whether a plain array became a constant
        self._named: tuple[tuple[int, int], Value] | None = None

    # --- emitting -------------------------------------------------------------------------------

    @property
    def loc(self) -> Loc | None:
        """The user's line now running."""
        return self.builder.loc

    def enter(self) -> None:
        """Stamp the user's line on what is emitted next."""
        self._site = user_site()
        self.builder.loc = self._site.loc

    def wrap(self, real: Any, expr: Expr, view: View | None = None) -> TracedArray:
        """A traced array for a recorded result; TraceError if the IR type is not numpy's."""
        array = np.asarray(real)
        want = TensorType(from_numpy_dtype(array.dtype), tuple(array.shape))
        if expr.value.type != want:
            raise TraceError(
                f"recorded a result of type {expr.value.type} where numpy gives {want}",
                loc=self.loc, hint="please report this line",
            )
        self.name(expr.value)
        return TracedArray(self, array, expr, view)

    def name(self, value: Value) -> None:
        """Give the value of the user's assignment its name; only the last of one instruction."""
        site = self._site
        if site.hint is None or value.node is None:
            return
        if self._named is not None and self._named[0] == site.key:
            self._named[1].hint = None
        if value.hint is None:
            value.hint = site.hint
            self._named = (site.key, value)

    def unsupported(self, what: str, hint: str | None = None) -> UnsupportedOpError:
        """The error for something numpy can do and gradof cannot."""
        return UnsupportedOpError(
            what, loc=self.loc, hint=hint or "rewrite it with supported functions"
        )

    # --- operands -------------------------------------------------------------------------------

    def add_argument(self, array: Array, hint: str | None) -> TracedArray:
        """A graph input for an argument; the real array is copied, the caller's stays as it is."""
        type_ = TensorType(from_numpy_dtype(array.dtype), tuple(array.shape))
        value = self.graph.block.add_param(type_, hint)
        return TracedArray(self, np.array(array), self.emitter.wrap(value))

    def traced(self, operand: Any) -> TracedArray:
        """A plain array as a traced one: an input if its origin is known, else a constant."""
        if isinstance(operand, TracedArray):
            return operand
        array = np.asarray(operand)
        if array.dtype == object or array.dtype.kind not in "biuf":
            raise LeafTypeError(
                f"an array of dtype {array.dtype} meets a traced array", loc=self.loc,
                hint="only real numbers and booleans can be traced",
            )
        if isinstance(operand, np.ndarray):
            known = self.free.get(id(operand))
            if known is not None:
                return known[2]
            origin = self.origins.find(operand)
            if origin is not None:
                lifted = self.add_argument(operand, origin.name)
                self.free[id(operand)] = (operand, origin, lifted)
                return lifted
            self.baked = True
        return TracedArray(self, array, self.constant(array))

    def constant(self, array: Array) -> Expr:
        """A dense constant."""
        return self.emitter.wrap(self.builder.constant(Dense.of(np.ascontiguousarray(array).reshape(array.shape))))

    def operand(self, value: Any, dtype: np.dtype[Any]) -> Any:
        """An operand of an elementwise op computed in `dtype`: weak scalars stay Python numbers."""
        if isinstance(value, (bool, int, float)) and not isinstance(value, np.generic):
            return value
        if isinstance(value, np.generic) or (
            isinstance(value, np.ndarray) and value.ndim == 0 and id(value) not in self.free
            and self.origins.find(value) is None
        ):
            # the computation's dtype is known already, so a 0-d constant may be weak
            return np.asarray(value).astype(dtype).item()
        return self.traced(value).expr.cast(from_numpy_dtype(dtype))

    def cast(self, array: TracedArray, dtype: np.dtype[Any]) -> TracedArray:
        """`array.astype(dtype)`."""
        self.enter()
        if dtype.kind not in "biuf":
            raise DtypeError(
                f"a cast to {dtype}", loc=self.loc, hint="only real dtypes can be traced"
            )
        real = array.real.astype(dtype)
        expr = array.expr
        target = from_numpy_dtype(dtype)
        return self.wrap(real, expr if expr.dtype == target else F.cast(expr, dtype=target))

    def full(self, shape: Sequence[int], dtype: np.dtype[Any], value: float) -> Expr:
        """A constant of one value."""
        return F.full.with_emitter(self.emitter)(
            dtype=from_numpy_dtype(dtype), shape=tuple(shape), device="cpu", value=value
        )

    def elementwise(self, kind: str, real: Any, operands: Sequence[Any]) -> TracedArray:
        """Record a broadcasting op whose operands are first cast to one dtype."""
        result = np.asarray(real)
        dtype = common_dtype(operands, result)
        converted = [self.operand(x, dtype) for x in operands]
        if not any(isinstance(x, Expr) for x in converted):
            return self.traced(result)
        try:
            expr = getattr(F, kind)(*converted)
        except InferenceError as error:
            raise self.unsupported(f"{kind} of these operands: {error.message}") from error
        want = from_numpy_dtype(result.dtype)
        if expr.dtype != want:
            expr = F.cast(expr, dtype=want)
        return self.wrap(result, expr)


def real(value: Any) -> Any:
    """The concrete value behind an operand; containers are searched."""
    if isinstance(value, TracedArray):
        return value.real
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(real, value))
    if isinstance(value, (list, tuple)):
        return type(value)(map(real, value))
    if isinstance(value, dict):
        return {k: real(v) for k, v in value.items()}
    return value


def common_dtype(operands: Sequence[Any], result: Array) -> np.dtype[Any]:
    """The dtype an elementwise op computes in: numpy's promotion (NEP 50), or the float result's."""
    if result.dtype.kind == "f":
        return result.dtype
    plain = [
        x if isinstance(x, (bool, int, float)) and not isinstance(x, np.generic)
        else np.asarray(real(x)).dtype
        for x in operands
    ]  # fmt: skip
    return np.result_type(*plain)


def checksum(array: Array) -> int:
    """A checksum of an array's elements, dtype and shape."""
    head = f"{array.dtype}{array.shape}".encode()
    return zlib.crc32(np.ascontiguousarray(array).view(np.uint8).reshape(-1).data, zlib.crc32(head))


def scalar_kind(value: Expr) -> str | None:
    """The kind of a weak scalar, else None."""
    return value.value.type.kind if isinstance(value.value.type, ScalarType) else None


def ir_dtype(dtype: Any) -> DType:
    """The IR dtype of anything numpy takes as a dtype."""
    return from_numpy_dtype(np.dtype(dtype))


__all__ = ["Array", "Handlers", "Recorder", "checksum", "common_dtype", "ir_dtype", "real",
           "scalar_kind", "to_numpy_dtype"]  # fmt: skip
