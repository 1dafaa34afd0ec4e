"""`scipy.special`, under the name that code for autograd imports."""

import scipy.special as _module

globals().update({n: v for n, v in vars(_module).items() if not n.startswith("__")})
