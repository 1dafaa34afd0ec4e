"""numpy, under the name that code for autograd imports."""

import numpy as _np

globals().update({
    name: value for name, value in vars(_np).items()
    if name not in ("linalg", "fft", "random") and not name.startswith("__")
})

from gradof.autograd.numpy import fft as fft  # noqa: E402
from gradof.autograd.numpy import linalg as linalg  # noqa: E402
from gradof.autograd.numpy import random as random  # noqa: E402

row_stack = _np.vstack
__version__ = numpy_version = _np.__version__


def make_diagonal(D, offset=0, axis1=-1, axis2=-2):  # type: ignore[no-untyped-def]
    """Vectors along the last dim as diagonal matrices: the opposite of `np.diagonal`."""
    if (offset, axis1, axis2) != (0, -1, -2):
        raise NotImplementedError("make_diagonal has offset=0, axis1=-1, axis2=-2 only")
    return D[..., None] * _np.eye(D.shape[-1])
