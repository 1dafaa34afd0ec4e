"""Tensors without dims in ops along a dim: torch takes them as rows of one element.

    torch.sort(x, 0) of a 0-d x     →     torch.sort(x.reshape(1), 0), reshaped to ()

The ops themselves then need not know. An index without elements may be of any integer dtype.

Rows are also what most ops give, however their operands are laid out; a program in place of an op
may leave its result as they are: `laid_out_as` makes rows of it, or what the op gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from gradof.tracer.state.source import user_loc
from gradof.tracer.torch.recorder import Recorder

_ATEN = torch.ops.aten
# op -> positions of the operands that are rows
_ALONG_DIM: dict[Any, tuple[int, ...]] = {
    _ATEN.sort.default: (0,), _ATEN.sort.stable: (0,), _ATEN.topk.default: (0,),
    _ATEN.kthvalue.default: (0,), _ATEN.median.dim: (0,), _ATEN.nanmedian.dim: (0,),
    _ATEN.mode.default: (0,), _ATEN.cummax.default: (0,), _ATEN.cummin.default: (0,),
    _ATEN.cumprod.default: (0,), _ATEN.cumsum.default: (0,), _ATEN.logcumsumexp.default: (0,),
    _ATEN.gather.default: (0, 2), _ATEN.scatter.src: (0, 2, 3), _ATEN.scatter.value: (0, 2),
    _ATEN.scatter.reduce: (0, 2, 3), _ATEN.scatter.value_reduce: (0, 2),
    _ATEN.scatter_add.default: (0, 2, 3), _ATEN.scatter_reduce.two: (0, 2, 3),
    _ATEN.index_add.default: (0, 2, 3), _ATEN.index_copy.default: (0, 2, 3),
    _ATEN.index_fill.int_Scalar: (0, 2), _ATEN.index_fill.int_Tensor: (0, 2),
    _ATEN.index_reduce.default: (0, 2, 3), _ATEN.index_select.default: (0, 2),
}  # fmt: skip


def needs_rows(func: Any, args: tuple[Any, ...]) -> bool:
    """Whether the call has an operand that should be a row, or an index to be made int64."""
    places = _ALONG_DIM.get(func, ())
    if any(i < len(args) and args[i].dim() == 0 for i in places):
        return True
    return len(places) > 1 and args[2].dtype != torch.int64 and args[2].numel() == 0


def on_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The same call on rows; results in the shapes the op itself gives."""
    with torch.utils._python_dispatch._disable_current_modes():
        want = func(*args, **kwargs)
    if func is _ATEN.gather.default and args[2].numel() == 0:  # of any shape
        return args[0].reshape(-1)[:0].reshape(want.shape)
    given = list(args)
    places = _ALONG_DIM[func]
    for i in places:
        if i < len(given) and given[i].dim() == 0:
            given[i] = given[i].reshape(1)
    if len(places) > 1 and given[2].dtype != torch.int64:
        given[2] = given[2].to(torch.int64)
    found = func(*given, **kwargs)
    return pytree.tree_map(lambda t, w: t.reshape(w.shape), found, want)


def laid_out_as(found: Any, want: Any, given: Sequence[Any], recorder: Recorder) -> Any:
    """Results of a program, laid out as those of the op itself, `want`, if it has run.

    Rows are copied into rows. Where the op gives another order of dims (that of its operand, of
    images by channels, say), its own result stands for the program's.
    """
    if want is None:
        return found
    ours, tree = pytree.tree_flatten(found)
    theirs = pytree.tree_leaves(want)
    if len(ours) != len(theirs):
        return found
    memory = {t.untyped_storage()._cdata for t in pytree.tree_leaves(given)
              if isinstance(t, torch.Tensor)}  # fmt: skip

    def laid_out(found: Any, want: Any) -> Any:
        if not isinstance(found, torch.Tensor) or not isinstance(want, torch.Tensor):
            return found
        if found.stride() == want.stride() or found.dim() < 2 or not found.numel():
            return found
        if want.is_contiguous():
            if found.is_contiguous():
                return found
            return _ATEN.clone.default(found, memory_format=torch.contiguous_format)
        if is_dense(want) and want.untyped_storage()._cdata not in memory:
            recorder.bind(want, recorder.value(found, user_loc()))
            return want
        return found

    return pytree.tree_unflatten([laid_out(a, b) for a, b in zip(ours, theirs, strict=True)], tree)


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether a tensor fills its memory, in some order of its dims."""
    step = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != step:
            return False
        step *= size
    return True
