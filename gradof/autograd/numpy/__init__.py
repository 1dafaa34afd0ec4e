"""numpy, under the name that code for autograd imports."""

import functools as _functools

import numpy as _np

from gradof.tracer.numpy.creation import STANDS_FOR as _STANDS_FOR

globals().update({
    name: value for name, value in vars(_np).items()
    if name not in ("linalg", "fft", "random") and not name.startswith("__")
})

from gradof.autograd.numpy import fft as fft  # noqa: E402
from gradof.autograd.numpy import linalg as linalg  # noqa: E402
from gradof.autograd.numpy import random as random  # noqa: E402

__version__ = numpy_version = _np.__version__


def _joining(join):  # type: ignore[no-untyped-def]
    """A function that takes any iterable of arrays, such as `params.values()`, as autograd's do."""

    @_functools.wraps(join)
    def joined(arrays, *args, **kwargs):  # type: ignore[no-untyped-def]
        is_array = hasattr(arrays, "dtype")
        return join(arrays if is_array else [*arrays], *args, **kwargs)

    setattr(joined, _STANDS_FOR, join)
    return joined


concatenate, stack, column_stack = map(_joining, (_np.concatenate, _np.stack, _np.column_stack))
vstack, hstack, dstack = map(_joining, (_np.vstack, _np.hstack, _np.dstack))
row_stack = vstack


def make_diagonal(D, offset=0, axis1=-1, axis2=-2):  # type: ignore[no-untyped-def]
    """Vectors along the last dim as diagonal matrices: the opposite of `np.diagonal`."""
    if (offset, axis1, axis2) != (0, -1, -2):
        raise NotImplementedError("make_diagonal has offset=0, axis1=-1, axis2=-2 only")
    return D[..., None] * _np.eye(D.shape[-1])
