"""The scipy table: scipy.spatial.distance, and integrals of samples."""

from __future__ import annotations

from gradof.testing.numpy_samples import Case, R, Sample, case, definite, positive, rising

_D, _I = "scipy.spatial.distance", "scipy.integrate"


def _of(module: str, name: str, *calls: str, on: tuple[Sample, ...]) -> tuple[Case, ...]:
    return tuple(case(f"{module}.{name}", f"{module}.{name}({call})", *on) for call in calls)


_PAIR = (positive(4), positive(4))
_WEIGHTED = ("euclidean", "sqeuclidean", "cityblock", "cosine", "correlation", "canberra",
             "braycurtis")  # fmt: skip
_METRICS = (*_WEIGHTED, "chebyshev", "jensenshannon", "minkowski", "seuclidean", "mahalanobis")
DISTANCES = (
    *(case(f"{_D}.{n}", f"x[0] * {_D}.{n}({call})", *_PAIR, positive(4))
      for n in _WEIGHTED for call in ("x, y", "x, y, z")),
    *_of(_D, "chebyshev", "x, y", on=_PAIR), *_of(_D, "jensenshannon", "x, y", "x, y, 2", on=_PAIR),
    *_of(_D, "minkowski", "x, y, 3", "x, y, p=3, w=x", on=_PAIR),
    case(f"{_D}.seuclidean", f"x[0] * {_D}.seuclidean(x, y, z)", *_PAIR, positive(4)),
    *_of(_D, "mahalanobis", "x, y, z", on=(R(3), R(3), definite(3))),
    *_of(_D, "cdist", *(f"x, y, '{m}'" for m in _METRICS), "x, y, 'minkowski', p=3",
         on=(positive(5, 3), positive(4, 3))),
    *_of(_D, "pdist", *(f"x, '{m}'" for m in _METRICS if m != "chebyshev"), on=(positive(6, 3),)),
    *_of(_D, "squareform", "x", on=(R(6),)),
    *_of(_D, "squareform", "x * x.T * (1 - np.eye(3))", on=(R(3, 3),)),
)  # fmt: skip
_XY = (R(7), rising(7))
INTEGRALS = (
    *_of(_I, "trapezoid", "x", "x, y", "x, dx=0.3", on=_XY),
    *_of(_I, "trapezoid", "x, axis=0", on=(R(3, 4),)),
    *_of(_I, "cumulative_trapezoid", "x", "x, y", "x, y, initial=0", on=_XY),
    *_of(_I, "simpson", "x", "x, x=y", "x[:6], x=y[:6]", "x[:6]", on=_XY),
    *_of(_I, "cumulative_simpson", "x", "x, x=y", on=_XY),
    *_of(_I, "romb", "x, dx=0.2", on=(R(9),)),
    case(f"{_I}.fixed_quad", f"{_I}.fixed_quad(lambda t: np.exp(-x[0] * t * t), 0.0, x[1], n=6)[0]",
         positive(2)),
)  # fmt: skip
_LV = "lambda y, t, a: np.stack([y[0] * (1.0 - y[1]), a * y[1] * (y[0] - 1.0)])"
_VL = "lambda t, y, a: np.stack([y[0] * (1.0 - y[1]), a * y[1] * (y[0] - 1.0)])"
_T = "np.linspace(0.0, 2.0, 4)"
_TIGHT = "rtol=1e-12, atol=1e-13"
_DENSE = f"{_TIGHT}, method='DOP853'"  # whose values between steps are as good
_CROSSES = "lambda t, y, a: y[0] - y[1] * a"
_FUNCTIONS = (
    "quad(lambda t: np.exp(-x[0] * t), 0.0, x[1])[0]",
    "quad(lambda t, a: np.exp(-a * t * t), -np.inf, np.inf, args=(x[0],))[0]",
    "quad(lambda t: np.exp(-x[0] * t * t), x[1] - np.inf * x[0], x[1] * np.inf)[0]",
    "quad_vec(lambda t: np.cos(x * t), 0.0, x[1], epsabs=1e-5, epsrel=1e-5)[0]",
    "dblquad(lambda s, t: np.exp(-x[0] * s * t), 0.0, 1.0, 0.0, lambda t: x[1] * t)[0]",
    "nquad(lambda s, t: np.exp(-x[0] * s * t), [[0.0, 1.0], [0.0, x[1]]])[0]",
    f"odeint({_LV}, x, {_T}, args=(x[0],), {_TIGHT})",
    f"odeint(lambda y, t: -y * t * x, x, np.stack([0.1 * x[0], 1.0, 1.0 + x[1]]), {_TIGHT})",
    f"solve_ivp({_VL}, (0.0, 2.0), x, t_eval={_T}, args=(x[0],), {_TIGHT}).y",
    f"solve_ivp({_VL}, (0.0, 3.0), x, args=(x[0],), dense_output=True, {_TIGHT}).sol("
    "np.array([0.7, 0.2, 0.7, 2.0]))",
    f"solve_ivp({_VL}, (0.0, 8.0), x, args=(x[0],), events={_CROSSES}, {_DENSE}).t_events[0]",
    f"solve_ivp({_VL}, (0.0, 8.0), x, args=(x[0],), events=[{_CROSSES}, lambda t, y, a: t - a], "
    f"t_eval={_T}, {_DENSE}).y_events[1][0]",
)
FUNCTIONS = tuple(
    case(f"{_I}.{f.partition('(')[0]}", f"x[0] * {_I}.{f}", positive(2)) for f in _FUNCTIONS
)
CASES = (*DISTANCES, *INTEGRALS, *FUNCTIONS)
