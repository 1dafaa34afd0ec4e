"""What extensions of autograd use."""

from gradof.autograd.core import (
    VSpace,
    def_linear,
    defjvp,
    defjvp_argnum,
    defjvp_argnums,
    defvjp,
    defvjp_argnum,
    defvjp_argnums,
    vspace,
)
from gradof.autograd.tracer import Box, notrace_primitive, primitive, register_notrace

__all__ = [
    "Box", "VSpace", "def_linear", "defjvp", "defjvp_argnum", "defjvp_argnums", "defvjp",
    "defvjp_argnum", "defvjp_argnums", "notrace_primitive", "primitive", "register_notrace",
    "vspace",
]  # fmt: skip
