"""The loop IR: its table of instructions, its verifier, its text form and its meaning."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from gradof.codegen.loops.instructions import INSTRUCTIONS, TARGETS, is_elementwise, takes
from gradof.codegen.loops.interpret import run_nest
from gradof.codegen.loops.ir import LEVELS, Buffer, Instr, LoopNest
from gradof.codegen.loops.passes.run import NestPass, run_nest_passes
from gradof.codegen.loops.text import parse_nest, print_nest
from gradof.codegen.loops.verify import verify_nest
from gradof.errors import ParseError, VerifyError
from gradof.ir.attrs import same_attr
from gradof.ir.core import Loc
from gradof.ir.types import all_dtypes

RMS = """nest rms over rows (4,), columns (3,)
  in 0: x : f32[4,3] dims (0, 1) reads 1
  in 1: w : f32[3] dims (None, 0) reads 0
  out 0: y : f32[4,3] dims (0, 1)
  out 1: '' : f32[3] dims (None, 0)
  %x0 = load[buffer=0] : f32 cell 0  # model.py:3
  %q = square %x0 : f32 cell 0 held
  %s = reduce[kind='sum'] %q : f32 row 1
  %m = div %s 3.0 : f32 row 1
  %r = rsqrt %m : f32 row 1
  %w0 = load[buffer=1] : f32 cell 0
  %n = mul %x0 %r : f32 cell 1
  %y = mul %n %w0 : f32 cell 1
  store[buffer=0] %y : f32 cell 1  # model.py:4
  fold[kind='sum', buffer=1] %y : f32 cell 1
"""
PICK = """nest picked over rows (2,), columns (3,)
  in 0: x : f32[2,3] dims (0, 1)
  in 1: t : i64[2] dims (0, None)
  out 0: '' : f32[2] dims (0, None)
  %t = load[buffer=1] : i64 row 0
  %p = pick %t : f32 row 0
    body
      %x = load[buffer=0] : f32 cell 0
      %y = exp %x : f32 cell 0
    end
  store[buffer=0] %p : f32 row 0
"""


def identical(a: LoopNest, b: LoopNest) -> bool:
    """Equal, with the numbers' types and signs."""
    return a == b and all(map(_same, a.body, b.body))


def _same(a: Instr, b: Instr) -> bool:
    attrs = all(same_attr(v, b.attrs[k]) for k, v in a.attrs.items())
    return attrs and same_attr(a.args, b.args) and all(map(_same, a.body, b.body))


# --- the table -----------------------------------------------------------------------------------


def test_no_instruction_has_the_name_of_an_elementwise_op() -> None:
    assert [name for name in INSTRUCTIONS if is_elementwise(name)] == []
    assert all(i.doc.endswith(".") and i.targets for i in INSTRUCTIONS.values())


def test_every_instruction_has_a_meaning_or_writes_an_output() -> None:
    assert {i.name for i in INSTRUCTIONS.values() if i.meaning is None} == {"store", "fold"}


def test_targets_take_what_the_table_says() -> None:
    everywhere = {name for name in INSTRUCTIONS if all(takes(t, name) for t in TARGETS)}
    assert everywhere == {"load", "store", "fold", "index", "reduce"}
    assert takes("llvm", "pick") and not takes("triton", "pick") and not takes("llvm", "place")


# --- the verifier --------------------------------------------------------------------------------

BROKEN = {
    "an unknown op": ("square %x0", "squares %x0", "unknown instruction 'squares'"),
    "order": ("div %s 3.0", "div %y 3.0", "y is read before it is made"),
    "a second maker": ("%q = square", "%x0 = square", "x0 is made twice"),
    "a buffer that is not": ("load[buffer=1]", "load[buffer=2]", "buffer 2 of 2"),
    "an attribute that is not": ("load[buffer=1]", "load[buffer=1, far=1]", "far that nobody"),
    "no attribute": ("reduce[kind='sum']", "reduce", "reduce has no attribute kind"),
    "no kind": ("reduce[kind='sum']", "reduce[kind='mean']", "no kind of reduction: 'mean'"),
    "a kind of another type": ("reduce[kind='sum']", "reduce[kind=1]", "kind of reduce is 1"),
    "the level": ("%n = mul %x0 %r : f32 cell 1", "%n = mul %x0 %r : f32 row 1", "level cell"),
    "the level of axes": ("%x0 = load[buffer=0] : f32 cell", "%x0 = load[buffer=0] : f32 row",
                          "level cell"),
    "the level of a reduction": ("%q : f32 row 1", "%q : f32 cell 1", "reduce gives a row"),
    "the stage": ("rsqrt %m : f32 row 1", "rsqrt %m : f32 row 0", "from stage 1 on"),
    "the stage of a reduction": ("%q : f32 row 1", "%q : f32 row 0", "from stage 1 on"),
    "a stage of what does not vary": ("div %s 3.0 : f32 row 1", "div %s 3.0 : f32 once 1",
                                      "once 1 is no level and stage"),
    "the dtype": ("%y = mul %n %w0 : f32", "%y = mul %n %w0 : f64", "mul gives f32, not f64"),
    "the dtype of a buffer": ("%w0 = load[buffer=1] : f32", "%w0 = load[buffer=1] : f64",
                              "f64 of w, which is f32"),
    "the dtype of what is stored": ("store[buffer=0] %y : f32", "store[buffer=0] %y : i64",
                                    "i64 of y, which is f32"),
    "too few operands": ("square %x0", "square", "square"),
    "an operand of none": ("load[buffer=1]", "load[buffer=1, axis=0]", "the axis along which"),
    "an output that nothing writes": ("  store[buffer=0] %y : f32 cell 1  # model.py:4\n", "",
                                      "output 0 is to be written"),
    "an output that is written twice": ("fold[kind='sum', buffer=1]", "fold[kind='sum', buffer=0]",
                                        "output 0 has axes that the fold has not"),
    "held": ("row 1\n  %m", "row 1 held\n  %m", "s is held, and no cell"),
    "a size": ("f32[3] dims (None, 0) reads 0", "f32[4] dims (None, 0) reads 0",
               "input 1 has 4 cells along axis 1 of 3"),
    "dims": ("dims (0, 1) reads 1", "dims (0, 0) reads 1", "input 0 has the dims"),
    "too few dims": ("dims (None, 0) reads 0", "dims (0,) reads 0", "1 dims for 2 axes"),
    "a window of an output": ("dims (0, 1)\n  out 1", "dims (0, 1) windows ((1, 0, 3),)\n  out 1",
                              "output 0 has a window"),
    "a longer input": ("dims (None, 0) reads 0", "dims (None, 0) times ((1, 2),) reads 0",
                       "input 1 is"),
    "parts": ("f32[4,3] dims (0, 1)\n  out", "f32[4,6] dims (0, 1) times ((1, 2),)\n  out",
              "output 0 has its parts along axis 1"),
}  # fmt: skip


def test_nests_that_keep_the_rules_pass() -> None:
    for text in (RMS, PICK):
        verify_nest(parse_nest(text))


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_named(name: str) -> None:
    old, new, message = BROKEN[name]
    assert RMS.count(old) == 1
    with pytest.raises(VerifyError) as caught:
        verify_nest(parse_nest(RMS.replace(old, new)), after="a-pass")
    assert message in str(caught.value) and "loop nest rms after a-pass" in str(caught.value)


def test_the_instruction_at_fault_is_shown_with_its_line() -> None:
    with pytest.raises(VerifyError) as caught:
        verify_nest(parse_nest(RMS.replace("load[buffer=0]", "load[buffer=7]")))
    assert "> %x0 = load[buffer=7] : f32 cell 0  # model.py:3" in str(caught.value)
    assert "model.py:3" in str(caught.value.loc)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("exp %x : f32 cell", "exp %z : f32 cell", "z is read before it is made"),
        ("%y = exp %x : f32 cell 0", "%y = gt %x 0.0 : bool cell 0", "its body gives bool"),
        ("pick %t", "pick %t %t", "not 2 operands"),
        ("pick %t : f32 row", "pick %t : f32 cell", "pick gives a row"),
        ("%x = load[buffer=0] : f32 cell", "%x = load[buffer=1] : i64 row", "no cell of a body"),
    ],
)
def test_bodies_are_checked(old: str, new: str, message: str) -> None:
    assert PICK.count(old) == 1
    with pytest.raises(VerifyError, match=message):
        verify_nest(parse_nest(PICK.replace(old, new)))


def test_a_target_is_given_what_it_takes() -> None:
    nest = parse_nest(PICK)
    for target in ("tiles", "llvm"):
        verify_nest(nest, target)
    with pytest.raises(VerifyError, match="triton does not take 'pick'"):
        verify_nest(nest, "triton")


def test_a_pass_that_breaks_a_nest_is_named() -> None:
    def breaks(nest: LoopNest) -> LoopNest:
        return parse_nest(RMS.replace("square", "squares"))

    passes = [NestPass("nothing", lambda nest: nest, ""), NestPass("breaks", breaks, "")]
    with pytest.raises(VerifyError, match="loop nest rms after breaks"):
        run_nest_passes(parse_nest(RMS), passes, "llvm")


# --- text ----------------------------------------------------------------------------------------

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True)
NUMBERS = st.one_of(
    st.booleans(), st.integers(), st.floats(allow_nan=False),
    st.sampled_from([math.inf, -math.inf, -0.0, 5e-324]),
)  # fmt: skip
SIMPLE = st.one_of(NUMBERS, st.text(max_size=4), st.none(), st.sampled_from(all_dtypes()))
ATTRS = st.dictionaries(NAMES, st.one_of(SIMPLE, st.tuples(SIMPLE), st.tuples(SIMPLE, SIMPLE)),
                        max_size=3)  # fmt: skip
LOCS = st.one_of(st.none(), st.builds(Loc, st.sampled_from(["a.py", "/x y/b.py", "<stdin>"]),
                                      st.integers(0, 10**6)))  # fmt: skip


@st.composite
def instrs(draw: DrawFn, depth: int = 1) -> Instr:
    """An instruction that need not make sense, but prints every construct."""
    body = draw(st.lists(instrs(depth - 1), max_size=2)) if depth else []
    args = draw(st.lists(st.one_of(NAMES, NUMBERS), max_size=3))
    return Instr(
        draw(st.one_of(st.just(""), NAMES)), draw(st.sampled_from(["load", "mul", "pick", "a.b"])),
        tuple(args), draw(st.sampled_from(all_dtypes())), draw(st.sampled_from(LEVELS)),
        draw(st.integers(0, 9)), draw(ATTRS), draw(LOCS), tuple(body),
    )  # fmt: skip


@st.composite
def buffers(draw: DrawFn, axes: int) -> Buffer:
    """Any buffer: names of the user's may be any text."""
    sizes = st.integers(0, 10**9)
    return Buffer(
        draw(st.one_of(NAMES, st.text(max_size=5), st.sampled_from(["inf", "nan", "in", "a.b"]))),
        draw(st.sampled_from(all_dtypes())), tuple(draw(st.lists(sizes, max_size=3))),
        tuple(draw(st.lists(st.one_of(st.none(), sizes), min_size=axes, max_size=axes))),
        tuple(draw(st.lists(st.tuples(sizes, sizes, sizes), max_size=2))),
        tuple(draw(st.lists(st.tuples(sizes, sizes), max_size=2))),
    )  # fmt: skip


@st.composite
def nests(draw: DrawFn) -> LoopNest:
    """Any nest that can be written."""
    sizes = tuple(draw(st.lists(st.integers(0, 99), max_size=3)))
    inputs = draw(st.lists(buffers(len(sizes)), max_size=2))
    n = len(inputs) * draw(st.booleans())
    body = draw(st.lists(instrs(), max_size=4))
    named = [i.name for i in body]  # held: each name once, by its instruction
    held = {i.name for i in body if draw(st.booleans()) and named.count(i.name) == 1}
    return LoopNest(
        draw(NAMES), sizes, draw(st.integers(0, len(sizes))), tuple(inputs),
        tuple(draw(st.lists(buffers(len(sizes)), max_size=2))), tuple(body), frozenset(held),
        tuple(draw(st.lists(st.integers(0, 9), min_size=n, max_size=n))),
    )  # fmt: skip


@settings(max_examples=150)
@given(nests())
def test_text_reads_back_as_the_nest(nest: LoopNest) -> None:
    text = print_nest(nest)
    again = parse_nest(text)
    assert identical(again, nest) and print_nest(again) == text


def test_the_text_of_a_nest() -> None:
    for text in (RMS, PICK):
        assert print_nest(parse_nest(text)) == text
    assert "model.py" not in print_nest(parse_nest(RMS), locs=False)


@pytest.mark.parametrize(
    ("old", "new", "message", "at"),
    [
        ("nest rms", "rms", "expected 'nest', found 'rms'", (1, 1)),
        ("rows (4,)", "rows 4", "expected a tuple of whole numbers, found '4'", (1, 20)),
        ("in 1:", "in 2:", "expected number 1, found '2'", (3, 6)),
        ("x : f32[4,3]", "x : q32[4,3]", "unknown type 'q32'", (2, 13)),
        ("%q = square %x0", "%q square %x0", "expected '=', found 'square'", (7, 6)),
        ("square %x0 : f32", "square %x0 : g32", "unknown dtype 'g32'", (7, 21)),
        ("%x0 : f32 cell 0 held", "%x0 : f32 column 0", "expected one of once, row, cell", (7, 25)),
        ("div %s 3.0", "div %s 'a'", "expected a value or a number, found", (9, 15)),
        ("row 1\n  %m", "row first\n  %m", "expected a stage, found 'first'", (8, 40)),
        (" reads 0", "", "either every input or none", (6, 3)),
        ("dims (0, 1) reads", "dims 0 reads", "expected a tuple", (2, 27)),
    ],
)
def test_text_that_is_no_nest(old: str, new: str, message: str, at: tuple[int, int]) -> None:
    assert RMS.count(old) == 1
    with pytest.raises(ParseError) as caught:
        parse_nest(RMS.replace(old, new), "a.nest")
    assert message in str(caught.value) and "a.nest:" in str(caught.value)
    assert (caught.value.line, caught.value.column) == at


def test_a_body_that_does_not_end() -> None:
    with pytest.raises(ParseError, match="expected 'end', found 'end of text'"):
        parse_nest(PICK[: PICK.index("    end")])


# --- meaning -------------------------------------------------------------------------------------

X = np.array([[1, -2, 0.5, 3], [0, 4, -1, 2]], np.float32)
G = np.array([[0.5, 1, -1, 2], [1, 1, 3, -2]], np.float32)
AT = np.array([[2], [7]], np.int64)  # no row has a column 7
MEAN = X.mean(1, keepdims=True)
INVERSE = 1 / np.sqrt(X.var(1, keepdims=True) + np.float32(1e-3))
SOFTMAX = np.exp(X) / np.exp(X).sum(1, keepdims=True)


def _grad(g: Any, x: Any) -> Any:
    """The gradient of a layer norm without a weight, by its Jacobian in float64."""
    result = np.zeros_like(x, np.float64)
    for row, (gr, xr) in enumerate(zip(g.astype(np.float64), x.astype(np.float64), strict=True)):
        n, c = len(xr), xr - xr.mean()
        r = 1 / np.sqrt(c @ c / n + 1e-3)
        jacobian = r * (np.eye(n) - 1 / n) - r**3 / n * np.outer(c, c)
        result[row] = jacobian @ gr
    return result


MEANINGS: dict[str, tuple[str, Sequence[Any], Any]] = {
    "total": ("total[kind='sum'] %a : f32 row 1", (X,), X.sum(1, keepdims=True)),
    "dot": ("dot[kind='sum'] %a %b : f32 row 1", (X, G), (X * G).sum(1, keepdims=True)),
    "place": ("place %a %b %c : f32 cell 0", (X, AT, MEAN),
              X + np.array([[0, 0, MEAN[0, 0], 0], [0] * 4])),
    "addcmul": ("addcmul[by=-2.0] %a %b 3.0 : f32 cell 0", (X, G), X - 6 * G),
    "addcdiv": ("addcdiv[by=0.5] 1.0 %a %b : f32 cell 0", (X, G), 1 + 0.5 * X / G),
    "softmax": ("softmax %a : f32 cell 1", (X,), SOFTMAX),
    "softmax_grad": ("softmax_grad %a %b : f32 cell 1", (G, SOFTMAX),
                     SOFTMAX * (G - (G * SOFTMAX).sum(1, keepdims=True))),
    "layer_norm": ("layer_norm[eps=0.001] %a %b : f32 cell 1", (X, G), (X - MEAN) * INVERSE * G),
    "layer_norm_grad": (
        "layer_norm_grad[mean=True, weight=False, sum=False, cells=True, check=False]"
        " %a %b %c %d : f32 cell 1", (G, X, INVERSE, MEAN), _grad(G, X)),
    "rounded": ("rounded[dtype=bf16, any_nan=True] %a : f32 cell 0", (X + np.float32(1 / 512),),
                X + np.array([[0, 0, 0, 0], [1 / 512, 0, 0, 0]])),
    "reduce": ("reduce[kind='max'] %a : f32 row 1", (X,), X.max(1, keepdims=True)),
    "in_range": ("in_range[size=9, wraps=True, error='index'] %a : i64 row 0",
                 (np.array([[-1], [8]]),), np.array([[8], [8]])),
    "index": ("index[axis=1] : i64 cell 0", (), np.array([[0, 1, 2, 3]] * 2)),
}  # fmt: skip


def nest_of(line: str, arrays: Sequence[Any]) -> LoopNest:
    """A nest that stores what one instruction gives for arrays of 2 rows."""
    text = "nest one over rows (2,), columns (4,)\n"
    for k, a in enumerate(arrays):
        dims = "(0, 1)" if a.shape[1] > 1 else "(0, None)"
        shape, dtype = ",".join(map(str, a.shape)), "i64" if a.dtype.kind == "i" else "f32"
        text += f"in {k}: '' : {dtype}[{shape}] dims {dims}\n"
    level, stage = line.split()[-2:]
    out = "(0, 1)" if level == "cell" else "(0, None)"
    dtype = line.split()[-3]
    text += f"out 0: '' : {dtype}[{'2,4' if level == 'cell' else '2,1'}] dims {out}\n"
    for k, a in enumerate(arrays):
        kind = "i64" if a.dtype.kind == "i" else "f32"
        where = "cell" if a.shape[1] > 1 else "row"
        text += f"%{'abcd'[k]} = load[buffer={k}] : {kind} {where} 0\n"
    return parse_nest(f"{text}%v = {line}\nstore[buffer=0] %v : {dtype} {level} {stage}\n")


@pytest.mark.parametrize("op", MEANINGS)
def test_instructions_mean_what_the_table_says(op: str) -> None:
    line, arrays, want = MEANINGS[op]
    nest = nest_of(line, arrays)
    verify_nest(nest)
    (have,) = run_nest(nest, arrays)
    assert have.dtype == (np.int64 if " : i64 " in line else np.float32)
    np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)


def test_every_instruction_of_tiles_has_its_meaning_tried() -> None:
    """Those that move cells are tried by every other test."""
    others = {"load", "store", "fold", "pick", "inverse_deviation", "exp_sum"}
    assert set(MEANINGS) | others == set(INSTRUCTIONS)


EXP_SUM = """nest lse over rows (2,), columns (4,)
  in 0: x : f32[2,4] dims (0, 1)
  out 0: '' : f32[2,1] dims (0, None)
  %x = load[buffer=0] : f32 cell 0
  %m = reduce[kind='max'] %x : f32 row 1
  %s = exp_sum %x %m : f32 row 1
  store[buffer=0] %s : f32 row 1
"""


def test_an_exp_sum_is_known_with_the_maximum_it_is_beside() -> None:
    nest = parse_nest(EXP_SUM)
    verify_nest(nest)
    (have,) = run_nest(nest, [X])
    want = np.exp(X - X.max(1, keepdims=True)).sum(1, keepdims=True)
    np.testing.assert_allclose(have, want, rtol=1e-6)
    with pytest.raises(VerifyError, match="m is to be the largest x of the row"):
        verify_nest(parse_nest(EXP_SUM.replace("'max'", "'sum'")))


def test_a_pick_is_zero_where_the_row_has_no_such_column() -> None:
    x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    (have,) = run_nest(parse_nest(PICK), [x, np.array([2, -1])])
    np.testing.assert_allclose(have, [np.exp(np.float32(3)), 0], rtol=1e-6)


def test_the_nest_of_the_docs() -> None:
    x, w = np.random.default_rng(0).standard_normal((2, 4, 3)).astype(np.float32)
    y, total = run_nest(parse_nest(RMS), [x, w[0]])
    want = x / np.sqrt((x * x).mean(1, keepdims=True)) * w[0]
    np.testing.assert_allclose(y, want, rtol=1e-5)
    np.testing.assert_allclose(total, want.sum(0), rtol=1e-5)


