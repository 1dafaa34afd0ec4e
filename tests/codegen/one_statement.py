"""An op that is one statement; `python -m tests.codegen.one_statement triton` runs it on tensors.

PART is `triton`, in Triton's interpreter. The last line printed is a JSON object: what was computed
→ the largest error, and how many kernels ran.
"""

from __future__ import annotations

import json
import linecache
import sys
from typing import Any

import numpy as np
import torch

from gradof.autodiff.differentiate import differentiate
from gradof.autodiff.gradient import Gradient
from gradof.autodiff.zeros import specialize_autograd_zero
from gradof.codegen import compile_graph
from gradof.codegen.export.triton import IMPORTS, Halves, write_module
from gradof.codegen.triton.kernel import TritonKernel
from gradof.ir.parser import parse_graph
from gradof.ops.cost import CALL
from gradof.ops.expr import F
from gradof.ops.families import unary
from gradof.ops.registry import Op, op

GRAPH = """graph f(%x : f64[40,30], %w : f64[30]):
  %y : f64[40,30] = cosm1(%x)
  %z : f64[40,30] = mul(%y, %w)
  return (%z)"""


def define() -> Op:
    """The statement: all that there is about `cosm1` anywhere."""
    return op(
        "cosm1(x) -> y", family=unary(), cost=CALL, vjp={"x": lambda g, x: -(g * F.sin(x))},
        numpy="-2 * np.square(np.sin({x} * 0.5))",
        scalar=lambda x: F.square(F.sin(x * 0.5)) * -2.0,
        names=["scipy.special.cosm1"], formula="cos(x) - 1", domain=(-3, 3),
    )  # fmt: skip


def arrays() -> tuple[Any, Any]:
    """x and w."""
    rng = np.random.default_rng(3)
    return rng.uniform(-3, 3, (40, 30)), rng.uniform(1, 2, 30)


def halves_of(gradient: Gradient) -> Halves:
    """What an exported file of f and df is made of."""
    defined = [k < gradient.f_real_outputs for k in gradient.df_input_vjps]
    special = specialize_autograd_zero(gradient.df, defined)
    lists = (gradient.df_input_vjps, gradient.df_input_captured_inputs,
             gradient.df_input_captured_outputs)  # fmt: skip
    numbered = [(which, n) for which, ns in enumerate(lists) for n in ns]
    taken = [numbered[k] for k in special.inputs]
    vjps, inputs, outputs = (tuple(n for w, n in taken if w == k) for k in range(3))
    wanted = tuple(gradient.df_output_vjps[k] for k in special.outputs)
    return Halves(gradient.f, special.graph, gradient.f_real_outputs, vjps, inputs, outputs,
                  wanted, (0,))  # fmt: skip


def error(have: Any, want: Any) -> float:
    """The largest difference from what is exact to a few roundings."""
    return float(np.max(np.abs(np.asarray(have.detach()) - want)))


def triton() -> dict[str, float]:
    """f by kernels and by torch's own calls, and f and df from an exported file."""
    ran = 0
    plain = TritonKernel.__call__

    def counted(self: TritonKernel, *tensors: Any) -> tuple[Any, ...]:
        nonlocal ran
        ran += 1
        return plain(self, *tensors)

    TritonKernel.__call__ = counted  # type: ignore[method-assign]
    graph = parse_graph(GRAPH)
    x, w = (torch.from_numpy(a) for a in arrays())
    want = (np.cos(x.numpy()) - 1) * w.numpy()
    (kernels,) = compile_graph(graph, library="torch", backend="triton")(x, w)
    found: dict[str, float] = {"kernels": error(kernels, want), "count": ran}
    module = write_module(halves_of(differentiate(graph)), "product")
    space: dict[str, Any] = {}
    path = "exported_product.py"
    source = IMPORTS + "\n" + module.source
    assert "cosm1(" not in source and "gradof" not in source
    linecache.cache[path] = (len(source), None, source.splitlines(True), path)
    exec(compile(source, path, "exec"), space)
    x.requires_grad_()
    z = space[module.function_class].apply(x, w)
    (dx,) = torch.autograd.grad(z.sum(), [x])
    found["exported f"] = error(z, want)
    found["exported df"] = error(dx, -np.sin(x.detach().numpy()) * w.numpy())
    return found


if __name__ == "__main__":
    assert sys.argv[1] == "triton"
    define()
    print(json.dumps(triton()))
