"""Adaptors: how calls of aten ops become IR."""
