"""JAX as the one that is judged: `gradof fuzz --subject jax`.

The programs are our numpy ones with `jax.numpy` in place of numpy, compiled by jax.jit in 64 bits.
Gradients, and products with the Hessian, are held to finite differences of the numpy program in
float64, as our own are. What JAX refuses (changes in place, branches on values that jit does not
know), what calls gradof itself, and programs whose values are others than numpy's are no programs:
the last are conventions of the two libraries, and no gradient is asked of them.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.runtime.thread import calling_plain
from gradof.testing.closeness import rows
from gradof.testing.fuzz.numpy_judge import report_rows, without_noise
from gradof.testing.fuzz.program import Setting, made_from, whole_source
from gradof.testing.fuzz.verdict import Verdict
from gradof.testing.numpy_differences import (
    along_lines,
    float_results,
    in_float64,
    second_order,
    wide,
)
from gradof.testing.report import Report

IMPORTS = (("import numpy as np", "import jax.numpy as np"),
           ("from numpy import inf, nan", "from jax.numpy import inf, nan"),
           ("from scipy import special", "from jax.scipy import special"))  # fmt: skip


def judge_jax(
    fn: Callable[..., Any], inputs: Callable[[], tuple[Any, ...]], setting: Setting, seed: int
) -> Verdict:
    """A numpy program as JAX differentiates it, to the order of its setting."""
    verdict = Verdict()
    if "gradof." in inspect.getsource(fn):
        verdict.refused = "it calls gradof"
        return verdict
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            with calling_plain():
                plain = float_results(fn(*inputs()))
        except Exception as error:  # whatever numpy refuses is no program
            verdict.refused = f"numpy: {type(error).__name__}"
            return verdict
        rng = np.random.default_rng(seed)
        weights = [rng.standard_normal(np.shape(o)) for o in plain]
        try:
            derived = _Derived(
                translated(whole_source(fn)), fn.__name__, weights, setting.order
            )
            _judge(verdict, fn, inputs, derived, plain, seed, rng)
        except Exception as error:  # whatever JAX refuses is none of its programs
            first = (str(error).splitlines() or [""])[0]
            verdict.refused = f"jax: {type(error).__name__}: {first[:60]}"
    return verdict


def translated(text: str) -> str:
    """The source of a numpy program with JAX's functions."""
    for numpy, jax in IMPORTS:
        text = text.replace(numpy, jax)
    return text


class _Derived:
    """A program as JAX computes it: results, gradients of their weighted sum, Hessian products."""

    def __init__(self, text: str, name: str, weights: list[Any], order: int) -> None:
        jax = _jax()
        fn = made_from(text, name)
        self.weights, self.order = weights, order
        self.places: tuple[int, ...] = ()

        def weighted(args: tuple[Any, ...], floats: list[Any]) -> tuple[Any, Any]:
            found = _floats(fn(*_put(args, floats, self.places)))
            terms = [(w * x).sum() for w, x in zip(weights, found, strict=True)]
            return sum(terms, 0.0), found

        def gradient(args: tuple[Any, ...], floats: list[Any]) -> tuple[Any, Any]:
            (_, found), grads = jax.value_and_grad(weighted, argnums=1, has_aux=True)(args, floats)
            return found, grads

        def product(args: tuple[Any, ...], floats: list[Any], lines: list[Any]) -> Any:
            return jax.jvp(lambda at: gradient(args, at)[1], (floats,), (lines,))[1]

        self._gradient: Callable[..., Any] = jax.jit(gradient)
        self._product: Callable[..., Any] = jax.jit(product)

    def results_and_gradients(self, args: tuple[Any, ...]) -> tuple[list[Any], list[Any]]:
        """The floating results, and a gradient for each argument, None for what is no float."""
        floats = self._taken(args)
        found, grads = self._gradient(args, floats)
        by_place = dict(zip(self.places, map(np.asarray, grads), strict=True))
        return [np.asarray(x) for x in found], [by_place.get(i) for i in range(len(args))]

    def gradients(self, *args: Any) -> list[Any]:
        """A gradient for each argument."""
        return self.results_and_gradients(args)[1]

    def products(self, args: tuple[Any, ...], lines: tuple[Any, ...]) -> list[Any]:
        """The product of the Hessian with a line, all arguments being floats."""
        return [np.asarray(x) for x in self._product(args, self._taken(args), list(lines))]

    def named(self, args: tuple[Any, ...]) -> dict[str, Any]:
        """Results and gradients by the names that rows of the harness have."""
        found, grads = self.results_and_gradients(args)
        names = {f"output {i}": x for i, x in enumerate(found)}
        names |= {f"gradient of args[{i}]": g for i, g in enumerate(grads) if g is not None}
        if self.order > 1 and len(self.places) == len(args):
            rng = np.random.default_rng(0)
            lines = tuple(rng.standard_normal(np.shape(x)) for x in args)
            products = self.products(wide(args), lines)
            names |= {f"second gradient of leaf {i}": x for i, x in enumerate(products)}
        return names

    def _taken(self, args: tuple[Any, ...]) -> list[Any]:
        self.places = tuple(i for i, x in enumerate(args) if np.asarray(x).dtype.kind == "f")
        return [args[i] for i in self.places]


def _judge(
    verdict: Verdict, fn: Callable[..., Any], inputs: Callable[[], tuple[Any, ...]],
    derived: _Derived, plain: list[Any], seed: int, rng: np.random.Generator,
) -> None:  # fmt: skip
    args = inputs()
    found, grads = derived.results_and_gradients(args)
    if [np.shape(x) for x in found] != [np.shape(x) for x in plain]:
        verdict.refused = "jax: other shapes than numpy's"
        return
    with calling_plain():
        exact = float_results(fn(*wide(args)))
    dtypes = [min((np.asarray(x).dtype, y.dtype), key=lambda d: d.itemsize)
              for x, y in zip(plain, found, strict=True)]  # fmt: skip
    report = Report("program", nodes=0)
    names = [f"output {i}" for i in range(len(found))]
    report.rows += rows(names, found, plain, exact, dtypes)
    report.rows = without_noise(report.rows, derived.named, inputs, seed)
    if any(not row.ok for row in report.rows):
        verdict.refused = "jax: other values than numpy's"
        return
    in_float64(report, args, grads, derived.gradients)
    along_lines(report, fn, args, derived.weights, grads, rng)
    if derived.order > 1:
        second_order(report, args, rng, derived.gradients, derived.products)
    if any(not row.ok for row in report.rows):
        report.rows = without_noise(report.rows, derived.named, inputs, seed)
    report_rows(verdict, report)


def _put(args: tuple[Any, ...], floats: list[Any], places: tuple[int, ...]) -> list[Any]:
    given = dict(zip(places, floats, strict=True))
    return [given.get(i, x) for i, x in enumerate(args)]


def _floats(value: Any) -> list[Any]:
    leaves = _jax().tree_util.tree_leaves(value)
    return [x for x in leaves if hasattr(x, "dtype") and x.dtype.kind == "f"]


@functools.cache
def _jax() -> Any:
    """JAX in 64 bits, on one thread; an optional extra, which nothing else loads."""
    jax: Any = importlib.import_module("jax")  # typed or not, installed or not
    jax.config.update("jax_enable_x64", True)
    return jax
