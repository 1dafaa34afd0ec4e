"""What a run that ended with an error has shown, for the next try and for the caller.

    reads.failed.undone        # it had changed the counter that is as it was again
"""

from __future__ import annotations

import dis
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradof.errors import GradofError
from gradof.tracer.state.source import in_user_code

_RAISE = dis.opmap["RAISE_VARARGS"]  # `raise`, and `assert` where it does not hold


@dataclass
class FailedRun:
    """Notes of one run; empty where it ended well."""

    decided: list[Any] = field(default_factory=list)  # the state's tensors whose values it went by
    written: list[Any] = field(default_factory=list)  # places of arrays it may have written to
    undone: bool = True  # what it changed is as before, or what it printed was not


def is_of_program(error: BaseException) -> bool:
    """Whether the program ends with this error without gradof, too, as far as can be told.

    What a `raise` or an `assert` of the user's code has made does, and errors of its values: a
    singular matrix, a missing key. Others may be about traced values.
    """
    if isinstance(error, GradofError):
        return False
    if isinstance(error, (ArithmeticError, np.linalg.LinAlgError)):
        return True
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None or not in_user_code(last.tb_frame):
        return False
    raises = last.tb_frame.f_code.co_code[last.tb_lasti] == _RAISE
    return raises or isinstance(error, LookupError)
