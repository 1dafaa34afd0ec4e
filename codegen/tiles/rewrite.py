"""A loop nest → the same nest in fewer passes over the cells of a tile.

    q = mul x y        cell                s = dot x y       row
    s = reduce[sum] q  row          →

    n = neg q          cell                r = reduce[sum] q row
    s = reduce[sum] n  row          →      s = neg r         row

    n = neg x          cell
    y = mul n 2.0      cell         →      y = mul x -2.0        cell

    h = eq index t     cell
    w = where h l 0    cell         →
    z = add w y        cell                z = place y t l   cell

    p = mul x y        cell
    z = sub c p        cell         →      z = addcmul c x y cell, by -1.0: where torch computes it

    n = mul x 0.3      cell
    p = div n y        cell
    z = add c p        cell         →      z = addcdiv c x y cell, by 0.3: the same

    s = add x 1.0      cell
    z = mul s 0.5      cell         →      z = addcmul 0.5 x 0.5 cell, where torch computes it

Numpy computes each instruction in a pass of its own, so that what matters is their number. Sums
come right after what they add up, whose memory is then free to be written over. Results are those
of the nest, but for the order of sums (Note [Sums by BLAS] in `gradof.codegen.tiles.sums`), for
the sign of a zero to which a `place` adds nothing. Sums of one cell a row become a `pick`, as in
native code (`gradof.codegen.loops.passes.picked_sums`).

`dot` and `total` have `attrs["kind"]` as a `reduce` has, and a `fold` may be `negated`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gradof.codegen.loops.ir import Instr, LoopNest, Operand
from gradof.codegen.loops.passes.picked_sums import with_picks
from gradof.codegen.loops.passes.restage import reads
from gradof.codegen.loops.passes.run import NestPass, run_nest_passes
from gradof.codegen.tiles.nest import SUMS, Known, each
from gradof.codegen.tiles.rows import with_layer_norm, with_layer_norm_grad, with_softmax
from gradof.ir.types import F32, F64

_LARGEST = float(np.finfo(np.float32).max)


def tile_passes(torch: bool = False) -> list[NestPass]:
    """The passes that make a nest one of few passes over a tile.

    `torch` has torch's functions of whole rows (`tiles/rows`), and its sums of a number and a
    product, which are rounded once (`tiles/torch_calls`).
    """
    rows = [
        NestPass("torch-softmax", with_softmax, "One call of torch's for each softmax of rows."),
        NestPass("torch-layer-norm-grad", with_layer_norm_grad,
                 "One call of torch's for each gradient of a layer norm."),
        NestPass("torch-layer-norm", with_layer_norm, "One call of torch's for each layer norm."),
    ]  # fmt: skip
    fused = [NestPass("torch-addcmul", lambda nest: each(nest, _fused),
                      "Sums with a product or a quotient in one pass, by torch.")]  # fmt: skip
    return [
        NestPass("pick-columns", lambda nest: with_picks(nest) if nest.rows else nest,
                 "Pick the one cell of a row that a sum counts."),
        NestPass("place-columns", lambda nest: each(nest, _placed) if nest.rows else nest,
                 "Add in place to the one cell of a row that is not zero."),
        *(rows if torch else []),
        NestPass("negate-sums", lambda nest: each(nest, _signed),
                 "Negate sums in place of what they add up."),
        NestPass("fold-signs", _without_signs, "Fold signs and exact inverses into arithmetic."),
        NestPass("sums-by-blas", lambda nest: each(nest, _by_blas), "Sums of columns by BLAS."),
        *(fused if torch else []),
        NestPass("sums-first", _sums_first, "Sums right after what they add up."),
    ]  # fmt: skip


def for_tiles(nest: LoopNest, torch: bool = False) -> LoopNest:
    """The nest in fewer passes; see `tile_passes`."""
    return run_nest_passes(nest, tile_passes(torch), "tiles")


def _without_signs(nest: LoopNest) -> LoopNest:
    while (shorter := each(nest, _without_neg)) != nest:
        nest = shorter
    return nest


def _signed(known: Known, i: Instr) -> list[Instr] | None:
    """The sum of what is negated is the sum, negated: rounding is the same for both signs."""
    if i.op not in ("reduce", "fold") or i.attrs["kind"] != "sum":
        return None
    neg = known.made[str(i.args[0])]
    if neg.op != "neg" or neg.level != "cell":
        return None
    if i.op == "fold":
        return [replace(i, args=neg.args, attrs={**i.attrs, "negated": True})]
    name = f"{i.name}_of_{neg.args[0]}"
    if name in known.made:
        return None
    return [replace(i, name=name, args=neg.args), replace(i, op="neg", args=(name,), attrs={})]


def _without_neg(known: Known, i: Instr) -> list[Instr] | None:
    """The same number without a pass that only turns its sign, or without a division.

    Every result is that of the nest, bit for bit: rounding is the same for both signs, and the
    inverse of a power of two is exact.
    """
    if i.level != "cell" or i.dtype not in (F32, F64):
        return None
    if i.op == "neg":
        product = known.only(i.args[0], "mul")
        if product is not None and product.dtype == i.dtype and _has_number(product):
            factors = [a if isinstance(a, str) else -a for a in product.args]
            return [replace(i, op="mul", args=tuple(factors))]
    if i.op not in ("mul", "div", "add", "sub"):
        return None
    inverse = _inverse(i.args[1])
    if i.op == "div" and inverse is not None:
        return [replace(i, op="mul", args=(i.args[0], inverse))]
    first, second = (_negated(known, i, a) for a in i.args)
    if i.op == "mul" and _has_number(i) and (first or second):
        signed = (first or i.args[0], second or i.args[1])
        factors = [a if isinstance(a, str) else -a for a in signed]
        return [replace(i, args=tuple(factors))]
    if i.op in ("add", "sub") and second is not None:
        return [replace(i, op="sub" if i.op == "add" else "add", args=(i.args[0], second))]
    if i.op == "add" and first is not None:
        return [replace(i, op="sub", args=(i.args[1], first))]
    return None


def _negated(known: Known, i: Instr, arg: object) -> str | None:
    """What an operand of a cell is the negation of."""
    neg = known.made.get(arg) if isinstance(arg, str) else None
    if neg is None or neg.op != "neg" or neg.level != "cell" or neg.dtype != i.dtype:
        return None
    return str(neg.args[0])


def _has_number(i: Instr) -> bool:
    return isinstance(i.args[0], str) != isinstance(i.args[1], str)


def _inverse(arg: Operand) -> float | None:
    """Of a power of two that has an exact inverse in float32, too."""
    if isinstance(arg, str) or not 2.0**-60 <= abs(arg) <= 2.0**60:
        return None
    return 1 / arg if abs(math.frexp(arg)[0]) == 0.5 else None


def _fused(known: Known, i: Instr) -> list[Instr] | None:
    """Cells plus or minus a product, which is computed for its other readers all the same: what is
    rounded does not depend on these. Of two products the second: mostly it is the newer one. Or a
    quotient. And a sum with a number, scaled by a power of two: then rounding is the same."""
    if i.op == "mul":
        return _scaled_sum(known, i)
    if i.op not in ("add", "sub") or i.level != "cell" or i.dtype not in (F32, F64):
        return None
    for k in (1, 0) if i.op == "add" else (1,):
        term = known.made_by(i.args[k], "mul", "div")
        if term is None or term.level != "cell":
            continue
        alone = len(known.readers[term.name]) == 1
        if term.op == "div" and not alone:  # it is rounded: another reader has it for nothing
            continue
        factors, by = _without_number(known, term) if alone else (term.args, 1.0)
        args = (i.args[1 - k], *factors)
        if _can_fuse(known, i, args):
            by = by if i.op == "add" else -by
            op = "addcmul" if term.op == "mul" else "addcdiv"
            return [replace(i, op=op, args=args, attrs={"by": by})]
    return None


def _without_number(known: Known, term: Instr) -> tuple[tuple[Operand, ...], float]:
    """The operands of a product or quotient, and a number by which the first is multiplied.

    Torch multiplies that first, too, so that what is rounded is the same.
    """
    if all(isinstance(a, str) for a in term.args):
        for k in (0, 1) if term.op == "mul" else (0,):
            scaled = known.only(term.args[k], "mul")
            if scaled is None or not _has_number(scaled) or scaled.dtype != term.dtype:
                continue
            x, by = sorted(scaled.args, key=lambda a: not isinstance(a, str))
            if not isinstance(by, str) and 0 < abs(by) <= _LARGEST:
                return (x, term.args[1 - k] if term.op == "mul" else term.args[1]), float(by)
    return term.args, 1.0


def _scaled_sum(known: Known, i: Instr) -> list[Instr] | None:
    if i.level != "cell" or i.dtype not in (F32, F64) or not _has_number(i):
        return None
    cells, two = sorted(i.args, key=lambda a: not isinstance(a, str))
    sum_ = known.only(cells, "add")
    if sum_ is None or not _has_number(sum_) or not _is_small_power(two):
        return None
    x, c = sorted(sum_.args, key=lambda a: not isinstance(a, str))
    assert not isinstance(c, str) and not isinstance(two, str)
    args = (c * two, x, two)
    if abs(c) < 1 / _LARGEST or not _can_fuse(known, i, args):  # of a smaller one bits may be lost
        return None
    return [replace(i, op="addcmul", args=args, attrs={"by": 1.0})]


def _can_fuse(known: Known, i: Instr, args: Sequence[Operand]) -> bool:
    """Whether torch takes such operands, and fast: all but one are cells or columns.

    It refuses factors that are out of a dtype's range, which numpy takes as infinite; of zeros it
    is not told the sign.
    """
    names = [a for a in args if isinstance(a, str)]
    if any(known.made[a].dtype != i.dtype for a in names):
        return False
    if not all(0 < abs(a) <= _LARGEST for a in args if not isinstance(a, str)):
        return False
    columns = set(range(known.nest.rows, len(known.nest.sizes)))
    along = [a for a in args if isinstance(a, str) and columns <= known.varies[a]]
    by_number = any(not isinstance(a, str) for a in args[1:])
    return len(along) >= (1 if by_number else 2)


def _sums_first(nest: LoopNest) -> LoopNest:
    """The nest with each sum right after the last of what it adds up; loads, which cost nothing,
    are before that."""
    made = {i.name: (k, i) for k, i in enumerate(nest.body) if i.name}
    place = list(range(len(nest.body)))
    for k, i in enumerate(nest.body):
        if i.op in SUMS or i.op == "fold":
            operands = [made[a] for a in reads(i)]
            computed = [place[j] for j, operand in operands if operand.op != "load"]
            place[k] = max(computed, default=k)
            for j, operand in operands:
                if operand.op == "load":
                    place[j] = min(place[j], place[k])

    def key(k: int) -> tuple[int, bool, int]:
        return place[k], place[k] < k and nest.body[k].op != "load", k

    return replace(nest, body=tuple(nest.body[k] for k in sorted(range(len(place)), key=key)))


def _is_small_power(arg: Operand) -> bool:
    return _inverse(arg) is not None and not isinstance(arg, str) and 1 / 16 <= abs(arg) <= 16


def _by_blas(known: Known, i: Instr) -> list[Instr] | None:
    """A sum over one axis of columns, of a product or of cells.

    A product that others read too is computed for them, and its sum from its factors all the same:
    in what order is added is not to depend on what else a kernel computes.
    """
    column = known.nest.rows
    if len(known.nest.sizes) != column + 1 or i.op != "reduce" or i.attrs["kind"] != "sum":
        return None
    cells = known.made[str(i.args[0])]
    if cells.dtype != i.dtype or i.dtype not in (F32, F64):
        return None
    if cells.op in ("mul", "square"):
        a, b = cells.args if cells.op == "mul" else (cells.args[0], cells.args[0])
        if isinstance(a, str) and isinstance(b, str) and all(
            column in known.varies[x] and known.made[x].dtype == i.dtype for x in (a, b)
        ):  # fmt: skip
            return [replace(i, op="dot", args=(a, b))]
    return [replace(i, op="total")] if column in known.varies[cells.name] else None


def _placed(known: Known, i: Instr) -> list[Instr] | None:
    """Cells plus what is zero but in one column."""
    if i.op != "add" or i.level != "cell" or len(known.nest.sizes) != known.nest.rows + 1:
        return None
    for one, cells in (i.args, i.args[::-1]):
        found = _one_hot(known, one)
        if found is not None and isinstance(cells, str) and cells != one:
            place, value = found
            every = frozenset(range(len(known.nest.sizes)))
            if known.varies[cells] == every and known.made[cells].dtype == i.dtype:
                return [replace(i, op="place", args=(cells, place, value))]
    return None


def _one_hot(known: Known, name: object) -> tuple[str, str] | None:
    """(position, value) of cells that are `where(index == position, value, 0)`."""
    where = known.only(name, "where")
    if where is None or isinstance(where.args[2], str) or where.args[2] != 0:
        return None
    hit, value = (known.made.get(a) if isinstance(a, str) else None for a in where.args[:2])
    if hit is None or value is None or value.level == "cell" or value.dtype != where.dtype:
        return None
    if hit.op != "eq" or not all(isinstance(a, str) for a in hit.args):
        return None
    index, position = (known.made[str(a)] for a in hit.args)
    if index.op != "index" or index.level != "cell" or position.level == "cell":
        return None
    return position.name, value.name
