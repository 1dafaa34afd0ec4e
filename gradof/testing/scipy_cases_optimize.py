"""The scipy table: scipy.optimize, by the implicit function theorem."""

from __future__ import annotations

from gradof.testing.numpy_samples import Case, R, case, exactly, positive

_O = "scipy.optimize"
_E = f"{_O}.elementwise"
_EACH = "lambda t, a: t**3 - a * t - 1"
_F = "lambda t, a, b: t**3 + a * t - b"
_SYSTEM = "lambda v: np.array([v[0] ** 3 + x[0] * v[1] - 1.0, v[1] + x[1] * v[0] ** 2 - 2.0])"
_COST = "lambda v: np.sum((v - x) ** 2) + 0.3 * np.sum(v ** 4)"
_SLOPE = "lambda v: 2 * (v - x) + 1.2 * v ** 3"
_QUARTIC = "lambda v: np.sum((v - x) ** 2) + 0.3 * np.sum(v ** 4)"
_SUM = f"{_QUARTIC}, np.array([0.1, 0.2])"
_ONE = "lambda t: (t - x[0]) ** 2 + x[1] * t ** 4"
_T = "np.linspace(0.0, 2.0, 9)"
# Of models that are linear in the parameters scipy's fit is right to all digits.
_DATA = f"x[0] * np.exp(-x[1] * {_T}) + 0.1 * np.sin(7 * {_T})"
_MODEL = "lambda t, a, b: a * np.exp(-t) + b * t"
_BY = "jac=lambda t, a, b: np.stack([np.exp(-t), t], axis=1)"
_LEFT = f"lambda p: p[0] * np.exp(-x[1] * {_T}) + p[1] * {_T} - ({_DATA})"
_PULL = f"lambda p: np.stack([np.exp(-x[1] * {_T}), {_T}], axis=1)"
_TIGHT = "ftol=1e-15, xtol=1e-15, gtol=1e-15"
_A = "np.array([[1.0, 2.0, 0.5], [0.0, 1.0, 1.0], [2.0, 0.0, 1.0], [1.0, 1.0, 1.0]])"
_LINE = "np.array([[1.0, 1.0, 1.0], [1.0, 3.0, 0.5]])"
_PAIRS = "[(-2.0, 2.0), (-2.0, 2.0)]"


def _fits() -> tuple[Case, ...]:
    """Least squares; of a robust loss the cost, whose error is the square of the place's."""
    at = exactly([0.7, 1.3])
    options = ("", ", loss='soft_l1', f_scale=0.1", ", bounds=([0.0, -1.0], [10.0, -0.1 * x[0]])")
    fits = [f"{_O}.least_squares({_LEFT}, [1.0, -0.5], {_PULL}, {_TIGHT}{o})" for o in options]
    least = f"{_O}.leastsq({_LEFT}, [1.0, 1.0], Dfun={_PULL}, {_TIGHT}"
    curve = f"{_O}.curve_fit({_MODEL}, {_T}, {_DATA}"
    more = (", sigma=0.1 + x[1] * " + _T, ", sigma=np.eye(9) + 0.1 * x[0], absolute_sigma=True")
    return (
        *(case(f"{_O}.least_squares", f + (".cost" if "loss" in f else ".x"), at) for f in fits),
        case(f"{_O}.least_squares", f"r = {fits[0]}\n"
             "return np.linalg.inv(r.jac.T @ r.jac) * r.cost + np.sum(r.fun * r.fun)", at),
        case(f"{_O}.leastsq", f"{least})[0]", at),
        case(f"{_O}.leastsq", f"{least}, full_output=True)[1]", at),
        *(case(f"{_O}.curve_fit", f"{curve}{m}, {_BY}, {_TIGHT})[{i}]", at)
          for m in more for i in (0, 1)),
        case(f"{_O}.curve_fit",
             f"{curve}, bounds=(0.0, [10.0, 0.1 * x[0]]), {_BY}, {_TIGHT})[0]", at),
    )  # fmt: skip


def _held() -> tuple[Case, ...]:
    """Minima with bounds and constraints."""
    sums = "{'type': 'eq', 'fun': lambda v: np.sum(v) - x[0]}"
    above = "{'type': 'ineq', 'fun': lambda v: v[0] * v[1] - 0.05 * x[1]}"
    rows = "scipy.optimize.LinearConstraint(np.array([[1.0, 2.0]]), -np.inf, x[1])"
    curve = "scipy.optimize.NonlinearConstraint(lambda v: v[0] * v[1], 0.1 * x[0], np.inf)"
    way = f"jac={_SLOPE}, method='SLSQP', options={{'ftol': 1e-16}}"
    forms = (f"bounds=[(None, 0.2), (None, None)], {way}", f"bounds=[(x[1], None)] * 2, {way}",
             f"constraints={sums}, {way}", f"constraints=[{sums}, {above}], {way}",
             f"constraints=[{rows}, {curve}], {way}")  # fmt: skip
    at = exactly([0.4, 0.7])
    return tuple(
        case(f"{_O}.minimize", f"{_O}.minimize({_SUM}, {form}).{part}", at)
        for form, part in zip(forms, ("x", "x", "x", "x", "fun"), strict=True)
    )


def _minima() -> tuple[Case, ...]:
    """The minimum itself, whose error is the square of its place's."""
    older = {
        "fmin": "xtol=1e-12, ftol=1e-15, disp=0", "fmin_bfgs": "gtol=1e-9, disp=0",
        "fmin_cg": "gtol=1e-9, disp=0", "fmin_powell": "xtol=1e-12, ftol=1e-15, disp=0",
        "fmin_ncg": f"{_SLOPE}, avextol=1e-12, disp=0", "fmin_tnc": f"fprime={_SLOPE}, disp=0",
        "fmin_l_bfgs_b": f"fprime={_SLOPE}, factr=10.0, pgtol=1e-10",
        "fmin_slsqp": "iprint=0, acc=1e-15", "basinhopping": "niter=2, rng=1",
    }  # fmt: skip
    pairs = {
        "differential_evolution": "rng=1, tol=1e-10", "dual_annealing": "rng=1, maxiter=30",
        "shgo": "n=20", "brute": "Ns=5, finish=scipy.optimize.fmin_bfgs, disp=False",
    }  # fmt: skip
    first = {"fmin_l_bfgs_b": "[0]", "fmin_tnc": "[0]", "basinhopping": ".x",
             "differential_evolution": ".x", "dual_annealing": ".x", "shgo": ".x", "direct": ".x"}
    at = exactly([0.4, 0.7])
    cost = f"cost = {_QUARTIC}\n"
    return (
        *(case(f"{_O}.{n}", f"{cost}return cost({_O}.{n}({_SUM}, {o}){first.get(n, '')})", at)
          for n, o in older.items()),
        *(case(f"{_O}.{n}",
               f"{cost}return cost({_O}.{n}({_QUARTIC}, {_PAIRS}, {o}){first.get(n, '')})", at)
          for n, o in pairs.items()),
        # its boxes have a middle at 0, where the minimum is
        case(f"{_O}.direct", f"cost = lambda t: x[1] * t[0] ** 2 + x[0] * (1.0 + t[0] ** 4)\n"
             f"return cost({_O}.direct(cost, [(-2.0, 2.0)]).x) * x[1]", at),
        case(f"{_O}.minimize_scalar", f"{_O}.minimize_scalar({_ONE}, tol=1e-12).fun", at),
        case(f"{_O}.minimize_scalar", f"{_O}.minimize_scalar({_ONE}, bounds=(0.0, 0.3 * x[1]), "
             "method='bounded', options={'xatol': 1e-12}).fun", exactly([0.9, 0.7])),
        *(case(f"{_O}.{n}", f"t = {_O}.{n}({_ONE}{o})\nreturn ({_ONE})(t)", at)
          for n, o in (("fminbound", ", 0.0, 3.0"), ("brent", ""), ("golden", ""))),
    )  # fmt: skip


def _programs() -> tuple[Case, ...]:
    c = "np.array([-1.0, -2.0, -0.7]) * x"
    ends = "[(0.0, 1.5), (0.0, None), (0.2, x[2])]"
    b = "np.array([4.0, 5.0]) * x[:2]"
    at = exactly([0.7, 1.3, 0.9])
    cost = "np.outer(x, [4.0, 1.0, 3.0]) + np.eye(3)"
    return (
        case(f"{_O}.linprog", f"{_O}.linprog({c}, {_LINE}, {b}, bounds={ends}).x", at),
        case(f"{_O}.linprog",
             f"np.ones(1) * {_O}.linprog({c}, {_LINE}, {b}, [[1.0, -1.0, 0.0]], x[:1]).fun", at),
        case(f"{_O}.nnls", f"a, b = {_A} + 0.1 * x, np.array([1.0, -1.0, 2.0, 0.5])\n"
             f"r = {_O}.nnls(a, b * x[0])\nreturn r[0] * r[1]", at),
        *(case(f"{_O}.lsq_linear", f"{_O}.lsq_linear({_A} + 0.1 * x, x[0] * "
               f"np.array([1.0, -1.0, 2.0, 0.5]), bounds={bounds}, tol=1e-14).x", at)
          for bounds in ("(-np.inf, np.inf)", "(-0.1, 0.5 * x[1])")),
        case(f"{_O}.linear_sum_assignment",
             f"c = {cost}\nreturn c[{_O}.linear_sum_assignment(c)]", at),
        case(f"{_O}.isotonic_regression", f"{_O}.isotonic_regression(np.array([1.0, 3.0, 2.0, 4.0, "
             "3.5, 5.0]) * x, weights=y).x", positive(6), positive(6)),
    )  # fmt: skip


CASES: tuple[Case, ...] = (
    *_fits(), *_held(), *_minima(), *_programs(),
    case(f"{_O}.root_scalar", f"x[0] * {_O}.root_scalar({_F}, args=(x[0], x[1]), "
         "bracket=(0.0, 4.0), xtol=1e-14, rtol=1e-14).root", positive(2)),
    case(f"{_O}.root_scalar", f"{_O}.root_scalar(lambda t: (t**3 + x[0] * t - x[1], "
         "3 * t**2 + x[0]), x0=1.0, fprime=True, xtol=1e-14).root", positive(2)),
    case(f"{_O}.toms748", f"{_O}.toms748({_F}, 0.0, 4.0, args=(x[0], x[1]))", positive(2)),
    case(f"{_O}.rosen_der", f"{_O}.rosen_der(x)", R(4)),
    case(f"{_O}.rosen_hess", f"{_O}.rosen_hess(x)", R(4)),
    case(f"{_O}.rosen_hess_prod", f"{_O}.rosen_hess_prod(x, y)", R(4), R(4)),
    *(case(f"{_O}.{n}", f"x[0] * {_O}.{n}({_F}, 0.0, 4.0, "
           "args=(x[0], x[1]), xtol=1e-14, rtol=1e-14)", positive(2))
      for n in ("brentq", "brenth", "bisect", "ridder")),
    case(f"{_O}.brentq",
         f"x[0] * {_O}.brentq(lambda t: t**3 - x[0] * t - x[1], 0.0, 9.0, xtol=1e-14)",
         positive(2)),
    case(f"{_O}.rosen", f"{_O}.rosen(x)", R(4)),
    case(f"{_O}.newton", f"{_O}.newton({_F}, 1.0, args=(x[0], x[1]), tol=1e-14)", positive(2)),
    case(f"{_O}.newton", f"{_O}.newton({_EACH}, np.full(3, 2.0), args=[x], tol=1e-14)",
         positive(3)),
    case(f"{_O}.newton", f"{_O}.newton(lambda t: ({_EACH})(t, x), np.full((2, 3), 2.0), "
         "lambda t: 3 * t**2 - x, tol=1e-14, full_output=True).root", positive(3)),
    case(f"{_E}.find_root", f"{_E}.find_root({_EACH}, (0.0, 5.0), args=(x,)).x", positive(3)),
    case(f"{_E}.find_root", f"{_E}.find_root({_EACH}, (np.zeros((2, 1)), 5.0), args=(x,))"
         "[\"x\"]", positive(3)),
    case(f"{_E}.find_minimum", f"{_E}.find_minimum(lambda t, a: (t - a)**2 + 0.1 * t**4, "
         "(-5.0, 0.1, 9.0), args=(x,), tolerances={\"xatol\": 1e-15}, maxiter=200).f_x",
         positive(3)),
    case(f"{_O}.fsolve", f"{_O}.fsolve({_SYSTEM}, np.array([0.5, 1.0]), xtol=1e-14)",
         exactly([0.4, 0.3])),
    case(f"{_O}.root", f"{_O}.root({_SYSTEM}, np.array([0.5, 1.0]), tol=1e-14).x",
         exactly([0.4, 0.3])),
    case(f"{_O}.fixed_point", f"{_O}.fixed_point(lambda t: np.cos(x * t), x * 0.5, xtol=1e-14)",
         R(2, low=0.3, high=0.8)),
    case(f"{_O}.minimize", f"{_O}.minimize({_COST}, np.zeros(2), jac={_SLOPE},"
         " hess=lambda v: np.diag(2 + 3.6 * v * v), method='Newton-CG', tol=1e-14).x", R(2)),
)  # fmt: skip
