"""What values are called in an exported file, and the user's lines in it.

    named_copy(df, (), ["dy", "x"], {0: "dx"})
        %0 = mul(%dy, %x); %1 = sum(%0); ...   →   %mul = mul(%dy, %x); %total = sum(%mul); ...

Users' names stay. Values without one are called after their op, gradients after what they are of.
"""

from __future__ import annotations

import keyword
import linecache
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from gradof.codegen.lowering.torch_ops import HELPERS
from gradof.codegen.machine.source import Names
from gradof.ir.clone import clone_graph
from gradof.ir.core import Graph, Loc, Node, Value
from gradof.ir.types import TensorType
from gradof.ops.registry import get_op

RESERVED = frozenset({
    *keyword.kwlist, "torch", "triton", "tl", "once_differentiable", "ctx", "grid", "n_rows",
    "n_columns", "index_type", "check_tensor", "check_value", "float", "complex", "IndexError",
    "RuntimeError", *HELPERS,
})  # fmt: skip
_LOCAL = re.compile(r"n\d+")  # sizes in a launcher
# Values without a name are called after their op, but for what Python or the file calls so.
_CALLED = {
    "sum": "total", "abs": "magnitude", "round": "rounded", "pow": "power", "all": "every",
    "any": "some", "in_range": "index", "Constant": "constant",
}  # fmt: skip
POSTFIX = ("reshape", "permute", "expand", "slice", "real", "imag")  # x.T, x[:, 1:], ...
VIEWS = (*POSTFIX, "alias", "again", "detach", "in_range", "conj")


class Identifiers(Names):
    """Identifiers of an exported file, each given once."""

    def fresh(self, base: str) -> str:
        """`base`, or with a number where that is taken."""
        base = re.sub(r"\W", "_", base, flags=re.ASCII).lstrip("_")  # kernels call _tanh
        base = base if base.isidentifier() else f"x{base}"
        base = f"{base}_1" if _LOCAL.fullmatch(base) else base
        return self.unique(base)


def named_copy(
    graph: Graph, results: Sequence[Value], inputs: Sequence[str] = (),
    gradients: Mapping[int, str] | None = None,
) -> Graph:  # fmt: skip
    """The graph with a name for every tensor, and lines without the folders of their files."""
    copy = clone_graph(graph)
    for value, name in zip(copy.inputs, inputs, strict=False):
        value.hint = name
    for value in copy.outputs[: len(results)]:
        value.hint = value.hint or "result"
    if gradients is not None:
        for value, name in zip(copy.outputs, gradients.values(), strict=True):
            _call(value, name)
    for node in copy.block.walk():
        for k, value in enumerate(node.outputs):
            if isinstance(value.type, TensorType):
                value.hint = value.hint or _called(node, k)
        if node.loc is not None:
            node.loc = Loc(PurePath(node.loc.file).name, node.loc.line)
    return copy


def _called(node: Node, k: int) -> str:
    if len(node.outputs) == 1:
        return _CALLED.get(node.kind, node.kind)
    names = get_op(node.kind).outputs
    return names[k] if len(names) == len(node.outputs) else node.kind


def _call(value: Value, name: str) -> None:
    """Name a gradient, and what it is a view of."""
    value.hint = name
    node = value.node
    if node is not None and node.kind in VIEWS and len(node.inputs[0].uses) == 1:
        if node.inputs[0].node is not None:
            _call(node.inputs[0], name)


def values_of(graph: Graph) -> list[Value]:
    """Inputs, and what every node makes."""
    return [*graph.inputs, *(v for node in graph.walk() for v in node.outputs)]


def users_lines(*graphs: Graph) -> dict[str, str]:
    """The user's lines by loc, without the folder; not those of files that have one name."""
    found: dict[str, str] = {}
    for node in (node for graph in graphs for node in graph.walk()):
        if node.loc is not None:
            text = linecache.getline(node.loc.file, node.loc.line).strip()
            name = f"{PurePath(node.loc.file).name}:{node.loc.line}"
            found[name] = text if found.get(name, text) == text else ""
    return found
