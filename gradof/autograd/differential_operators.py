"""autograd's operators: `grad`, `jacobian`, `hessian_vector_product`, `make_vjp` and the rest.

What is differentiated is compiled once for each function and signature, so an operator may be
applied anew at every call.
"""

from __future__ import annotations

import inspect
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from gradof.autograd.core import (
    completed,
    in_space,
    returning_arrays,
    seeds_for,
)
from gradof.autograd.core import make_jvp as _make_jvp
from gradof.autograd.core import make_vjp as _make_vjp
from gradof.autograd.primitives import conjugated
from gradof.autograd.tape import of_a_tape
from gradof.autograd.tape_vjps import make_vjp as make_vjp_on_tape
from gradof.autograd.util import subvals
from gradof.autograd.vspaces import vspace
from gradof.autograd.wrap_util import unary_to_nary, wrap_nary_f
from gradof.errors import DtypeError, LeafTypeError, OutputError
from gradof.runtime.checkpoint import checkpoint as checkpoint
from gradof.runtime.functional import value_and_grad as _value_and_grad
from gradof.runtime.lengths import MISS
from gradof.runtime.once import compiled_once
from gradof.runtime.pullback import vjp_at as pullback
from gradof.tracer.core.pytree import flatten
from gradof.tracer.numpy.active import active_recorder
from gradof.tracer.numpy.array import TracedArray

Function = Callable[..., Any]
make_vjp = unary_to_nary(_make_vjp)
make_jvp = unary_to_nary(_make_jvp)


class _Pullback:
    """The value and the pullback of a function at arguments, for those at `argnum`."""

    def __init__(self, fun: Function, argnum: Any, args: tuple[Any, ...], kwargs: Any) -> None:
        places = (argnum,) if isinstance(argnum, int) else tuple(argnum)
        given = list(args)
        self.argnum, self.places = argnum, [p % len(args) for p in places]
        self.args, self.taped = given, None
        if of_a_tape(args):
            self.value, self.taped = make_vjp_on_tape(
                lambda x: fun(*subvals(args, zip(places, [x], strict=True)), **kwargs), self.x
            )
            return
        for place in places:
            given[place] = in_space(args[place])
        function = returning_arrays(fun)
        if kwargs:
            named = function
            function = lambda *xs: named(*xs, **kwargs)  # noqa: E731  # traced anew at each call
        self.function, self.recorder = function, active_recorder()
        self.value, self.pull = pullback(function, tuple(self.places), tuple(given))

    @property
    def x(self) -> Any:
        """What is differentiated by."""
        found = tuple(self.args[p] for p in self.places)
        return found[0] if isinstance(self.argnum, int) else found

    def __call__(self, g: Any) -> Any:
        if self.taped is not None:
            return self.taped(g)
        inside = active_recorder() is not self.recorder  # it is differentiated itself, in g
        places, args = tuple(self.places), tuple(self.args)
        pull = pullback(self.function, places, args)[1] if inside else self.pull
        found = pull(seeds_for(conjugated(g), self.value))
        chosen = tuple(found[p] for p in self.places)
        return completed(conjugated(chosen[0] if isinstance(self.argnum, int) else chosen), self.x)


def _operator(of_pullback: Callable[[_Pullback], Any]) -> Any:
    """The operator that makes of a function what `of_pullback` makes of its pullback."""

    def operator(fun: Function, argnum: Any = 0) -> Function:
        assert type(argnum) in (int, tuple, list), argnum

        def made(*args: Any, **kwargs: Any) -> Any:
            return of_pullback(_Pullback(fun, argnum, args, kwargs))

        return cast(Function, wrap_nary_f(fun, operator, argnum)(made))

    operator.__name__ = of_pullback.__name__.removeprefix("_of_")
    operator.__doc__ = of_pullback.__doc__
    return operator


def _ones(pulled: _Pullback, name: str) -> Any:
    space = vspace(pulled.value)
    if space.size != 1:
        raise TypeError(
            f"{name} only applies to real scalar-output functions. "
            "Try jacobian, elementwise_grad or holomorphic_grad."
        )
    return space.ones()


class _Compiled:
    """Value and gradient of real functions in one compiled graph; else by the pullback."""

    def __init__(self, fun: Function, argnum: Any, name: str) -> None:
        self.fun, self.argnum, self.name = fun, argnum, name
        self.places = (argnum,) if isinstance(argnum, int) else tuple(argnum)
        self.compiled: Any = None
        self.by_pullback = False

    def __call__(self, args: tuple[Any, ...], kwargs: Any) -> tuple[Any, Any]:
        if self.compiled is not None and all(_is_real(args[p % len(args)]) for p in self.places):
            found = self.compiled.at_once(args, kwargs)
            if found is not MISS and all(g is not None for g in found[1]):
                value, gradients = found
                return value, gradients[0] if isinstance(self.argnum, int) else gradients
        leaves = flatten((args, kwargs))[0]
        plain = not any(type(x) is TracedArray or np.iscomplexobj(x) for x in leaves)
        plain = plain and not of_a_tape(args)
        if plain and not self.by_pullback:
            try:
                return self._compiled(args, kwargs)
            except (OutputError, LeafTypeError, DtypeError):
                self.by_pullback = True  # a constant, the argument itself, or no number
        pulled = _Pullback(self.fun, self.argnum, args, kwargs)
        return pulled.value, pulled(_ones(pulled, self.name))

    def _compiled(self, args: tuple[Any, ...], kwargs: Any) -> tuple[Any, Any]:
        places = tuple(p % len(args) for p in self.places)
        given = list(args)
        for place in places:
            given[place] = in_space(args[place])
        if self.compiled is None:
            base = compiled_once(returning_arrays(self.fun))
            self.compiled = _value_and_grad(base, places)
        value, gradients = self.compiled(*given, **kwargs)
        chosen = tuple(given[p] for p in places)
        if isinstance(self.argnum, int):
            return value, completed(gradients[0], chosen[0])
        return value, completed(tuple(gradients), chosen)


def _is_real(arg: Any) -> bool:
    """Whether it is an array as it is compiled for: in its space, and its gradient too."""
    return type(arg) is np.ndarray and arg.dtype.kind == "f"


def _compiled_operator(name: str, with_value: bool, doc: str) -> Any:
    def operator(fun: Function, argnum: Any = 0) -> Function:
        assert type(argnum) in (int, tuple, list), argnum
        run = _Compiled(fun, argnum, name)

        def made(*args: Any, **kwargs: Any) -> Any:
            value, gradient = run(args, kwargs)
            return (value, gradient) if with_value else gradient

        return cast(Function, wrap_nary_f(fun, operator, argnum)(made))

    operator.__name__ = name
    operator.__doc__ = doc
    return operator


grad = _compiled_operator("grad", False, """
    Returns a function which computes the gradient of `fun` with respect to positional argument
    number `argnum`. The function `fun` returns one real number; the gradient has the structure of
    the argument.""")  # fmt: skip
value_and_grad = _compiled_operator("value_and_grad", True, """
    Returns a function that returns both value and gradient, as `scipy.optimize` takes them.""")


def _of_elementwise_grad(pulled: _Pullback) -> Any:
    """The sum of each column of the Jacobian, in one pass: its diagonal where it is diagonal."""
    space = vspace(pulled.value)
    if space.iscomplex:
        raise TypeError("Elementwise_grad only applies to real-output functions.")
    return pulled(space.ones())


def _of_jacobian(pulled: _Pullback) -> Any:
    """The Jacobian, of the shape of the value followed by that of the argument."""
    space = vspace(pulled.value)
    rows = [pulled(unit) for unit in space.standard_basis()]
    return np.reshape(np.stack(rows), tuple(space.shape) + tuple(vspace(pulled.x).shape))


def _of_grad_and_aux(pulled: _Pullback) -> Any:
    """The gradient of the first of two results, and the second as it is."""
    value, aux = pulled.value
    return pulled((vspace(value).ones(), _zeros(aux))), aux


elementwise_grad = _operator(_of_elementwise_grad)
jacobian = _operator(_of_jacobian)
grad_and_aux = _operator(_of_grad_and_aux)


def _zeros(tree: Any) -> Any:
    leaves, structure = flatten(tree)
    return structure.unflatten([
        np.zeros(np.shape(x), x.dtype) if hasattr(x, "dtype") else x for x in leaves
    ])  # fmt: skip


@unary_to_nary
def deriv(fun: Function, x: Any) -> Any:
    """The derivative along ones: of functions of one number, or element by element."""
    return _make_jvp(fun, x)(vspace(x).ones())[1]


@unary_to_nary
def holomorphic_grad(fun: Function, x: Any) -> Any:
    """The derivative of a holomorphic function of complex numbers."""
    if not vspace(x).iscomplex:
        warnings.warn("Input to holomorphic_grad is not complex", stacklevel=3)
    return grad(lambda x: np.real(fun(x)))(x)


def grad_named(fun: Function, argname: str) -> Function:
    """The gradient with respect to a named argument."""
    return cast(Function, grad(fun, inspect.getfullargspec(fun).args.index(argname)))


def hessian(fun: Function, argnum: Any = 0) -> Function:
    """The Hessian."""
    return cast(Function, wrap_nary_f(fun, hessian, argnum)(_hessian_of(fun, argnum)))


def _hessian_of(fun: Function, argnum: Any) -> Function:
    slopes = jacobian(fun, argnum)  # the other arguments stay arguments: no constants of a trace

    def made(*args: Any, **kwargs: Any) -> Any:
        return jacobian(slopes, argnum)(*args, **kwargs)

    return made


@unary_to_nary
def make_hvp(fun: Function, x: Any) -> Any:
    """`(hvp, gradient)`: Hessian-vector products at one point, and the gradient there."""
    return _make_vjp(grad(fun), x)


@unary_to_nary
def make_jvp_reversemode(fun: Function, x: Any) -> Any:
    """Jacobian-vector products at one point, as the pullback of the pullback."""
    vjp, y = _make_vjp(fun, x)
    return _make_vjp(vjp, vspace(y).zeros())[0]


def hessian_tensor_product(fun: Function, argnum: int = 0) -> Function:
    """The Hessian times a tensor, which comes after the arguments."""
    gradient = grad(fun, argnum)

    def vector_dot_grad(*args: Any, **kwargs: Any) -> Any:
        *rest, vector = args
        return np.tensordot(gradient(*rest, **kwargs), vector, np.ndim(vector))

    return cast(Function, grad(vector_dot_grad, argnum))


hessian_vector_product = hessian_tensor_product


def tensor_jacobian_product(fun: Function, argnum: int = 0) -> Function:
    """A tensor, which comes after the arguments, times the Jacobian."""

    def vector_dot_fun(*args: Any, **kwargs: Any) -> Any:
        *rest, vector = args
        return np.tensordot(vector, fun(*rest, **kwargs), axes=np.ndim(vector))

    return cast(Function, jacobian(vector_dot_fun, argnum))


vector_jacobian_product = tensor_jacobian_product


def _half_of_squares(x: Any) -> Any:
    return 0.5 * np.sum(x**2, axis=-1)


def make_ggnvp(f: Function, g: Function = _half_of_squares, f_argnum: int = 0) -> Function:
    """Products with the generalized Gauss-Newton matrix of g(f(x)) at one point."""

    @unary_to_nary
    def make(f: Function, x: Any) -> Any:
        f_vjp, f_x = _make_vjp(f, x)
        g_hvp, grad_g_x = _make_vjp(grad(g), f_x)
        f_jvp, _ = _make_vjp(f_vjp, vspace(grad_g_x).zeros())
        return lambda v: f_vjp(g_hvp(f_jvp(v)))

    return cast(Function, make(f, f_argnum))


def multigrad_dict(fun: Function) -> Function:
    """Gradients with respect to all arguments at once, as a dict by their names."""
    signature = inspect.signature(fun)

    def gradients(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()

        def of_dict(given: Any) -> Any:
            again = inspect.BoundArguments(signature, OrderedDict(given))
            return fun(*again.args, **again.kwargs)

        found = grad(of_dict)(dict(bound.arguments))
        return OrderedDict((name, found[name]) for name in bound.arguments)

    return gradients

