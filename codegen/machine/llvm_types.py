"""Dtypes as types of LLVM: of values in registers, and of elements in memory."""

from __future__ import annotations

from gradof.ir.types import BF16, BOOL, F16, F32, F64, I32, I64

ELEMENT = {F32: "float", F64: "double", I64: "i64", I32: "i32", BOOL: "i1"}
STORED = {**ELEMENT, BOOL: "i8", BF16: "i16", F16: "i16"}
