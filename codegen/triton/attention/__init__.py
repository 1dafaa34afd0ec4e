"""Attention as Triton kernels that never hold all scores."""
