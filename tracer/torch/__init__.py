"""Tracing torch functions below functionalization."""
