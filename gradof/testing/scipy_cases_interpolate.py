"""The scipy table: scipy.interpolate."""

from __future__ import annotations

from gradof.testing.numpy_samples import Case, R, Sample, case, rising, unit

_I = "scipy.interpolate"
_AT = "np.array([-1.7, -0.3, 0.4, 1.1, 1.6])"
_X = "np.linspace(-2.0, 2.0, 7)"


def _of(name: str, *calls: str, on: tuple[Sample, ...], then: str = f"({_AT})") -> tuple[Case, ...]:
    return tuple(case(f"{_I}.{name}", f"{_I}.{name}({call}){then}", *on) for call in calls)


_KNOTS = "np.array([-2.0, -2, -2, -2, 0.3, 2, 2, 2, 2])"
_CLASSES = ("CubicSpline", "PchipInterpolator", "Akima1DInterpolator")
def _splines() -> tuple[Case, ...]:
    """B-splines by their three families of names."""
    made = f"{_I}.make_interp_spline({_X}, x)"
    tck = f"{_I}.splrep({_X}, x)"
    one = f"{_I}.UnivariateSpline({_X}, x, s=0)"
    plane = f"{_I}.RectBivariateSpline({_X}, np.linspace(0.0, 3.0, 5), x)"
    return (
        case(f"{_I}.BSpline.derivative", f"{made}.derivative(2)(y)", R(7), R(4)),
        case(f"{_I}.BSpline.antiderivative", f"{made}.antiderivative()(y)", R(7), R(4)),
        case(f"{_I}.BSpline.integrate", f"{made}.integrate(-1.2, y)", R(7), R()),
        case(f"{_I}.splrep", f"{tck}[1]", R(7)),
        case(f"{_I}.splrep", f"{_I}.splrep({_X}, x, t=[0.3], w=np.linspace(1.0, 2.0, 7))[1]", R(7)),
        case(f"{_I}.splev", f"{_I}.splev(y, {tck}, der=1)", R(7), R(4)),
        case(f"{_I}.splev", f"{_I}.splev(y, {tck}, ext=3)", R(7), R(4, low=-3.0)),
        case(f"{_I}.splint", f"np.ones(1) * {_I}.splint(-1.1, y, {tck})", R(7), R()),
        case(f"{_I}.splder", f"{_I}.splder({tck}, 2)[1]", R(7)),
        case(f"{_I}.splantider", f"{_I}.splantider({tck})[1]", R(7)),
        case(f"{_I}.UnivariateSpline", f"{one}(y)", R(7), R(4)),
        case(f"{_I}.InterpolatedUnivariateSpline",
             f"{_I}.InterpolatedUnivariateSpline({_X}, x, k=2)(y)", R(7), R(4)),
        case(f"{_I}.LSQUnivariateSpline",
             f"{_I}.LSQUnivariateSpline({_X}, x, [0.3])(y)", R(7), R(4)),
        case(f"{_I}.UnivariateSpline.integral", f"np.ones(1) * {one}.integral(-1.3, y)", R(7), R()),
        case(f"{_I}.UnivariateSpline.derivatives", f"{one}.derivatives(y)", R(7), R()),
        case(f"{_I}.UnivariateSpline.derivative", f"{one}.derivative()(y)", R(7), R(4)),
        case(f"{_I}.UnivariateSpline.antiderivative", f"{one}.antiderivative()(y)", R(7), R(4)),
        case(f"{_I}.UnivariateSpline.get_coeffs", f"{one}.get_coeffs()", R(7)),
        case(f"{_I}.RectBivariateSpline", f"{plane}(np.array([-1.0, 0.5]), y)", R(7, 5), rising(3)),
        case(f"{_I}.RectBivariateSpline", f"{plane}.ev(y, z, dx=1)", R(7, 5), R(3), unit(3)),
        case(f"{_I}.RectBivariateSpline", f"{plane}(0.3, y)", R(7, 5), unit()),
        *_of("make_lsq_spline", f"{_X}, x, {_KNOTS}",
             f"{_X}, x, {_KNOTS}, w=np.linspace(1.0, 2.0, 7)", on=(R(7),)),
        *_of("make_lsq_spline", f"{_X}, x, {_KNOTS}, axis=1", on=(R(2, 7),)),
    )  # fmt: skip


def _pieces() -> tuple[Case, ...]:
    """Polynomials between points, and one through all of them."""
    bernstein = f"{_I}.BPoly(x, np.array([0.0, 1.0, 2.5]))"
    return (
        *_of("BPoly", "x, np.array([0.0, 1.0, 2.5])", on=(R(4, 2), R(4, low=0.1)), then="(y)"),
        *_of("BPoly", "x, y, extrapolate=False", on=(R(3, 2, 2), rising(3)), then=f"({_AT}[2:])"),
        case(f"{_I}.BPoly.derivative", f"{bernstein}.derivative(2)(y)", R(4, 2), R(4, low=0.1)),
        case(f"{_I}.BPoly.antiderivative", f"{bernstein}.antiderivative()(y)", R(4, 2), R(4)),
        case(f"{_I}.BPoly.integrate", f"{bernstein}.integrate(0.2, y)", R(4, 2), unit()),
        case(f"{_I}.PPoly.roots", f"{_I}.CubicSpline(x, y).roots()", rising(7), R(7)),
        case(f"{_I}.PPoly.solve", f"{_I}.CubicSpline({_X}, x + 3.0 * {_X}).solve(y)", R(7), R()),
        *(case(f"{_I}.BarycentricInterpolator.__init__", f"{_I}.BarycentricInterpolator({call}",
               rising(5), R(5), R(3))
          for call in ("x, y)(z)", "x, y).derivative(z, 1)", f"{_X}[1:6], y)(z)")),
    )  # fmt: skip


_SITES = "np.array([[0.0, 0.0], [1.0, 0.1], [0.0, 1.2], [1.0, 1.0], [0.4, 0.6], [0.7, 0.2]])"
_SQUARE = "np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])"
_PLACES = "np.array([[0.3, 0.4], [4.0, 4.0], [0.2, 0.9]])"
CASES = (
    *_splines(),
    *_pieces(),
    *_of("griddata", f"{_X}, x, y", f"{_X}, x, y, method='nearest'", on=(R(7), R(4)), then=""),
    *_of("griddata", f"{_SQUARE}, x, {_PLACES}, fill_value=2.0",
         f"{_SQUARE}, x, {_PLACES}, method='nearest'", on=(R(4),), then=""),
    *_of("make_smoothing_spline", f"{_X}, x, lam=0.1", on=(R(7), R(3)), then="(y)"),
    *_of("RBFInterpolator", f"{_SITES}, x", on=(R(6), R(3, 2)), then="(y)"),
    *_of("RBFInterpolator",
         f"{_SITES} + z, x, kernel='gaussian', epsilon=1.5, smoothing=0.01 * x[0]",
         on=(R(6), R(3, 2), unit(6, 2)), then="(y)"),
    *(c for n in _CLASSES for c in _of(n, "x, y", f"{_X}, y", on=(rising(7), R(7)))),
    *_of("CubicSpline", f"{_X}, x, bc_type='natural'", f"{_X}, x, bc_type='clamped'",
         f"{_X}, x, extrapolate=False", f"{_X}[:3], x[:3]", on=(R(7),)),
    *_of("CubicSpline", f"{_X}, np.append(x, x[0]), bc_type='periodic'", on=(R(6),)),
    *_of("CubicSpline", f"{_X}, x, axis=1", on=(R(2, 7),)),
    *(c for n in _CLASSES for c in _of(n, f"{_X}, np.sin({_X})", on=(R(5),), then="(x)")),
    *_of("CubicHermiteSpline", "x, y, z", on=(rising(7), R(7), R(7))),
    case(f"{_I}.PPoly.derivative", f"{_I}.CubicSpline({_X}, x).derivative()({_AT})", R(7)),
    case(f"{_I}.PPoly.derivative", f"{_I}.CubicSpline({_X}, x)({_AT}, 2)", R(7)),
    case(f"{_I}.PPoly.antiderivative", f"{_I}.CubicSpline({_X}, x).antiderivative()({_AT})", R(7)),
    case(f"{_I}.PPoly.integrate", f"{_I}.CubicSpline({_X}, x).integrate(-1.2, y)", R(7), R()),
    case(f"{_I}.PPoly", f"{_I}.PPoly(x, np.array([0.0, 1.0, 2.0]))(y)", R(3, 2), R(4, low=0.1)),
    *_of("interp1d", *(f"{_X}, x, kind='{k}'" for k in (
        "linear", "nearest", "previous", "next", "cubic", "quadratic")), on=(R(7),)),
    *_of("interp1d", "x, y, fill_value='extrapolate'",
         "x, y, bounds_error=False, fill_value=(y[0], 2.0)", on=(rising(7), R(7))),
    *_of("interp1d", f"{_X}, x, axis=0", on=(R(7, 2),)),
    *_of("interp1d", f"{_X}, np.sin({_X})", f"{_X}, np.sin({_X}), kind='cubic'", on=(R(5),),
         then="(x)"),
    *_of("make_interp_spline", f"{_X}, x", f"{_X}, x, k=5", f"{_X}, x, bc_type='natural'",
         on=(R(7),)),
    *_of("make_interp_spline", f"{_X}, np.sin({_X})", on=(R(5),), then="(x)"),
    *_of("make_interp_spline", f"{_X}, x", on=(R(7),), then=f"({_AT}, 1)"),
    case(f"{_I}.BSpline", f"{_I}.BSpline(np.arange(10.0), x, 3)(y)", R(6), R(4, low=3.1, high=5.9)),
)  # fmt: skip
