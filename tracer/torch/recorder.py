"""Turns the functional aten ops that the dispatcher sees into IR.

    recorder.record(aten.tanh.default, (x,), {}, [y])      →    %y : f32[4] = tanh(%x)  # mlp.py:7

The recorder knows real tensors by identity: each one that an op returned, or that came in as a
graph input, stands for one SSA value. It also keeps what is known of each value:

- *attached*: a gradient can flow from it to a graph input.
- *cut*: it comes from where gradients were off, or from a detached value. A tensor that requires
  grad may be cut only if it is attached as well (Note [Cut gradients] in `torch_modes`).
- *varying*: it depends on a graph input or on random numbers, so that a Python number read off it
  would be baked in wrongly.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from gradof.errors import (
    DataDependentShapeError,
    GradofError,
    InferenceError,
    TraceError,
    UnsupportedOpError,
)
from gradof.ir.builder import Builder
from gradof.ir.core import Graph, Loc, Node, Value
from gradof.ir.opinfo import OPS
from gradof.ops.expr import Emitter, Expr
from gradof.ops.registry import Op, find_by_api_name, get_op
from gradof.passes.eliminate_dead_code import eliminate_dead_code
from gradof.tracer.aten.registry import ADAPTORS, RANDOM, Call, Results
from gradof.tracer.aten.types import dense_of, type_of
from gradof.tracer.state.source import Site
from gradof.tracer.torch.deferred import Deferred
from gradof.tracer.torch.narrow import in_range
from gradof.tracer.torch.opaque import emit_opaque, is_cut, refusal, warn_opaque


class Recorder:
    """The graph under construction and the values of the real tensors."""

    def __init__(self, name: str, strict: bool = False) -> None:
        self.graph = Graph(name)
        self.thread = threading.get_ident()  # that which traces
        self.strict = strict  # an op without a rule is an error, not an Opaque node
        self.parts = 0  # how deep in a program of torch's that stands for an op
        self._warned: set[str] = set()
        self.builder = Builder(self.graph.block)
        self.emitter = Emitter(self.builder)
        self.attached: set[Value] = set()
        self.cut: set[Value] = set()
        self.unsaved: set[Value] = set()  # results of ops that autograd saves nothing for
        self.paused = False
        self.varying: set[Value] = set()
        self.guards = 0
        self.no_grad_is_known = True  # False in a call of torch that was made with gradients on
        self.refused: GradofError | None = None  # the last error of an op
        self.adopts = False  # a tensor never seen is a constant
        self.rules: list[type] = []  # the Functions whose backward is traced
        self.applying = 0  # within torch.autograd.Functions whose rule is not recorded yet
        self.deferred = Deferred()
        self.numpys: dict[Value, Loc | None] = {}  # constants in the memory of numpy arrays
        self.seeded_elsewhere: dict[torch.Generator, torch.Tensor] = {}  # by other threads
        self._alias_cuts = False
        self._values: dict[int, Value] = {}
        self._alive: list[torch.Tensor] = []  # ids stay unique while their tensors live
        self._missing: dict[int, tuple[str, Callable[[], None]]] = {}
        self._last: tuple[tuple[int, int], Value] | None = None

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Ops that run inside are not recorded."""
        before, self.paused = self.paused, True
        try:
            yield
        finally:
            self.paused = before

    @contextlib.contextmanager
    def cutting(self) -> Iterator[None]:
        """Aliases that are made inside are cut off from the gradient; copies of them are not."""
        self._alias_cuts = True
        try:
            yield
        finally:
            self._alias_cuts = False

    def add_input(self, tensor: torch.Tensor, hint: str | None) -> Value:
        """A graph input standing for `tensor`."""
        value = self.graph.block.add_param(type_of(tensor), hint)
        self.bind(tensor, value)
        self.varying.add(value)
        if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
            self.attached.add(value)
        return value

    def bind(self, tensor: torch.Tensor, value: Value) -> None:
        """From now on `tensor` stands for `value`."""
        self._values[id(tensor)] = value
        self._alive.append(tensor)

    def known(self) -> list[torch.Tensor]:
        """The tensors that were seen so far."""
        return list(self._alive)

    def forget(self, values: Sequence[Value]) -> None:
        """Tensors that stand for these values stand for none any more."""
        gone = set(values)
        self._values = {key: v for key, v in self._values.items() if v not in gone}

    def find(self, tensor: torch.Tensor) -> Value | None:
        """The value `tensor` stands for; None for a tensor never seen."""
        return self._values.get(id(tensor))

    def value(self, tensor: torch.Tensor, loc: Loc | None) -> Value:
        """The value `tensor` stands for. Raises UnsupportedOpError for a result without one."""
        value = self._values.get(id(tensor))
        if value is not None:
            return value
        missing = self._missing.pop(id(tensor), None)
        if missing is not None:
            what, record_whole = missing
            if self.strict:
                raise UnsupportedOpError(
                    f"{what} of type {type_of(tensor)} is used, but not supported", loc=loc,
                    hint="compute it from the op's other results",
                )  # fmt: skip
            record_whole()
            return self._values[id(tensor)]
        if self.adopts and not tensor.requires_grad:
            return self.constant(tensor, Site(loc, None, (0, 0)))
        raise TraceError(
            f"a {type_of(tensor)} appeared from nowhere: no op that was seen made it",
            loc=loc,
            hint="make it outside the traced function, or with torch functions inside",
        )

    def constant(self, tensor: torch.Tensor, site: Site) -> Value:
        """A dense constant with the tensor's elements; `tensor` stands for it from now on."""
        self.builder.loc = site.loc
        self.deferred.settle(tensor)
        value = self.builder.constant(dense_of(tensor))
        if value.type != type_of(tensor):  # bfloat16 is kept as float32, on the CPU
            moved = self.emitter.wrap(value).cast(type_of(tensor).dtype)
            value = moved.to_device(type_of(tensor).device).value
        self._name(value, site)
        self.bind(tensor, value)
        return value

    def record(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any, site: Site
    ) -> None:
        """Emit the IR of one call that returned `out`.

        Raises UnsupportedOpError for an op without adaptor, and TraceError where the IR emitted
        does not have the types of the real results.
        """
        name = aten_name(func)
        if self._alias_cuts and name == "alias.default":
            func, name = torch.ops.aten.detach.default, "detach.default"
        results = [out] if isinstance(out, torch.Tensor) else _tensors(out)
        self.builder.loc = site.loc
        before = self.graph.block.returns._prev
        call = Call(func, args, kwargs, results, self.emitter)
        try:
            emitted = self._emit(name, call, site)
        except InferenceError as error:
            self.roll_back(before)
            emitted = self.opaque(call, site, f"aten.{name} with these operands: {error.message}")
        values = [None if e is None else e.value for e in emitted]
        made = self._propagate(before, name in RANDOM)
        with_grad = torch.is_grad_enabled() or self._has_own_autograd(func)
        if not with_grad:
            if not self.applying:  # what a Function's forward computes with, its ctx may save
                self.unsaved.update(made)
            values = [None if v is None else self._detached(v, name, site) for v in values]
        self._check(name, results, values, site)
        self._mark_cut(name, args, values, with_grad)
        for tensor, value in zip(results, values, strict=True):
            if value is None:
                self._missing[id(tensor)] = (
                    f"a result of aten.{name}",
                    functools.partial(self._record_missing, call, results, values, site),
                )
                self._alive.append(tensor)
            else:
                self.bind(tensor, value)
        if len(values) == 1 and values[0] is not None:
            self._name(values[0], site)

    def _emit(self, name: str, call: Call, site: Site) -> Sequence[Expr | None]:
        device = str(call.results[0].device) if call.results else "cpu"
        given, named = in_range(call.func, call.args, call.kwargs)
        args = tuple(self._operand(a, site, device) for a in given)
        kwargs = {k: self._operand(v, site, device) for k, v in named.items()}
        adaptor = ADAPTORS.get(name)
        if adaptor is not None:
            return _as_list(adaptor(call, *args, **kwargs))
        op = _registered(name)
        if op is None or kwargs or op.attrs or op.variadic or len(args) != len(op.inputs):
            return self.opaque(call, site, "")
        from gradof.tracer.aten.elementwise import elementwise

        return _as_list(elementwise(call, op, *args))

    def opaque(self, call: Call, site: Site, why: str) -> Sequence[Expr]:
        """The results of a call that torch's own autograd runs.

        Raises UnsupportedOpError where that is not wanted, or within a program of torch's: then
        the op that the program stands for is opaque.
        """
        name = call.func.name()
        if self.strict or self.parts:
            raise UnsupportedOpError(why, loc=site.loc) if why else refusal(name, "", site.loc)
        try:
            node = emit_opaque(
                call.func, call.args, call.kwargs, list(call.results),
                lambda tensor: self.value(tensor, site.loc), self.attached, self.emitter, site.loc,
            )  # fmt: skip
        except UnsupportedOpError as error:
            raise UnsupportedOpError(why, loc=site.loc, hint=error.hint) if why else error from None
        if name not in self._warned:
            self._warned.add(name)
            warn_opaque(name, site.loc)
        outputs = [self.builder.emit("detach", out) if is_cut(name, out) else out
                   for out in node.outputs]  # fmt: skip
        return [self.emitter.wrap(out) for out in outputs]

    def _record_missing(
        self, call: Call, results: Sequence[torch.Tensor], values: Sequence[Value | None],
        site: Site,
    ) -> None:  # fmt: skip
        """The results that were left out, from the same op as a whole."""
        before = self.graph.block.returns._prev
        whole = self.opaque(call, site, "a result that is not supported")
        self._propagate(before, random=False)
        for tensor, value, expr in zip(results, values, whole, strict=True):
            if value is None:
                self._missing.pop(id(tensor), None)
                self.bind(tensor, expr.value)

    def checked(self, info: torch.Tensor) -> None:
        """The op that made `info` raises an error where it says that there is no result."""
        value = self.find(info)
        node = value.node if value is not None else None
        if node is not None and "check_errors" in node.attrs:
            node.attrs["check_errors"] = True

    def roll_back(self, before: Node | None) -> None:
        """Erase what was emitted after `before`."""
        for node in self.graph.block.reversed_nodes():
            if node is before:
                return
            self.guards -= node.kind == "Guard"
            node.erase()

    def _operand(self, arg: Any, site: Site, device: str) -> Any:
        if isinstance(arg, torch.Tensor):
            expr = self.emitter.wrap(self.value(arg, site.loc))
            # what torch takes from the CPU beside tensors of a device: numbers, indices
            return expr.to_device(device) if expr.type.device == "cpu" else expr
        if isinstance(arg, (list, tuple)) and any(isinstance(a, torch.Tensor) for a in arg):
            return [self._operand(a, site, device) for a in arg]
        return arg

    def _propagate(self, before: Node | None, random: bool) -> list[Value]:
        made = list[Value]()
        node = self.graph.block._head if before is None else before._next
        while node is not None and node is not self.graph.block.returns:
            op = get_op(node.kind)
            if random or "random" in op.traits or any(v in self.varying for v in node.inputs):
                self.varying.update(node.outputs)
            if any(v in self.attached and _carries(op, i) for i, v in enumerate(node.inputs)):
                self.attached.update(v for v in node.outputs if v.is_inexact)
            made += node.outputs
            node = node._next
        return made

    def _has_own_autograd(self, func: Any) -> bool:
        """Whether gradients are off because torch runs the op inside its registered gradient."""
        return not self.no_grad_is_known and func.namespace not in ("aten", "prims")

    def _mark_cut(
        self, name: str, args: tuple[Any, ...], values: Sequence[Value | None], with_grad: bool
    ) -> None:
        # By the operands of the aten op, used or not: `x.data.zero_()` gives a plain constant.
        operands = [self._values.get(id(t)) for t in _tensors(args)]
        cutting = self.attached | self.cut if name.startswith("detach") else self.cut
        if not with_grad or any(v in cutting for v in operands if v is not None):
            self.cut.update(v for v in values if v is not None and v.is_inexact)

    def _detached(self, value: Value, name: str, site: Site) -> Value:
        """Under no_grad a result is a constant to the gradient."""
        if value not in self.attached:
            return value
        if not self.no_grad_is_known:
            raise UnsupportedOpError(
                f"torch switches gradients off inside one of its functions (at aten.{name})",
                loc=site.loc, hint="write the function's formula out",
            )  # fmt: skip
        cut = self.builder.emit("detach", value)
        if value in self.varying:
            self.varying.add(cut)
        return cut

    def _check(
        self, name: str, results: Sequence[torch.Tensor], values: Sequence[Value | None], site: Site
    ) -> None:
        if len(results) != len(values):
            raise TraceError(
                f"aten.{name} has {len(results)} results, its adaptor gave {len(values)}",
                loc=site.loc,
            )
        for tensor, value in zip(results, values, strict=True):
            if value is not None and value.type != type_of(tensor):
                raise TraceError(
                    f"aten.{name} gave {type_of(tensor)}, but was recorded as {value.type}",
                    loc=site.loc, hint="this is an error in gradof's adaptor; please report it",
                )  # fmt: skip

    def _name(self, value: Value, site: Site) -> None:
        # A variable names the last op of the instruction that ran before the store.
        if site.hint is None or value.node is None:
            return
        if self._last is not None and self._last[0] == site.key:
            self._last[1].hint = None
        if value.hint is None:
            value.hint = site.hint
            self._last = (site.key, value)

    def finish(self, outputs: Sequence[Value]) -> None:
        """Set the graph's outputs and drop what they do not need."""
        self.deferred.forget()
        self.graph.set_outputs(outputs)
        eliminate_dead_code(self.graph)

    def read_number(self, tensor: torch.Tensor, number: Any, site: Site) -> None:
        """Python reads `number` off `tensor`: the trace holds where it is the same again."""
        value = self.value(tensor, site.loc)
        if value in self.varying:
            self.builder.loc = site.loc
            self.builder.emit_node("Guard", value, value=number, number=self.guards)
            self.guards += 1


def aten_name(func: Any) -> str:
    """`tanh.default` of `torch.ops.aten.tanh.default`; ops of other libraries keep their prefix."""
    name: str = func.name().removeprefix("aten::")
    return name if "." in name else name + ".default"


def knows(func: Any) -> bool:
    """Whether an adaptor or a registered op serves the call of `func`."""
    name = aten_name(func)
    return name in ADAPTORS or _registered(name) is not None


def _registered(name: str) -> Op | None:
    if name.startswith("prims::"):  # what torch's decompositions are written in: elementwise
        name = name.removeprefix("prims::").split(".")[0]  # ones are aten's without promotion
        found = find_by_api_name(f"aten.{name}") or OPS.get(name)
        return found if isinstance(found, Op) and "elementwise" in found.traits else None
    return find_by_api_name(f"aten.{name}") or find_by_api_name(f"aten.{name.split('.')[0]}")


def data_dependent_shape(func: Any, site: Site) -> DataDependentShapeError:
    """The error for an op whose result's shape depends on values."""
    return DataDependentShapeError(
        f"the shape of the result of {func.name().replace('::', '.')} depends on the values of "
        "its operands",
        loc=site.loc,
        hint="use torch.where or multiply by a mask, so that the shape stays the same",
    )


def _tensors(tree: Any) -> list[torch.Tensor]:
    """The tensors in a result or in arguments, through one level of lists."""
    flat: list[Any] = []
    for item in tree if isinstance(tree, (tuple, list)) else ():
        flat.extend(item if isinstance(item, (tuple, list)) else [item])
    return [item for item in flat if isinstance(item, torch.Tensor)]


def _as_list(results: Results) -> Sequence[Expr | None]:
    return [results] if results is None or isinstance(results, Expr) else results


def _carries(op: Any, index: int) -> bool:
    """Whether a gradient can flow through operand `index`."""
    if op.is_composite:
        return True
    name = op.inputs[0] if op.variadic else op.inputs[index]
    return op.vjp.get(name) is not None
