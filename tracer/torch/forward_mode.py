"""torch.func's forward mode inside a traced function: by the pullback of the pullback.

    jvp(f, (x,), (v,))        y, pull = vjp(f, x);  _, push = vjp(pull, 1);  y, push(v)
    jacfwd(f)(x)              that for each row of an identity, as torch does
    hessian(f)(x)             jacfwd(jacrev(f))(x)

`pull` maps a cotangent to a gradient and is linear, so that its own pullback maps a tangent to a
tangent, wherever it is taken: of what `pull` computes nothing is left in the graph but that
(https://j-towns.github.io/2017/06/12/A-new-trick.html). torch's dual tensors would not do: torch's
functionalization loses the tangents of views, and its formulas of norms take the mean for a
constant in a later gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._functorch import eager_transforms as _torchs
from torch.utils._pytree import tree_flatten, tree_unflatten

from gradof.errors import UnsupportedOpError
from gradof.tracer.state.source import user_loc

Tensor = torch.Tensor


def jvp_by_reverse(
    func: Callable[..., Any], primals: Any, tangents: Any, argnums: Any, *, strict: bool = False,
    has_aux: bool,
) -> Any:  # fmt: skip
    """In place of torch's `_jvp_with_argnums`, which jvp, jacfwd and hessian are made of.

    Its results, and its errors: RuntimeErrors for arguments that do not fit one another, and for
    results that are no tensors or, with `strict`, depend on no argument; ValueErrors for whole
    numbers. UnsupportedOpError for a complex tangent of a real number, or the other way round.
    """
    if not isinstance(primals, tuple):
        raise RuntimeError(
            f"{_torchs.jvp_str}: Expected primals to be a tuple. "
            "E.g. it should be valid to call f(*primals)."
        )
    chosen = primals if argnums is None else _torchs._slice_argnums(primals, argnums)
    _check_tangents(chosen, tangents)
    outputs = _Outputs(func, strict, has_aux)
    vjp: Any = _torchs._vjp_with_argnums
    made, pull, rest = vjp(outputs, *primals, argnums=argnums, has_aux=True)

    def pulled(cotangents: list[Tensor]) -> list[Tensor]:
        return tree_flatten(pull(cotangents))[0]

    # Any cotangent would do, but for rules of torch's that take its logarithm.
    _, push = vjp(pulled, [torch.ones_like(y) for y in made])
    (moved,) = push(tree_flatten(tangents)[0])
    moved = [v.contiguous() if y.is_contiguous() else v for y, v in zip(made, moved, strict=True)]
    return outputs.put_together(made, moved, *rest)


class _Outputs:
    """What `func` gives: those results that have tangents, and the rest."""

    def __init__(self, func: Callable[..., Any], strict: bool, has_aux: bool) -> None:
        self.func, self.strict, self.has_aux = func, strict, has_aux
        self.spec: Any = None
        self.moving: list[bool] = []

    def __call__(self, *args: Any) -> tuple[list[Tensor], tuple[list[Tensor], Any]]:
        made = self.func(*args)
        aux: Any = ()
        if self.has_aux:
            if not (isinstance(made, tuple) and len(made) == 2):
                raise RuntimeError(
                    f"{_torchs.jvp_str}: output of function f should be a tuple: (output, aux) "
                    "if has_aux is True"
                )
            made, aux = made
        flat, self.spec = tree_flatten(made)
        _torchs.assert_non_empty_tensor_output(flat, _torchs.jvp_str)
        if self.strict and not all(map(_depends, flat)):
            raise RuntimeError(
                "jvp(f, primals, tangents, strict=True): The output of f is independent of "
                "the inputs. This is not allowed with strict=True."
            )
        self.moving = [y.is_floating_point() or y.is_complex() for y in flat]
        parts = list(zip(flat, self.moving, strict=True))
        still = [y for y, moves in parts if not moves], aux
        # vjp wants a result; where none has a tangent, a number that nobody asks for
        return [y for y, moves in parts if moves] or [torch.zeros(())], still

    def put_together(
        self, made: list[Tensor], moved: list[Tensor], still: list[Tensor], aux: Any
    ) -> Any:
        """The results and their tangents, of the structure that `func` gave."""
        pairs, rest = iter(zip(made, moved, strict=True)), iter(still)
        both = [
            next(pairs) if moves else (y := next(rest), torch.zeros_like(y))
            for moves in self.moving
        ]
        results = [tree_unflatten([pair[i] for pair in both], self.spec) for i in (0, 1)]
        return (*results, aux) if self.has_aux else tuple(results)


def _depends(y: Tensor) -> bool:
    """Whether a result of the function that a transform runs depends on its arguments."""
    level = torch._C._functorch.peek_interpreter_stack().level()
    return y.requires_grad and torch._C._functorch.maybe_get_level(y) == level


def _check_tangents(primals: Any, tangents: Any) -> None:
    flat, spec = tree_flatten(primals)
    moved, tangents_spec = tree_flatten(tangents)
    if spec != tangents_spec:
        raise RuntimeError(
            f"{_torchs.jvp_str}: Expected primals and tangents to have the same python "
            "structure. For example, if primals is a tuple of 3 tensors, "
            f"tangents also must be. Got primals with structure {spec} "
            f"and tangents with structure {tangents_spec}"
        )
    _torchs.assert_non_empty_list_of_tensors(flat, _torchs.jvp_str, "primals")
    _torchs.assert_non_empty_list_of_tensors(moved, _torchs.jvp_str, "tangents")
    for primal, tangent in zip(flat, moved, strict=True):
        for what, tensor in (("primal", primal), ("tangent", tangent)):
            if not (tensor.is_floating_point() or tensor.is_complex()):
                raise ValueError(
                    f"Expected {what} to be floating point or complex, but got: {tensor.dtype}"
                )
        if primal.is_complex() != tangent.is_complex():
            raise UnsupportedOpError(
                f"a tangent of {tangent.dtype} for {primal.dtype}", loc=user_loc(),
                hint="give both the same dtype",
            )  # fmt: skip
        if primal.shape != tangent.shape:
            raise RuntimeError(
                "Trying to set a forward gradient that has a different size than that of the "
                f"original Tensor, this is not supported. Tensor is of size {list(primal.shape)} "
                f"while the given forward gradient is of size {list(tangent.shape)}."
            )


def standard_basis(
    tensors: Sequence[Tensor], numels: Sequence[int], chunk_size: int | None = None
) -> Iterator[tuple[Tensor, ...]]:
    """In place of torch's, which writes into zeros: rows of one identity matrix, `chunk_size` each.

    One tensor [rows, *shape] for each of `tensors`, whose sizes are `numels`.
    """
    count = sum(numels)
    step = chunk_size or max(count, 1)
    for first in range(0, max(count, 1), step):
        last = min(first + step, count)
        made, start = [], 0
        for tensor, n in zip(tensors, numels, strict=True):
            at = torch.arange(start, start + n, device=tensor.device)
            rows = torch.arange(first, last, device=tensor.device).unsqueeze(1) == at
            made.append(rows.to(tensor.dtype).reshape(last - first, *tensor.shape))
            start += n
        yield tuple(made)


def no_linearize(*_: Any, **__: Any) -> Any:
    """In place of what torch's linearize traces by, and nothing else does."""
    raise UnsupportedOpError(
        "torch.func.linearize inside a traced function", loc=user_loc(),
        hint="use torch.func.jvp: a trace computes once what several calls share",
    )
