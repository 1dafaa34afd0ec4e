"""Where in the user's code an op comes from: the line, and the variable it is assigned to.

    h = torch.tanh(x @ w)     # mlp.py:7
    user_site()               →  Site(Loc("mlp.py", 7), hint="h", key=...)   while tanh runs
                              →  Site(Loc("mlp.py", 7), hint=None, key=...)  while x @ w runs

The user's frame is the innermost one outside gradof, the array libraries and the standard library.
The hint is read from the bytecode: the instruction after the running one stores to a name. Costs
about a microsecond per call once a code object has been seen.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from functools import partial
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import NamedTuple

from gradof.ir.core import Loc
from gradof.tracer.state.bytecode import instructions

_INTERNAL = frozenset({"gradof", "torch", "numpy", "scipy", "functorch", "torchgen"}) | (
    frozenset(sys.stdlib_module_names) - {"__main__"}
)
_STORES = frozenset(
    {
        "STORE_FAST", "STORE_NAME", "STORE_DEREF", "STORE_GLOBAL",
        "STORE_FAST_STORE_FAST", "STORE_FAST_LOAD_FAST",
    }
)  # fmt: skip


class Site(NamedTuple):
    """A place in the user's code. Two ops with one `key` belong to one running instruction."""

    loc: Loc | None
    hint: str | None
    key: tuple[int, int]


_NOWHERE = Site(None, None, (0, 0))
_site: Callable[[tuple[Loc | None, str | None, tuple[int, int]]], Site] = partial(
    tuple.__new__, Site
)  # made in C
# By the id of the code, which the entry keeps: the hash of code takes long.
_is_user: dict[int, tuple[bool, CodeType]] = {}
_sites: dict[tuple[int, int], tuple[Loc | None, str | None, CodeType]] = {}
_hints: dict[CodeType, dict[int, str]] = {}
_locs: dict[tuple[str, int], Loc] = {}


def caller(thread: int) -> FrameType | None:
    """The frame that called our caller. Where C++ did, in a thread of its own, that of `thread`.

    The gradients of a device are computed by a thread of torch's, which has no Python frames, while
    the thread that asked for them waits.
    """
    try:
        return sys._getframe(2)
    except ValueError:
        return sys._current_frames().get(thread)


def user_site(frame: FrameType | None = None) -> Site:
    """The innermost user frame at or outside `frame` (default: the caller)."""
    if frame is None:
        frame = sys._getframe(1)
    while frame is not None:  # as `user_frame`
        code = frame.f_code
        known = _is_user.get(id(code))
        if known[0] if known is not None else in_user_code(frame):
            break
        frame = frame.f_back
    if frame is None:
        return _NOWHERE
    lasti = frame.f_lasti
    found = _sites.get((id(code), lasti))
    if found is None:
        hints = _hints.get(code)
        if hints is None:
            hints = _hints[code] = _stores_after(code)
        found = _sites[id(code), lasti] = _loc(code, frame.f_lineno), hints.get(lasti), code
    return _site((found[0], found[1], (id(frame), lasti)))


def user_loc(frame: FrameType | None = None) -> Loc | None:
    """The user's line at or outside `frame` (default: the caller); None outside any user code."""
    frame = user_frame(frame or sys._getframe(1))
    return None if frame is None else _loc(frame.f_code, frame.f_lineno)


def warn_user(text: str, category: type[Warning]) -> None:
    """`warnings.warn` at the innermost line of the user's, however deep gradof is within itself."""
    frame = user_frame(sys._getframe(1))
    if frame is None:
        warnings.warn(text, category, stacklevel=2)
        return
    space = frame.f_globals
    warnings.warn_explicit(
        text, category, frame.f_code.co_filename, frame.f_lineno, space.get("__name__"),
        space.setdefault("__warningregistry__", {}),
    )  # fmt: skip


def own_line(traceback: TracebackType | None) -> str | None:
    """Where in gradof a traceback ends; None if it ends in the code of others."""
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None:
        return None
    module = str(traceback.tb_frame.f_globals.get("__name__", ""))
    return f"{module}:{traceback.tb_lineno}" if module.partition(".")[0] == "gradof" else None


def traceback_loc(traceback: TracebackType | None) -> Loc | None:
    """The innermost user line of a traceback; None if there is none."""
    found: Loc | None = None
    while traceback is not None:
        if in_user_code(traceback.tb_frame):
            found = _loc(traceback.tb_frame.f_code, traceback.tb_lineno)
        traceback = traceback.tb_next
    return found


def user_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of user code at or outside `frame`."""
    while frame is not None:
        known = _is_user.get(id(frame.f_code))
        if known[0] if known is not None else in_user_code(frame):
            return frame
        frame = frame.f_back
    return None


def scipy_call() -> str | None:
    """The function of scipy's that the user's code has called and that runs, by its public name."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_back is not None and not in_user_code(frame.f_back):
        frame = frame.f_back
    module = "" if frame is None else str(frame.f_globals.get("__name__", ""))
    if frame is None or module.partition(".")[0] != "scipy":
        return None
    return _public_name(frame)


def called_in_scipy(traceback: TracebackType | None) -> str | None:
    """The same of an error: the first function of scipy's on its way."""
    while traceback is not None:
        frame = traceback.tb_frame
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] == "scipy":
            return _public_name(frame)
        traceback = traceback.tb_next
    return None


def _public_name(frame: FrameType) -> str:
    module = str(frame.f_globals.get("__name__", ""))
    name, code = frame.f_code.co_name, frame.f_code
    # a decorator of scipy's: what it wraps has the name
    if module.startswith("scipy._lib.") or module == "scipy.stats._axis_nan_policy":
        held = [frame.f_locals.get(n) for n in code.co_freevars]
        inner = next((f for f in held if isinstance(f, FunctionType)), None)
        if inner is not None:
            module, name = inner.__module__, inner.__name__
    public = [part for part in module.split(".") if not part.startswith("_")]
    return ".".join([*public, name])


def function_loc(fn: object) -> Loc | None:
    """The line on which a Python function is defined; None for other callables."""
    code = getattr(fn, "__code__", None)
    return _loc(code, code.co_firstlineno) if isinstance(code, CodeType) else None


def function_name(fn: object, attribute: str = "__qualname__") -> str:
    """What a callable is called: a function's name, of an object its class's.

    The text of an object is not asked for: it may be long, and run what draws random numbers.
    """
    name = getattr(fn, attribute, None)
    if isinstance(name, str):
        return name
    inner = getattr(fn, "func", None)  # of a partial
    if callable(inner):
        return function_name(inner, attribute)
    return str(getattr(type(fn), attribute))


def in_user_code(frame: FrameType) -> bool:
    """Whether a frame is none of gradof's, an array library's or the standard library's."""
    code = frame.f_code
    known = _is_user.get(id(code))
    if known is None:
        name = str(frame.f_globals.get("__name__", ""))
        known = name.partition(".")[0] not in _INTERNAL and not of_cython(code), code
        _is_user[id(code)] = known
    return known[0]


def of_cython(code: CodeType) -> bool:
    """Whether a frame of a traceback was made by compiled code: nothing of it runs or is read."""
    return code.co_filename.endswith((".pyx", ".pxd", ".pxi", "<stringsource>"))


def _loc(code: CodeType, line: int) -> Loc:
    # by file name: code objects of two files are equal if only their file names differ
    key = code.co_filename, line
    loc = _locs.get(key)
    if loc is None:
        loc = _locs[key] = Loc(shorten(code.co_filename), line)
    return loc


def shorten(path: str) -> str:
    """The path relative to the working directory where that is shorter and inside it."""
    try:
        relative = os.path.relpath(path)
    except (ValueError, OSError):  # another drive on Windows; a working directory that is gone
        return path
    return path if relative.startswith("..") or path.startswith("<") else relative


def _stores_after(code: CodeType) -> dict[int, str]:
    """Offset of every instruction that is directly followed by a store to a name → that name.

    A frame that waits in a Python call stands on an inline cache entry of the call instruction, one
    that waits in a C call on the instruction itself: all its offsets are listed.
    """
    result: dict[int, str] = {}
    previous = -1
    for instruction in instructions(code):
        if instruction.opname in _STORES and previous >= 0:
            # The combined stores of Python 3.13 name two variables; the first is stored first.
            target = instruction.argval
            name = str(target[0] if isinstance(target, tuple) else target)
            result.update(dict.fromkeys(range(previous, instruction.offset, 2), name))
        if instruction.opname != "EXTENDED_ARG":  # a prefix of the store, not the running one
            previous = instruction.offset
    return result
