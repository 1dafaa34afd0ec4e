"""gradof: a JIT tracing compiler for gradients.

`import gradof` is light: it loads neither torch nor sympy. Each public name loads what it needs
the first time it is used.
"""

import os

from gradof import errors as errors

# tracer/, autodiff/ and codegen/ are reached through links in this folder. Where a checkout has
# no links (git on Windows makes text files of them), they are found beside this folder instead.
if not os.path.isdir(os.path.join(__path__[0], "tracer")):
    __path__.append(os.path.dirname(__path__[0]))

__version__ = "0.1.0"

__all__ = ["__version__", "errors"]
