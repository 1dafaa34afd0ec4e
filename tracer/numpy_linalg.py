"""Products: matmul, dot, einsum and their like, as permutations, reshapes and (batched) matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradof.ops.expr import Expr, F
from gradof.tracer.numpy_functions import axis_of, composed, expression
from gradof.tracer.numpy_recorder import Recorder, ir_dtype, real


def _pair(r: Recorder, a: Any, b: Any) -> tuple[Expr, Expr]:
    x, y = r.traced(a), r.traced(b)
    target = ir_dtype(np.result_type(x.dtype, y.dtype))
    return x.expr.cast(target), y.expr.cast(target)


@expression(np.matmul)
def _matmul(r: Recorder, x1: Any, x2: Any) -> Expr:
    a, b = _pair(r, x1, x2)
    left, right = a.rank == 1, b.rank == 1
    if left:
        a = a.reshape((1, *a.shape))
    if right:
        b = b.reshape((*b.shape, 1))
    y = a @ b
    shape = y.shape
    if right:
        shape = shape[:-1]
    if left:
        shape = (*shape[:-2], shape[-1]) if not right else shape[:-1]
    return y.reshape(shape)


@composed(np.dot)
def _dot(a: Any, b: Any) -> Any:
    m, n = np.ndim(real(a)), np.ndim(real(b))
    if m == 0 or n == 0:
        return a * b
    if m <= 2 and n <= 2:
        return np.matmul(a, b)
    return np.tensordot(a, b, axes=([m - 1], [max(n - 2, 0)]))


@composed(np.vdot)
def _vdot(a: Any, b: Any) -> Any:
    return np.matmul(np.ravel(a), np.ravel(b))


@composed(np.inner)
def _inner(a: Any, b: Any) -> Any:
    m, n = np.ndim(real(a)), np.ndim(real(b))
    return a * b if m == 0 or n == 0 else np.tensordot(a, b, axes=([m - 1], [n - 1]))


@composed(np.outer)
def _outer(a: Any, b: Any) -> Any:
    return np.reshape(a, (-1, 1)) * np.reshape(b, (1, -1))


@composed(np.kron)
def _kron(a: Any, b: Any) -> Any:
    rank = max(np.ndim(real(a)), np.ndim(real(b)))
    s = (1,) * (rank - np.ndim(real(a))) + np.shape(real(a))
    t = (1,) * (rank - np.ndim(real(b))) + np.shape(real(b))
    x = np.reshape(a, [n for d in s for n in (d, 1)])
    y = np.reshape(b, [n for d in t for n in (1, d)])
    return np.reshape(x * y, [p * q for p, q in zip(s, t, strict=True)])


@composed(np.tensordot)
def _tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    m, n = np.ndim(real(a)), np.ndim(real(b))
    if isinstance(axes, int):
        over_a, over_b = list(range(m - axes, m)), list(range(axes))
    else:
        over_a, over_b = (
            [axis_of(d, k) for d in (x if isinstance(x, (list, tuple)) else [x])]
            for x, k in zip(axes, (m, n), strict=True)
        )
    free_a = [d for d in range(m) if d not in over_a]
    free_b = [d for d in range(n) if d not in over_b]
    sa, sb = np.shape(real(a)), np.shape(real(b))
    inner = int(np.prod([sa[d] for d in over_a], dtype=np.int64))
    left = np.reshape(np.transpose(a, free_a + over_a), (-1 if inner else 0, inner))
    right = np.reshape(np.transpose(b, over_b + free_b), (inner, -1 if inner else 0))
    shape = [sa[d] for d in free_a] + [sb[d] for d in free_b]
    return np.reshape(np.matmul(left, right), shape)


@composed(np.einsum)
def _einsum(subscripts: str, *operands: Any, optimize: Any = False) -> Any:
    text = subscripts.replace(" ", "")
    terms, arrow, result = text.partition("->")
    inputs = terms.split(",")
    ranks = [np.ndim(real(o)) for o in operands]
    inputs, result = _without_ellipsis(inputs, result, bool(arrow), ranks)
    labels, value = _no_repeats(inputs[0], operands[0])
    for i in range(1, len(inputs)):
        other_labels, other = _no_repeats(inputs[i], operands[i])
        keep = set(result).union(*inputs[i + 1 :])
        labels, value = _contract(labels, value, other_labels, other, keep)
    summed = tuple(i for i, c in enumerate(labels) if c not in result)
    value = np.sum(value, axis=summed) if summed else value
    labels = "".join(c for c in labels if c in result)
    return np.transpose(value, [labels.index(c) for c in result]) if labels != result else value


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
            value = np.diagonal(value, 0, i, j)
            labels = labels[:i] + labels[i + 1 : j] + labels[j + 1 :] + c
    return labels, value


def _contract(la: str, a: Any, lb: str, b: Any, keep: set[str]) -> tuple[str, Any]:
    """Contract two operands over the labels they share and nobody else needs."""
    for labels, other, is_a in ((la, lb, True), (lb, la, False)):
        alone = tuple(i for i, c in enumerate(labels) if c not in other and c not in keep)
        if alone:
            left = "".join(c for i, c in enumerate(labels) if i not in alone)
            if is_a:
                a, la = np.sum(a, axis=alone), left
            else:
                b, lb = np.sum(b, axis=alone), left
    batch = [c for c in la if c in lb and c in keep]
    inner = [c for c in la if c in lb and c not in keep]
    rows = [c for c in la if c not in lb]
    columns = [c for c in lb if c not in la]
    size = dict(zip(la, np.shape(real(a)), strict=True))
    size.update({c: n for c, n in zip(lb, np.shape(real(b)), strict=True) if n != 1 or c not in size})

    def count(cs: list[str]) -> int:
        return int(np.prod([size[c] for c in cs], dtype=np.int64))

    x = np.reshape(np.transpose(a, [la.index(c) for c in batch + rows + inner]),
                   (*(size[c] for c in batch), count(rows), count(inner)))  # fmt: skip
    y = np.reshape(np.transpose(b, [lb.index(c) for c in batch + inner + columns]),
                   (*(size[c] for c in batch), count(inner), count(columns)))  # fmt: skip
    order = batch + rows + columns
    return "".join(order), np.reshape(np.matmul(x, y), [size[c] for c in order])


@composed(np.linalg.norm)
def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    if ord in (None, "fro") or (ord == 2 and (np.ndim(real(x)) == 1 or isinstance(axis, int))):
        return np.sqrt(np.sum(x * x, axis=axis, keepdims=keepdims))
    vector = isinstance(axis, int) or (axis is None and np.ndim(real(x)) == 1)
    if not vector:
        raise ValueError(f"the matrix norm ord={ord!r} is not supported; use ord=None or 'fro'")
    size = np.abs(x)
    if ord == np.inf:
        return np.max(size, axis=axis, keepdims=keepdims)
    if ord == -np.inf:
        return np.min(size, axis=axis, keepdims=keepdims)
    if ord == 1:
        return np.sum(size, axis=axis, keepdims=keepdims)
    return np.sum(size**ord, axis=axis, keepdims=keepdims) ** (1.0 / ord)


@composed(np.cross)
def _cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None) -> Any:
    if axis is not None:
        axisa = axisb = axisc = axis
    u, v = np.moveaxis(a, axisa, -1), np.moveaxis(b, axisb, -1)
    parts = [u[..., i] * v[..., j] - u[..., j] * v[..., i] for i, j in ((1, 2), (2, 0), (0, 1))]
    return np.moveaxis(np.stack(parts, axis=-1), -1, axisc)


__all__ = ["F"]
