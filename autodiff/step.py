"""What is said of a graph that is the body of a Loop while it is differentiated."""

from __future__ import annotations

from dataclasses import dataclass

from gradof.ir.core import Graph, Value


@dataclass(frozen=True)
class Step:
    """That a graph is the body of a Loop, which carries the values `carried`, numbers of inputs.

    What is carried is another value at each step: saving it takes as much as saving any other.
    Constants and rows of sequences are there anyway.
    """

    carried: range

    def held(self, graph: Graph) -> frozenset[Value]:
        """Inputs and outputs that are not there anyway."""
        rows = set(graph.outputs[len(self.carried) :])
        outputs = set(graph.outputs[: len(self.carried)]) - rows
        return frozenset(outputs | {graph.inputs[i] for i in self.carried})
