"""Scaling by a power of two: left to another number or a smaller factor, without a bit's change."""

from __future__ import annotations

import re

import numpy as np
import pytest

from gradof.codegen.host.evaluate import interpret
from gradof.ir.parser import parse_graph
from gradof.ir.verify import verify
from gradof.passes.pipeline import run_passes

# (statements of %z, the arithmetic that is left), for x and y of 4 rows, r a number of each row
CASES = [
    ("%a = mul(%x, 2.0); %z = mul(%a, 0.1)", "%z = mul(%x, 0.2)"),
    ("%a = mul(%x, 0.3); %z = mul(-8, %a)", "%z = mul(%x, -2.4)"),
    ("%a = mul(%x, 3.0); %z = div(%a, 4)", "%z = mul(%x, 0.75)"),
    ("%a = mul(%x, 4.0); %z = div(%a, 3.0)", "%z = div(%x, 0.75)"),
    ("%a = div(%x, 1000); %z = mul(%a, 2)", "%z = div(%x, 500.0)"),
    ("%a = div(%x, 8.0); %z = mul(%a, 0.7)", "%z = mul(%x, 0.0875)"),
    ("%a = div(%x, 0.7); %z = div(%a, 0.5)", "%z = div(%x, 0.35)"),
    ("%a = neg(%x); %z = div(%a, 3.0)", "%z = div(%x, -3.0)"),
    ("%a = mul(%x, 0.3); %z = neg(%a)", "%z = mul(%x, -0.3)"),
    ("%a = mul(%x, 0.1); %b = mul(%y, %a); %z = mul(%b, 2.0)",
     "%c = mul(%x, 0.2); %z = mul(%c, %y)"),
    ("%a = mul(%r, %x); %z = mul(%a, 2.0)", "%b = mul(%r, 2.0); %z = mul(%b, %x)"),
    ("%a = mul(%x, %r); %z = neg(%a)", "%b = neg(%r); %z = mul(%b, %x)"),
    ("%a = mul(%x, 0.25); %z = mul(%a, %r)", "%b = mul(%r, 0.25); %z = mul(%b, %x)"),
    ("%q = mul(%r, 0.1); %a = mul(%q, %x); %z = div(%a, 2.0)",
     "%c = mul(%r, 0.05); %z = mul(%c, %x)"),
    ("%q = exp(%r); %p = mul(%q, 0.1); %o = mul(%q, %p); %a = mul(%o, %x); %z = mul(%a, 2.0)",
     "%q = exp(%r); %c = mul(%q, 0.2); %o = mul(%c, %q); %z = mul(%o, %x)"),
    ("%a = neg(%x); %s = sum[dims=(1,), keepdims=True](%a); %z = mul(%s, %y)",
     "%s = sum[dims=(1,), keepdims=True](%x); %b = neg(%s); %z = mul(%b, %y)"),
    ("%a = mul(%x, 0.5); %s = sum_to[shape=(4, 1)](%a); %b = div(%s, 3.0); %z = mul(%b, %x)",
     "%s = sum_to[shape=(4, 1)](%x); %b = div(%s, 6.0); %z = mul(%b, %x)"),
    ("%a = mul(%x, 2.0); %b = sin(%a); %c = mul(%a, 0.1); %z = add(%b, %c)",
     "%a = mul(%x, 2.0); %b = sin(%a); %c = mul(%x, 0.2); %z = add(%b, %c)"),
]  # fmt: skip
LEFT = [
    "%a = mul(%x, 3.0); %z = mul(%a, 0.1)",  # rounded twice
    "%a = mul(%x, 0.0); %z = mul(%a, 2.0)",
    "%a = mul(%x, 1e300); %z = mul(%a, 2.0)",  # infinite in float32
    "%a = div(2.0, %x); %z = mul(%a, 2.0)",  # no scaling of x
    "%a = mul(%x, %y); %z = mul(%a, 2.0)",
    "%a = mul(%r, %x); %z = mul(%a, 3.0)",
    "%a = mul(%r, %x); %z = mul(%a, 65536.0)",  # numbers of rows might be out of range
    "%a = mul(%r, %x); %b = mul(%a, 2.0); %z = add(%a, %b)",  # would be one op more
    "%q = mul(%x, 0.1); %a = mul(%q, %y); %b = mul(%a, 2.0); %z = add(%b, %q)",
    "%a = neg(%x); %s = sum[dims=(1,), keepdims=True](%a); %z = mul(%s, %a)",
    "%a = mul(%x, 3.0); %s = sum[dims=(1,), keepdims=True](%a); %z = mul(%s, %x)",
]
HEAD = "graph f(%x : {d}[4,5], %y : {d}[4,5], %r : {d}[4,1]):\n"


def text_of(statements: str, dtype: str) -> str:
    """IR, with the numbers as constants and the types of results."""
    lines, rows = [], {"%r"}
    for k, statement in enumerate(statements.split("; ")):
        name, rest = statement.split(" = ")
        for number in re.findall(r"-?\d[\w.]*", rest[rest.rindex("(") :]):
            kind = "int" if number.lstrip("-").isdigit() else "float"
            lines.append(f"%n{k} : {kind} = Constant[value={number}]()")
            rest = rest.replace(f"{number})", f"%n{k})").replace(f"({number},", f"(%n{k},")
        if "sum" in rest or all(a in rows for a in re.findall(r"%[a-z]\b", rest)):
            rows.add(name)
        lines.append(f"{name} : {dtype}[4,{1 if name in rows else 5}] = {rest}")
    return HEAD.format(d=dtype) + "\n".join(f"  {line}" for line in [*lines, "return (%z)"])


def arithmetic(statements: str, dtype: str, passes: bool) -> list[tuple[str, tuple[float, ...]]]:
    """Each op with its numbers, after the passes."""
    graph = parse_graph(text_of(statements, dtype))
    if passes:
        run_passes(graph, ["canonicalize", "eliminate-dead-code"])
        verify(graph)
    found = []
    for node in graph.nodes():
        numbers = [v.node.attrs["value"] for v in node.inputs
                   if v.node is not None and v.node.kind == "Constant"]  # fmt: skip
        if node.kind != "Constant":
            found.append((node.kind, tuple(round(float(n), 9) for n in numbers)))  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(("statements", "want"), CASES)
def test_one_number_scales_and_no_bit_changes(statements: str, want: str, dtype: str) -> None:
    assert arithmetic(statements, dtype, True) == arithmetic(want, dtype, False)
    rng = np.random.default_rng(0)
    kind = {"f32": np.float32, "f64": np.float64}[dtype]
    special = [0.0, -0.0, np.inf, -np.inf, np.nan]
    given = [rng.standard_normal(s).astype(kind) for s in ((4, 5), (4, 5), (4, 1))]
    given[0][1] = special
    graph = parse_graph(text_of(statements, dtype))
    with np.errstate(all="ignore"):
        before = interpret(graph, given)[0]
        run_passes(graph, ["canonicalize", "eliminate-dead-code"])
        after = interpret(graph, given)[0]
    np.testing.assert_array_equal(after, before)
    signs = ~np.isnan(before)
    np.testing.assert_array_equal(np.signbit(after[signs]), np.signbit(before[signs]))


@pytest.mark.parametrize("statements", LEFT)
def test_what_would_be_rounded_otherwise_or_take_longer_stays(statements: str) -> None:
    assert arithmetic(statements, "f32", True) == arithmetic(statements, "f32", False)


def test_half_precision_stays_as_it_is_written() -> None:
    for dtype in ("f16", "bf16"):  # of whose numbers a sixteenth is soon out of range
        assert arithmetic(CASES[0][0], dtype, True) == arithmetic(CASES[0][0], dtype, False)
