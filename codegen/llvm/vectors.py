"""Scalar ops of a loop nest as LLVM IR over vectors: text, one line per instruction.

    code = Vectors(lanes=16)
    y = code.op("sin", F32, [x], [F32], {})      # %v7 = call <16 x float> @_ZGVeN16v_sinf(...)

Every value is a vector of `lanes` elements, whatever its level; bool is a vector of i1. Elementary
functions are those of libmvec, glibc's vector mathematics (within 4 ulps, subnormals included),
one function per instruction set: b SSE4, d AVX2, e AVX-512.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from gradof.codegen.llvm.exponential import LANES, exp_f32, tanh_f32
from gradof.codegen.llvm.remainder import fmod
from gradof.codegen.lowering.scalar import NO_ATTRS, dtype_of, dtypes_of, number_of, unfolded
from gradof.codegen.machine.engine import half_dtypes
from gradof.codegen.machine.llvm_types import ELEMENT, STORED, Instructions
from gradof.errors import CodegenError
from gradof.ir.attrs import Attr
from gradof.ir.opinfo import OPS
from gradof.ir.types import BOOL, F16, F32, F64, I32, I64, DType
from gradof.ops.cost import is_expensive
from gradof.ops.registry import Op

_STRAIGHT = {"exp": exp_f32, "tanh": tanh_f32}
FLOATS = (F32, F64)
# Functions of libmvec: op -> (name, number of operands).
LIBMVEC = {
    **{n: (n, 1) for n in (
        "exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "sin", "cos", "tan", "tanh",
        "sinh", "cosh", "asin", "acos", "atan", "asinh", "acosh", "atanh", "erf", "erfc", "cbrt")},
    "pow": ("pow", 2), "atan2": ("atan2", 2), "hypot": ("hypot", 2),
}  # fmt: skip
INTRINSICS = {
    "sqrt": "sqrt", "abs": "fabs", "floor": "floor", "ceil": "ceil", "trunc": "trunc",
    "round": "roundeven",
}  # fmt: skip
COMPARE = {
    "eq": ("oeq", "eq"), "ne": ("une", "ne"), "lt": ("olt", "slt"), "le": ("ole", "sle"),
    "gt": ("ogt", "sgt"), "ge": ("oge", "sge"),
}  # fmt: skip
ARITHMETIC = {"add": ("fadd", "add"), "sub": ("fsub", "sub"), "mul": ("fmul", "mul")}
LOGICAL = {"logical_and": "and", "logical_or": "or", "logical_xor": "xor"}
BITWISE = {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor"}
# Instructions, or a few: the methods of `Vectors` with an underscore before the name.
_OWN = frozenset(
    {"neg", "div", "where", "cast", "copy", "alias", "detach", "logical_not", "bitwise_not",
     "isnan", "signbit", "maximum", "minimum", "fmod"}
)  # fmt: skip
_NESTS = frozenset({"rounded"})  # instructions of nests that are no ops
INTRINSIC = frozenset({*LIBMVEC, *INTRINSICS, *COMPARE, *ARITHMETIC, *LOGICAL, *BITWISE, *_OWN})
_FLOAT_ONLY = frozenset({*LIBMVEC, *INTRINSICS} - {"abs"}) | {"div", "isnan", "signbit", "fmod"}


def has(op: str, dtypes: Sequence[DType], result: DType) -> bool:
    """Whether an op on operands of these dtypes is an instruction or a function here."""
    if op not in INTRINSIC or result not in ELEMENT or any(d not in ELEMENT for d in dtypes):
        return False
    if op in _FLOAT_ONLY:
        return all(d in FLOATS for d in dtypes)
    if op in LOGICAL or op == "logical_not":
        return all(d is BOOL for d in dtypes)
    if op in BITWISE or op == "bitwise_not":
        return all(d not in FLOATS for d in dtypes)
    if op in ("maximum", "minimum", "neg", "abs", *ARITHMETIC):
        return all(d is not BOOL for d in dtypes)
    return True


def supports(
    op: str, dtypes: Sequence[DType], result: DType, attrs: Mapping[str, Attr] = NO_ATTRS
) -> bool:  # fmt: skip
    """Whether an op on operands of these dtypes can be native code, by its expansion if need be."""
    halves = half_dtypes()  # computed in float32
    dtypes = [F32 if d in halves else d for d in dtypes]
    result = F32 if result in halves else result
    if has(op, dtypes, result):
        return True
    own = dtypes[0] if dtypes else result
    return own in ELEMENT and unfolded(op, own, attrs, has) is not None


class Vectors(Instructions):
    """Instructions on vectors of `lanes` elements."""

    def __init__(self, lanes: int) -> None:
        super().__init__()
        self.lanes = lanes

    def vector(self, dtype: DType, stored: bool = False) -> str:
        """The LLVM type of a vector of a dtype."""
        return f"<{self.lanes} x {(STORED if stored else ELEMENT)[dtype]}>"

    def call(self, function: str, dtype: DType, args: Sequence[str], extra: str = "") -> str:
        """A call of a function of vectors of one dtype."""
        v = self.vector(dtype)
        self.declare(function, f"declare {v} @{function}({', '.join([v] * len(args))}{extra})")
        given = ", ".join(f"{v} {a}" for a in args)
        tail = extra.replace("i1", "i1 false") if extra else ""
        return self.emit(f"call {v} @{function}({given}{tail})")

    def intrinsic(self, name: str, dtype: DType, args: Sequence[str]) -> str:
        """An intrinsic of LLVM that is overloaded on the vector type."""
        kind = {F32: "f32", F64: "f64", I64: "i64", I32: "i32"}[dtype]
        return self.call(f"llvm.{name}.v{self.lanes}{kind}", dtype, args)

    def constant(self, value: float, dtype: DType) -> str:
        """A vector of one number."""
        if dtype in FLOATS:
            text = _float(float(value), dtype)
        elif dtype is BOOL:
            text = "true" if value else "false"
        else:
            text = str(int(value))
        return "<" + ", ".join([f"{ELEMENT[dtype]} {text}"] * self.lanes) + ">"

    # --- ops -------------------------------------------------------------------------------------

    def op(
        self, kind: str, dtype: DType, args: Sequence[str], given: Sequence[DType],
        attrs: Mapping[str, Any],
    ) -> str:  # fmt: skip
        """One op on operands of the dtypes `given`; CodegenError for one that is not native."""
        own = given[0] if given else dtype
        if kind not in _NESTS and not has(kind, given, dtype):
            return self.unfolded(kind, own, args, attrs)
        if kind in ARITHMETIC:
            return self.binary(ARITHMETIC[kind][own not in FLOATS], own, args)
        if kind in COMPARE:
            word = "fcmp" if own in FLOATS else "icmp"
            how = COMPARE[kind][own not in FLOATS]
            if own is BOOL:  # true is -1 to a signed comparison
                how = how.replace("s", "u", 1)
            return self.emit(f"{word} {how} {self.vector(own)} {args[0]}, {args[1]}")
        if kind in LOGICAL:
            return self.binary(LOGICAL[kind], BOOL, args)
        if kind in BITWISE:
            return self.binary(BITWISE[kind], own, args)
        if kind in LIBMVEC:
            return self.library(kind, own, args)
        if kind == "abs" and own not in FLOATS:
            return self.emit(self.select(own, self._negative(own, args[0]),
                                          self._minus(own, args[0]), args[0]))  # fmt: skip
        if kind in INTRINSICS:
            return self.intrinsic(INTRINSICS[kind], own, args)
        result: str = getattr(self, f"_{kind}")(own, dtype, args, given, attrs)
        return result

    def unfolded(
        self, kind: str, own: DType, args: Sequence[str], attrs: Mapping[str, Any]
    ) -> str:  # fmt: skip
        """An op by the scalar expansion of its statement."""
        graph = unfolded(kind, own, attrs, has)
        if graph is None:
            raise CodegenError(f"{kind} is no native op")
        names = dict(zip(graph.inputs, args, strict=True))
        for node in graph.nodes():
            if node.kind == "Constant":
                continue
            given = [dtype_of(v, node) for v in node.inputs]
            operands = [
                names[v] if v in names else self.constant(number_of(v), d)
                for v, d in zip(node.inputs, given, strict=True)
            ]
            _, dtype = dtypes_of(node)
            names[node.output] = self.op(node.kind, dtype, operands, given, node.attrs)
        return names[graph.outputs[0]]

    def binary(self, word: str, dtype: DType, args: Sequence[str]) -> str:
        """An instruction with two operands."""
        return self.emit(f"{word} {self.vector(dtype)} {args[0]}, {args[1]}")

    def library(self, kind: str, dtype: DType, args: Sequence[str]) -> str:
        """A function of libmvec, or the code of it."""
        if kind in _STRAIGHT and self.is_inline(kind, dtype):
            return _STRAIGHT[kind](self, *args)
        name, n = LIBMVEC[kind]
        suffix = "f" if dtype is F32 else ""
        symbol = f"_ZGV{self._isa(dtype)}N{self.lanes}{'v' * n}_{name}{suffix}"
        return self.call(symbol, dtype, args)

    def is_inline(self, op: str, dtype: DType) -> bool:
        """Whether an op that is a function of the library for others is straight code here."""
        if dtype is not F32 or self.lanes != LANES:
            return False
        parts = [op] if op in _STRAIGHT else _parts(op)
        return bool(parts) and all(p in _STRAIGHT for p in parts)

    def _isa(self, dtype: DType) -> str:
        bits = self.lanes * dtype.bits
        return {128: "b", 256: "d", 512: "e"}[bits]

    def select(self, dtype: DType, mask: str, a: str, b: str) -> str:
        """The text of a choice per lane."""
        v = self.vector(dtype)
        return f"select <{self.lanes} x i1> {mask}, {v} {a}, {v} {b}"

    def _negative(self, dtype: DType, x: str) -> str:
        return self.emit(f"icmp slt {self.vector(dtype)} {x}, {self.constant(0, dtype)}")

    def _minus(self, dtype: DType, x: str) -> str:
        return self.emit(f"sub {self.vector(dtype)} {self.constant(0, dtype)}, {x}")

    def _neg(self, own: DType, *rest: Any) -> str:
        (x,) = rest[1]
        return self.emit(f"fneg {self.vector(own)} {x}") if own in FLOATS else self._minus(own, x)

    def _div(self, own: DType, dtype: DType, args: Sequence[str], *_: Any) -> str:
        return self.binary("fdiv", own, args)

    def _maximum(self, own: DType, dtype: DType, args: Sequence[str], *_: Any) -> str:
        return self._extreme("maximum", own, args)

    def _minimum(self, own: DType, dtype: DType, args: Sequence[str], *_: Any) -> str:
        return self._extreme("minimum", own, args)

    def _extreme(self, kind: str, own: DType, args: Sequence[str]) -> str:
        """As numpy has it: the first if it is not the lesser one, or nan. Two comparisons and a
        choice; LLVM's own, which tells -0 from 0, takes twice that."""
        if own not in FLOATS:
            return self.intrinsic("smax" if kind == "maximum" else "smin", own, args)
        v, how = self.vector(own), "oge" if kind == "maximum" else "ole"
        first = self.emit(f"fcmp {how} {v} {args[0]}, {args[1]}")
        nan = self.emit(f"fcmp uno {v} {args[0]}, {args[0]}")
        return self.emit(self.select(own, self.binary("or", BOOL, [first, nan]), *args))

    def _where(self, own: DType, dtype: DType, args: Sequence[str], *_: Any) -> str:
        return self.emit(self.select(dtype, *args))

    def _copy(self, own: DType, dtype: DType, args: Sequence[str], *_: Any) -> str:
        return args[0]

    _detach = _alias = _copy

    def _fmod(self, own: DType, dtype: DType, args: Sequence[str], *_: Any) -> str:
        return fmod(self, own, args)

    def _signbit(self, own: DType, dtype: DType, args: Sequence[str], *_: Any) -> str:
        whole = I32 if own is F32 else I64
        bits = self.emit(f"bitcast {self.vector(own)} {args[0]} to {self.vector(whole)}")
        return self._negative(whole, bits)

    def _bitwise_not(self, own: DType, dtype: DType, args: Sequence[str], *_: Any) -> str:
        return self.binary("xor", own, [args[0], self.constant(1 if own is BOOL else -1, own)])

    def _logical_not(self, own: DType, dtype: DType, args: Sequence[str], *_: Any) -> str:
        return self.binary("xor", BOOL, [args[0], self.constant(1, BOOL)])

    def _isnan(self, own: DType, dtype: DType, args: Sequence[str], *_: Any) -> str:
        return self.emit(f"fcmp uno {self.vector(own)} {args[0]}, {args[0]}")

    def _cast(self, own: DType, dtype: DType, args: Sequence[str], *_: Any) -> str:
        (x,) = args
        if own == dtype:
            return x
        if dtype is BOOL:
            word, how = ("fcmp", "une") if own in FLOATS else ("icmp", "ne")
            return self.emit(f"{word} {how} {self.vector(own)} {x}, {self.constant(0, own)}")
        word = {
            (True, True): "fpext" if dtype is F64 else "fptrunc",
            (True, False): "fptosi",
            (False, True): "uitofp" if own is BOOL else "sitofp",
            (False, False): "zext" if own is BOOL else "sext" if dtype is I64 else "trunc",
        }[own in FLOATS, dtype in FLOATS]
        return self.emit(f"{word} {self.vector(own)} {x} to {self.vector(dtype)}")


    # --- half precision: bits of 16 in memory, float32 in a register ------------------------------

    def widened(self, bits: str, dtype: DType) -> str:
        """A vector of bfloat16 or float16, as its bits, in float32."""
        wide, n = self.vector(F32), self.lanes
        if dtype == F16:
            halves = self.emit(f"bitcast <{n} x i16> {bits} to <{n} x half>")
            return self.emit(f"fpext <{n} x half> {halves} to {wide}")
        long = self.emit(f"zext <{n} x i16> {bits} to <{n} x i32>")
        high = self.binary("shl", I32, [long, self.constant(16, I32)])
        return self.emit(f"bitcast {self.vector(I32)} {high} to {wide}")

    def narrowed(self, value: str, dtype: DType) -> str:
        """The bits of float32 numbers that a half precision has."""
        wide, n = self.vector(F32), self.lanes
        if dtype == F16:
            halves = self.emit(f"fptrunc {wide} {value} to <{n} x half>")
            return self.emit(f"bitcast <{n} x half> {halves} to <{n} x i16>")
        bits = self.emit(f"bitcast {wide} {value} to {self.vector(I32)}")
        high = self.binary("lshr", I32, [bits, self.constant(16, I32)])
        return self.emit(f"trunc {self.vector(I32)} {high} to <{n} x i16>")

    def _rounded(
        self, own: DType, dtype: DType, args: Sequence[str], given: Any, attrs: Mapping[str, Any]
    ) -> str:
        """To the nearest number of a half precision, ties to even, in float32; nan stays nan.

        `any_nan`: one whose low bits are set could become infinity, or a number.
        """
        (x,), half = args, attrs["dtype"]
        if half == F16:
            return self.widened(self.narrowed(x, F16), F16)
        whole = self.vector(I32)
        bits = self.emit(f"bitcast {self.vector(F32)} {x} to {whole}")
        low = self.binary("lshr", I32, [bits, self.constant(16, I32)])
        even = self.binary("and", I32, [low, self.constant(1, I32)])
        up = self.binary("add", I32, [even, self.constant(0x7FFF, I32)])
        sum_ = self.binary("add", I32, [bits, up])
        kept = self.binary("and", I32, [sum_, self.constant(-0x10000, I32)])
        if attrs["any_nan"]:
            number = self.emit(f"fcmp ord {self.vector(F32)} {x}, {x}")
            kept = self.emit(self.select(I32, number, kept, self.constant(0x7FC00000, I32)))
        return self.emit(f"bitcast {whole} {kept} to {self.vector(F32)}")


@functools.cache
def _parts(op: str) -> tuple[str, ...]:
    """The expensive ops that one without attributes unfolds to."""
    record = OPS.get(op)
    if not isinstance(record, Op) or record.attrs:
        return ()
    graph = unfolded(op, F32, {}, has)
    return () if graph is None else tuple(n.kind for n in graph.nodes() if is_expensive(n.kind))


def _float(value: float, dtype: DType) -> str:
    """A float as LLVM writes it: the bits of the double that is exactly the number."""
    if dtype is F32 and math.isfinite(value):
        try:
            (value,) = struct.unpack("<f", struct.pack("<f", value))
        except OverflowError:
            value = math.copysign(math.inf, value)
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
