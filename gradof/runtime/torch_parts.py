"""Modules that a function calls which runs as it is: each is compiled by itself.

    @differentiate
    def training_step(self, batch):
        loss = self.model(batch["x"]).mean()     # the model's forward is compiled
        self.log("loss", loss)                   # for this the function itself cannot be traced
        return loss

A module that cannot be traced either runs as it is, and those that it calls are compiled. One is
compiled when it is called for the third time: some are made for a call or two. Modules with hooks,
torch's layers that have no modules of their own, and what runs under hooks of saved tensors (a
checkpoint is to run the same again) or under modes that see each op are left alone.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.nn.modules import module as _modules

from gradof.runtime.function import Differentiated
from gradof.runtime.shell import runs_as_it_is
from gradof.runtime.thread import is_tracing

_MODULE: Any = torch.nn.Module
_HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
_PARTS: OrderedDict[FunctionType, Differentiated] = OrderedDict()  # by forward, the latest last
_MAX_PARTS = 256  # forwards: those of classes that are made anew again and again keep these alive
_CALLS: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # of modules, so far
_FIRST = 3  # the call that is compiled
_NEVER = 1 << 30
_LOCK = threading.RLock()
_RUNNING = [0]  # how many functions run so, in all threads
_AS_IT_IS = [_MODULE._call_impl]  # what is put back then


class _Thread(threading.local):
    """Whether modules are compiled, and the classes of those that were."""

    def __init__(self) -> None:
        self.on = False
        self.names = set[str]()


_THREAD = _Thread()


@contextmanager
def modules_compiled() -> Iterator[set[str]]:
    """Within it, modules that this thread calls are compiled, but not those that these call.

    Gives the names of their classes.
    """
    before, names = (_THREAD.on, _THREAD.names), set[str]()
    with _LOCK:
        if not _RUNNING[0]:
            _AS_IT_IS[0], _MODULE._call_impl = _MODULE._call_impl, _call
        _RUNNING[0] += 1
    _THREAD.on, _THREAD.names = True, names
    try:
        yield names
    finally:
        _THREAD.on, _THREAD.names = before
        with _LOCK:
            _RUNNING[0] -= 1
            if not _RUNNING[0]:
                _MODULE._call_impl = _AS_IT_IS[0]


def _call(self: Any, *args: Any, **kwargs: Any) -> Any:
    if torch.compiler.is_dynamo_compiling() or not _THREAD.on or is_tracing() or _is_seen(self):
        return _AS_IT_IS[0](self, *args, **kwargs)
    forward = _forward(self)
    if forward is None:
        return _AS_IT_IS[0](self, *args, **kwargs)
    _THREAD.names.add(type(self).__name__)
    if not _comes_often(self):
        return _AS_IT_IS[0](self, *args, **kwargs)
    part = _part(self, forward)
    _THREAD.on = False
    try:
        return part(*args, **kwargs)
    finally:
        _THREAD.on = True


def _is_seen(module: Any) -> bool:
    """Whether something sees what a module computes while it does."""
    watching: Any = torch._C
    return bool(
        any(getattr(module, name) or getattr(_modules, f"_global{name}") for name in _HOOKS)
        or watching._get_tracing_state() is not None
        or watching._autograd._top_saved_tensors_default_hooks(False) is not None
        or watching._len_torch_dispatch_stack() or watching._len_torch_function_stack()
        or watching._are_functorch_transforms_active()
    )


def _forward(module: Any) -> FunctionType | None:
    """The forward of a module's class, where it is to be compiled."""
    cls = type(module)
    forward = getattr(cls, "forward", None)
    is_a_layer = cls.__module__.startswith("torch.") and not module._modules
    if is_a_layer or "forward" in module.__dict__ or type(forward) is not FunctionType:
        return None
    return None if hasattr(cls, "_gradof_original") else forward


def _comes_often(module: Any) -> bool:
    """Whether a module is to be compiled now; distributed ones never are."""
    try:
        calls = _CALLS.get(module, 0) + 1
        if calls < _FIRST:
            _CALLS[module] = calls
        elif calls == _FIRST:
            _CALLS[module] = _NEVER if runs_as_it_is(module) else calls
    except TypeError:  # it is not hashable
        return False
    return calls >= _FIRST and _CALLS[module] != _NEVER


def _part(module: Any, forward: FunctionType) -> Differentiated:
    """The compiled forward of a module."""
    with _LOCK:
        compiled = _PARTS.get(forward)
        if compiled is None:
            compiled = _PARTS[forward] = Differentiated(forward)
            if len(_PARTS) > _MAX_PARTS:
                _PARTS.popitem(last=False)
    part = compiled.of_instance(module)
    part.cache.eager.is_told = True  # its caller was
    return part
