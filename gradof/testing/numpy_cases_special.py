"""The numpy table: scipy.special. Orders and degrees are constants, or integer operands."""

from __future__ import annotations

from gradof.testing.numpy_samples import Case, R, case, exactly, positive

# name: the operand's interval
_ONE = {
    "gamma": (0.4, 3.6), "rgamma": (-2.4, 3), "gammaln": (0.4, 4), "loggamma": (0.4, 4),
    "gammasgn": (-2, 2), "digamma": (0.4, 4), "psi": (0.4, 4),
    "erf": (-2, 2), "erfc": (-2, 2), "erfcx": (-2, 2), "erfi": (-1.5, 1.5), "dawsn": (-3, 3),
    "erfinv": (-0.9, 0.9), "erfcinv": (0.1, 1.9), "ndtr": (-2, 2), "ndtri": (0.08, 0.92),
    "log_ndtr": (-3, 2), "ndtri_exp": (-3, -0.1), "expit": (-2, 2), "logit": (0.1, 0.9),
    "log_expit": (-3, 3), "softplus": (-3, 3), "entr": (0.2, 3), "expm1": (-2, 2),
    "log1p": (-0.6, 3), "exp2": (-2, 2), "exp10": (-2, 1), "cbrt": (0.3, 3), "cosm1": (-2, 2),
    "sindg": (-90, 90), "cosdg": (-90, 90), "tandg": (-70, 70), "cotdg": (20, 80),
    "exprel": (-2, 2), "round": (-2, 2), "sinc": (-2, 2), "expi": (0.3, 3), "exp1": (0.3, 3),
    "sici": (0.1, 5), "shichi": (0.1, 3), "fresnel": (-2, 2), "spence": (0.2, 2.2),
    "wrightomega": (-2, 3), "ellipk": (-2, 0.9), "ellipkm1": (0.05, 1.8), "ellipe": (-2, 0.9),
    "j0": (-6, 6), "j1": (-6, 6), "y0": (0.4, 6), "y1": (0.4, 6), "i0": (-3, 3), "i1": (-3, 3),
    "i0e": (-3, 3), "i1e": (-3, 3), "k0": (0.3, 4), "k1": (0.3, 4), "k0e": (0.3, 4),
    "k1e": (0.3, 4), "itstruve0": (0.3, 4), "itmodstruve0": (0.3, 3), "it2struve0": (0.4, 4),
    "itj0y0": (0.4, 4), "iti0k0": (0.4, 4), "it2j0y0": (0.4, 4), "it2i0k0": (0.4, 4),
    "airy": (-3, 2), "airye": (0.3, 4), "ber": (-3, 3), "bei": (-3, 3),
    "berp": (0.3, 3), "beip": (0.3, 3), "ker": (0.3, 3), "kei": (0.3, 3), "kerp": (0.4, 3),
    "keip": (0.4, 3), "factorial": (0.3, 4),
}  # fmt: skip
_TWO = {
    "beta": ((0.4, 3), (0.4, 3)), "betaln": ((0.4, 3), (0.4, 3)), "binom": ((3, 5), (0.3, 2.3)),
    "poch": ((0.5, 3), (0.4, 2)), "xlogy": ((-2, 2), (0.3, 3)), "xlog1py": ((-2, 2), (-0.6, 3)),
    "rel_entr": ((0.3, 2), (0.3, 2)), "kl_div": ((0.3, 2), (0.3, 2)),
    "boxcox": ((0.3, 3), (-2, 2)), "boxcox1p": ((-0.6, 3), (-2, 2)),
    "inv_boxcox": ((0.1, 2), (0.1, 2)), "inv_boxcox1p": ((0.1, 2), (0.1, 2)),
    "powm1": ((0.3, 2), (-2, 2)), "huber": ((0.5, 1.5), (-3, 3)),
    "pseudo_huber": ((0.5, 1.5), (-3, 3)), "agm": ((0.4, 3), (0.4, 3)),
    "owens_t": ((-2, 2), (-2, 2)), "ellipkinc": ((-1.2, 1.2), (0.1, 0.9)),
    "ellipeinc": ((-1.2, 1.2), (0.1, 0.9)), "comb": ((3, 5), (0.3, 2.3)),
    "perm": ((3, 5), (0.3, 2.3)),
}  # fmt: skip
# name: calls with constant parameters, and the interval of x
_CALLS = {
    "polygamma": (("2, x", "0, x", "1, x"), (0.5, 4)),
    "multigammaln": (("x, 3",), (1.4, 4)),
    "zeta": (("3.0, x", "2, x"), (0.5, 3)),
    "gammainc": (("1.5, x", "[[0.7], [3.0], [2.0]], x"), (0.2, 4)),
    "gammaincc": (("1.5, x",), (0.2, 4)), "gammaincinv": (("1.5, x",), (0.1, 0.9)),
    "gammainccinv": (("1.5, x",), (0.1, 0.9)),
    "betainc": (("1.5, 2.5, x", "np.array([0.7]), 1.0, x"), (0.1, 0.9)),
    "betaincc": (("1.5, 2.5, x",), (0.1, 0.9)), "betaincinv": (("1.5, 2.5, x",), (0.1, 0.9)),
    "betainccinv": (("1.5, 2.5, x",), (0.1, 0.9)),
    "expn": (("3, x", "0, x", "1, x"), (0.3, 3)),
    "jv": (("1.5, x", "2, x", "np.arange(4.0), x"), (0.3, 6)), "jn": (("2, x",), (-5, 5)),
    "yv": (("1.5, x",), (0.4, 6)), "yn": (("2, x",), (0.5, 6)), "jve": (("1.5, x",), (0.3, 6)),
    "yve": (("1.5, x",), (0.4, 6)), "iv": (("1.5, x", "0, x"), (0.3, 4)),
    "ive": (("1.5, x",), (0.3, 4)), "kv": (("1.5, x",), (0.3, 4)), "kn": (("2, x",), (0.4, 4)),
    "kve": (("1.5, x",), (0.3, 4)), "struve": (("1.5, x", "0, x"), (0.3, 5)),
    "modstruve": (("1.5, x",), (0.3, 3)), "besselpoly": (("x, 1.0, 2.0",), (0.4, 2)),
    "jvp": (("1, x", "2, x, 2"), (0.4, 5)), "yvp": (("1, x",), (0.5, 5)),
    "ivp": (("1, x",), (0.4, 3)), "kvp": (("1, x",), (0.4, 3)),
    "spherical_jn": (("2, x", "0, x", "1, x, derivative=True"), (0.4, 5)),
    "spherical_yn": (("2, x", "0, x, True"), (0.5, 5)),
    "spherical_in": (("2, x", "3, x, derivative=True"), (0.4, 3)),
    "spherical_kn": (("2, x", "1, x, derivative=True"), (0.5, 3)),
    "ellipj": (("x, 0.4",), (-2, 2)), "hyp0f1": (("1.5, x",), (-2, 2)),
    "hyp1f1": (("0.7, 1.5, x",), (-2, 2)), "hyperu": (("0.7, 1.5, x",), (0.4, 3)),
    "hyp2f1": (("0.7, 1.5, 2.2, x",), (-0.7, 0.7)), "pbdv": (("1.5, x",), (-2, 2)),
    "pbvv": (("1.5, x",), (0.3, 2)), "pbwa": (("0.5, x",), (-2, 2)),
    "wright_bessel": (("0.5, 1.5, x",), (0.2, 3)), "lpmv": (("1, 2, x",), (-0.8, 0.8)),
    "chdtr": (("3.0, x",), (0.5, 5)), "chdtrc": (("3.0, x",), (0.5, 5)),
    "chdtri": (("3.0, x",), (0.1, 0.9)), "fdtr": (("3.0, 4.0, x",), (0.3, 3)),
    "fdtrc": (("3.0, 4.0, x",), (0.3, 3)), "fdtri": (("3.0, 4.0, x",), (0.1, 0.9)),
    "stdtr": (("3.0, x",), (-2, 2)), "stdtrit": (("3.0, x",), (0.1, 0.9)),
    "pdtr": (("2, x",), (0.4, 4)), "pdtrc": (("2, x",), (0.4, 4)), "pdtri": (("2, x",), (0.1, 0.9)),
    "bdtr": (("2.0, 5, np.float64(1) * x",), (0.1, 0.9)),
    "bdtrc": (("2.0, 5, np.float64(1) * x",), (0.1, 0.9)),
    "bdtri": (("2.0, 5, np.float64(1) * x",), (0.1, 0.9)), "nbdtr": (("2, 5, x",), (0.1, 0.9)),
    "nbdtrc": (("2, 5, x",), (0.1, 0.9)), "nbdtri": (("2, 5, x",), (0.1, 0.9)),
    "gdtr": (("x, 1.5, 2 * x",), (0.3, 2)), "gdtrc": (("x, 1.5, 2 * x",), (0.3, 2)),
    "tklmbda": (("x, 0.7",), (-1, 1)), "radian": (("x, 3 * x, x",), (-50, 50)),
    "assoc_laguerre": (("x, 3, 0.5",), (0.2, 4)), "diric": (("x, 4", "x, 3"), (-5, 5)),
    "eval_jacobi": (("3, 0.5, 1.5, x", "0, 0.5, 1.5, x"), (-0.9, 0.9)),
    "eval_gegenbauer": (("4, 0.7, x",), (-0.9, 0.9)),
    "eval_legendre": (("4, x", "np.arange(4), x", "2.5, x"), (-0.8, 0.9)),
    "eval_chebyt": (("4, x", "0, x", "1, x"), (-0.9, 0.9)), "eval_chebyu": (("4, x",), (-0.9, 0.9)),
    "eval_chebyc": (("4, x",), (-1.8, 1.8)), "eval_chebys": (("4, x",), (-1.8, 1.8)),
    "eval_genlaguerre": (("3, 0.5, x",), (0.2, 4)), "eval_laguerre": (("3, x",), (0.2, 4)),
    "legendre_p": (("3, x",), (-0.9, 0.9)),
    "sph_legendre_p": (("3, 2, x", "2, -1, x", "2, 2, x"), (0.2, 3)),
    "eval_hermite": (("4, x",), (-2, 2)), "eval_hermitenorm": (("4, x",), (-2, 2)),
    "eval_sh_legendre": (("3, x",), (0.1, 0.9)), "eval_sh_chebyt": (("3, x",), (0.1, 0.9)),
    "eval_sh_chebyu": (("3, x",), (0.1, 0.9)), "eval_sh_jacobi": (("3, 2.5, 1.2, x",), (0.1, 0.9)),
}  # fmt: skip


def _calls(name: str, calls: tuple[str, ...], low: float, high: float) -> tuple[Case, ...]:
    return tuple(
        case(f"scipy.special.{name}", f"special.{name}({call})", R(3, 4, low=low, high=high))
        for call in calls
    )


ONE = tuple(row for name, (a, b) in _ONE.items() for row in _calls(name, ("x",), a, b))
TWO = tuple(
    case(
        f"scipy.special.{name}",
        f"special.{name}(x, y)",
        R(3, 1, low=a, high=b),
        R(4, low=c, high=d),
    )
    for name, ((a, b), (c, d)) in _TWO.items()
)
CALLS = tuple(row for name, (calls, (a, b)) in _CALLS.items() for row in _calls(name, calls, a, b))
# name: calls that give complex numbers
_COMPLEX = {
    **{name: ("2, x", "1.5, x") for name in ("hankel1", "hankel1e", "hankel2", "hankel2e")},
    "h1vp": ("1, x",), "h2vp": ("2, x, 2",),
    "sph_harm_y": ("3, -2, x, 2 * x", "np.arange(3)[:, None], 1, x[0], 0.3"),
}  # fmt: skip
COMPLEX = tuple(
    case(
        f"scipy.special.{name}",
        f"z = special.{name}({call})\nreturn z.real, z.imag",
        R(3, 4, low=0.4, high=2.5),
    )
    for name, calls in _COMPLEX.items()
    for call in calls
)
EDGES = (
    case("scipy.special.spherical_jn", "special.spherical_jn(1, x)", exactly([0.0, 0.5])),
    case("scipy.special.spherical_jn", "special.spherical_jn(2, x, True)", exactly([0.0, 0.5])),
    case("scipy.special.spherical_in", "special.spherical_in(1, x)", exactly([0.0, 0.5])),
    case("scipy.special.sph_legendre_p", "special.sph_legendre_p(2, 0, x)",
         exactly([0.0, 0.5, -0.5])),
    case("scipy.special.comb", "special.comb(x, y, repetition=True)", R(3, low=1.2, high=4),
         R(3, low=0.3, high=2)),
    case("scipy.special.zeta", "special.zeta(4.0) * x", R(3)),
    case("scipy.special.rgamma", "special.rgamma(x)", exactly([0.0, -1.0, -2.0, 0.5])),
    case("scipy.special.exprel", "special.exprel(x)", exactly([0.0, 1e-3, -0.03, 0.05])),
    case("scipy.special.ellipk", "special.ellipk(x)", exactly([0.0, 1e-3, -0.03, 0.05])),
    case("scipy.special.ellipe", "special.ellipe(x)", exactly([0.0, 1e-3, -0.03, 0.05])),
    case("scipy.special.spence", "special.spence(x)", exactly([1.0, 1.001, 0.97])),
    case("scipy.special.sici", "special.sici(x)[0]", exactly([0.0, 1e-3, -0.15, 2.0])),
    case("scipy.special.shichi", "special.shichi(x)[0]", exactly([0.0, 1e-3, -0.15, 2.0])),
    case(
        "scipy.special.boxcox", "special.boxcox(x, y)", positive(4), exactly([0.0, 0.0, 1e-3, 2.0])
    ),
    case(
        "scipy.special.inv_boxcox",
        "special.inv_boxcox(x, y)",
        positive(3),
        exactly([0.0, 1e-3, 1.0]),
    ),
    case("scipy.special.bei", "special.beip(x) + special.berp(x)", exactly([0.0, 0.5])),
    case("scipy.special.j0", "special.j0(x) * special.j1(x)", exactly([0.0, 0.5])),
    case("scipy.special.jv", "special.jv(y, x)", positive(3), exactly([0, 1, 3])),
    case("scipy.special.agm", "special.agm(x, y)", positive(3), positive(3)),
    case("scipy.special.voigt_profile", "special.voigt_profile(x, y, z)", R(4), positive(4),
         positive()),
    case("scipy.special.lambertw", "special.lambertw(x).real", exactly([-0.3, 0.2, 1.5])),
    case("scipy.special.lambertw", "special.lambertw(x, -1).real", exactly([-0.3, -0.1])),
)
FUNCTIONS = (
    case("scipy.special.logsumexp", "special.logsumexp(x)", R(3, 4)),
    case("scipy.special.logsumexp", "special.logsumexp(x, axis=1, keepdims=True)", R(3, 4)),
    case("scipy.special.logsumexp", "special.logsumexp(x, axis=0, b=y)", R(3, 4), positive(3, 4)),
    case(
        "scipy.special.logsumexp",
        "special.logsumexp(x, axis=1, b=y, return_sign=True)",
        R(3, 4),
        R(3, 4),
    ),
    case("scipy.special.softmax", "special.softmax(x, axis=1)", R(3, 4)),
    case("scipy.special.softmax", "special.softmax(x)", R(3, 4)),
    case("scipy.special.log_softmax", "special.log_softmax(x, axis=0)", R(3, 4)),
)
CASES = ONE + TWO + CALLS + COMPLEX + EDGES + FUNCTIONS
