"""What a backward of the user's reads: in eager it runs later, when the state may be another.

    class Scaled(torch.autograd.Function):
        @staticmethod
        def backward(ctx, g): return g * SCALE      # TraceError: SCALE may be another by then

        def backward(ctx, g): Scaled.runs += 1      # TraceError: the call itself does not write it
"""

from __future__ import annotations

import sys
from collections import deque
from types import BuiltinFunctionType, FrameType, FunctionType, ModuleType

from gradof.errors import TraceError
from gradof.tracer.state.code_facts import Facts
from gradof.tracer.state.source import user_loc

_STDLIB = frozenset(sys.stdlib_module_names) - {"__main__"}  # whose globals stay as they are
_TORCHS = frozenset({"torch", "torch._ops"})  # modules of dtypes and ops
_FIXED = (type, ModuleType, FunctionType, BuiltinFunctionType)
_ATOMS = (int, float, complex, str, bytes, tuple, type(None))
_CONTAINERS = (list, dict, set, deque, bytearray)


def refuse_reads_of_backward(frame: FrameType, facts: Facts) -> None:
    """A backward reads the state when it runs: in eager after the call, here while tracing."""
    space, cells = frame.f_globals, frame.f_locals
    if str(space.get("__name__", "")).partition(".")[0] in _STDLIB:
        return
    found = [n for n in facts.reads & space.keys() if not isinstance(space[n], _FIXED)]
    found += [n for n in frame.f_code.co_freevars if not isinstance(cells.get(n), _FIXED + _ATOMS)]
    for name in found:
        value = space[name] if name in space else cells.get(name)
        if hasattr(value, "dtype") or type(value).__module__ in _TORCHS:
            continue  # tensors are inputs
        raise TraceError(
            f"a backward reads {name}, which may be another when it runs", loc=user_loc(frame),
            hint="give it to the forward, and keep it on ctx",
        )
    _refuse_writes(frame, facts)


def _refuse_writes(frame: FrameType, facts: Facts) -> None:
    """What a backward writes is not written by the call, nor by a call without a backward."""
    written = {*facts.globals_stored, *facts.cells_stored}
    space = frame.f_globals
    holders = [*frame.f_locals.values(), *(space[n] for n in facts.reads & space.keys())]
    for holder in holders:
        kept = vars(holder) if _is_context(holder) else {}
        for owner in (holder, *kept.values()):
            if _is_context(owner) or hasattr(owner, "dtype"):
                continue
            there = _attributes(owner)
            written |= facts.stores & there.keys()
            written |= {n for n in facts.reads & there.keys() if type(there[n]) in _CONTAINERS}
    for name in sorted(written):
        raise TraceError(
            f"a backward may write {name}, which the call itself does not", loc=user_loc(frame),
            hint="do it in a hook, or outside",
        )


def _is_context(obj: object) -> bool:
    return hasattr(type(obj), "mark_dirty")


def _attributes(owner: object) -> dict[str, object]:
    """What may be written of an object, a class or a module of the user's."""
    name = str(getattr(owner, "__name__", "") if isinstance(owner, ModuleType) else
               getattr(owner if isinstance(owner, type) else type(owner), "__module__", ""))
    if name.partition(".")[0] in _STDLIB | {"torch", "numpy"}:
        return {}
    return dict(getattr(owner, "__dict__", {}))
