"""`primitive`: a function that is never traced, with derivatives that its user gives.

    @primitive                                        # a solver in C, a simulator, a sparse matrix
    def solve(A, b): return splu(A).solve(b)
    solve.defvjp(lambda g, x, A, b: (None, solve(A.T, g)))

In a trace the call is a `python_call` node, which runs the function on arrays. Its gradient is the
user's rule, traced when it is asked for; it may call primitives again, its own one, too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradof.errors import CustomRuleError
from gradof.runtime.arrays import is_tensor
from gradof.runtime.custom import CustomVjp, bind, is_inexact, places_of
from gradof.runtime.pullback import vjp as pullback_of
from gradof.runtime.thread import calling_compiled, is_nan_safe, tracing
from gradof.tracer.core.number_trees import plain
from gradof.tracer.core.pytree import flatten
from gradof.tracer.numpy.active import active_recorder
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.state.source import function_loc, user_loc

Function = Callable[..., Any]


class Primitive(CustomVjp):
    """See `primitive`."""

    def __init__(
        self, fn: Function, vjp: Function | None, jvp: Function | None, example: Function | None,
        nondiff_argnums: tuple[int, ...],
    ) -> None:  # fmt: skip
        super().__init__(fn, nondiff_argnums)
        self.example = example
        self.vjp_rule: Function | None = None
        self.jvp_rule: Function | None = None
        if vjp is not None:
            self.defvjp(vjp)
        if jvp is not None:
            self.defjvp(jvp)

    def defvjp(self, vjp: Function, /) -> None:  # type: ignore[override]
        """Set the rule `vjp(cotangent, result, *args)`; CustomRuleError for what is no function."""
        self.vjp_rule = _checked(vjp, "vjp")
        self.fwd, self.bwd = self._forward, self._backward

    def defjvp(self, jvp: Function, /) -> None:
        """Set the rule `jvp(tangents, result, *args)`; CustomRuleError for what is no function."""
        self.jvp_rule = _checked(jvp, "jvp")
        self.fwd, self.bwd = self._forward, self._backward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function; in a trace, whenever the graph runs."""
        call = bind(self, plain(args), plain(kwargs))
        recorder = active_recorder()
        if recorder is not None and any(isinstance(x, TracedArray) for x in call.leaves):
            from gradof.tracer.numpy import black_box

            return black_box.call(
                recorder, self.__name__, self._alone, tuple(call.arguments(call.leaves)),
                self.example, None if self.bwd is None else self._gradients,
            )
        if self.bwd is None or not any(map(is_tensor, call.leaves)):
            return self.fn(*call.arguments(call.leaves))
        return super().__call__(*args, **kwargs)

    def _alone(self, *args: Any) -> Any:
        """The function as it runs outside of traces: compiled functions it calls are called."""
        with calling_compiled():
            return self.fn(*args)

    def _forward(self, *args: Any) -> tuple[Any, Any]:
        result = self.fn(*args)
        return result, (args, result)

    def _gradients(self, args: tuple[Any, ...], result: Any, cotangent: Any) -> list[Any]:
        """One gradient or None for each leaf of the arguments."""
        places = [i for i in range(len(args)) if i not in self.nondiff_argnums]
        with tracing(is_nan_safe()):
            grads = dict(zip(places, self._backward((args, result), cotangent), strict=True))
        leaves: list[Any] = []
        for i, arg in enumerate(args):
            found, tree = flatten(arg)
            if grads.get(i) is None:
                leaves += [None] * len(found)
                continue
            given, have = flatten(grads[i])
            wrong = [
                g for g, x in zip(given, found, strict=False)
                if is_inexact(x) and np.shape(g) != np.shape(x)
            ]  # fmt: skip
            if have != tree or wrong:
                raise CustomRuleError(
                    f"the rule of {self.__name__} returns a gradient of argument {i} that is not "
                    "like it", loc=function_loc(self.vjp_rule or self.jvp_rule),
                    hint="a gradient has the structure and the shapes of its argument",
                )  # fmt: skip
            leaves += given
        return leaves

    def _backward(self, *given: Any) -> tuple[Any, ...]:
        (args, result), cotangent = given[-2:]
        if self.vjp_rule is not None:
            grads = self.vjp_rule(cotangent, result, *args)
        else:
            grads = self._transposed(cotangent, result, args)
        return self._placed(grads, args)

    def _transposed(self, cotangent: Any, result: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The gradient from a rule of forward mode, which is linear in the tangents."""
        live = self._differentiated(args)

        def moved(*tangents: Any) -> Any:
            given = dict(zip(live, tangents, strict=True))
            assert self.jvp_rule is not None
            places = [i for i in range(len(args)) if i not in self.nondiff_argnums]
            return self.jvp_rule(tuple(given.get(i) for i in places), result, *args)

        zeros = [_zeros_like(args[i]) for i in live]
        return pullback_of(moved, *zeros)[1](cotangent)

    def _differentiated(self, args: tuple[Any, ...]) -> list[int]:
        """The arguments that have gradients."""
        return [
            i for i, a in enumerate(args)
            if i not in self.nondiff_argnums and any(map(is_inexact, flatten(a)[0]))
        ]  # fmt: skip

    def _placed(self, grads: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """One gradient or None for each argument that is not static."""
        places = [i for i in range(len(args)) if i not in self.nondiff_argnums]
        live = self._differentiated(args)
        if not isinstance(grads, (tuple, list)):
            grads = (grads,)
        if len(grads) == len(places):
            return tuple(grads)
        if len(grads) == len(live):
            by_place = dict(zip(live, grads, strict=True))
            return tuple(by_place.get(i) for i in places)
        raise CustomRuleError(
            f"the vjp of {self.__name__} returns {len(grads)} gradients for {len(places)} "
            f"arguments, {len(live)} of them differentiable", loc=function_loc(self.vjp_rule),
            hint="return one per argument, None for those without a gradient",
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"<gradof.primitive of {getattr(self.fn, '__qualname__', self.fn)}>"


def primitive(
    fn: Function | None = None, *, vjp: Function | None = None, jvp: Function | None = None,
    example: Function | None = None, nondiff_argnums: int | Sequence[int] = (),
) -> Any:  # fmt: skip
    """A function of numpy arrays that is never traced, with derivatives that you give.

    `vjp(cotangent, result, *args)` returns one gradient per argument, or None; one alone where one
    argument is differentiable. Instead, `jvp(tangents, result, *args)` returns the tangent of the
    result; of arguments that are no floating-point arrays the tangent is None. Rules are traced:
    derivatives go on through them, to any order, and they may call primitives. Without a rule, a
    gradient that reaches the function is an UnsupportedOpError.

    The function runs once while it is traced, for the types of its result; `example(*args)` runs
    instead where it is given, and returns arrays of the right shapes and dtypes. Results depend on
    the arguments alone, their types on the arguments' types; otherwise an OutputError says so.
    Arguments that are no arrays, and those at `nondiff_argnums`, are passed as they are.

    Also usable as `@primitive` and `@primitive(vjp=...)`, with `.defvjp(vjp)` and `.defjvp(jvp)`.
    Raises ArgnumsError for places the function does not have, and CustomRuleError for rules that
    are no functions.
    """
    if fn is None:
        return functools.partial(
            primitive, vjp=vjp, jvp=jvp, example=example, nondiff_argnums=nondiff_argnums
        )
    return Primitive(fn, vjp, jvp, example, places_of(fn, nondiff_argnums))


def _checked(rule: Any, what: str) -> Function:
    if not callable(rule):
        raise CustomRuleError(
            f"the {what} of a primitive is a {type(rule).__name__}", loc=user_loc(),
            hint=f"pass a function: {what}=...",
        )
    function: Function = rule
    return function


def _zeros_like(tree: Any) -> Any:
    leaves, structure = flatten(tree)
    return structure.unflatten([np.zeros(np.shape(x), x.dtype) for x in leaves])

