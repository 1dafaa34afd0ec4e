"""The name that autograd has for a traced array."""

from gradof.tracer.numpy.array import TracedArray as ArrayBox

__all__ = ["ArrayBox"]
