"""Where a run stands among traced arrays of numpy's: Note [Steps that are alike] in `core`."""

from __future__ import annotations

from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

from gradof.ir.contents import checksum
from gradof.tracer.core.standing import Standing, Unknown
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.index import Index
from gradof.tracer.numpy.lengths import Length
from gradof.tracer.state.loop_code import LoopCode

if TYPE_CHECKING:
    from gradof.tracer.numpy.recorder import Recorder

_LARGEST = 1 << 20  # bytes of a plain array that is compared


class ArrayStanding(Standing):
    """See the module docstring."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder.is_constant)
        self._recorder = recorder
        self.local = 0, 0  # how much of the key, and of the arrays, the variables are
        self.left: dict[str, Any] = {}  # variables that are read outside of the loop alone

    @classmethod
    def of(cls, frame: FrameType, loop: LoopCode, recorder: Recorder) -> ArrayStanding:
        """Where the run stands as a loop of this frame asks for an item; may raise Unknown."""
        made = cls(recorder)
        for name, value in frame.f_locals.items():
            if name in loop.set_first:
                if name in loop.read_outside:
                    made.left[name] = value
            else:
                made._key.append(name)
                made._visit(value)
        made.local = len(made._key), len(made.arrays)
        made.changes(recorder.loops.reads.held)
        return made

    def fits(self, later: ArrayStanding) -> bool:
        """Whether the variables stand as they do later, but for which arrays are constants."""
        count, arrays = later.local
        if arrays < len(later.arrays):
            count = len(later._key)
        return self._key[:count] == later._key[:count] and len(self.arrays) == len(later.arrays)

    def _own(self, obj: Any, kind: Any) -> list[Any] | None:
        note = self._key.append
        if kind is TracedArray:
            return self._traced(obj)
        if isinstance(obj, np.generic):
            note((kind, obj.tobytes()))
            return []
        if kind is np.ndarray and not obj.dtype.hasobject and obj.nbytes <= _LARGEST:
            note((id(obj), checksum(obj)))
            return []
        if kind is Length:
            note(repr(obj.form))
            return []
        if kind is Index or isinstance(obj, (np.ufunc, np.dtype)):  # of a loop around this one
            note(id(obj))
            return []
        return None

    def _traced(self, array: TracedArray) -> list[Any]:
        """A traced array: its type and place among the others; of a view, what it is a view of."""
        if array.recorder is not self._recorder:
            raise Unknown("an array of another trace")
        if array.link is not None:  # read anew from where it is a view of, by rules of its own
            behind = array.link.version != array.version
            self._key.append((array.kind, id(array), id(array.link), behind))
            return [array.link.parent]
        self._key.append(array.kind)
        self.add(array, array.expr.value)
        return []
