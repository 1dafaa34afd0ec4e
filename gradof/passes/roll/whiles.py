"""Ways through a loop as a loop that counts itself.

    while abs(x * x - a) > tol:       Way of a step: Guard(%c), then the ops of the body
        x = 0.5 * (x + a / x)
                                 →
    %n, ... = Loop[steps=room](...)            runs until a Guard of the way would fail, and counts
    %x = Loop[steps=room, counted=True](%n, ...)    what a step does, so often

Ways that begin alike and part at a Guard are branches of one step: each is a loop of one step that
is counted, and runs where its outcome is there, with its reverse.

Note [A loop that counts itself]
The first loop carries whether it goes on. Once it does not, nothing that it carries changes any
more (`Loop.goes_on`), so that back ends may leave it early. Its float values are not what is
differentiated: the second loop, which knows how often it runs, has a reverse like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gradof.ir.attrs import Attr, Dense
from gradof.ir.builder import Builder
from gradof.ir.clone import clone_node
from gradof.ir.core import Graph, Loc, Value
from gradof.ir.loop import Loop, add_loop
from gradof.ir.opinfo import has_trait
from gradof.ir.types import BOOL, I64, TensorType
from gradof.ops.expr import Emitter, Expr, F
from gradof.passes.roll.ways import Item, Way

_SAFE = ("elementwise", "view", "constant", "reduction")  # traits of what raises for no values


class While(NamedTuple):
    """The loops: how often they run, and the state then; `ended` where that says how it came."""

    times: Value
    kept: list[Value]
    finals: list[Value]
    loops: tuple[Loop, Loop]
    ended: bool


class _Scope:
    """Where ways are emitted: values by number."""

    def __init__(self, emitter: Emitter, values: dict[int, Value]) -> None:
        self.emitter = emitter
        self.values = values

    def find(self, number: int) -> Value:
        """A value by its number."""
        return self.values[number]

    def constant(self, value: Any, dtype: Any) -> Value:
        """A number as a constant."""
        return self.emitter.body.constant(Dense.of(np.array(value, dtype)))

    def wrap(self, value: Value) -> Expr:
        """A value as an expression here."""
        return self.emitter.wrap(value)


class _Body(_Scope):
    """The body of a Loop; what it reads from around it becomes its constants."""

    def __init__(self, around: _Scope) -> None:
        self.graph = Graph("body")
        self.graph.block.add_param(TensorType(I64, ()), "t")
        super().__init__(Emitter(Builder(self.graph.block, loc=around.emitter.body.loc)), {})
        self.around = around
        self.constants: dict[Value, Value] = {}
        self.carried: list[Value] = []

    def find(self, number: int) -> Value:
        """A value by its number; one from around the loop is brought in."""
        if number not in self.values:
            self.values[number] = self.bring(self.around.find(number))
        return self.values[number]

    def bring(self, value: Value) -> Value:
        """A value from around the loop."""
        if value.node is not None and value.node.kind == "Constant":
            return self.emitter.body.block.append(clone_node(value.node, {})).output
        if value not in self.constants:
            self.constants[value] = Value(value.type, None, -1, value.hint, self.graph.block)
        return self.constants[value]

    def carry(self, like: Value) -> Value:
        """A value that is carried."""
        made = Value(like.type, None, -1, like.hint, self.graph.block)
        self.carried.append(made)
        return made

    def loop(
        self, results: Sequence[Value], initial: Sequence[Value], steps: int,
        count: Value | None = None,
    ) -> Loop:  # fmt: skip
        """The Loop, in the scope around it."""
        block = self.graph.block
        for param in (*self.constants.values(), *self.carried):
            param.index = len(block.params)
            block.params.append(param)
        self.graph.set_outputs(results)
        return add_loop(
            self.around.emitter.body, self.graph, steps, constants=list(self.constants),
            initial=initial, sequences=[], count=count,
        )  # fmt: skip


def add_while(
    graph: Graph, ways: Sequence[Way], begin: Sequence[Value], room: int, loc: Loc | None
) -> While:
    """Add the loops of these ways at the end of a graph, which begin in a state.

    Each way begins with the Guard of one value of the state. The loops run at most `room` times;
    that they need no more is for the caller to see.
    """
    values = dict(enumerate(begin))
    values.update((-1 - k, v) for k, v in enumerate(graph.inputs))
    scope = _Scope(Emitter(Builder(graph.block, loc=loc)), values)
    changed = [i for i in range(len(begin)) if any(way.ends[i] != i for way in ways)]
    counting = _counting(scope, ways, begin, changed, room)
    count, _, *kept = counting.finals
    body = _Body(scope)
    body.values.update((i, body.carry(begin[i])) for i in changed)
    _, ends = _Run(body, checked=False).run(ways, 0)
    second = body.loop([ends[i] for i in changed], [begin[i] for i in changed], room, count)
    at_end, finals = list(begin), list(begin)
    for k, i in enumerate(changed):
        at_end[i] = kept[k]
        finals[i] = second.finals[k] if begin[i].is_inexact else kept[k]
    guards = [item for way in ways for item in way.items if item.node.kind == "Guard"]
    return While(count, at_end, finals, (counting, second), len(guards) == len(ways) == 1)


def _counting(
    scope: _Scope, ways: Sequence[Way], begin: Sequence[Value], changed: Sequence[int], room: int
) -> Loop:
    """Note [A loop that counts itself]: the count, whether it goes on, and what changes."""
    first = ways[0].items[0]
    outcomes = {repr(way.items[0].node.attrs["value"]) for way in ways}
    outcome, tested = first.node.attrs["value"], first.inputs[0]
    body = _Body(scope)
    count, going = body.carry(scope.constant(0, np.int64)), body.carry(scope.constant(0, np.bool_))
    body.values.update((i, body.carry(begin[i])) for i in changed)
    params = dict(body.values)
    one = len(outcomes) == 1
    ok, ends = _Run(body, checked=True).run(ways, 1 if one else 0)
    goes = going if ok is None else F.logical_and(body.wrap(going), body.wrap(ok)).value
    counted = F.add(body.wrap(count), body.wrap(goes).cast(I64)).value
    more = goes
    if one and tested in params:
        more = F.logical_and(
            body.wrap(goes), body.wrap(_holds(body, ends[tested], outcome))
        ).value
    kept = [
        F.where(body.wrap(goes), body.wrap(ends[i]), body.wrap(params[i])).value for i in changed
    ]
    begins = _holds(scope, begin[tested], outcome) if one else scope.constant(True, np.bool_)
    detached = [F.detach(scope.wrap(begin[i])).value for i in changed]
    initial = [scope.constant(0, np.int64), begins, *detached]
    return body.loop([counted, more, *kept], initial, room)


def _holds(scope: _Scope, value: Value, outcome: Attr) -> Value:
    """Whether a value is what a Guard expects."""
    type_ = value.type
    assert isinstance(type_, TensorType) and isinstance(outcome, bool | int)
    x = scope.wrap(value)
    if type_.shape != ():
        x = x.reshape(())
    if type_.dtype is BOOL:
        return x.value if outcome else F.logical_not(x).value
    return F.eq(x, int(outcome)).value


class _Run:
    """Ways on their way into a scope; `checked` where their Guards may fail."""

    def __init__(self, scope: _Scope, checked: bool) -> None:
        self.scope, self.checked = scope, checked

    def run(self, ways: Sequence[Way], at: int) -> tuple[Value | None, list[Value]]:
        """What ways do from an item on: whether one came to its end, and the state there."""
        scope, way = self.scope, ways[0]
        ok: Value | None = None
        for k in range(at, len(way.items)):
            item = way.items[k]
            if item.node.kind != "Guard":
                self._copy(item)
                continue
            parted = len({repr(w.items[k].node.attrs["value"]) for w in ways}) > 1
            risky = self.checked and not all(map(_is_safe, way.items[k + 1 :]))
            if parted or risky:
                return self._fork(ways, k, ok)
            if self.checked:
                holds = self._holds(item)
                ok = holds if ok is None else self._both(ok, holds)
        return ok, [scope.find(n) for n in way.ends]

    def _copy(self, item: Item) -> None:
        scope = self.scope
        given = [scope.find(n) for n in item.inputs]
        copy = clone_node(item.node, {})
        copy.set_inputs(given)
        scope.emitter.body.block.insert_before(scope.emitter.body.anchor, copy)
        for j, out in enumerate(copy.outputs):
            scope.values[item.first + j] = out

    def _holds(self, item: Item) -> Value:
        return _holds(self.scope, self.scope.find(item.inputs[0]), item.node.attrs["value"])

    def _both(self, a: Value, b: Value) -> Value:
        return F.logical_and(self.scope.wrap(a), self.scope.wrap(b)).value

    def _fork(
        self, ways: Sequence[Way], k: int, ok: Value | None
    ) -> tuple[Value | None, list[Value]]:
        """Branches, each as a loop of one step that runs where the Guard has its outcome."""
        scope, first = self.scope, ways[0].items[k].first
        shared = [n if all(w.ends[i] == n for w in ways) and n < first else None
                  for i, n in enumerate(ways[0].ends)]  # fmt: skip
        own = [i for i, n in enumerate(shared) if n is None]
        groups: dict[str, list[Way]] = {}
        for way in ways:
            groups.setdefault(repr(way.items[k].node.attrs["value"]), []).append(way)
        state: list[Value] | None = None
        for group in groups.values():
            runs = self._holds(group[0].items[k])
            if ok is not None:
                runs = self._both(ok, runs)
            body = _Body(scope)
            there, ends = _Run(body, self.checked).run(group, k + 1)
            results = [ends[i] for i in own]
            if self.checked:
                results.insert(0, there or body.constant(True, np.bool_))
            if state is None:
                state = [self._zeros(v) for v in results]
            for value in results:
                body.carry(value)
            count = scope.wrap(runs).cast(I64).value
            state = body.loop(results, state, 1, count).finals
        assert state is not None
        flag = state.pop(0) if self.checked else None
        rest = iter(state)
        return flag, [next(rest) if n is None else scope.find(n) for n in shared]

    def _zeros(self, like: Value) -> Value:
        type_ = like.type
        assert isinstance(type_, TensorType)
        return F.full.with_emitter(self.scope.emitter)(
            dtype=type_.dtype, shape=type_.shape, device=type_.device, value=0
        ).value


def _is_safe(item: Item) -> bool:
    kind = item.node.kind
    return kind == "Guard" or (kind != "in_range" and any(has_trait(kind, t) for t in _SAFE))
