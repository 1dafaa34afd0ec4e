"""Python's containers and questions: a trace takes them as they are."""

import builtins
from typing import Any


def type(value: Any) -> Any:
    """The type that a value shows: that of a traced array is numpy's."""
    return value.__class__


dict, isinstance = builtins.dict, builtins.isinstance
list, tuple = builtins.list, builtins.tuple
__all__ = ["dict", "isinstance", "list", "tuple", "type"]
