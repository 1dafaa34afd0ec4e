"""`gradof doctor`: what this machine gives gradof to work with."""

from __future__ import annotations

import importlib.util
import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

import click


def report() -> Iterator[tuple[str, str]]:
    """What there is, and what is used of it, as (what, found)."""
    from gradof import __version__
    from gradof.codegen.machine.engine import status
    from gradof.codegen.machine.object_cache import object_cache
    from gradof.codegen.machine.threads import n_threads
    from gradof.codegen.targets.choose import default_backend
    from gradof.ops.memory import limit

    yield "gradof", __version__
    yield "python", f"{platform.python_version()} on {platform.platform()}"
    for package in ("numpy", "torch", "scipy", "llvmlite", "triton"):
        yield package, _version(package)
    backend = default_backend()
    bits, found = status()
    yield "native code", found if bits else f"none: {found}"
    if bits:
        yield "object cache", object_cache().state()
    used = {
        "auto": "native code" if bits else "numpy tiles", "native": "native code",
        "tiles": "numpy tiles", "numpy": "whole numpy arrays",
        "triton": "triton's interpreter, for tests",
    }[backend]  # fmt: skip
    yield "large arrays", f"{used} (GRADOF_BACKEND={backend})"
    if importlib.util.find_spec("torch"):
        yield "products", _products(backend)
        yield "CUDA tensors", _cuda_tensors(backend)
    yield "memory", f"up to {limit() >> 20} MB kept for the next arrays (GRADOF_KEPT_MB)"
    yield "threads", f"{n_threads()} (GRADOF_NUM_THREADS, torch's setting, or the cores){_pool()}"


def _products(backend: str) -> str:
    """Whose a torch caller's products are."""
    from gradof.codegen.lowering.products import float32_library, has_native

    libraries = f"{float32_library()} for float32 tensors, MKL for float64"
    if backend in ("auto", "native") and has_native():
        return f"native code, or {libraries} (large ones)"
    return libraries


def _pool() -> str:
    """Whose threads run native kernels where torch is loaded."""
    if not importlib.util.find_spec("torch"):
        return ""
    from gradof.codegen.machine.openmp import gomp_parallel

    return "; for torch callers its OpenMP threads" if gomp_parallel() else ""


def _cuda_tensors(backend: str) -> str:
    import torch

    if not torch.cuda.is_available():
        return "torch sees no CUDA device"
    name = torch.cuda.get_device_name()
    if backend == "numpy":
        return f"torch alone on {name} (GRADOF_BACKEND=numpy)"
    if importlib.util.find_spec("triton") is None:
        return f"an error on {name}: triton is not installed"
    return f"Triton kernels and torch on {name}"


def print_report() -> None:
    """The report, one line each."""
    for what, found in report():
        click.echo(f"{what:<13} {found}")


def _version(package: str) -> str:
    if importlib.util.find_spec(package) is None:
        return "not installed"
    try:
        return version(package)
    except PackageNotFoundError:
        return "installed, without metadata"
