"""The state of one numpy trace: the graph so far, and plain arrays on their way into it.

Note [Baked constants]
A plain array that meets a traced one is lifted to a graph input if it, or the array it is a view
of, can be read again from the function (closure, global, attribute). Any other was computed by
plain numpy, which does not tell us from what: it becomes a constant, and the trace holds only
while every array the function can reach has the elements it had (`Traced.content`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradof.errors import (
    DtypeError,
    InferenceError,
    LeafTypeError,
    ShapeError,
    TraceError,
    UnsupportedOpError,
)
from gradof.ir.attrs import Dense, from_numpy_dtype
from gradof.ir.builder import Builder
from gradof.ir.core import Block, Graph, Loc, Value
from gradof.ir.types import DType, TensorType
from gradof.ops.expr import Emitter, Expr, F
from gradof.tracer.core.number import Numbers
from gradof.tracer.core.result import Layout
from gradof.tracer.numpy.adopt import INTO_PLAIN, Adoptions
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.deferred import Deferred, real
from gradof.tracer.numpy.loop_notes import ArrayLoopNotes
from gradof.tracer.numpy.operands import TAKE_WEAK, common_dtype, contains_traced, is_plain, is_weak
from gradof.tracer.numpy.places import places_in
from gradof.tracer.numpy.values import Told
from gradof.tracer.numpy.view import View
from gradof.tracer.state.reads import Reads
from gradof.tracer.state.source import Site, user_loc, user_site

Array = NDArray[Any]
@dataclass(frozen=True)
class Handlers:
    """What a TracedArray does on numpy's protocols; set by `tracer`, which knows them all."""

    ufunc: Callable[..., Any]
    function: Callable[..., Any]
    get_item: Callable[..., Any]
    set_item: Callable[..., Any]
    rows: Callable[..., Any]


class Recorder:
    """Emits IR and remembers which plain arrays became inputs or constants."""

    def __init__(
        self, fn: Callable[..., Any], name: str, handlers: Handlers,
        old: Mapping[int, tuple[Array, int]] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        self.graph = Graph(name)
        self.graph.block.number_later()
        self.builder = Builder(self.graph.block)
        self.emitter = Emitter(self.builder)
        self.handlers = handlers
        self.old = old  # plain arrays that were there before the run, by id
        self.deferred = Deferred(lambda array: id(array) in old)
        self.free: dict[int, tuple[Array, TracedArray]] = {}
        self.evaluated: dict[Value, Array] = {}  # what loops have given
        self.baked = self.closed = False  # baked: see Note [Baked constants]
        self.adoptions = Adoptions(fn)
        self.told = Told()
        self.apart: Callable[[], AbstractContextManager[None]] = nullcontext  # see `Held.apart`
        self.loops = ArrayLoopNotes(Reads())
        self.generators: dict[int, tuple[Any, Any]] = {}  # that are drawn from, and copies of them
        self.known_calls: dict[Any, Any] = {}  # `Known` functions, or None, by what is called
        self.guards = self.asked = 0  # asked: a record depended on more than types (`templates`)
        self.varying: tuple[Value, ...] = ()  # of these the key of a template says that they vary
        self.numbers = Numbers(self, lambda value: None)
        self._constant: dict[Value, bool] = {}
        self.given: list[Any] = []
        self.places: dict[int, tuple[int, TracedArray]] = {}  # of inputs, by id, kept alive
        self.layouts: dict[int, Layout] = {}  # of inputs, where numpy's answer depends on them
        self._constants: tuple[Block, dict[Any, TracedArray]] = self.graph.block, {}
        self._named: tuple[tuple[int, int], Value] | None = None
        self._site = Site(None, None, (0, 0))
        self._quiet = copy_context()  # where numpy does not warn: entered faster than `errstate`
        self._quiet.run(np.seterr, all="ignore")

    def listen(self, loops: ArrayLoopNotes) -> None:
        """What the run reads and says is told to `loops.reads`, and by it."""
        reads, self.loops = loops.reads, loops
        self.apart = reads.held.apart
        self.numbers.told, self.numbers.tell = self.told.text, loops.sizes.plain
        reads.files = lambda: self.told.opened

    @property
    def loc(self) -> Loc | None:
        """The user's line now running."""
        return self.builder.loc

    def enter(self) -> None:
        """Stamp the user's line on what is emitted next; TraceError after the trace has ended."""
        if self.closed:
            raise TraceError(
                "an array of a finished trace is used", loc=user_loc(),
                hint="a traced function must not leave its arrays in globals or attributes; "
                "return them",
            )
        self._site = site = user_site()
        self.builder.loc = site[0]

    def close(self) -> None:
        """The function has returned: nothing more is recorded, and nobody reads what waits."""
        self.closed = True
        self.loops.forget()
        self.deferred.forget()

    def wrap(self, concrete: Any, expr: Expr, link: View | None = None) -> TracedArray:
        """A traced array for a recorded result; TraceError if the IR type is not numpy's."""
        want = TensorType(self.ir_dtype(concrete.dtype), tuple(concrete.shape))
        if expr.value.type != want:
            text = f"recorded a result of type {expr.value.type} where numpy gives {want}"
            raise TraceError(text, loc=self.loc, hint="please report this line")
        self.name(expr.value)
        return TracedArray(self, concrete, expr, link)

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

    def into_plain(self, what: str) -> UnsupportedOpError:
        """The error for a traced value that goes into a plain array; see Note [Adopted arrays]."""
        self.adoptions.note(sys._getframe(1))
        return self.unsupported(f"{what}, where the gradient would be lost", INTO_PLAIN[1])

    def ir_dtype(self, dtype: Any) -> DType:
        """The IR dtype of anything numpy takes as a dtype; DtypeError where there is none."""
        given = np.dtype(dtype)
        if given.kind not in "biufc" or given.itemsize > (16 if given.kind == "c" else 8):
            raise DtypeError(
                f"an array of dtype {given}", loc=self.loc,
                hint="real numbers of up to 64 bits, complex ones of up to 128, and booleans can "
                "be traced",
            )
        return from_numpy_dtype(given)

    def numpy(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What numpy gives for the concrete operands; large results wait (`deferred`).

        Its ValueErrors become ShapeErrors and its dtype errors DtypeErrors, with the user's line.
        """
        try:
            if type(function) is np.ufunc:
                small = self.deferred.at_once(args, kwargs)
                if small is not None:
                    return self._quiet.run(function, *small)
            with np.errstate(all="ignore"):
                return self.deferred.call(function, args, kwargs)
        except ValueError as error:
            if type(error) is not ValueError:
                raise
            raise ShapeError(
                f"{function.__name__.strip('_')}: {error}", loc=self.loc,
                hint="reshape, transpose or broadcast the operands so that their shapes fit",
            ) from error  # fmt: skip
        except np._core._exceptions.UFuncTypeError as error:  # type: ignore[attr-defined]
            raise DtypeError(f"{function.__name__.strip('_')}: {error}", loc=self.loc) from error

    def is_constant(self, value: Value) -> bool:
        """Whether no graph input takes part in a value."""
        self.asked += value not in self.varying
        stack = [value]
        while stack:
            top = stack[-1]
            if top in self._constant:
                stack.pop()
            elif top.node is None:
                self._constant[top] = False
            else:
                todo = [v for v in top.node.inputs if v not in self._constant]
                stack += todo
                if not todo:
                    self._constant[top] = all(self._constant[v] for v in top.node.inputs)
        return self._constant[value]

    def note_varying(self, value: Value) -> None:
        """A value that stands for others, whatever it was computed from: it is no constant."""
        self._constant[value] = False

    def read_number(self, array: TracedArray) -> None:
        """Python reads the one number of an array: the trace holds where it is the same again."""
        self.enter()
        self.guard(array.expr.value, array.concrete.item())

    def guard(self, value: Value, seen: bool | int | float | complex) -> None:
        """The trace holds where a value is this number again."""
        self.builder.emit_node("Guard", value, value=seen, number=self.guards)
        self.guards += 1

    # --- operands -------------------------------------------------------------------------------

    @property
    def constants(self) -> dict[Any, TracedArray]:
        """Small plain arrays as constants of this block, by their elements."""
        if self._constants[0] is not self.builder.block:
            self._constants = self.builder.block, {}
        return self._constants[1]

    def is_old(self, array: Any) -> bool:
        """Whether an array was there before the run, or is a view of such an array's memory."""
        if id(array) in self.old or id(array) in self.free:
            return True
        return any(known.base is array for known, _ in list(self.old.values()))

    @property
    def concrete_inputs(self) -> list[Any]:
        """The graph's inputs in this run, as they were before it."""
        return list(map(np.array, self.given))

    def add_argument(self, array: Any, hint: str | None) -> TracedArray:
        """A graph input for an argument; the array is copied, the caller's stays as it is."""
        type_ = TensorType(self.ir_dtype(array.dtype), tuple(array.shape))
        value = self.graph.block.add_param(type_, hint)
        self.given.append(array)
        made = TracedArray(self, self.deferred.argument(array), self.emitter.wrap(value))
        self.places[id(made)] = (len(self.given) - 1, made)
        return made

    def asks_layout(self, array: TracedArray) -> None:
        """What numpy gives for an array depends on its layout, and so on that of the argument."""
        self.asked += 1
        place = self.places.get(id(array.root))
        if place is not None and array.root.memory.ndim:
            given = self.given[place[0]]
            strides = None if given.flags.c_contiguous else given.strides
            self.layouts[place[0]] = Layout(place[0], strides)

    def traced(self, operand: Any) -> TracedArray:
        """A plain array as a traced one: an input if its origin is known, else a constant."""
        if isinstance(operand, TracedArray):
            if operand.recorder is not self:
                raise TraceError("an array of another trace is used", loc=self.loc,
                                 hint="return it from the function that made it")  # fmt: skip
            return operand
        if isinstance(operand, (list, tuple)) and contains_traced(operand):
            parts = [self.traced(x) for x in operand]
            return self.traced(self.handlers.function(self, np.stack, (parts,), {}))
        if isinstance(operand, np.ndarray):
            for read in (self._lifted, self._view_of_lifted):
                found = read(operand)
                if found is not None:
                    return found
            return self._baked(operand)
        self.baked |= isinstance(operand, np.generic)
        return self._constant_array(np.asarray(operand))

    def _lifted(self, array: Array) -> TracedArray | None:
        """The graph input of an array that can be read again, else None."""
        known = self.free.get(id(array))
        if known is not None:
            return known[1]
        if id(array) not in self.old:
            return None
        self._check_plain(array)
        lifted = self.add_argument(array, None)
        self.free[id(array)] = (array, lifted)
        return lifted

    def _view_of_lifted(self, array: Array) -> TracedArray | None:
        """`X[2:]` of an array that can be read again: elements of its graph input."""
        if array.base is None or not array.size:
            return None
        owner = array.base
        for known, _ in list(self.old.values()):
            if type(known) not in (np.ndarray, np.memmap):  # its elements are constants
                continue
            if known is owner or known.base is owner:
                places = places_in(known, array)
                if places is not None:
                    lifted = self._lifted(known)
                    assert lifted is not None
                    self.deferred.borrow(array)
                    return TracedArray(self, array, self._elements(lifted.expr, places))
        return None

    def _elements(self, x: Expr, places: Array) -> Expr:
        """The elements of x, flattened, at `places`."""
        if places.size == x.type.size and (places.reshape(-1) == np.arange(places.size)).all():
            return x.reshape(places.shape)
        index = self.builder.constant(Dense.of(np.ascontiguousarray(places.reshape(-1))))
        picked = F.index_select(x.reshape((x.type.size,)), Expr(index, self.emitter), dim=0)
        return picked.reshape(places.shape)

    def _baked(self, array: Array) -> TracedArray:
        self._check_plain(array)
        self.baked = True
        return self._constant_array(array)

    def _check_plain(self, array: Array) -> None:
        if type(array) not in (np.ndarray, np.memmap):
            raise LeafTypeError(
                f"a {type(array).__name__} meets a traced array", loc=self.loc,
                hint="only plain numpy arrays can be traced: np.asarray(a)",
            )

    def _constant_array(self, array: Array) -> TracedArray:
        if array.dtype.kind not in "biufc":
            raise LeafTypeError(
                f"an array of dtype {array.dtype} meets a traced array", loc=self.loc,
                hint="only numbers and booleans can be traced",
            )
        self.ir_dtype(array.dtype)
        self.deferred.borrow(array)
        return TracedArray(self, array, self.constant(array))

    def own(self, array: Array) -> TracedArray:
        """An array that nobody else has, as a constant that can be written to."""
        return TracedArray(self, array, self.constant(array))

    def constant(self, array: Array) -> Expr:
        """A dense constant."""
        return self.emitter.wrap(self.builder.constant(Dense.of(array)))

    def operand(self, value: Any, dtype: np.dtype[Any]) -> Any:
        """An operand of an elementwise op computed in `dtype`: weak scalars stay Python numbers."""
        if is_weak(value):
            return value
        if issubclass(type(value), np.generic):
            self.baked = True
            return np.asarray(value).astype(dtype).item()  # the dtype of the op is known already
        return self.traced(value).expr.cast(self.ir_dtype(dtype))

    def cast(self, array: TracedArray, dtype: np.dtype[Any]) -> TracedArray:
        """`array.astype(dtype)`, a copy."""
        self.enter()
        target, expr = self.ir_dtype(dtype), array.expr
        if expr.dtype.is_complex and target.kind not in ("complex", "bool"):
            expr = F.real(expr)  # as numpy does, with a warning
        cast = expr.cast(target)
        return self.wrap(self.deferred.cast(array, dtype), cast)

    def full(self, shape: Sequence[int], dtype: np.dtype[Any], value: float) -> Expr:
        """A constant of one value."""
        return F.full.with_emitter(self.emitter)(
            dtype=self.ir_dtype(dtype), shape=tuple(shape), device="cpu", value=value
        )

    def elementwise(self, kind: str, result: Any, operands: Sequence[Any]) -> TracedArray:
        """Record a broadcasting op whose operands are first cast to one dtype."""
        want = self.ir_dtype(result.dtype)
        dtype = common_dtype(operands, result)
        converted = [self.operand(x, dtype) for x in operands]
        if not any(isinstance(x, Expr) for x in converted):
            return self.traced(result)
        if dtype.kind == "b":  # numpy adds and multiplies booleans so
            kind = {"add": "logical_or", "mul": "logical_and"}.get(kind, kind)
        if kind not in TAKE_WEAK:
            converted = [x if isinstance(x, Expr) else self.full((), dtype, x) for x in converted]
        try:
            expr = getattr(F, kind)(*converted)
        except InferenceError as error:
            raise self.unsupported(f"{kind} of these operands: {error.message}") from error
        if expr.dtype != want:
            expr = F.cast(expr, dtype=want)
        return self.wrap(result, expr)

    def elementwise_several(
        self, kind: str, results: Sequence[Any], operands: Sequence[Any]
    ) -> tuple[TracedArray, ...]:
        """As `elementwise`, for a floating op with several results."""
        dtype = common_dtype(operands, results[0])
        converted = [self.operand(x, dtype) for x in operands]
        tensors = [x if isinstance(x, Expr) else self.full((), dtype, x) for x in converted]
        exprs = getattr(F, kind).multiple(*tensors)
        return tuple(self.wrap(r, e) for r, e in zip(results, exprs, strict=True))


__all__ = ["Array", "Handlers", "Recorder", "common_dtype", "contains_traced",
           "is_plain", "is_weak", "real"]  # fmt: skip
