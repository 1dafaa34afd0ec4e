"""One scalar op of a loop nest as a Triton expression.

>>> expression("relu", F32, ["x"], [F32], {})
'tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)'

The tables below are what Triton computes itself; every other op is unfolded into these by the
scalar expansion of its statement (`statements`). What `triton.language` has is used where it can
be, and functions made of it (`helpers`), so that triton's interpreter runs the kernel as it is.
Rarer functions are libdevice's, NVIDIA's own, for which the interpreter needs
`gradof.codegen.triton.interpreter`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from gradof.codegen.lowering.scalar import NO_ATTRS, dtypes_of, number_of, unfolded
from gradof.errors import CodegenError
from gradof.ir.attrs import Attr
from gradof.ir.types import BF16, BOOL, F16, F32, F64, I32, I64, DType

NAMES = {
    F32: "float32", F64: "float64", F16: "float16", BF16: "bfloat16", I32: "int32", I64: "int64",
    BOOL: "int1",
}  # fmt: skip
HALF = (F16, BF16)
LIBDEVICE_UNARY = {
    **{name: name for name in (
        "acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "cosh", "erfc", "erfcinv",
        "erfcx", "erfinv", "j0", "j1", "lgamma", "log10", "sinh", "tan", "y0", "y1")},
    "gamma": "tgamma", "i0": "cyl_bessel_i0", "i1": "cyl_bessel_i1", "ndtri": "normcdfinv",
    "round": "rint",
}  # fmt: skip
LIBDEVICE_BINARY = {name: name for name in ("atan2", "fmod", "hypot", "nextafter", "pow")}
_NAN = "propagate_nan=tl.PropagateNan.ALL"
# {0}, {1}: operands. Of numbers of any kind:
_ANY = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}",
    "neg": "-{0}", "abs": "tl.abs({0})", "copy": "{0}", "alias": "{0}", "detach": "{0}",
    "eq": "{0} == {1}", "ne": "{0} != {1}", "lt": "{0} < {1}", "le": "{0} <= {1}",
    "gt": "{0} > {1}", "ge": "{0} >= {1}",
}  # fmt: skip
_LOGICAL = {
    "logical_and": "{0} & {1}", "logical_or": "{0} | {1}", "logical_xor": "{0} ^ {1}",
    "logical_not": "{0} == 0", "bitwise_and": "{0} & {1}", "bitwise_or": "{0} | {1}",
    "bitwise_xor": "{0} ^ {1}", "bitwise_not": "{0} == 0",
}  # fmt: skip
_FLOAT = {
    "div": "{0} / {1}", "exp": "tl.exp({0})", "exp2": "tl.exp2({0})",
    "log": "tl.log({0})", "log2": "tl.log2({0})", "sqrt": "tl.sqrt_rn({0})",
    "sin": "tl.sin({0})", "cos": "tl.cos({0})",
    "erf": "tl.erf({0})", "floor": "tl.floor({0})", "ceil": "tl.ceil({0})",
    "trunc": "tl.where({0} < 0, tl.ceil({0}), tl.floor({0}))",
    "tanh": "_tanh({0})", "expm1": "_expm1({0})", "log1p": "_log1p({0})",
    "spacing": "_spacing({0})", "relu": f"tl.maximum({{0}}, 0.0, {_NAN})",
    "maximum": f"tl.maximum({{0}}, {{1}}, {_NAN})",
    "minimum": f"tl.minimum({{0}}, {{1}}, {_NAN})",
    **{op: f"libdevice.{f}({{0}})" for op, f in LIBDEVICE_UNARY.items()},
    **{op: f"libdevice.{f}({{0}}, {{1}})" for op, f in LIBDEVICE_BINARY.items()},
}  # fmt: skip
_INTEGER = {
    "maximum": "tl.maximum({0}, {1})", "minimum": "tl.minimum({0}, {1})",
    "relu": "tl.maximum({0}, 0)",
    "floor_divide": "_floor_quotient({0}, {1})", "remainder": "_floor_rest({0}, {1})",
    "fmod": "_rest({0}, {1})",
    "bitwise_and": "{0} & {1}", "bitwise_or": "{0} | {1}", "bitwise_xor": "{0} ^ {1}",
    "bitwise_not": "~{0}", "left_shift": "_left_shift({0}, {1}, {bits})",
    "right_shift": "_right_shift({0}, {1}, {bits})",
}  # fmt: skip
_OTHERS = frozenset({"where", "cast", "signbit"})
_DRAWN = frozenset({"philox_kept"})  # by `draws`
_OWN_BITS = frozenset({"nextafter", "spacing"})  # of float32, half precision has no such bits
_SAME = frozenset({"where", "copy", "alias", "detach", "eq", "ne"})  # of bool, too
_LONG = 72  # characters of an expression that others are put into
INTRINSIC = frozenset({*_ANY, *_LOGICAL, *_FLOAT, *_INTEGER, *_OTHERS, *_DRAWN})


def supports(
    op: str, given: Sequence[DType], result: DType, attrs: Mapping[str, Attr] = NO_ATTRS
) -> bool:  # fmt: skip
    """Whether an op on operands of these dtypes can be in a kernel, by its expansion if need be."""
    if any(d not in NAMES for d in (*given, result)):
        return False
    own = given[0] if given else result
    return has(op, given, result) or unfolded(op, own, attrs, has) is not None


def has(op: str, given: Sequence[DType], result: DType) -> bool:
    """Whether an op on operands of these dtypes is one Triton expression."""
    if op not in INTRINSIC or any(d not in NAMES for d in (*given, result)):
        return False
    if op == "cast":  # of nan and of what does not fit
        return not (any(d.is_float for d in given) and result in (I32, I64))
    if op in _SAME or op in _DRAWN:
        return True
    if all(d == BOOL for d in given):
        return op in _LOGICAL
    if op in _ANY:
        return all(d != BOOL for d in given)
    if op in _OWN_BITS and any(d in HALF for d in given):
        return False
    if all(d.is_float for d in given):
        return op in _FLOAT or op in _OTHERS
    return op in _INTEGER and all(d in (I32, I64) for d in given)


def expression(
    op: str, dtype: DType, args: Sequence[str], given: Sequence[DType], attrs: Mapping[str, Attr]
) -> str:
    """The expression; operands are names or literals, tensors of one dtype (`given`) among them.

    Half precision is computed in float32 and rounded. CodegenError for an op that has none.
    """
    if not has(op, given, dtype):
        raise CodegenError(f"{op} of {', '.join(map(str, given))} is no Triton op")
    own = given[0] if given else dtype
    if not given and op != "where":  # of numbers alone, which have no methods
        args = [_typed(a, F32 if dtype in HALF else dtype) for a in args]
    if op == "cast":
        if dtype == BOOL:  # from float32: the interpreter compares the bits of a bfloat16
            return f"{args[0]}{'.to(tl.float32)' if own in HALF else ''} != 0"
        # torch converts to half precision from float32, whatever it starts from
        through = ".to(tl.float32)" if dtype in HALF and given and own not in (F32, *HALF) else ""
        return f"({args[0]}){through}.to(tl.{NAMES[dtype]})"
    if op == "where":
        chosen = (_typed(a, dtype) if dtype == F64 else a for a in args[1:])
        return f"tl.where({', '.join((args[0], *chosen))}).to(tl.{NAMES[dtype]})"
    half = own in HALF and op not in ("copy", "alias", "detach")
    if half:
        args = [f"{a}.to(tl.float32)" if a.isidentifier() else a for a in args]
    working = F32 if half else own
    text = _from_table(op, args, working)
    if own == F32:  # rounded to half precision, a result does not show the fast one's error
        text = text.replace("tl.exp(", "_exp(")
    return f"({text}).to(tl.{NAMES[dtype]})" if half and dtype != BOOL else text


def statements(
    name: str, op: str, dtype: DType, args: Sequence[str], given: Sequence[DType],
    attrs: Mapping[str, Attr],
) -> list[tuple[str, str]]:  # fmt: skip
    """An op as statements: a name and an expression each, `name` last.

    One, or where Triton has no such function those of its scalar expansion.
    """
    if has(op, given, dtype):
        return [(name, expression(op, dtype, args, given, attrs))]
    own = given[0] if given else dtype
    graph = unfolded(op, own, attrs, has)
    if graph is None:
        raise CodegenError(f"{op} of {', '.join(map(str, given))} is no Triton op")
    lines: list[tuple[str, str]] = []
    names = {}
    for value, arg in zip(graph.inputs, args, strict=True):
        if not arg.isidentifier():  # a number has the dtype of what it is computed with
            lines.append((f"{name}__{value.hint}", _typed(arg, F32 if own in HALF else own)))
            arg = lines[-1][0]
        names[value] = arg
    for number, node in enumerate(n for n in graph.nodes() if n.kind != "Constant"):
        text = expression(
            node.kind, dtypes_of(node)[1],
            [names[v] if v in names else literal(number_of(v)) for v in node.inputs],
            dtypes_of(node)[0], node.attrs,
        )  # fmt: skip
        names[node.output] = f"{name}__{number}"
        lines.append((names[node.output], text))
    last = names[graph.outputs[0]]
    if not lines or lines[-1][0] != last:
        return [*lines, (name, last)]
    return _nested([*lines[:-1], (name, lines[-1][1])])


_CALL = re.compile(r"[\w.]+\([^()]*\)")


def _nested(lines: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The statements, with each short expression that one statement reads put there."""
    left = list(lines)
    for name, _ in lines[:-1]:
        place = next(k for k, (other, _) in enumerate(left) if other == name)
        text = left[place][1]
        reads = [len(re.findall(rf"\b{name}\b", t)) for _, t in left]
        if sum(reads) != 1:
            continue
        user, whole = left[reads.index(1)]
        inner = text if _CALL.fullmatch(text) or f"({name})" in whole else f"({text})"
        made = re.sub(rf"\b{name}\b", lambda _, inner=inner: inner, whole)  # type: ignore[misc]
        if len(made) <= _LONG:
            left[reads.index(1)] = (user, made)
            del left[place]
    return left


def _from_table(op: str, args: Sequence[str], own: DType) -> str:
    if op == "signbit":
        return f"{args[0]}.to(tl.{'int64' if own == F64 else 'int32'}, bitcast=True) < 0"
    if op == "pow" and args[1] in ("2.0", "3.0", "2", "3"):  # as eager does
        return " * ".join([args[0]] * int(float(args[1])))
    if own.is_float and op in _FLOAT:
        template = _FLOAT[op]
        # Beside an operator Triton reads a number in the other operand's dtype; as an argument of a
        # function it is a float32, or has no dtype at all.
        beside = op == "div" or (own == F32 and op in ("maximum", "minimum"))
        text = template.format(*(a if beside else _typed(a, own) for a in args))
        # sqrt_rn is of float32; sqrt is exact in float64 and not in float32
        return text.replace("tl.sqrt_rn(", "tl.sqrt(") if own == F64 else text
    if own == BOOL and op in _LOGICAL:
        return _LOGICAL[op].format(*args)
    if op in _INTEGER and not own.is_float:
        if "_" in _INTEGER[op]:
            args = [_typed(a, own) for a in args]
        return _INTEGER[op].format(*args, bits=own.bits)
    return _ANY[op].format(*args)


def _typed(arg: str, dtype: DType) -> str:
    """An operand that has its dtype, also where it is a number."""
    is_number = not arg.removesuffix(".to(tl.float32)").isidentifier()
    return f"tl.full((), {arg}, tl.{NAMES[dtype]})" if is_number else arg


def literal(value: object) -> str:
    """A Python number as Triton reads it."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return f"({value!r})" if isinstance(value, int | float) and value < 0 else repr(value)
