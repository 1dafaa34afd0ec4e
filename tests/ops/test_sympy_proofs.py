"""Every elementwise rule is proved against `sympy.diff` of its op's formula.

tanh's statement says `formula="tanh(x)"` and `vjp={"x": lambda g, y: g * (1.0 - y * y)}`. Here the
graph of the pullback is read as a formula of its own, `g*(1 - tanh(x)**2)`, and the difference to
`g*diff(tanh(x), x)` is simplified to zero; where sympy cannot, both are evaluated with 60 digits at
points over the op's domain, its ends included, and must agree to 30.

A rule's float constants stand for the real numbers they round: 0.6931471805599453 is log(2).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import mpmath
import numpy as np
import pytest
import sympy

import gradof.ops  # registers every op
from gradof.autodiff.compose import pullback_graph
from gradof.codegen.host.evaluate import interpret
from gradof.ir.core import Graph, Node, Value
from gradof.ir.types import F64, TensorType
from gradof.ops.expr import F
from gradof.ops.registry import Op, all_ops, get_op
from gradof.passes.expand_composites import expand_composites
from tests.ops.reference import build_graph

assert gradof.ops is not None
DIGITS, AGREE = 60, mpmath.mpf(10) ** -30

# Values for the attributes of ops that have any.
ATTRS: dict[str, dict[str, Any]] = {
    "celu": {"alpha": 1.5},
    "elu": {"alpha": 1.5, "scale": 2.0, "input_scale": 0.5},
    "gelu": {"approximate": "none"},
    "gelu_grad": {"approximate": "none"},
    "leaky_relu": {"negative_slope": 0.25},
    "logit": {"eps": None},
    "polygamma": {"n": 2},
    "softplus": {"beta": 2.0, "threshold": 20.0},
}
# Elementwise ops without a formula, and why.
STEPS = "piecewise constant: the derivative is zero, and sympy differentiates it to a delta"
LOGIC = "a truth value has no derivative"
BITS = "integers have no derivative"
PIECES = "one formula per piece: each is proved in a test of their own below, or is a plain choice"
WITHOUT_FORMULA = {
    **dict.fromkeys(["floor", "ceil", "trunc", "round", "sign", "floor_divide", "spacing",
                     "trunc_divide"], STEPS),
    **dict.fromkeys(["gt", "ge", "lt", "le", "eq", "ne", "logical_and", "logical_or",
                     "logical_xor", "logical_not", "isnan", "isinf", "isfinite", "signbit"],
                    LOGIC),
    **dict.fromkeys(["bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "left_shift",
                     "right_shift"], BITS),
    **dict.fromkeys(["clamp", "where", "hardshrink", "hardtanh", "relu6", "softshrink",
                     "threshold", "masked_fill"], PIECES),
    "philox_kept": "a bit of a random number, as tests/codegen/test_philox.py says",
    **dict.fromkeys(["fmod", "remainder"], "a divisor's rounded quotient is piecewise constant"),
    **dict.fromkeys(["cast", "copy"], "the identity; compared with torch"),
    "nextafter": "the identity in a, up to the last digit; compared with torch",
}  # fmt: skip
# Proved by digits alone, and why not by symbols.
CHOICE = "the rule chooses by a comparison, or by a sign"
DIGITS_ONLY = {
    **dict.fromkeys(
        ["abs", "atan2", "celu", "elu", "hardsigmoid", "hardswish", "i0e", "i1", "i1e",
         "inverse_mills",
         "logit",
         "binom", "dawsn", "ellipe", "ellipk", "ellipkm1", "erfcx", "poch", "rgamma", "j1",
         "leaky_relu", "log1p_exp", "log_sigmoid", "logaddexp", "logaddexp2", "maximum", "minimum",
         "mish_grad", "pow", "prelu",
         "relu", "safe_sqrt", "selu",
         "sinc", "softplus", "softsign", "xlog1py", "xlogy"], CHOICE),
    "acosh": "sqrt(x - 1)*sqrt(x + 1) is sqrt(x**2 - 1) for x > 1, and not for every x",
    "bernoulli_nll": "the rule has a floor under x*(1 - x), which is beyond the domain",
}  # fmt: skip


# Families by order and degree, few of whose derivatives sympy can form: those without a formula are
# held to mpmath, to second order, in test_special_functions.
# Moments of incomplete functions are, through these, in test_scipy_coverage.
OF_SCIPY = ("gradof.ops.special_functions", "gradof.ops.bessel", "gradof.ops.incomplete")
# Their rules are conjugate Wirtinger derivatives, which are no `sympy.diff`; compared with torch.
OF_COMPLEX = ("gradof.ops.complex_numbers",)


def test_every_elementwise_op_has_a_formula_or_a_reason() -> None:
    without = {
        o.name for o in all_ops()
        if "elementwise" in o.traits and o.formula is None and o.module not in OF_SCIPY + OF_COMPLEX
    }  # fmt: skip
    assert without == set(WITHOUT_FORMULA)


PROVED = [o for o in all_ops() if o.formula is not None]


@functools.cache
def constants() -> list[tuple[float, sympy.Expr]]:
    """Doubles that stand for a real number they only round."""
    pi, two = sympy.pi, sympy.Integer(2)
    exact = [
        sympy.log(2), sympy.log(10), 1 / sympy.log(2), 1 / sympy.log(10), pi, 1 / pi, pi / 2,
        2 / sympy.sqrt(pi), sympy.sqrt(pi), sympy.sqrt(pi) / 2, sympy.sqrt(two),
        1 / sympy.sqrt(two), sympy.sqrt(2 * pi), 1 / sympy.sqrt(2 * pi), 1 / sympy.sqrt(8 * pi),
        sympy.sqrt(2 / pi), sympy.sqrt(pi / 2), *(sympy.Rational(n, 6) for n in (1, 2, 4)),
    ]  # fmt: skip
    return [(float(sympy.N(sign * v, 40)), sign * v) for v in exact for sign in (1, -1)]


def number(value: bool | float) -> sympy.Expr:
    """The real number behind a constant; products of constants round twice, so to 2 ulp."""
    for rounded, exact in constants():
        if abs(value - rounded) <= 4.5e-16 * abs(rounded):
            return exact
    return sympy.Rational(value)


def formula_of(record: Op, operands: list[sympy.Expr], attrs: dict[str, Any]) -> sympy.Expr:
    """The op's formula with its inputs and attributes put in."""
    text = sympy.sympify(record.formula, locals={n: sympy.Symbol(n) for n in names_of(record)})
    text = text.xreplace({f: sympy.Rational(float(f)) for f in text.atoms(sympy.Float)})
    given = dict(zip(record.inputs, operands, strict=True))
    given |= {k: number(v) for k, v in attrs.items() if isinstance(v, (int, float))}
    return text.xreplace({sympy.Symbol(k): v for k, v in given.items()})


def names_of(record: Op) -> tuple[str, ...]:
    return (*record.inputs, *record.attrs)


def choose(c: Any, a: Any, b: Any) -> Any:
    return a if c else b


PLAIN: dict[str, Callable[..., Any]] = {
    "where": choose,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "logical_and": lambda a, b: bool(a) and bool(b),
    "logical_or": lambda a, b: bool(a) or bool(b),
    "logical_not": lambda a: not a,
    "AutogradAdd": lambda a, b: a + b,
    "sign": mpmath.sign, "floor": mpmath.floor,
    "isinf": mpmath.isinf,
    "isfinite": mpmath.isfinite,
    "isnan": mpmath.isnan,
    "clamp": lambda x, low, high: max(x if low is None else max(x, low),
                                      mpmath.ninf) if high is None else min(
                                          x if low is None else max(x, low), high),
}  # fmt: skip
SAME = ("cast", "alias", "copy", "detach", "reshape", "expand")


class NoFormulaError(Exception):
    """The graph holds an op that only numbers can go through."""


def walk(graph: Graph, arguments: list[Any], apply: Callable[[Node, list[Any]], Any]) -> list[Any]:
    """Evaluate a graph of 0-d values with `apply`, GradOf blocks included."""
    values: dict[Value, Any] = dict(zip(graph.inputs, arguments, strict=True))

    def run(nodes: Iterator[Node]) -> None:
        for node in nodes:
            if node.kind == "GradOf":
                run(node.blocks[0].nodes())
                for out, inner in zip(node.outputs, node.blocks[0].results, strict=True):
                    values[out] = values[inner]
            else:
                values[node.output] = apply(node, [values[v] for v in node.inputs])

    run(graph.nodes())
    return [values[v] for v in graph.outputs]


def symbolically(node: Node, operands: list[Any]) -> Any:
    if node.kind in ("Constant", "full"):
        return number(node.attrs["value"])  # type: ignore[arg-type]  # a scalar
    if node.kind in SAME:
        return operands[0]
    if node.kind == "AutogradAdd":
        return operands[0] + operands[1]
    record = get_op(node.kind)
    if record.formula is None:
        raise NoFormulaError(node.kind)
    return formula_of(record, operands, node.attrs)


@functools.cache
def in_mpmath(kind: str) -> Callable[..., Any]:
    record = get_op(kind)
    symbols = [sympy.Symbol(n) for n in names_of(record)]
    text = sympy.sympify(record.formula, locals={s.name: s for s in symbols})
    compiled: Callable[..., Any] = sympy.lambdify(symbols, text, "mpmath")
    return compiled


def numerically(node: Node, operands: list[Any]) -> Any:
    if node.kind in ("Constant", "full"):
        value = node.attrs["value"]
        return mpmath.mpf(sympy.N(number(value), DIGITS)) if np.isfinite(value) else value  # type: ignore[arg-type]
    if node.kind in SAME:
        return operands[0]
    if node.kind in PLAIN:
        return PLAIN[node.kind](*operands, *node.attrs.values())
    assert get_op(node.kind).formula is not None, f"{node.kind} has no formula and no value here"
    attrs = [node.attrs[n] for n in get_op(node.kind).attrs]
    return in_mpmath(node.kind)(*operands, *attrs)


def scalar_graph(record: Op) -> Graph:
    types = [TensorType(F64, ())] * len(record.inputs)
    return build_graph(
        lambda *xs: F.__getattr__(record.name)(*xs, **ATTRS.get(record.name, {})), *types
    )


def points(record: Op) -> list[list[Any]]:
    """Exact points over the domain: its corners, and some inside."""
    rng = np.random.default_rng(7)
    low, high = (np.array([d[i] for d in record.domain], float) for i in (0, 1))
    low, high = (v[: len(record.inputs)] for v in (low, high))
    inside = rng.uniform(low, high, (8, len(record.inputs)))
    return [[mpmath.mpf(float(v)) for v in row] for row in [low, high, *inside]]


# The formula of the piece that holds each point: it is differentiated as any other formula.
PIECEWISE: dict[str, tuple[dict[str, Any], Callable[..., str]]] = {
    "fmod": ({}, lambda x, y: f"x - y*({int(x / y)})"),
    "remainder": ({}, lambda x, y: f"x - y*({math.floor(x / y)})"),
    "hardshrink": ({"lambd": 0.5}, lambda x: "x" if abs(x) > 0.5 else "0*x"),
    "softshrink": ({"lambd": 0.5}, lambda x: f"x - {math.copysign(0.5, x)}" if abs(x) > 0.5
                   else "0*x"),
    "hardtanh": ({"low": -1.0, "high": 1.0}, lambda x: "x" if -1 < x < 1 else "0*x"),
    "relu6": ({}, lambda x: "x" if 0 < x < 6 else "0*x"),
    "clamp": ({"low": -0.5, "high": 1.0}, lambda x: "x" if -0.5 <= x <= 1 else "0*x"),
    "threshold": ({"threshold": 0.5, "value": 9.0}, lambda x: "x" if x > 0.5 else "0*x"),
    **{name: ({}, lambda x: "0*x") for name in ("floor", "ceil", "trunc", "round", "sign")},
}  # fmt: skip
EDGES_OF_PIECES = [-6.0, -1.0, -0.5, 0.0, 0.5, 1.0, 6.0, 0.25, -2.3, 7.1, 0.75]


@pytest.mark.parametrize("name", PIECEWISE)
def test_rule_of_a_piecewise_op_is_the_derivative_of_the_piece(name: str) -> None:
    attrs, piece = PIECEWISE[name]
    record = get_op(name)
    types = [TensorType(F64, ())] * len(record.inputs)
    graph = build_graph(lambda *xs: F.__getattr__(name)(*xs, **attrs), *types)
    rule = pullback_graph(graph, tuple(range(len(types))), [0])
    expand_composites(rule)
    for x in EDGES_OF_PIECES:
        for y in (2.0, -0.75) if len(types) == 2 else (None,):
            point = [x] if y is None else [x, y]
            formula = sympy.sympify(piece(*point))
            want = [1.5 * float(sympy.diff(formula, sympy.Symbol(v))) for v in "xy"[: len(point)]]
            have = interpret(rule, [np.array(v) for v in [*point, 1.5]])
            assert [float(h) for h in have] == want, (name, point)


def test_the_domain_has_one_pair_per_input() -> None:
    for record in PROVED:
        assert len(record.domain) >= len(record.inputs), record.name
        assert all(a < b for a, b in record.domain), record.name
        assert set(ATTRS.get(record.name, {})) == set(record.attrs), record.name


@pytest.mark.parametrize("record", PROVED, ids=lambda o: o.name)
def test_rule_is_the_derivative(record: Op) -> None:
    graph = scalar_graph(record)
    wrt = differentiable(record)
    rule = pullback_graph(graph, wrt, [0])
    expand_composites(rule)
    symbols = [sympy.Symbol(n, real=True) for n in record.inputs]
    g = sympy.Symbol("g", real=True)
    formula = formula_of(record, symbols, ATTRS.get(record.name, {}))
    expected = [sympy.diff(formula, symbols[i]) for i in wrt]
    assert any(e != 0 for e in expected)
    with mpmath.workdps(DIGITS):
        check_digits(record, rule, symbols, expected)
    if DIGITS_ONLY.get(record.name) == CHOICE:
        with pytest.raises(NoFormulaError):
            walk(rule, [*symbols, g], symbolically)
    elif record.name not in DIGITS_ONLY:
        for h, e in zip(walk(rule, [*symbols, g], symbolically), expected, strict=True):
            assert is_zero(h - g * e), f"{h} is not {g * e}"


def differentiable(record: Op) -> list[int]:
    if record.is_composite:
        return list(range(len(record.inputs)))
    return [i for i, n in enumerate(record.inputs) if record.vjp[n] is not None]


def check_digits(record: Op, rule: Graph, symbols: list[Any], expected: list[Any]) -> None:
    functions = [sympy.lambdify(symbols, e, "mpmath") for e in expected]
    g = mpmath.mpf(7) / 5
    for point in points(record):
        have = walk(rule, [*point, g], numerically)
        for h, function in zip(have, functions, strict=True):
            want = g * function(*point)
            assert mpmath.isfinite(want), (record.name, point)
            assert abs(h - want) <= AGREE * (1 + abs(want)), (record.name, point, h, want)


def is_zero(difference: sympy.Expr) -> bool:
    steps: list[Callable[[Any], Any]] = [
        sympy.expand, sympy.cancel, lambda d: sympy.cancel(d.rewrite(sympy.exp)), sympy.simplify,
    ]  # fmt: skip
    return any(step(difference) == 0 for step in steps)


@pytest.mark.parametrize("record", PROVED, ids=lambda o: o.name)
def test_lowering_computes_the_formula(record: Op) -> None:
    graph = scalar_graph(record)
    expand_composites(graph)
    symbols = [sympy.Symbol(n) for n in record.inputs]
    formula = formula_of(record, symbols, ATTRS.get(record.name, {}))
    function = sympy.lambdify(symbols, formula, "mpmath")
    with mpmath.workdps(30):
        for point in points(record):
            (have,) = interpret(graph, [np.array(float(v)) for v in point])
            want = function(*point)
            assert abs(have - want) <= 4e-15 * (abs(want) + 1), (point, have, want)


def test_a_wrong_rule_is_found() -> None:
    record = get_op("tanh")
    symbols = [sympy.Symbol("x", real=True)]
    rule = pullback_graph(scalar_graph(record), [0], [0])
    right = sympy.diff(sympy.tanh(symbols[0]))
    with mpmath.workdps(DIGITS):
        check_digits(record, rule, symbols, [right])
        with pytest.raises(AssertionError):
            check_digits(record, rule, symbols, [right + sympy.Rational(1, 10**29)])
    assert not is_zero(right - (1 - sympy.tanh(symbols[0])))
