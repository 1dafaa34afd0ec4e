"""Mutated and random text through the parsers, the verifiers and every pass.

Whatever the text is, what comes of it is a graph that prints as it was read, or an error of ours
with its place: never an error of Python's.
"""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Callable

import pytest

import gradof.codegen.targets.passes  # registers every op
from gradof.autodiff.differentiate import differentiate
from gradof.codegen.loops.text import parse_nest, print_nest
from gradof.codegen.loops.verify import verify_nest
from gradof.errors import GradofError, ParseError
from gradof.ir.parser import parse_graph
from gradof.ir.verify import verify
from gradof.passes.pipeline import PASSES, run_passes

assert gradof.codegen.targets.passes is not None

GRAPHS = (
    """graph f(%x : f32[4,3], %w : f32[3,2], %b : f32[2]):
  %0 : float = Constant[value=2.0]()
  %h : f32[4,2] = mm(%x, %w)  # mlp.py:7
  %y : f32[4,2] = mul(%h, %0)  # mlp.py:8
  %z : f32[4,2] = add(%y, %b)
  %t : f32[4,2] = tanh(%z)  # mlp.py:9
  %m : bool[4,2] = gt(%t, %0)
  %k : f32[4,2] = where(%m, %t, %z)
  %c : f32[8,2] = cat[dim=0](%k, %z)
  %s : f32[2,2] = slice[dim=0, start=1, stop=5, step=2](%c)
  %p : f32[2,2] = permute[dims=(1, 0)](%s)
  %r : f32[2] = sum[dims=(0,), keepdims=False](%p)
  return (%r, %t)
""",
    """graph g(%x : f64[2,3]):
  %a : f64[6] = reshape[shape=(6,)](%x)
  %i : i64[3] = Constant[value=dense<i64[3]>[0, -1, 5]]()
  %p : f64[3] = index_select[dim=0](%a, %i)
  %q : f64[3] = softmax[dim=0](%p)
  %e : f64[2,3] = expand[shape=(2, 3)](%q)
  %y : f64[2,3] = pow(%e, %x)
  %z : c128[2,3] = complex(%y, %x)
  %w : f64[2,3] = real(%z)
  %l : f64[2] = logsumexp[dims=(1,), keepdims=False](%w)
  return (%l)
""",
)
NEST = """nest rms over rows (4,), columns (8,)
  in 0: x : f32[4,8] dims (0, 1)
  in 1: w : f32[8] dims (None, 0)
  out 0: y : f32[4,8] dims (0, 1)
  %x0 = load[buffer=0] : f32 cell 0  # model.py:3
  %q = square %x0 : f32 cell 0
  %s = reduce[kind='sum'] %q : f32 row 1
  %r = rsqrt %s : f32 row 1
  %w0 = load[buffer=1] : f32 cell 1
  %a = mul %x0 %r : f32 cell 1
  %b = mul %a %w0 : f32 cell 1
  store[buffer=0] %b : f32 cell 1  # model.py:4
"""
TOKENS = (
    "%x", "%y", "%0", "%nope", "f32", "f64[3]", "f32[*]", "bool[2]", "i64", "float", "size", "(",
    ")", "[", "]", ",", "=", ":", "->", "0", "-1", "1.5", "nan", "-inf", "9" * 30, "True", "None",
    "()", "(1, 0)", "(1+2j)", "'a'", "'", '"AAAA"', "dense<f32[1]>[1.0]", "dense<", "# a.py:1",
    "block():", "mm", "add", "sum", "GradOf", "Guard", "Constant", "return", "graph", "\n", "\t",
    "\x00", "é", "dims", "value", "@cuda:0", "cell", "row", "once", "held", "body", "end", "load",
)  # fmt: skip
_WORD = re.compile(r"[%\w.]+|\s+|.", re.DOTALL)


@functools.cache
def _sources() -> tuple[str, ...]:
    graphs = [parse_graph(text) for text in GRAPHS]
    return (*GRAPHS, *(str(g) for g in graphs), *(str(differentiate(g).df) for g in graphs))


def _mutated(text: str, rng: random.Random) -> str:
    """The text with some words changed, left out, repeated, swapped, or put in."""
    words = _WORD.findall(text)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at, other = rng.randrange(len(words)), rng.randrange(len(words))
        way = rng.randrange(6)
        if way == 0:
            words[at] = rng.choice(TOKENS)
        elif way == 1:
            del words[at : at + rng.randint(1, 3)]
            words = words or [" "]
        elif way == 2:
            words.insert(at, rng.choice(TOKENS))
        elif way == 3:
            words[at], words[other] = words[other], words[at]
        elif way == 4:
            words[at] = words[other]
        else:
            words[at:at] = words[other : other + rng.randint(1, 12)]
    return "".join(words)


def _random(rng: random.Random) -> str:
    if rng.random() < 0.5:
        return rng.randbytes(rng.randrange(60)).decode("latin-1")
    return " ".join(rng.choice(TOKENS) for _ in range(rng.randrange(25)))


def _graph(text: str) -> None:
    """Read it, verify it, run every pass on it."""
    graph = parse_graph(text)
    assert parse_graph(str(graph)) == graph
    verify(graph)
    for name in PASSES:
        run_passes(graph, [name])
        verify(graph)
    assert parse_graph(str(graph)) == graph


def _nest(text: str) -> None:
    nest = parse_nest(text)
    assert parse_nest(print_nest(nest)) == nest
    verify_nest(nest)


@pytest.mark.parametrize("tries", [700, pytest.param(60_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("what", ["graph", "nest"])
def test_whatever_the_text_is(what: str, tries: int) -> None:
    rng, accepted = random.Random(f"{what} {tries}"), 0
    read: Callable[[str], None] = _graph if what == "graph" else _nest
    for _ in range(tries):
        source = rng.choice(_sources()) if what == "graph" else NEST
        text = _mutated(source, rng) if rng.random() < 0.8 else _random(rng)
        try:
            read(text)
        except ParseError as error:
            assert error.line >= 1 and error.column >= 1
        except GradofError:
            pass
        except Exception as error:
            raise AssertionError(f"{type(error).__name__}: {error} of\n{text!r}") from error
        else:
            accepted += 1
    assert accepted > tries / 50, "most mutations broke the text: nothing was tried"
