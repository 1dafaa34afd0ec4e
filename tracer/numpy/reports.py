"""What a function says and reads while it is traced: print, logging, standard streams, files.

    def loss(p):
        l = np.sum(p ** 2)
        print(f"loss {l:.3f}")      # says nothing while it is traced, and prints at every call
        scale = np.loadtxt("s.txt") # the trace holds while the file is the one that was read

Note [Performed calls]
A graph cannot print, write a text of a value into a list, or make an object of a class that it does
not know. So a function that does such things is *performed*: at each call the function itself runs,
too, on the caller's arrays, by plain numpy, after the compiled code. All that it writes, says and
returns is then Python's own; the gradient is the graph's. While it is traced it says nothing: what
it would say is noted (`Told.perform`), and the first call is performed like any other.

A text may be read again (`float(f"{x:.2f}")`), and the graph would have the number of the trace. So
what the function returns is compared with what the graph gives, and a difference is an error
(`runtime/performed`).
"""

from __future__ import annotations

import builtins
import io
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, FunctionType
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from gradof.ir import forks
from gradof.tracer.core.swaps import Swaps
from gradof.tracer.numpy.active import active_recorder
from gradof.tracer.state.effects import effect_error
from gradof.tracer.state.source import user_loc
from gradof.tracer.state.surroundings import is_repeated

if TYPE_CHECKING:
    from gradof.tracer.numpy.recorder import Recorder

# Code that reads files on behalf of Python itself, or of ours.
_TOOLS = frozenset({"linecache", "tokenize", "importlib", "gradof", "inspect", "warnings"})
_STREAMS = ("stdout", "stderr")
_WARNING = ("warnings", "_py_warnings")
_LOCK = forks.lock()
_swaps = Swaps()


def _tracing() -> Recorder | None:
    """The recorder of this thread's trace, while its function runs."""
    recorder = active_recorder()
    return None if recorder is None or recorder.closed else recorder


class QuietStream:
    """A standard stream that takes nothing from a thread that traces; all else is the stream's."""

    def __init__(self, stream: Any) -> None:
        self.__dict__["stream"] = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["stream"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["stream"], name, value)

    def __iter__(self) -> Any:
        return iter(self.__dict__["stream"])

    def write(self, text: str) -> int:
        """Write, or note that this is to be written at each call."""
        recorder = _tracing()
        if recorder is None or sys._getframe(1).f_globals.get("__name__") in _WARNING:
            return int(self.__dict__["stream"].write(text))
        recorder.told.perform("a write to a standard stream", user_loc())
        return len(text)

    def flush(self) -> None:
        """Flush the stream."""
        if _tracing() is None:
            self.__dict__["stream"].flush()

    def writelines(self, lines: Any) -> None:
        """Write each of them."""
        for line in lines:
            self.write(line)


def _print(*args: Any, **kwargs: Any) -> None:
    """Python's own; while a function is traced it is noted, unless it goes to memory."""
    recorder = _tracing()
    file = kwargs.get("file")
    if recorder is None or isinstance(file, (io.StringIO, io.BytesIO)):
        _theirs["print"](*args, **kwargs)
        return
    if file is not None and not _is_standard(file):
        raise effect_error("print to a file", user_loc())
    recorder.told.perform("print", user_loc())


def _is_standard(file: Any) -> bool:
    stream = file.__dict__["stream"] if type(file) is QuietStream else file
    return stream in (*(_outer.get(n) for n in _STREAMS), sys.__stdout__, sys.__stderr__)


def _logged(original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`logging.Logger._log`."""
    recorder = _tracing()
    if recorder is None:
        return original(*args, **kwargs)
    return recorder.told.perform("logging", user_loc())


def _warned(original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`warnings._showwarnmsg`: a warning that is given each time is given when it is performed."""
    recorder = _tracing()
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _package(frame) in ("gradof", *_WARNING):
        frame = frame.f_back
    name = "" if frame is None else str(frame.f_globals.get("__name__"))
    if recorder is None or not is_repeated(args[0], name):
        return original(*args, **kwargs)
    return recorder.told.perform("warnings.warn", user_loc())


# --- files ----------------------------------------------------------------------------------------


class Stamp:
    """A file that a trace has read: calling it says whether there is another one by now."""

    def __init__(self, path: Any) -> None:
        self.path = os.path.abspath(os.fspath(path))

    def __call__(self) -> tuple[int, int, int] | None:
        """When it was changed, its size, and which it is; None where there is none."""
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stamp) and other.path == self.path

    def __hash__(self) -> int:
        return hash(self.path)


def _opened(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
    """`open`: what is read is noted, and nothing is written while a function is traced."""
    recorder = _tracing()
    if recorder is None or _is_for_python(sys._getframe(1)):
        return _theirs["open"](file, mode, *args, **kwargs)
    named = isinstance(file, (str, bytes, os.PathLike))
    if not named or not set(mode).isdisjoint("wax+"):
        raise effect_error("open for writing" if named else "open", user_loc())
    _note_read(recorder, file)
    made = _theirs["open"](file, mode, *args, **kwargs)
    recorder.told.opened.append(made)
    return made


def _note_read(recorder: Recorder, path: Any) -> None:
    stamp = Stamp(path)
    recorder.told.files.setdefault(stamp, stamp())


def _opened_by_numpy(
    original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """`numpy.lib.npyio.DataSource.open`, which knows `open` from before any trace."""
    recorder = _tracing()
    if recorder is not None and isinstance(args[1], (str, os.PathLike)):
        if {*args[2:3], kwargs.get("mode", "r")} - {"r", "rb", "rt"}:
            raise effect_error("open for writing", user_loc())
        _note_read(recorder, args[1])
    return original(*args, **kwargs)


def _is_for_python(frame: FrameType | None) -> bool:
    """Whether a file is opened by a tool of Python's or by us, or by a module that is imported."""
    while frame is not None and _package(frame) == "os":  # `fdopen`
        frame = frame.f_back
    if frame is not None and _package(frame) in _TOOLS:
        return True
    while frame is not None and _package(frame) != "gradof":
        if _package(frame) == "importlib":
            return True
        frame = frame.f_back
    return False


def _package(frame: FrameType) -> str:
    """The package whose code a frame runs."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


# --- putting it there -----------------------------------------------------------------------------

_theirs: dict[str, Any] = {}
_outer: dict[str, Any] = {}  # the standard streams
_active = 0


def _put_in_place() -> None:
    _theirs.update(print=builtins.print, open=builtins.open)
    builtins.print, builtins.open, io.open = cast(Any, (_print, _opened, _opened))
    for name in _STREAMS:
        _outer[name] = stream = getattr(sys, name)
        if stream is not None:
            setattr(sys, name, QuietStream(stream))


def _take_away() -> None:
    builtins.print, builtins.open, io.open = _theirs["print"], _theirs["open"], _theirs["open"]
    for name in _STREAMS:
        now = getattr(sys, name)
        if type(now) is QuietStream and now.__dict__["stream"] is _outer[name]:
            setattr(sys, name, _outer[name])


@contextmanager
def reports() -> Iterator[None]:
    """While a trace runs, its thread says nothing, and what it reads of files is noted."""
    global _active
    _swaps.add(cast(FunctionType, logging.Logger._log), _logged)
    _swaps.add(cast(FunctionType, warnings._showwarnmsg), _warned)  # type: ignore[attr-defined]
    _swaps.add(cast(FunctionType, np.lib.npyio.DataSource.open), _opened_by_numpy)
    with _LOCK:
        _active += 1
        if _active == 1:
            _put_in_place()
    try:
        with _swaps.at_work():
            yield
    finally:
        with _LOCK:
            _active -= 1
            if not _active:
                _take_away()
