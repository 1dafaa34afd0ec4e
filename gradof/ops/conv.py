"""Convolution in any number of dims, closed under differentiation.

Layouts are torch's: x [N, C, *space]; w [O, C/groups, *kernel], or transposed [C, O/groups,
*kernel]. With C(x, w) the convolution, T the transposed one and W the weight's gradient,

    <g, C(x, w)> = <T(g, w), x> = <W(x, g), w>

so each of the three has the other two for its rules, and any order of derivative stays within
`convolution` and `conv_weight_grad`. What stride leaves over at the end of a dim comes back as the
output padding of T. There is no bias: it is an addition.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from gradof.errors import InferenceError
from gradof.ir.attrs import Attr
from gradof.ir.types import TensorType, Type
from gradof.ops.expr import Expr, F, Like
from gradof.ops.families import int_tuple, known_shape, tensor
from gradof.ops.registry import Family, op

Array = NDArray[Any]
Ints = tuple[int, ...]

# --- sizes --------------------------------------------------------------------------------------


def conv_size(n: int, k: int, s: int, p: int, d: int) -> int:
    """Size of a convolution's result along one dim (negative or zero if the kernel is larger)."""
    return (n + 2 * p - d * (k - 1) - 1) // s + 1


def transposed_size(n: int, k: int, s: int, p: int, d: int) -> int:
    """Size of a transposed convolution's result along one dim, without output padding."""
    return (n - 1) * s - 2 * p + d * (k - 1) + 1


def _settings(attrs: Mapping[str, Attr], rank: int) -> tuple[Ints, Ints, Ints, int]:
    found = []
    for name, least in (("stride", 1), ("padding", 0), ("dilation", 1)):
        value = int_tuple(attrs[name], name)
        if len(value) != rank or any(v < least for v in value):
            raise InferenceError(f"{name} {value} of a convolution in {rank} dims")
        found.append(value)
    groups = attrs["groups"]
    if type(groups) is not int or groups < 1:
        raise InferenceError(f"groups must be a positive int, not {groups!r}")
    return found[0], found[1], found[2], groups


def _infer_convolution(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    x, w = tensor(inputs[0]), tensor(inputs[1], "the weight")
    if x.dtype != w.dtype or x.device != w.device or not x.dtype.is_float:
        raise InferenceError(f"a convolution of {x} with {w}; insert a cast")
    s, t = known_shape(x), known_shape(w)
    if len(s) < 3 or len(s) != len(t):
        raise InferenceError(f"a convolution of {x} with {w}: both need [_, _, *space]")
    stride, padding, dilation, groups = _settings(attrs, len(s) - 2)
    extra = int_tuple(attrs["output_padding"], "output_padding")
    if len(extra) != len(s) - 2:
        raise InferenceError(f"output_padding {extra} of a convolution in {len(s) - 2} dims")
    args = list(zip(s[2:], t[2:], stride, padding, dilation, strict=True))
    if attrs["transposed"]:
        channels, out = t[0], t[1] * groups
        space = tuple(transposed_size(*a) + e for a, e in zip(args, extra, strict=True))
        if any(not 0 <= e < max(a[2], a[4]) for a, e in zip(args, extra, strict=True)):
            raise InferenceError(f"output_padding {extra} must be less than stride or dilation")
    else:
        channels, out = t[1] * groups, t[0]
        space = tuple(conv_size(*a) for a in args)
    if s[1] != channels or t[0] % groups:
        raise InferenceError(f"{s[1]} channels and a weight {list(t)} in {groups} groups")
    if any(n < 1 for n in space):
        raise InferenceError(f"a kernel {list(t[2:])} larger than the padded input {list(s[2:])}")
    return (TensorType(x.dtype, (s[0], out, *space), x.device),)


def _infer_weight_grad(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    x, g = tensor(inputs[0]), tensor(inputs[1], "the gradient")
    s, t = known_shape(x), known_shape(g)
    if x.dtype != g.dtype or len(s) != len(t) or s[0] != t[0]:
        raise InferenceError(f"the weight's gradient of {x} with {g}")
    kernel = int_tuple(attrs["kernel"], "kernel")
    stride, padding, dilation, groups = _settings(attrs, len(s) - 2)
    args = zip(s[2:], kernel, stride, padding, dilation, strict=True)
    if s[1] % groups or t[1] % groups or t[2:] != tuple(conv_size(*a) for a in args):
        raise InferenceError(f"{g} is no gradient of a convolution of {x} with kernel {kernel}")
    return (TensorType(x.dtype, (t[1], s[1] // groups, *kernel), x.device),)


# --- numpy: columns of windows, then one matrix product per sample and group --------------------


def _columns(x: Array, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Array:
    """[N, C, *space] to windows [N, C, *kernel, *out], a view of the padded array."""
    rank = len(kernel)
    if any(padding):
        x = np.pad(x, ((0, 0), (0, 0), *((p, p) for p in padding)))
    reach = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True))
    windows = sliding_window_view(x, reach, axis=tuple(range(2, rank + 2)))
    picked = (
        slice(None), slice(None), *(slice(None, None, s) for s in stride),
        *(slice(None, None, d) for d in dilation),
    )  # fmt: skip
    order = (0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank))
    return windows[picked].transpose(order)


def _grouped(a: Array, groups: int, split: int) -> Array:
    """[N, C, *a, *b] to [N, groups, C/groups * a, b], where `b` are the dims from `split` on."""
    outer, inner = a.shape[1 : split], a.shape[split:]
    rows = int(np.prod(outer)) // groups
    return a.reshape(a.shape[0], groups, rows, int(np.prod(inner, dtype=np.int64)))


def _np_forward(x: Array, w: Array, stride: Ints, padding: Ints, dilation: Ints, groups: int
                ) -> Array:  # fmt: skip
    kernel = w.shape[2:]
    columns = _columns(x, kernel, stride, padding, dilation)
    space = columns.shape[2 + len(kernel) :]
    flat = _grouped(columns, groups, 2 + len(kernel))
    rows = w.reshape(groups, w.shape[0] // groups, -1)
    result: Array = np.matmul(rows, flat).reshape(x.shape[0], w.shape[0], *space)
    return result


def _np_transposed(
    x: Array, w: Array, stride: Ints, padding: Ints, dilation: Ints, extra: Ints, groups: int
) -> Array:
    kernel, space = w.shape[2:], x.shape[2:]
    n, out = x.shape[0], w.shape[1] * groups
    rows = w.reshape(groups, w.shape[0] // groups, -1).swapaxes(1, 2)
    parts = np.matmul(rows, _grouped(x, groups, 2)).reshape(n, out, *kernel, *space)
    # Room for every window, also where the result is cropped or has output padding.
    full = [
        (i - 1) * s + d * (k - 1) + 1 + e
        for i, k, s, d, e in zip(space, kernel, stride, dilation, extra, strict=True)
    ]
    result = np.zeros((n, out, *full), x.dtype)
    for offset in itertools.product(*map(range, kernel)):
        where = tuple(
            slice(o * d, o * d + i * s, s)
            for o, d, i, s in zip(offset, dilation, space, stride, strict=True)
        )
        result[(slice(None), slice(None), *where)] += parts[(slice(None), slice(None), *offset)]
    crop = tuple(slice(p, f - p) for p, f in zip(padding, full, strict=True))
    return result[(slice(None), slice(None), *crop)]


def _np_convolution(
    x: Array, w: Array, *, stride: Ints, padding: Ints, dilation: Ints, transposed: bool,
    output_padding: Ints, groups: int,
) -> Array:  # fmt: skip
    if transposed:
        return _np_transposed(x, w, stride, padding, dilation, output_padding, groups)
    return _np_forward(x, w, stride, padding, dilation, groups)


def _np_weight_grad(
    x: Array, g: Array, *, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Array:
    columns = _grouped(_columns(x, kernel, stride, padding, dilation), groups, 2 + len(kernel))
    products = np.matmul(_grouped(g, groups, 2), columns.swapaxes(2, 3))
    total: Array = products.sum(axis=0, dtype=x.dtype)
    return total.reshape(g.shape[1], x.shape[1] // groups, *kernel)


# --- rules --------------------------------------------------------------------------------------


def _adjoint(
    g: Expr, w: Expr, space: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Expr:
    """T(g, w) of the spatial size `space`: the gradient of C(x, w) by an x of that size."""
    args = zip(space, g.shape[2:], w.shape[2:], stride, padding, dilation, strict=True)
    extra = tuple(n - transposed_size(m, k, s, p, d) for n, m, k, s, p, d in args)
    return F.convolution(
        g, w, stride=stride, padding=padding, dilation=dilation, transposed=True,
        output_padding=extra, groups=groups,
    )  # fmt: skip


def _forward(
    x: Expr, w: Expr, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Expr:
    return F.convolution(
        x, w, stride=stride, padding=padding, dilation=dilation, transposed=False,
        output_padding=(0,) * len(stride), groups=groups,
    )  # fmt: skip


def _convolution_x(
    g: Expr, x_like: Like, w: Expr, stride: Ints, padding: Ints, dilation: Ints,
    transposed: bool, groups: int,
) -> Expr:  # fmt: skip
    if 0 in x_like.shape:  # a kernel may be larger than what it is shared over
        return x_like.zeros()
    if not transposed:
        return _adjoint(g, w, x_like.shape[2:], stride, padding, dilation, groups)
    grad = _forward(g, w, stride, padding, dilation, groups)
    # Output padding of a stride or more (it may reach the dilation) makes windows of its own.
    for dim in range(2, grad.rank):
        n = x_like.shape[dim]
        if grad.shape[dim] != n:
            grad = F.slice(grad, dim=dim, start=0, stop=n, step=1)
    return grad


def _convolution_w(
    g: Expr, x: Expr, w_like: Like, stride: Ints, padding: Ints, dilation: Ints,
    transposed: bool, groups: int,
) -> Expr:  # fmt: skip
    kernel = w_like.shape[2:]
    settings = {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}
    if not transposed:
        return F.conv_weight_grad(x, g, **settings, groups=groups)
    if 0 in x.shape:
        return w_like.zeros()
    args = zip(g.shape[2:], kernel, stride, padding, dilation, strict=True)
    space = tuple(conv_size(*a) for a in args)
    if space != x.shape[2:]:
        pads = tuple((0, n - m) for n, m in zip(space, x.shape[2:], strict=True))
        x = F.pad(x, pads=((0, 0), (0, 0), *pads), value=0.0)
    return F.conv_weight_grad(g, x, **settings, groups=groups)


def _weight_grad_x(
    g: Expr, x_like: Like, g_out: Expr, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Expr:
    if 0 in x_like.shape:
        return x_like.zeros()
    return _adjoint(g_out, g, x_like.shape[2:], stride, padding, dilation, groups)


def _weight_grad_g(
    g: Expr, x: Expr, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Expr:
    return _forward(x, g, stride, padding, dilation, groups)


op("convolution(x, w; stride, padding, dilation, transposed, output_padding, groups) -> y",
   family=Family(_infer_convolution), numpy=_np_convolution, traits={"linear"},
   torch="torch.ops.aten.convolution({x}, {w}, None, {stride}, {padding}, {dilation}, "
         "{transposed}, {output_padding}, {groups})",
   vjp={"x": _convolution_x, "w": _convolution_w})

op("conv_weight_grad(x, g_out; kernel, stride, padding, dilation, groups) -> y",
   family=Family(_infer_weight_grad), numpy=_np_weight_grad, traits={"linear"},
   torch="torch.ops.aten.convolution_backward({g_out}, {x}, {x}.new_empty(({g_out}.shape[1], "
         "{x}.shape[1] // {groups}, *{kernel})), None, {stride}, {padding}, {dilation}, False, "
         "[0] * len({kernel}), {groups}, (False, True, False))[1]",
   vjp={"x": _weight_grad_x, "g_out": _weight_grad_g},
   doc="The gradient of convolution(x, w) by w, given the gradient of its result.")
