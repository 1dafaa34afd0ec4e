"""Loops and branches by name in a numpy trace: the body is recorded once, and becomes a Loop.

A body runs on stand-ins, values of the graph with what the first step sees. What it recorded is
then copied into the block of a `Loop`; what it read from around it are constants of the loop.

Note [Branches are loops]
A branch is a loop of one step that is counted: it runs where its count is 1. So only the branch
that is taken runs, and its reverse, and none gives 0 * inf to the gradient of the other. A `while`
is two loops of as many steps as there is room for: one counts for how long the condition holds,
the other, counted, runs the body. A Guard holds calls to the room that there is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradof.codegen import compile_graph
from gradof.errors import DataDependentError, OutputError
from gradof.ir.attrs import to_numpy_dtype
from gradof.ir.builder import Builder
from gradof.ir.clone import clone_node
from gradof.ir.core import Graph, Node, Value
from gradof.ir.loop import Loop, add_loop
from gradof.ir.types import I64, TensorType
from gradof.ops.expr import F
from gradof.passes.pipeline import PREPARE, run_passes
from gradof.runtime.control import pair
from gradof.runtime.nested_numpy import evaluate_sofar
from gradof.tracer.core.pytree import TreeDef, flatten
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.recorder import Recorder, is_weak
from gradof.tracer.state.source import function_loc
from gradof.tracer.state.unheard import unheard

Fn = Callable[..., Any]
LEAST_ROOM = 16  # steps that a `while` has room for at least


class _Body:
    """A body on its way into a Loop: stand-ins for what is carried and for rows, and the rest."""

    def __init__(self, recorder: Recorder, name: str) -> None:
        self.recorder = recorder
        self.name = name
        recorder.enter()
        self.last = recorder.graph.block.returns._prev
        self.whole = False  # what is the same at every step is computed inside, too
        self.carried: list[Value] = []
        self.rows: list[Value] = []

    def stand_in(self, array: TracedArray, value: Any, kind: list[Value]) -> TracedArray:
        """A value that stands for what a step is given."""
        made = F.copy(array.expr)
        kind.append(made.value)
        self.recorder.note_varying(made.value)
        return self.recorder.wrap(self.recorder.numpy(np.copy, value), made)

    def graph(self, results: Sequence[Value]) -> tuple[Graph, list[Value]]:
        """What was recorded since, as the body of a Loop, and the constants that it reads."""
        body = Graph("body")
        block = body.block
        mapping: dict[Value, Value] = {}
        block.add_param(TensorType(I64, ()), "t")
        stand_ins = [*self.carried, *self.rows]
        recorded = self._recorded()
        own = {out for node in recorded for out in node.outputs}
        depends = set(stand_ins)
        for node in recorded:
            if node.outputs and any(v in depends for v in node.inputs):
                depends.update(node.outputs)
        constants: dict[Value, Value] = {}
        params = {v: block.add_param(v.type, v.hint) for v in (*self.carried, *self.rows)}
        mapping.update(params)

        def bring(value: Value) -> None:
            if value in mapping:
                return
            if value.node is not None and value.node.kind == "Constant":
                mapping[value] = block.append(clone_node(value.node, {})).output
            elif value not in own or not (self.whole or value in depends):
                constants[value] = mapping[value] = Value(value.type, None, 0, value.hint, block)

        for node in recorded:
            if node.kind == "Guard":
                if any(v in depends for v in node.inputs):
                    raise DataDependentError(
                        f"the body of {self.name} branches on a value", loc=node.loc,
                        hint="use gradof.cond or np.where: a body is recorded once for all steps",
                    )  # fmt: skip
                continue
            if not self.whole and not any(out in depends for out in node.outputs):
                continue  # the same at every step
            if node.outputs and node.outputs[0] in stand_ins:
                continue
            for value in node.inputs:
                bring(value)
            block.append(clone_node(node, mapping))
        for value in results:
            bring(value)
        block.params[1:1] = constants.values()
        for k, param in enumerate(block.params):
            param.index = k
        body.set_outputs([mapping[v] for v in results])
        return body, list(constants)

    def _recorded(self) -> list[Node]:
        block = self.recorder.graph.block
        node = block._head if self.last is None else self.last._next
        found = []
        while node is not None and node is not block.returns:
            found.append(node)
            node = node._next
        return found


def _leaves(recorder: Recorder, tree: Any) -> tuple[list[TracedArray], TreeDef, list[bool]]:
    """Traced leaves, the structure, and which leaves are numbers of Python's."""
    leaves, shape = flatten(tree)
    weak = [is_weak(leaf) for leaf in leaves]
    pairs = zip(leaves, weak, strict=True)
    return [recorder.traced(np.asarray(x) if w else x) for x, w in pairs], shape, weak


def _carried_on(
    recorder: Recorder, name: str, f: Fn, given: Sequence[TracedArray], shape: TreeDef,
    result: Any, weak: Sequence[bool],
) -> list[Value]:  # fmt: skip
    """What a body carries on, of the types that it was given; OutputError where it cannot be."""
    leaves, have = flatten(result)
    arrays = [recorder.traced(np.asarray(x) if not _is_array(x) else x) for x in leaves]
    types = [a.expr.value.type for a in arrays]
    wanted = [a.expr.value.type for a in given]
    if have != shape:
        raise OutputError(f"the body of {name} carries on {have}, but is given {shape}",
                          loc=function_loc(f), hint="carry the same structure on")  # fmt: skip
    for type_, want, number in zip(types, wanted, weak, strict=True):
        assert isinstance(type_, TensorType) and isinstance(want, TensorType)
        if type_.shape != want.shape or (type_ != want and not number):
            raise OutputError(
                f"the body of {name} carries on {type_}, but is given {want}",
                loc=function_loc(f), hint="make the first value of that shape and dtype",
            )
    return [a.expr.value for a in arrays]


def _is_array(x: Any) -> bool:
    return isinstance(x, TracedArray | np.ndarray | np.generic)


def _promoted(
    recorder: Recorder, given: Sequence[TracedArray], values: Sequence[Value]
) -> list[TracedArray] | None:
    """First values of the dtypes that are carried on, where numbers of Python's were given."""
    if all(a.expr.value.type == v.type for a, v in zip(given, values, strict=True)):
        return None
    return [
        recorder.traced(np.asarray(a.concrete, _dtype(v))) if a.expr.value.type != v.type else a
        for a, v in zip(given, values, strict=True)
    ]


def _dtype(value: Value) -> Any:
    assert isinstance(value.type, TensorType)
    return to_numpy_dtype(value.type.dtype)


@unheard
def _wrapped(recorder: Recorder, loop: Loop, operands: Sequence[TracedArray]) -> list[TracedArray]:
    """The outputs of a loop, with what they are in this run."""
    known = {a.expr.value: a.concrete for a in operands}
    inputs = list(dict.fromkeys(loop.node.inputs))
    missing = [v for v in inputs if v not in known]
    known.update(zip(missing, evaluate_sofar(recorder, missing), strict=True))
    graph = Graph("loop")
    mapping = {v: graph.block.add_param(v.type) for v in inputs}
    copy = graph.block.append(clone_node(loop.node, mapping))
    graph.set_outputs(copy.outputs)
    run_passes(graph, PREPARE)
    results = compile_graph(graph, library="numpy")(*(np.array(known[v]) for v in inputs))
    wrap = recorder.emitter.wrap
    return [
        recorder.wrap(result[()], wrap(out))
        for result, out in zip(results, loop.node.outputs, strict=True)
    ]


def _loop(
    body: _Body, results: Sequence[Value], steps: int, initial: Sequence[TracedArray],
    sequences: Sequence[TracedArray] = (), *, backwards: bool = False,
    count: TracedArray | None = None,
) -> list[TracedArray]:  # fmt: skip
    recorder = body.recorder
    graph, constants = body.graph(results)
    recorder.enter()
    given = [a.expr.value for a in initial]
    builder = Builder(recorder.graph.block, loc=recorder.loc)
    made = add_loop(
        builder, graph, steps, constants=constants, initial=given,
        sequences=[a.expr.value for a in sequences], backwards=backwards,
        count=None if count is None else count.expr.value,
    )  # fmt: skip
    operands = [*initial, *sequences, *([] if count is None else [count])]
    return _wrapped(recorder, made, operands)


def record_scan(
    f: Fn, init: Any, xs: Sequence[Any], tree: TreeDef | None, steps: int, reverse: bool,
    recorder: Recorder,
) -> tuple[Any, Any]:  # fmt: skip
    """See `gradof.runtime.control.scan`."""
    recorder.enter()
    initial, shape, weak = _leaves(recorder, init)
    sequences = [recorder.traced(x) for x in xs]
    while True:
        body = _Body(recorder, "scan")
        carry = [body.stand_in(a, a.concrete, body.carried) for a in initial]
        rows = [_row(body, a, steps, reverse) for a in sequences]
        x = None if tree is None else tree.unflatten(rows)
        new, y = pair(f, f(shape.unflatten(carry), x))
        carried = _carried_on(recorder, "scan", f, initial, shape, new, weak)
        promoted = _promoted(recorder, initial, carried)
        if promoted is None:
            break
        initial, weak = promoted, [False] * len(weak)
    found, out = flatten(y)
    arrays = [i for i, leaf in enumerate(found) if leaf is not None]
    ys = [recorder.traced(np.asarray(found[i]) if not _is_array(found[i]) else found[i])
          for i in arrays]  # fmt: skip
    results = [*carried, *(a.expr.value for a in ys)]
    made = _loop(body, results, steps, initial, sequences, backwards=reverse)
    stacks = dict(zip(arrays, made[len(initial) :], strict=True))
    return shape.unflatten(made[: len(initial)]), out.unflatten(
        [stacks.get(i) for i in range(len(found))]
    )


def _row(body: _Body, array: TracedArray, steps: int, reverse: bool) -> TracedArray:
    recorder = body.recorder
    if not steps:
        zeros = recorder.own(np.zeros(array.shape[1:], array.dtype))
        return body.stand_in(zeros, zeros.concrete, body.rows)
    row = array[steps - 1 if reverse else 0]
    return body.stand_in(row, row.concrete, body.rows)


def record_fori(f: Fn, init: Any, first: int, last: int, recorder: Recorder) -> Any:
    """See `gradof.runtime.control.fori_loop`."""
    numbers = np.arange(first, last)

    def step(value: Any, i: Any) -> tuple[Any, None]:
        return f(i, value), None

    recorder.enter()
    _, tree = flatten(numbers)
    steps = last - first
    result, _ = record_scan(step, init, [recorder.own(numbers)], tree, steps, False, recorder)
    return result


def record_while(cond_fun: Fn, body_fun: Fn, init: Any, recorder: Recorder) -> Any:
    """See `gradof.runtime.control.while_loop`, and Note [Branches are loops]."""
    recorder.enter()
    initial, shape, weak = _leaves(recorder, init)
    room = LEAST_ROOM
    while True:
        count, initial, weak = _count(cond_fun, body_fun, initial, shape, weak, room, recorder)
        if int(count.concrete) < room:
            break
        room *= 2
    holds = np.less(count, room)
    bool(holds)  # a Guard: a call that takes more steps is another trace
    body = _Body(recorder, "while_loop")
    state = [body.stand_in(a, a.concrete, body.carried) for a in initial]
    new = _carried_on(
        recorder, "while_loop", body_fun, initial, shape, body_fun(shape.unflatten(state)), weak
    )
    return shape.unflatten(_loop(body, new, room, initial, count=count))


def _count(
    cond_fun: Fn, body_fun: Fn, initial: list[TracedArray], shape: TreeDef, weak: list[bool],
    room: int, recorder: Recorder,
) -> tuple[TracedArray, list[TracedArray], list[bool]]:  # fmt: skip
    """For how many steps the condition holds, up to `room`."""
    while True:
        start = [recorder.own(np.array(0)), recorder.own(np.array(True))]
        body = _Body(recorder, "while_loop")
        done, going, *state = (
            body.stand_in(a, a.concrete, body.carried) for a in (*start, *_cut(recorder, initial))
        )
        holds = recorder.traced(cond_fun(shape.unflatten(state)))
        goes: Any = np.logical_and(going, np.reshape(holds, ()))
        results = body_fun(shape.unflatten(state))
        new = _carried_on(recorder, "while_loop", body_fun, initial, shape, results, weak)
        promoted = _promoted(recorder, initial, new)
        if promoted is None:
            break
        initial, weak = promoted, [False] * len(weak)
    counted = done + goes.astype(np.int64)
    cells = [recorder.emitter.wrap(v) for v in new]
    kept = [F.where(goes.expr, c, s.expr).value for c, s in zip(cells, state, strict=True)]
    given = [*start, *_cut(recorder, initial)]
    made = _loop(body, [counted.expr.value, goes.expr.value, *kept], room, given)
    return made[0], initial, weak


def _cut(recorder: Recorder, arrays: Sequence[TracedArray]) -> list[TracedArray]:
    """The arrays, without a gradient."""
    return [recorder.wrap(a.concrete[()], F.detach(a.expr)) for a in arrays]


def record_cond(
    pred: Any, true_fun: Fn, false_fun: Fn, operands: tuple[Any, ...], recorder: Recorder
) -> Any:
    """See `gradof.runtime.control.cond`, and Note [Branches are loops]."""
    if not isinstance(pred, TracedArray):
        return (true_fun if bool(pred) else false_fun)(*operands)
    recorder.enter()
    taken: Any = np.not_equal(pred, 0).reshape(()).astype(np.int64)
    shape: TreeDef | None = None
    arrays: list[TracedArray] = []
    for f, count in ((true_fun, taken), (false_fun, 1 - taken)):
        body = _Body(recorder, "cond")
        result = f(*operands)
        if shape is None:
            found, shape = flatten(result)
            made = [recorder.traced(x if _is_array(x) else np.asarray(x)) for x in found]
            values = [a.expr.value for a in made]
            arrays = [recorder.own(np.zeros(a.shape, a.dtype)) for a in made]
        else:
            exact = [False] * len(arrays)
            values = _carried_on(recorder, "cond", f, arrays, shape, result, exact)
        body.whole = True
        body.carried = [a.expr.value for a in arrays]
        arrays = _loop(body, values, 1, arrays, count=count)
    assert shape is not None
    return shape.unflatten(arrays)
