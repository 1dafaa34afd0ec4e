"""`numpy.random`, under the name that code for autograd imports."""

import numpy.random as _module

globals().update({n: v for n, v in vars(_module).items() if not n.startswith("__")})
