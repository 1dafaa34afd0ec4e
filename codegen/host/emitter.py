"""A graph as one Python function, statement by statement; `emit` and `torch_emit` are its dialects.

    def loss(x, w):                                        the inputs, by the user's names
        \"\"\"loss(x : f32[4,3], w : f32[3,2]) -> (f32[])\"\"\"  the types
        h = np.matmul(x, w)  # mlp.py:7                    a statement per node, with its line
        l = loss_kernel(h)  # mlp.py:9                     a kernel per fusion group
        del h                                              what no later statement reads
        return (l,)

A dialect says how an op is called, where constants live, when memory is let go, and what makes a
result the caller's own.

Note [Consumed inputs]
What f has computed for df is read by nobody else, unless the graph is retained. df lets each go
after its last reader, so that the memory is there for the gradients, as eager's nodes let go what
they saved. A caller of a Python function holds its arguments until it returns: these come in a
list, which the function empties.

    def dloss(d, x, held):
        t0, t1 = held
        held.clear()
"""

from __future__ import annotations

import itertools
import keyword
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gradof.codegen.host.buffers import is_large
from gradof.codegen.loops.ir import LoopNest
from gradof.codegen.loops.lower import schedule
from gradof.codegen.machine.source import Names, as_tuple, identifier, wrapped
from gradof.ir.core import Graph, Node, Value


class HostEmitter:
    """Writes one function; subclasses are dialects.

    `source` is the graph whose types the function shows, `graph` the one whose nodes it runs.
    """

    def __init__(
        self, source: Graph, graph: Graph, namespace: dict[str, Any], taken: Iterable[str] = ()
    ) -> None:  # fmt: skip
        self.source = source
        self.graph = graph
        self.name = ""
        self.namespace = namespace
        self.given = Names({*namespace, *taken, *keyword.kwlist})
        self.counter = itertools.count()
        self.names: dict[Value, str] = {}
        self.kernels: dict[Node, str] = {}
        self.reads: dict[Node, tuple[int, ...]] = {}  # of a kernel: the operands that it takes
        self.consumed: tuple[Value, ...] = ()  # inputs that come in a list: Note [Consumed inputs]

    # --- what a dialect says ----------------------------------------------------------------------

    def begin(self, nodes: Sequence[Node]) -> None:
        """Before anything has a name."""

    def before(self) -> list[str]:
        """Functions beside this one, once its statements are known."""
        return []

    def opening(self) -> list[str]:
        """Statements that need no node."""
        return []

    def statement(self, node: Node) -> list[str]:
        """The statements of a node, which name its outputs."""
        raise NotImplementedError

    def dead(self, node: Node) -> Sequence[Value]:
        """What is let go after a node."""
        raise NotImplementedError

    def results(self) -> list[str]:
        """What is returned."""
        raise NotImplementedError

    # --- the function -----------------------------------------------------------------------------

    def lines(self) -> list[str]:
        """The function, after those beside it."""
        nodes = list(self.graph.nodes())
        self.begin(nodes)
        for value in self.graph.inputs:
            self.names[value] = self.fresh(value)
        given = [self.names[v] for v in self.graph.inputs if v not in self.consumed]
        body = []
        if self.consumed:
            given.append(held := self.given.unique("held"))
            taken = as_tuple([self.names[v] for v in self.consumed])
            body += [f"{taken} = {held}", f"{held}.clear()"]
        body += [*self.opening(), *(line for node in nodes for line in self.statement(node))]
        results = as_tuple(self.results())
        types = ", ".join(str(v.type) for v in self.source.outputs)
        pairs = zip(self.graph.inputs, self.source.inputs, strict=True)
        typed = ", ".join(f"{self.names[v]} : {w.type}" for v, w in pairs)
        return [
            *self.before(),
            *wrapped(f"def {self.name}({', '.join(given)}):"),
            *wrapped(f'    """{self.name}({typed}) -> ({types})"""'),
            *("    " + line for line in body),
            *wrapped(f"    return {results}"),
        ]

    def fresh(self, value: Value) -> str:
        """A new name for a value: the user's, if there is one."""
        return self.given.unique(
            identifier(value.hint) if value.hint else f"t{next(self.counter)}"
        )

    def named(self, node: Node) -> list[str]:
        """New names for the outputs of a node."""
        for out in node.outputs:
            self.names[out] = self.fresh(out)
        return [self.names[out] for out in node.outputs]

    def placed(self, node: Node, text: str) -> list[str]:
        """A statement with its line of the user's code, and what is let go after it."""
        loc = "" if node.loc is None else "  # " + " ".join(str(node.loc).split())
        dead = [self.names[v] for v in self.dead(node) if v in self.names]
        return [f"{text}{loc}", *([f"del {', '.join(dead)}"] if dead else [])]

    def take_from_list(self, places: Iterable[int]) -> tuple[int, ...]:
        """Which of these inputs, by number, are to be consumed: large ones that something reads."""
        read = {value for node in self.graph.nodes() for value in node.inputs}
        inputs = self.graph.inputs
        found = [k for k in places if inputs[k] in read and is_large(inputs[k].type)]
        self.consumed = tuple([inputs[k] for k in found])
        return tuple(found)

    def add_kernel(self, node: Node, make: Callable[[LoopNest], Any]) -> None:
        """Schedule a fusion group and make its kernel, under a name of its own."""
        name = self.kernels[node] = self.given.unique(f"{self.name}_kernel")
        nest = schedule(node, name)
        self.namespace[name] = make(nest)
        self.reads[node] = nest.reads
