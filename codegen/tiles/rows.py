"""Rows that torch computes in one call: softmax, layer norm, and their gradients.

    m = reduce[max] x       row
    c = sub x m             cell
    e = exp c               cell
    s = reduce[sum] e       row
    p = div e s             cell    →    p = softmax x                cell

    q = mul g p             cell
    s = reduce[sum] q       row
    c = sub g s             cell
    d = mul c p             cell    →    d = softmax_grad g p         cell

A layer norm is n * w + b, where n = c * r, c = x - mean, r = rsqrt (mean of c * c + eps); and of c,
for the gradient g of n * w, the gradient is e = g * w * r - c * r * r * r * (mean of g * w * c):

    y = add (mul n w) b     cell    →    y = layer_norm x w b         cell    attrs: eps
                                         r = inverse_deviation y      row
    d = sub e (mean of e)   cell    →    d = layer_norm_grad g c r w  cell    attrs: check, sum
    fold[0] (mul g n)       cell    →    fold[0] d                    part 1

The last is the gradient of w; where there is no such d, it is that of a layer_norm_grad without
one (attrs: cells). Instead of c there are x and its mean where c is their difference (attrs: mean).
Where c is not x less its mean, d is another number, so that this is checked as it runs (check),
where it does not follow from the nest.

Torch keeps a row in the nearest cache for all of these, where every instruction would be a pass
over a tile that is further away. Each is replaced by itself, whatever else reads what it is made
of: a value has the same bits with its gradients, before them and alone.

They are torch's for rows of `ROWS_FEW` columns and more. Of shorter ones numpy's passes are faster.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from gradof import tuning
from gradof.codegen.loops.ir import Instr, LoopNest, Operand
from gradof.codegen.loops.passes.restage import restaged, without_unread
from gradof.codegen.loops.passes.softmax import sum_of_exp
from gradof.codegen.tiles.nest import Known, each, in_order
from gradof.ir.types import F32, F64

_ALONE = {"cells": False, "check": False}  # a sum is that of what it is computed from in any case
ROWS = frozenset({"softmax", "softmax_grad", "layer_norm", "layer_norm_grad", "inverse_deviation"})


def has_rows(nest: LoopNest) -> bool:
    """Whether rows are long enough for torch's calls."""
    of_rows = bool(nest.rows) and len(nest.sizes) == nest.rows + 1
    return of_rows and nest.sizes[-1] >= tuning.ROWS_FEW


def with_softmax(nest: LoopNest) -> LoopNest:
    """The nest with torch's softmax, and its gradient."""
    return each(each(nest, _softmax), _softmax_grad) if has_rows(nest) else nest


def with_layer_norm_grad(nest: LoopNest) -> LoopNest:
    """The nest with torch's gradients of layer norms."""
    return _with_gradients(nest) if has_rows(nest) else nest


def with_layer_norm(nest: LoopNest) -> LoopNest:
    """The nest with torch's layer norms."""
    return _with_layer_norms(nest) if has_rows(nest) else nest


def _softmax(known: Known, i: Instr) -> list[Instr] | None:
    if i.op != "div" or not _is_cell(i):
        return None
    total = known.made_by(i.args[1], "reduce")
    found = sum_of_exp(known.made, total)
    if total is None or found is None or i.args[0] != found.exp.name:
        return None
    x = known.made[found.x]
    dtypes = {j.dtype for j in (x, total, found.top, found.difference, found.exp)}
    if dtypes != {i.dtype} or known.nest.rows not in known.varies[x.name]:
        return None
    return [replace(i, op="softmax", args=(x.name,))]


def _softmax_grad(known: Known, i: Instr) -> list[Instr] | None:
    if i.op != "mul" or not _is_cell(i):
        return None
    for difference, p in (i.args, i.args[::-1]):
        c = known.made_by(difference, "sub")
        g, s = (None, None) if c is None else c.args
        product = known.made_by(known.reduced(s, "sum"), "mul")
        if product is not None and set(product.args) == {g, p} and _are_whole(known, i, g, p):
            return [replace(i, op="softmax_grad", args=(str(g), str(p)))]
    return None


# --- layer norms ---------------------------------------------------------------------------------


def _with_layer_norms(nest: LoopNest) -> LoopNest:
    known = Known(nest)
    swaps: dict[str, list[Instr]] = {}
    for i in nest.body:
        if i.op != "rsqrt" or i.level != "row" or i.dtype not in (F32, F64):
            continue
        found = _norm(known, i)
        if found is not None:
            x, normal, eps = found
            out, *affine = next(_affine(known, normal, i), (normal,))
            y = replace(known.made[out], op="layer_norm", args=(x, *affine), attrs={"eps": eps})
            swaps[out] = [y]
            swaps[i.name] = [replace(i, op="inverse_deviation", args=(out,))]
    return _swapped(nest, nest.body, swaps) if swaps else nest


def _norm(known: Known, inverse: Instr) -> tuple[str, str, float] | None:
    """(x, (x - mean) * inverse, eps) of an inverse deviation."""
    plus = known.made_by(inverse.args[0], "add")
    if plus is None or isinstance(plus.args[1], str):
        return None
    square = known.made_by(_mean_of(known, plus.args[0]), "square", "mul")
    c = None if square is None else known.made_by(square.args[0], "sub")
    if square is None or c is None or set(square.args) != {c.name}:
        return None
    x, mean = c.args
    if _mean_of(known, mean) != x or not _are_whole(known, inverse, x):
        return None
    for normal in known.readers[c.name]:
        if normal.op == "mul" and set(normal.args) == {c.name, inverse.name}:
            return str(x), normal.name, float(plus.args[1])
    return None


def _affine(known: Known, normal: str, like: Instr) -> Iterator[tuple[str, ...]]:
    """What the normalized x is scaled and moved to, by what: (result, w, b) or (result, w)."""
    for scaled in known.readers.get(normal, ()):
        w = _other(scaled, "mul", normal)
        if not _is_row(known, like, w):
            continue
        for moved in known.readers.get(scaled.name, ()):
            b = _other(moved, "add", scaled.name)
            if _is_row(known, like, b):
                yield moved.name, str(w), str(b)
        yield scaled.name, str(w)


# --- their gradients -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Gradient:
    """`total` is the gradient of x: what is above, with what x has from elsewhere, `other`."""

    total: Instr
    g: str
    c: str
    inverse: str
    w: str | None
    other: str | None


def _with_gradients(nest: LoopNest) -> LoopNest:
    known = Known(nest)
    swaps: dict[str, list[Instr]] = {}
    calls: dict[tuple[str, str, str], Instr] = {}  # of (g, c, inverse)
    body = list(nest.body)
    sums = dict(_sums(known))
    for i in nest.body:
        found = _gradient(known, i)
        if found is None:
            continue
        key = found.g, found.c, found.inverse
        has_sum = key in sums.values() and key not in calls
        own = i.name if found.other is None else _fresh(known, f"{i.name}_of_norm")
        d = replace(_call(known, i, *key, found.w, has_sum), name=own)
        calls.setdefault(key, d)  # the first has the sum
        more = [] if found.other is None else [replace(i, op="add", args=(found.other, own))]
        swaps[i.name] = [d, *more]
    for k, key in sums.items():
        if key not in calls:
            name = _fresh(known, f"sum_{k}_of_norm")
            alone = _call(known, known.made[key[0]], *key, None, True)
            calls[key] = replace(alone, name=name, attrs={**alone.attrs, **_ALONE})
            body.append(calls[key])
        body[k] = replace(body[k], args=(calls[key].name,), attrs={**body[k].attrs, "part": 1})
    return _swapped(nest, body, swaps) if calls else nest


def _call(
    known: Known, like: Instr, g: str, c: str, inverse: str, w: str | None, has_sum: bool
) -> Instr:
    """The call of a gradient, by x and its mean where c is their difference."""
    x, mean = _centred(known, c)
    args = [g, x, inverse, *(() if mean is None else (mean,)), *(() if w is None else (w,))]
    attrs = {
        "mean": mean is not None, "weight": w is not None, "sum": has_sum, "cells": True,
        "check": mean is None or _mean_of(known, mean) != x,
    }  # fmt: skip
    return replace(like, op="layer_norm_grad", args=tuple(args), attrs=attrs, level="cell")


def _centred(known: Known, c: str) -> tuple[str, str | None]:
    i = known.made_by(c, "sub")
    if i is not None and _are_whole(known, i, i.args[0]) and _is_of_rows(known, i, i.args[1]):
        return str(i.args[0]), str(i.args[1])
    return c, None


def _gradient(known: Known, total: Instr) -> _Gradient | None:
    """Less its mean: where the mean of x was taken away, so is that of the gradient."""
    if total.op not in ("add", "sub") or not _is_cell(total):
        return None
    sign = 1 if total.op == "add" else -1
    for cells, mean in (total.args, total.args[::-1])[: 2 if sign > 0 else 1]:
        d = _scaled_sum_of(known, mean, -sign)
        found = None if d is None else _of_centred(known, d)
        if found is None:
            continue
        if cells == d:
            return _Gradient(total, *found, None)
        other = _other(known.made_by(cells, "add"), "add", str(d))
        if isinstance(other, str):
            return _Gradient(total, *found, other)
    return None


def _of_centred(known: Known, d: str) -> tuple[str, str, str, str | None] | None:
    """(g, c, inverse, w) of the gradient of c: g * w * inverse, and what the deviation adds."""
    i = known.made_by(d, "add", "sub")
    if i is None or not _is_cell(i):
        return None
    sign = 1 if i.op == "add" else -1
    for direct, by_deviation in (i.args, i.args[::-1])[: 2 if sign > 0 else 1]:
        for g, inverse in _operands(known, direct):
            for c, factor in _operands(known, by_deviation):
                if not _is_of_rows(known, i, inverse) or not _are_whole(known, i, g, c):
                    continue
                if _is_deviation(known, factor, sign, (str(g), str(c), str(inverse))):
                    g, w = _without_weight(known, i, str(g))
                    return g, str(c), str(inverse), w
    return None


def _is_deviation(known: Known, factor: Operand, sign: int, of: tuple[str, str, str]) -> bool:
    """Whether a factor is - inverse**3 * (mean of g * c)."""
    g, c, inverse = of
    number, names = _factors(known, factor)
    sums = [a for a in names if a != inverse]
    product = known.made_by(known.reduced(sums[0], "sum") if len(sums) == 1 else None, "mul")
    if len(names) != 4 or product is None or set(product.args) != {g, c}:
        return False
    return math.isclose(number * sign * known.nest.sizes[-1], -1, rel_tol=1e-9)


def _without_weight(known: Known, like: Instr, g: str) -> tuple[str, str | None]:
    for a, w in _operands(known, g):
        if _is_row(known, like, w) and _are_whole(known, like, a):
            return str(a), str(w)
    return g, None


def _sums(known: Known) -> Iterator[tuple[int, tuple[str, str, str]]]:
    """The folds of g * c * inverse: each one's place, and (g, c, inverse)."""
    for k, i in enumerate(known.nest.body):
        if i.op != "fold" or i.attrs["kind"] != "sum" or i.dtype not in (F32, F64):
            continue
        for g, normal in _operands(known, i.args[0]):
            for c, inverse in _operands(known, normal):
                if _is_of_rows(known, i, inverse) and _are_whole(known, i, g, c):
                    yield k, (str(g), str(c), str(inverse))


# --- what operands are ---------------------------------------------------------------------------


def _swapped(
    nest: LoopNest, body: Iterable[Instr], swaps: Mapping[str, list[Instr]]
) -> LoopNest:
    made = [j for i in body for j in swaps.get(i.name, [i])]
    return restaged(replace(nest, body=without_unread(in_order(made))))


def _fresh(known: Known, name: str) -> str:
    while name in known.made:
        name += "_"
    return name


def _operands(known: Known, arg: object) -> list[tuple[Operand, Operand]]:
    """Those of a product, both ways round."""
    i = known.made_by(arg, "mul")
    return [] if i is None else [(i.args[0], i.args[1]), (i.args[1], i.args[0])]


def _is_of_rows(known: Known, like: Instr, arg: Operand | None) -> bool:
    """Whether an operand is one number for each row, of the dtype of an instruction."""
    if not isinstance(arg, str) or known.made[arg].dtype != like.dtype:
        return False
    return known.varies[arg] == frozenset(range(known.nest.rows))


def _factors(known: Known, arg: Operand) -> tuple[float, list[str]]:
    """The number and the values of which an operand is the product, as far as rows go."""
    if not isinstance(arg, str):
        return float(arg), []
    i = known.made[arg]
    if i.level != "cell" and (i.op in ("mul", "neg") or (i.op == "div" and _is_number(i.args[1]))):
        number, names = _factors(known, i.args[0])
        if i.op == "neg":
            return -number, names
        by, more = _factors(known, i.args[1])
        return (number * by if i.op == "mul" else number / by), names + more
    return 1.0, [arg]


def _scaled_sum_of(known: Known, arg: Operand, sign: int) -> str | None:
    """The cells of whose mean in each row an operand is `sign` times."""
    number, names = _factors(known, arg)
    is_mean = math.isclose(number * known.nest.sizes[-1], sign, rel_tol=1e-9)
    return known.reduced(names[0], "sum") if is_mean and len(names) == 1 else None


def _mean_of(known: Known, arg: Operand) -> str | None:
    return _scaled_sum_of(known, arg, 1)


def _is_number(arg: Operand) -> bool:
    return not isinstance(arg, str) and arg != 0


def _other(i: Instr | None, op: str, name: str) -> Operand | None:
    """The other operand of an instruction of that op that has this one."""
    if i is None or i.op != op or name not in i.args:
        return None
    return i.args[1] if i.args[0] == name else i.args[0]


def _is_cell(i: Instr) -> bool:
    return i.level == "cell" and i.dtype in (F32, F64)


def _are_whole(known: Known, i: Instr, *args: object) -> bool:
    """Whether operands vary along every axis, and are of the dtype of an instruction."""
    every = frozenset(range(len(known.nest.sizes)))
    names = [a for a in args if isinstance(a, str)]
    whole = (known.varies[a] == every and known.made[a].dtype == i.dtype for a in names)
    return len(names) == len(args) and all(whole)


def _is_row(known: Known, like: Instr, arg: Operand | None) -> bool:
    """Whether an operand is one row for all rows, of the dtype of an instruction."""
    if not isinstance(arg, str) or known.made[arg].dtype != like.dtype:
        return False
    return known.varies[arg] == {known.nest.rows}
