"""Kernels as a person would write them: what `readable` may change, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradof.codegen.export.readable import comment, one_tile, readable, renamed, wrapped
from gradof.errors import CodegenError
from gradof.ir.types import BF16, F32, F64, I64
from tests.codegen.triton_process import run

TEXTS = {"n.py:1": "h = x * x", "n.py:2": "return h.exp()"}


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def shown(text: str, keep: str = "", dtype: str = "", **dtypes: object) -> list[str]:
    """The text made readable; every one-letter name is a float32 unless `dtypes` says otherwise."""
    values = {name: F32 for name in "abdefgh"} | dtypes
    return readable(lines(text), keep.split(), values, TEXTS)  # type: ignore[arg-type]


def test_what_is_read_once_moves_into_what_reads_it() -> None:
    assert shown("""
    c_1 = c
    x = tl.load(x_ptr + c_1 * x_s1, mask=cell, other=0)  # n.py:1
    a = x - 1.0  # n.py:1
    b = a * a  # n.py:1
    h = b * (-2.0)  # n.py:1
    d = h + 0.5  # n.py:2
    tl.store(y_ptr + c_1 * y_s1, d, mask=cell)  # n.py:2
    """, keep="x d", x=F32) == lines("""
    x = tl.load(x_ptr + c * x_s1, mask=cell, other=0)
    # n.py:1: h = x * x
    a = x - 1.0
    h = a * a * -2.0
    # n.py:2: return h.exp()
    d = h + 0.5
    tl.store(y_ptr + c * y_s1, d, mask=cell)
    """)  # fmt: skip


def test_operations_stay_in_their_order() -> None:
    assert shown("""
    a = e + f
    b = e - f
    d = a * b
    g = e / d
    h = -g
    tl.store(y_ptr, h)
    """, keep="h") == lines("""
    h = -(e / ((e + f) * (e - f)))
    tl.store(y_ptr, h)
    """)  # fmt: skip


def test_nothing_moves_into_a_loop_or_out_of_one() -> None:
    text = """
    a = e + f
    acc_h = tl.full((BR, BC), 0, tl.float32)
    for start in range(0, n_columns, BC):
        b = tl.load(x_ptr + start)
        d = a * b
        acc_h = tl.where(cell, acc_h + d, acc_h)
    h = tl.sum(acc_h, axis=1, keep_dims=True)
    tl.store(y_ptr, h * a)
    """
    changed = text.replace("        d = a * b\n", "").replace("acc_h + d", "acc_h + a * b")
    assert shown(text, keep="h") == lines(changed)


def test_what_a_loop_makes_again_is_left_where_it_is_read() -> None:
    assert shown("""
    for start in range(0, n_columns, BC):
        a = tl.load(x_ptr + start)
        d = a * 2.0
        acc_h = acc_h + a
    for start in range(0, n_columns, BC):
        a = tl.load(x_ptr + start)
        d = a * 2.0
        tl.store(y_ptr + start, d)
    """) == lines("""
    for start in range(0, n_columns, BC):
        a = tl.load(x_ptr + start)
        acc_h += a
    for start in range(0, n_columns, BC):
        a = tl.load(x_ptr + start)
        tl.store(y_ptr + start, a * 2.0)
    """)  # fmt: skip


@pytest.mark.parametrize(
    ("code", "better"),
    [
        ("tl.where(cell, a, 0).to(tl.float32)", "tl.where(cell, a, 0)"),
        ("tl.where(cell, a, b).to(tl.float64)", None),
        ("tl.where(cell, 1.0, 0.0).to(tl.float32)", None),  # two numbers: nobody says which dtype
        ("tl.where(cell, w, 0).to(tl.float64)", "tl.where(cell, w, 0)"),
        ("tl.where(cell, w, tl.full((), 0.5, tl.float64)).to(tl.float64)",
         "tl.where(cell, w, 0.5)"),
        ("tl.where(cell, w, tl.full((), 0.1, tl.float64)).to(tl.float64)",
         "tl.where(cell, w, tl.full((), 0.1, tl.float64))"),  # as a float32 it is another number
        ("tl.where(cell, k, 0).to(tl.int64)", "tl.where(cell, k, 0)"),
        ("tl.where(cell, q, 0).to(tl.bfloat16)", None),
        ("tl.where(cell, q.to(tl.float32), 0).to(tl.float32)",
         "tl.where(cell, q.to(tl.float32), 0)"),
        ('tl.where(cell, a, float("-inf")).to(tl.float32)', 'tl.where(cell, a, float("-inf"))'),
    ],
)  # fmt: skip
def test_conversions_of_what_has_the_dtype_are_left_out(code: str, better: str | None) -> None:
    found = shown(f"    h = {code}", keep="h", w=F64, k=I64, q=BF16)
    assert found == []  # nobody reads it
    found = shown(f"    h = {code}\n    tl.store(y_ptr, h)", keep="h", w=F64, k=I64, q=BF16)
    assert found[0] == f"    h = {better or code}"


def test_numbers_of_names_that_are_left_start_at_one() -> None:
    assert shown("""
    a_1 = e + f
    a_2 = a_1 * e
    a_7 = a_2 * a_2
    tl.store(y_ptr, a_7 + a_7)
    """, a_1=F32, a_2=F32, a_7=F32) == lines("""
    a_1 = (e + f) * e
    a_2 = a_1 * a_1
    tl.store(y_ptr, a_2 + a_2)
    """)  # fmt: skip


def test_axes_are_split_without_copies() -> None:
    assert shown("""
    c_2 = c % n2
    rest_c = c // n2
    c_1 = rest_c % n1
    rest_c = rest_c // n1
    c_0 = rest_c
    tl.store(y_ptr + c_0 + c_1 + c_2, 0)
    """) == lines("""
    c_2 = c % n2
    rest_c = c // n2
    c_1 = rest_c % n1
    c_0 = rest_c // n1
    tl.store(y_ptr + c_0 + c_1 + c_2, 0)
    """)  # fmt: skip


def test_one_tile_needs_no_loop_over_tiles() -> None:
    assert one_tile(lines("""
    r0 = tl.program_id(0).to(INDEX) * (BR * TILES) + tl.arange(0, BR)[:, None]
    acc_fold0 = tl.full((1, BC), 0, tl.float32)
    for tile in range(TILES):
        r = r0 + tile * BR
        c = tl.arange(0, BC)
        acc_fold0 = acc_fold0 + r
    c = tl.arange(0, BC)
    tl.store(fold0 + c, acc_fold0)
    """)) == lines("""
    r = tl.program_id(0).to(INDEX) * BR + tl.arange(0, BR)[:, None]
    acc_fold0 = tl.full((1, BC), 0, tl.float32)
    c = tl.arange(0, BC)
    acc_fold0 = acc_fold0 + r
    tl.store(fold0 + c, acc_fold0)
    """)  # fmt: skip
    assert one_tile(["    c = 0"]) == ["    c = 0"]


def test_long_statements_are_broken_in_brackets() -> None:
    names = ", ".join(f"argument_{k}" for k in range(12))
    for text in (f"f({names})", f"{names} = f(x)", f"return {names}", f"y = f(x) + g({names})"):
        found = wrapped(text, 4)
        assert len(found) > 1 and max(map(len, found)) <= 100
        compile("def f():\n" + "\n".join(found), "kernel", "exec")
        joined = "".join(" ".join(found).split()).replace("(", "").replace(")", "")
        assert joined == "".join(text.split()).replace("(", "").replace(")", "")
    assert wrapped("y = x") == ["y = x"]
    with pytest.raises(CodegenError, match="cannot break the line"):
        wrapped("assert " + " and ".join(["argument"] * 20))


def test_names_are_replaced_and_nothing_else() -> None:
    text = 'x = tl.load(x_ptr)  # x of "x"\ny = x.x + "x"'
    assert renamed(text, {"x": "w"}) == 'w = tl.load(x_ptr)  # x of "x"\ny = w.w + "x"'


def test_lines_of_the_users_fit() -> None:
    assert comment("n.py:1", "", 4) == "    # n.py:1"
    assert comment("n.py:1", "h  =  x", 0) == "# n.py:1: h = x"
    found = comment("n.py:1", "h = " + "x + " * 40, 8)
    assert len(found) == 100 and found.endswith(" ...")


@pytest.mark.long
def test_kernels_of_exported_files_compile_to_ptx(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="triton is not installed: pip install 'gradof[triton]'")
    found = run("triton_exported", "90", tmp_path, interpret=False)
    assert len(found) == 30
    assert min(found.values()) >= 2  # f and df
