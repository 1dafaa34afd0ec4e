"""Tracing numpy functions, and the adaptors of numpy's and scipy's functions."""
