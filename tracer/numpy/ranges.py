"""`range`, `zip` and `enumerate` as the traced code knows them: of a loop's own, `Steps`.

    for t in range(1, n):           # Steps; it ends early where all steps are alike
    for x, u in zip(xs, us):        # so are rows of traced arrays side by side
    list(range(n)), zip(names, xs)  # Python's own, and so is each that has a name
"""

from __future__ import annotations

from typing import Any

from gradof.tracer.core.counted import Lent
from gradof.tracer.numpy.active import active_recorder
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.lengths import sized
from gradof.tracer.numpy.recorder import Recorder
from gradof.tracer.numpy.steps import Steps


class Range(metaclass=Lent):
    """See the module docstring."""

    builtin = range

    @staticmethod
    def steps(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Steps | None:
        """The numbers as steps."""
        recorder = active_recorder()
        return None if recorder is None else Steps(recorder, [range(*map(sized, args), **kwargs)])


class Zip(metaclass=Lent):
    """See the module docstring."""

    builtin = zip

    @staticmethod
    def steps(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Steps | None:
        """The rows as steps, where there are nothing but rows and numbers, equally many."""
        recorder = active_recorder()
        if recorder is None or not args or not all(_is_counted(recorder, x) for x in args):
            return None
        if kwargs.get("strict") and len(set(map(len, args))) > 1:
            return None
        return Steps(recorder, args, in_tuples=True)


class Enumerate(metaclass=Lent):
    """See the module docstring."""

    builtin = enumerate

    @staticmethod
    def steps(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Steps | None:
        """The rows and their numbers as steps, where they are counted from a whole number."""
        recorder = active_recorder()
        if recorder is None or not args or kwargs.keys() - {"start"}:
            return None
        if not _is_counted(recorder, args[0]):
            return None  # the builtin says what is wrong
        rows, start = args[0], args[1] if len(args) == 2 else kwargs.get("start", 0)
        if type(start) is not int or len(args) + len(kwargs) > 2:
            return None
        return Steps(recorder, [range(start, start + len(rows)), rows], in_tuples=True)


def _is_counted(recorder: Recorder, items: Any) -> bool:
    if type(items) is TracedArray:
        return items.recorder is recorder and items.ndim > 0
    return type(items) is range
