"""How each side computes a workload's value and gradients: gradof, and its peers."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from workloads import Workload

from gradof import differentiate, value_and_grad

Run = Callable[[], list[Any]]
BackwardRun = Callable[[list[Any]], Any]
NUMPY_CALLER = "gradof, numpy caller"
DIRECT = "gradof value_and_grad"  # of tensors, as JAX's: without torch's autograd around it
SIDES = (
    "gradof", DIRECT, NUMPY_CALLER, "gradof tiles", "gradof numpy", "eager", "torch.compile", "jax",
    "autograd",
)  # fmt: skip

BACKENDS = {"gradof": "auto", "gradof tiles": "tiles", "gradof numpy": "numpy"}


def torch_run(fn: Callable[..., Any], w: Workload, arrays: list[Any]) -> Run:
    """Value and gradients through torch's autograd."""
    tensors = [torch.from_numpy(a) for a in arrays]
    for i in w.argnums:
        tensors[i].requires_grad_()
    wanted = [tensors[i] for i in w.argnums]
    return lambda: list(torch.autograd.grad(fn(*tensors), wanted))


def direct_run(w: Workload, arrays: list[Any]) -> Run:
    """gradof's value and gradient of tensors."""
    assert w.torch is not None
    fn = value_and_grad(w.torch, argnums=w.argnums)
    tensors = [torch.from_numpy(a) for a in arrays]
    return lambda: list(fn(*tensors)[1])


def numpy_run(w: Workload, arrays: list[Any]) -> Run:
    """gradof's value and gradient of numpy code."""
    assert w.array is not None
    array = w.array
    fn = value_and_grad(lambda *args: array(np, *args), argnums=w.argnums)
    return lambda: list(fn(*arrays)[1])


def jax_run(w: Workload, arrays: list[Any]) -> Run:
    """jax.jit of jax.value_and_grad."""
    import jax

    jax.config.update("jax_enable_x64", True)
    assert w.array is not None
    array = w.array
    fn = jax.jit(jax.value_and_grad(lambda *a: array(jax.numpy, *a), argnums=w.argnums))
    given = [jax.numpy.asarray(a) for a in arrays]
    return lambda: [g.block_until_ready() for g in fn(*given)[1]]


def autograd_run(w: Workload, arrays: list[Any]) -> Run:
    """HIPS autograd's value_and_grad."""
    import autograd
    import autograd.numpy as anp

    assert w.array is not None
    array = w.array
    fn = autograd.value_and_grad(lambda *a: array(anp, *a), argnum=w.argnums)
    return lambda: list(fn(*arrays)[1])


class backend:
    """`GRADOF_BACKEND` for a while: code is made at the first call."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        os.environ["GRADOF_BACKEND"] = self.name

    def __exit__(self, *_: object) -> None:
        del os.environ["GRADOF_BACKEND"]


def sides(w: Workload, arrays: list[Any]) -> dict[str, Callable[[], Run]]:
    """How each side is made; the numpy caller's where the workload is not written for torch."""
    fn = w.torch
    made: dict[str, Callable[[], Run]] = {}
    for side in BACKENDS:
        made[side] = (
            (lambda: torch_run(differentiate(fn), w, arrays)) if fn is not None
            else (lambda: numpy_run(w, arrays))
        )  # fmt: skip
    if fn is not None and w.array is not None:
        made[NUMPY_CALLER] = lambda: numpy_run(w, arrays)
    if fn is not None:
        made[DIRECT] = lambda: direct_run(w, arrays)
        made["eager"] = lambda: torch_run(fn, w, arrays)
        made["torch.compile"] = lambda: torch_run(torch.compile(fn), w, arrays)
    if w.array is not None and importlib.util.find_spec("jax"):
        made["jax"] = lambda: jax_run(w, arrays)
    if w.array is not None and importlib.util.find_spec("autograd"):
        made["autograd"] = lambda: autograd_run(w, arrays)
    return made


def forwards(w: Workload, arrays: list[Any], sides_: Iterable[str]) -> dict[str, Run]:
    """The value alone, without recording a gradient, for the sides of torch callers or numpy's."""
    made: dict[str, Run] = {}
    for side in sides_:
        with backend(BACKENDS.get(side, "auto")):
            run = _forward(side, w, arrays)
            if run is not None:
                run()
                made[side] = run
    return made


def _forward(side: str, w: Workload, arrays: list[Any]) -> Run | None:
    if side in ("torch.compile", DIRECT):
        return None  # one would compile once more, the other has no value alone
    if w.torch is not None and side not in (NUMPY_CALLER, "jax", "autograd"):
        tensors = [torch.from_numpy(a) for a in arrays]
        fn = w.torch if side == "eager" else differentiate(w.torch)

        def run() -> list[Any]:
            with torch.no_grad():
                return [fn(*tensors)]

        return run
    if w.array is None or side == "autograd":
        return None
    array = w.array
    if side == "jax":
        import jax

        jitted = jax.jit(lambda *a: array(jax.numpy, *a))
        given = [jax.numpy.asarray(a) for a in arrays]
        return lambda: [jitted(*given).block_until_ready()]
    compiled = differentiate(lambda *a: array(np, *a))
    return lambda: [compiled(*arrays)]


def backwards(
    w: Workload, arrays: list[Any], sides_: Iterable[str]
) -> dict[str, tuple[Run, BackwardRun]]:
    """For the sides of torch callers: the value with its record, and the gradients from it.

    The others compute value and gradients in one call, and there is no backward to time.
    """
    made: dict[str, tuple[Run, BackwardRun]] = {}
    if w.torch is None:
        return made
    for side in sides_:
        if side in BACKENDS:
            fn = differentiate(w.torch)
        elif side in ("eager", "torch.compile"):
            fn = w.torch if side == "eager" else torch.compile(w.torch)
        else:
            continue
        with backend(BACKENDS.get(side, "auto")):
            forward, backward = _backward(fn, w, arrays)
            backward(forward())
        made[side] = forward, backward
    return made


def _backward(fn: Callable[..., Any], w: Workload, arrays: list[Any]) -> tuple[Run, BackwardRun]:
    tensors = [torch.from_numpy(a) for a in arrays]
    wanted = [tensors[i].requires_grad_() for i in w.argnums]
    return lambda: [fn(*tensors)], lambda value: torch.autograd.grad(value, wanted)
