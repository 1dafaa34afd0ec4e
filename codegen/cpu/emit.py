"""Graph → straight-line numpy source, one statement per node.

    def loss(x, w):
        \"\"\"loss(x : f32[4,3], w : f32[3,2]) -> (f32[])\"\"\"
        h = np.matmul(x, w)  # mlp.py:7
        np.tanh(h, out=h)
        y = h
        ...
        return (np.asarray(l),)

Floating-point warnings of numpy are silent while the code runs: inf and nan are results, as in torch.
"""

from __future__ import annotations

import itertools
import keyword
import linecache
import re
from typing import Any

import numpy as np

from gradof.codegen.cpu.lowering import Library, Lowering, call, literal, lowering
from gradof.codegen.cpu.plan import BufferPlan, may_alias
from gradof.errors import CodegenError
from gradof.ir.attrs import Dense
from gradof.ir.core import Graph, Node, Value
from gradof.ir.opinfo import OPS
from gradof.ir.types import ScalarType, TensorType
from gradof.ops.registry import Op

_SERIAL = itertools.count()


class Executable:
    """Emitted code: `source`, the `filename` it has in tracebacks, and the call."""

    def __init__(self, name: str, source: str, namespace: dict[str, Any]) -> None:
        self.source = source
        self.filename = f"<gradof {name} {next(_SERIAL)}>"
        code = compile(source, self.filename, "exec")
        linecache.cache[self.filename] = (
            len(source), None, source.splitlines(keepends=True), self.filename,
        )  # fmt: skip
        exec(code, namespace)
        self._function = namespace[name]

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        """Run on numpy arrays, one per graph input; fresh, writable arrays come back."""
        with np.errstate(all="ignore"):
            result: tuple[Any, ...] = self._function(*arrays)
        return result


def emit(graph: Graph, library: Library, name: str | None = None) -> Executable:
    """Emit and compile a graph of primitives; CodegenError for anything else."""
    return _Emitter(graph, library, _identifier(name or graph.name)).emit()


class _Emitter:
    def __init__(self, graph: Graph, library: Library, name: str) -> None:
        self.graph = graph
        self.library = library
        self.name = name
        self.namespace: dict[str, Any] = {"np": np}
        self.taken = {"np", "torch", *keyword.kwlist}
        self.names: dict[Value, str] = {}
        self.counter = itertools.count()
        self.lowerings: dict[Node, tuple[Op, Lowering]] = {}

    def emit(self) -> Executable:
        for node in self.graph.nodes():
            self.check(node)
        self.name = self.unique(self.name)  # a traced function may be named like an op it calls
        takes_out = {n: low.kind == "ufunc" for n, (_, low) in self.lowerings.items()}
        self.plan = BufferPlan(self.graph, takes_out)
        for value in self.graph.inputs:
            self.names[value] = self.fresh(value)
        body = [line for node in self.graph.nodes() for line in self.statement(node)]
        types = ", ".join(str(v.type) for v in self.graph.outputs)
        typed = ", ".join(f"{self.names[v]} : {v.type}" for v in self.graph.inputs)
        lines = [
            f"def {self.name}({', '.join(self.names[v] for v in self.graph.inputs)}):",
            f'    """{self.name}({typed}) -> ({types})"""',
            *("    " + line for line in body),
            f"    return ({''.join(r + ', ' for r in self.results())})".replace(", )", ",)"),
        ]
        return Executable(self.name, "\n".join(lines) + "\n", self.namespace)

    def check(self, node: Node) -> None:
        record = OPS.get(node.kind)
        if not isinstance(record, Op):
            raise CodegenError(f"{node.kind} cannot be emitted", loc=node.loc)
        for value in (*node.inputs, *node.outputs):
            if isinstance(value.type, TensorType):
                if value.type.dtype.name == "bf16":
                    raise CodegenError("numpy has no bfloat16", loc=node.loc, hint="use float32")
                if value.type.device != "cpu":
                    raise CodegenError(
                        f"the numpy backend runs on the CPU, not on {value.type.device}",
                        loc=node.loc, hint="move the arrays with .cpu()",
                    )
        if node.kind != "Constant":
            low = lowering(record, self.library)
            self.lowerings[node] = (record, low)
            if low.function is not None:
                self.namespace[low.text] = low.function
                self.taken.add(low.text)

    def fresh(self, value: Value) -> str:
        return self.unique(_identifier(value.hint) if value.hint else f"t{next(self.counter)}")

    def unique(self, base: str) -> str:
        name, n = base, 0
        while name in self.taken:
            n += 1
            name = f"{base}_{n}"
        self.taken.add(name)
        return name

    def statement(self, node: Node) -> list[str]:
        loc = f"  # {node.loc}" if node.loc is not None else ""
        if node.kind == "Constant":
            self.constant(node)
            return []
        record, low = self.lowerings[node]
        text = call(record, low, [self.names[v] for v in node.inputs], node.attrs)
        for out in node.outputs:
            self.names[out] = self.fresh(out)
        target = ", ".join(self.names[out] for out in node.outputs)
        if len(node.outputs) == 1 and node.output in self.plan.out:
            buffer = self.names[self.plan.out[node.output]]
            return [f"{target} = {text[:-1]}, out={buffer}){loc}"]
        return [f"{target} = {text}{loc}"]

    def constant(self, node: Node) -> None:
        value = node.attrs["value"]
        if isinstance(value, Dense):
            name = self.fresh(node.output) if node.output.hint else f"c{next(self.counter)}"
            self.namespace[name] = value.numpy()
            self.taken.add(name)
            self.names[node.output] = name
        else:
            text = literal(value)
            self.names[node.output] = f"({text})" if text.startswith("-") else text

    def results(self) -> list[str]:
        """What is returned: arrays of their own, never views of inputs or of one another."""
        returned: set[Value] = set()
        texts = []
        for value in self.graph.outputs:
            root = self.plan.root[value]
            name = self.names[value]
            owned = (
                root.node is not None
                and root.node.kind != "Constant"
                and root not in returned
                and not (value.node is not None and self.read_only(value.node))
            )
            returned.add(root)
            if isinstance(value.type, (TensorType, ScalarType)):
                texts.append(f"np.asarray({name})" if owned else f"np.array({name})")
            else:
                texts.append(name)
        return texts

    def read_only(self, node: Node) -> bool:
        """Whether the result may be a broadcast view somewhere along its chain of views."""
        each: Node | None = node
        while each is not None and may_alias(each):
            if each.kind in ("expand", "expand_to_size"):
                return True
            each = each.inputs[0].node
        return False


def _identifier(name: str) -> str:
    text = re.sub(r"\W", "_", name)
    return f"_{text}" if not text or text[0].isdigit() else text
