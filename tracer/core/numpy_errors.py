"""Which of numpy's floating-point errors are raised: `np.errstate`, `np.seterr`.

>>> with np.errstate(divide="raise", over="raise"):
...     raised()
('divide', 'over')
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

KINDS = ("divide", "over", "under", "invalid")  # in the order in which numpy raises them

_errors: Any
try:  # no part of numpy's interface, and a tenth of the time that `geterr` takes
    from numpy._core.umath import _extobj_contextvar
    from numpy._core.umath import _get_extobj_dict as _errors  # which no trace takes for the user's
except ImportError:
    SETTINGS: Any = lambda _: ()  # noqa: E731
    _errors = np.geterr
else:
    SETTINGS = _extobj_contextvar.get  # of None: None where nobody has set anything


def raised() -> tuple[str, ...]:
    """The kinds of errors that numpy raises at this moment."""
    if SETTINGS(None) is None:
        return ()
    now = _errors()
    return tuple([kind for kind in KINDS if now[kind] == "raise"])


def has_functions(given: Iterable[Any]) -> bool:
    """Whether a library is given functions of the user's, whose errors are raised."""
    return any(callable(x) and not isinstance(x, type | np.ufunc) for x in given)
