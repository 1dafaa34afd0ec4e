"""The builtins that the traced code is lent, by name: those that would see what stands for a value.

    type(x) is np.ndarray           # of a traced array, which is a TracedArray
    type(t) is int, type(n)         # of the number of a step, or a size, or a number that varies
    range(n), zip(xs, us), len(x)   # in `ranges` and `sized`

`isinstance` needs none: what stands for a value has that value's `__class__`.
"""

from __future__ import annotations

from typing import Any

from gradof.tracer.core.lent_type import Type
from gradof.tracer.numpy.ranges import Enumerate, Range, Zip
from gradof.tracer.numpy.sized import length_of

LENT: dict[str, Any] = {
    "range": Range, "zip": Zip, "enumerate": Enumerate, "len": length_of, "type": Type,
}  # fmt: skip
