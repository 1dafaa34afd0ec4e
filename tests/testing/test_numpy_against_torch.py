"""The numpy table against torch: wherever the same text means the same function in both.

`np.linalg.solve(x, y)` reads `torch.linalg.solve(x, y)` in torch. A case whose text runs there, and
gives numpy's values, has a counterpart, and its gradient must be torch's.
"""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest
import torch

import gradof
from gradof.testing import numpy_cases_elementwise, numpy_cases_special
from gradof.testing.numpy_samples import Case, R, case
from gradof.testing.numpy_table import CASES
from gradof.tracer.core.pytree import flatten
from tests.sample import every, part

# Where torch's gradient is another, and why ours is not to be.
DIFFER = {"numpy.ldexp": "torch's backward takes 2 ** exponent of integers, which is 0 below 1"}
DIFFER_AT_THE_EDGES = {
    "numpy.absolute": "at nan numpy's sign is nan, and torch's 0",
    "numpy.copysign": "at infinity torch divides it by itself",
    "scipy.special.digamma": "at its poles torch gives a large number for an infinity",
    "scipy.special.psi": "at its poles torch gives a large number for an infinity",
    "scipy.special.log_ndtr": "at -inf torch gives nan for the limit",
    "scipy.special.erfcx": "at inf torch gives nan for the limit",
    "scipy.special.i1": "at nan torch gives a number",
    "scipy.special.i1e": "at nan torch gives a number",
}
# At -0 torch gives one infinity or the other, by the width of the processor's vectors.
WITHOUT_NEGATIVE_ZERO = frozenset({"scipy.special.logit"})
NAMES = {"transpose": "permute", "concatenate": "cat", "take_along_axis": "take_along_dim"}


def in_torch(case: Case) -> Any:
    """The function in torch, or None if the text is none of torch's."""
    text = re.sub(r"\bspecial\.", "torch.special.", case.source)
    text = re.sub(r"\bnp\.", "torch.", text).replace("axis=", "dim=")
    for ours, theirs in NAMES.items():
        text = text.replace(f"torch.{ours}(", f"torch.{theirs}(")
    body = text if "return " in text else f"return {text}"
    lines = "\n".join(f"    {line}" for line in body.split("\n"))
    names = ", ".join("xyzuv"[: len(case.samples)])
    space: dict[str, Any] = {"torch": torch}
    exec(f"def f({names}):\n{lines}", space)
    return space["f"]


def tensors(value: Any) -> list[Any]:
    leaves = list(value) if isinstance(value, (tuple, list)) else [value]
    return [t for t in leaves if isinstance(t, torch.Tensor) and t.is_floating_point()]


def torch_gradients(case: Case, args: Any, want: list[Any], weights: list[Any]) -> Any:
    """torch's gradients, or None where it has no such function, or another of the name."""
    inputs = [torch.tensor(a, requires_grad=a.dtype.kind == "f") for a in args]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outputs = tensors(in_torch(case)(*inputs))
            if len(outputs) != len(want):
                return None
            for o, w in zip(outputs, want, strict=True):
                same = tuple(o.shape) == np.shape(w) and o.dtype == torch.float64
                if not same or not np.allclose(o.detach().numpy(), w, 1e-9, 1e-9, equal_nan=True):
                    return None
            seeds = [torch.tensor(w) for w in weights]
            floats = [i for i in inputs if i.requires_grad]
            grads = torch.autograd.grad(outputs, floats, seeds, allow_unused=True)
    except Exception:  # any way in which the text is not one of torch's
        return None
    return [
        np.zeros(i.shape) if g is None else g.numpy() for i, g in zip(floats, grads, strict=True)
    ]


def floats(value: Any) -> list[Any]:
    return [x for x in flatten(value)[0] if hasattr(x, "dtype") and x.dtype.kind == "f"]


def compare(case: Case, args: Any) -> bool:
    """Whether torch has the function; AssertionError where its gradient is another."""
    rng = np.random.default_rng(3)
    with np.errstate(all="ignore"):
        fn = case.compile()
        want = floats(fn(*(np.array(a) for a in args)))
        weights = [np.asarray(rng.standard_normal(np.shape(w))) for w in want]
        theirs = torch_gradients(case, args, want, weights)
        if theirs is None or not want:
            return False
        value, pullback = gradof.vjp(fn, *(np.array(a) for a in args))
        leaves, tree = flatten(value)
        supply = iter(weights)
        seeds = [next(supply)[()] if floats(x) else x for x in leaves]
        ours = [g for g in flatten(pullback(tree.unflatten(seeds)))[0] if g is not None]
    for mine, right in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, right, rtol=1e-8, atol=1e-9, err_msg=case.title)
    return True


@every(6)
def test_gradients_are_torchs(cases: int) -> None:
    rows = [c for c in part(CASES, cases) if c.name not in DIFFER]
    compared = {c.name for c in rows if compare(c, c.arguments())}
    assert len(compared) >= 150 // cases, len(compared)


@pytest.mark.parametrize("name", DIFFER)
def test_what_differs_does(name: str) -> None:
    (row,) = (c for c in CASES if c.name == name)
    with pytest.raises(AssertionError):
        compare(row, row.arguments())


EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -2.5, np.inf, -np.inf, np.nan]
ELEMENTWISE = (
    *numpy_cases_elementwise.UNARY, *numpy_cases_elementwise.BINARY,
    *numpy_cases_special.ONE, *numpy_cases_special.TWO,
)  # fmt: skip


@pytest.mark.parametrize("case", ELEMENTWISE, ids=lambda c: c.name)
def test_gradients_at_the_edges_are_torchs(case: Case) -> None:
    edges = np.array(EDGES)
    if case.name in WITHOUT_NEGATIVE_ZERO:
        edges = edges[(edges != 0) | ~np.signbit(edges)]
    pairs = [np.repeat(edges, len(edges)), np.tile(edges, len(edges))]
    args = [edges] if len(case.samples) == 1 else pairs
    if case.name in DIFFER_AT_THE_EDGES:
        with pytest.raises(AssertionError):
            compare(case, args)
    else:
        compare(case, args)


@pytest.mark.parametrize("call", ["x", "x, axis=0", "x, 'fro'", "x[0], 3", "x[0], 1"])
def test_norms_at_zero_are_torchs(call: str) -> None:
    row = case("numpy.linalg.norm", f"np.linalg.norm({call})", R(3, 2))
    zeros = np.zeros((3, 2))
    assert compare(row, [zeros])
    value, pullback = gradof.vjp(row.compile(), zeros)
    assert not np.any(pullback(np.ones_like(value))[0])


@pytest.mark.parametrize("name", ["std", "nanstd"])
def test_deviations_of_equal_numbers_have_no_gradient(name: str) -> None:
    assert not np.any(gradof.grad(lambda x: getattr(np, name)(x))(np.ones(4)))
