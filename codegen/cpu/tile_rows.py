"""Rows that torch computes in one call: softmax, layer norm, and their gradients.

    m = reduce[max] x       row
    c = sub x m             cell
    e = exp c               cell
    s = reduce[sum] e       row
    p = div e s             cell    →    p = softmax x             cell

    q = mul g p             cell
    s = reduce[sum] q       row
    c = sub g s             cell
    d = mul c p             cell    →    d = softmax_grad g p      cell

A layer norm, `(x - mean) * rsqrt(variance + eps) * w + b`, is

    y = layer_norm x w b    cell    attrs: eps; w and b are not there where they are 1 and 0
    r = row_of y            row     the inverse of its deviation, if others read that
    d = layer_norm_grad g x y w     the gradient of x for that of y; attrs: sums
    fold[0] d               part 1  the sum over rows of g * (x - mean) * r: the gradient of w

Torch keeps a row in the nearest cache for all of these, where every instruction would be a pass
over a tile that is further away. Whatever else a kernel reads of what they replace is kept.

They are torch's for rows of `FEW` columns and more. Of shorter ones numpy's passes are faster.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from gradof.codegen.cpu.tile_nest import Known, each, in_order, without_unread
from gradof.codegen.loopnest import Instr, LoopNest, Operand
from gradof.ir.types import F32, F64

FEW = 64
ROWS = frozenset({"softmax", "softmax_grad", "layer_norm", "layer_norm_grad", "row_of"})


def in_one_call(nest: LoopNest) -> LoopNest:
    """The nest with what torch has for its rows."""
    if not nest.rows or len(nest.sizes) != nest.rows + 1 or nest.sizes[-1] < FEW:
        return nest
    nest = each(each(nest, _softmax), _softmax_grad)
    for i in nest.body:
        if i.op == "rsqrt" and i.level == "row" and i.dtype in (F32, F64):
            nest = _with_layer_norm(nest, i.name)
    return nest


def _softmax(known: Known, i: Instr) -> list[Instr] | None:
    e = known.made_by(i.args[0], "exp") if i.op == "div" else None
    c = None if e is None else known.made_by(e.args[0], "sub")
    if e is None or c is None or not _is_cell(i):
        return None
    x, largest = c.args
    if known.reduced(i.args[1], "sum") != e.name or known.reduced(largest, "max") != x:
        return None
    s, m = known.made[str(i.args[1])], known.made[str(largest)]
    if [len(known.readers[v.name]) for v in (c, e, s, m)] != [1, 2, 1, 1]:
        return None
    if any(v.dtype != i.dtype for v in (c, e, s, m, known.made[str(x)])):
        return None
    if known.nest.rows not in known.varies[str(x)]:
        return None
    return [replace(i, op="softmax", args=(x,))]


def _softmax_grad(known: Known, i: Instr) -> list[Instr] | None:
    if i.op != "mul" or not _is_cell(i):
        return None
    for difference, p in (i.args, i.args[::-1]):
        c = known.only(difference, "sub")
        g, s = (None, None) if c is None else c.args
        product = known.made_by(known.reduced(s, "sum"), "mul")
        if product is None or set(product.args) != {g, p} or len(known.readers[str(s)]) != 1:
            continue
        if _are_whole(known, i, g, p):
            return [replace(i, op="softmax_grad", args=(str(g), str(p)))]
    return None


@dataclass(frozen=True)
class _Norm:
    """The values of a layer norm: `normal` is (x - mean) * `inverse`, `centred` x - mean."""

    x: str
    centred: str
    inverse: str
    normal: str
    eps: float


@dataclass(frozen=True)
class _Gradient:
    """The gradient of x, `total`, from that of the normalized x times w, `g`; with a gradient that
    x has from elsewhere, `other`."""

    total: Instr
    g: str
    w: str | None
    other: str | None


def _with_layer_norm(nest: LoopNest, inverse: str) -> LoopNest:
    """The nest with the norm whose inverse deviation this is, if that is worth it."""
    known = Known(nest)
    norm = _norm(known, inverse)
    if norm is None:
        return nest
    for out, *affine in (*_affine(known, norm), (norm.normal,)):
        body = _swapped(known, norm, out, affine)
        names = {i.name for i in body}
        if norm.centred not in names and (norm.normal not in names or norm.normal == out):
            return replace(nest, body=body)
    return nest


def _norm(known: Known, inverse: str) -> _Norm | None:
    plus = known.made_by(known.made[inverse].args[0], "add")
    if plus is None or isinstance(plus.args[1], str):
        return None
    square = known.made_by(_mean_of(known, plus.args[0]), "square", "mul")
    c = None if square is None else known.made_by(square.args[0], "sub")
    if square is None or c is None or set(square.args) != {c.name}:
        return None
    x, mean = c.args
    if _mean_of(known, mean) != x or not _are_whole(known, known.made[inverse], x):
        return None
    for normal in known.readers[c.name]:
        if normal.op == "mul" and set(normal.args) == {c.name, inverse}:
            return _Norm(str(x), c.name, inverse, normal.name, float(plus.args[1]))
    return None


def _affine(known: Known, norm: _Norm) -> Iterator[tuple[str, ...]]:
    """What the normalized x is scaled and moved to, by what: (result, w, b) or (result, w)."""
    for scaled in known.readers[norm.normal]:
        w = _other(scaled, "mul", norm.normal)
        if not _is_row(known, norm, w):
            continue
        for moved in known.readers[scaled.name]:
            b = _other(moved, "add", scaled.name)
            if _is_row(known, norm, b):
                yield moved.name, str(w), str(b)
        yield scaled.name, str(w)


def _swapped(
    known: Known, norm: _Norm, out: str, affine: list[str]
) -> tuple[Instr, ...]:
    """The body with one call for `out` and, where that is there, one for the gradient."""
    made = known.made
    y = replace(
        made[out], op="layer_norm", args=(norm.x, *affine), attrs={"eps": norm.eps}
    )  # fmt: skip
    swaps = {out: [y], norm.inverse: [replace(made[norm.inverse], op="row_of", args=(out,))]}
    found = _gradient(known, norm)
    if found is None:
        return without_unread(in_order(_replaced(known.nest.body, swaps)))
    total = found.total
    own = total.name if found.other is None else f"{total.name}_of_norm"
    if own != total.name and own in made:
        return known.nest.body
    w = () if found.w is None else (found.w,)
    parts = {id(i): k for i, k in _parts(known, norm, found)}
    if 1 not in parts.values():  # a sum that is read once anyway is faster without
        parts = {}
    sums = tuple(k in parts.values() for k in (1, 2))
    d = replace(
        total, name=own, op="layer_norm_grad", args=(found.g, norm.x, out, *w),
        attrs={"sums": sums},
    )  # fmt: skip
    swaps[total.name] = [d]
    if found.other is not None:
        swaps[total.name].append(replace(total, op="add", args=(found.other, own)))
    body = [
        replace(i, args=(own,), attrs={**i.attrs, "part": parts[id(i)]}) if id(i) in parts else i
        for i in known.nest.body
    ]
    return without_unread(in_order(_replaced(body, swaps)))


def _gradient(known: Known, norm: _Norm) -> _Gradient | None:
    """Less the mean of `d`, which is all else: where the mean of x was taken away, its gradient is.
    """
    for total in known.nest.body:
        if total.op not in ("add", "sub") or not _is_cell(total):
            continue
        for cells, mean in (total.args, total.args[::-1])[: 2 if total.op == "add" else 1]:
            sign = 1 if total.op == "add" else -1
            d = _scaled_sum_of(known, mean, -sign)
            found = None if d is None else _of_centred(known, norm, d)
            if found is None or not isinstance(cells, str):
                continue
            if cells == d:
                return _Gradient(total, *found, None)
            other = _other(known.only(cells, "add"), "add", str(d))
            if isinstance(other, str):
                return _Gradient(total, *found, other)
    return None


def _of_centred(known: Known, norm: _Norm, d: str) -> tuple[str, str | None] | None:
    """(g, w) of the gradient of x - mean: g * w * inverse, and what the variance adds."""
    i = known.made_by(d, "add", "sub")
    if i is None or not _are_whole(known, known.made[norm.x], d):
        return None
    for direct, by_variance in (i.args, i.args[::-1])[: 2 if i.op == "add" else 1]:
        first, second = known.made_by(direct, "mul"), known.made_by(by_variance, "mul")
        g, row = _other(first, "mul", norm.inverse), _other(second, "mul", norm.centred)
        if g is None or row is None or not _are_whole(known, known.made[norm.x], g):
            continue
        number, names = _factors(known, row)
        sums = [a for a in names if a != norm.inverse]
        product = known.made_by(known.reduced(sums[0], "sum") if len(sums) == 1 else None, "mul")
        sign = 1 if i.op == "add" else -1
        if len(names) != 4 or product is None or set(product.args) != {g, norm.centred}:
            continue
        if math.isclose(number * sign * known.nest.sizes[-1], -1, rel_tol=1e-9):
            return _without_weight(known, norm, str(g))
    return None


def _without_weight(known: Known, norm: _Norm, g: str) -> tuple[str, str | None]:
    i = known.made_by(g, "mul")
    for a, w in () if i is None else (i.args, i.args[::-1]):
        if _is_row(known, norm, w) and _are_whole(known, known.made[norm.x], a):
            return str(a), str(w)
    return g, None


def _parts(known: Known, norm: _Norm, found: _Gradient) -> Iterator[tuple[Instr, int]]:
    """The folds that are sums of a layer norm's gradients: 1 is that of its w, 2 of its b."""
    if found.w is None:
        return
    for i in known.nest.body:
        if i.op != "fold" or i.attrs["kind"] != "sum" or i.dtype != known.made[norm.x].dtype:
            continue
        if i.args[0] == found.g:
            yield i, 2
        else:
            product = known.made_by(i.args[0], "mul")
            if product is not None and set(product.args) == {found.g, norm.normal}:
                yield i, 1


def _replaced(body: Iterable[Instr], swaps: Mapping[str, list[Instr]]) -> list[Instr]:
    return [j for i in body for j in swaps.get(i.name, [i])]


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


def _is_row(known: Known, norm: _Norm, arg: Operand | None) -> bool:
    """Whether an operand is one row for all rows."""
    if not isinstance(arg, str) or known.made[arg].dtype != known.made[norm.x].dtype:
        return False
    return known.varies[arg] == {known.nest.rows}
