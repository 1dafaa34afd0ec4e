"""Gradients taken inside a function that is being traced: forces in a loss, gradient penalties.

    def loss(w, x, target):
        force = -grad(lambda x: energy(w, x))(x)        # part of the same trace
        return ((force - target) ** 2).sum()

The inner function runs on fresh copies of its arguments, in the same trace. A `Session` then gives
the gradient of what it returned with respect to these copies: in numpy by transforming the part of
the graph between the two, in torch by torch's own `autograd.grad`, which the trace sees op by op
and whose result gradof differentiates again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gradof.errors import ArgnumsError, CotangentError, DtypeError, LeafTypeError, OutputError
from gradof.runtime.arrays import is_array, is_tensor
from gradof.runtime.thread import is_tracing
from gradof.tracer.core.pytree import TreeDef, flatten
from gradof.tracer.numpy.active import active_recorder
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.state.source import user_loc


class Session(Protocol):
    """What differs between the libraries."""

    def is_array(self, leaf: Any) -> bool:
        """Whether a leaf is an array of the library, traced or plain."""
        ...

    def is_float(self, leaf: Any) -> bool:
        """Whether an array has a gradient."""
        ...

    def fresh(self, leaf: Any) -> Any:
        """The same value as a variable of its own."""
        ...

    def ones(self, like: Any) -> Any:
        """An array of ones."""
        ...

    def stack(self, arrays: Sequence[Any], shape: tuple[int, ...]) -> Any:
        """Arrays as the leading dims `shape` of one."""
        ...

    def pullback(
        self, outputs: Sequence[Any], seeds: Sequence[Any], wrt: Sequence[Any]
    ) -> list[Any]:
        """Gradients of the outputs, weighted by seeds; zeros where there is no path."""
        ...


def session_for(args: Any) -> Session | None:
    """The session of the trace now running; None outside of one, or in a plain run of numpy."""
    if not is_tracing():
        return None
    recorder = active_recorder()
    if recorder is not None:
        from gradof.runtime.nested_numpy import NumpySession

        return NumpySession(recorder)
    if any(is_tensor(leaf) for leaf in flatten(args)[0]):
        from gradof.runtime.torch_nested import TorchSession

        return TorchSession()
    return None


@dataclass
class Inner:
    """An inner call: the result, the fresh arguments, and their structure by position."""

    session: Session
    result: Any
    wrt: list[Any]
    trees: list[TreeDef]

    def structured(self, leaves: Sequence[Any]) -> list[Any]:
        """One result per position, in the structure of the argument."""
        results, at = [], 0
        for tree in self.trees:
            results.append(tree.unflatten(leaves[at : at + tree.num_leaves]))
            at += tree.num_leaves
        return results

    def scalar(self, value: Any) -> Any:
        """`value`, checked to be one floating-point number."""
        session = self.session
        if not session.is_array(value) or not session.is_float(value) or (
            _is_complex(value) or _size(value) != 1
        ):
            raise OutputError(
                f"the inner function returns {_shown(value)}, not a floating-point scalar",
                loc=user_loc(), hint="reduce it with sum() or mean(), or use vjp or jacobian",
            )  # fmt: skip
        return value

    def gradient(self, value: Any) -> list[Any]:
        """The gradient of a scalar, one leaf per fresh argument."""
        return self.session.pullback([value], [self.session.ones(value)], self.wrt)

    def jacobian(self, output: Any) -> list[Any]:
        """d output / d leaf, of shape output.shape + leaf.shape, one per fresh argument."""
        shape = tuple(output.shape)
        columns: list[list[Any]] = [[] for _ in self.wrt]
        for j in np.ndindex(shape):
            one = self.session.ones(output[j])
            for column, g in zip(
                columns, self.session.pullback([output[j]], [one], self.wrt), strict=True
            ):
                column.append(g)
        return [
            self.session.stack(column, (*shape, *leaf.shape)) if column
            else self.session.stack([], (*shape, *leaf.shape))
            for column, leaf in zip(columns, self.wrt, strict=True)
        ]  # fmt: skip


def inner_call(
    session: Session, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
    positions: Sequence[int],
) -> Inner:  # fmt: skip
    """Run `fn` with fresh arguments at `positions`.

    Raises ArgnumsError, LeafTypeError and DtypeError for what has no gradient.
    """
    wrt: list[Any] = []
    trees: list[TreeDef] = []
    called = list(args)
    for n in positions:
        if n >= len(args):
            raise ArgnumsError(
                f"argnums names argument {n}, but there are {len(args)} positional arguments",
                loc=user_loc(), hint="differentiated arguments are passed by position",
            )  # fmt: skip
        leaves, tree = flatten(args[n])
        fresh = [_fresh(session, leaf, n) for leaf in leaves]
        called[n] = tree.unflatten(fresh)
        wrt += fresh
        trees.append(tree)
    return Inner(session, fn(*called, **kwargs), wrt, trees)


def _fresh(session: Session, leaf: Any, position: int) -> Any:
    if type(leaf) is float and not is_tensor(leaf):
        leaf = np.asarray(leaf) if not isinstance(leaf, TracedArray) else leaf
    if not session.is_array(leaf):
        raise LeafTypeError(
            f"argument {position} of the inner function is {_shown(leaf)}, which has no gradient",
            loc=user_loc(), hint="choose argnums whose leaves are floating-point arrays",
        )  # fmt: skip
    if not session.is_float(leaf):
        raise DtypeError(
            f"argument {position} of the inner function is {_shown(leaf)}: integers have no "
            "gradient", loc=user_loc(), hint="convert it to a floating-point dtype",
        )  # fmt: skip
    return session.fresh(leaf)


def float_outputs(session: Session, result: Any) -> tuple[list[Any], TreeDef]:
    """The leaves of a result, which must all be floating-point arrays."""
    leaves, tree = flatten(result)
    for leaf in leaves:
        if not session.is_array(leaf) or not session.is_float(leaf) or _is_complex(leaf):
            raise OutputError(
                f"the inner function returns {_shown(leaf)}", loc=user_loc(),
                hint="return only floating-point arrays computed from the arguments",
            )  # fmt: skip
    return leaves, tree


def seeds_for(outputs: Sequence[Any], cotangents: Any) -> list[Any]:
    """The leaves of cotangents, checked to have the shapes of the outputs."""
    leaves = flatten(cotangents)[0]
    shapes = [tuple(np.shape(leaf)) for leaf in leaves]
    if shapes != [tuple(o.shape) for o in outputs]:
        raise CotangentError(
            f"cotangents of shapes {shapes} for results of {[tuple(o.shape) for o in outputs]}",
            loc=user_loc(), hint="a cotangent has the shape of its result",
        )  # fmt: skip
    return leaves


def _is_complex(array: Any) -> bool:
    return "complex" in str(array.dtype)


def _size(array: Any) -> int:
    return int(np.prod(tuple(array.shape), dtype=np.int64))


def _shown(leaf: Any) -> str:
    if is_array(leaf) or is_tensor(leaf) or isinstance(leaf, TracedArray):
        return f"an array of {leaf.dtype} and shape {list(leaf.shape)}"
    return f"a {type(leaf).__name__}"


def vjp_inside(
    session: Session, fn: Callable[..., Any], args: tuple[Any, ...], wanted: Sequence[int]
) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """`vjp` within a trace, for the arguments whose places are wanted."""
    positions = [
        n for n, arg in enumerate(args)
        if n in wanted and all(session.is_array(x) and session.is_float(x) for x in flatten(arg)[0])
    ]  # fmt: skip
    inner = inner_call(session, fn, args, {}, positions)

    def pullback(cotangents: Any) -> tuple[Any, ...]:
        leaves = flatten(inner.result)[0]
        seeds = flatten(cotangents)[0]
        live = [i for i, x in enumerate(leaves) if session.is_array(x) and session.is_float(x)]
        outputs = [leaves[i] for i in live]
        grads = session.pullback(outputs, seeds_for(outputs, [seeds[i] for i in live]), inner.wrt)
        given = dict(zip(positions, inner.structured(grads), strict=True))
        return tuple(given.get(n) for n in range(len(args)))

    return inner.result, pullback


def hvp_inside(
    session: Session, fn: Callable[..., Any], args: tuple[Any, ...], tangents: Sequence[Any]
) -> tuple[Any, ...]:
    """`hvp` within a trace."""
    inner = inner_call(session, fn, args, {}, range(len(args)))
    grads = inner.gradient(inner.scalar(inner.result))
    seeds = seeds_for(grads, list(tangents))
    return tuple(inner.structured(session.pullback(grads, seeds, inner.wrt)))


def jacobian_inside(
    session: Session, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
    argnums: int | tuple[int, ...], of_gradient: bool,
) -> Any:  # fmt: skip
    """`jacobian` within a trace, or `hessian`: rows in the structure of what is differentiated."""
    positions = argnums if isinstance(argnums, tuple) else (argnums,)
    inner = inner_call(session, fn, args, kwargs, positions)

    def shaped(leaves: Sequence[Any]) -> Any:
        results = inner.structured(leaves)
        return tuple(results) if isinstance(argnums, tuple) else results[0]

    if not of_gradient:
        outputs, tree = float_outputs(session, inner.result)
        return tree.unflatten([shaped(inner.jacobian(o)) for o in outputs])
    grads = inner.gradient(inner.scalar(inner.result))
    return shaped([shaped(inner.jacobian(g)) for g in grads])
