"""What a backward of the user's reads: in eager it runs later, when the state may be another.

    class Scaled(torch.autograd.Function):
        @staticmethod
        def backward(ctx, g): return g * SCALE      # TraceError: SCALE may be another by then
"""

from __future__ import annotations

import sys
from types import BuiltinFunctionType, FrameType, FunctionType, ModuleType

from gradof.errors import TraceError
from gradof.tracer.state.code_facts import Facts
from gradof.tracer.state.source import user_loc

_STDLIB = frozenset(sys.stdlib_module_names) - {"__main__"}  # whose globals stay as they are
_TORCHS = frozenset({"torch", "torch._ops"})  # modules of dtypes and ops
_FIXED = (type, ModuleType, FunctionType, BuiltinFunctionType)
_ATOMS = (int, float, complex, str, bytes, tuple, type(None))


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
