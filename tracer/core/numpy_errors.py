"""Which of numpy's floating-point errors are raised: `np.errstate`, `np.seterr`.

>>> with np.errstate(divide="raise", over="raise"):
...     raised()
('divide', 'over')

This asks what `np.geterr` asks, in a tenth of its time by default. A trace takes a call of `geterr`
itself for the user's, who may go by what it says (`gradof.tracer.state.surroundings`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from numpy._core.umath import _extobj_contextvar, _get_extobj_dict

KINDS = ("divide", "over", "under", "invalid")  # in the order in which numpy raises them

SETTINGS: Any = _extobj_contextvar.get  # of None: None where nobody has set anything


def raised() -> tuple[str, ...]:
    """The kinds of errors that numpy raises at this moment."""
    if SETTINGS(None) is None:
        return ()
    now: Any = _get_extobj_dict()
    return tuple([kind for kind in KINDS if now[kind] == "raise"])


def has_functions(given: Iterable[Any]) -> bool:
    """Whether a library is given functions of the user's, whose errors are raised."""
    return any(
        callable(x) and not isinstance(x, type)
        and type(x).__module__.partition(".")[0] not in ("numpy", "scipy")
        for x in given
    )  # fmt: skip
