"""What nothing reads of a Loop: carried values, rows, constants, sequences.

    Given   %x, %p, %ys = Loop[...](%c, %x0, %p0, %u) ...;  return (%x), the body of %x reads no %p
    Result  %x = Loop[...](%c, %x0, %u) ...

A carried value is read if its last one is, or if a step computes from it what is read.
"""

from __future__ import annotations

from collections.abc import Callable

from gradof.ir.core import Block, Node, Value
from gradof.ir.loop import Loop
from gradof.passes.purity import is_pure

OnErase = Callable[[Value], None]
Clean = Callable[[Block], object]


def drop_dead_outputs(node: Node, clean: Clean, on_erase: OnErase | None = None) -> bool:
    """Drop carried values and rows that nothing reads; returns whether there were any.

    `clean` erases what nothing reads in a block.
    """
    loop = Loop(node)
    carried = len(loop.initial)
    if all(out.has_uses for out in node.outputs):
        return False
    live = _live(loop)
    gone = [k for k in range(len(node.outputs)) if k not in live]
    if not gone:
        return False
    block = loop.body
    first = 1 + len(loop.constants)
    params = [first + k for k in gone if k < carried]
    operands = [p - 1 + (loop.count is not None) for p in params]
    block.returns.set_inputs([v for k, v in enumerate(block.results) if k in live])
    clean(block)
    block.remove_params(params)
    node.set_inputs([v for k, v in enumerate(node.inputs) if k not in operands])
    node.attrs["carried"] = carried - len(params)
    for k in reversed(gone):
        if on_erase is not None:
            on_erase(node.outputs[k])
        node.remove_output(k)
    return True


def drop_dead_operands(node: Node) -> bool:
    """Drop constants and sequences that the body does not read; returns whether there were any."""
    loop = Loop(node)
    constants, carried = len(loop.constants), len(loop.initial)
    params = loop.body.params
    gone = [
        p.index for p in params[1:]
        if not p.has_uses and not constants < p.index <= constants + carried
    ]  # fmt: skip
    if not gone:
        return False
    operands = {p - 1 + (loop.count is not None) for p in gone}
    loop.body.remove_params(gone)
    node.attrs["constants"] = constants - sum(p <= constants for p in gone)
    node.set_inputs([v for k, v in enumerate(node.inputs) if k not in operands])
    return True


def _live(loop: Loop) -> set[int]:
    """The outputs that are read, by number, and the carried values that they follow from."""
    results = loop.body.results
    carried = {p: k for k, p in enumerate(loop.carried_params)}
    live = {k for k, out in enumerate(loop.node.outputs) if out.has_uses}
    todo = [results[k] for k in live]
    todo += [v for node in loop.body.nodes() if not is_pure(node) for v in node.inputs]
    seen: set[Value] = set()
    while todo:
        value = todo.pop()
        if value in seen:
            continue
        seen.add(value)
        k = carried.get(value)
        if k is not None and k not in live:
            live.add(k)
            todo.append(results[k])
        if value.node is not None:
            todo += _reads(value.node)
    return live


def _reads(node: Node) -> list[Value]:
    inner = [v for block in node.blocks for each in block.walk() for v in each.inputs]
    inner += [v for block in node.blocks for v in block.results]
    return [*node.inputs, *inner]
