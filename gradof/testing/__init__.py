"""The torch-compatible harness: are the gradients right, and if not, which op and line is wrong?

from gradof.testing import check
report = check(loss, (x, w, b, y), order=2)      # GradientMismatchError if anything is wrong
print(report)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradof.errors import InputError, LeafTypeError
from gradof.runtime.arrays import is_array, is_tensor
from gradof.testing.report import REFERENCES, Culprit, OpRow, Report, Row
from gradof.tracer.core.pytree import flatten

__all__ = ["REFERENCES", "Culprit", "OpRow", "Report", "Row", "check", "shrink"]


def shrink(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any] | None = None,
    **options: Any,
) -> Any:  # fmt: skip
    """The smallest part of a function that is wrong by itself; see `gradof.testing.shrinking`."""
    from gradof.testing.shrinking import shrink as find

    return find(fn, args, kwargs, **options)


def check(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    order: int = 1,
    seed: int = 0,
    against: tuple[str, ...] = REFERENCES,
    per_op: bool = False,
    raise_on_error: bool = True,
) -> Report:
    """Compare values and gradients of `fn` with eager, float64 and finite differences.

    Cotangents are random. torch functions are compared with torch's autograd, in their own
    precision and in float64, numpy functions with plain numpy and central differences; `order=2`
    adds second gradients. How close is close enough is told by float64: see Note [Closeness] in
    `gradof.testing.closeness`. `against` chooses among the references; `per_op` also tests every
    op by itself and puts a table of them, with the user's lines, into the report, as is done when
    something is wrong. Asserts that our own f and df really ran. The caller's arrays, parameters,
    buffers and random state stay as they were.

    Raises GradientMismatchError (unless `raise_on_error` is false), which names the first wrong
    op and the user's line; InputError for a bad order, arguments in no tuple, or references this
    function cannot be compared with; LeafTypeError for arguments without arrays that can be
    differentiated.
    """
    if order not in (1, 2):
        raise InputError(f"order is 1 or 2, not {order!r}")
    unknown = set(against) - set(REFERENCES)
    if unknown or not against:
        raise InputError(
            f"unknown references {sorted(unknown)}" if unknown else "nothing to compare with",
            hint="known: " + ", ".join(map(repr, REFERENCES)),
        )
    if not isinstance(args, (tuple, list)):
        raise InputError(
            f"the arguments are given as {type(args).__name__}",
            hint="pass a tuple of them: check(fn, (x,))",
        )
    leaves = flatten((args, kwargs or {}))[0]
    if any(map(is_tensor, leaves)):
        from gradof.testing.torch_check import check_torch

        report = check_torch(fn, tuple(args), dict(kwargs or {}), order, seed, per_op)
    elif any(is_array(x) or isinstance(x, float) for x in leaves):
        from gradof.testing.numpy_check import check_numpy

        if kwargs:
            raise InputError("numpy functions are checked with positional arguments")
        report = check_numpy(fn, tuple(args), order, seed, per_op)
    else:
        raise LeafTypeError("check needs array arguments", hint="pass tensors or numpy arrays")
    report.keep(against)
    if raise_on_error:
        report.raise_if_wrong()
    return report
