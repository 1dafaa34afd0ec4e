"""Linear systems: LU with partial pivoting, Cholesky, triangular systems, as LAPACK computes them
without blocks. What LAPACK says is singular, or not positive, makes the function fail."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from gradof.codegen.machine.llvm_types import ELEMENT
from gradof.codegen.whole.factors import FACTORS
from gradof.codegen.whole.products import Products
from gradof.codegen.whole.text import constant
from gradof.codegen.whole.values import Mem, Shape, rows, shape_of, tensor
from gradof.ir.core import Node
from gradof.ir.types import F32, F64, I64, TensorType


def _square(node: Node) -> bool:
    types = [v.type for v in node.inputs if isinstance(v.type, TensorType)]
    shapes = [t.shape or () for t in types]
    return (
        all(t.dtype in (F32, F64) and t.size > 0 for t in types)
        and all(s[:-2] == shapes[0][:-2] for s in shapes)
    )  # fmt: skip


SYSTEMS: Mapping[str, Callable[[Node], bool]] = dict.fromkeys(
    ("solve", "inv", "det", "cholesky", "solve_triangular"), _square
)


class Systems(Products):
    """Writes linear systems."""

    def call(self, name: str, node: Node, arguments: str, result: str = "i32") -> str:
        """A call of a function of `factors`."""
        dtype = tensor(node.inputs[0]).dtype
        full = f"{name}_{dtype}"
        self.functions[full] = FACTORS[name](full, dtype)
        return self.text.emit(f"call {result} @{full}({arguments})")

    def system(self, node: Node) -> None:
        """`solve`, `inv`, `det`, `cholesky` and `solve_triangular`, of stacks of matrices."""
        shape = shape_of(node.inputs[0])
        matrix = self.own_copy(node, 0)
        made = matrix if node.kind == "cholesky" else self.room(node.output)
        if node.kind in ("solve", "solve_triangular"):
            self.write(node.inputs[1], made)
        elif node.kind == "inv":
            self.fill(constant(0, made.dtype), made)
        elif node.kind == "cholesky":
            made = self.room(node.output)
            self.copy(matrix, made)
        n, each = shape[-1], math.prod(shape_of(node.output)[len(shape) - 2 :])
        pivots = self.new((n,), I64, temporary=True)

        def one(k: str) -> None:
            a = self.text.at(matrix.base, self.text.times(k, n * n), made.dtype)
            b = self.text.at(self.pointer(made), self.text.times(k, each), made.dtype)
            self.one_system(node, a, b, pivots.base, n, each)

        self.text.loop(math.prod(shape[:-2]), one)
        self.define_mem(node.output, made)

    def own_copy(self, node: Node, k: int) -> Mem:
        """An operand in memory of this step, contiguous."""
        value = node.inputs[k]
        shape: Shape = shape_of(value)
        made = self.new(shape, tensor(value).dtype, temporary=True)
        self.write(value, replace(made, strides=rows(shape)))
        return made

    def one_system(self, node: Node, a: str, b: str, pivots: str, n: int, each: int) -> None:
        """One matrix; a is overwritten, b has the right-hand sides, or gets the result."""
        dtype, text = tensor(node.inputs[0]).dtype, self.text
        if node.kind == "cholesky":
            self.checked(self.call("cholesky", node, f"ptr {b}, i64 {n}"))
            return
        if node.kind == "solve_triangular":
            name = "lower" if node.attrs["lower"] else "upper"
            arguments = f"ptr {a}, ptr {b}, i64 {n}, i64 {each // n}"
            self.checked(self.call(name, node, arguments))
            return
        if node.kind == "det":
            found = self.call("det", node, f"ptr {a}, ptr {pivots}, i64 {n}", ELEMENT[dtype])
            text.store(found, b, dtype)
            return
        if node.kind == "inv":
            text.loop(n, lambda i: text.store(
                constant(1, dtype), text.at(b, text.times(i, n + 1), dtype), dtype
            ))  # fmt: skip
        self.checked(self.call("lu", node, f"ptr {a}, ptr {pivots}, i64 {n}"))
        columns = each // n
        self.call("lu_solve", node, f"ptr {a}, ptr {pivots}, ptr {b}, i64 {n}, i64 {columns}")

    def checked(self, status: str) -> None:
        """Fail where a function has."""
        self.text.unless(self.text.emit(f"icmp ne i32 {status}, 0"))
