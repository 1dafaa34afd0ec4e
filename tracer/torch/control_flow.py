"""torch.cond, while_loop and functions of torch.compile inside traced code run as Python does.

Those of torch.jit.script, too: see `torch_scripted`.

    @differentiate
    def loss(x):
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)).sum()

    loss(x)            # the branch that is taken; another graph where another is

torch would hand each to its own compiler, of whose work a trace sees nothing. A condition on
tensors is a guard of the trace, as that of an `if` is; a compiled function is traced as it was
written.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch._higher_order_ops import utils
from torch.utils._pytree import tree_leaves

from gradof.errors import UnsupportedOpError
from gradof.tracer.core.regions import is_recording
from gradof.tracer.state.source import user_loc
from gradof.tracer.torch.recorder import Recorder
from gradof.tracer.torch.scripted import scripted
from gradof.tracer.torch.state import OuterState
from gradof.tracer.torch.subclasses import subclasses

_COMPILE = "_hop_compile_and_call"  # what torch's operators of control flow run through, since 2.13


def run_cond(
    pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], args: Any
) -> Any:
    """torch.cond, for what may be a tensor."""
    return (true_fn if pred else false_fn)(*args)


def run_while_loop(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried: Any, closed: Any
) -> Any:
    """torch.while_loop, for a condition that may be a tensor."""
    result = carried
    while cond_fn(*carried, *closed):
        result = body_fn(*carried, *closed)
        carried = tree_leaves(result)
    return result


_OPERATORS = {"_cond_op_wrapper": run_cond, "_while_loop_op_wrapper": run_while_loop}


@contextmanager
def control_flow(
    recorder: Recorder, lift: Callable[[torch.Tensor], torch.Tensor], outer: OuterState
) -> Iterator[None]:
    """Within it, torch's control flow is Python's on a recording thread.

    Compiled functions run as they were written, on other threads too, as torch has one setting for
    all; traces run one at a time, so each puts back what it found.
    """
    module: Any = utils
    before = getattr(module, _COMPILE, None)

    def run(fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> Any:
        if not is_recording():
            assert before is not None
            return before(fn, args, kwargs)
        name = fn.__name__
        if name not in _OPERATORS:
            raise UnsupportedOpError(
                f"torch's higher-order operator behind {name.strip('_')}",
                loc=user_loc(), hint="write it in Python: loops over tensors are traced",
            )  # fmt: skip
        return _OPERATORS[name](*args)

    if before is not None:
        setattr(module, _COMPILE, run)
    # functions are compiled only where torch's compiler was loaded, which takes a second
    loaded = "torch._dynamo" in sys.modules
    try:
        with torch.compiler.set_stance("force_eager") if loaded else nullcontext():
            with scripted(recorder, lift, outer), subclasses(lift):
                yield
    finally:
        if before is not None:
            setattr(module, _COMPILE, before)
