"""Python's containers and questions: a trace takes them as they are."""

import builtins
from typing import Any


def type(value: Any) -> Any:
    """The type that a value shows: that of a traced array is numpy's."""
    return value.__class__


dict, isinstance = builtins.dict, builtins.isinstance
list, tuple = builtins.list, builtins.tuple
# autograd's boxes of containers, which code names in annotations: a trace has none.
DictBox, ListBox, SequenceBox, TupleBox = dict, list, tuple, tuple
__all__ = [
    "DictBox", "ListBox", "SequenceBox", "TupleBox", "dict", "isinstance", "list", "tuple", "type",
]  # fmt: skip
