"""HIPS autograd's names on gradof: each operator against numpy, by its own checks.

`benchmarks/autograd_suite.py` runs autograd's own tests and examples.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-call, no-any-return, attr-defined"
from __future__ import annotations

import collections
import cProfile
import functools
import queue
from typing import Any

import numpy as onp
import pytest
import scipy.signal

import gradof
import gradof.autograd.numpy as np
import gradof.autograd.numpy.random as npr
from gradof import autograd as ag
from gradof.autograd import primitives
from gradof.autograd.extend import defjvp, defvjp, notrace_primitive, primitive, vspace
from gradof.autograd.misc import const_graph, flatten
from gradof.autograd.misc.fixed_points import fixed_point
from gradof.autograd.misc.optimizers import adam, rmsprop, sgd
from gradof.autograd.scipy import signal
from gradof.autograd.test_util import check_equivalent, check_grads, combo_check
from gradof.autograd.tracer import getval, isbox
from gradof.tracer.numpy import functions, ufuncs
from gradof.tracer.state.origins import Origins

X = onp.array([0.3, 0.7, 1.1])


def test_operators_of_one_number() -> None:
    assert ag.grad(lambda x: x**3)(2.0) == 12.0
    assert ag.grad(ag.grad(lambda x: x**3))(2.0) == 12.0
    assert ag.grad(lambda x: 1.0)(2.0) == 0.0 and ag.grad(lambda x: x)(2.0) == 1.0
    assert ag.deriv(np.sin)(0.0) == 1.0
    assert ag.value_and_grad(lambda x: x**2)(3.0) == (9.0, 6.0)
    assert ag.grad_named(lambda a, b: a * b**2, "b")(2.0, 3.0) == 12.0
    with pytest.raises(TypeError, match="scalar-output"):
        ag.grad(lambda x: x * 2)(X)


def test_operators_of_arrays() -> None:
    def fun(x: Any) -> Any:
        return np.sin(x) * x[0]

    jacobian = onp.diag(onp.cos(X) * X[0])
    jacobian[:, 0] += onp.sin(X)
    onp.testing.assert_allclose(ag.jacobian(fun)(X), jacobian)
    onp.testing.assert_allclose(ag.elementwise_grad(fun)(X), jacobian.sum(0))
    v = onp.array([1.0, -1.0, 2.0])
    onp.testing.assert_allclose(ag.make_jvp(fun)(X)(v)[1], jacobian @ v)
    onp.testing.assert_allclose(ag.make_vjp(fun)(X)[0](v), v @ jacobian)
    onp.testing.assert_allclose(ag.make_jvp_reversemode(fun)(X)(v), jacobian @ v)
    onp.testing.assert_allclose(ag.tensor_jacobian_product(fun)(X, v), v @ jacobian)

    def loss(x: Any) -> Any:
        return np.sum(x**3)

    onp.testing.assert_allclose(ag.hessian(loss)(X), onp.diag(6 * X))
    onp.testing.assert_allclose(ag.hessian_vector_product(loss)(X, v), 6 * X * v)
    onp.testing.assert_allclose(ag.make_hvp(loss)(X)[0](v), 6 * X * v)
    onp.testing.assert_allclose(ag.make_ggnvp(fun)(X)(v), jacobian.T @ jacobian @ v)
    onp.testing.assert_allclose(ag.grad(loss)(X), 3 * X**2)
    gradient, aux = ag.grad_and_aux(lambda x: (np.sum(x**2), x * 3))(X)
    onp.testing.assert_allclose(gradient, 2 * X)
    onp.testing.assert_allclose(aux, 3 * X)


def test_methods_of_two_objects_are_two_functions() -> None:
    class Model:
        def __init__(self, scale: float) -> None:
            self.scale = scale

        def loss(self, x: Any) -> Any:
            return self.scale * np.sum(x**2)

    for scale in (2.0, 3.0):
        model = Model(scale)
        for _ in range(2):
            onp.testing.assert_allclose(ag.value_and_grad(model.loss)(X)[1], 2 * scale * X)

    @functools.wraps(Model.loss)  # copies what was kept on it
    def half(model: Any, x: Any) -> Any:
        return 0.5 * model.loss(x)

    onp.testing.assert_allclose(ag.grad(half, 1)(model, X), model.scale * X)


def test_names_that_packages_built_on_autograd_import() -> None:
    from gradof.autograd.builtins import DictBox
    from gradof.autograd.numpy.numpy_boxes import ArrayBox
    from gradof.autograd.numpy.numpy_vjps import unbroadcast_f

    assert DictBox is dict and ArrayBox.__name__ == "TracedArray"
    rule = unbroadcast_f(onp.ones((1, 3)), lambda g: g * onp.ones((4, 2, 3)))
    onp.testing.assert_array_equal(rule(2.0), onp.full((1, 3), 16.0))
    assert unbroadcast_f(X, lambda g: g)(X) is X


def test_a_pullback_leads_to_none_of_our_books() -> None:
    """Its plan has functions of ours, whose globals are everything there is."""
    pull, _ = ag.make_vjp(lambda x: np.sin(x) * X)(X)
    asked: list[Any] = []

    def is_array(obj: Any) -> bool:
        asked.append(obj)
        return isinstance(obj, onp.ndarray)

    assert any(array is X for array, _ in Origins(pull, is_array).all())
    slope = gradof.grad(lambda x: np.sum(np.sin(x) * X))
    slope(onp.ones(3))  # makes a generated call
    assert any(array is X for array, _ in Origins(lambda x: slope(x), is_array).all())
    assert len(asked) < 200


def test_one_function_is_traced_once() -> None:
    traces: queue.SimpleQueue[int] = queue.SimpleQueue()  # what threads share no call repeats

    def loss(x: Any, scale: float) -> Any:
        traces.put(1)
        return np.sum(x**2) * scale

    for n in range(5):
        onp.testing.assert_allclose(ag.grad(loss)(X * n, 2.0), 4 * X * n)
    assert traces.qsize() == 1


def test_arguments_by_place_name_and_structure() -> None:
    def fun(a: Any, b: Any, *, c: float = 2.0) -> Any:
        return np.sum(a["w"] * b[0]) * c + np.sum(b[1] ** 2)

    a, b = {"w": X}, [X * 2, X * 3]
    both = ag.grad(fun, argnum=[0, 1])(a, b, c=3.0)
    onp.testing.assert_allclose(both[0]["w"], 6 * X)
    onp.testing.assert_allclose(both[1][1], 6 * X)
    named = ag.multigrad_dict(lambda x, y: np.sum(x * y))(X, 2 * X)
    assert isinstance(named, collections.OrderedDict)
    onp.testing.assert_allclose(named["y"], X)
    assert ag.grad(fun, 1).__name__ == "grad_of_fun_wrt_argnum_1"


def test_complex_numbers_have_autograds_convention() -> None:
    z = 0.4 + 0.3j
    onp.testing.assert_allclose(ag.holomorphic_grad(lambda z: np.sin(z) * z)(z),
                                onp.cos(z) * z + onp.sin(z))  # fmt: skip
    onp.testing.assert_allclose(ag.grad(lambda z: np.real(z * 1j))(z), 1j)
    check_grads(lambda z: np.abs(z) * np.exp(z))(z)


@pytest.mark.long
@pytest.mark.parametrize("shape", [(3, 3), (4, 3), (3, 4)])
def test_decompositions_of_complex_matrices(shape: tuple[int, int]) -> None:
    npr.seed(0)
    a = npr.randn(*shape) + 1j * npr.randn(*shape)

    def rebuilt(a: Any) -> Any:
        u, s, vh = np.linalg.svd(a, full_matrices=False)
        return np.dot(u * np.sin(s), vh)

    check_grads(rebuilt)(a)
    check_grads(lambda a: np.linalg.svd(a, compute_uv=False))(a)
    square = np.dot(a, np.conj(a).T)
    check_grads(lambda a: np.linalg.eigvalsh(a, "U"))(square)
    check_grads(lambda a: np.abs(np.linalg.eig(a)[0]))(a[:3, :3])
    check_grads(lambda a: np.abs(np.linalg.eigvals(a)))(a[:3, :3])


def test_the_triangle_that_eigh_reads_has_the_gradient() -> None:
    a = onp.arange(9.0).reshape(3, 3) + 5 * onp.eye(3)
    lower = ag.grad(lambda a: np.sum(np.linalg.eigvalsh(a) ** 3))(a)
    assert not onp.triu(lower, 1).any() and lower[2, 1] > 0


@pytest.mark.parametrize("shape", [(3, 2), (2, 3)])
def test_the_gradient_of_complex_singular_vectors(shape: tuple[int, int]) -> None:
    npr.seed(0)
    a = npr.randn(*shape) + 1j * npr.randn(*shape)

    def rebuilt(a: Any) -> Any:
        u, s, vh = np.linalg.svd(a, full_matrices=False)
        return np.dot(u * np.sin(s), vh)

    check_grads(rebuilt, modes=["rev"], order=1)(a)
    check_grads(lambda a: np.linalg.eigvalsh(a, "U"), modes=["rev"], order=1)(
        np.dot(a, np.conj(a).T)
    )


def test_primitives_of_the_users_own() -> None:
    @primitive
    def product(x: Any, y: Any) -> Any:
        assert type(x) is onp.ndarray
        return onp.array([float(a) * float(b) for a, b in zip(x, y, strict=True)])

    defvjp(product, lambda ans, x, y: lambda g: g * y, lambda ans, x, y: lambda g: g * x)
    check_grads(lambda x, y: product(np.sin(x), y), (0, 1), modes=["rev"])(X, X * 2)

    @primitive
    def cube(x: Any) -> Any:
        return x**3

    defjvp(cube, lambda g, ans, x: 3 * x**2 * g)
    check_grads(cube, modes=["fwd"])(X)
    missing = primitive(lambda x: x * 2)
    with pytest.raises(NotImplementedError, match="not defined"):
        ag.grad(lambda x: np.sum(missing(x)))(X)
    rounded = notrace_primitive(onp.round)
    onp.testing.assert_allclose(ag.grad(lambda x: np.sum(rounded(x) * x))(X), onp.round(X))
    with pytest.warns(UserWarning, match="no primitive, and its rule is not used"):
        defvjp(lambda x: x, None)  # as in autograd: packages have such lines
    with pytest.raises(TypeError, match="has no rule"):
        defvjp(3.0, None)


def test_rules_for_functions_of_numpys(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take the place of ours, as in autograd: this one is wrong, so that it is seen."""
    overrides: dict[Any, Any] = {}
    for module in (functions, ufuncs, primitives):
        monkeypatch.setattr(module, "OVERRIDES", overrides)
    defvjp(np.where, None, lambda ans, c, x, y: lambda g: 2 * np.where(c, g, 0.0),
           lambda ans, c, x, y: lambda g: np.where(c, 0.0, g))  # fmt: skip
    defjvp(onp.sin, lambda g, ans, x: 3 * g * onp.cos(x))

    def fun(x: Any) -> Any:
        return np.sum(np.where(x > 0.5, x, x + 1.0))

    onp.testing.assert_allclose(ag.grad(fun)(X), [1.0, 2.0, 2.0])
    onp.testing.assert_allclose(ag.grad(lambda x: np.sum(np.sin(x)))(X), 3 * onp.cos(X))
    defvjp(onp.multiply, lambda ans, x, y: lambda g: g * y, lambda ans, x, y: lambda g: 5 * g * x)
    onp.testing.assert_allclose(ag.grad(lambda x: np.sum(x * (x + 1.0)))(X), X + 1 + 5 * X)


def test_spaces_and_boxes() -> None:
    seen: list[Any] = []

    def fun(x: Any) -> Any:
        seen.append((isbox(x), ag.type(x) is onp.ndarray, ag.isinstance(x, onp.ndarray)))
        assert type(getval(x)) is onp.ndarray and vspace(x) == vspace(X)
        return np.sum(x)

    ag.grad(fun)(X)
    assert seen == [(False, True, True)]  # by the function itself, which getval asks for
    ag.grad(lambda x: np.sum(x) if isbox(x) else None)(X)
    space = vspace([1.0, (X, 2j)])
    assert space.size == 6 and len(list(space.standard_basis())) == 6
    check_equivalent(space.add(space.ones(), space.zeros()), space.ones())
    combo_check(np.sum, [0])([X, onp.ones((3, 2))], axis=[None, 0])


@pytest.mark.long  # the tools are those that `make autograd` runs, too
def test_tools() -> None:
    value = {"b": [onp.ones(2), 3.0], "a": (onp.zeros((2, 2)),)}
    flat, unflatten = flatten(value)
    onp.testing.assert_array_equal(flat, [0, 0, 0, 0, 1, 1, 3])
    assert unflatten(flat * 2)["b"][1] == 6.0
    check_grads(lambda v: flatten({"x": v})[0] ** 2, modes=["rev"], order=1)(X)
    for optimize in (sgd, rmsprop, adam):
        told: list[int] = []

        def tell(p: Any, i: int, g: Any, told: list[int] = told) -> None:
            told.append(i)

        found = optimize(lambda p, i: {"x": 2 * p["x"]}, {"x": X}, tell, num_iters=50,
                         step_size=0.05)  # fmt: skip
        assert onp.abs(found["x"]).sum() < onp.abs(X).sum() and told == list(range(50))
    assert const_graph(lambda x, y: x * y, 3.0)(2.0) == 6.0

    def newton(a: Any) -> Any:
        return lambda x: 0.5 * (x + a / x)

    def root(a: Any) -> Any:
        return fixed_point(newton, a, 1.0, lambda x, y: abs(x - y), 1e-12)

    assert abs(ag.grad(root)(2.0) - 0.5 / onp.sqrt(2.0)) < 1e-9
    assert abs(ag.grad(ag.grad(root))(2.0) + 0.25 * 2.0**-1.5) < 1e-8


def test_scipy_under_autograds_names() -> None:
    import gradof.autograd.scipy.special as special
    import gradof.autograd.scipy.stats as stats
    import gradof.autograd.scipy.stats.norm as norm

    def fun(x: Any) -> Any:
        return special.logsumexp(x) + stats.norm.logpdf(x, 0.5, 2.0) + norm.logcdf(x)

    check_grads(fun, modes=["rev"], order=1)(X)


def test_integers_in_the_differentiated_place_are_real_numbers() -> None:
    times: Any = onp.array([1, 2, 5])
    power = lambda p, t: p * t**3  # noqa: E731
    slope = ag.elementwise_grad(power, 1)
    found: Any = slope(2.0, times)
    onp.testing.assert_allclose(found, [6.0, 24.0, 150.0])
    square: Any = lambda t: t**2  # noqa: E731
    slopes: Any = 2.0 * times
    onp.testing.assert_allclose(ag.grad(lambda t: np.sum(square(t)))(times), slopes)
    onp.testing.assert_allclose(ag.jacobian(square)(times), onp.diag(slopes))
    onp.testing.assert_allclose(ag.make_jvp(square)(times)(onp.ones(3))[1], slopes)
    hazards = lambda p, t: np.sum(np.log(slope(p, t)))  # noqa: E731  # a slope within a loss
    value, gradient = ag.value_and_grad(hazards)(onp.array(2.0), times)
    onp.testing.assert_allclose(value, onp.log(12.0 * times**2).sum() - 3 * onp.log(2.0))
    onp.testing.assert_allclose(gradient, 1.5)


def test_arrays_are_joined_from_any_iterable() -> None:
    def loss(x: Any) -> Any:
        parts = {"a": x, "b": 2.0 * x}
        rows = np.stack(parts.values()), np.vstack(iter([x, x])), np.concatenate(parts.values())
        return np.sum(rows[0] ** 2) + np.sum(rows[1]) + np.sum(rows[2][2:])

    onp.testing.assert_allclose(ag.grad(loss)(X), 10 * X + 4.0 + onp.array([0.0, 0.0, 1.0]))
    assert np.stack({"a": X}.values()).shape == (1, 3)

    def uneven(x: Any) -> Any:
        return np.sum(np.concatenate((x, onp.ones(2))) * np.hstack([x, [1.0, x[0]]]))

    onp.testing.assert_allclose(ag.grad(uneven)(X), 2 * X + onp.array([1.0, 0.0, 0.0]))


def test_a_profiler_goes_on_where_a_primitive_runs() -> None:
    @primitive
    def cube(x: Any) -> Any:
        return onp.frombuffer(x.tobytes()) ** 3  # no graph: it is called

    defvjp(cube, lambda ans, x: lambda g: g * 3 * x**2)
    slope = ag.grad(lambda x: np.sum(cube(x)))
    slope(X)
    profile = cProfile.Profile()
    profile.enable()
    onp.testing.assert_allclose(slope(X), 3 * X**2)
    profile.disable()
    assert any("cube" in str(entry.code) for entry in profile.getstats())


def test_second_derivatives_of_logaddexp_far_from_zero() -> None:
    def smooth_abs(x: Any) -> Any:
        return np.sum(np.logaddexp(0, -1e3 * x) + np.logaddexp(0, 1e3 * x)) / 1e3

    x = onp.array([-2.0, 0.0, 1.0])
    onp.testing.assert_allclose(ag.grad(smooth_abs)(x), onp.sign(x))
    second = ag.elementwise_grad(ag.elementwise_grad(smooth_abs))(x)
    onp.testing.assert_allclose(second, [0.0, 500.0, 0.0], atol=1e-12)


@pytest.mark.parametrize("mode", ["full", "valid"])
def test_convolve_over_some_axes(mode: Any) -> None:
    a, b = npr.randn(3, 5), npr.randn(3, 4, 2)
    if mode == "valid":
        a, b = npr.randn(3, 2), npr.randn(3, 4, 4)

    def fun(a: Any, b: Any) -> Any:
        return signal.convolve(a, b, axes=([1], [2]), dot_axes=([0], [0]), mode=mode)

    want: Any = [sum(onp.convolve(a[i], b[i, j], mode) for i in range(3)) for j in range(4)]
    onp.testing.assert_allclose(fun(a, b), want, rtol=1e-12)
    check_grads(fun, modes=["rev"], order=1)(a, b)
    same = signal.convolve(a, b[:, 0], mode="full")
    onp.testing.assert_allclose(same, scipy.signal.convolve(a, b[:, 0]), rtol=1e-12)
    with pytest.raises(ValueError, match="larger along all"):
        signal.convolve(onp.ones((3, 2)), onp.ones((2, 3)), mode="valid")


def test_real_if_close_takes_the_branch_of_the_values() -> None:
    def fun(x: Any) -> Any:
        return np.sum(np.abs(np.real_if_close(np.fft.ifft(np.fft.fft(x)) * x) ** 2))

    for x in (X, X + 0.5j, X):
        onp.testing.assert_allclose(ag.grad(fun)(x), 4 * onp.abs(x) ** 4 / x, rtol=1e-12)
