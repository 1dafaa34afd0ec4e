"""Small helpers of autograd's."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any


def subvals(x: Any, ivs: Iterable[tuple[int, Any]]) -> tuple[Any, ...]:
    """The items of x as a tuple, some of them replaced."""
    items = list(x)
    for i, v in ivs:
        items[i] = v
    return tuple(items)


def subval(x: Any, i: int, v: Any) -> tuple[Any, ...]:
    """The items of x as a tuple, one of them replaced."""
    return subvals(x, [(i, v)])


def func(f: Any) -> Any:
    """The function itself."""
    return f


def quick_grad_check(
    fun: Any, arg0: Any, extra_args: tuple[Any, ...] = (), kwargs: Any = None,
    verbose: bool = True, eps: float = 1e-4, rtol: float = 1e-4, atol: float = 1e-6, rs: Any = None,
) -> None:
    """Deprecated: `test_util.check_grads`."""
    from gradof.autograd.test_util import check_grads

    warnings.warn("quick_grad_check is deprecated: use test_util.check_grads", stacklevel=2)
    check_grads(lambda x: fun(x, *extra_args, **(kwargs or {})), modes=["rev"], order=1)(arg0)
