"""Memory that torch may have saved for a gradient, and that is changed behind its back.

    y = x.exp() * b; b.data.mul_(2)               the gradient of y reads b as it is by then
    n = cdist(x, b).argmin(); b.data.copy_(c)     nobody takes the gradient of the distances

The first is refused, as a graph would read what b was. Which of the two it is shows when the
results are known, or a gradient is taken within the function.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from gradof.errors import TraceError
from gradof.ir.core import Node, Value
from gradof.ops.registry import get_op

if TYPE_CHECKING:
    from gradof.tracer.torch.recorder import Recorder


class SavedMemory:
    """The changes of one trace that a gradient might notice."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._changes: list[tuple[set[Value], TraceError]] = []

    def changed(self, value: Value, own: Collection[Node], error: TraceError) -> None:
        """The memory of a value was changed: an error for gradients of what has read it.

        The nodes in `own` are the write's: torch saves a copy of what an op changes.
        """
        readers = set(self._readers(value, own))
        if readers:
            self._changes.append((readers, error))

    def _readers(self, value: Value, own: Collection[Node]) -> Iterable[Value]:
        """The results with a gradient of ops that have read a value, or a view of it."""
        attached, unsaved = self.recorder.attached, self.recorder.unsaved
        for use in value.uses:
            if use.node in own:
                continue
            if is_same(use.node.kind):
                for out in use.node.outputs:
                    yield from self._readers(out, own)
            else:
                yield from (o for o in use.node.outputs if o in attached and o not in unsaved)

    def since(self, node: Node | None) -> set[Node]:
        """The nodes that were recorded after this one; none where it is None."""
        found, at = set[Node](), self.recorder.graph.block.returns._prev
        while node is not None and at is not node and at is not None:
            found.add(at)
            at = at._prev
        return found

    def refuse(self) -> None:
        """Raise the first error: a gradient is taken now, of anything."""
        for _, error in self._changes[:1]:
            raise error

    def check(self, results: Iterable[Value]) -> None:
        """Raise the first error that a gradient of these values, which a trace hands on, has."""
        if not self._changes:
            return
        attached, stack, seen = self.recorder.attached, list(results), set[Value]()
        while stack:
            value = stack.pop()
            if value not in seen and value in attached:
                seen.add(value)
                stack += () if value.node is None else value.node.inputs
        for readers, error in self._changes:
            if not seen.isdisjoint(readers):
                raise error


def is_same(kind: str) -> bool:
    """Whether an op's result is its operand, or a view of it."""
    return kind == "CustomRule" or "view" in get_op(kind).traits
