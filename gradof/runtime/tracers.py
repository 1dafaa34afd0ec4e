"""The tracer of a call, by the library of its arguments.

    tracer_of(call, strict=False, places=(), lengths=cache.lengths)(fn, args, kwargs, ...)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from gradof.codegen.host.evaluate import interpret
from gradof.runtime.arrays import Call
from gradof.runtime.lengths import ByLength
from gradof.runtime.thread import calling_compiled, is_nan_safe, tracing
from gradof.tracer.core.result import Traced
from gradof.tracer.state.places import Place


def _transforms() -> Any:
    from gradof.runtime.forward import jvp
    from gradof.runtime.functional import grad
    from gradof.runtime.jacobians import jacobian
    from gradof.runtime.steady import Steady
    from gradof.tracer.scipy.transforms import Transforms

    return Transforms(
        grad, jacobian, jvp, Steady, calling_compiled, lambda: tracing(is_nan_safe())
    )


def tracer_of(
    call: Call, strict: bool, places: Sequence[Place], lengths: ByLength
) -> Callable[..., Traced]:
    """The function that traces this call, in a process that has its library."""
    if call.library == "torch":
        from gradof.tracer.torch.tracer import trace_torch

        return partial(
            trace_torch, strict=strict, varying=places, same=call.same_leaves(),
            evaluate=partial(interpret, library="torch"),
        )  # fmt: skip
    from gradof.runtime.nested_numpy import evaluate_sofar
    from gradof.tracer.numpy.lengths import Sizes
    from gradof.tracer.numpy.tracer import trace_numpy
    from gradof.tracer.scipy.imports import catch_calls
    from gradof.tracer.scipy.transforms import set_transforms
    from gradof.tracer.torch.in_numpy import refuse_torch

    set_transforms(_transforms)
    catch_calls()
    refuse_torch()
    sizes = lengths.sizes(call, Sizes)
    return partial(trace_numpy, varying=places, evaluate=evaluate_sofar, sizes=sizes)
