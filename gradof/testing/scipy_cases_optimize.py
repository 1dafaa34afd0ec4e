"""The scipy table: scipy.optimize, by the implicit function theorem."""

from __future__ import annotations

from gradof.testing.numpy_samples import Case, R, case, exactly, positive

_O = "scipy.optimize"
_F = "lambda t, a, b: t**3 + a * t - b"
_SYSTEM = "lambda v: np.array([v[0] ** 3 + x[0] * v[1] - 1.0, v[1] + x[1] * v[0] ** 2 - 2.0])"
_COST = "lambda v: np.sum((v - x) ** 2) + 0.3 * np.sum(v ** 4)"
_SLOPE = "lambda v: 2 * (v - x) + 1.2 * v ** 3"
CASES: tuple[Case, ...] = (
    *(case(f"{_O}.{n}", f"x[0] * {_O}.{n}({_F}, 0.0, 4.0, "
           "args=(x[0], x[1]), xtol=1e-14, rtol=1e-14)", positive(2))
      for n in ("brentq", "brenth", "bisect", "ridder")),
    case(f"{_O}.brentq",
         f"x[0] * {_O}.brentq(lambda t: t**3 - x[0] * t - x[1], 0.0, 9.0, xtol=1e-14)",
         positive(2)),
    case(f"{_O}.rosen", f"{_O}.rosen(x)", R(4)),
    case(f"{_O}.newton", f"{_O}.newton({_F}, 1.0, args=(x[0], x[1]), tol=1e-14)", positive(2)),
    case(f"{_O}.fsolve", f"{_O}.fsolve({_SYSTEM}, np.array([0.5, 1.0]), xtol=1e-14)",
         exactly([0.4, 0.3])),
    case(f"{_O}.root", f"{_O}.root({_SYSTEM}, np.array([0.5, 1.0]), tol=1e-14).x",
         exactly([0.4, 0.3])),
    case(f"{_O}.fixed_point", f"{_O}.fixed_point(lambda t: np.cos(x * t), x * 0.5, xtol=1e-14)",
         R(2, low=0.3, high=0.8)),
    case(f"{_O}.minimize", f"{_O}.minimize({_COST}, np.zeros(2), jac={_SLOPE},"
         " hess=lambda v: np.diag(2 + 3.6 * v * v), method='Newton-CG', tol=1e-14).x", R(2)),
)  # fmt: skip
