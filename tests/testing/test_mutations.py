"""Every rule of the registry, broken in turn: the harness must find it, and name the op.

A rule's result gets the other sign, loses half of itself, loses its factor (what is left is the
cotangent), or is that of another operand. `examine_ops`, which is how the harness names a culprit,
then looks at one call of the op. A change that does not change the gradient of the call is no
mutation and is not counted: the factor of a sum, the operands of an addition.

An op that is missed here needs a row in `CALLS` of tests/codegen/test_lowerings.py, or in `MORE`.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from gradof.autodiff.differentiate import differentiate
from gradof.codegen.host.evaluate import interpret
from gradof.ir.attrs import Attr
from gradof.ir.core import Graph
from gradof.ir.opinfo import OPS
from gradof.ir.types import BOOL, C128, F64, I64, TensorType
from gradof.ops.expr import Expr
from gradof.ops.registry import Op, Refused, all_ops, get_op
from gradof.testing.localize import examine_ops, values_of
from tests.codegen.test_lowerings import ATTRS, CALLS, ELEMENTWISE, call_graph, sample

Array = np.ndarray[Any, Any]
Rule = Callable[..., Any]
SHARE = 0.99  # of the mutants, that must be found

TWO, FIVE = np.full(3, 2.0), np.full(3, 5.0)
SHARES = np.array([0.2, 0.45, 0.7])

# Ops that no row of CALLS has: operand shapes and attributes.
MORE: dict[str, tuple[tuple[Any, ...], dict[str, Attr]]] = {
    "detach": (((3,),), {}), "alias": (((3,),), {}), "copy": (((3,),), {}),
    "cast": (((3,),), {"dtype": F64}),
    "bmm": (((2, 3, 4), (2, 4, 2)), {}), "inv_ex": (((2, 3, 3),), {"check_errors": False}),
    "scatter": (((2, 3), np.array([[0, 2], [1, 0]]), (2, 2)), {"dim": 1}),
    "bdtr": ((TWO, FIVE, SHARES), {}), "bdtrc": ((TWO, FIVE, SHARES), {}),
    "bdtri": ((TWO, FIVE, SHARES), {}), "nbdtr": ((TWO, FIVE, SHARES), {}),
    "nbdtrc": ((TWO, FIVE, SHARES), {}), "nbdtri": ((TWO, FIVE, SHARES), {}),
    "pdtri": ((TWO, SHARES), {}), "ndtri_exp": ((np.log(np.array([0.2, 0.4, 0.9])),), {}),
    "lpmv": ((np.zeros(3), TWO, SHARES), {}), "sph_legendre_p": ((TWO, np.ones(3), SHARES), {}),
    "hurwitz_zeta": ((FIVE, SHARES), {}),
    **{name: ((TWO, SHARES), {}) for name in (
        "eval_hermite", "eval_hermitenorm", "spherical_in", "spherical_jn", "spherical_kn",
        "spherical_yn")},
    **{name: (((4,),), {}) for name in (
        "airy", "airye", "fresnel", "it2i0k0", "it2j0y0", "iti0k0", "itj0y0", "shichi", "sici")},
    "ellipj": (((4,), (4,)), {}), "pbdv": ((TWO, SHARES), {}), "pbvv": ((TWO, SHARES), {}),
    "pbwa": ((TWO, SHARES), {}),
    "conv_weight_grad": (((2, 2, 5, 5), (2, 3, 4, 4)), {
        "kernel": (2, 2), "stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}),
    "max_pool3d_with_indices": (((1, 2, 4, 4, 4),), {
        "kernel": (2, 2, 2), "stride": (2, 2, 2), "padding": (0, 0, 0), "dilation": (1, 1, 1),
        "ceil_mode": False}),
    "median_dim": (((3, 5),), {"dim": 1, "keepdims": False}),
}  # fmt: skip
# Rules that no such call can judge, and what does instead.
ELSEWHERE = {
    "Opaque": "it is torch's own autograd: tests/tracer/test_opaque.py",
    "AutogradAdd": "stands in reverse graphs only: tests/autodiff",
    **dict.fromkeys(("library_call", "library_gradient"),
                    "it is torch's own backward: tests/runtime/test_library_calls.py"),
    "python_call": "its rule is the user's: tests/runtime/test_primitive.py",
    "_grad_sum_to_size": "for shapes known at run time only: tests/autodiff",
    "expand_to_size": "for shapes known at run time only: tests/autodiff",
    "_size_if_not_equal": "has no gradient",
    **dict.fromkeys(("cholesky", "cholesky_ex"),
                    "reads one triangle, with a symmetric gradient: tests/ops, against torch"),
    **dict.fromkeys(("complex", "real", "imag", "fft_c2c", "fft_c2r", "fft_r2c"),
                    "complex numbers: tests/tracer/test_torch_complex.py, against torch"),
    **dict.fromkeys(("adaptive_max_pool2d", "adaptive_max_pool3d", "fractional_max_pool2d",
                     "fractional_max_pool3d", "window_sum", "window_spread",
                     "scatter_maxima", "take_maxima"),
                    "windows of uneven size: tests/tracer/test_torch_pooling.py, against torch"),
    **dict.fromkeys(("sparse_mm", "sparse_solve"),
                    "places of elements: tests/testing/test_scipy_coverage.py"),
    **dict.fromkeys(("care", "dare"), "symmetric operands: tests/testing/test_scipy_coverage.py"),
    "svd": "its vectors are known up to a sign: tests/ops, against torch",
    "eigh": "its vectors are known up to a sign: tests/ops, against torch",
    **dict.fromkeys(("CustomRule", "once_differentiable", "zero_unreached"),
                    "the caller's own rules: tests/runtime/test_custom_rules.py"),
    "again": "the value itself, in graphs of df alone: tests/autodiff/test_recompute.py",
    "eig": "its vectors are known up to a phase: tests/ops, against torch",
    "qr": "its vectors are known up to a sign: tests/ops, against torch",
    "math_result": "a number, or Python's error: tests/tracer/test_numpy_math_errors.py",
    "attention": "in graphs that Triton runs: tests/runtime/test_triton_attention.py, float64",
}


def calls() -> Iterator[tuple[str, tuple[Any, ...], dict[str, Attr]]]:
    """One call for every op with a rule."""
    rows: dict[str, tuple[tuple[Any, ...], dict[str, Attr]]] = {}
    for name, operands, attrs in CALLS:
        rows[name] = (operands, attrs)  # the last one reduces, and pads, the most
    for name in ELEMENTWISE:
        record = get_op(name)
        shapes = tuple("mask" if n == "c" else (4,) for n in record.inputs)
        rows.setdefault(name, (shapes, {a: ATTRS[a] for a in record.attrs}))
    for name, (operands, attrs) in {**rows, **MORE}.items():
        yield name, operands, attrs


def judged() -> list[Op]:
    """Ops with at least one rule of their own that this file is about."""
    return [
        o for o in all_ops()
        if not o.is_composite and o.name not in ELSEWHERE and "random" not in o.traits
        and any(rule is not None and not isinstance(rule, Refused) for rule in o.vjp.values())
    ]  # fmt: skip


def operand(name: str, shape: Any, position: int) -> Array:
    rng = np.random.default_rng(position)
    if isinstance(shape, np.ndarray):
        return shape
    if shape == "mask":
        return rng.random(4) < 0.5
    if shape and shape[0] == "index":
        return np.zeros(shape[1], np.int64)
    domain = get_op(name).domain
    low, high = domain[min(position, len(domain) - 1)]
    if (low, high) == (-2.0, 2.0):
        moved: Array = sample(name, F64, shape) + 0.1 * position * rng.random(shape)
        return moved
    low, high = max(low, -50.0), min(high, 50.0)
    return np.array(rng.uniform(low + 0.1 * (high - low), high - 0.1 * (high - low), shape))


def kind(array: Array) -> Any:
    return {"b": BOOL, "i": I64, "c": C128}.get(array.dtype.kind, F64)


@contextmanager
def rule_of(record: Op, name: str, rule: Rule, reads: Sequence[str]) -> Iterator[None]:
    """The registry with another rule for one operand of one op."""
    OPS[record.name] = dataclasses.replace(
        record, vjp={**record.vjp, name: rule}, reads={**record.reads, name: tuple(reads)}
    )
    try:
        yield
    finally:
        OPS[record.name] = record


def each(change: Callable[[Expr], Any], result: Any) -> Any:
    if isinstance(result, (list, tuple)):
        return [None if r is None else change(r) for r in result]
    return None if result is None else change(result)


def mutants(record: Op, name: str) -> Iterator[tuple[str, Rule, tuple[str, ...]]]:
    """Kind of change, the broken rule, and what it reads."""
    rule, reads = record.vjp[name], record.reads[name]
    assert rule is not None
    yield "sign", lambda **kw: each(lambda r: -r, rule(**kw)), reads
    yield "half", lambda **kw: each(lambda r: r * 0.5, rule(**kw)), reads
    seed = "g" if len(record.outputs) == 1 else f"g_{record.outputs[0]}"

    def bare(**kw: Any) -> Any:
        result = rule(**{k: kw[k] for k in reads})
        g = kw[seed]
        same = isinstance(result, Expr) and isinstance(g, Expr) and result.shape == g.shape
        return g if same and result.dtype == g.dtype else each(lambda r: r * 1.5, result)

    yield "factor", bare, tuple({*reads, seed})
    for other, theirs in record.vjp.items():
        if other != name and theirs is not None and not isinstance(theirs, Refused):
            def swapped(theirs: Rule = theirs, other: str = other, **kw: Any) -> Any:
                mine = rule(**{k: kw[k] for k in reads})
                result = theirs(**{k: kw[k] for k in record.reads[other]})
                fits = isinstance(result, Expr) and isinstance(mine, Expr)
                fits = fits and result.shape == mine.shape and result.dtype == mine.dtype
                return result if fits else each(lambda r: r * -1.5, mine)

            yield "swap", swapped, tuple({*reads, *record.reads[other]})


def gradient(graph: Graph, arrays: Sequence[Array], index: int) -> Any:
    """The gradient of one operand for fixed cotangents."""
    found = differentiate(graph, [i == index for i in range(len(arrays))])
    outputs = interpret(found.f, arrays)
    rng = np.random.default_rng(9)
    seeds = [rng.standard_normal(np.shape(outputs[i])) for i in found.df_input_vjps]
    seeds += [arrays[i] for i in found.df_input_captured_inputs]
    seeds += [outputs[i] for i in found.df_input_captured_outputs]
    results = interpret(found.df, seeds)
    return results[0] if results else None


def names_it(graph: Graph, arrays: Sequence[Array], op: str, name: str) -> bool:
    values = values_of(graph, arrays, "numpy")
    culprits = [c for row in examine_ops(graph, values) for c in row.culprits]
    return any(c.op == op and c.where == f"its gradient for {name}" for c in culprits)


def try_op(name: str, operands: tuple[Any, ...], attrs: dict[str, Attr]) -> list[tuple[str, bool]]:
    """What became of each mutant of an op: its label, and whether it was found."""
    record = get_op(name)
    arrays = [operand(name, shape, i) for i, shape in enumerate(operands)]
    made = call_graph(record, [TensorType(kind(a), a.shape) for a in arrays], attrs)
    assert made is not None, f"{name} does not take {[a.shape for a in arrays]}"
    graph, _ = made
    found: list[tuple[str, bool]] = []
    with np.errstate(all="ignore"):
        for i, key in enumerate([record.inputs[0]] if record.variadic else record.inputs):
            rule = record.vjp[key]
            if rule is None or isinstance(rule, Refused) or kind(arrays[i]) is not F64:
                continue
            assert not names_it(graph, arrays, name, key), f"{name} is wrong as it is"
            right = gradient(graph, arrays, i)
            for change, broken, reads in mutants(record, key):
                with rule_of(record, key, broken, reads):
                    wrong = gradient(graph, arrays, i)
                    same = wrong is None or np.allclose(wrong, right, 1e-9, 0, equal_nan=True)
                    if same:
                        continue
                    found.append((f"{name}.{key}: {change}", names_it(graph, arrays, name, key)))
    return found


RESULTS: dict[str, list[tuple[str, bool]]] = {}
ROWS = {name: (operands, attrs) for name, operands, attrs in calls()}


def results() -> dict[str, list[tuple[str, bool]]]:
    if not RESULTS:
        for record in judged():
            if record.name in ROWS:
                RESULTS[record.name] = try_op(record.name, *ROWS[record.name])
    return RESULTS


def test_every_rule_has_a_call() -> None:
    missing = sorted(o.name for o in judged() if o.name not in ROWS)
    assert not missing, f"add a row to MORE, or a reason to ELSEWHERE: {missing}"


def test_the_harness_finds_and_names_the_mutants() -> None:
    found = [pair for pairs in results().values() for pair in pairs]
    missed = [label for label, ok in found if not ok]
    share = 1 - len(missed) / len(found)
    kinds = Counter(label.rpartition(": ")[2] for label, _ in found)
    print(f"{len(found)} mutants of {len(results())} ops ({dict(kinds)}): {share:.2%} found")
    assert share >= SHARE, f"{share:.2%}; missed {missed}"
    assert len(found) > 600 and set(kinds) == {"sign", "half", "factor", "swap"}


def test_ops_whose_mutants_all_look_right_are_steps() -> None:
    flat = sorted(name for name, pairs in results().items() if not pairs)
    assert flat == sorted(STEPS), flat


STEPS: set[str] = set()


@pytest.mark.parametrize("name", sorted(ELSEWHERE))
def test_what_is_judged_elsewhere_exists(name: str) -> None:
    assert get_op(name) is not None
