"""One native function of a graph for any length (`gradof.ir.extent`).

    made = AnyLength((graph of 20, graph of 33), "loss", statements)
    run = made.function({"n": 500})      # None where the code is not that of this length
    run(x, w)

The code is emitted for both examples, and is to be the same (Note [Sizes that lose their formula]).
A length has its own results' sizes, scratch, and constants, which begin with it; the machine code
is one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gradof.codegen.machine.engine import Code, vector_bits
from gradof.codegen.machine.executable import Executable
from gradof.codegen.machine.python_entry import Entry, aligned_copy, python_function
from gradof.codegen.whole.emit import emit_whole
from gradof.codegen.whole.function import cells, effort, is_long
from gradof.codegen.whole.sizes import header, lengths_of
from gradof.codegen.whole.values import LINE, shape_of, tensor
from gradof.ir.attrs import to_numpy_dtype
from gradof.ir.core import Graph
from gradof.ir.extent import Unsized
from gradof.passes.generalize import at_lengths, plain

Run = Callable[..., tuple[Any, ...]]
_KEPT = 64  # lengths whose scratch and sizes are kept


class AnyLength:
    """See the module docstring; raises Unsized where there is no one code."""

    def __init__(
        self, graphs: Sequence[Graph], name: str, statements: Callable[[Graph], Executable]
    ) -> None:
        first, second = (emit_whole(graph, vector_bits()) for graph in graphs)
        if first.text != second.text or first.constants != second.constants:
            raise Unsized("other code for another length")
        lengths = [lengths_of(graph) for graph in graphs]
        self._lengths = [each for each in lengths if each is not None]
        self._graph, self._name, self._statements = graphs[1], name, statements
        self._whole, self.source = second, second.text
        self._code = Code(second.text, effort(second))
        self._runs: OrderedDict[tuple[int, ...], Run] = OrderedDict()

    def known(self, lengths: tuple[int, ...]) -> Run | None:
        """The function for lengths, in their order, that were asked for lately."""
        return self._runs.get(lengths)

    def function(self, values: Mapping[str, int]) -> Run | None:
        """The function for these lengths; None where what was decided does not hold for them."""
        if not all(each.hold(values) for each in self._lengths):
            return None
        made = self._runs[tuple(values.values())] = self._made(values)
        if len(self._runs) > _KEPT:
            self._runs.popitem(last=False)
        return made

    def _made(self, values: Mapping[str, int]) -> Run:
        graph, whole = self._graph, self._whole
        start = header([values[name] for name in sorted(values)], LINE)
        constants = aligned_copy(start + whole.constants[len(start) :])
        outputs = [
            (plain(shape_of(v), values), to_numpy_dtype(tensor(v).dtype)) for v in graph.outputs
        ]
        arity = len(graph.inputs)
        op_by_op: list[Executable] = []

        def other_way(*arrays: Any) -> tuple[Any, ...]:
            """As that of `WholeExecutable`."""
            rows = [np.require(np.asarray(a), requirements=["C", "A"]) for a in arrays]
            if len(arrays) == arity and any(a is not b for a, b in zip(rows, arrays, strict=True)):
                return made(*rows)
            if not op_by_op:
                op_by_op.append(self._statements(at_lengths(graph, values)))
            return tuple(op_by_op[0](*arrays))

        made: Run = python_function(self._name, Entry(
            self._code, self._code.address_of("whole"), arity, outputs, plain(whole.arena, values),
            constants, is_long(cells(graph.block, values)),
        ), other_way)  # fmt: skip
        return made
