"""Linear systems."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gradof.codegen.whole.products import Products
from gradof.ir.core import Node

SYSTEMS: Mapping[str, Callable[[Node], bool]] = {}


class Systems(Products):
    """Writes linear systems."""
