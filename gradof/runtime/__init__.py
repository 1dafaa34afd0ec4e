"""Signatures, cache, calls, and the functional API."""
