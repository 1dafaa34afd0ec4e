"""Results of a trace that nobody has read: their memory is there, their elements are not computed.

    deferred.call(aten.exp.default, (x,), {})       # a tensor of exp(x)'s type, not filled
    deferred.settle((y,))                           # fill what y is, or is a view of

Why, and when they are computed after all, is told in `gradof.tracer.core.deferred`.

Only ops wait that raise for no elements of their operands (an index may be out of range, a division
of integers be by zero), and only draws from torch's own generator: they are made in order, so that
a number that is read off a random tensor is the one that the compiled function draws.

Note [Types of what waits]
Operands are contiguous, and then results are. Their shapes are computed here. Their dtypes are
those of the same call of operands whose axes have one element each, but for draws, which have that
of their operand: not even one number may be drawn. (torch's meta device would tell
both, but takes a second to load its programs, and then longer than a small op.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from gradof import tuning
from gradof.tracer.core.deferred import Call, Waiting
from gradof.tracer.torch.deferred_layers import TYPES

Shape = tuple[int, ...]

_ATEN = torch.ops.aten


class Deferred(Waiting):
    """The calls of one trace that wait, by the storage of each result."""

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The op's result or results, now or later; its own exception where it raises one."""
        draws = torch.Tag.nondeterministic_seeded in func.tags
        if not func._schema.is_mutable:
            if func in _TYPES_ONLY:
                return func(*args, **kwargs)
            if func.is_view:
                return self._view(func, args, kwargs)
            if self._may_wait(func, args, kwargs, draws):
                result = self._later(func, args, kwargs)
                if result is not None:
                    return result
        else:
            self.settle_readers(*_tensors((args, kwargs)))
        self.settle(args, kwargs)
        if draws:
            self.settle_draws()
        if func is _ATEN.bernoulli.p and not args[0].is_contiguous():
            # what it stands for, `bernoulli_` of such a tensor, fills memory in its order
            return torch.empty_like(args[0]).bernoulli_(*args[1:], **kwargs)
        return func(*args, **kwargs)

    def _view(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A view, or a copy where torch has no view: `to`, `reshape`."""
        result = func(*args, **kwargs)
        waiting = {_memory(t) for t in _tensors((args, kwargs)) if self.waits(t)}
        if waiting and not all(_memory(t) in waiting for t in _tensors(result)):
            self.settle(args, kwargs)
            return func(*args, **kwargs)
        return result

    def settle(self, *trees: Any) -> None:
        """Compute the elements of every tensor in arguments."""
        if self._waiting:
            for tensor in _tensors(trees):
                self.fill(_memory(tensor))

    def settle_readers(self, *tensors: torch.Tensor) -> None:
        """Compute what waits for the elements of tensors that are about to be given other ones."""
        if self._waiting:
            for tensor in tensors:
                self.fill_readers(_memory(tensor))

    def settle_draws(self) -> None:
        """Make the draws that wait, before the generator is used or asked for its state."""
        for memory, call in list(self._waiting.items()):
            if call.function in _DRAWS:
                self.fill(memory)

    def _may_wait(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], draws: bool
    ) -> bool:
        known = func in _SHAPES or func in TYPES
        if not known and (draws or torch.Tag.pointwise not in func.tags):
            return False
        tensors = list(_tensors((args, kwargs)))
        if func.namespace != "aten" or not all(map(_is_plain, tensors)):
            return False
        return any(t.numel() >= tuning.DEFERRED_CELLS or self.waits(t) for t in tensors)

    def _later(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Results without elements; None where the call is wrong, or its results not known."""
        if func in TYPES:
            types = TYPES[func](*args, **kwargs)
            if types is None:
                return None
            results = [torch.empty(shape, dtype=dtype) for shape, dtype in types]
            return self._wait(Call(func, args, kwargs, results), len(results) == 1)
        try:
            shapes = _SHAPES.get(func, _broadcast)(*args, **kwargs)
            like = _small_result(func, args, kwargs) if shapes else None
        except (RuntimeError, ValueError, TypeError, IndexError):
            return None  # the op itself says what is wrong
        if shapes is None:
            return None
        kinds = [like] if isinstance(like, torch.Tensor) else list(like or ())
        if len(shapes) == 1:
            shapes = shapes * len(kinds)
        made = [torch.empty(s, dtype=t.dtype) for s, t in zip(shapes, kinds, strict=True)]
        return self._wait(Call(func, args, kwargs, made), isinstance(like, torch.Tensor))

    def _wait(self, call: Call, one: bool) -> Any:
        self.add(call)
        return call.results[0] if one else tuple(call.results)

    def key(self, array: torch.Tensor) -> int:
        """The storage."""
        return _memory(array)

    def operands(self, call: Call) -> Iterator[torch.Tensor]:
        """Every tensor among the arguments."""
        return _tensors((call.args, call.kwargs))

    def run(self, call: Call) -> None:
        """Run the op, and copy what it gives to where it is to be."""
        out = call.function(*call.args, **call.kwargs)
        values = [out] if isinstance(out, torch.Tensor) else out
        for result, value in zip(call.results, values, strict=True):
            result.copy_(value)

    def before(self, call: Call) -> list[int]:
        """Earlier draws: they are made in the order of the trace."""
        earlier: list[int] = []
        if call.function in _DRAWS:
            for memory, other in self._waiting.items():
                if other is call:
                    break
                if other.function in _DRAWS:
                    earlier.append(memory)
        return earlier[::-1]


# --- types ---------------------------------------------------------------------------------------


def _broadcast(*args: Any, **kwargs: Any) -> list[Shape]:
    """Of a pointwise op: every result has this shape."""
    shapes = [t.shape for t in _tensors((args, kwargs))]
    return [np.broadcast_shapes(*shapes)]


def _same(x: torch.Tensor, *args: Any, **kwargs: Any) -> list[Shape] | None:
    return None if kwargs.get("memory_format") is not None else [tuple(x.shape)]


def _copy(x: torch.Tensor, **kwargs: Any) -> list[Shape] | None:
    told = {name for name, value in kwargs.items() if value not in (None, False)}
    return [tuple(x.shape)] if told <= {"dtype"} else None


def _total(x: torch.Tensor, **kwargs: Any) -> list[Shape]:
    return [()]


def _reduced(
    x: torch.Tensor, dims: Sequence[int] | None = None, keepdim: bool = False, **kwargs: Any
) -> list[Shape]:
    given = dims if dims else range(x.dim())
    axes = {d % x.dim() if x.dim() else 0 for d in given}
    kept = [1 if i in axes else n for i, n in enumerate(x.shape) if keepdim or i not in axes]
    return [tuple(kept)]


def _layer_norm(x: torch.Tensor, shape: Sequence[int], *rest: Any) -> list[Shape] | None:
    first = x.dim() - len(shape)
    if tuple(x.shape[first:]) != tuple(shape) or not all(
        p is None or tuple(p.shape) == tuple(shape) for p in rest[:2]
    ):
        return None
    rows = (*x.shape[:first], *[1] * len(shape))
    return [tuple(x.shape), rows, rows]


def _mm(a: torch.Tensor, b: torch.Tensor) -> list[Shape] | None:
    fits = a.shape[-1] == b.shape[-2] and a.shape[:-2] == b.shape[:-2]
    return [(*a.shape[:-1], b.shape[-1])] if fits else None


def _addmm(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, **kwargs: Any) -> list[Shape] | None:
    found = _mm(a, b)
    fits = found is not None and np.broadcast_shapes(tuple(c.shape), found[0]) == found[0]
    return found if fits else None


def _unsafe_view(x: torch.Tensor, shape: Sequence[int]) -> list[Shape] | None:
    return [tuple(shape)] if min(shape, default=0) >= 0 and math.prod(shape) == x.numel() else None


_REDUCTIONS = (_ATEN.sum.dim_IntList, _ATEN.mean.dim, _ATEN.amax.default, _ATEN.amin.default)
# Ops beside the pointwise ones → the shapes of their results, None where they are not known.
_SHAPES: dict[Any, Callable[..., list[Shape] | None]] = {
    **dict.fromkeys((_ATEN.sum.default, _ATEN.mean.default), _total),
    **dict.fromkeys(_REDUCTIONS, _reduced),
    **dict.fromkeys((_ATEN.mm.default, _ATEN.bmm.default), _mm),
    _ATEN.addmm.default: _addmm,
    _ATEN._softmax.default: _same,
    _ATEN._log_softmax.default: _same,
    _ATEN.bernoulli.p: _same,
    _ATEN.rand_like.default: _copy,
    _ATEN.randn_like.default: _copy,
    _ATEN.clone.default: _same,
    _ATEN._to_copy.default: _copy,
    _ATEN.native_layer_norm.default: _layer_norm,
    _ATEN._unsafe_view.default: _unsafe_view,
}
_DRAWS = frozenset({_ATEN.bernoulli.p, _ATEN.rand_like.default, _ATEN.randn_like.default})
# Ops that ask their operands for a type only.
_TYPES_ONLY = frozenset(
    {
        _ATEN.empty_like.default, _ATEN.zeros_like.default, _ATEN.ones_like.default,
        _ATEN.full_like.default, _ATEN.new_empty.default, _ATEN.new_zeros.default,
        _ATEN.new_ones.default, _ATEN.new_full.default,
    }
)  # fmt: skip


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether it has floats or truth values, one after another in the memory of the CPU."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.device.type == "cpu"
        and (tensor.dtype.is_floating_point or tensor.dtype is torch.bool)
        and tensor.is_contiguous()
        and tensor.numel() > 0  # a maximum of none is an error
        and not tensor.is_neg()
    )


_WITH_SHAPES = frozenset({_ATEN.native_layer_norm.default, _ATEN._unsafe_view.default})


def _small_result(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A result, or results, of the dtypes; see Note [Types of what waits]."""
    if func in _DRAWS:
        return torch.empty((), dtype=kwargs.get("dtype") or args[0].dtype)
    small = {name: _tiny(func, a) for name, a in kwargs.items()}
    return func(*(_tiny(func, a) for a in args), **small)


def _tiny(func: Any, tree: Any) -> Any:
    """The arguments with one element along each axis.

    Tensors of no axes stay: a number that torch has wrapped takes part in promotion as a number.
    """
    if isinstance(tree, torch.Tensor):
        return torch.ones((1,) * tree.dim(), dtype=tree.dtype) if tree.dim() else tree
    if isinstance(tree, (list, tuple)):
        if func in _WITH_SHAPES and all(type(n) is int for n in tree):
            return [1] * len(tree)
        return [_tiny(func, a) for a in tree]
    return tree


def _tensors(tree: Any) -> Iterator[torch.Tensor]:
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, (list, tuple)):
        for item in tree:
            yield from _tensors(item)
    elif isinstance(tree, dict):
        yield from _tensors(list(tree.values()))


def _memory(tensor: torch.Tensor) -> int:
    """Which storage a tensor lives in; views share it."""
    address: int = tensor.untyped_storage()._cdata
    return address
