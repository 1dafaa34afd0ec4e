"""Graphs as straight-line Python: numpy statements, or torch's, around the kernels."""
