"""scipy.integrate's solvers: values are scipy's own, gradients those of the exact solution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.integrate import odeint, quad, solve_ivp

from gradof import differentiate, grad, hessian, value_and_grad
from gradof.errors import DataDependentError, UnsupportedOpError
from gradof.tracer.scipy import sensitivities

P = np.array([0.7, 1.3])
T = np.array([0.0, 0.5, 1.0, 2.0])


def _decay(p: Any) -> Any:
    """y' = -a y, y(0) = b: the solution is b exp(-a t)."""
    return np.sum(odeint(lambda y, t: -p[0] * y, p[1:], T, rtol=1e-11, atol=1e-13) ** 2)


def _known(p: Any) -> Any:
    return np.sum(p[1] ** 2 * np.exp(-2 * p[0] * T))


@pytest.mark.parametrize("few", [2000, 0], ids=["sensitivities", "adjoint"])
def test_gradients_of_an_equation_are_those_of_its_solution(
    few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sensitivities, "FEW", few)

    def fn(p: Any) -> Any:
        return _decay(p)

    gradient = value_and_grad(fn)
    value, slope = gradient(P)
    assert value == _decay(P)  # scipy's own
    assert gradient.cache_info().backward_runs == 1
    np.testing.assert_allclose(slope, grad(_known)(P), rtol=1e-8)
    np.testing.assert_allclose(hessian(fn)(P), hessian(_known)(P), rtol=1e-7)


class _Model:
    """A right hand side that knows its parameters by an attribute."""

    def __init__(self, a: Any) -> None:
        self.a = a

    def slope(self, t: Any, y: Any) -> Any:
        return -self.a * y


def test_steps_of_the_solvers_own_are_taken_at_every_call() -> None:
    def fn(p: Any) -> Any:
        found = solve_ivp(_Model(p[0]).slope, (0.0, 2.0), p[1:], rtol=1e-8, atol=1e-10)
        return found.y[0, -1] + 0.0 * np.sum(found.t)

    gradient = value_and_grad(fn)
    for p in (P, P * 40.0, P):
        value, slope = gradient(p)
        assert value == fn(p)
        end = np.exp(-2.0 * p[0])
        np.testing.assert_allclose(slope, [-2.0 * p[1] * end, end], rtol=1e-5, atol=1e-9)
    assert gradient.cache_info().misses == 2  # one trace for each number of steps


def test_an_integral_is_differentiated_by_its_ends_and_by_what_its_integrand_knows() -> None:
    def fn(p: Any) -> Any:
        return quad(lambda t: np.exp(-p[0] * t), 0.0, p[1])[0]

    def known(p: Any) -> Any:
        return (1.0 - np.exp(-p[0] * p[1])) / p[0]

    value, slope = value_and_grad(fn)(P)
    assert value == fn(P)
    np.testing.assert_allclose(slope, grad(known)(P), rtol=1e-12)
    np.testing.assert_allclose(hessian(fn)(P), hessian(known)(P), rtol=1e-10)


def test_what_has_no_derivative_is_refused_with_the_line() -> None:
    def events(p: Any) -> Any:
        return solve_ivp(lambda t, y: -p * y, (0, p[0]), P, events=lambda t, y: y[0]).y[0, -1]

    def complex_function(p: Any) -> Any:
        return quad(lambda t: np.exp(-p[0] * t), 0.0, 1.0, complex_func=True)[0]

    for fn, what in ((events, "with events"), (complex_function, "complex_func")):
        with pytest.raises(UnsupportedOpError, match=what) as caught:
            grad(fn)(P)
        assert "test_scipy_integrals.py" in str(caught.value)


def lands(t: float, y: Any, drag: float) -> Any:
    return y[0]


def rises(t: float, y: Any, drag: float) -> Any:
    return y[1]


lands.terminal, lands.direction = True, -1  # type: ignore[attr-defined]


def thrown(p: Any, events: Any, times: Any = None) -> Any:
    """Height and speed of what is thrown up; p has both at first, and the drag."""
    return solve_ivp(
        lambda t, y, drag: np.stack([y[1], -9.81 - drag * y[1]]), (0.0, 10.0), p[:2],
        events=events, args=(p[2],), t_eval=times, rtol=1e-10, atol=1e-10, method="DOP853",
    )  # fmt: skip


def speed(p: Any, t: Any) -> Any:
    return (p[1] + 9.81 / p[2]) * np.exp(-p[2] * t) - 9.81 / p[2]


EVENTS: dict[str, Any] = {
    "its time": lambda p: thrown(p, rises).t_events[0][0],
    "its values": lambda p: thrown(p, [lands, rises]).y_events[1][0, 0],
    "the end": lambda p: thrown(p, lands).y[1, -1],
    "the end by another name": lambda p: dict(thrown(p, lands))["t"][-1],
    "times before the end": lambda p: np.sum(thrown(p, lands, np.linspace(0, 1, 5)).y ** 2),
}


@pytest.mark.parametrize("name", EVENTS)
def test_events_have_derivatives(name: str) -> None:
    fn, p = EVENTS[name], np.array([1.0, 5.0, 0.1])
    value, slope = value_and_grad(fn)(p)
    assert value == fn(p)
    step = 1e-5 * np.eye(3)
    np.testing.assert_allclose(
        slope, [(fn(p + d) - fn(p - d)) / 2e-5 for d in step], rtol=1e-5, atol=1e-8
    )
    slopes = [(grad(fn)(p + d) - grad(fn)(p - d)) / 2e-5 for d in step]
    np.testing.assert_allclose(hessian(fn)(p), slopes, rtol=1e-5, atol=1e-6)


def test_the_time_of_the_highest_point_is_known() -> None:
    def known(p: Any) -> Any:
        return np.log(1.0 + p[1] * p[2] / 9.81) / p[2]

    p = np.array([1.0, 5.0, 0.1])
    assert abs(speed(p, known(p))) < 1e-12
    np.testing.assert_allclose(grad(EVENTS["its time"])(p), grad(known)(p), rtol=1e-8)
    np.testing.assert_allclose(hessian(EVENTS["its time"])(p), hessian(known)(p), rtol=1e-6,
                               atol=1e-9)  # fmt: skip


def test_a_solution_that_ends_before_it_is_infinite() -> None:
    def reached(p: Any) -> Any:
        far = p[0] * 1.0

        def hit(t: float, y: Any) -> Any:
            return y[0] - far

        hit.terminal = True  # type: ignore[attr-defined]
        found = solve_ivp(lambda t, y: y**2, (0.0, 5.0), np.stack([p[1]]), events=hit,
                          rtol=1e-9, atol=1e-9)  # fmt: skip
        return found.t_events[0][0]

    p = np.array([3.0, 1.0])  # y = 1 / (1 / y0 - t)
    np.testing.assert_allclose(differentiate(reached)(p), reached(p))
    np.testing.assert_allclose(grad(reached)(p), [1 / 9, -1.0], rtol=1e-7)
    np.testing.assert_allclose(np.diag(hessian(reached)(p)), [-2 / 27, 2.0], rtol=1e-6)


@pytest.mark.parametrize("events", [None, lambda t, y: y[0] - 0.5])
def test_a_jacobian_is_of_the_equation_alone(events: Any) -> None:
    def fn(p: Any) -> Any:
        found = solve_ivp(lambda t, y: -2.0 * y, (0.0, 1.0), p, method="BDF", t_eval=[0.5, 1.0],
                          jac=lambda t, y: -2.0 * np.eye(2), events=events, rtol=1e-8, atol=1e-9,
                          )  # fmt: skip
        return np.sum(found.y**2)

    want = 2.0 * np.sum(np.exp([-2.0, -4.0])) * np.eye(2)
    np.testing.assert_allclose(hessian(fn)(P), want, rtol=1e-5, atol=1e-7)


def test_an_event_alone_may_know_the_arrays() -> None:
    def crossed(p: Any) -> Any:
        found = solve_ivp(lambda t, y: -y, (0.0, 4.0), [2.0], events=lambda t, y: y[0] - p,
                          rtol=1e-10, atol=1e-10, method="DOP853")  # fmt: skip
        return found.t_events[0][0]

    for p in np.array([0.5, 0.3]):
        np.testing.assert_allclose(differentiate(crossed)(p), np.log(2.0 / p), rtol=1e-8)
        np.testing.assert_allclose(grad(crossed)(p), -1.0 / p, rtol=1e-7)
        np.testing.assert_allclose(hessian(crossed)(p), 1.0 / p**2, rtol=1e-6)


def test_another_number_of_events_is_another_trace() -> None:
    def crossings(p: Any) -> Any:
        found = solve_ivp(lambda t, y: np.stack([y[1], -p * p * y[0]]), (0.0, 4.0), [1.0, 0.0],
                          events=lambda t, y: y[0], rtol=1e-9, atol=1e-9)  # fmt: skip
        return found.t_events[0]

    for speed in (1.0, 3.0, 0.2, 1.1):
        times = differentiate(crossings)(np.float64(speed))
        np.testing.assert_array_equal(times, crossings(np.float64(speed)))
        if len(times):
            by = grad(lambda p: np.sum(crossings(p)))(np.float64(speed))
            np.testing.assert_allclose(by, -np.sum(times) / speed, rtol=1e-6)


def test_an_equation_may_change_at_a_time() -> None:
    def fn(p: Any) -> Any:
        def slope(t: float, y: Any) -> Any:
            return -p[0] * y if t < 1.0 else -p[1] * y

        return solve_ivp(slope, (0.0, 2.0), [1.0], t_eval=[0.5, 1.5, 2.0]).y[0]

    for p in (P, P[::-1].copy()):
        ends = np.exp([-0.5 * p[0], -p[0] - 0.5 * p[1], -p[0] - p[1]])
        want = -np.sum([0.5, 1.0, 1.0] * ends), -np.sum([0.0, 0.5, 1.0] * ends)
        np.testing.assert_allclose(grad(lambda p: np.sum(fn(p)))(p), want, rtol=1e-7)


def test_a_branch_that_a_gradient_by_times_would_take_is_refused_with_the_line() -> None:
    def fn(p: Any, times: Any) -> Any:
        return np.sum(odeint(lambda y, t: -p[0] * y if t < 1.0 else -y, p[1:], times))

    with pytest.raises(DataDependentError, match=r"test_scipy_integrals\.py"):
        grad(fn, argnums=(0, 1))(P, T)


def test_an_integrand_with_kinks_at_points_that_are_told() -> None:
    def fn(p: Any) -> Any:
        def kinked(t: Any) -> Any:
            return p[0] * abs(t - 0.25) + t * np.where(t > 0.6, p[1], p[0] * p[1])

        return quad(kinked, 0.0, 1.0, points=[0.25, 0.6])[0]

    want = (0.25**2 + 0.75**2) / 2 + 0.18 * P[1], 0.32 + 0.18 * P[0]
    np.testing.assert_allclose(grad(fn)(P), want, rtol=1e-12)
