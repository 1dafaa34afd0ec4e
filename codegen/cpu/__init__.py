"""The numpy emitter, and the helper kernels its sources call."""
