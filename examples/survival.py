"""A survival regression: how long until men who left prison were arrested again.

    python examples/survival.py

Rossi, Berk and Lenihan, Money, Work and Crime (1980): 432 men, followed for 52 weeks, as lifelines
ships them (rossi.csv). The model is a Weibull accelerated failure time: a man's time has the scale
exp(x @ beta) and one shape rho; who was not arrested is censored. scipy's optimizer is given value
and gradient, and standard errors are those of the Hessian. Where lifelines is installed its fit of
the same model, by HIPS autograd, stands beside it.

A model is an object with its data, made anew for each bootstrap sample: they share one trace.
"""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.optimize import minimize

from gradof import hessian, value_and_grad

Array = NDArray[np.float64]
DATA = Path(__file__).with_name("rossi.csv")


def rossi() -> tuple[Array, Array, Array, list[str]]:
    """Weeks f64[n], arrested f64[n], covariates with a leading one f64[n,8], and their names."""
    names = DATA.read_text(encoding="utf-8").splitlines()[0].replace('"', "").split(",")
    table = np.genfromtxt(DATA, delimiter=",", skip_header=1)
    weeks, arrested = (table[:, names.index(n)] for n in ("week", "arrest"))
    covariates = [n for n in names if n not in ("week", "arrest")]
    columns = [np.ones(len(table)), *(table[:, names.index(n)] for n in covariates)]
    return weeks, arrested, np.stack(columns, axis=1), ["intercept", *covariates]


class WeibullRegression:
    """A Weibull accelerated failure time model of right-censored times."""

    def __init__(self, times: Array, observed: Array, x: Array) -> None:
        self.times, self.observed, self.x = times, observed, x

    def loss(self, params: Any) -> Any:
        """The mean negative log-likelihood; params f64[k+1] are beta and log(rho)."""
        log_rho, log_scale = params[-1], self.x @ params[:-1]
        z = np.exp(log_rho) * (np.log(self.times) - log_scale)  # log of the cumulative hazard
        log_hazard = log_rho + z - np.log(self.times)
        return -np.mean(self.observed * log_hazard - np.exp(z))

    def fit(self) -> WeibullRegression:
        """Maximise the likelihood."""
        start = np.zeros(self.x.shape[1] + 1)
        start[0] = np.log(self.times.mean())
        found = minimize(value_and_grad(self.loss), start, jac=True, method="BFGS",
                         options={"gtol": 1e-8})  # fmt: skip
        self.params = found.x
        self.log_likelihood = -found.fun * len(self.times)
        return self

    def standard_errors(self) -> Array:
        """Of the parameters, by the curvature of the likelihood."""
        curvature = hessian(self.loss)(self.params) * len(self.times)
        return np.sqrt(np.diag(np.linalg.inv(curvature)))


def bootstrap(times: Array, observed: Array, x: Array, samples: int) -> Array:
    """Standard errors from fits to samples of the men, drawn with replacement."""
    rng = np.random.default_rng(0)
    fits = []
    for _ in range(samples):
        rows = rng.integers(0, len(times), len(times))
        fits.append(WeibullRegression(times[rows], observed[rows], x[rows]).fit().params)
    return np.std(fits, axis=0)


def beside_lifelines() -> tuple[float, float, float] | None:
    """The log-likelihood of lifelines, and its seconds for a first and a second fit."""
    if importlib.util.find_spec("lifelines") is None:
        return None
    import lifelines  # type: ignore[import-not-found, unused-ignore]
    from lifelines.datasets import load_rossi  # type: ignore[import-not-found, unused-ignore]

    data, seconds, likelihood = load_rossi(), [], 0.0
    for _ in range(2):
        start = time.process_time()
        fitted = lifelines.WeibullAFTFitter().fit(data, "week", "arrest")
        seconds.append(time.process_time() - start)
        likelihood = float(fitted.log_likelihood_)
    return likelihood, seconds[0], seconds[1]


def main(samples: int = 20) -> dict[str, float]:
    """Fit, print the table, and return what the tests look at."""
    times, observed, x, names = rossi()
    seconds = []
    for _ in range(2):
        start = time.process_time()
        model = WeibullRegression(times, observed, x).fit()
        errors = model.standard_errors()
        seconds.append(time.process_time() - start)
    start = time.process_time()
    sampled = bootstrap(times, observed, x, samples)
    each = (time.process_time() - start) / samples
    table = Table("", "coefficient", "standard error", "by bootstrap", title="Weibull regression")
    for row in zip([*names, "log(rho)"], model.params, errors, sampled, strict=True):
        table.add_row(row[0], *(f"{v:.3f}" for v in row[1:]))
    console = Console()
    console.print(table)
    console.print(
        f"log-likelihood {model.log_likelihood:.3f}; first fit {seconds[0]:.3f} s, second "
        f"{seconds[1] * 1e3:.1f} ms, a bootstrap sample {each * 1e3:.1f} ms"
    )
    found = beside_lifelines()
    if found is not None:
        console.print(
            f"lifelines: log-likelihood {found[0]:.3f}; first fit {found[1]:.3f} s, second "
            f"{found[2] * 1e3:.1f} ms"
        )
    return {"log_likelihood": model.log_likelihood, "financial_aid": model.params[1],
            "error_of_it": errors[1], "bootstrap_of_it": sampled[1]}  # fmt: skip


if __name__ == "__main__":
    main()
