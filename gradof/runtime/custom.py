"""`custom_vjp`: a function with a gradient of the user's own, for both libraries.

    @custom_vjp                     fwd(*args) -> (out, residuals)
    def f(x): ...                   bwd(residuals, cotangent) -> (one gradient per argument,)
    f.defvjp(fwd, bwd)

Traced, the call is one `CustomRule`: `bwd` is recorded beside the forward, so a second derivative
goes through it, and through the residuals. In plain torch it is a `torch.autograd.Function`.

Note [A rule that calls its function]
`fwd` may call the function itself, as `return f(x), x`. That call has the rule again, for a second
derivative that goes through the residuals; a call within its `fwd` would go on for ever, and runs
the function as it is written.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from gradof.errors import ArgnumsError, CallError, CustomRuleError
from gradof.ir.core import Loc
from gradof.runtime.arrays import is_array, is_tensor
from gradof.tracer.core.number_trees import plain
from gradof.tracer.core.pytree import TreeDef, flatten
from gradof.tracer.numpy.active import active_recorder
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.state.source import function_loc, user_loc

_INSIDE: ContextVar[tuple[CustomVjp, ...]] = ContextVar("functions whose fwd runs", default=())


class CustomVjp:
    """See `custom_vjp`."""

    def __init__(self, fn: Callable[..., Any], nondiff_argnums: tuple[int, ...]) -> None:
        functools.update_wrapper(self, fn)  # first: its attributes are not to replace ours
        self.fn = fn
        self.nondiff_argnums = nondiff_argnums
        self.__name__ = str(getattr(fn, "__name__", fn))
        self.fwd: Callable[..., Any] | None = None
        self.bwd: Callable[..., Any] | None = None

    def defvjp(self, fwd: Callable[..., Any], bwd: Callable[..., Any]) -> None:
        """Set the rule: `fwd` takes what the function takes and returns its result and residuals;
        `bwd` takes the static arguments, residuals and the cotangent of the result, and returns a
        tuple with one gradient, or None, per other argument.

        Raises CustomRuleError for what cannot be called.
        """
        for what, given in (("fwd", fwd), ("bwd", bwd)):
            if not callable(given):
                raise CustomRuleError(f"defvjp got a {type(given).__name__} as {what}",
                                      loc=user_loc(), hint="pass two functions")  # fmt: skip
        self.fwd, self.bwd = fwd, bwd

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function; where a gradient may be taken, its rule goes with it."""
        if self.fwd is None or self.bwd is None:
            raise CustomRuleError(
                f"{self.__name__} has no rule", loc=function_loc(self.fn),
                hint=f"call {self.__name__}.defvjp(fwd, bwd) first",
            )  # fmt: skip
        call = bind(self, plain(args), plain(kwargs))
        if self.depth > 1:  # Note [A rule that calls its function]
            return self.fn(*call.arguments(call.leaves))
        if any(isinstance(leaf, TracedArray) for leaf in call.leaves):
            from gradof.runtime.custom_numpy import record

            recorder = active_recorder()
            assert recorder is not None
            return record(call, recorder)
        if any(is_tensor(leaf) for leaf in call.leaves):
            from gradof.runtime.torch_custom import apply, wants_rule

            if wants_rule(call.leaves):
                return apply(call)
        return self.fn(*call.arguments(call.leaves))

    @property
    def depth(self) -> int:
        """How often this thread is in its `fwd`."""
        return _INSIDE.get().count(self)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Its `fwd` runs."""
        token = _INSIDE.set((*_INSIDE.get(), self))
        try:
            yield
        finally:
            _INSIDE.reset(token)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __repr__(self) -> str:
        return f"<gradof.custom_vjp of {getattr(self.fn, '__qualname__', self.fn)}>"


def custom_vjp(
    fn: Callable[..., Any] | None = None, *, nondiff_argnums: int | Sequence[int] = ()
) -> Any:
    """Give a function of torch tensors or numpy arrays a gradient of its own; JAX's conventions.

    Arguments at `nondiff_argnums` are static: they may be anything, get no gradient, and are passed
    to `bwd` first. Also usable as `@custom_vjp(nondiff_argnums=(0,))`. Raises ArgnumsError for
    places the function does not have.
    """
    if fn is None:
        return functools.partial(custom_vjp, nondiff_argnums=nondiff_argnums)
    return CustomVjp(fn, places_of(fn, nondiff_argnums))


def places_of(fn: Callable[..., Any], nondiff_argnums: int | Sequence[int]) -> tuple[int, ...]:
    """The places of static arguments; ArgnumsError for those the function does not have."""
    places = (nondiff_argnums,) if isinstance(nondiff_argnums, int) else tuple(nondiff_argnums)
    count = _positional_count(fn)
    if any(
        isinstance(n, bool) or not isinstance(n, int) or n < 0 or n >= count for n in places
    ) or len(set(places)) != len(places):
        raise ArgnumsError(
            f"nondiff_argnums {places} of a function with {count} arguments", loc=function_loc(fn),
            hint="name different arguments, the first being 0",
        )  # fmt: skip
    return places


def _positional_count(fn: Callable[..., Any]) -> float:
    kinds = [p.kind for p in inspect.signature(fn).parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return float("inf")
    return sum(k not in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
               for k in kinds)  # fmt: skip


@dataclass
class Call:
    """One call: the leaves of the arguments that have gradients, and how they are put together."""

    rule: CustomVjp
    static: dict[int, Any]
    places: list[int]
    trees: list[TreeDef]
    leaves: list[Any]
    tree: TreeDef | None = None  # of the result, once it is known

    def arguments(self, leaves: Sequence[Any]) -> list[Any]:
        """The arguments of the function, with these leaves."""
        given = dict(self.static)
        at = 0
        for place, tree in zip(self.places, self.trees, strict=True):
            given[place] = tree.unflatten(list(leaves[at : at + tree.num_leaves]))
            at += tree.num_leaves
        return [given[i] for i in sorted(given)]

    def forward(self, leaves: Sequence[Any]) -> tuple[Any, Any]:
        """The result and the residuals."""
        assert self.rule.fwd is not None
        with self.rule.running():
            pair = self.rule.fwd(*self.arguments(leaves))
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise CustomRuleError(
                f"the fwd of {self.rule.__name__} must return a pair (result, residuals)",
                loc=function_loc(self.rule.fwd), hint="return out, (x, y)",
            )  # fmt: skip
        return pair

    def residuals_with(self, residuals: Any, result: Any) -> Any:
        """As `fwd` has given them."""
        return residuals

    @property
    def line(self) -> Loc | None:
        """Where bwd is defined."""
        return function_loc(self.rule.bwd)

    def backward(self, residuals: Any, cotangent: Any) -> list[Any]:
        """One gradient or None per leaf; CustomRuleError where number or structure is wrong."""
        assert self.rule.bwd is not None
        static = [self.static[n] for n in self.rule.nondiff_argnums]
        grads = self.rule.bwd(*static, residuals, cotangent)
        name = self.rule.__name__
        if not isinstance(grads, (tuple, list)) or len(grads) != len(self.trees):
            got = len(grads) if isinstance(grads, (tuple, list)) else type(grads).__name__
            raise CustomRuleError(
                f"the bwd of {name} returns {got}, not a tuple of {len(self.trees)} gradients",
                loc=self.line, hint="return one per argument, None for those without a gradient",
            )  # fmt: skip
        leaves: list[Any] = []
        for n, (grad, tree) in enumerate(zip(grads, self.trees, strict=True)):
            if grad is None:
                leaves += [None] * tree.num_leaves
                continue
            found, have = flatten(grad)
            if len(found) != tree.num_leaves or have != tree:
                raise CustomRuleError(
                    f"the bwd of {name} returns {have} as gradient {n}, whose argument is {tree}",
                    loc=self.line, hint="a gradient has the structure of its argument",
                )  # fmt: skip
            leaves += found
        return [self._checked(i, g) for i, g in enumerate(leaves)]

    def _checked(self, i: int, grad: Any) -> Any:
        leaf = self.leaves[i]
        if grad is None or not is_inexact(leaf):
            return None
        shape = tuple(getattr(grad, "shape", ()))
        known = is_tensor(grad) or is_array(grad) or isinstance(grad, (TracedArray, int, float))
        if not known or shape != tuple(leaf.shape):
            raise CustomRuleError(
                f"the bwd of {self.rule.__name__} returns a gradient of shape {list(shape)} for an "
                f"argument of shape {list(leaf.shape)}", loc=self.line,
                hint="a gradient has the shape of its argument",
            )  # fmt: skip
        return grad


def is_inexact(leaf: Any) -> bool:
    """Whether a leaf is a floating-point or complex array or tensor."""
    if is_tensor(leaf):
        return bool(leaf.is_floating_point() or leaf.is_complex())
    return (is_array(leaf) or isinstance(leaf, TracedArray)) and leaf.dtype.kind in "fc"


def bind(rule: CustomVjp, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    """The call of a function with these arguments; CallError where they do not fit."""
    try:
        bound = inspect.signature(rule.fn).bind(*args, **kwargs)
    except TypeError as error:
        raise CallError(f"{rule.__name__}: {error}", loc=user_loc()) from None
    bound.apply_defaults()
    if bound.kwargs:
        raise CallError(
            f"{rule.__name__} has keyword-only arguments {sorted(bound.kwargs)}", loc=user_loc(),
            hint="a function with a rule takes its arguments by position",
        )  # fmt: skip
    given = bound.args
    places = [i for i in range(len(given)) if i not in rule.nondiff_argnums]
    flat = [flatten(given[i]) for i in places]
    return Call(
        rule=rule,
        static={i: given[i] for i in rule.nondiff_argnums},
        places=places,
        trees=[tree for _, tree in flat],
        leaves=[leaf for leaves, _ in flat for leaf in leaves],
    )
