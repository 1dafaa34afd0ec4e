"""Functions of scipy.special at whole numbers, where their formulas have quotients of zeros.

Every ufunc, each of its operands in turn at eight points beside few values of the others: where
one-sided differences agree, our gradient is that. Differences are coarse; digits are judged in
`test_special_functions`.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.special

from gradof import grad
from gradof.errors import UnsupportedOpError

POINTS = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -2.0, 3.0)
UFUNCS = [
    name for name in sorted(scipy.special.__all__)
    if isinstance(getattr(scipy.special, name), np.ufunc)
    and getattr(scipy.special, name).nout == 1
]  # fmt: skip
# Points that are not what differences say, by function: why.
KNOWN = {
    "agm": "with a mean of 0 its derivatives are limits of infinities",
    "beta": "at poles of gamma that cancel, betaln too",
    "betaln": "the same",
    "betaincinv": "in its parameters, at the ends, where it does not move",
    "betainccinv": "the same", "gammaincinv": "the same", "gammainccinv": "the same",
    "chdtri": "the same",
    "xlogy": "torch's convention for 0 * log(0): its gradient is 0/0",
    "xlog1py": "the same",
}
# Orders are whole numbers, and scipy raises for others.
WHOLE = frozenset({"eval_hermite", "eval_hermitenorm", "bdtr", "bdtrc", "bdtri"})  # fmt: skip


def _slope(function: Any, args: list[float], place: int) -> float | None:
    """The derivative, by differences; None where there is none or a value is not finite."""

    def at(x: float) -> float:
        moved = [*args]
        moved[place] = x
        return float(_real(function(*moved)))

    x, here = args[place], at(args[place])
    found = []
    for step in (1e-4, 1e-5):
        right, left = at(x + step), at(x - step)
        found += [(right - here) / step, (here - left) / step, (right - left) / (2 * step)]
    agree = np.all(np.isfinite(found)) and np.ptp(found) < 1e-2 * (1 + abs(found[0]))
    return found[-1] if agree else None


def _real(value: Any) -> Any:
    """A number that tells both parts of a complex one."""
    return value.real + 2 * value.imag if np.iscomplexobj(value) else value


def _wrong(name: str) -> list[str]:
    function = getattr(scipy.special, name)
    few = (0.0, 0.5, 1.0, 2.0) if function.nin < 3 else (0.5, 1.0, 2.0)
    wrong = []
    for place in range(function.nin):
        for rest in itertools.product(few, repeat=function.nin - 1):
            slopes = [_slope(function, [*rest[:place], x, *rest[place:]], place) for x in POINTS]
            if slopes == [None] * len(POINTS):
                continue
            before, after = rest[:place], rest[place:]

            def moved(x: Any, before: Any = before, after: Any = after) -> Any:
                return np.sum(_real(function(*before, x, *after)))

            try:
                ours = grad(moved)(np.array(POINTS))
            except UnsupportedOpError:
                break
            wrong += [
                f"{name}{(*before, x, *after)} in {place}: {mine}, differences {slope}"
                for x, mine, slope in zip(POINTS, ours, slopes, strict=True)
                if slope is not None and not abs(mine - slope) < 1e-2 * (1 + abs(slope))
            ]
    return wrong


@pytest.mark.cases(10)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", [name for name in UFUNCS if name not in {*KNOWN, *WHOLE}])
def test_gradients_at_whole_numbers(name: str) -> None:
    with np.errstate(all="ignore"):
        assert _wrong(name) == []


@pytest.mark.cases(5)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", KNOWN)
def test_what_is_known_to_differ_still_does(name: str) -> None:
    with np.errstate(all="ignore"):
        assert _wrong(name) != []


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("m", [-0.03, -1e-7, 0.0, 1e-9, 0.02, 0.0399, 0.0401, 0.7])
@pytest.mark.parametrize("name", ["ellipkinc", "ellipeinc"])
def test_incomplete_elliptic_integrals_keep_their_digits_near_zero(name: str, m: float) -> None:
    function = getattr(scipy.special, name)
    phi = np.array([0.3, 1.2, 7.0])
    ours = grad(lambda m: np.sum(function(phi, m)))(np.float64(m))
    # the derivative as the integral that it is: of sin^2 (1 - m sin^2)^-p / 2, up to its sign
    nodes, weights = np.polynomial.legendre.leggauss(400)
    power, sign = (1.5, 0.5) if name == "ellipkinc" else (0.5, -0.5)
    at = phi[:, None] * (nodes + 1) / 2
    inner = np.sin(at) ** 2 * (1 - m * np.sin(at) ** 2) ** -power
    exact = sign * np.sum(phi / 2 * (inner @ weights))
    assert abs(ours - exact) < 1e-11 * abs(exact)
