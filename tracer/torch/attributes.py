"""Attributes that the user has set on tensors, as a run reads and sets them.

    def f(x): return x * getattr(x, "scale", 1)       Attributes(0, {}, frozenset({"scale"}))
    f(tagged)                                         Attributes(0, {"scale": 2}, frozenset())

A tensor of the trace has the attributes of the argument that it stands for. Which of them were
read, and which were asked for and not there, is part of the trace; what is set on a tensor, a graph
does not have.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from types import FrameType
from typing import Any

import torch

from gradof.errors import TraceError
from gradof.ir.core import Loc
from gradof.tracer.core.asked import (
    Attributes,
    NoGradient,
    OfOwnHistory,
    Told,
    Unhooked,
)
from gradof.tracer.state import lookups
from gradof.tracer.state.heard import is_heard
from gradof.tracer.state.reads import Reads
from gradof.tracer.state.source import user_loc
from gradof.tracer.torch.functional import is_wrapper
from gradof.tracer.torch.versions import Versions

_PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device)
_tensors: Any = torch.Tensor


class ReadAttributes:
    """What one run reads of the tensors that stand for graph inputs."""

    def __init__(self, reads: Reads) -> None:
        self.reads = reads
        self._given: dict[int, dict[str, Any]] = {}
        self._missed: dict[int, set[str]] = {}
        self._real: dict[int, torch.Tensor] = {}
        self._without: set[int] = set()  # those whose `.grad` was read
        self._asked: dict[int, Loc | None] = {}  # those whose gradient it asks for, and where
        self.versions = Versions()

    def give(self, wrapper: torch.Tensor, tensor: torch.Tensor) -> None:
        """Let a tensor of the trace have the attributes of the one it stands for."""
        attributes = self._given[id(wrapper)] = dict(vars(tensor))
        self._real[id(wrapper)] = tensor
        self.versions.give(wrapper, tensor)
        if attributes:
            vars(wrapper).update(attributes)

    def is_input(self, wrapper: torch.Tensor) -> bool:
        """Whether it stands for an argument, or for a tensor of the state."""
        return id(wrapper) in self._real

    def is_own_leaf(self, given: Any) -> bool:
        """Whether it is a tensor, and a leaf that the function has made."""
        if not isinstance(given, torch.Tensor) or not is_wrapper(given):
            return False
        return given.is_leaf and not self.is_input(given)

    def lacks_gradient(self, wrapper: torch.Tensor) -> bool:
        """Whether it stands for a leaf whose `.grad` is None; the trace holds for such alone."""
        tensor = self._real.get(id(wrapper))
        if tensor is None or not tensor.is_leaf or tensor.grad is not None:
            return False
        self._without.add(id(wrapper))
        return True

    def asks_gradient(self, tensors: Iterable[Any], frame: FrameType) -> None:
        """The function asks for these gradients itself; TraceError if hooks would change one."""
        for tensor in tensors:
            if (real := self._real.get(id(tensor))) is None:
                continue
            if real._backward_hooks:
                raise TraceError(
                    "a traced function asks for the gradient of a tensor that has hooks",
                    loc=user_loc(frame), hint="remove them, and change the gradient that it gives",
                )
            self._asked[id(tensor)] = user_loc(frame)

    def asked(self, wrappers: Sequence[torch.Tensor]) -> Iterator[Told]:
        """What is to hold of graph inputs whose gradient the function asks for.

        TraceError where it goes on through what was before the call.
        """
        real = [self._real[id(wrapper)] for wrapper in wrappers]
        others = tuple(i for i, tensor in enumerate(real) if tensor.grad_fn is not None)
        asked = tuple(i for i, wrapper in enumerate(wrappers) if id(wrapper) in self._asked)
        yield from map(Unhooked, asked)
        if asked and others:
            own = OfOwnHistory(asked, others)
            if not own.holds(real):
                raise TraceError(
                    "a traced function asks for the gradient of a tensor that another one was "
                    "computed from before the call", loc=self._asked[id(wrappers[asked[0]])],
                    hint="compute that within the function, or pass it detached",
                )  # fmt: skip
            yield own

    def without_gradients(self, wrappers: Sequence[torch.Tensor]) -> tuple[NoGradient, ...]:
        """Those of the graph inputs that are to have no gradient."""
        found = [i for i, wrapper in enumerate(wrappers) if id(wrapper) in self._without]
        return tuple(map(NoGradient, found))

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Within it, what this thread's code asks of tensors and is not there is taken down."""
        here = threading.get_ident()

        def missing(tensor: torch.Tensor, name: str) -> Any:
            if id(tensor) in self._given and threading.get_ident() == here:
                if is_heard(_asking(sys._getframe(1))):
                    self._missed.setdefault(id(tensor), set()).add(name)
            raise AttributeError(
                f"{type(tensor).__name__!r} object has no attribute {name!r}", name=name, obj=tensor
            )

        _tensors.__getattr__ = missing
        try:
            yield
        finally:
            del _tensors.__getattr__

    def of(self, i: int, wrapper: torch.Tensor, loc: Loc | None) -> Attributes | None:
        """What was read of graph input `i`; TraceError for what cannot be compared, or was set."""
        given = self._given[id(wrapper)]
        now = {k: v for k, v in vars(wrapper).items() if k in given or not is_hint(k)}
        if now.keys() != given.keys() or any(now[name] is not given[name] for name in given):
            raise set_error(loc)
        whole = id(wrapper) in self.reads.everything  # by computed names
        present = {k: v for k, v in given.items() if whole or k in self.reads.names}
        for name, value in present.items():
            if not isinstance(value, _PLAIN):
                raise TraceError(
                    f"the attribute {name} of an argument is a {type(value).__qualname__}", loc=loc,
                    hint="pass it as an argument of its own",
                )
        missed = self._missed.get(id(wrapper), set())
        if not (present or missed or whole):
            return None
        return Attributes(i, present, None if whole else frozenset(missed))


def _asking(frame: FrameType | None) -> str:
    """The module of the code that asks, be it by what is lent to it as `getattr` or `hasattr`."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module != lookups.__name__:
            return module
        frame = frame.f_back
    return ""


def is_hint(name: str) -> bool:
    """Whether an attribute is one that `torch._dynamo.mark_static_address` and its like set."""
    return name.startswith("_dynamo_")


def set_error(loc: Loc | None) -> TraceError:
    """The error for an attribute that is set on a tensor of the trace."""
    return TraceError(
        "an attribute is set on a tensor, which a compiled call would not have", loc=loc,
        hint="return the value, or keep it in an object of your own",
    )
