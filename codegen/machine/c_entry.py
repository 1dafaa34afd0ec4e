"""A native function of a graph as a C function: no Python, no lock, scratch of its own each call.

    address = c_function("pointers", CEntry(code, inputs=2, outputs=3, arena=4096, constants=...))

The forms, `f` being 0, or 1 where an index is out of range or a matrix has no inverse:

    pointers   int32_t f(void *const *inputs, void *const *outputs)
    number     double f(int32_t n, double *x, void *data)                       nan where it fails
    logp       int64_t f(uint64_t n, double *x, double *gradient, double *value, void *data)

Arrays are contiguous and of the shapes and dtypes that were agreed on; `n` is not looked at.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Literal

from gradof.codegen.machine.engine import address_once

Form = Literal["pointers", "number", "logp"]
_STACK = 1 << 15  # bytes of scratch that are taken from the stack
_P = ctypes.c_void_p
PROTOTYPES: dict[Form, Any] = {
    "pointers": ctypes.CFUNCTYPE(ctypes.c_int32, _P, _P),
    "number": ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int32, _P, _P),
    "logp": ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_uint64, _P, _P, _P, _P),
}
DECLARATIONS: dict[Form, str] = {
    "pointers": "int32_t f(void *const *inputs, void *const *outputs)",
    "number": "double f(int32_t n, double *x, void *data)",
    "logp": "int64_t f(uint64_t n, double *x, double *gradient, double *value, void *data)",
}
_HEADS: dict[Form, str] = {
    "pointers": "i32 @call(ptr %inputs, ptr %outputs)",
    "number": "double @call(i32 %n, ptr %x, ptr %data)",
    "logp": "i64 @call(i64 %n, ptr %x, ptr %gradient, ptr %value, ptr %data)",
}
_TAILS: dict[Form, str] = {
    "pointers": "  ret i32 %status",
    "number": "  %found = load double, ptr %number\n"
              "  %well = icmp eq i32 %status, 0\n"
              "  %result = select i1 %well, double %found, double 0x7FF8000000000000\n"
              "  ret double %result",
    "logp": "  %wide = zext i32 %status to i64\n  ret i64 %wide",
}  # fmt: skip


@dataclass(frozen=True)
class CEntry:
    """What is called: its address, how many pointers it takes, bytes of scratch, constants."""

    address: int
    inputs: int
    outputs: int
    arena: int
    constants: int


def c_function(form: Form, entry: CEntry) -> int:
    """The address of a C function; see the module docstring."""
    return address_once(c_text(form, entry), "call")


def c_text(form: Form, entry: CEntry) -> str:
    """Its LLVM IR, which holds addresses of this process."""
    places = []
    if form == "pointers":
        for stem, count, first in (("inputs", entry.inputs, 0),
                                   ("outputs", entry.outputs, entry.inputs)):  # fmt: skip
            for k in range(count):
                places.append(
                    f"  %{stem}{k}_at = getelementptr ptr, ptr %{stem}, i64 {k}\n"
                    f"  %{stem}{k} = load ptr, ptr %{stem}{k}_at\n" + _put(first + k, f"%{stem}{k}")
                )
    elif form == "number":
        places = ["  %number = alloca double\n", _put(0, "%x"), _put(1, "%number")]
    else:
        places = [_put(0, "%x"), _put(1, "%value"), _put(2, "%gradient")]
    size = entry.arena + 64
    small = size <= _STACK
    arena = (
        f"  %arena = alloca i8, i64 {size}, align 64\n" if small
        else f"  %arena = call ptr @aligned_alloc(i64 64, i64 {-(-size // 64) * 64})\n"
    )  # fmt: skip
    drop = "" if small else "  call void @free(ptr %arena)\n"
    failed = {"pointers": "i32 1", "number": "double 0x7FF8000000000000", "logp": "i64 1"}[form]
    return f"""declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)

define {_HEADS[form]} {{
  %io = alloca ptr, i64 {entry.inputs + entry.outputs}
{''.join(places)}{arena}  %none = icmp eq ptr %arena, null
  br i1 %none, label %out, label %go
out:
  ret {failed}
go:
  %code = inttoptr i64 {entry.address} to ptr
  %constants = inttoptr i64 {entry.constants} to ptr
  %status = call i32 %code(ptr %io, ptr %arena, ptr %constants)
{drop}{_TAILS[form]}
}}
"""


def _put(k: int, pointer: str) -> str:
    return f"  %io{k} = getelementptr ptr, ptr %io, i64 {k}\n  store ptr {pointer}, ptr %io{k}\n"
