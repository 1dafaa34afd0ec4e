"""Passes over the IR: one file, one function, one pass."""
