"""The Black-Scholes price of a European call and its greeks, from one formula, in numpy.

    gradof show examples/black_scholes.py:call --stage trace
    python examples/black_scholes.py

Delta, vega, theta and rho are first derivatives of the price, gamma is a second one; the closed
forms beside them are those of Hull, Options, Futures, and Other Derivatives, ch. 19. Prices in
units of the strike's currency, times in years, rates and volatilities per year.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.special import erf

from gradof import grad, hvp

Array = NDArray[np.float64]


def cdf(x: Any) -> Any:
    """The standard normal distribution function."""
    return 0.5 * (1.0 + erf(x / np.sqrt(2.0)))


def call(spot: Array, strike: Array, rate: Array, sigma: Array, expiry: Array) -> Any:
    """Price of the call; all arguments f64[n]."""
    spread = sigma * np.sqrt(expiry)
    d1 = (np.log(spot / strike) + (rate + 0.5 * sigma**2) * expiry) / spread
    d2 = d1 - spread
    return spot * cdf(d1) - strike * np.exp(-rate * expiry) * cdf(d2)


def example_inputs() -> tuple[Array, ...]:
    """Five calls around the money, half a year to expiry."""
    spot = np.array([80.0, 90.0, 100.0, 110.0, 120.0])
    return spot, np.full(5, 100.0), np.full(5, 0.05), np.full(5, 0.2), np.full(5, 0.5)


def total(*args: Any) -> Any:
    """Sum of the prices: its gradient holds each option's own derivatives."""
    return np.sum(call(*args))


def greeks(*args: Array) -> dict[str, Array]:
    """Delta, rho, vega, theta and gamma by differentiation; each f64[n]."""
    d_spot, _, d_rate, d_sigma, d_expiry = grad(total, argnums=(0, 1, 2, 3, 4))(*args)
    zero = np.zeros_like(args[0])
    tangents = (np.ones_like(args[0]), zero, zero, zero, zero)
    gamma = hvp(total, args, tangents)[0]
    return {"delta": d_spot, "gamma": gamma, "vega": d_sigma, "theta": -d_expiry, "rho": d_rate}


def closed_forms(*args: Array) -> dict[str, Array]:
    """The same greeks from their textbook formulas."""
    spot, strike, rate, sigma, expiry = args
    spread = sigma * np.sqrt(expiry)
    d1 = (np.log(spot / strike) + (rate + 0.5 * sigma**2) * expiry) / spread
    d2 = d1 - spread
    density = np.exp(-0.5 * d1**2) / np.sqrt(2.0 * np.pi)
    discounted = strike * np.exp(-rate * expiry)
    return {
        "delta": cdf(d1),
        "gamma": density / (spot * spread),
        "vega": spot * density * np.sqrt(expiry),
        "theta": -spot * density * sigma / (2 * np.sqrt(expiry)) - rate * discounted * cdf(d2),
        "rho": expiry * discounted * cdf(d2),
    }


def main(argv: list[str] | None = None) -> float:
    """Print the greeks; returns the largest relative difference from the closed forms."""
    del argv
    args = example_inputs()
    ours, textbook = greeks(*args), closed_forms(*args)
    table = Table("spot", "price", *ours, title="European call, strike 100")
    prices = call(*args)
    for i, spot in enumerate(args[0]):
        table.add_row(f"{spot:.0f}", f"{prices[i]:.4f}", *(f"{g[i]:.5f}" for g in ours.values()))
    Console().print(table)
    worst = max(
        float(np.max(np.abs(ours[name] - textbook[name]) / np.abs(textbook[name]))) for name in ours
    )
    print(f"largest relative difference from the closed forms: {worst:.1e}")
    return worst


if __name__ == "__main__":
    main()
