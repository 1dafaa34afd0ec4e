"""Every instruction that a loop nest may have, in one table.

>>> INSTRUCTIONS["place"].meaning(space, i, [cells, position, value])   # what it computes, in numpy
>>> takes("llvm", "place")                                              # False: tiles alone do

What is not in the table is an elementwise op of the registry (`is_elementwise`), of scalars: its
types are those the registry infers, its meaning is the registry's numpy lowering, and every target
takes those that it says it supports. `verify` holds nests to this table, and `interpret` evaluates
them by it.

Note [Rows that are computed whole]
Some instructions read a whole row: `reduce`, and those that a target has one call for (`dot`,
`softmax` and so on). They are `whole`: what they give is known one stage after their operands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from gradof.codegen.loops.ir import Instr
from gradof.codegen.lowering.half import HALVES, round_bf16, round_f16
from gradof.codegen.lowering.numpy import call, lowering
from gradof.ir.attrs import to_numpy_dtype
from gradof.ir.opinfo import OPS, has_trait
from gradof.ir.types import BF16, DType
from gradof.ops.registry import get_op

Target = Literal["tiles", "llvm", "triton"]
TARGETS: frozenset[Target] = frozenset({"tiles", "llvm", "triton"})
_TILES: frozenset[Target] = frozenset({"tiles"})
_CPU: frozenset[Target] = frozenset({"tiles", "llvm"})
_GPU: frozenset[Target] = frozenset({"triton"})
UFUNCS = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
KINDS = tuple(UFUNCS)


class Space(Protocol):
    """What a meaning sees of the nest that is evaluated; arrays have the axes of the nest."""

    sizes: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    beside: dict[str, dict[str, Any]]  # value → what its instruction computes besides

    def load(self, i: Instr, args: Sequence[Any]) -> Any:
        """The cells of an input."""
        ...

    def body(self, i: Instr) -> Any:
        """The last cell of an instruction's body, of all columns."""
        ...


Meaning = Callable[[Space, Instr, list[Any]], Any]


@dataclass(frozen=True)
class Instruction:
    """One instruction of the table.

    `operands`: each one's name; `cells` marks those that must be cells, `values` those that may
    not be numbers, `optional` counts the last ones that may be missing.
    `dtype`: that of the result: of the `buffer`, of its `operands`, of operands or `wide`
    (float32 for half precision), or `i64`, `f32`.
    `level` of the result: at least that of its operands (`operands`) or of its buffer's axes
    (`axes`), or always `row` or `cell`.
    `whole`: Note [Rows that are computed whole].
    `attrs`: name to type, `more` the ones that may be missing.
    `targets`: who takes it as it is; no other target is ever given one.
    """

    name: str
    doc: str
    operands: tuple[str, ...] = ()
    cells: frozenset[str] = frozenset()
    optional: int = 0
    dtype: Literal["buffer", "operands", "wide", "i64", "f32"] = "operands"
    level: Literal["operands", "axes", "row", "cell"] = "operands"
    whole: bool = False
    attrs: Mapping[str, type | tuple[type, ...]] = field(default_factory=dict)
    more: Mapping[str, type | tuple[type, ...]] = field(default_factory=dict)
    targets: frozenset[Target] = TARGETS
    meaning: Meaning | None = None  # None: `interpret` has it, as it writes outputs


# --- meanings ------------------------------------------------------------------------------------


def _index(space: Space, i: Instr, args: list[Any]) -> Any:
    axis = i.attrs["axis"]
    assert isinstance(axis, int)
    shape = [1] * len(space.sizes)
    shape[axis] = space.sizes[axis]
    return np.arange(space.sizes[axis], dtype=np.int64).reshape(shape)


def reduced(i: Instr, value: Any, axes: tuple[int, ...], sizes: Sequence[int]) -> Any:
    """A value reduced over axes, which are kept; half precision adds up in float32, unrounded."""
    kind = str(i.attrs["kind"])
    value = varying(value, sizes, axes)
    if kind in ("sum", "prod"):
        dtype = np.dtype(np.float32) if i.dtype in HALVES else to_numpy_dtype(i.dtype)
        return UFUNCS[kind].reduce(value, axis=axes, keepdims=True, dtype=dtype)
    return UFUNCS[kind].reduce(value, axis=axes, keepdims=True)


def varying(value: Any, sizes: Sequence[int], axes: Sequence[int]) -> Any:
    """A value with the sizes of these axes, as if it varied along them."""
    return np.broadcast_to(value, [n if k in axes else value.shape[k] for k, n in enumerate(sizes)])


def _reduce(space: Space, i: Instr, args: list[Any]) -> Any:
    return reduced(i, args[0], space.columns, space.sizes)


def _exp_sum(space: Space, i: Instr, args: list[Any]) -> Any:
    x, m = args
    e = np.exp(varying(x, space.sizes, space.columns) - m)
    return e.sum(axis=space.columns, keepdims=True, dtype=e.dtype)


def _dot(space: Space, i: Instr, args: list[Any]) -> Any:
    return reduced(i, np.multiply(*args), space.columns, space.sizes)


def _rounded(space: Space, i: Instr, args: list[Any]) -> Any:
    return round_bf16(args[0]) if i.attrs["dtype"] == BF16 else round_f16(args[0])


def _addcmul(space: Space, i: Instr, args: list[Any]) -> Any:
    c, x, y = args
    return c + np.asarray(i.attrs["by"], to_numpy_dtype(i.dtype)) * x * y


def _addcdiv(space: Space, i: Instr, args: list[Any]) -> Any:
    c, x, y = args
    return c + np.asarray(i.attrs["by"], to_numpy_dtype(i.dtype)) * x / y


def _column(space: Space) -> Any:
    (axis,) = space.columns
    shape = [-1 if k == axis else 1 for k in range(len(space.sizes))]
    return np.arange(space.sizes[axis]).reshape(shape)


def _place(space: Space, i: Instr, args: list[Any]) -> Any:
    cells, position, value = args
    return cells + np.where(_column(space) == position, value, np.zeros((), cells.dtype))


def _pick(space: Space, i: Instr, args: list[Any]) -> Any:
    cells = space.body(i)
    found = np.where(_column(space) == args[0], cells, np.zeros((), cells.dtype))
    return varying(found, space.sizes, space.columns).sum(
        axis=space.columns, keepdims=True, dtype=cells.dtype
    )


def _softmax(space: Space, i: Instr, args: list[Any]) -> Any:
    x = varying(args[0], space.sizes, space.columns)
    e = np.exp(x - x.max(axis=space.columns, keepdims=True))
    return e / e.sum(axis=space.columns, keepdims=True)


def _softmax_grad(space: Space, i: Instr, args: list[Any]) -> Any:
    g, p = args
    return (g - (g * p).sum(axis=space.columns, keepdims=True)) * p


def _layer_norm(space: Space, i: Instr, args: list[Any]) -> Any:
    x, *affine = args
    c = x - x.mean(axis=space.columns, keepdims=True)
    eps = np.asarray(i.attrs["eps"], x.dtype)
    inverse = 1 / np.sqrt((c * c).mean(axis=space.columns, keepdims=True) + eps)
    space.beside[i.name] = {"inverse_deviation": inverse}
    y = c * inverse
    for how, operand in zip((np.multiply, np.add), affine, strict=False):
        y = how(y, operand)
    return y


def _layer_norm_grad(space: Space, i: Instr, args: list[Any]) -> Any:
    g, x, inverse, *more = args
    mean = more.pop(0) if i.attrs["mean"] else np.zeros((), x.dtype)
    c = x - mean
    space.beside[i.name] = {"weight": g * c * inverse}
    scaled = g * more[0] if i.attrs["weight"] else g
    by_deviation = inverse**3 * (scaled * c).mean(axis=space.columns, keepdims=True)
    d = scaled * inverse - c * by_deviation
    return d - d.mean(axis=space.columns, keepdims=True)


def _inverse_deviation(space: Space, i: Instr, args: list[Any]) -> Any:
    return space.beside[str(i.args[0])]["inverse_deviation"]


# --- the table -----------------------------------------------------------------------------------

_NUMBER = (bool, int, float)
INSTRUCTIONS: Mapping[str, Instruction] = {i.name: i for i in (
    Instruction(
        "load", "The cells of input `buffer`; with an operand, those that it names along `axis`."
        " Outside of a window it is `other`.",
        ("at",), optional=1, dtype="buffer", level="axes", attrs={"buffer": int},
        more={"axis": int, "other": _NUMBER}, meaning=lambda space, i, args: space.load(i, args)),
    Instruction(
        "store", "Output `buffer` is the operand; with `offset`, its part that begins so far along"
        " `axis`.", ("value",), dtype="buffer", level="axes", attrs={"buffer": int},
        more={"axis": int, "offset": int}),
    Instruction(
        "fold", "Output `buffer` is the operand reduced over all rows; `negated`, or, with `part`"
        " 1, the sum of what a `layer_norm_grad` gives for the weight.",
        ("value",), dtype="wide", attrs={"kind": str, "buffer": int},
        more={"negated": bool, "part": int}),
    Instruction(
        "index", "The position along `axis` of the nest.", dtype="i64", level="axes",
        attrs={"axis": int}, meaning=_index),
    Instruction(
        "reduce", "The operand reduced over the columns.", ("cells",), frozenset({"cells"}),
        dtype="wide", level="row", whole=True, attrs={"kind": str}, meaning=_reduce),
    Instruction(
        "exp_sum", "The sum over the columns of exp(x - m), where m is the largest x of the row. It"
        " is known with m, as the loop that finds m adds it up.", ("x", "m"), frozenset({"x"}),
        dtype="operands", level="row", targets=_GPU, meaning=_exp_sum),
    Instruction(
        "rounded", "To the nearest number of half precision `dtype`, ties to even, in float32."
        " `any_nan`: the operand may be a nan of any bits.", ("x",), dtype="f32",
        attrs={"dtype": DType, "any_nan": bool}, targets=_CPU, meaning=_rounded),
    Instruction(
        "pick", "The last cell of the body in the column that the operand names, 0 where there is"
        " none.", ("position",), dtype="wide", level="row", targets=_CPU, meaning=_pick),
    Instruction(
        "in_range", "The operand, an index, in 0 to `size`; with `wraps`, negative ones count from"
        " the end. The kernel stops at any other, which raises `error`.", ("index",),
        attrs={"size": int, "wraps": bool, "error": str}, targets=_GPU,
        meaning=lambda space, i, args: _elementwise(i, args)),
    Instruction(
        "total", "The sum of the columns, by BLAS.", ("cells",), frozenset({"cells"}), level="row",
        whole=True, attrs={"kind": str}, targets=_TILES, meaning=_reduce),
    Instruction(
        "dot", "The sum over the columns of a product, by BLAS.", ("a", "b"), level="row",
        whole=True, attrs={"kind": str}, targets=_TILES, meaning=_dot),
    Instruction(
        "place", "Cells, with a value added in the column that a position names, if any.",
        ("cells", "position", "value"), frozenset({"cells"}), level="cell", targets=_TILES,
        meaning=_place),
    Instruction(
        "addcmul", "c + by * x * y, rounded once.", ("c", "x", "y"), level="cell",
        attrs={"by": float}, targets=_TILES, meaning=_addcmul),
    Instruction(
        "addcdiv", "c + by * x / y; what is added is rounded before.", ("c", "x", "y"),
        level="cell", attrs={"by": float}, targets=_TILES, meaning=_addcdiv),
    Instruction(
        "softmax", "exp(x - m) / sum of exp(x - m), m the largest of the row.", ("x",),
        frozenset({"x"}), level="cell", whole=True, targets=_TILES, meaning=_softmax),
    Instruction(
        "softmax_grad", "(g - sum of g * p) * p.", ("g", "p"), frozenset({"g", "p"}),
        level="cell", whole=True, targets=_TILES, meaning=_softmax_grad),
    Instruction(
        "layer_norm", "(x - mean of x) * r * w + b, where r = 1 / sqrt(variance of x + `eps`).",
        ("x", "w", "b"), frozenset({"x"}), optional=2, level="cell", whole=True,
        attrs={"eps": float}, targets=_TILES, meaning=_layer_norm),
    Instruction(
        "inverse_deviation", "The r of a `layer_norm`, its operand.", ("norm",),
        frozenset({"norm"}), level="row", targets=_TILES, meaning=_inverse_deviation),
    Instruction(
        "layer_norm_grad", "d less its mean, where d = g * w * r - c * r**3 * mean of g * w * c,"
        " and c = x - mean. `mean`, `weight`: whether there are such operands. `sum`: whether a"
        " fold wants g * c * r; `cells`: whether anything reads d. `check`: whether c may not be"
        " centred by its mean.", ("g", "x", "r", "mean", "w"), frozenset({"g", "x"}), optional=2,
        level="cell", whole=True,
        attrs={"mean": bool, "weight": bool, "sum": bool, "cells": bool, "check": bool},
        targets=_TILES, meaning=_layer_norm_grad),
)}  # fmt: skip


def is_elementwise(op: str) -> bool:
    """Whether a name that is not in the table is an op of the registry a nest may have."""
    return op in OPS and has_trait(op, "elementwise")


def takes(target: Target, op: str) -> bool:
    """Whether a target has code for an instruction; of elementwise ops it is asked itself."""
    return op not in INSTRUCTIONS or target in INSTRUCTIONS[op].targets


def is_whole(op: str) -> bool:
    """Note [Rows that are computed whole]."""
    return op in INSTRUCTIONS and INSTRUCTIONS[op].whole


def evaluate(space: Space, i: Instr, args: list[Any]) -> Any:
    """The value of an instruction but `store` and `fold`, of half precision rounded."""
    declared = INSTRUCTIONS.get(i.op)
    if declared is not None:
        assert declared.meaning is not None
        value = np.asarray(declared.meaning(space, i, args))
    else:
        value = _elementwise(i, args)
    if i.dtype in HALVES and i.op != "load":
        value = round_bf16(value) if i.dtype == BF16 else value.astype(np.float16)
    return value


def _elementwise(i: Instr, args: list[Any]) -> Any:
    record = get_op(i.op)
    low = lowering(record, "numpy")
    if i.op == "cast":
        args = [np.asarray(args[0])]  # of a number, too
    names = [f"_{k}" for k in range(len(args))]
    space: dict[str, Any] = {"np": np, **dict(zip(names, args, strict=True))}
    if low.function is not None:
        space[low.text] = low.function
    attrs = {k: v for k, v in i.attrs.items() if k in record.attrs}
    return np.asarray(eval(call(record, low, names, attrs), space), to_numpy_dtype(i.dtype))
