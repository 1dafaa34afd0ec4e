"""Loops as loops, and reads and writes at places that move with their steps.

What is carried is in registers where it is small. Larger arrays have two places, of which each step
reads one and writes the other, unless a step writes into what it is given: then there is one place,
which is written where nothing else reads it any more, and otherwise copied. Rows of sequences are
read, and stacked results written, where they are.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gradof.codegen.machine.llvm_types import ELEMENT
from gradof.codegen.whole.indexing import INTO
from gradof.codegen.whole.schedule import Step
from gradof.codegen.whole.systems import Systems
from gradof.codegen.whole.text import constant
from gradof.codegen.whole.values import Mem, is_small, rows, shape_of, tensor
from gradof.ir.core import Block, Node, Value
from gradof.ir.loop import Loop
from gradof.ir.types import I32, I64

DYNAMIC = frozenset({"dynamic_slice", "dynamic_slice_scatter", "dynamic_unslice"})


@dataclass
class _State:
    """A carried array in memory: where it is, and where the next step finds it."""

    param: Value
    now: Mem
    then: Mem | None  # None: where it is


class Loops(Systems):
    """Writes loops."""

    def prepare(self, block: Block) -> list[Step]:
        """The steps of a block."""
        raise NotImplementedError

    def write_steps(
        self, block: Block, steps: Sequence[Step], stay: Collection[Value] = ()
    ) -> None:
        """Write the steps of a block, whose params are defined."""
        raise NotImplementedError

    # --- places that move ------------------------------------------------------------------------

    def moving(self, mem: Mem, starts: Sequence[Value], dims: Any, sizes: Sequence[int]) -> Mem:
        """The part of memory that begins at the starts."""
        base, shape = self.pointer(mem), list(mem.shape)
        for value, d, n in zip(starts, dims, sizes, strict=True):
            (start,) = self.numbers(value, tensor(value).dtype)
            if tensor(value).dtype is I32:
                start = self.text.emit(f"sext i32 {start} to i64")
            last = mem.shape[d] - n
            if last == 0:
                start = "0"
            else:
                start = self.one.intrinsic("smax", I64, [start, "0"])
                start = self.one.intrinsic("smin", I64, [start, str(last)])
            base = self.text.at(base, self.text.times(start, mem.strides[d]), mem.dtype)
            shape[d] = n
        return replace(mem, base=base, offset=0, shape=tuple(shape))

    def dynamic(self, node: Node) -> None:
        """`dynamic_slice`, `dynamic_slice_scatter` and `dynamic_unslice`."""
        dims: Any = node.attrs["dims"]
        if node.kind == "dynamic_slice":
            sizes: Any = node.attrs["sizes"]
            part = self.moving(self.memory(node.inputs[0]), node.inputs[1:], dims, sizes)
            self.define_mem(node.output, part)
            return
        at = 0 if node.kind == "dynamic_unslice" else 1
        src, starts = node.inputs[at], node.inputs[at + 1 :]
        if at:
            made = self.taken(node)
        else:
            made = self.room(node.output)
            self.fill(constant(0, made.dtype), made)
        self.write(src, self.moving(made, starts, dims, [shape_of(src)[d] for d in dims]))
        self.define_mem(node.output, made)

    # --- loops -----------------------------------------------------------------------------------

    def loop(self, node: Node) -> None:
        """A Loop."""
        loop = Loop(node)
        steps = self.prepare(loop.body)
        count: int | str = loop.steps
        if loop.count is not None:
            (given,) = self.numbers(loop.count, tensor(loop.count).dtype)
            count = self.one.intrinsic("smin", I64, [given, str(loop.steps)])
        stacks = [self.room(v) for v in loop.stacks]
        if loop.count is not None:
            for mem in stacks:
                self.fill(constant(0, mem.dtype), mem)
        sources = [self.memory(v) for v in loop.sequences]
        for param, value in zip(loop.constant_params, loop.constants, strict=True):
            self.define(param, replace(self.held[value]))
        small = [is_small(shape_of(p)) for p in loop.carried_params]
        begin: list[tuple[str, str]] = []
        states: list[_State | None] = []
        places: list[int] = []  # in `begin`
        for param, value, last, few in zip(
            loop.carried_params, loop.initial, loop.carried_results, small, strict=True
        ):
            places.append(len(begin))
            if few:
                kind = ELEMENT[tensor(param).dtype]
                begin += [(kind, one) for one in self.numbers(value, tensor(param).dtype)]
                states.append(None)
                continue
            states.append(self.state(param, value, last))
            if states[-1].then is not None:  # type: ignore[union-attr]  # just made
                begin += [("ptr", states[-1].now.base), ("ptr", states[-1].then.base)]  # type: ignore[union-attr]
        body = _Body(self, loop, steps, states, sources, stacks, count)
        results, going = [one for _, one in begin], loop.goes_on()
        if going is not None:
            going = places[going]
        if count != 0:
            results = self.text.carried(count, begin, body.step, going)
        body.finish(results)
        for mem, value in zip(stacks, loop.stacks, strict=True):
            self.define_mem(value, mem)

    def state(self, param: Value, value: Value, last: Value) -> _State:
        """Memory for a carried array, with what is carried in."""
        shape, dtype = shape_of(param), tensor(param).dtype
        now = self.pin(self.new(shape, dtype))
        self.write(value, now)
        root = last
        while root.node is not None and root.node.kind in INTO | {"dynamic_slice_scatter"}:
            root = root.node.inputs[0]
        if root is param:
            return _State(param, now, None)
        return _State(param, now, self.pin(self.new(shape, dtype)))


class _Body:
    """The body of a loop, written once."""

    def __init__(
        self, owner: Loops, loop: Loop, steps: Sequence[Step], states: Sequence[_State | None],
        sources: Sequence[Mem], stacks: Sequence[Mem], count: int | str,
    ) -> None:  # fmt: skip
        self.owner, self.text = owner, owner.text
        self.loop, self.steps, self.states = loop, steps, states
        self.sources, self.stacks, self.count = sources, stacks, count

    def step(self, i: str, given: list[str]) -> list[str]:
        """One step: what is carried into it, in registers, or where it is → the same after it."""
        owner, loop = self.owner, self.loop
        t = i
        if loop.backwards:
            t = self.text.emit(f"sub i64 {self._last()}, {i}")
        targets = [_row(self.text, mem, t) for mem in self.stacks]
        rest = list(given)
        carried = zip(loop.carried_params, self.states, strict=True)
        nexts = [self._enter(param, state, rest) for param, state in carried]
        for value, mem in zip(loop.row_results, targets, strict=True):
            if value.node is not None:
                owner.homes.setdefault(value, mem)
        for value, then in zip(loop.carried_results, nexts, strict=True):
            if value.node is not None and then is not None and then.buffer is None:
                owner.homes.setdefault(value, then)
        if loop.index.has_uses:
            owner.define_regs(loop.index, [t])
        for param, mem in zip(loop.row_params, self.sources, strict=True):
            owner.define_mem(param, replace(_row(self.text, mem, t), buffer=None))
        owner.write_steps(loop.body, self.steps, set(loop.constant_params))
        for value, mem in zip(loop.row_results, targets, strict=True):
            self._put(value, mem)
        results = self._leave(nexts, given)
        for value in {*loop.body.params, *loop.body.results} - set(loop.constant_params):
            owner.forget(value)
        return results

    def _enter(self, param: Value, state: _State | None, given: list[str]) -> Mem | None:
        """Define what is carried; where the next step is to find it, if in memory."""
        shape = shape_of(param)
        if state is None:
            n = tensor(param).size
            self.owner.define_regs(param, given[:n])
            del given[:n]
            return None
        if state.then is None:
            self.owner.define_mem(param, state.now)
            return state.now
        now, then = given[:2]
        del given[:2]
        here = Mem(now, shape, rows(shape), state.now.dtype)
        self.owner.define_mem(param, here)
        return replace(here, base=then)

    def _put(self, value: Value, mem: Mem) -> None:
        if self.owner.held[value].mem != mem:
            self.owner.write(value, mem)

    def _leave(self, nexts: Sequence[Mem | None], given: Sequence[str]) -> list[str]:
        """What is carried on."""
        owner, results, at = self.owner, [], 0
        for value, mem, state in zip(self.loop.carried_results, nexts, self.states, strict=True):
            if state is None:
                ones = owner.numbers(value, tensor(value).dtype)
                results += ones
                at += len(ones)
            elif state.then is not None:
                assert mem is not None
                self._put(value, mem)
                results += [mem.base, given[at]]
                at += 2
        for value, mem, state in zip(self.loop.carried_results, nexts, self.states, strict=True):
            if state is not None and state.then is None:
                assert mem is not None
                held = owner.held[value].mem
                if held is None or held.base != mem.base:
                    owner.write(value, mem)
        return results

    def _last(self) -> str:
        if isinstance(self.count, int):
            return str(self.count - 1)
        return self.text.emit(f"add i64 {self.count}, -1")

    def finish(self, results: Sequence[str]) -> None:
        """Define what is carried out."""
        owner, rest = self.owner, list(results)
        for param in self.loop.constant_params:
            owner.forget(param)
        for out, state in zip(self.loop.finals, self.states, strict=True):
            if state is None:
                n = tensor(out).size
                owner.define_regs(out, rest[:n])
                del rest[:n]
                continue
            if state.then is None:
                owner.define_mem(out, state.now)
                owner.unpin(state.now)
                continue
            here = replace(state.now, base=rest[0])
            del rest[:2]
            final = owner.room(out)
            owner.copy(here, final)
            owner.define_mem(out, final)
            owner.unpin(state.now)
            owner.unpin(state.then)


def _row(text: Any, mem: Mem, t: str) -> Mem:
    """A row of memory."""
    base = text.at(mem.base, mem.offset, mem.dtype)
    base = text.at(base, text.times(t, mem.strides[0]), mem.dtype)
    return Mem(base, mem.shape[1:], mem.strides[1:], mem.dtype)
