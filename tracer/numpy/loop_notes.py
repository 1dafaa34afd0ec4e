"""What is noted of loops while a trace of numpy code runs."""

from __future__ import annotations

from gradof.ir.core import Value
from gradof.tracer.core.loop_notes import Evaluate, LoopNotes, Varying
from gradof.tracer.numpy.lengths import Sizes
from gradof.tracer.state.reads import Reads


class ArrayLoopNotes(LoopNotes):
    """Of one trace; see `steps`."""

    def __init__(
        self, reads: Reads, evaluate: Evaluate | None = None, varying: Varying | None = None,
        sizes: Sizes | None = None,
    ) -> None:  # fmt: skip
        super().__init__(reads, evaluate, varying)
        self.computed = 0  # loops whose results were needed as the trace went on
        self.hashed = False  # whether an index was looked up, and may be a key: it is no number
        self.sizes = sizes or Sizes()  # what the code was told of them
        self.places: set[Value] = set()  # constants where slices of Loops begin
        self.raises = False  # whether numpy raises floating-point errors (`raising`)

    @property
    def has_missed_errors(self) -> bool:
        """Whether numpy may raise an error in a step that did not run."""
        return self.raises and self.evaluate is not None and (
            any(self.looked_at) or bool(self.varying.rolled)
        )  # fmt: skip
