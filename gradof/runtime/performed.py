"""Running a function as it is, beside its graph, for what no graph does.

    value = perform(bound, results)     # prints, logs, writes to its arrays and to Python's state

See Note [Performed calls] in `gradof.tracer.numpy.reports`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradof.errors import DataDependentError
from gradof.runtime.arrays import is_array
from gradof.runtime.cache import Bound
from gradof.tracer.core.pytree import flatten, thaw
from gradof.tracer.core.result import ConstantOut, Traced
from gradof.tracer.state.generators import Rewound, set_state

# How far the function's result may be from the graph's, of the largest number in it: sums in
# another order are closer, a number that was read off a text of another call is not.
_CLOSE = {2: 1e-2, 4: 1e-3, 8: 1e-6}


def perform(bound: Bound, results: Sequence[Any]) -> Any:
    """Run the function on the arrays of a call whose graph has run, and return its result.

    Random numbers are those that the graph has drawn. DataDependentError if the result is not the
    graph's.
    """
    traced = bound.entry.traced
    for generator, state in bound.drawn:
        set_state(generator, state)
    inputs = list(bound.inputs)
    for write in traced.writebacks:  # the function itself does it, below
        inputs[write.input] = results[write.output]
    expected = traced.leaves(traced.outputs, inputs, results, traced.containers(bound.given))
    before = [np.array(x) if is_array(x) else x for x in expected]
    if any(store.place.kind == "given" for store in traced.stores):
        args, kwargs = bound.given
    else:
        args, kwargs = bound.call.tree.unflatten([thaw(leaf) for leaf in bound.call.leaves])
    assert bound.entry.performed is not None
    value = bound.entry.performed(*args, **kwargs)
    found, _ = flatten(value)
    if len(found) == len(before):  # else in objects whose class is not known
        for out, mine, theirs in zip(traced.outputs, before, found, strict=True):
            if not isinstance(out, ConstantOut) and not _close(mine, theirs):
                raise DataDependentError(
                    f"compiled code gives {_short(mine)} where the function gives {_short(theirs)}:"
                    f" its result depends on more than arrays and numbers ({traced.performs})",
                    hint="compute with the number itself, not with its text or what a clock or a "
                    "file says; or do the rest outside, on what the function returns",
                )
    return value


def _close(mine: Any, theirs: Any) -> bool:
    a, b = np.asarray(mine), np.asarray(theirs)
    if a.shape != b.shape or b.dtype.kind not in "biufc":
        return False
    if not a.size:
        return True
    if a.dtype.kind not in "fc" or b.dtype.kind not in "fc":
        return bool((a == b).all())
    close = max(_CLOSE.get(x.dtype.itemsize // (2 if x.dtype.kind == "c" else 1), 1e-6)
                for x in (a, b))  # fmt: skip
    with np.errstate(all="ignore"):
        finite = np.isfinite(a) & np.isfinite(b)
        largest = max(np.abs(a[finite]).max(initial=0), np.abs(b[finite]).max(initial=0))
        odd = (a == b) | (np.isnan(a) & np.isnan(b))
        return bool((finite & (np.abs(a - b) <= close * largest) | odd).all())


def _short(value: Any) -> str:
    text = np.array2string(np.asarray(value), precision=6, threshold=6)
    return text.replace("\n", "")


def drawn(traced: Traced) -> Sequence[tuple[Any, Any]]:
    """The generators that a performed function draws from once more, as they are now."""
    return Rewound(traced.generators).states if traced.performs else ()
