"""The scipy table: interpolation on grids, scipy.ndimage's splines included."""

from __future__ import annotations

from gradof.testing.numpy_samples import Of, R, case, exactly, positive

_N, _I = "scipy.ndimage", "scipy.interpolate"
_IMAGE = R(5, 6)
_of = Of(_N, _IMAGE)


# clear of the knots, where derivatives of splines jump
_AT = exactly([[0.37, 1.62, 2.41, 3.3, 0.81], [1.27, 3.68, 0.34, 2.2, 4.35]])
_BEYOND = "y + np.array([[-1.0, 0, 2, 0, 0], [0, -4, 0, 3, 0]])"
_INSIDE = exactly([[-1.7, 0.3], [0.45, -0.9], [1.3, 1.5], [-0.3, -1.3]])
_POINTS = "(np.linspace(-2.0, 2.0, 5), np.linspace(-2.0, 2.0, 6))"
_MODES = ("mirror", "grid-wrap", "nearest")
_WIDE = R(6, 7)
_GRID = "(np.linspace(-2.0, 2.0, 6), np.linspace(-2.0, 2.0, 7))"
_EXACT = "solver=scipy.sparse.linalg.spsolve"  # scipy's own ends at 1e-6
_LARGE = R(13, 12)  # scipy's spline of a shorter one that is reflected is not exact
CASES = (
    *_of("fourier_gaussian", "x, 1.3"), *_of("fourier_uniform", "x, 2"),
    *_of("fourier_ellipsoid", "x, 2"),
    *_of("spline_filter1d", "x", "x, axis=0", "x, mode='grid-wrap'"),
    *_of("spline_filter1d", "x, mode='nearest'", "x, 5, 0, mode='reflect'"),
    *_of("spline_filter1d", "x, order=2, mode='reflect'", on=(_LARGE,)),
    *_of("spline_filter", "x"),
    *_of("map_coordinates", *(f"x, y, order={k}" for k in range(4)),
         *(f"x, {_BEYOND}, mode='{m}'" for m in _MODES), f"x, {_BEYOND}, cval=0.7, order=1",
         "x, y, order=3, prefilter=False", on=(_IMAGE, _AT)),
    *_of("map_coordinates", f"x, {_BEYOND}, mode='reflect'", on=(_LARGE, _AT)),
    *_of("shift", *(f"x, (0.7, -{far}), order={order}, mode='nearest', prefilter=False"
                    for far, order in ((1.3, 3), (9.2, 2)))),
    *_of("shift", "x, y", "x, y[0], order=1, mode='nearest'", on=(_IMAGE, positive(2))),
    *_of("zoom", "x, 1.7, mode='reflect'", "x, 1, mode='reflect'"),
    *_of("zoom", "x, 1.7", "x, (2, 1.3), order=1, mode='nearest'"),
    *_of("affine_transform", "x, y * 0.3 + np.eye(2), z", on=(_IMAGE, R(2, 2), R(2))),
    *_of("affine_transform", "x, np.array([0.9, 1.1]), output_shape=(4, 4)"),
    *_of("rotate", "x, y[()], reshape=False, mode='reflect'", on=(_LARGE, exactly(23.0))),
    *_of("rotate", "x, 20.0"),
    *(case(f"{_I}.RegularGridInterpolator", f"{_I}.RegularGridInterpolator({_POINTS}, {v})({a})",
           _IMAGE, _INSIDE)
      for v, a in (("x", "y"), ("x, method='nearest'", "y"),
                   ("x, bounds_error=False, fill_value=None", "y * 1.7"),
                   ("x, bounds_error=False, fill_value=0.3", "y * 1.7"))),
    case(f"{_I}.RegularGridInterpolator",
         f"{_I}.RegularGridInterpolator({_POINTS}, np.arange(30.0).reshape(5, 6) ** 1.3)(x)",
         _INSIDE),
    *(case(f"{_I}.RegularGridInterpolator",
           f"{_I}.RegularGridInterpolator({_GRID}, x, method='{method})(y)", _WIDE, _INSIDE)
      for method in (f"slinear', {_EXACT}", f"cubic', {_EXACT}", f"quintic', {_EXACT}", "pchip'")),
    case(f"{_I}.RegularGridInterpolator",
         f"{_I}.RegularGridInterpolator({_GRID}, x, 'pchip', bounds_error=False)(y)",
         R(6, 7, 2), _INSIDE),
    *(case(f"{_I}.RegularGridInterpolator",
           f"{_I}.RegularGridInterpolator({_GRID}, x, {method}, {_EXACT})(y, nu={nu})", _WIDE,
           _INSIDE)
      for method, nu in (("'cubic'", (1, 0)), ("'quintic'", (2, 1)))),
    case(f"{_I}.interpn", f"{_I}.interpn({_POINTS}, x, y)", _IMAGE, _INSIDE),
    case(f"{_I}.interpn", f"{_I}.interpn(({_POINTS}[0][::-1], {_POINTS}[1]), x, y)",
         R(5, 6, 3), _INSIDE),
)  # fmt: skip
