"""Messages of the user's own code, by `logging` and `warnings`: each call of it would give them.

What libraries say is said while tracing.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from gradof.tracer.state.surroundings import is_installed, is_repeated

# Functions that tell the user something, by module.
TELLING = {"logging": "_log", "warnings": "_showwarnmsg"}


def message_of(frame: FrameType, facts_at: Callable[[CodeType], Any]) -> str | None:
    """What a call would do again, where one of these runs for code that is the user's.

    None for what eager says but once, too.
    """
    caller = frame.f_back
    while caller is not None and caller.f_globals.get("__name__") in TELLING:
        caller = caller.f_back
    if caller is None or facts_at(caller.f_code) is None or is_installed(caller.f_code):
        return None
    if frame.f_code.co_name == "_log":
        return "logging"
    if "msg" in frame.f_locals and is_repeated(  # else `numpy/reports` takes it
        frame.f_locals["msg"], str(caller.f_globals.get("__name__"))
    ):
        return "warnings.warn"
    return None
