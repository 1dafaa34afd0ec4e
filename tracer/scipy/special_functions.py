"""Functions of scipy.special that are no ufuncs, wherever they are called from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.special import FUNCTIONS
from gradof.tracer.scipy.calls import scipy_function


def _register(name: str, record: Callable[..., Any]) -> None:
    @scipy_function(f"scipy.special.{name}")
    def function(*args: Any, **kwargs: Any) -> Any:
        # of single precision, scipy's results are of double precision, but for these
        narrow = name in ("logsumexp", "softmax", "log_softmax", "softplus")
        wide = [
            a.astype(np.float64)
            if type(a) is TracedArray and a.dtype == np.float32 and not narrow else a
            for a in args
        ]  # fmt: skip
        return record(*wide, **kwargs)


for _name, _record in FUNCTIONS.items():
    _register(_name, _record)
