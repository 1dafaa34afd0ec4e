"""A native function of pointers as a function that Python calls with arrays.

    f = python_function("loss", Entry(code, address, arena=4096, ...), slow)
    f(x, w)                              # a tuple of fresh arrays

The call goes from Python to machine code without anything in between: `entry` is a function of
Python's C interface (METH_FASTCALL). It looks at each argument: an array, contiguous and aligned,
of which it takes the address; makes the results by numpy's C interface; and calls the function with
the addresses of both. Where an argument is anything else, or the function says that it failed, it
calls `slow` with the same arguments. Dtypes and shapes are the caller's to check.

Scratch is the function's, or all functions' (`arena`); who comes while it is in use has its own.

Note [Layout of objects]
Offsets of CPython's objects and numpy's arrays are those of their C headers, which extension
modules have compiled in. `is_known` looks whether they hold here: not in a Python without the GIL.
"""

from __future__ import annotations

import ctypes
import functools
import math
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradof.codegen.machine.arena import arena_of
from gradof.codegen.machine.engine import Code, address_of
from gradof.ops.memory import is_aligned as is_pooled
from gradof.ops.memory import maker

# Places of the table's fields, numbers of 64 bits.
CODE, INPUTS, OUTPUTS, ARENA, CONSTANTS, BUSY = range(6)
ARENA_SIZE, SLOW, ARRAY_TYPE, NEW, RELEASE = range(6, 11)
FIELDS, PER_OUTPUT = 11, 4  # of each result: dims, address of the sizes, number of the dtype, and
# what makes it, 0 where numpy does
_ASKS = -1  # as the number of inputs, which no call has
_TYPE, DATA, _FLAGS, ITEMS = 8, 16, 64, 24  # offsets: of an object, of an array, of a tuple
_CONTIGUOUS_ALIGNED = 0x101
_PY_ARRAY_TYPE, _PY_ARRAY_NEW = 2, 93  # in numpy's table of functions
_FASTCALL = 0x80


@dataclass(frozen=True)
class Entry:
    """What is called, and with what beside the arguments. The function holds the code.

    `outputs`: shape and numpy dtype of each. `release`: others may run Python meanwhile.
    """

    code: Code
    address: int
    inputs: int
    outputs: Sequence[tuple[tuple[int, ...], Any]]
    arena: int
    constants: Any  # of `aligned_copy`
    release: bool
    kept: Sequence[Any] = ()  # what the constants have the addresses of


def python_function(name: str, entry: Entry, slow: Callable[..., Any]) -> Callable[..., Any]:
    """A builtin function; see the module docstring."""
    return function_of(_method(name), table_of(entry, slow))


class Watched:
    """The same of code that may be replaced. While it `asks`, each call goes to `slow`."""

    def __init__(self, name: str, entry: Entry, slow: Callable[..., Any]) -> None:
        self._inputs = entry.inputs
        self._table = table_of(entry, slow)
        self.function = function_of(_method(name), self._table)

    @property
    def asks(self) -> bool:
        """Whether calls go to `slow`."""
        return bool(self._table[INPUTS] == _ASKS)

    @asks.setter
    def asks(self, asks: bool) -> None:
        self._table[INPUTS] = _ASKS if asks else self._inputs

    def replace(self, code: Code, address: int) -> None:
        """Other code for the same function. What a thread may be in is kept."""
        self._table.kept = (*self._table.kept, code)
        self._table[CODE] = address


def table_of(entry: Entry, slow: Callable[..., Any]) -> Any:
    """What the native function is told; it holds what it points to."""
    length = FIELDS + PER_OUTPUT * len(entry.outputs)
    kind: Any = type("Table", (ctypes.c_int64 * length,), {})
    table = kind()
    arena = arena_of(entry.arena)
    places = arena.start, entry.constants.__array_interface__["data"][0]
    shapes = [np.array(shape, np.int64) for shape, _ in entry.outputs]
    makers: list[Callable[[], Any]] = []
    api = _numpy_api()
    table[CODE], table[INPUTS], table[OUTPUTS] = entry.address, entry.inputs, len(entry.outputs)
    table[ARENA], table[CONSTANTS], table[ARENA_SIZE] = *places, entry.arena
    table[SLOW], table[RELEASE], table[BUSY] = id(slow), entry.release, arena.flag
    table[ARRAY_TYPE], table[NEW] = api[_PY_ARRAY_TYPE], api[_PY_ARRAY_NEW]
    for k, ((shape, dtype), sizes) in enumerate(zip(entry.outputs, shapes, strict=True)):
        at = FIELDS + PER_OUTPUT * k
        table[at] = len(shape)
        table[at + 1] = sizes.__array_interface__["data"][0]
        table[at + 2] = np.dtype(dtype).num
        if is_pooled(math.prod(shape) * np.dtype(dtype).itemsize):
            makers.append(maker(shape, np.dtype(dtype)))
            table[at + 3] = id(makers[-1])
    table.kept = (arena, entry.constants, shapes, slow, entry.code, makers, entry.kept)
    return table


def function_of(method: MethodDef, table: Any) -> Callable[..., Any]:
    """A function of Python's, whose native code gets the table as its first argument."""
    make = ctypes.PYFUNCTYPE(
        ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p
    )(("PyCFunction_NewEx", ctypes.pythonapi))
    made: Callable[..., Any] = make(ctypes.addressof(method), table, None)
    return made


def aligned(size: int) -> Any:
    """Bytes of memory that begin at a line of the cache."""
    whole = np.empty(size + 64, np.uint8)
    start = -whole.__array_interface__["data"][0] % 64
    return whole[start : start + size]


def aligned_copy(data: bytes) -> Any:
    """The bytes, in memory that begins at a line of the cache."""
    made = aligned(len(data))
    made[:] = np.frombuffer(data, np.uint8)
    return made


class MethodDef(ctypes.Structure):
    """`PyMethodDef` of Python's C interface: the name, address and flags of a built-in function."""

    _fields_ = (
        ("name", ctypes.c_char_p), ("meth", ctypes.c_void_p), ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )  # fmt: skip


@functools.cache
def _method(name: str) -> MethodDef:
    """One for each name, never freed: a function reads it last of all, when it is freed itself."""
    return MethodDef(name.encode(), address_of(entry_text(), "entry", "plain"), _FASTCALL, None)


@functools.cache
def _numpy_api() -> Any:
    """numpy's table of C functions, as numbers."""
    module = __import__("numpy._core._multiarray_umath", fromlist=["_ARRAY_API"])
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = get(module._ARRAY_API, None)
    return (ctypes.c_int64 * (_PY_ARRAY_NEW + 1)).from_address(address)


@functools.cache
def is_known() -> bool:
    """Note [Layout of objects]."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return False
    try:
        api = _numpy_api()
    except (ImportError, AttributeError):
        return False
    word: Callable[[int], int] = lambda at: ctypes.c_int64.from_address(at).value  # noqa: E731
    array, pair = np.zeros((2, 3))[:, ::2], (None, ...)
    table = (ctypes.c_int64 * 1)()
    flags = ctypes.c_int32.from_address(id(array) + _FLAGS).value
    return (
        word(id(array) + _TYPE) == id(np.ndarray) == api[_PY_ARRAY_TYPE]
        and word(id(array) + DATA) == array.__array_interface__["data"][0]
        and flags & _CONTIGUOUS_ALIGNED == 0x100
        and word(id(table) + DATA) == ctypes.addressof(table)
        and word(id(pair) + ITEMS + 8) == id(...)
    )


def _field(name: str, place: int) -> str:
    return (
        f"  %{name}_at = getelementptr i64, ptr %table, i64 {place}\n"
        f"  %{name} = load i64, ptr %{name}_at\n"
    )


def entry_text() -> str:
    """The function of Python's C interface; see the module docstring."""
    fields = "".join(_field(name, place) for name, place in (
        ("code_int", CODE), ("n", INPUTS), ("m", OUTPUTS), ("arena_int", ARENA),
        ("constants_int", CONSTANTS), ("arena_size", ARENA_SIZE), ("slow_int", SLOW),
        ("array_type", ARRAY_TYPE), ("new_int", NEW), ("release", RELEASE), ("busy_int", BUSY),
    ))  # fmt: skip
    return f"""
declare ptr @PyTuple_New(i64)
declare void @Py_DecRef(ptr)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare ptr @PyObject_CallNoArgs(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare noalias ptr @malloc(i64)
declare void @free(ptr)

define ptr @entry(ptr %self, ptr %args, i64 %given) {{
entry:
  %table_at = getelementptr i8, ptr %self, i64 {DATA}
  %table = load ptr, ptr %table_at
{fields}  %code = inttoptr i64 %code_int to ptr
  %constants = inttoptr i64 %constants_int to ptr
  %slow = inttoptr i64 %slow_int to ptr
  %new = inttoptr i64 %new_int to ptr
  %array_class = inttoptr i64 %array_type to ptr
  %busy_at = inttoptr i64 %busy_int to ptr
  %places = add i64 %n, %m
  %io = alloca ptr, i64 %places
  %as_many = icmp eq i64 %given, %n
  br i1 %as_many, label %argument, label %other_way

{_arguments_text()}
{_results_text()}
{_run_text()}
other_way:
  %else = call ptr @PyObject_Vectorcall(ptr %slow, ptr %args, i64 %given, ptr null)
  ret ptr %else
}}
"""


def _arguments_text() -> str:
    return f"""argument:
  %i = phi i64 [ 0, %entry ], [ %i2, %keep ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %look, label %results

look:
  %arg_at = getelementptr ptr, ptr %args, i64 %i
  %arg = load ptr, ptr %arg_at
  %type_at = getelementptr i8, ptr %arg, i64 {_TYPE}
  %type = load i64, ptr %type_at
  %is_array = icmp eq i64 %type, %array_type
  br i1 %is_array, label %flags_of, label %other_way

flags_of:
  %flags_at = getelementptr i8, ptr %arg, i64 {_FLAGS}
  %flags = load i32, ptr %flags_at
  %both = and i32 %flags, {_CONTIGUOUS_ALIGNED}
  %fits = icmp eq i32 %both, {_CONTIGUOUS_ALIGNED}
  br i1 %fits, label %keep, label %other_way

keep:
  %data_at = getelementptr i8, ptr %arg, i64 {DATA}
  %data = load ptr, ptr %data_at
  %place = getelementptr ptr, ptr %io, i64 %i
  store ptr %data, ptr %place
  %i2 = add i64 %i, 1
  br label %argument
"""


_ARRAY = """  %maker_at = getelementptr i64, ptr %nd_at, i64 3
  %maker_int = load i64, ptr %maker_at
  %numpys = icmp eq i64 %maker_int, 0
  br i1 %numpys, label %fresh, label %pooled

fresh:
  %array_1 = call ptr %new(ptr %array_class, i32 %nd, ptr %sizes, i32 %kind, ptr null, ptr null,
                           i32 0, i32 0, ptr null)
  br label %there

pooled:
  %maker = inttoptr i64 %maker_int to ptr
  %array_2 = call ptr @PyObject_CallNoArgs(ptr %maker)
  br label %there

there:
  %array = phi ptr [ %array_1, %fresh ], [ %array_2, %pooled ]
"""  # by whoever makes it


def _results_text() -> str:
    return f"""results:
  %tuple = call ptr @PyTuple_New(i64 %m)
  %no_tuple = icmp eq ptr %tuple, null
  br i1 %no_tuple, label %nothing, label %result

nothing:
  ret ptr null

result:
  %j = phi i64 [ 0, %results ], [ %j2, %made ]
  %left = icmp slt i64 %j, %m
  br i1 %left, label %make, label %scratch

make:
  %skip = mul i64 %j, {PER_OUTPUT}
  %first = add i64 %skip, {FIELDS}
  %nd_at = getelementptr i64, ptr %table, i64 %first
  %nd_long = load i64, ptr %nd_at
  %nd = trunc i64 %nd_long to i32
  %sizes_at = getelementptr i64, ptr %nd_at, i64 1
  %sizes_int = load i64, ptr %sizes_at
  %sizes = inttoptr i64 %sizes_int to ptr
  %kind_at = getelementptr i64, ptr %nd_at, i64 2
  %kind_long = load i64, ptr %kind_at
  %kind = trunc i64 %kind_long to i32
{_ARRAY}  %no_array = icmp eq ptr %array, null
  br i1 %no_array, label %lost, label %made

lost:
  call void @Py_DecRef(ptr %tuple)
  ret ptr null

made:
  %tuple_bytes = mul i64 %j, 8
  %item = add i64 %tuple_bytes, {ITEMS}
  %item_at = getelementptr i8, ptr %tuple, i64 %item
  store ptr %array, ptr %item_at
  %memory_at = getelementptr i8, ptr %array, i64 {DATA}
  %memory = load ptr, ptr %memory_at
  %io_index = add i64 %n, %j
  %io_at = getelementptr ptr, ptr %io, i64 %io_index
  store ptr %memory, ptr %io_at
  %j2 = add i64 %j, 1
  br label %result
"""


def _run_text() -> str:
    return f"""scratch:
  %before = atomicrmw xchg ptr %busy_at, i64 1 acquire
  %is_free = icmp eq i64 %before, 0
  br i1 %is_free, label %own, label %another

own:
  %own_arena = inttoptr i64 %arena_int to ptr
  br label %begin

another:
  %size = add i64 %arena_size, 64
  %block = call ptr @malloc(i64 %size)
  %block_int = ptrtoint ptr %block to i64
  %beyond = add i64 %block_int, 63
  %even = and i64 %beyond, -64
  %borrowed = inttoptr i64 %even to ptr
  %none = icmp eq ptr %block, null
  br i1 %none, label %undo, label %begin

begin:
  %arena = phi ptr [ %own_arena, %own ], [ %borrowed, %another ]
  %mine = phi ptr [ null, %own ], [ %block, %another ]
  %long = icmp ne i64 %release, 0
  br i1 %long, label %let_go, label %stay

let_go:
  %thread = call ptr @PyEval_SaveThread()
  %status_1 = call i32 %code(ptr %io, ptr %arena, ptr %constants)
  call void @PyEval_RestoreThread(ptr %thread)
  br label %end

stay:
  %status_2 = call i32 %code(ptr %io, ptr %arena, ptr %constants)
  br label %end

{_end_text()}"""


def _end_text() -> str:
    return """end:
  %status = phi i32 [ %status_1, %let_go ], [ %status_2, %stay ]
  %is_mine = icmp eq ptr %mine, null
  br i1 %is_mine, label %give_back, label %drop

give_back:
  store atomic i64 0, ptr %busy_at release, align 8
  br label %ended

drop:
  call void @free(ptr %mine)
  br label %ended

ended:
  %well = icmp eq i32 %status, 0
  br i1 %well, label %done, label %undo

undo:
  call void @Py_DecRef(ptr %tuple)
  br label %other_way

done:
  ret ptr %tuple
"""
