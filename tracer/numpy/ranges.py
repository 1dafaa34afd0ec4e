"""`range`, `zip` and `enumerate` as the traced code knows them: of a loop's own, `Steps`.

    for t in range(1, n):           # Steps; it ends early where all steps are alike
    for x, u in zip(xs, us):        # so are rows of traced arrays side by side
    list(range(n)), zip(names, xs)  # Python's own, and so is each that has a name
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from gradof.tracer.numpy.active import active_recorder
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.lengths import sized
from gradof.tracer.numpy.recorder import Recorder
from gradof.tracer.numpy.steps import Steps
from gradof.tracer.state.loop_code import is_looped_over


class _Meta(type):
    """Calls make what the builtin makes, or steps; the builtin is still the class of its own."""

    _builtin: Any

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        recorder, caller = active_recorder(), sys._getframe(1)
        if recorder is not None and is_looped_over(caller.f_code, caller.f_lasti):
            made = cls.steps(recorder, args, kwargs)  # type: ignore[attr-defined]  # each has it
            if made is not None:
                return made
        return cls._builtin(*args, **kwargs)

    def __instancecheck__(cls, obj: Any) -> bool:
        return isinstance(obj, cls._builtin)

    def __subclasscheck__(cls, kind: Any) -> bool:
        return issubclass(kind, cls._builtin)


class Range(metaclass=_Meta):
    """See the module docstring."""

    _builtin = range

    @staticmethod
    def steps(recorder: Recorder, args: Sequence[Any], kwargs: dict[str, Any]) -> Steps:
        """The numbers as steps."""
        return Steps(recorder, [range(*map(sized, args), **kwargs)])


class Zip(metaclass=_Meta):
    """See the module docstring."""

    _builtin = zip

    @staticmethod
    def steps(
        recorder: Recorder, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Steps | None:
        """The rows as steps, where there are nothing but rows and numbers, equally many."""
        if not args or not all(_is_counted(recorder, x) for x in args):
            return None
        if kwargs.get("strict") and len(set(map(len, args))) > 1:
            return None
        return Steps(recorder, args, in_tuples=True)


class Enumerate(metaclass=_Meta):
    """See the module docstring."""

    _builtin = enumerate

    @staticmethod
    def steps(
        recorder: Recorder, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Steps | None:
        """The rows and their numbers as steps, where they are counted from a whole number."""
        if not args or not _is_counted(recorder, args[0]) or kwargs.keys() - {"start"}:
            return None  # the builtin says what is wrong
        rows, start = args[0], args[1] if len(args) == 2 else kwargs.get("start", 0)
        if type(start) is not int or len(args) + len(kwargs) > 2:
            return None
        return Steps(recorder, [range(start, start + len(rows)), rows], in_tuples=True)


def _is_counted(recorder: Recorder, items: Any) -> bool:
    if type(items) is TracedArray:
        return items.recorder is recorder and items.ndim > 0
    return type(items) is range
