"""autograd's `primitive`: a function that is not traced, with vjps and jvps by argument.

    @primitive
    def logsumexp(x): ...
    defvjp(logsumexp, lambda ans, x: lambda g: g * np.exp(x - ans))
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import numpy as np

from gradof.autograd.tape import apply, is_boxed
from gradof.autograd.util import subval
from gradof.runtime.pullback import vjp as pullback
from gradof.runtime.thread import calling_compiled, is_nan_safe, tracing
from gradof.tracer.core.pytree import flatten
from gradof.tracer.numpy.active import OVERRIDES, active_recorder
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.recorder import Recorder
from gradof.tracer.state.source import warn_user
from gradof.tracer.state.unheard import unheard

Function = Callable[..., Any]
primitive_vjps: dict[Any, Function] = {}
primitive_jvps: dict[Any, Function] = {}


class Primitive:
    """See the module docstring."""


    def __init__(self, fun: Function) -> None:
        functools.update_wrapper(self, fun)
        self.fun = fun
        self.is_constant = False
        self._deprecated: dict[int, Function] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function; in a trace, whenever the graph runs."""
        if any(map(is_boxed, args)):
            return apply(self, args, kwargs)
        leaves = flatten((args, kwargs))[0]
        recorder = active_recorder()
        if recorder is None or not any(type(x) is TracedArray for x in leaves):
            return self.fun(*args, **kwargs)
        return self._recorded(recorder, args, kwargs)

    @unheard
    def _recorded(self, recorder: Recorder, args: Any, kwargs: Any) -> Any:
        from gradof.tracer.numpy import black_box

        recorder.loops.reads.switches[self.rules] = self.rules()
        live = [i for i, a in enumerate(args) if any(map(_varies, flatten(a)[0]))]
        gradients = functools.partial(self._gradients, live)
        known = None
        if self in primitive_vjps and not self.is_constant and self.fun not in OVERRIDES:
            from gradof.autograd.opened import call_opened, known_in_own_rule

            found = call_opened(self, live, gradients, args, kwargs)
            if found is not NotImplemented:
                return found
            known = known_in_own_rule(self, live, args, kwargs)

        def run(given: Any, named: Any) -> Any:
            with calling_compiled():
                return self.fun(*given, **named)

        name = getattr(self.fun, "__name__", "primitive")
        found = black_box.call(
            recorder, name, run, (args, kwargs), None, gradients, known=known, rule_is_called=True
        )
        if not self.is_constant:
            return found
        from gradof.runtime.escapes import stop_gradient

        return stop_gradient(found)

    def rules(self) -> tuple[Any, Any]:
        """The rules that it has now: traces hold while it has these."""
        return primitive_vjps.get(self), primitive_jvps.get(self)

    def _gradof_leads_to(self) -> tuple[Any, ...]:
        """What a call of it runs: for a trace to be shared, nothing of one function's own."""
        return (self.fun, *self.rules())

    def _gradients(self, live: list[int], call: Any, ans: Any, g: Any) -> list[Any]:
        """One gradient or None for each leaf of the arguments, of those at the places `live`."""
        args, kwargs = call
        with tracing(is_nan_safe()), _within_a_rule():
            found = self._by_argument(live, ans, args, kwargs, conjugated(g))
        leaves: list[Any] = []
        for i, arg in enumerate(args):
            given, number = found.get(i), len(flatten(arg)[0])
            leaves += [None] * number if given is None else flatten(conjugated(given))[0]
        return leaves + [None] * len(flatten(kwargs)[0])

    def _by_argument(
        self, live: list[int], ans: Any, args: Any, kwargs: Any, g: Any
    ) -> dict[int, Any]:
        if self in primitive_vjps:
            made = primitive_vjps[self](tuple(live), ans, args, kwargs)(g)
            return {i: _like(v, args[i]) for i, v in zip(live, made, strict=True)}
        if self in primitive_jvps:
            rule = primitive_jvps[self]
            gradients = pullback(
                lambda *vs: rule(tuple(live), vs, ans, args, kwargs),
                *(_zeros(args[i]) for i in live),
            )[1](conjugated(g))
            return dict(zip(live, map(conjugated, gradients), strict=True))
        raise NotImplementedError(f"VJP of {self.__name__} wrt argnums {tuple(live)} not defined")

    __name__: str

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    # --- the ways of old versions -----------------------------------------------------------------

    def defvjp(self, vjpmaker: Function, argnum: int = 0) -> None:
        """Deprecated: `extend.defvjp`."""
        from gradof.autograd.vspaces import vspace

        def maker(ans: Any, *args: Any, **kwargs: Any) -> Function:
            return lambda g: vjpmaker(g, ans, vspace(args[argnum]), vspace(g), *args, **kwargs)

        self._old("defvjp", maker, argnum)

    def defgrad(self, gradfun: Function, argnum: int = 0) -> None:
        """Deprecated: `extend.defvjp`."""
        self._old("defgrad", gradfun, argnum)

    def defvjp_is_zero(self, argnums: Iterable[int] = (0,)) -> None:
        """Deprecated: `extend.defvjp` with None."""
        for argnum in argnums:
            self._old("defvjp_is_zero", None, argnum)

    def _old(self, what: str, maker: Any, argnum: int) -> None:
        warnings.warn(f"{what} is deprecated: use autograd.extend.defvjp", stacklevel=3)
        self._deprecated[argnum] = maker
        argnums = sorted(self._deprecated)
        defvjp(self, *(self._deprecated[n] for n in argnums), argnums=argnums)


def _varies(x: Any) -> bool:
    return type(x) is TracedArray and x.dtype.kind in "fc" and not x.is_constant


def conjugated(tree: Any) -> Any:
    """The conjugates of complex arrays in a nest."""
    leaves, structure = flatten(tree)
    return structure.unflatten([np.conj(x) if np.iscomplexobj(x) else x for x in leaves])


def _zeros(tree: Any) -> Any:
    leaves, structure = flatten(tree)
    return structure.unflatten([np.zeros(np.shape(x), getattr(x, "dtype", float)) for x in leaves])


class _Thread(threading.local):
    in_rule = False


_THREAD = _Thread()


def is_in_rule() -> bool:
    """Whether a primitive's vjp is computed, or traced, so that it may be differentiated itself."""
    return _THREAD.in_rule


@contextmanager
def _within_a_rule() -> Iterator[None]:
    before, _THREAD.in_rule = _THREAD.in_rule, True
    try:
        yield
    finally:
        _THREAD.in_rule = before


def _like(gradient: Any, arg: Any) -> Any:
    """A gradient in the structure and shapes of its argument."""
    if gradient is None:
        return None
    leaves, structure = flatten(arg)
    given = flatten(gradient)[0]
    return structure.unflatten([
        g if np.shape(g) == np.shape(x) else np.broadcast_to(g, np.shape(x))
        for g, x in zip(given, leaves, strict=True)
    ])  # fmt: skip


def _ruled(fun: Any) -> Any:
    """The primitive that a rule is given to.

    For a function of numpy's, or a ufunc, that is one which takes its place in traces from now on.
    A function that is none is differentiated through, as in autograd: the rule has no effect.
    """
    if isinstance(fun, Primitive):
        return fun
    if not callable(fun):
        raise TypeError(f"{fun!r} is no function, and has no rule")
    if not isinstance(fun, np.ufunc) and not hasattr(fun, "_implementation"):
        name = getattr(fun, "__name__", fun)
        text = f"{name} is no primitive, and its rule is not used: wrap it with @primitive"
        warn_user(text, UserWarning)
        return fun
    made = OVERRIDES.setdefault(fun, Primitive(fun))
    assert isinstance(made, Primitive)
    return made


# --- reverse mode ---------------------------------------------------------------------------------


def defvjp_argnums(fun: Any, vjpmaker: Function) -> None:
    """`vjpmaker(argnums, ans, args, kwargs)(g)` gives the gradients of these arguments."""
    primitive_vjps[_ruled(fun)] = vjpmaker


def defvjp_argnum(fun: Any, vjpmaker: Function) -> None:
    """`vjpmaker(argnum, ans, args, kwargs)(g)` gives the gradient of one argument."""

    def of_all(argnums: Any, *args: Any) -> Function:
        vjps = [vjpmaker(argnum, *args) for argnum in argnums]
        return lambda g: [vjp(g) for vjp in vjps]

    defvjp_argnums(fun, of_all)


def defvjp(fun: Any, *vjpmakers: Any, argnums: Iterable[int] | None = None) -> None:
    """`vjpmakers[i](ans, *args, **kwargs)(g)` gives the gradient of argument i, None says zero."""
    makers = dict(zip(count() if argnums is None else argnums, vjpmakers, strict=False))

    def of_one(argnum: int, ans: Any, args: Any, kwargs: Any) -> Function:
        if argnum not in makers:
            raise NotImplementedError(f"VJP of {fun.__name__} wrt argnum {argnum} not defined")
        maker = makers[argnum]
        if maker is None:
            return lambda g: None
        vjp: Function = maker(ans, *args, **kwargs)
        return vjp

    defvjp_argnum(fun, of_one)


# --- forward mode ---------------------------------------------------------------------------------


def defjvp_argnums(fun: Any, jvpmaker: Function) -> None:
    """`jvpmaker(argnums, gs, ans, args, kwargs)` gives the tangent of the result."""
    primitive_jvps[_ruled(fun)] = jvpmaker


def defjvp_argnum(fun: Any, jvpmaker: Function) -> None:
    """`jvpmaker(argnum, g, ans, args, kwargs)` gives one argument's part of the tangent."""

    def of_all(argnums: Any, gs: Any, *args: Any) -> Any:
        return sum(jvpmaker(argnum, g, *args) for argnum, g in zip(argnums, gs, strict=True))

    defjvp_argnums(fun, of_all)


def defjvp(fun: Any, *jvpfuns: Any, argnums: Iterable[int] | None = None) -> None:
    """`jvpfuns[i](g, ans, *args, **kwargs)`; "same" for a linear argument, None for zero."""
    rules = dict(zip(count() if argnums is None else argnums, jvpfuns, strict=False))

    def of_one(argnum: int, g: Any, ans: Any, args: Any, kwargs: Any) -> Any:
        rule = rules[argnum]
        if rule is None:
            return np.zeros_like(ans)
        if rule == "same":
            return fun(*subval(args, argnum, g), **kwargs)
        return rule(g, ans, *args, **kwargs)

    defjvp_argnum(fun, of_one)


def def_linear(fun: Any) -> None:
    """The function is linear in each argument."""
    defjvp_argnum(fun, lambda n, g, ans, args, kwargs: fun(*subval(args, n, g), **kwargs))
