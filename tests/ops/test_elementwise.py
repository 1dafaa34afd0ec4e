"""Every elementwise op: forward against numpy and torch, gradients against finite differences and
torch autograd, to second order, with broadcasting and random cotangents.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import gradof
from gradof.autodiff.compose import pullback_graph
from gradof.errors import InferenceError
from gradof.ir.core import Graph
from gradof.ops import elementwise
from gradof.ops.expr import Expr, F
from gradof.ops.registry import Op, all_ops, get_op
from tests.ops.reference import Array, build_graph, compare, evaluate, forward, gradient, type_of
from tests.ops.test_sympy_proofs import ATTRS


def _slope_of_mish(x: torch.Tensor) -> torch.Tensor:
    t = torch.tanh(torch.log1p(torch.exp(x)))
    return t + x * (1 - t * t) * torch.sigmoid(x)


OWN = ("gradof.ops.elementwise", "gradof.ops.logic", "gradof.ops.special", "gradof.ops.activation")
SMOOTH = [
    o for o in all_ops()
    if "elementwise" in o.traits and o.module in OWN and o.formula is not None
]  # fmt: skip
NAMED = [(o, n) for o in SMOOTH for n in o.names]
# An op's own name for torch's, where the statement leaves the mapping to the tracers.
TORCH: dict[str, Callable[..., Any]] = {
    "inverse_mills": lambda x: torch.exp(-x * x / 2 - torch.special.log_ndtr(x)) * 0.39894228040143,
    "add": torch.add, "sub": torch.sub, "pow": torch.pow, "hypot": torch.hypot,
    "xlogy": torch.xlogy, "xlog1py": torch.special.xlog1py, "logit": torch.logit,
    "sinc": torch.sinc, "entr": torch.special.entr, "ndtr": torch.special.ndtr,
    "ndtri": torch.special.ndtri, "log_ndtr": torch.special.log_ndtr,
    "log_sigmoid": torch.nn.functional.logsigmoid, "log1p_exp": torch.nn.functional.softplus,
    "safe_sqrt": torch.sqrt,
    "softsign": torch.nn.functional.softsign, "tanhshrink": torch.nn.functional.tanhshrink,
    "erfcx": torch.special.erfcx, "i0e": torch.special.i0e, "i1": torch.special.i1,
    "i1e": torch.special.i1e, "prelu": lambda x, w: torch.where(x > 0, x, x * w),
    "gelu_grad": lambda g, x: g * (torch.special.ndtr(x) + x * torch.exp(-x * x / 2)
                                   / math.sqrt(2 * math.pi)),
    "silu_grad": lambda g, x: g * torch.sigmoid(x) * (1 + x * torch.sigmoid(-x)),
    "mish_grad": lambda g, x: g * _slope_of_mish(x),
    # torch's own backward of it rounds 1/6 to single precision
    "hardsigmoid": lambda x: (x + 3.0).clamp(0.0, 6.0) / 6.0,
}  # fmt: skip
# torch has no such function, or no second derivative of it; finite differences stand for it.
NO_TORCH = {"cbrt"}
NO_SECOND = {"i1e", "i1", "i0e", "i0", "erfcx", "ndtri", "log_ndtr"}


def samples(record: Op, shapes: list[tuple[int, ...]], seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [
        np.asarray(rng.uniform(*record.domain[i], shape)) for i, shape in enumerate(shapes)
    ]


def call(record: Op) -> Callable[..., Expr]:
    return functools.partial(F.__getattr__(record.name), **ATTRS.get(record.name, {}))


def shapes_of(record: Op) -> list[tuple[int, ...]]:
    return [(3, 4)] if len(record.inputs) == 1 else [(3, 1), (4,)]


@pytest.mark.parametrize(("record", "name"), NAMED, ids=lambda v: v if isinstance(v, str) else "")
def test_forward_is_that_of_the_named_function(record: Op, name: str) -> None:
    arrays = samples(record, shapes_of(record))
    (have,) = forward(call(record), *arrays)
    library, _, rest = name.partition(".")
    if library == "aten":
        op, _, overload = rest.partition(".")
        packet = getattr(torch.ops.aten, op)
        if overload == "Scalar":
            want = getattr(packet, overload)(torch.from_numpy(arrays[0]), 1.5).numpy()
            (have,) = forward(lambda a: call(record)(a, 1.5), arrays[0])
        else:
            want = packet(*map(torch.from_numpy, arrays)).numpy()
    elif library == "numpy":
        want = getattr(np, rest)(*arrays)
    else:
        import scipy.special

        want = getattr(scipy.special, rest.rpartition(".")[2])(*arrays)
    np.testing.assert_allclose(have, want, rtol=2e-14, atol=1e-15)
    assert have.dtype == want.dtype and have.shape == want.shape


@pytest.mark.parametrize("record", SMOOTH, ids=lambda o: o.name)
def test_gradients_against_torch(record: Op) -> None:
    eager = TORCH.get(record.name) or torch_of(record)
    if eager is None:
        assert record.name in NO_TORCH or ATTRS.get(record.name), "give it a torch function"
        return
    order = 1 if record.name in NO_SECOND else 2
    compare(call(record), eager, *samples(record, shapes_of(record)), order=order, tol=1e-9)


def torch_of(record: Op) -> Callable[..., Any] | None:
    for name in record.names:
        parts = name.split(".")
        if parts[0] == "aten" and parts[-1] != "Scalar":
            found: Callable[..., Any] = getattr(torch.ops.aten, parts[1])
            return found
    return None


@pytest.mark.parametrize("record", SMOOTH, ids=lambda o: o.name)
def test_gradients_against_finite_differences(record: Op) -> None:
    arrays = inside(record, samples(record, shapes_of(record), seed=1))
    graph = build_graph(call(record), *map(type_of, arrays))
    wrt = [
        i for i, n in enumerate(record.inputs)
        if record.is_composite or record.vjp[n] is not None
    ]  # fmt: skip
    first = check_differences(graph, arrays, wrt)
    rng = np.random.default_rng(3)
    seed = rng.standard_normal(np.broadcast_shapes(*shapes_of(record)))
    check_differences(first, [*arrays, seed], wrt)


def inside(record: Op, arrays: list[Array]) -> list[Array]:
    """Samples pulled away from the domain's ends, and, for piecewise ops, from ties and zero."""
    if record.name in ("abs", "relu", "maximum", "minimum"):
        return [np.where(np.abs(a) < 0.1, a + 0.3, a) + 0.01 * i for i, a in enumerate(arrays)]
    return [
        (a - (low + high) / 2) * 0.98 + (low + high) / 2
        for a, (low, high) in zip(arrays, record.domain, strict=False)
    ]


def check_differences(graph: Graph, arrays: list[Array], wrt: list[int]) -> Graph:
    """vjp·direction against (f(x + hd) - f(x - hd))/2h, extrapolated, with a random cotangent."""
    rng = np.random.default_rng(5)
    outputs = list(range(len(graph.outputs)))
    seeds = [rng.standard_normal(v.type.shape) for v in graph.outputs]  # type: ignore[union-attr]
    pullback = pullback_graph(graph, wrt, outputs)
    grads = evaluate(pullback, *arrays, *seeds)

    def value(i: int, direction: Array, h: float) -> Any:
        moved = [a + h * direction if i == k else a for k, a in enumerate(arrays)]
        results = evaluate(graph, *moved)
        return sum(np.sum(r * s) for r, s in zip(results, seeds, strict=True))

    for i, grad in zip(wrt, grads, strict=True):
        direction = rng.standard_normal(arrays[i].shape)
        direction /= np.abs(direction).max(initial=1e-9)
        coarse, fine = (
            (value(i, direction, h) - value(i, direction, -h)) / (2 * h) for h in (2e-3, 1e-3)
        )
        want = (4 * fine - coarse) / 3  # Richardson: the error is O(h^4)
        scale = 1 + np.abs(grad * direction).sum()
        assert abs(np.sum(grad * direction) - want) <= 2e-8 * scale, (i, want)
    return pullback


# --- conventions at ties, bounds and points without a derivative --------------------------------

EDGES = np.array([-math.inf, -1.0, -0.0, 0.0, 1.0, math.inf])


@pytest.mark.parametrize("name", ["abs", "relu", "sign", "floor", "ceil", "trunc", "round"])
def test_gradients_at_edges_are_torchs(name: str) -> None:
    (have,) = gradient(F.__getattr__(name), EDGES)
    x = torch.from_numpy(EDGES.copy()).requires_grad_()
    getattr(torch, name)(x).sum().backward()
    assert x.grad is not None
    np.testing.assert_array_equal(have, x.grad.numpy())


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_ties_split_in_half(name: str) -> None:
    a, b = np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0])
    compare(F.__getattr__(name), getattr(torch, name), a, b, order=1)
    np.testing.assert_array_equal(gradient(F.__getattr__(name), a, b)[0][0], 0.5)


@pytest.mark.parametrize("bounds", [(-1.0, 1.0), (None, 1.0), (-1.0, None), (1.0, -1.0)])
def test_clamp(bounds: tuple[float | None, float | None]) -> None:
    low, high = bounds
    x = np.array([-2.0, -1.0, -0.5, 1.0, 2.0])
    compare(lambda x: F.clamp(x, low=low, high=high), lambda x: torch.clamp(x, low, high), x,
            order=1)  # fmt: skip


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, 3.0, -1.0, 0.5])
@pytest.mark.parametrize("base", [0.0, 2.0, -2.0])
def test_pow_at_edges(base: float, exponent: float) -> None:
    a, b = np.array([base]), np.array([exponent])
    for build, eager, arrays in (
        (F.pow, torch.pow, [a, b]),
        (lambda a: F.pow(a, exponent), lambda a: torch.pow(a, exponent), [a]),
    ):
        tensors = [torch.from_numpy(v.copy()).requires_grad_() for v in arrays]
        want = torch.autograd.grad(eager(*tensors).sum(), tensors)
        have = gradient(build, *arrays)
        for h, w in zip(have, want, strict=True):
            np.testing.assert_allclose(h, w.numpy(), rtol=3e-16)


@pytest.mark.parametrize("cotangent", [math.inf, -math.inf, math.nan])
def test_an_exponent_of_zero_to_a_power_has_the_slope_zero_times_the_cotangent(
    cotangent: float,
) -> None:
    g, b = torch.tensor([cotangent]), torch.tensor([1.5], requires_grad=True)
    for base in (torch.zeros(1), 0.0):
        compiled = gradof.differentiate(lambda b, base=base: torch.pow(base, b), strict=True)
        (have,), (want,) = (torch.autograd.grad(fn(b), b, g)
                            for fn in (compiled, lambda b, base=base: torch.pow(base, b)))
        assert have.isnan().item() and want.isnan().item()


@pytest.mark.parametrize("base", [0.5, 2.0])
def test_mixed_second_derivative_of_pow_at_an_exponent_of_zero(base: float) -> None:
    # of d/da, b a^(b-1), by b: a^(b-1), of which torch has 0, as it sets it
    hessian = gradof.hessian(lambda p: p[0] ** p[1])(np.array([base, 0.0]))
    np.testing.assert_allclose(hessian, [[0.0, 1 / base], [1 / base, math.log(base) ** 2]])


@pytest.mark.parametrize("base", [0.0, math.inf, -math.inf, math.nan, 1e-320])
def test_pow_by_zero_has_no_slope_in_any_base(base: float) -> None:
    a, b = np.array([base]), np.zeros(1)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(gradient(F.pow, a, b)[0], 0.0)


def test_pow_of_a_number_to_an_array() -> None:
    b = np.array([-1.0, 0.0, 0.5, 2.0])
    for base in (2.0, 0.5, 0.0):
        (have,) = gradient(lambda b, base=base: F.pow(base, b), b)
        tensor = torch.from_numpy(b.copy()).requires_grad_()
        (want,) = torch.autograd.grad(torch.pow(base, tensor).sum(), tensor)
        np.testing.assert_allclose(have, want.numpy(), rtol=1e-14)


def test_where_selects_and_masks_its_gradient() -> None:
    c = np.array([True, False, True])
    a, b = np.array([1.0, 2.0, 3.0]), np.array([[4.0], [5.0]])
    compare(F.where, torch.where, c, a, b, order=1)
    with np.errstate(all="ignore"):
        grads = gradient(
            lambda x: F.where(x > 0.0, F.log(x), 0.0), np.array([2.0, -1.0])
        )
    np.testing.assert_array_equal(grads[0], [0.5, 0.0])


@pytest.mark.parametrize("name", ["fmod", "remainder"])
def test_remainders(name: str) -> None:
    record = get_op(name)
    compare(call(record), getattr(torch, name), *samples(record, shapes_of(record)), order=1)
    a, b = np.array([-5.5, 5.5, -5.5, 5.5]), np.array([2.0, 2.0, -2.0, -2.0])
    compare(call(record), getattr(torch, name), a, b, order=1)


# --- what has no gradient -----------------------------------------------------------------------

ANY_ARRAYS: list[Array] = [
    np.array([-2, 0, 3]), np.array([-1.5, 0.0, 2.5]), np.array([True, False, True]),
    np.array([1, 2, 3], np.uint8), np.array([math.nan, math.inf, -0.0]),
]  # fmt: skip
PLAIN = [
    o for o in all_ops()
    if o.module in OWN[:2] and o.formula is None and not o.is_composite
    and any(n.startswith("numpy.") for n in o.names) and o.name != "where"
]  # fmt: skip


@pytest.mark.parametrize("record", PLAIN, ids=lambda o: o.name)
def test_plain_ops_are_numpys(record: Op) -> None:
    names = [n.removeprefix("numpy.") for n in record.names if n.startswith("numpy.")]
    name = "round" if names == ["rint"] else names[0]  # rint of integers gives floats
    ran = 0
    for array in ANY_ARRAYS:
        other = array[::-1].copy()
        if "shift" in name:
            other = np.abs(other)
        operands = [array, other][: len(record.inputs)]
        try:
            record.infer([type_of(a) for a in operands], {})
        except InferenceError:
            continue  # the op is not for this dtype
        with np.errstate(all="ignore"):
            want = getattr(np, name)(*operands)
            (have,) = forward(call(record), *operands)
        np.testing.assert_array_equal(have, want)
        ran += 1
    assert ran


@pytest.mark.parametrize("record", SMOOTH, ids=lambda o: o.name)
def test_single_precision_and_sizes_of_zero(record: Op) -> None:
    """No rule or lowering leaves float32 (`evaluate` compares every node with its type)."""
    for shape in ((), (0,), (5,)):
        exact = samples(record, [shape] * len(record.inputs))
        single = [a.astype(np.float32) for a in exact]
        wide = [a.astype(np.float64) for a in single]
        for have, want in zip(
            [*forward(call(record), *single), *gradient(call(record), *single)],
            [*forward(call(record), *wide), *gradient(call(record), *wide)], strict=True,
        ):  # fmt: skip
            assert have.dtype == np.float32 and have.shape == shape
            np.testing.assert_allclose(have, want, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", ["erf", "erfc"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_error_functions_are_scipys_or_pythons(
    name: str, dtype: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    x: Any = np.array([-np.inf, -30, -6, -0.5, -0.0, 0.0, 1e-300, 0.4, 6, 9, np.inf, np.nan], dtype)
    call: Any = {"erf": elementwise._np_erf, "erfc": elementwise._np_erfc}[name]
    wanted: Any = np.array([getattr(math, name)(v) for v in x.tolist()]).astype(dtype)

    def missing(module: str) -> None:
        raise ModuleNotFoundError(module)

    for there in (True, False):
        if not there:
            monkeypatch.setattr(importlib, "import_module", missing)
        function: Any = elementwise.error_function(name)
        assert (function.types == ["O->O"]) != there
        for array in (x, x.reshape(3, 4)[:, ::2], x[:0]):
            have = call(array)
            assert have.dtype == dtype and have.shape == array.shape
        np.testing.assert_allclose(call(x), wanted, rtol=8 * float(np.finfo(dtype).eps))
        assert call(x[5]) == wanted[5]


@pytest.mark.parametrize("n", [8, 40_000])
@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "round", "sign", "pow"])
def test_steps_have_no_slope_for_any_cotangent(name: str, n: int) -> None:
    x = torch.linspace(-3, 3, n, dtype=torch.float64)
    x[:3] = torch.tensor([torch.nan, torch.inf, -torch.inf])
    x.requires_grad_()

    def fn(x: torch.Tensor) -> torch.Tensor:
        y = torch.pow(x, 0) if name == "pow" else getattr(torch, name)(x)
        return (y * x).sum()

    (want,) = torch.autograd.grad(fn(x), x)
    compiled = gradof.differentiate(fn)
    for _ in range(4):
        (have,) = torch.autograd.grad(compiled(x), x)
        torch.testing.assert_close(have, want, equal_nan=True)
    assert compiled.cache_info().backward_runs == 4


def test_steps_of_sizes_known_at_run_time_have_no_slope() -> None:
    x = torch.tensor([-1.5, torch.nan, 2.5, torch.inf], dtype=torch.float64, requires_grad=True)

    def fn(x: torch.Tensor) -> torch.Tensor:
        taken = x[x != 2.5]
        return (torch.floor(taken) * taken).sum()

    (want,) = torch.autograd.grad(fn(x), x)
    compiled = gradof.differentiate(fn)
    (have,) = torch.autograd.grad(compiled(x), x)
    torch.testing.assert_close(have, want, equal_nan=True)
    assert compiled.cache_info().backward_runs == 1
