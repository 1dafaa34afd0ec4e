"""Calls that are traced as other Python, because torch's own would lose what tracing needs.

`cosine_similarity` and `gaussian_nll_loss` clamp in place under no_grad, behind autograd's back;
`logcumsumexp` has a gradient without a gradient of its own;
`one_hot`, `tensor_split` and `torch.tensor` read values off tensors where tracing does not see it,
and `ctc_loss` writes lists to one.
Each replacement gives torch's values and torch's gradients.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch

from gradof.tracer.core.number import TracedNumber
from gradof.tracer.torch.foreach import loops
from gradof.tracer.torch.functional import is_wrapper

_torch_dropout = torch.nn.functional.dropout
OVERRIDES: dict[Any, Callable[..., Any]] = loops()


INDEXING = frozenset({torch.Tensor.__getitem__, torch.Tensor.__setitem__})


# Functions that take two plain numbers.
_OF_NUMBERS = frozenset({torch.add, torch.sub, torch.mul, torch.div, torch.true_divide,
                         torch.floor_divide, torch.remainder, torch.fmod})  # fmt: skip


def takes_numbers(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether a call computes a constant from plain numbers alone."""
    return func in _OF_NUMBERS and not any(
        isinstance(arg, (torch.Tensor, TracedNumber)) for arg in (*args, *kwargs.values())
    )


def with_stacked_index(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with one tensor for each sequence of them, whose memory torch would read."""
    x, index, *rest = args
    if isinstance(index, tuple):
        index = tuple(torch.stack([*i]) if _are_numbers(i) else i for i in index)
    return (x, index, *rest)


def _are_numbers(index: Any) -> bool:
    return (
        isinstance(index, (list, tuple)) and bool(index)
        and all(isinstance(i, torch.Tensor) and i.ndim == 0 for i in index)
    )  # fmt: skip


def _instead_of(*functions: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(replacement: Callable[..., Any]) -> Callable[..., Any]:
        OVERRIDES.update(dict.fromkeys(functions, replacement))
        return replacement

    return register


def _norm_at_least(x: torch.Tensor, dim: int, eps: float) -> torch.Tensor:
    # Below eps the value is eps, and the gradient still that of the norm.
    norm: torch.Tensor = torch.linalg.vector_norm(x, dim=dim, keepdim=True)
    return torch.where(norm < eps, norm - norm.detach() + eps, norm)


@_instead_of(torch.cosine_similarity, torch.nn.functional.cosine_similarity)
def _cosine_similarity(
    x1: torch.Tensor, x2: torch.Tensor, dim: int = 1, eps: float = 1e-8
) -> torch.Tensor:
    dtype = torch.promote_types(x1.dtype, x2.dtype)
    a: torch.Tensor
    b: torch.Tensor
    a, b = torch.broadcast_tensors(x1.to(dtype), x2.to(dtype))  # type: ignore[no-untyped-call]
    return ((a / _norm_at_least(a, dim, eps)) * (b / _norm_at_least(b, dim, eps))).sum(dim)


_SQUARE = 1024  # elements of which all pairs are looked at


@_instead_of(torch.logcumsumexp, torch.Tensor.logcumsumexp)
def _logcumsumexp(input: torch.Tensor, dim: int) -> torch.Tensor:
    # torch's gradient takes the logarithm of the cotangent, whose own gradient is nan at 0: by
    # pairs where a transform may ask for that.
    n = input.shape[dim] if input.dim() else 0
    if not 0 < n <= _SQUARE or not torch._C._functorch.is_functorch_wrapped_tensor(input):
        return torch.logcumsumexp(input, dim)
    later = torch.ones(n, n, dtype=torch.bool, device=input.device).triu(1)
    pairs = input.movedim(dim, -1).unsqueeze(-2).masked_fill(later, -math.inf)
    return torch.logsumexp(pairs, -1).movedim(-1, dim)


def cells_of(data: Any) -> list[Any]:
    """What is in lists and tuples of any depth."""
    if isinstance(data, (list, tuple)):
        return [cell for part in data for cell in cells_of(part)]
    return [data]


def _stacked(data: Any, dtype: torch.dtype) -> torch.Tensor:
    if isinstance(data, (list, tuple)):
        return torch.stack([_stacked(part, dtype) for part in data])
    if isinstance(data, torch.Tensor):
        return data.detach().to(dtype)
    return torch.scalar_tensor(data, dtype=dtype)


def _of_cells(function: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.tensor` and its like of lists with traced numbers in them, whose memory is not read.

    As in torch, the values have no history.
    """
    at = 1 if function is torch.Tensor.new_tensor else 0

    def made(*args: Any, **kwargs: Any) -> Any:
        # a tensor itself keeps its history in as_tensor and asarray
        is_list = len(args) == at + 1 and isinstance(args[at], (list, tuple))
        cells = cells_of(args[at]) if is_list else []
        tensors = [c for c in cells if isinstance(c, torch.Tensor)]
        device = kwargs.get("device")
        ours = any(map(is_wrapper, tensors)) and all(t.dim() == 0 and t.is_cpu for t in tensors)
        if not ours or set(kwargs) - {"dtype", "device"} or str(device) not in ("None", "cpu"):
            return function(*args, **kwargs)
        dtype = kwargs.get("dtype") or (args[0].dtype if at else _dtype_of(cells))
        return _stacked(args[at], dtype)

    return made


def _dtype_of(cells: list[Any]) -> torch.dtype:
    """That of the widest; a Python float is of the default one."""
    kinds = [c.dtype if isinstance(c, torch.Tensor) else torch.tensor(c).dtype for c in cells]
    return functools.reduce(torch.promote_types, kinds)


OVERRIDES.update({
    function: _of_cells(function)
    for function in (torch.tensor, torch.as_tensor, torch.asarray, torch.Tensor.new_tensor)
})  # fmt: skip


@_instead_of(torch.bernoulli)
def _bernoulli(
    input: torch.Tensor, p: float | None = None, *, generator: torch.Generator | None = None
) -> torch.Tensor:
    if p is None:
        return torch.ops.aten.bernoulli.default(input, generator=generator)  # type: ignore[no-any-return]
    # Unlike Tensor.bernoulli_, this draws in the order of the dims, however `input` lies.
    fresh = torch.empty_like(input, memory_format=torch.contiguous_format)
    return fresh.bernoulli_(p, generator=generator)


@_instead_of(torch._assert_async)
def _assert_async(input: torch.Tensor, assert_msg: str = "") -> None:
    if not bool(input):  # guarded: the trace holds where it is so
        raise RuntimeError(assert_msg or "Expected Tensor with single nonzero value, but got zero")


@_instead_of(torch.nn.functional.one_hot)
def _one_hot(tensor: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    if num_classes < 0:
        num_classes = int(tensor.max()) + 1  # guarded: the trace holds for as many classes
    zeros = tensor.new_zeros((*tensor.shape, num_classes), dtype=torch.int64)
    return zeros.scatter(-1, tensor.unsqueeze(-1), 1)  # which refuses what is no class


@_instead_of(torch.tensor_split, torch.Tensor.tensor_split)
def _tensor_split(input: torch.Tensor, indices_or_sections: Any, dim: int = 0) -> Any:
    # torch reads the places off the tensor's memory, which a traced tensor has not
    where = indices_or_sections
    if isinstance(where, torch.Tensor):
        where = int(where) if where.dim() == 0 else [int(i) for i in where]
    return torch.tensor_split(input, where, dim)


@_instead_of(torch.nn.functional.gaussian_nll_loss)
def _gaussian_nll_loss(
    input: torch.Tensor, target: torch.Tensor, var: torch.Tensor | float, full: bool = False,
    eps: float = 1e-6, reduction: str = "mean",
) -> torch.Tensor:  # fmt: skip
    spread = var if isinstance(var, torch.Tensor) else torch.full_like(input, var)
    if bool((spread < 0).any()):
        raise ValueError("var has negative entry/entries")
    if spread.shape != input.shape:
        if input.shape[:-1] == spread.shape:
            spread = spread.unsqueeze(-1)
        elif input.ndim != spread.ndim or 1 != sum(
            b for a, b in zip(input.shape, spread.shape, strict=True) if a != b
        ):
            raise ValueError("var is of incorrect size")
    # Below eps the value is eps, and the gradient still that of the variance.
    spread = torch.where(spread < eps, spread - spread.detach() + eps, spread)
    loss = 0.5 * (torch.log(spread) + (input - target) ** 2 / spread)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    if reduction == "none":
        return loss
    if reduction not in ("mean", "sum"):
        raise ValueError(reduction + " is not valid")
    return loss.mean() if reduction == "mean" else loss.sum()


_LINEAR_CROSS_ENTROPY = getattr(torch.nn.functional, "linear_cross_entropy", None)  # torch 2.12


@_instead_of(*filter(None, [_LINEAR_CROSS_ENTROPY]))
def _linear_cross_entropy(*args: torch.Tensor, options: Any = None, **kwargs: Any) -> torch.Tensor:
    # `options` ask to go through the batch in chunks, whose gradients torch computes beforehand
    # and cannot differentiate again. The loss is the same.
    assert _LINEAR_CROSS_ENTROPY is not None
    found: torch.Tensor = _LINEAR_CROSS_ENTROPY(*args, **kwargs)
    return found


@_instead_of(torch.nn.functional.dropout)
def _dropout(
    input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> torch.Tensor:
    if inplace or not training or not 0.0 < p < 1.0 or input.is_cuda:  # there it is native_dropout
        return _torch_dropout(input, p, training, inplace)
    # torch's own program, with its in-place division written out: half a second of imports less
    noise = torch.empty_like(input).bernoulli_(1 - p)
    return input * (noise / (1 - p))


def _with_lengths(function: Callable[..., Any]) -> Callable[..., Any]:
    """`ctc_loss` of lengths as lists, which torch writes to memory of its own for their mean."""

    @functools.wraps(function)
    def run(x: Any, targets: Any, *lengths: Any, **kwargs: Any) -> Any:
        lengths = tuple(torch.tensor(n) if isinstance(n, (list, tuple)) else n for n in lengths)
        kwargs = {
            k: torch.tensor(v) if isinstance(v, (list, tuple)) else v for k, v in kwargs.items()
        }
        return function(x, targets, *lengths, **kwargs)

    return run


for _function in (torch.ctc_loss, torch.nn.functional.ctc_loss):
    OVERRIDES[_function] = _with_lengths(_function)


def _of_ends(function: Callable[..., Any]) -> Callable[..., Any]:
    """`linspace` or `logspace`, which has no gradient of ends that are tensors.

    Of integers torch cuts the ends before it goes from one to the other.
    """

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        dtype = kwargs.get("dtype")
        cut = function is torch.linspace and dtype is not None and not (
            dtype.is_floating_point or dtype.is_complex
        )

        def plain(x: Any) -> Any:
            if isinstance(x, torch.Tensor):
                return x.detach().trunc() if cut and x.is_floating_point() else x.detach()
            return int(x) if cut and type(x) is float else x

        return function(*map(plain, args), **{k: plain(v) for k, v in kwargs.items()})

    return run


for _space in (torch.linspace, torch.logspace):
    OVERRIDES[_space] = _of_ends(_space)
