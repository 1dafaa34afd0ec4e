"""The public functions: `differentiate` here, the functional ones re-exported from the runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

from gradof.codegen.machine.arena import let_go
from gradof.errors import InputError
from gradof.ops.memory import clear
from gradof.runtime.arrays import torch_if_loaded
from gradof.runtime.cfunc import cfunc
from gradof.runtime.checkpoint import checkpoint
from gradof.runtime.control import cond, fori_loop, scan, while_loop
from gradof.runtime.custom import custom_vjp
from gradof.runtime.escapes import stop_gradient, value_of
from gradof.runtime.forward import jvp
from gradof.runtime.function import Differentiated
from gradof.runtime.functional import grad, hvp, value_and_grad
from gradof.runtime.jacobians import hessian, jacobian
from gradof.runtime.limits import limits
from gradof.runtime.module import differentiate_module
from gradof.runtime.primitive import primitive
from gradof.runtime.pullback import vjp
from gradof.runtime.refuse import Numerics

__all__ = [
    "cfunc", "checkpoint", "cond", "custom_vjp", "differentiate", "fori_loop", "grad", "hessian",
    "hvp", "jacobian", "jvp", "limits", "primitive", "release_memory", "scan", "stop_gradient",
    "value_and_grad", "value_of", "vjp", "while_loop",
]  # fmt: skip


def release_memory() -> None:
    """Give the system back the memory of arrays that are gone, which is kept for the next ones.

    At most GRADOF_KEPT_MB megabytes are kept, 128 by default, in arrays of a megabyte and more.
    """
    clear()
    let_go()


@overload
def differentiate(
    fn: Callable[..., Any], *, static_argnames: Sequence[str] = (), strict: bool = False,
    memory_budget: float | None = None, numerics: Numerics = "eager", cuda_graph: bool = False,
    audit: float = 0.0,
) -> Any: ...
@overload
def differentiate(
    fn: None = None, *, static_argnames: Sequence[str] = (), strict: bool = False,
    memory_budget: float | None = None, numerics: Numerics = "eager", cuda_graph: bool = False,
    audit: float = 0.0,
) -> Callable[[Callable[..., Any]], Any]: ...
def differentiate(
    fn: Callable[..., Any] | None = None, *, static_argnames: Sequence[str] = (),
    strict: bool = False, memory_budget: float | None = None, numerics: Numerics = "eager",
    cuda_graph: bool = False, audit: float = 0.0,
) -> Any:  # fmt: skip
    """Compile a function of torch tensors or numpy arrays, and its gradient, on first use.

    The result takes and returns what `fn` does. torch tensors are recorded by torch's autograd,
    to any order; for numpy arrays see `grad` and `value_and_grad`. Arguments named in
    `static_argnames` are never traced. A `torch.nn.Module` gives a module that shares its
    parameters. Also usable as `@differentiate(...)`.

    An op of torch's without a rule of ours runs under torch's own autograd, with an
    OpaqueOpWarning that names it; with `strict` it is an UnsupportedOpError.

    A torch function that cannot be traced runs as it is, under torch's own autograd, with one
    EagerWarning: the line, the cause, what to change. With `strict` it is the error. So do shapes
    and Python state that change more often than `gradof.limits` allow, with a RetraceWarning.

    Between the function and its gradient values are saved, chosen by least cost; what is cheap is
    computed again. `memory_budget` is the share of those bytes that may be saved, from 0 (inputs
    only, all else is computed again) to 1. Raises InputError for any other number.

    With numerics="nan_safe" a branch of `where` that is not taken contributes zero, never 0 * inf;
    "eager", the default, gives what eager gives. `.lint(...)` lists the lines where they differ.

    With `cuda_graph` f and df, on a CUDA device, are recorded into CUDA graphs at their second run
    and replayed from then on, which saves what launches cost. Results are copied out of the graphs'
    memory, so gradients accumulate as ever. DeviceError for CPU tensors, CodegenError where an op
    cannot be in a CUDA graph.

    With `audit`, from 0 to 1, at most that share of calls, and of the time, goes into holding calls
    to eager and float64 while the program runs, on copies of the arguments. What differs is an
    AuditWarning that names the first such op and its line; `.audit_info()` counts. A call that
    cannot be run again unseen, because it writes to Python state, is skipped and counted.

    Calling the result raises what `fn` raises; with numpy arrays or `strict`, InputError or
    TraceError (see gradof.errors) before anything has run.
    """
    names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    if fn is None:
        return lambda given: differentiate(
            given, static_argnames=names, strict=strict, memory_budget=memory_budget,
            numerics=numerics, cuda_graph=cuda_graph, audit=audit,
        )
    torch = torch_if_loaded()
    if torch is not None and isinstance(fn, torch.nn.Module):
        return differentiate_module(fn, names, strict, memory_budget, numerics, cuda_graph, audit)
    if isinstance(fn, Differentiated):
        return fn if numerics == "eager" else fn.with_numerics(numerics)
    if not callable(fn):
        raise InputError(
            f"differentiate takes a function or a module, not a {type(fn).__name__}",
            hint="use it as a decorator: @differentiate",
        )
    return Differentiated(fn, names, strict, memory_budget, numerics, cuda_graph, audit)
