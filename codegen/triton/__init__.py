"""Loop nests as Triton kernels: source, launches, and the ops it has."""
