"""Causal masks as users make them: tensors with one number below a diagonal, another above.

    torch.ones(m, n).tril() == 0                     Split(0, False, True)
    torch.arange(m)[:, None] >= torch.arange(n)      Split(0, True, False)
    torch.full((m, n), -inf).triu(2)                 Split(1, 0.0, -inf)

A mask is followed from numbers and positions through the ops that made it; of what else is met
nothing is said. So no tensor is looked at, and a mask that is an argument is not recognised.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gradof.codegen.triton.graph.one_hot import shape_of
from gradof.ir.core import Node, Value
from gradof.ir.types import BOOL, ScalarType, TensorType
from gradof.ops.attention import Step

Number = bool | int | float
_SAME = frozenset({"alias", "copy", "detach", "to_device"})
_COMPARED = {"lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge}
_POINTWISE: dict[str, Callable[..., Any]] = {
    **_COMPARED, "eq": operator.eq, "ne": operator.ne, "add": operator.add, "sub": operator.sub,
    "mul": operator.mul, "neg": operator.neg, "logical_not": operator.not_,
    "logical_and": lambda a, b: bool(a) and bool(b), "logical_or": lambda a, b: bool(a) or bool(b),
    "where": lambda c, a, b: a if c else b,
}  # fmt: skip
# Numbers that every dtype has: nothing is said of what rounding might change.
_EXACT = frozenset({0.0, 1.0, -1.0, math.inf, -math.inf})


@dataclass(frozen=True)
class Split:
    """A matrix that is `below` where column - row <= diagonal, and `above` elsewhere."""

    diagonal: int
    below: Number
    above: Number


@dataclass(frozen=True)
class _Ramp:
    """Integers: the sum of each position times its factor, and a start."""

    factors: tuple[int, ...]
    start: int


def without_diagonals(
    steps: Sequence[Step], extras: Sequence[Value], frame: Sequence[int]
) -> tuple[list[Step], list[Value], int | None]:
    """The steps without causal masks, the tensors they read, and the diagonal of the masks.

    Every row keeps a key at least: of a row without one, eager's softmax is no number anywhere.
    """
    left: list[Step] = []
    causal: int | None = None
    for j, step in enumerate(steps):
        diagonal = _diagonal(step, extras, frame)
        if diagonal is None or not all(_keeps_infinity(later) for later in steps[j + 1 :]):
            left.append(step)
        else:
            causal = diagonal if causal is None else min(causal, diagonal)
    read = sorted({int(a[1:]) for _, args in left for a in args if _is_tensor(a)})  # type: ignore[index]
    names: dict[Any, str] = {f"x{old}": f"x{new}" for new, old in enumerate(read)}
    renamed = [(name, tuple(names.get(a, a) for a in args)) for name, args in left]
    return renamed, [extras[k] for k in read], causal


def _is_tensor(arg: str | int | float) -> bool:
    return isinstance(arg, str) and arg != "s"


def _diagonal(step: Step, extras: Sequence[Value], frame: Sequence[int]) -> int | None:
    """The diagonal above which a step makes all scores -inf, changing no other."""
    name, args = step
    masks = [extras[int(a[1:])] for a in args if isinstance(a, str) and a != "s"]
    if len(masks) != 1 or shape_of(masks[0])[-2:] != tuple(frame[-2:]):
        return None
    split = split_of(masks[0])
    if split is None or split.diagonal < 0:
        return None
    below, above = split.below, split.above
    if name == "where":
        kept, filled = ("s", -math.inf) if below else (-math.inf, "s")
        fits = below != above and args[1:] == (kept, filled)
    else:
        fits = name == "add" and (below, above) == (0, -math.inf)
    return split.diagonal if fits else None


def _keeps_infinity(step: Step) -> bool:
    """Whether what a step makes of -inf is -inf."""
    name, args = step
    numbers = [a for a in args if not isinstance(a, str)]
    if name == "where":
        return numbers == [-math.inf]
    if any(_is_tensor(a) for a in args):
        return False
    if name in ("mul", "div"):
        return 0 < numbers[0] < math.inf
    return (name == "add" or (name == "sub" and args[0] == "s")) and math.isfinite(numbers[0])


def split_of(value: Value) -> Split | None:
    """What a tensor is over its last two dims, where it is known to be a Split."""
    found = _known(value)
    return found if isinstance(found, Split) else None


def number_of(value: Value) -> int | float | None:
    """The Python number behind a value: a constant, or a tensor full of it."""
    node = value.node
    if node is None or node.kind not in ("Constant", "full"):
        return None
    number = node.attrs["value"]
    is_number = isinstance(value.type, ScalarType) or node.kind == "full"
    return number if is_number and isinstance(number, int | float) else None


def _known(value: Value) -> Split | _Ramp | Number | None:
    node = value.node
    number = number_of(value)
    if node is None or number is not None:
        return number
    if node.kind == "arange" and not value.is_inexact:
        step, start = node.attrs["step"], node.attrs["start"]
        whole = isinstance(step, int) and isinstance(start, int)
        return _Ramp((step,), start) if whole else None  # type: ignore[arg-type]
    if node.kind in ("tril", "triu"):
        return _triangle(node)
    if node.kind in ("reshape", "expand", "cast", "permute", *_SAME):
        return _moved(node, _known(node.inputs[0]))
    if node.kind in _POINTWISE:
        return _pointwise(node, [_known(v) for v in node.inputs])
    return None


def _triangle(node: Node) -> Split | None:
    number, k = number_of(node.inputs[0]), node.attrs["diagonal"]
    if number is None or not isinstance(k, int) or float(number) not in _EXACT:
        return None
    return Split(k, number, 0) if node.kind == "tril" else Split(k - 1, 0, number)


def _moved(node: Node, x: Split | _Ramp | Number | None) -> Split | _Ramp | Number | None:
    """A view, a copy, or another dtype."""
    old, new = shape_of(node.inputs[0]), shape_of(node.output)
    if node.kind in _SAME or x is None:
        return x
    if node.kind == "cast":
        type_ = node.output.type
        assert isinstance(type_, TensorType)
        if not isinstance(x, Split):
            return x if isinstance(x, _Ramp) and not type_.dtype.is_inexact else None
        to = bool if type_.dtype == BOOL else float if type_.dtype.is_float else None
        if to is not None:
            return replace(x, below=to(x.below), above=to(x.above))
        finite = math.isfinite(x.below) and math.isfinite(x.above)
        return x if finite and not type_.dtype.is_inexact else None
    if isinstance(x, Split):
        return x if node.kind != "permute" and old[-2:] == new[-2:] else None
    if not isinstance(x, _Ramp):
        return x
    if node.kind == "permute":
        dims: Any = node.attrs["dims"]
        return _Ramp(tuple(x.factors[d] for d in dims), x.start)
    if node.kind == "expand":
        return _Ramp(_wider(x.factors, old, len(new)), x.start)
    kept = [f for f, size in zip(x.factors, old, strict=True) if size != 1]
    if [n for n in old if n != 1] != [n for n in new if n != 1]:
        return None
    return _Ramp(tuple(0 if size == 1 else kept.pop(0) for size in new), x.start)


def _wider(factors: Sequence[int], shape: Sequence[int], rank: int) -> tuple[int, ...]:
    """Factors of an operand that is broadcast: 0 along what it repeats."""
    own = [0 if size == 1 else f for f, size in zip(factors, shape, strict=True)]
    return (*[0] * (rank - len(own)), *own)


def _pointwise(
    node: Node, known: Sequence[Split | _Ramp | Number | None]
) -> Split | _Ramp | Number | None:
    if any(x is None for x in known):
        return None
    if any(isinstance(x, _Ramp) for x in known):
        return _of_ramps(node, known)
    splits = [x for x in known if isinstance(x, Split)]
    if not splits or len({x.diagonal for x in splits}) > 1:
        return None
    compute = _POINTWISE[node.kind]
    below, above = (
        compute(*(getattr(x, side) if isinstance(x, Split) else x for x in known))
        for side in ("below", "above")
    )
    if float(below) not in _EXACT or float(above) not in _EXACT:  # nan is not, either
        return None
    return Split(splits[0].diagonal, below, above)


def _of_ramps(node: Node, known: Sequence[Any]) -> Split | _Ramp | None:
    """Sums and differences of ramps and whole numbers, and their comparisons."""
    if node.kind not in ("add", "sub", *_COMPARED) or any(
        not isinstance(x, _Ramp) and not (isinstance(x, int) and not isinstance(x, bool))
        for x in known
    ):
        return None
    rank = len(shape_of(node.output))
    a, b = (
        _Ramp(_wider(x.factors, shape_of(v), rank), x.start) if isinstance(x, _Ramp)
        else _Ramp((0,) * rank, x) for x, v in zip(known, node.inputs, strict=True)
    )  # fmt: skip
    sign = 1 if node.kind == "add" else -1
    factors = tuple(f + sign * g for f, g in zip(a.factors, b.factors, strict=True))
    made = _Ramp(factors, a.start + sign * b.start)
    return _against_zero(made, node.kind) if node.kind in _COMPARED else made


def _against_zero(x: _Ramp, kind: str) -> Split | None:
    """A comparison of column - row + start, or of its negative, with 0."""
    *batch, rows, columns = (0, 0, *x.factors)
    if any(batch) or (rows, columns) not in ((-1, 1), (1, -1)):
        return None
    if columns < 0:  # the same the other way round
        x = _Ramp((), -x.start)
        kind = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}[kind]
    if kind in ("le", "gt"):  # column - row + start <= 0, or not
        return Split(-x.start, kind == "le", kind != "le")
    return Split(-x.start - 1, kind == "lt", kind != "lt")

