"""Elementwise ops: groups of them as one loop, small ones number by number."""

from __future__ import annotations

from collections.abc import Sequence

from gradof.codegen.llvm.vectors import Vectors, has
from gradof.codegen.lowering.scalar import dtype_of, dtypes_of, number_of, unfolded
from gradof.codegen.whole.nests import Nests
from gradof.codegen.whole.text import Lanes
from gradof.codegen.whole.values import (
    broadcast,
    is_number,
    shape_of,
    tensor,
)
from gradof.ir.core import Node, Value
from gradof.ir.opinfo import has_trait
from gradof.ir.types import BOOL, F32, F64, I32, I64, TensorType
from gradof.ops.cost import is_expensive

DTYPES = frozenset({BOOL, I32, I64, F32, F64})
_ALSO = {"AutogradAdd": "add"}  # not elementwise to the registry


def is_elementwise(node: Node) -> bool:
    """Whether a node is computed element by element."""
    return (node.kind in _ALSO or has_trait(node.kind, "elementwise")) and len(node.outputs) == 1


def supports_elementwise(node: Node) -> bool:
    """Whether an elementwise node is instructions here."""
    result = node.output.type
    if not isinstance(result, TensorType) or result.dtype not in DTYPES:
        return False
    inputs = node.inputs[1:] if node.kind == "where" else node.inputs
    given = [v.type.dtype for v in inputs if isinstance(v.type, TensorType)] or [result.dtype]
    kind = _ALSO.get(node.kind, node.kind)
    if any(d not in DTYPES for d in given):
        return False
    return has(kind, given, result.dtype) or unfolded(kind, given[0], node.attrs, has) is not None


class Elementwise(Nests):
    """Writes elementwise ops."""

    def op(self, code: Vectors, node: Node, args: Sequence[str]) -> str:
        """One op on registers."""
        given = [dtype_of(v, node) for v in node.inputs]
        _, dtype = dtypes_of(node)
        if node.kind == "cast" and is_number(node.inputs[0]):
            return args[0]
        if node.kind == "pow" and is_number(node.inputs[1]) and number_of(node.inputs[1]) == 2:
            return code.op("mul", dtype, [args[0], args[0]], given, {})
        return code.op(_ALSO.get(node.kind, node.kind), dtype, args, given, node.attrs)

    def small(self, node: Node) -> None:
        """An op on registers, number by number; functions take several at once."""
        out = node.output
        shape, dtype = shape_of(out), tensor(out).dtype
        operands = []
        for v in node.inputs:
            own = dtype if node.kind == "cast" and is_number(v) else dtype_of(v, node)
            ones = self.numbers(v, own)
            of = () if is_number(v) else shape_of(v)
            operands.append([ones[k] for k in broadcast(of, shape)])
        cells = list(zip(*operands, strict=True))
        if len(cells) == 1 or not is_expensive(node.kind):
            self.define_regs(out, [self.op(self.one, node, cell) for cell in cells])
            return
        dtypes = [dtype_of(v, node) for v in node.inputs]
        code = self.code(self.lanes([dtype, *dtypes]))
        results: list[str] = []
        for first in range(0, len(cells), code.lanes):
            part = cells[first : first + code.lanes]
            columns = zip(zip(*part, strict=True), dtypes, strict=True)
            packed = [code.pack(ones, own) for ones, own in columns]
            made = self.op(code, node, packed)
            results += [code.extract(made, k, dtype) for k in range(len(part))]
        self.define_regs(out, results)

    def group(self, nodes: Sequence[Node], kept: Sequence[Value]) -> None:
        """Nodes of one shape as one loop; `kept` are those of their results that others read."""
        shape = shape_of(nodes[0].output)
        made = {node.output for node in nodes}
        reads: dict[Value, int] = {}
        splats: dict[tuple[Value, object], str] = {}
        dtypes = [tensor(node.output).dtype for node in nodes]
        for node in nodes:
            dtypes += [dtype_of(v, node) for v in node.inputs]
        code = self.code(self.lanes(dtypes))
        for node in nodes:
            for v in node.inputs:
                if v in made or v in reads:
                    continue
                one = self.alone(v, node)
                if one is None:
                    reads[v] = len(reads)
                elif (v, dtype_of(v, node)) not in splats:
                    own = dtype_of(v, node)
                    splats[v, own] = (
                        code.constant(number_of(v), own) if is_number(v) else code.splat(one, own)
                    )
        outputs = [self.room(v) for v in kept]

        def cells(code: Lanes, given: list[str]) -> list[str]:
            names: dict[Value, str] = {v: given[k] for v, k in reads.items()}
            for node in nodes:
                args = [
                    names[v] if v in names else splats[v, dtype_of(v, node)] for v in node.inputs
                ]
                names[node.output] = self.op(code, node, args)
            return [names[v] for v in kept]

        self.nest(shape, [self.memory(v) for v in reads], outputs, code.lanes, cells)
        for v, mem in zip(kept, outputs, strict=True):
            self.define_mem(v, mem)

    def alone(self, value: Value, reader: Node) -> str | None:
        """The one number that a value is throughout, if it is in a register."""
        if is_number(value):
            return ""
        held = self.held[value]
        if held.uniform is not None:
            return held.uniform
        return held.regs[0] if held.regs is not None and len(held.regs) == 1 else None
