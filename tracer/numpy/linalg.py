"""Products of numpy: matmul, dot, tensordot, einsum. Linear systems are in numpy_factor."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradof.ops.expr import Expr, F
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.functions import as_array, axis_of, composed, expression
from gradof.tracer.numpy.recorder import Recorder
from gradof.tracer.numpy.view import View

# --- products -------------------------------------------------------------------------------------


@expression(np.matmul, np.linalg.matmul)
def _matmul(r: Recorder, x1: Any, x2: Any) -> Expr:
    x, y = r.traced(x1), r.traced(x2)
    target = r.ir_dtype(np.result_type(x.dtype, y.dtype))
    a, b = x.expr.cast(target), y.expr.cast(target)
    left, right = a.rank == 1, b.rank == 1
    a = a.reshape((1, *a.shape)) if left else a
    b = b.reshape((*b.shape, 1)) if right else b
    product = a @ b
    shape = product.shape[:-1] if right else product.shape
    if left:
        shape = shape[:-1] if right else (*shape[:-2], shape[-1])
    return product.reshape(shape)


@composed(np.dot)
def _dot(a: Any, b: Any) -> Any:
    a, b = as_array(a), as_array(b)
    m, n = np.ndim(a), np.ndim(b)
    if m == 0 or n == 0:
        return a * b
    if m <= 2 and n <= 2:
        return np.matmul(a, b)
    return np.tensordot(a, b, axes=([m - 1], [max(n - 2, 0)]))


@composed(np.vdot)
def _vdot(a: Any, b: Any) -> Any:
    return np.matmul(np.conj(np.ravel(a)), np.ravel(b))


@composed(np.linalg.vecdot)
def _vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    return np.sum(np.conj(np.moveaxis(x1, axis, -1)) * np.moveaxis(x2, axis, -1), axis=-1)


@composed(np.inner)
def _inner(a: Any, b: Any) -> Any:
    m, n = np.ndim(a), np.ndim(b)
    return a * b if m == 0 or n == 0 else np.tensordot(a, b, axes=([m - 1], [n - 1]))


@composed(np.outer, np.linalg.outer)
def _outer(a: Any, b: Any) -> Any:
    return np.reshape(as_array(a), (-1, 1)) * np.reshape(as_array(b), (1, -1))


@composed(np.kron)
def _kron(a: Any, b: Any) -> Any:
    rank = max(np.ndim(a), np.ndim(b))
    s = (1,) * (rank - np.ndim(a)) + np.shape(a)
    t = (1,) * (rank - np.ndim(b)) + np.shape(b)
    x = np.reshape(a, [n for d in s for n in (d, 1)])
    y = np.reshape(b, [n for d in t for n in (1, d)])
    return np.reshape(x * y, [p * q for p, q in zip(s, t, strict=True)])


@composed(np.cross, np.linalg.cross)
def _cross(
    a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None
) -> Any:
    if axis is not None:
        axisa = axisb = axisc = axis
    u, v = np.moveaxis(as_array(a), axisa, -1), np.moveaxis(as_array(b), axisb, -1)
    if u.shape[-1] != 3 or v.shape[-1] != 3:
        raise TypeError("argument of two-dimensional vectors")
    parts = [u[..., i] * v[..., j] - u[..., j] * v[..., i] for i, j in ((1, 2), (2, 0), (0, 1))]
    return np.moveaxis(np.stack(parts, axis=-1), -1, axisc)


@composed(np.tensordot, np.linalg.tensordot)
def _tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    m, n = np.ndim(a), np.ndim(b)
    if isinstance(axes, (int, np.integer)):
        over_a, over_b = list(range(m - int(axes), m)), list(range(int(axes)))
    else:
        over_a, over_b = (
            [axis_of(d, k) for d in (x if isinstance(x, (list, tuple)) else [x])]
            for x, k in zip(axes, (m, n), strict=True)
        )
    free_a = [d for d in range(m) if d not in over_a]
    free_b = [d for d in range(n) if d not in over_b]
    sa, sb = np.shape(a), np.shape(b)
    shape = [sa[d] for d in free_a] + [sb[d] for d in free_b]
    inner = _count(sa[d] for d in over_a)
    rows, columns = _count(sa[d] for d in free_a), _count(sb[d] for d in free_b)
    left = np.reshape(np.transpose(a, free_a + over_a), (rows, inner))
    right = np.reshape(np.transpose(b, over_b + free_b), (inner, columns))
    return np.reshape(np.matmul(left, right), shape)


def _count(sizes: Any) -> int:
    return int(np.prod(list(sizes), dtype=np.int64))


@composed(np.linalg.multi_dot)
def _multi_dot(arrays: Any) -> Any:
    result = arrays[0]
    for other in arrays[1:]:
        result = np.dot(result, other)
    return result


@composed(np.linalg.matrix_power)
def _matrix_power(a: Any, n: int) -> Any:
    if n < 0:
        a, n = np.linalg.inv(a), -n
    result = None
    while n:
        if n & 1:
            result = a if result is None else np.matmul(result, a)
        n >>= 1
        a = np.matmul(a, a) if n else a
    eye = np.broadcast_to(np.eye(a.shape[-1]).astype(a.dtype), a.shape)
    return eye + a * 0 if result is None else np.copy(result)


# --- einsum ---------------------------------------------------------------------------------------


@composed(np.einsum_path)
def _einsum_path(*operands: Any, **options: Any) -> Any:
    # It reads shapes alone.
    shapes: list[Any] = [np.empty(x.shape) if isinstance(x, TracedArray) else x for x in operands]
    return np.einsum_path(*shapes, **options)


@composed(np.einsum)
def _einsum(subscripts: Any, *operands: Any, optimize: Any = False) -> Any:
    if not isinstance(subscripts, str):
        subscripts, operands = _lettered(subscripts, *operands)
    text = subscripts.replace(" ", "")
    terms, arrow, result = text.partition("->")
    inputs = terms.split(",")
    values = [as_array(o) for o in operands]
    inputs, result = _without_ellipsis(inputs, result, bool(arrow), [np.ndim(v) for v in values])
    labels, value = _no_repeats(inputs[0], values[0])
    for i in range(1, len(inputs)):
        other_labels, other = _no_repeats(inputs[i], values[i])
        keep = set(result).union(*inputs[i + 1 :])
        labels, value = _contract(labels, value, other_labels, other, keep)
    summed = tuple(i for i, c in enumerate(labels) if c not in result)
    value = np.sum(value, axis=summed) if summed else value
    labels = "".join(c for c in labels if c in result)
    return np.transpose(value, [labels.index(c) for c in result]) if labels != result else value


def _lettered(*given: Any) -> tuple[str, tuple[Any, ...]]:
    """einsum(a, [0, 1], b, [1, 2], [0, 2]) in letters."""
    pairs = len(given) - len(given) % 2
    operands, lists = given[0:pairs:2], given[1:pairs:2]
    result = given[-1] if len(given) % 2 else None

    def text(axes: Any) -> str:
        return "".join("..." if a is Ellipsis else chr(ord("a") + int(a)) for a in axes)

    terms = ",".join(map(text, lists))
    return (terms if result is None else f"{terms}->{text(result)}"), operands


def _without_ellipsis(
    inputs: list[str], result: str, explicit: bool, ranks: list[int]
) -> tuple[list[str], str]:
    spare = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if not any(c in t for t in inputs)]
    counts = [k - len(t.replace("...", "")) for t, k in zip(inputs, ranks, strict=True)]
    most = max((n for t, n in zip(inputs, counts, strict=True) if "..." in t), default=0)
    dots = "".join(spare[:most])
    expanded = [
        t.replace("...", dots[most - n :]) if "..." in t else t
        for t, n in zip(inputs, counts, strict=True)
    ]
    if explicit:
        return expanded, result.replace("...", dots)
    joined = "".join(expanded)
    once = sorted(c for c in set(joined) if joined.count(c) == 1 and c not in dots)
    return expanded, dots + "".join(once)


def _no_repeats(labels: str, value: Any) -> tuple[str, Any]:
    """Take diagonals until every label stands once."""
    for c in dict.fromkeys(labels):
        while labels.count(c) > 1:
            i = labels.index(c)
            j = labels.index(c, i + 1)
            value = _diagonal(value, i, j)
            labels = labels[:i] + labels[i + 1 : j] + labels[j + 1 :] + c
    return labels, value


def _diagonal(value: Any, i: int, j: int) -> Any:
    """A diagonal that can be written into, as einsum's is."""
    made = np.diagonal(value, 0, i, j)
    if not isinstance(made, TracedArray) or made.link is None:
        return made
    shape, memory = value.memory.shape, made.memory.view()
    memory.flags.writeable = value.memory.flags.writeable
    places = np.arange(value.memory.size).reshape(shape).diagonal(0, i, j)
    index = made.recorder.constant(np.ascontiguousarray(places))

    def write(x: Expr, source: Expr) -> Expr:
        flat = x.reshape((x.type.size,))
        written: Expr = F.index_put(flat, source, index, dims=(0,), accumulate=False)
        return written.reshape(shape)

    view = View(made.link.parent, made.link.read, write)
    return made.recorder.wrap(memory, made.expr, view)


def _contract(la: str, a: Any, lb: str, b: Any, keep: set[str]) -> tuple[str, Any]:
    """Contract two operands over the labels they share and nobody else needs."""
    la, a = _sum_alone(la, a, lb, keep)
    lb, b = _sum_alone(lb, b, la, keep)
    size = dict(zip(la, np.shape(a), strict=True))
    for c, n in zip(lb, np.shape(b), strict=True):
        size[c] = n if size.get(c, 1) == 1 else size[c]
    batch = [c for c in la if c in lb and c in keep]
    inner = [c for c in la if c in lb and c not in keep]
    rows = [c for c in la if c not in lb]
    columns = [c for c in lb if c not in la]
    # a dim of size 1 stretches to the other operand's
    a = np.broadcast_to(a, [size[c] for c in la])
    b = np.broadcast_to(b, [size[c] for c in lb])

    def flat(labels: str, value: Any, *groups: list[str]) -> Any:
        order = [labels.index(c) for group in groups for c in group]
        shape = [size[c] for c in batch] + [_count(size[c] for c in g) for g in groups[1:]]
        return np.reshape(np.transpose(value, order), shape)

    product = np.matmul(flat(la, a, batch, rows, inner), flat(lb, b, batch, inner, columns))
    order = batch + rows + columns
    return "".join(order), np.reshape(product, [size[c] for c in order])


def _sum_alone(labels: str, value: Any, other: str, keep: set[str]) -> tuple[str, Any]:
    """Sum over the labels that only this operand has."""
    alone = tuple(i for i, c in enumerate(labels) if c not in other and c not in keep)
    if not alone:
        return labels, value
    return "".join(c for i, c in enumerate(labels) if i not in alone), np.sum(value, axis=alone)
