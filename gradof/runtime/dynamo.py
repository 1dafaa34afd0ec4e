"""Calls of ours in what `torch.compile` compiles: its graph breaks there, and they run as they are.

    @left_alone
    class Differentiated:
        def __call__(self, *args): ...

    leave_alone()                     # once torch is there

Dynamo, which traces for torch.compile, would go through our Python otherwise: through the tracer at
the first call, which ends in an error of its own, and through the emitted numpy code at others. Two
marks keep it out. An attribute of the function, as `torch.compiler.disable` sets it, is read when a
caller is traced. When the call runs then, its frame and all frames within it are skipped, which is
said of its code. `torch.compiler.disable` itself imports Dynamo, which takes a second, and costs
each call a wrapper.
"""

from __future__ import annotations

import sys
from types import CodeType
from typing import Any, TypeVar

_CODES: set[CodeType] = set()  # of calls that are marked, and not yet told of
_Class = TypeVar("_Class", bound=type)


def left_alone(cls: _Class) -> _Class:
    """Mark the calls of a class's instances."""
    call: Any = cls.__call__
    call._torchdynamo_disable = True
    call._torchdynamo_disable_msg = "gradof compiles it; leave out fullgraph=True"
    _CODES.add(call.__code__)
    return cls


def left_alone_in_autograd(cls: _Class) -> _Class:
    """Mark the two halves of a torch.autograd.Function of ours.

    The engine calls its backward from within whatever ran it, such as what is left of a function
    whose graph ended at torch.autograd.grad.
    """
    halves: Any = cls
    _CODES.update((halves.forward.__code__, halves.backward.__code__))
    leave_alone()
    return cls


def leave_alone() -> None:
    """Tell torch of all calls that are marked, if it is loaded."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "_C") or not _CODES:  # there is none while it loads
        return
    frames: Any = torch._C._dynamo.eval_frame
    skip = frames._FrameAction.SKIP
    while _CODES:
        frames.set_code_exec_strategy(_CODES.pop(), frames._FrameExecStrategy(skip, skip))
