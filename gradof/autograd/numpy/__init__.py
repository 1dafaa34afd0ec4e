"""numpy, under the name that code for autograd imports."""

import sys as _sys

import numpy as _np

_OURS = frozenset(vars(_sys.modules[__name__]))
globals().update({
    name: value for name, value in vars(_np).items()
    if name not in _OURS and name not in ("linalg", "fft", "random")
})

from gradof.autograd.numpy import fft as fft  # noqa: E402
from gradof.autograd.numpy import linalg as linalg  # noqa: E402
from gradof.autograd.numpy import random as random  # noqa: E402

row_stack = _np.vstack
__version__ = numpy_version = _np.__version__
