"""Loops under a memory budget, as loops of segments that are computed again.

    %x = Loop[steps=900](%c, %x0)
    →  %x = Loop[steps=30](%c, %x0)          # a segment: Loop[steps=30](%s * 30, %c, %x)

The reverse of a Loop reads what each of its steps saves. That of a Loop of segments reads what
comes into each segment, if what its steps save is computed again as the segment is reversed, which
a budget asks for anyway (`captures`): so square roots of the number of steps are held, for one more
computation of the steps. Where that is more than the budget allows, segments have segments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gradof import tuning
from gradof.ir.attrs import Dense
from gradof.ir.builder import Builder
from gradof.ir.clone import inline
from gradof.ir.core import Graph, Node, Value
from gradof.ir.extent import example
from gradof.ir.loop import Loop, add_loop, is_loop
from gradof.ir.types import I64, TensorType
from gradof.ops.expr import Emitter, Expr, F

_INDEX = TensorType(I64, ())


def long_loops(graph: Graph) -> list[Node]:
    """The Loops that may be made of segments."""
    return [n for n in graph.nodes() if is_loop(n) and Loop(n).steps >= 2 * tuning.LOOP_STEPS]


def in_segments(node: Node, saved: int, limit: float) -> None:
    """Make segments of a Loop whose steps save so many bytes, if the limit needs them."""
    loop = Loop(node)
    state = sum(map(_bytes, loop.initial))
    if loop.steps * state <= limit or not saved:
        return  # saving what comes into each step does
    row, steps = saved / loop.steps, loop.steps
    peaks = {depth: (depth - 1) * _side(steps, depth) * state + _side(steps, depth) * row
             for depth in range(2, max(3, steps.bit_length()))}  # fmt: skip
    fitting = [depth for depth, peak in peaks.items() if peak <= limit]
    depth = min(fitting) if fitting else min(peaks, key=peaks.__getitem__)
    _split(node, _side(steps, depth), depth - 1)


def _side(steps: int, depth: int) -> int:
    root: float = steps ** (1 / depth)
    return max(2, round(root))


def _bytes(value: Value) -> int:
    assert isinstance(value.type, TensorType)
    return example(value.type.nbytes)


def _split(node: Node, side: int, times: int) -> None:
    """`side` segments of as many steps each, and a Loop of the steps that are left."""
    size = side**times
    count, rest = divmod(Loop(node).steps, size)
    if not times or count < 2:
        return
    for inner in _Split(Loop(node), size, count, rest).run():
        _split(inner, side, times - 1)


@dataclass
class _Split:
    loop: Loop
    size: int
    count: int
    rest: int

    def run(self) -> list[Node]:
        """Replace the Loop; gives those within the segments."""
        loop, node = self.loop, self.loop.node
        assert node.block is not None
        emitter = Emitter(Builder(node.block, node, node.loc))
        end = self.size * self.count
        parts: list[Loop] = []
        carried: Sequence[Value] = loop.initial
        for whole in (False, True) if loop.backwards else (True, False):
            if whole or self.rest:
                made = self._segments(emitter, carried, end) if whole else (
                    self._steps(emitter, carried, self._rows(emitter, end, end + self.rest),
                                self.rest, _constant(emitter, end))
                )  # fmt: skip
                parts.append(made)
                carried = made.finals
        for out, value in zip(loop.finals, carried, strict=True):
            out.replace_all_uses_with(value)
        first, *others = reversed(parts) if loop.backwards else parts
        for k, out in enumerate(loop.stacks):
            tall = emitter.wrap(first.stacks[k])
            stack = tall.reshape((end, *tall.shape[2:]))
            if others:
                stack = F.cat(stack, emitter.wrap(others[0].stacks[k]), dim=0)
            out.replace_all_uses_with(stack.value)
        node.erase()
        return [n for n in first.body.nodes() if is_loop(n)]

    def _rows(self, emitter: Emitter, start: int, stop: int) -> list[Value]:
        return [
            F.slice(emitter.wrap(v), dim=0, start=start, stop=stop, step=1).value
            for v in self.loop.sequences
        ]

    def _segments(self, emitter: Emitter, carried: Sequence[Value], end: int) -> Loop:
        """The Loop of segments."""
        loop = self.loop
        body = Graph("body")
        at = body.block.add_param(_INDEX, "t")
        constants = [*loop.constants, *(() if loop.count is None else (loop.count,))]
        params = [body.block.add_param(v.type, v.hint) for v in (*constants, *carried)]
        tall = [emitter.wrap(v) for v in self._rows(emitter, 0, end)]
        rows = [x.reshape((self.count, self.size, *x.shape[1:])).value for x in tall]
        for row in rows:
            assert isinstance(row.type, TensorType) and row.type.shape is not None
            params.append(body.block.add_param(row.type.with_shape(row.type.shape[1:]), row.hint))
        inside = Emitter(Builder(body.block, loc=loop.node.loc))
        count, first = len(loop.constants), len(constants)
        segment = self._steps(
            inside, params[first : first + len(carried)], params[first + len(carried) :], self.size,
            inside.wrap(at) * self.size, params[:count],
            None if loop.count is None else params[count],
        )  # fmt: skip
        body.set_outputs(list(segment.node.outputs))
        runs = None
        if loop.count is not None:
            needed = F.floor_divide(emitter.wrap(loop.count) + (self.size - 1), self.size)
            runs = F.minimum(needed, _constant(emitter, self.count)).value
        return add_loop(
            emitter.body, body, self.count, constants=constants, initial=carried, sequences=rows,
            backwards=loop.backwards, count=runs,
        )  # fmt: skip

    def _steps(
        self, emitter: Emitter, carried: Sequence[Value], rows: Sequence[Value], steps: int,
        base: Expr, constants: Sequence[Value] | None = None, total: Value | None = None,
    ) -> Loop:  # fmt: skip
        """The Loop of the steps from `base` on."""
        loop = self.loop
        constants = loop.constants if constants is None else constants
        total = loop.count if total is None else total
        body = Graph("body")
        given = [body.block.add_param(_INDEX, "t"), body.block.add_param(_INDEX)]
        given += [body.block.add_param(p.type, p.hint) for p in loop.body.params[1:]]
        inside = Emitter(Builder(body.block, loc=loop.node.loc))
        number = (inside.wrap(given[0]) + inside.wrap(given[1])).value
        body.set_outputs(
            inline(loop.body, [number, *given[2:]], body.block, body.block.returns)
        )
        count = None
        if total is not None:
            left = F.minimum(emitter.wrap(total) - base, _constant(emitter, steps))
            count = F.maximum(left, _constant(emitter, 0)).value
        return add_loop(
            emitter.body, body, steps, constants=[base.value, *constants], initial=carried,
            sequences=rows, backwards=loop.backwards, count=count,
        )  # fmt: skip


def _constant(emitter: Emitter, number: int) -> Expr:
    return emitter.wrap(emitter.body.constant(Dense.of(np.array(number, np.int64))))
