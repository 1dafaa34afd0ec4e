"""`numpy.linalg`, under the name that code for autograd imports."""

import numpy.linalg as _module

_OURS = frozenset(globals())
globals().update({n: v for n, v in vars(_module).items() if n not in _OURS})
