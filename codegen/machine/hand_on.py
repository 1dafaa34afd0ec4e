"""Calls handed on to a function in one native call, while what is asked first is answered as ever.

    call = hand_on(Handing(fn, 1, [Question(torch.is_grad_enabled, (), True), ...], ...))
    call(args, kwargs)                   # fn(*args), or what `other` makes of it

Each question is a call of a function, with fixed arguments or with those of the call, whose answer
is an object. Where one is another object, where there are keywords, or another number of arguments,
`other(args, kwargs)` runs; every so many calls `again(args, kwargs)` does.

Places of fields are those of Note [Layout of objects] in `python_entry`.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gradof.codegen.machine.engine import address_of, vector_bits
from gradof.codegen.machine.python_entry import DATA, ITEMS, MethodDef, function_of, is_known

# Places of the table's fields, numbers of 64 bits. Behind them are the rows of the questions.
FUNCTION, OTHER, AGAIN, ARGUMENTS, LEFT, EVERY, COUNTED, QUESTIONS, FIELDS = range(9)
ASKED, GIVEN, FIXED, EXPECTED, ROW = range(5)  # of a row: function, how many arguments, the one
_OF_CALL = -1  # as the number of arguments: those of the call
_FASTCALL = 0x80

Quick = Callable[[tuple[Any, ...], dict[str, Any]], Any]


@dataclass(frozen=True)
class Question:
    """`asked(argument)` is to be `expected`; of no argument, or of the call's for None."""

    asked: Callable[..., Any]
    arguments: tuple[Any, ...] | None
    expected: Any

    def row(self) -> list[int]:
        """As the native code reads it; one fixed argument at most."""
        given = _OF_CALL if self.arguments is None else len(self.arguments)
        return [id(self.asked), given, id(self.arguments[0]) if self.arguments else 0,
                id(self.expected)]  # fmt: skip


@dataclass(frozen=True)
class Handing:
    """What is called with how many arguments, what is asked before, and who runs otherwise.

    `counted` is a number that is one more for each call of the function.
    """

    function: Callable[..., Any]
    arguments: int
    questions: Sequence[Question]
    other: Quick
    again: Quick
    every: int
    counted: ctypes.c_int64


def hand_on(handing: Handing) -> Quick | None:
    """The function that does it; None where there is no native code for it."""
    if not vector_bits() or not is_known():
        return None
    numbers = [0] * FIELDS
    numbers[FUNCTION], numbers[OTHER] = id(handing.function), id(handing.other)
    numbers[AGAIN], numbers[ARGUMENTS] = id(handing.again), handing.arguments
    numbers[LEFT] = numbers[EVERY] = handing.every
    numbers[COUNTED] = ctypes.addressof(handing.counted)
    numbers[QUESTIONS] = len(handing.questions)
    numbers += [n for question in handing.questions for n in question.row()]
    table: Any = type("Table", (ctypes.c_int64 * len(numbers),), {})(*numbers)
    table.kept = handing
    return function_of(_method(), table)


@functools.cache
def _method() -> MethodDef:
    return MethodDef(b"hand_on", address_of(_text(), "hand_on", "plain"), _FASTCALL, None)


def _field(name: str, place: int, of: str, kind: str = "i64") -> str:
    return (
        f"  %{name}_at = getelementptr i64, ptr %{of}, i64 {place}\n"
        f"  %{name} = load {kind}, ptr %{name}_at\n"
    )


def _text() -> str:
    """The function of Python's C interface; see the module docstring."""
    fields = _field("arguments", ARGUMENTS, "table") + _field("questions", QUESTIONS, "table")
    return f"""
declare i64 @PyTuple_Size(ptr)
declare i64 @PyDict_Size(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)

define ptr @hand_on(ptr %self, ptr %both, i64 %two) {{
entry:
  %table_at = getelementptr i8, ptr %self, i64 {DATA}
  %table = load ptr, ptr %table_at
{fields}  %args = load ptr, ptr %both
  %items = getelementptr i8, ptr %args, i64 {ITEMS}
  %kwargs_at = getelementptr ptr, ptr %both, i64 1
  %kwargs = load ptr, ptr %kwargs_at
  %there = call i64 @PyTuple_Size(ptr %args)
  %named = call i64 @PyDict_Size(ptr %kwargs)
  %as_many = icmp eq i64 %there, %arguments
  %no_names = icmp eq i64 %named, 0
  %fits = and i1 %as_many, %no_names
  br i1 %fits, label %turn, label %other

turn:
{_field("left", LEFT, "table")}  %less = sub i64 %left, 1
  store i64 %less, ptr %left_at
  %due = icmp sle i64 %less, 0
  br i1 %due, label %again, label %first

first:
  %rows = getelementptr i64, ptr %table, i64 {FIELDS}
  br label %question

{_questions_text()}
run:
{_field("counted", COUNTED, "table", "ptr")}  %before = load i64, ptr %counted
  %after = add i64 %before, 1
  store i64 %after, ptr %counted
{_field("function", FUNCTION, "table", "ptr")}  %result = call ptr @PyObject_Vectorcall(
      ptr %function, ptr %items, i64 %arguments, ptr null)
  ret ptr %result

again:
{_field("every", EVERY, "table")}  store i64 %every, ptr %left_at
{_field("then", AGAIN, "table", "ptr")}  br label %hand

other:
{_field("else", OTHER, "table", "ptr")}  br label %hand

hand:
  %who = phi ptr [ %then, %again ], [ %else, %other ]
  %handed = call ptr @PyObject_Vectorcall(ptr %who, ptr %both, i64 2, ptr null)
  ret ptr %handed
}}
"""


def _questions_text() -> str:
    """The loop over the rows; it ends at `run`, or at `other`."""
    of_row = (
        _field("asked", ASKED, "row", "ptr") + _field("given", GIVEN, "row")
        + _field("expected", EXPECTED, "row", "ptr")
    )  # fmt: skip
    return f"""question:
  %i = phi i64 [ 0, %first ], [ %next, %well ]
  %row = phi ptr [ %rows, %first ], [ %beyond, %well ]
  %more = icmp slt i64 %i, %questions
  br i1 %more, label %ask, label %run

ask:
{of_row}  %fixed = getelementptr i64, ptr %row, i64 {FIXED}
  %of_call = icmp slt i64 %given, 0
  %passed = select i1 %of_call, ptr %items, ptr %fixed
  %count = select i1 %of_call, i64 %arguments, i64 %given
  %answer = call ptr @PyObject_Vectorcall(ptr %asked, ptr %passed, i64 %count, ptr null)
  %failed = icmp eq ptr %answer, null
  br i1 %failed, label %error, label %answered

error:
  ret ptr null

answered:
  %same = icmp eq ptr %answer, %expected
  call void @Py_DecRef(ptr %answer)
  br i1 %same, label %well, label %other

well:
  %next = add i64 %i, 1
  %beyond = getelementptr i64, ptr %row, i64 {ROW}
  br label %question
"""
