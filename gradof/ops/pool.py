"""Pooling over the trailing dims of x; leading dims are samples and channels.

max pooling returns values and the flat index of each in its plane, as torch does; the gradient is
scattered to those indices, so at a tie the first maximum takes it all. Average pooling is a
windowed sum, whose adjoint spreads a value over its window, divided by the size of the window.

>>> y, where = F.max_pool2d_with_indices.multiple(x, kernel=(2, 2), stride=(2, 2),
...     padding=(0, 0), dilation=(1, 1), ceil_mode=False)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from gradof.errors import InferenceError
from gradof.ir.attrs import Attr, Dense, to_numpy_dtype
from gradof.ir.types import BF16, F16, F32, I64, Type
from gradof.ops.expr import Expr, F, Like
from gradof.ops.families import NUMBERS, composite, int_tuple, known_shape, tensor
from gradof.ops.registry import Family, op

Array = NDArray[Any]
Ints = tuple[int, ...]


def pooled_size(n: int, k: int, s: int, p: int, d: int, ceil_mode: bool) -> int:
    """Size of a pooled dim; in ceil mode the last window must start in the input or before it."""
    reach = n + 2 * p - d * (k - 1) - 1
    if not ceil_mode:
        return reach // s + 1
    size = -(-reach // s) + 1
    return size - 1 if (size - 1) * s >= n + p else size


def _window(attrs: Mapping[str, Attr], names: Sequence[str], rank: int) -> list[Ints]:
    found = []
    for name in names:
        value = int_tuple(attrs[name], name)
        if len(value) != rank or any(v < (0 if name == "padding" else 1) for v in value):
            raise InferenceError(f"{name} {value} of a pooling over {rank} dims")
        found.append(value)
    if any(2 * p > k for k, p in zip(found[0], found[2], strict=True)):
        raise InferenceError(f"padding {found[2]} is more than half of the kernel {found[0]}")
    return found


def _sizes(space: Ints, settings: Sequence[Ints], ceil_mode: bool) -> Ints:
    result = tuple(
        pooled_size(n, k, s, p, d, ceil_mode)
        for n, k, s, p, d in zip(space, *settings, strict=True)
    )
    if any(n < 1 for n in result) or 0 in space:
        raise InferenceError(f"a kernel {settings[0]} larger than the padded input {list(space)}")
    return result


# --- max ----------------------------------------------------------------------------------------


def _infer_max_pool(rank: int) -> Callable[..., tuple[Type, ...]]:
    def infer(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
        x = tensor(inputs[0])
        shape = known_shape(x)
        if x.dtype.kind not in NUMBERS:
            raise InferenceError(f"pooling has no maximum of {x}")
        if len(shape) <= rank:
            raise InferenceError(f"pooling over {rank} dims needs a channel dim before them")
        settings = _window(attrs, ("kernel", "stride", "padding", "dilation"), rank)
        out = _sizes(shape[-rank:], settings, bool(attrs["ceil_mode"]))
        for n, m, (k, s, p, d) in zip(
            shape[-rank:], out, zip(*settings, strict=True), strict=True
        ):
            if not all(any(0 <= i * s - p + o * d < n for o in range(k)) for i in range(m)):
                # eager writes out of bounds here
                raise InferenceError(
                    f"a window of size {k}, dilated by {d}, sees only padding in a dim of size {n}"
                )
        y = x.with_shape((*shape[:-rank], *out))
        return (y, y.with_dtype(I64))

    return infer


def _np_max_pool(
    x: Array, *, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool
) -> tuple[Array, Array]:
    rank, lead = len(kernel), x.ndim - len(kernel)
    space = x.shape[lead:]
    out = _sizes(space, (kernel, stride, padding, dilation), ceil_mode)
    reach = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True))
    pads = [(0, 0)] * lead + [
        (p, max(0, (m - 1) * s + r - n - p))
        for n, m, s, r, p in zip(space, out, stride, reach, padding, strict=True)
    ]
    least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    padded = np.pad(x, pads, constant_values=least)
    windows = sliding_window_view(padded, reach, axis=tuple(range(lead, x.ndim)))
    steps = (
        *(slice(None),) * lead,
        *(slice(0, (m - 1) * s + 1, s) for m, s in zip(out, stride, strict=True)),
        *(slice(None, None, d) for d in dilation),
    )
    flat = windows[steps].reshape(*x.shape[:lead], *out, _product(kernel))
    best = np.argmax(flat, axis=-1)  # nan counts as the largest, for torch as for argmax
    values = np.take_along_axis(flat, best[..., None], axis=-1)[..., 0]
    # In a window of -inf alone the first maximum may be padding, which has no index.
    dead = values == least
    index: Array = np.zeros(best.shape, np.int64)
    for i, offset in enumerate(np.unravel_index(best, kernel)):
        start = (np.arange(out[i]) * stride[i] - padding[i]).reshape((-1,) + (1,) * (rank - 1 - i))
        inside = -(np.minimum(start, 0) // dilation[i])
        index = index * space[i] + start + np.where(dead, inside, offset) * dilation[i]
    return values, index


def scatter_to_maxima(g: Expr, x_like: Like, indices: Expr, rank: int) -> Expr:
    """The gradient of a pooling over the last `rank` dims, by each maximum's index in its plane."""
    return F.scatter_maxima(g, indices, space=x_like.shape[x_like.rank - rank :])


def _infer_scatter(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    g, indices, space = (tensor(inputs[0]), tensor(inputs[1], "the indices"),
                         int_tuple(attrs["space"], "space"))
    shape = known_shape(g)
    if shape != known_shape(indices) or indices.dtype != I64 or len(shape) <= len(space):
        raise InferenceError(f"{g} has no places {indices} in planes {list(space)}")
    return (g.with_shape((*shape[: len(shape) - len(space)], *space)),)


def _infer_take(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    x, indices = tensor(inputs[0]), tensor(inputs[1], "the indices")
    rank = attrs["rank"]
    shape, places = known_shape(x), known_shape(indices)
    if type(rank) is not int or len(shape) <= rank or shape[:-rank] != places[:-rank]:
        raise InferenceError(f"{x} has no planes of {rank} dims with places {indices}")
    return (x.with_shape(places),)


def _np_scatter_maxima(g: Array, indices: Array, *, space: Ints) -> Array:
    lead = g.shape[: g.ndim - len(space)]
    count, plane = _product(lead), _product(space)
    base = np.arange(count, dtype=np.int64)[:, None] * plane
    result = np.zeros(count * plane, g.dtype)
    places = indices.reshape(count, _product(indices.shape[len(lead) :]))  # of none, -1 is no size
    np.add.at(result, (places + base).ravel(), g.ravel())
    return result.reshape(*lead, *space)


def _np_take_maxima(x: Array, indices: Array, *, rank: int) -> Array:
    first = x.ndim - rank
    lead, plane, taken = map(_product, (x.shape[:first], x.shape[first:], indices.shape[first:]))
    flat = np.take_along_axis(x.reshape(lead, plane), indices.reshape(lead, taken), axis=1)
    return flat.reshape(indices.shape)


op("scatter_maxima(g, indices; space) -> y", family=Family(_infer_scatter),
   numpy=_np_scatter_maxima,
   vjp={"g": lambda g, indices, space: F.take_maxima(g, indices, rank=len(space)),
        "indices": None},
   doc="Each value added to its place, a flat index in a plane of the dims `space`.")
op("take_maxima(x, indices; rank) -> y", family=Family(_infer_take), numpy=_np_take_maxima,
   traits={"selects"},
   torch="{x}.flatten(-{rank}).gather(-1, {indices}.flatten(-{rank})).reshape({indices}.shape)",
   vjp={"x": lambda g, x_like, indices, rank: F.scatter_maxima(
       g, indices, space=x_like.shape[x_like.rank - rank :]), "indices": None},
   doc="What is at each place, a flat index in a plane of the last `rank` dims.")


def _max_pool_vjp(g_values: Expr, x_like: Like, indices: Expr, kernel: Ints) -> Expr:
    return scatter_to_maxima(g_values, x_like, indices, len(kernel))


def _product(sizes: Ints) -> int:
    n = 1
    for s in sizes:
        n *= s
    return n


for _rank in (2, 3):
    op(f"max_pool{_rank}d_with_indices(x; kernel, stride, padding, dilation, ceil_mode)"
       " -> values, indices",
       family=Family(_infer_max_pool(_rank)), numpy=_np_max_pool, vjp={"x": _max_pool_vjp},
       traits={"selects"},
       torch=f"torch.ops.aten.max_pool{_rank}d_with_indices({{x}}, {{kernel}}, {{stride}}, "
             "{padding}, {dilation}, {ceil_mode})",
       doc="Maxima of windows, and their flat indices within the plane.")


def _max_pool1d(
    x: Expr, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool
) -> tuple[Expr, Expr]:
    plane = x.reshape((*x.shape[:-1], 1, x.shape[-1]))
    y, where = F.max_pool2d_with_indices.multiple(
        plane, kernel=(1, *kernel), stride=(1, *stride), padding=(0, *padding),
        dilation=(1, *dilation), ceil_mode=ceil_mode,
    )  # fmt: skip
    shape = (*y.shape[:-2], y.shape[-1])
    return y.reshape(shape), where.reshape(shape)


op("max_pool1d_with_indices(x; kernel, stride, padding, dilation, ceil_mode) -> values, indices",
   family=composite(_max_pool1d), expand=_max_pool1d)

# --- average ------------------------------------------------------------------------------------


def _windows(kernel: Ints, stride: Ints, out: Ints) -> Iterator[Any]:
    """For each place in the kernel, the slice of the padded array that it sees."""
    for offset in itertools.product(*map(range, kernel)):
        steps = zip(offset, out, stride, strict=True)
        yield (..., *(slice(o, o + (m - 1) * s + 1, s) for o, m, s in steps))


def _infer_window_sum(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    x = tensor(inputs[0])
    shape, kernel = known_shape(x), int_tuple(attrs["kernel"], "kernel")
    stride, out = int_tuple(attrs["stride"], "stride"), int_tuple(attrs["out"], "out")
    rank = len(kernel)
    fits = all(
        (m - 1) * s + k <= n
        for m, s, k, n in zip(out, stride, kernel, shape[-rank:], strict=True)
    )
    if not fits:
        raise InferenceError(f"{out} windows {kernel} by {stride} do not fit {list(shape)}")
    return (x.with_shape((*shape[:-rank], *out)),)


def _infer_window_spread(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    x, kernel = tensor(inputs[0]), int_tuple(attrs["kernel"], "kernel")
    rank, space = len(kernel), int_tuple(attrs["space"], "space")
    shape = known_shape(x)
    wide = x.with_shape((*shape[:-rank], *space))
    _infer_window_sum([wide], {**attrs, "out": shape[-rank:]})
    return (wide,)


def _np_window_sum(x: Array, *, kernel: Ints, stride: Ints, out: Ints) -> Array:
    result = np.zeros((*x.shape[: -len(kernel)], *out), x.dtype)
    for where in _windows(kernel, stride, out):
        result += x[where]
    return result


def _np_window_spread(x: Array, *, kernel: Ints, stride: Ints, space: Ints) -> Array:
    rank = len(kernel)
    result = np.zeros((*x.shape[:-rank], *space), x.dtype)
    for where in _windows(kernel, stride, x.shape[-rank:]):
        result[where] += x
    return result


op("window_sum(x; kernel, stride, out) -> y", family=Family(_infer_window_sum),
   numpy=_np_window_sum, traits={"linear"},
   vjp={"x": lambda g, x_like, kernel, stride: F.window_spread(
       g, kernel=kernel, stride=stride, space=x_like.shape[-len(kernel):])},
   doc="Sums over windows of the trailing dims; `out` is the number of windows per dim.")
op("window_spread(x; kernel, stride, space) -> y", family=Family(_infer_window_spread),
   numpy=_np_window_spread, traits={"linear"},
   vjp={"x": lambda g, x_like, kernel, stride: F.window_sum(
       g, kernel=kernel, stride=stride, out=x_like.shape[-len(kernel):])},
   doc="Each value added to all of its window: the adjoint of window_sum.")


def _avg_pool(
    x: Expr, kernel: Ints, stride: Ints, padding: Ints, ceil_mode: bool,
    count_include_pad: bool, divisor_override: int | None,
) -> Expr:  # fmt: skip
    rank = len(kernel)
    attrs: dict[str, Attr] = {"kernel": kernel, "stride": stride, "padding": padding}
    _window(attrs, ("kernel", "stride", "padding"), rank)
    space, ones = x.shape[-rank:], (1,) * rank
    out = _sizes(space, (kernel, stride, padding, ones), ceil_mode)
    last = [(m - 1) * s + k for m, s, k in zip(out, stride, kernel, strict=True)]
    pads = [(p, max(0, e - n - p)) for e, n, p in zip(last, space, padding, strict=True)]
    padded = F.pad(x, pads=((0, 0),) * (x.rank - rank) + tuple(pads), value=0.0) if any(
        map(any, pads)) else x  # fmt: skip
    total = F.window_sum(padded, kernel=kernel, stride=stride, out=out)
    if divisor_override is not None:
        return total / float(divisor_override)
    counts = _counts(space, kernel, stride, padding, out, count_include_pad)
    if (counts == counts.flat[0]).all():
        return total / float(counts.flat[0])
    if x.dtype in (F16, BF16):  # rounded once, as in torch
        wide = F.window_sum(padded.cast(F32), kernel=kernel, stride=stride, out=out)
        return (wide / Dense.of(counts.astype(np.float32))).cast(x.dtype)
    return total / Dense.of(counts.astype(to_numpy_dtype(x.dtype)))


def _counts(
    space: Ints, kernel: Ints, stride: Ints, padding: Ints, out: Ints, with_padding: bool
) -> Array:
    """How many elements each window averages; what ceil mode adds past the padding never counts."""
    counts: Array = np.ones((1,) * len(space), np.int64)
    for i, (n, k, s, p, m) in enumerate(
        zip(space, kernel, stride, padding, out, strict=True)
    ):
        start = np.arange(m) * s - p
        stop = np.minimum(start + k, n + p)
        if not with_padding:
            start, stop = np.maximum(start, 0), np.minimum(stop, n)
        counts = counts * (stop - start).reshape((-1,) + (1,) * (len(space) - 1 - i))
    return counts


op("avg_pool(x; kernel, stride, padding, ceil_mode, count_include_pad, divisor_override) -> y",
   family=composite(_avg_pool), expand=_avg_pool,
   doc="torch's avg_pool1d, 2d and 3d: the length of `kernel` is the number of pooled dims.")


def _adaptive_avg_pool(x: Expr, size: Ints) -> Expr:
    rank = len(size)
    lead, space = x.shape[:-rank], x.shape[-rank:]
    if 0 in space or 0 in size:
        raise InferenceError(f"adaptive pooling of {list(space)} to {list(size)}")
    if all(n % m == 0 for n, m in zip(space, size, strict=True)):
        split = tuple(k for n, m in zip(space, size, strict=True) for k in (m, n // m))
        dims = tuple(range(len(lead) + 1, len(lead) + 2 * rank, 2))
        return F.mean(x.reshape((*lead, *split)), dims=dims, keepdims=False)
    dtype, half = x.dtype, x.dtype in (F16, BF16)
    x = x.cast(F32) if half else x  # rounded once, as in torch
    for i, m in enumerate(size):
        x = _average_along(x, len(lead) + i, m)
    return x.cast(dtype)


def _average_along(x: Expr, dim: int, m: int) -> Expr:
    """Uneven windows of one dim, [floor(i n / m), ceil((i + 1) n / m)): elements side by side.

    A short window has an element at its end that does not count.
    """
    n, dtype = x.shape[dim], to_numpy_dtype(x.dtype)
    start = np.arange(m) * n // m
    width = -(-(np.arange(m) + 1) * n // m) - start
    longest = int(width.max())
    places = np.minimum(start[:, None] + np.arange(longest), n - 1)
    taken = F.index_select(x, Dense.of(places.reshape(-1)), dim=dim)
    parts = taken.reshape((*x.shape[:dim], m, longest, *x.shape[dim + 1 :]))
    rest = (1,) * (x.rank - dim - 1)
    inside = Dense.of((np.arange(longest) < width[:, None]).reshape((m, longest, *rest)))
    total = F.where(inside, parts, 0.0).sum(dims=(dim + 1,), keepdims=False)
    return total / Dense.of(width.astype(dtype).reshape((m, *rest)))


op("adaptive_avg_pool(x; size) -> y", family=composite(_adaptive_avg_pool),
   expand=_adaptive_avg_pool, doc="torch's adaptive_avg_pool1d, 2d and 3d, by the length of size.")

