"""Loop nests as Triton kernels: readable source, its launcher, and the ops it has."""
