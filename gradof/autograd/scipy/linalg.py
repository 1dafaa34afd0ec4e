"""`scipy.linalg`, under the name that code for autograd imports."""

import scipy.linalg as _module

globals().update({n: v for n, v in vars(_module).items() if not n.startswith("__")})
