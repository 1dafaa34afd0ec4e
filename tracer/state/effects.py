"""What a call would do again, and a graph would not: by the function in C that is called.

>>> import time
>>> effect_of(time, "time")
'time.time'
>>> effect_of([], "append")
"""

from __future__ import annotations

import io
from datetime import date
from types import FrameType, ModuleType
from typing import Any

from gradof.errors import TraceError
from gradof.ir.core import Loc
from gradof.tracer.state.caches import LRU
from gradof.tracer.state.code_facts import Facts
from gradof.tracer.state.in_c import methods_in_c
from gradof.tracer.state.iterators import is_iterator, is_of_callers

# C functions whose result no trace can know again.
_CLOCKS = frozenset({
    "time", "perf_counter", "monotonic", "time_ns", "perf_counter_ns", "monotonic_ns",
    "process_time", "thread_time", "clock_gettime", "ctime", "localtime", "gmtime", "strftime",
    "asctime",
})  # fmt: skip
_DATES = frozenset({"now", "utcnow", "today"})  # of the classes of `datetime`
_EFFECTS = {
    "print": "print", "input": "input", "open": "open", "urandom": "os.urandom",
    "listdir": "os.listdir", "scandir": "os.scandir", "stat": "os.stat", "lstat": "os.lstat",
    "readlink": "os.readlink", "access": "os.access",
}  # fmt: skip
_IN = frozenset({"builtins", "io", "_io", "posix", "nt"})
_ASKS = frozenset({"isatty", "fileno", "readable", "writable", "seekable"})  # of streams
# What a torch.Generator says of its state, or is told of it; `torch/random` records the rest.
_STATES = frozenset({
    "seed", "initial_seed", "get_state", "set_state", "clone_state", "get_offset", "set_offset",
    "graphsafe_get_state", "graphsafe_set_state",
})  # fmt: skip
# Objects of C's that gather what they are given, and say what it comes to.
_GATHER = frozenset({"update", "compress", "decompress", "flush"})
_GATHERERS = ("_hashlib", "_md5", "_sha", "_blake2", "zlib", "_bz2", "_lzma")
# Attributes that make another object, class or function of one.
SHAPING = frozenset({
    "__class__", "__bases__", "__dict__", "__code__", "__defaults__", "__kwdefaults__",
})  # fmt: skip
# What a function of numpy's may do when it is run as it is, beside its graph (Note [Performed
# calls]): it says something, or asks the machine and changes nothing.
_PERFORMED = (
    "print", "logging", "warnings.", "time.", "date", "genericpath.", "glob.", "uuid.", "secrets.",
    "os.", "pathlib.exists", "pathlib.is_", "pathlib.stat", "pathlib.iterdir",
    "pathlib.glob", "pathlib.open", "pathlib.read_", "pathlib._local.", "Timestamp.", "a ",
)  # fmt: skip


def effect_of(owner: Any, name: str) -> str | None:
    """The name of the effect of a function in C; None if it has none."""
    if isinstance(owner, ModuleType):
        if owner.__name__ == "time" and name in _CLOCKS:
            return f"time.{name}"
        if name == "fromfile" and owner.__name__.startswith("numpy."):
            return "np.fromfile"
        return _EFFECTS.get(name) if owner.__name__ in _IN else None
    if type(owner) is LRU:
        return f"{name}()" if name == "cache_clear" else None
    if isinstance(owner, io.IOBase):
        return None if name in _ASKS else f"{type(owner).__name__}.{name}"
    module = str(type(owner).__module__)
    if name in _STATES and module == "torch._C":
        return f"torch.Generator.{name}"
    if name in _GATHER and module.startswith(_GATHERERS):
        return f"{type(owner).__name__}.{name}"
    if name == "run" and module == "_contextvars":
        return "Context.run"
    if name in _DATES and isinstance(owner, type) and issubclass(owner, date):
        return f"{owner.__name__}.{name}"
    return None


def in_reach(obj: Any, facts: Facts, more: frozenset[str], frame: FrameType) -> str:
    """What code may do with an object, as the name of an effect; "" of the run's own iterator."""
    cls: Any = type(obj)
    if is_iterator(cls):
        own = is_of_callers(obj, frame)
        return "" if own else f"a {cls.__name__}, an iterator, is in reach: next()"
    (name, *_) = sorted(methods_in_c(cls) & (facts.reads | facts.stores | more))
    return f"{cls.__qualname__}.{name}, code in C, of an object in reach,"


def is_performed(what: str) -> bool:
    """Whether a function of numpy's may do it; all else is an error there."""
    return what.startswith(_PERFORMED) and "write" not in what


def effect_error(what: str, loc: Loc | None) -> TraceError:
    """The error for what Python does at each call and a compiled call would not."""
    return TraceError(
        f"{what} is called: it would run once, while the function is traced", loc=loc,
        hint="call it outside, on what the function returns",
    )
