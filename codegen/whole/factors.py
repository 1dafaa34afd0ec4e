"""Factorisations of matrices in rows, as functions of LLVM IR, of any size.

    i32 lu(ptr a, ptr pivots, i64 n)                     a becomes L and U; 1 where a pivot is 0
    i32 lu_solve(ptr lu, ptr pivots, ptr b, i64 n, i64 m)   b, n x m, becomes the solution
    T det(ptr a, ptr pivots, i64 n)                      a is overwritten
    i32 cholesky(ptr a, i64 n)                           a becomes L; 1 where it is not positive
    i32 lower(ptr a, ptr b, i64 n, i64 m), i32 upper     b becomes the solution
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gradof.codegen.machine.llvm_types import ELEMENT
from gradof.codegen.whole.text import Single, Text, constant
from gradof.ir.types import I64, DType


class _Function:
    """One function being written: cells of matrices of numbers of a dtype."""

    def __init__(self, dtype: DType) -> None:
        self.text = Text()
        self.one = Single(self.text)
        self.dtype = dtype

    def at(self, base: str, i: str, width: str, j: str) -> str:
        """The address of cell (i, j) of a matrix with so many columns."""
        row = self.text.emit(f"mul i64 {i}, {width}")
        return self.text.at(base, self.text.emit(f"add i64 {row}, {j}"), self.dtype)

    def get(self, base: str, i: str, width: str, j: str) -> str:
        return self.text.load(self.at(base, i, width, j), self.dtype)

    def put(self, value: str, base: str, i: str, width: str, j: str) -> None:
        self.text.store(value, self.at(base, i, width, j), self.dtype)

    def span(self, start: str, stop: str, body: Callable[[str], None]) -> None:
        """The body for each number from start to before stop."""
        count = self.text.emit(f"sub i64 {stop}, {start}")
        self.text.loop(count, lambda i: body(self.text.emit(f"add i64 {i}, {start}")))

    def down(self, stop: str, body: Callable[[str], None]) -> None:
        """The body for each number before stop, the last first."""

        def step(i: str) -> None:
            less = self.text.emit(f"sub i64 {stop}, {i}")
            body(self.text.emit(f"add i64 {less}, -1"))

        self.text.loop(stop, step)

    def less(self, base: str, i: str, width: str, j: str, factor: str, other: str) -> None:
        """Cell (i, j) less factor times another number."""
        minus = self.text.emit(f"fneg {ELEMENT[self.dtype]} {factor}")
        old = self.get(base, i, width, j)
        self.put(self.one.intrinsic("fma", self.dtype, [minus, other, old]), base, i, width, j)

    def op(self, word: str, a: str, b: str) -> str:
        """An instruction."""
        return self.one.binary(word, self.dtype, [a, b])

    def swap(self, base: str, i: str, k: str, width: str) -> None:
        """Two rows, which may be one."""

        def cell(j: str) -> None:
            a, b = self.get(base, i, width, j), self.get(base, k, width, j)
            self.put(b, base, i, width, j)
            self.put(a, base, k, width, j)

        self.text.loop(width, cell)

    def whole(self, name: str, head: str, last: str = "  ret i32 0", fails: str = "i32 1") -> str:
        """The text of the function."""
        lines = "\n".join(self.text.lines)
        fail = f"fail:\n  ret {fails}\n" if "label %fail" in lines else ""
        result = head.split("@", 1)
        declared = "\n".join(self.text.declared.values())
        return (
            f"define internal {result[0]}@{name}({result[1]}) {{\nentry:\n{lines}\n{last}\n{fail}}}"
            + (f"\n{declared}" if declared else "")
        )


def _lu_steps(f: _Function, count_swaps: bool) -> str | None:
    """LU of %a in place; the sign of the permutation where it is asked for."""
    text, kind = f.text, ELEMENT[f.dtype]

    def column(k: str, given: list[str]) -> list[str]:
        first = f.one.intrinsic("fabs", f.dtype, [f.get("%a", k, "%n", k)])
        after = text.emit(f"add i64 {k}, 1")
        rest = text.emit(f"sub i64 %n, {after}")

        def look(i: str, best: list[str]) -> list[str]:
            at = text.emit(f"add i64 {i}, {after}")
            size = f.one.intrinsic("fabs", f.dtype, [f.get("%a", at, "%n", k)])
            more = text.emit(f"fcmp ogt {kind} {size}, {best[0]}")
            return [text.emit(f"select i1 {more}, {kind} {size}, {kind} {best[0]}"),
                    text.emit(f"select i1 {more}, i64 {at}, i64 {best[1]}")]  # fmt: skip

        _, pivot = text.carried(rest, [(kind, first), ("i64", k)], look)
        text.store(pivot, text.at("%p", k, I64), I64)
        f.swap("%a", k, pivot, "%n")
        head = f.get("%a", k, "%n", k)
        text.unless(text.emit(f"fcmp oeq {kind} {head}, {constant(0, f.dtype)}"))

        def row(i: str) -> None:
            factor = f.op("fdiv", f.get("%a", i, "%n", k), head)
            f.put(factor, "%a", i, "%n", k)
            f.span(after, "%n", lambda j: f.less(
                "%a", i, "%n", j, factor, f.get("%a", k, "%n", j)
            ))  # fmt: skip

        f.span(after, "%n", row)
        if not count_swaps:
            return given
        same = text.emit(f"icmp eq i64 {pivot}, {k}")
        other = text.emit(f"fneg {kind} {given[0]}")
        sign = text.emit(f"select i1 {same}, {kind} {given[0]}, {kind} {other}")
        return [f.op("fmul", sign, head)]

    begin = [(kind, constant(1, f.dtype))] if count_swaps else []
    found = text.carried("%n", begin, column)
    return found[0] if found else None


def _lu(name: str, dtype: DType) -> str:
    f = _Function(dtype)
    _lu_steps(f, count_swaps=False)
    return f.whole(name, "i32 @ptr %a, ptr %p, i64 %n")


def _det(name: str, dtype: DType) -> str:
    f = _Function(dtype)
    found, kind = _lu_steps(f, count_swaps=True), ELEMENT[dtype]
    return f.whole(
        name, f"{kind} @ptr %a, ptr %p, i64 %n", f"  ret {kind} {found}",
        f"{kind} {constant(0, dtype)}",
    )  # fmt: skip


def _forward(f: _Function, divides: bool) -> None:
    def row(i: str) -> None:
        def term(k: str) -> None:
            factor = f.get("%a", i, "%n", k)
            f.text.loop("%m", lambda j: f.less(
                "%b", i, "%m", j, factor, f.get("%b", k, "%m", j)
            ))  # fmt: skip

        f.text.loop(i, term)
        if divides:
            _divide(f, i)

    f.text.loop("%n", row)


def _backward(f: _Function) -> None:
    def row(i: str) -> None:
        after = f.text.emit(f"add i64 {i}, 1")

        def term(k: str) -> None:
            factor = f.get("%a", i, "%n", k)
            f.text.loop("%m", lambda j: f.less(
                "%b", i, "%m", j, factor, f.get("%b", k, "%m", j)
            ))  # fmt: skip

        f.span(after, "%n", term)
        _divide(f, i)

    f.down("%n", row)


def _divide(f: _Function, i: str) -> None:
    head = f.get("%a", i, "%n", i)
    f.text.unless(f.text.emit(f"fcmp oeq {ELEMENT[f.dtype]} {head}, {constant(0, f.dtype)}"))
    f.text.loop("%m", lambda j: f.put(
        f.op("fdiv", f.get("%b", i, "%m", j), head), "%b", i, "%m", j
    ))  # fmt: skip


def _lu_solve(name: str, dtype: DType) -> str:
    f = _Function(dtype)
    f.text.loop("%n", lambda k: f.swap("%b", k, f.text.load(f.text.at("%p", k, I64), I64), "%m"))
    _forward(f, divides=False)
    _backward(f)
    return f.whole(name, "i32 @ptr %a, ptr %p, ptr %b, i64 %n, i64 %m")


def _lower(name: str, dtype: DType) -> str:
    f = _Function(dtype)
    _forward(f, divides=True)
    return f.whole(name, "i32 @ptr %a, ptr %b, i64 %n, i64 %m")


def _upper(name: str, dtype: DType) -> str:
    f = _Function(dtype)
    _backward(f)
    return f.whole(name, "i32 @ptr %a, ptr %b, i64 %n, i64 %m")


def _cholesky(name: str, dtype: DType) -> str:
    f = _Function(dtype)
    text, kind, zero = f.text, ELEMENT[dtype], constant(0, dtype)

    def left(i: str, j: str) -> str:
        """Cell (i, j) less what the columns before j make of it."""

        def term(k: str, given: list[str]) -> list[str]:
            minus = text.emit(f"fneg {kind} {f.get('%a', i, '%n', k)}")
            return [f.one.intrinsic("fma", dtype, [minus, f.get("%a", j, "%n", k), given[0]])]

        return text.carried(j, [(kind, f.get("%a", i, "%n", j))], term)[0]

    def column(j: str) -> None:
        square = left(j, j)
        text.unless(text.emit(f"fcmp ule {kind} {square}, {zero}"))
        root = f.one.intrinsic("sqrt", dtype, [square])
        f.put(root, "%a", j, "%n", j)
        after = text.emit(f"add i64 {j}, 1")

        def below(i: str) -> None:
            f.put(f.op("fdiv", left(i, j), root), "%a", i, "%n", j)
            f.put(zero, "%a", j, "%n", i)

        f.span(after, "%n", below)

    text.loop("%n", column)
    return f.whole(name, "i32 @ptr %a, i64 %n")


FACTORS: Mapping[str, Callable[[str, DType], str]] = {
    "lu": _lu, "lu_solve": _lu_solve, "det": _det, "cholesky": _cholesky, "lower": _lower,
    "upper": _upper,
}  # fmt: skip
