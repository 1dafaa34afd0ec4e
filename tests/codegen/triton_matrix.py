"""Every graph of the Triton tests, interpreted, and its kernels compiled to PTX: the whole matrix.

    python -m tests.codegen.triton_matrix            # minutes; writes docs/coverage.md's section

Each op with a Triton expression on every dtype, its value and its pullback; each workload of both
benchmarks, value and gradients, with rows in one block, and again in short blocks.
`interpret FILE` runs them and leaves the kernels that ran in FILE; `ptx FILE CAPABILITY` compiles
those, `sample FILE N` one of N: `tests/codegen/test_triton_matrix.py` does.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gradof import differentiate, tuning, value_and_grad
from gradof.autodiff.compose import pullback_graph
from gradof.codegen import compile_graph
from gradof.codegen.loops.ir import LoopNest
from gradof.codegen.lowering.half import round_bf16
from gradof.codegen.triton import kernel as kernel_module
from gradof.codegen.triton.emit import Form, emit_triton
from gradof.ir.attrs import to_numpy_dtype
from gradof.ir.core import Graph
from gradof.ir.parser import parse_graph
from gradof.ir.types import BF16, BOOL, F16, F64, DType
from gradof.ops.registry import get_op
from gradof.passes.pipeline import CLEAN_UP, run_passes
from tests.codegen.triton_lists import Case, of_gpus, of_the_cpu_benchmark
from tests.codegen.triton_ops import LIMITS, PREDICATES
from tests.codegen.triton_ops import cases as op_cases
from tests.codegen.triton_page import PAGE, section, write_section
from tests.codegen.triton_process import run
from tests.runtime.compare import close as close_to_eager
from tests.runtime.compare import tensors
from tests.runtime.test_half import close as close_to_float64
from tests.sample import part

SHAPE = (5, 33)
EPS = {F16: 2.0**-10, BF16: 2.0**-7}
GPU_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
CAPABILITIES = (80, 90, 100)
LONG = {"cpu": 16, "gpu": 64}  # columns of a block where rows of that benchmark are to be longer
Kernels = dict[str, tuple[LoopNest, Form]]  # by source, without names and lines


class Recorder:
    """The kernels that run, from now on."""

    def __init__(self) -> None:
        self.kernels: Kernels = {}
        self.last: set[str] = set()  # since `taken`
        plain = kernel_module._compile

        def noted(nest: LoopNest, form: Form) -> Any:
            text = re.sub(r" *#.*", "", emit_triton(nest, form))
            self.kernels.setdefault(text, (nest, form))
            self.last.add(text)
            return plain(nest, form)

        kernel_module._compile = noted

    def taken(self) -> int:
        """How many different kernels ran since the last call."""
        count, self.last = len(self.last), set()
        return count


# --- ops ------------------------------------------------------------------------------------------


def op_graph(op: str, dtype: DType, attrs: str) -> Graph:
    """One op on two axes."""
    names = [f"%x{k}" for k in range(len(get_op(op).inputs))]
    shape = "[" + ",".join(map(str, SHAPE)) + "]"
    result = "bool" if op in PREDICATES else attrs[6:] if op == "cast" else dtype.name
    head = ", ".join(f"{n} : {dtype}{shape}" for n in names)
    call = f"{op}[{attrs}]" if attrs else op
    return parse_graph(
        f"graph one({head}):\n %y : {result}{shape} = {call}({', '.join(names)})\n return (%y)"
    )


def graphs_of(op: str, dtype: DType, attrs: str) -> Iterator[tuple[str, Graph]]:
    """f, and where it has a gradient the pullback: all cotangents to all gradients."""
    f = op_graph(op, dtype, attrs)
    yield "f", f
    made = f.outputs[0].type.dtype  # type: ignore[union-attr]  # a tensor
    rules = get_op(op).vjp
    wrt = [k for k, name in enumerate(get_op(op).inputs) if rules.get(name) is not None]
    if dtype.is_float and made.is_float and wrt:
        df = pullback_graph(f, wrt, [0])
        run_passes(df, ("expand-composites", *CLEAN_UP))
        yield "df", df


def inside(op: str, dtype: DType, count: int) -> list[Any]:
    """Numbers of an op's domain, held as the dtype is; cotangents follow the op's own operands."""
    rng = np.random.default_rng(3)
    found = []
    for k in range(count):
        domain = get_op(op).domain
        low, high = domain[k % len(domain)] if k < len(get_op(op).inputs) else (-2, 2)
        limit = LIMITS.get(op, np.inf)
        x = np.clip(rng.uniform(low, high, SHAPE), -limit, limit)
        if dtype == BF16:
            found.append(round_bf16(x.astype(np.float32)))
        elif dtype.is_float:
            found.append(x.astype(to_numpy_dtype(dtype)))
        else:
            whole = rng.integers(-9, 9, SHAPE)
            found.append(whole > 0 if dtype == BOOL else whole.astype(to_numpy_dtype(dtype)))
    return found


def run_op(op: str, dtype: DType, attrs: str, graph: Graph) -> None:
    """The graph in kernels against whole numpy arrays; half precision is judged by float64."""
    given = inside(op, dtype, len(graph.inputs))
    mine = compile_graph(graph, backend="triton")(*given)
    theirs = compile_graph(graph, backend="numpy")(*given)
    exact = theirs
    if dtype in EPS:
        wide = next(g for role, g in graphs_of(op, F64, attrs) if role == _role(graph))
        exact = compile_graph(wide, backend="numpy")(*(a.astype(np.float64) for a in given))
    for a, b, c in zip(mine, theirs, exact, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape, (a.dtype, a.shape)
        if dtype in EPS and b.dtype.kind == "f":
            known = np.isfinite(c) & (np.abs(c) < 6e4)
            np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
            scale = np.max(np.abs(c[known]), initial=0.0)
            allowed = np.max(np.abs(b[known] - c[known]), initial=0.0) + EPS[dtype] * scale / 4
            off = np.max(np.abs(a[known] - c[known]), initial=0.0)
            assert off <= allowed, f"off by {off}, allowed {allowed}"
        elif b.dtype.kind == "f":
            eps = np.finfo(b.dtype).eps
            whole = 64 * eps * np.max(np.abs(b[np.isfinite(b)]), initial=0.0)
            np.testing.assert_allclose(a, b, rtol=64 * eps, atol=whole)
        else:
            np.testing.assert_array_equal(a, b)


def _role(graph: Graph) -> str:
    return "df" if graph.name.endswith("_vjp") else "f"


# --- workloads ------------------------------------------------------------------------------------


Run = Callable[[str, torch.dtype | None], list[torch.Tensor]]  # of a backend, in a dtype


def in_torch(case: Case) -> Run:
    """Results and gradients, the same cotangents and random numbers every time."""

    def run(backend: str, dtype: torch.dtype | None) -> list[torch.Tensor]:
        os.environ["GRADOF_BACKEND"] = backend
        fn = differentiate(case.fn) if backend == "triton" else case.fn
        args = [torch.as_tensor(a).clone() for a in case.arrays]
        args = [a.to(dtype) if dtype and a.is_floating_point() else a for a in args]
        for k in case.argnums:
            args[k].requires_grad_()
        torch.manual_seed(0)
        outs = tensors([fn(*args)])
        seeds = [torch.linspace(-1, 2, o.numel()).reshape(o.shape).to(o.dtype) for o in outs]
        return [*outs, *torch.autograd.grad(outs, [args[k] for k in case.argnums], seeds)]

    return run


def in_numpy(case: Case) -> Run:
    """The value of numpy code and its gradients; `numpy` computes them in whole arrays."""

    def run(backend: str, dtype: torch.dtype | None) -> list[torch.Tensor]:
        os.environ["GRADOF_BACKEND"] = backend
        fn = value_and_grad(lambda *a: case.fn(np, *a), argnums=case.argnums)
        wide = [a.astype(np.float64) if dtype and a.dtype.kind == "f" else a for a in case.arrays]
        value, grads = fn(*wide)
        return [torch.as_tensor(x) for x in (value, *grads)]

    return run


def run_case(case: Case) -> None:
    """A workload in kernels against eager, or whole numpy arrays; float64 judges the others."""
    run = in_numpy(case) if case.is_numpy else in_torch(case)
    mine, theirs = run("triton", None), run("numpy", None)
    exact = run("numpy", torch.float64)
    for a, b, c in zip(mine, theirs, exact, strict=True):
        if b.dtype == torch.float64:
            close_to_eager(a, b, case.name)
        else:
            close_to_float64(a, b, c)


def workloads() -> Iterator[tuple[str, Case, str]]:
    """All of them: name, case, benchmark."""
    for case in of_the_cpu_benchmark():
        yield case.name, case, "cpu"
    for name, dtype in GPU_DTYPES.items():
        for case in of_gpus(dtype):
            yield f"{case.name} {name}", case, "gpu"


# --- parts ----------------------------------------------------------------------------------------


def interpret(only: str, recorder: Recorder) -> dict[str, Any]:
    """How many kernels each case ran, or what was wrong. `only`: a regular expression of names."""
    found: dict[str, Any] = {}

    def attempt(name: str, run: Callable[[], None]) -> None:
        recorder.taken()
        try:
            run()
            found[name] = recorder.taken()
        except Exception:  # what went wrong is the result
            found[name] = traceback.format_exc()[-1500:]

    for op, dtype, attrs in part(op_cases()):
        for role, graph in graphs_of(op, dtype, attrs):
            name = f"op {role} {dtype} {op}[{attrs}]"
            if re.search(only, name):
                attempt(name, partial(run_op, op, dtype, attrs, graph))
    for title in ("workload", "workload, long rows"):
        for name, case, benchmark in part(workloads()):
            tuning.ROW_BLOCK = tuning.ROW_BLOCK if title == "workload" else LONG[benchmark]
            if re.search(only, f"{title} {name}"):
                attempt(f"{title} {name}", partial(run_case, case))
    return found


def ptx(kernels: Kernels, capability: int) -> dict[str, str]:
    """What did not compile, by source; the kernel's folds are compiled with it."""
    from tests.codegen.triton_ptx import ptx_of

    wrong = {}
    for text, (nest, form) in kernels.items():
        try:
            assert ptx_of(nest, form, capability)
        except Exception:  # what went wrong is the result
            wrong[text] = traceback.format_exc()[-1500:]
    return wrong


def write() -> None:
    """Everything, in processes of their own, and the section of the page."""
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/kernels"
        found = run("triton_matrix", "interpret", Path(folder), file, interpret=True)
        wrong = {k: v for k, v in found.items() if not isinstance(v, int)}
        compiled = {}
        for c in CAPABILITIES:
            result = run("triton_matrix", "ptx", Path(folder), file, str(c), interpret=False)
            (compiled[c],) = result["kernels"]
            wrong |= result["wrong"]
    if wrong:
        sys.exit("\n\n".join(f"{k}\n{v}" for k, v in wrong.items()))
    write_section(PAGE, section(found, compiled))
    print(f"wrote the section on Triton of {PAGE}")


def sample(kernels: Kernels, every: int) -> Iterator[tuple[int, Kernels]]:
    """Each `every`th kernel, shared out to the compute capabilities."""
    some = list(kernels.items())[::every]
    for k, capability in enumerate(CAPABILITIES):
        yield capability, dict(some[k :: len(CAPABILITIES)])


def main(part: str = "", file: str = "", argument: str = "") -> None:
    """See the module docstring."""
    np.seterr(all="ignore")
    if not part:
        write()
        return
    if part == "interpret":
        recorder = Recorder()
        found = interpret(argument, recorder)
        Path(file).write_bytes(pickle.dumps(recorder.kernels))
        print(json.dumps(found))
        return
    kernels: Kernels = pickle.loads(Path(file).read_bytes())
    if part == "sample":
        parts = list(sample(kernels, int(argument)))
    else:
        parts = [(int(argument), kernels)]
    wrong = {f"sm_{c}: {k}": v for c, some in parts for k, v in ptx(some, c).items()}
    print(json.dumps({"kernels": [len(some) for _, some in parts], "wrong": wrong}))


if __name__ == "__main__":
    main(*sys.argv[1:])
