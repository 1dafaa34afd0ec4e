"""jacobian and hessian, for numpy and torch alike; JAX's conventions.

>>> jacobian(lambda x: x**2)(np.array([1.0, 3.0]))
array([[2., 0.],
       [0., 6.]])

One run of a compiled pullback for each element of the result.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradof.autodiff.compose import pullback_graph
from gradof.errors import OutputError
from gradof.ir.core import Graph
from gradof.runtime.cache import Bound
from gradof.runtime.checks import (
    Argnums,
    basis,
    is_float,
    lift_floats,
    scalar_output,
    stack,
    wrt_inputs,
)
from gradof.runtime.dynamo import left_alone
from gradof.runtime.functional import Transformed, gradient_only
from gradof.runtime.nested import jacobian_inside, session_for
from gradof.runtime.refuse import Numerics, check_numerics_inside
from gradof.runtime.results import finish, run_plan
from gradof.tracer.core.result import TensorOut
from gradof.tracer.state.generators import Rewound


@left_alone
class Jacobian(Transformed):
    """See `jacobian` and `hessian`."""

    def __init__(
        self, fn: Callable[..., Any], argnums: Argnums, of_gradient: bool,
        numerics: Numerics | None = None,
    ) -> None:  # fmt: skip
        super().__init__(fn, argnums, numerics)
        self.of_gradient = of_gradient

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The Jacobian, or the Hessian."""
        session = session_for((args, kwargs))
        if session is not None:
            check_numerics_inside(self.base.nan_safe)
            return jacobian_inside(
                session, self.base.fn, args, kwargs, self.argnums, self.of_gradient
            )
        try:
            bound = self.bind(args, kwargs, eager=not self.base.is_strict)
        except Exception as error:
            return self.base.cache.eager.instead(
                self.base.fn, error, args, kwargs, self.base.is_strict,
                lambda: self._eagerly(args, kwargs),
            )  # fmt: skip
        return self._of(bound)

    def _eagerly(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        from gradof.runtime.torch_eager import jacobian_eagerly

        one = isinstance(self.argnums, int)
        return jacobian_eagerly(
            self.base.fn, self.positions, lift_floats(args, self.positions), kwargs,
            self.of_gradient, lambda parts: parts[0] if one else tuple(parts),
        )  # fmt: skip

    def _of(self, bound: Bound) -> Any:
        wrt = wrt_inputs(bound, self.positions)
        traced = bound.entry.traced
        draws = Rewound(traced.generators)  # every row is of the same numbers
        writes = bool(traced.writebacks or traced.writes)
        runs = bool(draws.states) or writes or not self.of_gradient
        value = run_plan(bound.entry.plan, bound.inputs) if runs else ()
        result = self._hessian(bound, draws, wrt) if self.of_gradient else (
            self._jacobian(bound, draws, wrt, value)
        )  # fmt: skip
        if writes:  # as one call of the function does
            finish(bound, value)
        return result

    def _hessian(self, bound: Bound, draws: Rewound, wrt: tuple[int, ...]) -> Any:
        output = scalar_output(bound, has_aux=False)
        rows = [
            self.rows(bound, draws, wrt, k, ("hessian", output, wrt, k),
                      functools.partial(_hessian_rows, wrt=wrt, output=output, k=k),
                      bound.inputs[i])
            for k, i in enumerate(wrt)
        ]  # fmt: skip
        return self.structured(bound, [self.structured(bound, r) for r in rows])

    def _jacobian(
        self, bound: Bound, draws: Rewound, wrt: tuple[int, ...], value: Sequence[Any]
    ) -> Any:
        traced = bound.entry.traced
        leaves: list[Any] = []
        for out in traced.outputs:
            if not isinstance(out, TensorOut) or not is_float(traced.graph, out.index):
                raise OutputError(
                    "jacobian needs a function that returns floating-point arrays",
                    hint="return only floating-point arrays computed from the arguments",
                )
            k = out.index
            leaves.append(self.structured(bound, self.rows(
                bound, draws, wrt, k, ("jacobian", wrt, k),
                functools.partial(pullback_graph, wrt=wrt, outputs=[k]), value[k])))  # fmt: skip
        return traced.out_tree.unflatten(leaves)

    def rows(
        self, bound: Bound, draws: Rewound, wrt: tuple[int, ...], k: int, key: Any,
        build: Callable[[Graph], Graph], like: Any,
    ) -> list[Any]:
        """d(output like `like`) / d(each wrt input), shapes output.shape + input.shape."""
        plan = bound.entry.derive(key, build)
        shape = tuple(like.shape)
        size = int(np.prod(shape, dtype=np.int64))
        stacked: list[list[Any]] = [[] for _ in wrt]
        for j in range(size):
            seed = basis(like, j)
            with draws.again():
                row = run_plan(plan, [*bound.inputs, seed])
            for column, grad_ in zip(stacked, row, strict=True):
                column.append(grad_)
        return [
            stack(column, bound.inputs[i], shape) for column, i in zip(stacked, wrt, strict=True)
        ]


def _hessian_rows(graph: Graph, wrt: tuple[int, ...], output: int, k: int) -> Graph:
    return pullback_graph(gradient_only(graph, wrt, output), wrt, [k])


def jacobian(
    fn: Callable[..., Any], argnums: Argnums = 0, *, numerics: Numerics | None = None
) -> Jacobian:
    """A function that returns d fn / d argument, of shape output.shape + argument.shape."""
    return Jacobian(fn, argnums, of_gradient=False, numerics=numerics)


def hessian(
    fn: Callable[..., Any], argnums: Argnums = 0, *, numerics: Numerics | None = None
) -> Jacobian:
    """A function that returns the Hessian of `fn`: the jacobian of its gradient."""
    return Jacobian(fn, argnums, of_gradient=True, numerics=numerics)
