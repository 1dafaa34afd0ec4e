"""Calls of torch functions with numpy arrays alone: which library traces them.

    @differentiate
    def act(obs):                                # obs: np.ndarray
        return model(torch.as_tensor(obs)).argmax(-1).numpy()

A function of arrays is numpy's. Where it cannot be traced as such, and leads to torch, it is traced
as torch's, whose arrays are tensors (`gradof.tracer.core.lent_arrays`): from then on so are all of
its calls, or, where that fails, too, those of this signature.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gradof.errors import CallError, GradofError, InputError, TorchInsideError
from gradof.runtime.arrays import Call, inspect_call, is_array, is_tensor, names_torch
from gradof.tracer.core.pytree import flatten
from gradof.tracer.state.cold import ColdCache

if TYPE_CHECKING:
    from gradof.runtime.cache import Bound
    from gradof.runtime.function import Differentiated


class Lending:
    """What is known of the numpy arrays of one function's calls."""

    def __init__(self) -> None:
        self.always = False  # they are tensors
        self.signatures: set[Any] = set()  # of numpy's, of which they are

    def inspect(
        self, function: Differentiated, args: tuple[Any, ...], kwargs: dict[str, Any],
        default: Any, apart: bool,
    ) -> Call:  # fmt: skip
        """The call, flattened and checked."""
        fn, static = function.fn, function.static_argnames
        call = inspect_call(fn, args, kwargs, static, default, apart, self.always)
        if call.library == "numpy" and call.key in self.signatures:
            call = inspect_call(fn, args, kwargs, static, default, apart, lends=True)
        return call

    def bound(
        self, function: Differentiated, args: tuple[Any, ...], kwargs: dict[str, Any],
        default: Any, bind: Callable[[], Bound],
    ) -> Bound:  # fmt: skip
        """The call bound as what it is, or, where that fails and it may be, as torch's."""
        try:
            return bind()
        except Exception as error:
            if default is not None or not self._may_be_torchs(function, error, args, kwargs):
                raise
            return self._again(function, error, args, kwargs, bind)

    def _again(
        self, function: Differentiated, error: Exception, args: tuple[Any, ...],
        kwargs: dict[str, Any], bind: Callable[[], Bound],
    ) -> Bound:  # fmt: skip
        """The call bound as torch's; with strict, numpy's error where it is one of ours."""
        key = inspect_call(function.fn, args, kwargs, function.static_argnames, "numpy").key
        self.always = True
        try:
            return bind()
        except Exception:
            self.always = False
            self.signatures.add(key)
            torchs = isinstance(error, TorchInsideError)
            if function.is_strict and isinstance(error, GradofError) and not torchs:
                raise error from None
            raise

    def _may_be_torchs(
        self, function: Differentiated, error: Exception, args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> bool:  # fmt: skip
        wrong_use = isinstance(error, CallError | ColdCache) or type(error) is InputError
        if self.always or wrong_use:
            return False
        leaves, _ = flatten((args, kwargs))
        if any(map(is_tensor, leaves)) or not any(map(is_array, leaves)):
            return False
        return names_torch(function.fn)
