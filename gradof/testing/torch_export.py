"""An exported module against the function it was made from, in a process without gradof.

The judge is that of `gradof.testing.check`: eager, and how far eager itself is from float64.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from gradof.codegen.triton.interpreter import COUNT_BY_TENSORS
from gradof.errors import GradientMismatchError
from gradof.ir.opinfo import has_trait
from gradof.runtime.function import Differentiated
from gradof.testing.report import Report
from gradof.testing.torch_check import (
    compare_results,
    in_float64,
    moved_inputs,
    own_leaves,
    reference_results,
    sample_inputs,
)
from gradof.testing.torch_runs import Inputs, Run, random_like

# Cotangents come in the order of the floating-point results; None where eager's has no history.
PROGRAM = """
import importlib.util, sys, torch

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "gradof":
            raise ImportError(f"an exported file imports {name}")

sys.meta_path.insert(0, Refuse())
path, name, given, found = sys.argv[1:]
spec = importlib.util.spec_from_file_location("exported", path)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
args, kwargs, cotangents, seed = torch.load(given, weights_only=True)

def tensors(tree):
    if isinstance(tree, (tuple, list)):
        return [leaf for part in tree for leaf in tensors(part)]
    if isinstance(tree, dict):
        return [leaf for part in tree.values() for leaf in tensors(part)]
    return [tree] if torch.is_tensor(tree) else []

torch.manual_seed(seed)
results = tensors(getattr(module, name)(*args, **kwargs))
def in_parts(t):
    return torch.view_as_real(t.resolve_conj()) if t is not None and t.is_complex() else t

floats = [in_parts(t) for t in results if t.is_floating_point() or t.is_complex()]
heads = [(t, g) for t, g in zip(floats, cotangents, strict=True) if g is not None]
wanted = [t for t in tensors((args, kwargs)) if t.requires_grad]
gradients = torch.autograd.grad(
    [t for t, _ in heads], wanted, [g for _, g in heads], allow_unused=True)
flags = [t.requires_grad for t in results]
torch.save(([t.detach() for t in results], flags, [in_parts(g) for g in gradients]), found)
"""


def check_exported(
    fn: Differentiated, args: tuple[Any, ...], kwargs: dict[str, Any], path: Path, name: str,
    seed: int = 0,
) -> Report:  # fmt: skip
    """Run the function `name` of the file `path`, and compare values and gradients with eager's.

    Arguments are tuples, lists and dicts of CPU tensors and plain Python values; kernels run in
    Triton's interpreter. GradientMismatchError where the file does not run.
    """
    args, kwargs = own_leaves(fn.fn, args, kwargs)
    bound = fn.bind(args, kwargs)
    inputs = sample_inputs(bound, args, kwargs)
    report = Report(name, nodes=len(bound.entry.traced.graph.block))
    theirs = reference_results(fn.fn, inputs, 1, seed)
    exact = None
    if not any(has_trait(n.kind, "random") for n in bound.entry.traced.graph.walk()):
        with in_float64(inputs):
            exact = reference_results(fn.fn, inputs, 1, seed)
    ours = _run(path, name, inputs, theirs, seed)
    moved = functools.partial(moved_inputs, fn.fn, inputs)
    compare_results(report, inputs.wanted_names, ours, theirs, exact, lambda: moved(1, seed))
    return report


def _run(path: Path, name: str, inputs: Inputs, eager: Run, seed: int) -> Run:
    generator = torch.Generator().manual_seed(seed + 1)
    weights = [(random_like(t, generator), t.requires_grad) for t in eager.floats]
    cotangents = [g if wanted else None for g, wanted in weights]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder, "given.pt"), Path(folder, "found.pt")
        torch.save((inputs.args, inputs.kwargs, cotangents, seed), given)
        program = COUNT_BY_TENSORS + PROGRAM
        done = subprocess.run(
            [sys.executable, "-c", program, str(path), name, str(given), str(found)],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise GradientMismatchError(
                f"the exported file does not run: {done.stderr.strip().splitlines()[-1]}"
            )
        results, flags, gradients = torch.load(found, weights_only=True)
    for tensor, flag in zip(results, flags, strict=True):
        tensor.requires_grad_(flag)
    return Run(results, [list(gradients)])
