"""Every op that has a Triton expression; `python -m tests.codegen.triton_ops PART`.

PART is `interpret`: each op on each dtype against numpy, edge cases and numbers as operands among
them; `accuracy`: functions Triton does not have against mpmath; `ptx`: a kernel of all ops compiles
for each dtype. The last line printed is a JSON object: case → "ok", what is wrong
with it, or what was measured.
"""

from __future__ import annotations

import ast
import itertools
import json
import sys
import traceback
from collections.abc import Iterator
from typing import Any

import mpmath
import numpy as np
import torch

from gradof.codegen.fusion.fuse import fuse
from gradof.codegen.loops.interpret import run_nest
from gradof.codegen.loops.ir import LoopNest
from gradof.codegen.loops.lower import schedule
from gradof.codegen.loops.passes.expand_sign import with_sign_of_nan
from gradof.codegen.triton.interpreted import in_triton
from gradof.codegen.triton.kernel import TritonKernel
from gradof.codegen.triton.ops import NAMES as DTYPES
from gradof.codegen.triton.ops import supports
from gradof.errors import InferenceError
from gradof.ir.attrs import to_numpy_dtype
from gradof.ir.parser import parse_graph
from gradof.ir.types import BF16, BOOL, F16, F32, F64, DType, TensorType
from gradof.ops.registry import Op, all_ops, get_op
from tests import sample

COUNT = 200
CAPABILITIES = (80, 90, 100)
EDGES = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-30, -1e-7, 0.62, 0.63, 20.0, -20.0, 1.0, -1.0, 2.0,
         0.5, -0.5, 1.5, -2.5, 90.0, -90.0)  # fmt: skip
ATTRS = {
    "clamp": ("low=-0.1, high=0.7",),
    "softplus": ("beta=1.0, threshold=20.0", "beta=0.3, threshold=2.0"),
    "cast": ("dtype=f32", "dtype=f64", "dtype=bool"),
}  # fmt: skip
DTYPES_BY_NAME = {d.name: d for d in DTYPES}
SKIPPED = ("where", "alias", "detach", "copy")  # in graphs of triton_cases; nothing is computed
# j0 and its kind are noise far out; scipy's digamma is off by 400 ulps far below 0, ours is not
LIMITS = {"j0": 50.0, "j1": 50.0, "y0": 50.0, "y1": 50.0, "digamma": 1e4, "sin": 1e4, "cos": 1e4,
          "tan": 1e4}  # fmt: skip


def cases() -> Iterator[tuple[str, DType, str]]:
    """Op, dtype of its operands, attributes."""
    for record in all_ops():
        if "elementwise" not in record.traits or record.is_composite or record.name in SKIPPED:
            continue
        for dtype in DTYPES:
            for attrs in ATTRS.get(record.name, ("",)):
                if record.name == "clamp" and not dtype.is_float:
                    attrs = "low=-1, high=3"
                if is_supported(record, dtype, attrs):
                    yield record.name, dtype, attrs


def is_supported(record: Op, dtype: DType, attrs: str) -> bool:
    """Whether the op takes operands of the dtype and can be in a kernel then."""
    pairs = [part.split("=") for part in attrs.split(", ") if part]
    values = {name: DTYPES_BY_NAME.get(text) or ast.literal_eval(text) for name, text in pairs}
    operands = [TensorType(dtype, (COUNT,))] * len(record.inputs)
    try:
        (result,) = record.infer(operands, values or dict.fromkeys(record.attrs))
    except InferenceError:
        return False
    assert isinstance(result, TensorType)
    return supports(record.name, [dtype] * len(operands), result.dtype, values)


def nest_of(
    op: str, dtype: DType, attrs: str, constant: tuple[int, float] | None = None
) -> LoopNest:
    """The nest of one op on vectors; `constant` puts a number in the place of an operand."""
    record = get_op(op)
    kind = dtype.name
    names = [f"%x{k}" for k in range(len(record.inputs))]
    head = ", ".join(f"{n} : {kind}[{COUNT}]" for k, n in enumerate(names)
                     if constant is None or k != constant[0])  # fmt: skip
    lines = ""
    if constant is not None:
        k, value = constant
        weak = "int" if isinstance(value, int) else "float"
        lines = f" {names[k]} : {weak} = Constant[value={value!r}]()\n"
    result = "bool" if op in PREDICATES else attrs[6:] if op == "cast" else kind
    call = f"{op}[{attrs}]" if attrs else op
    graph = parse_graph(
        f"graph one({head}):\n{lines} %y : {result}[{COUNT}] = {call}({', '.join(names)})\n"
        " return (%y)"
    )
    (node,) = [n for n in fuse(graph, in_triton, lambda group: True).nodes()
               if n.kind == "FusionGroup"]  # fmt: skip
    return schedule(node, f"{op}_kernel")


ACCURATE = ("tanh", "expm1", "log1p", "sigmoid", "softplus", "log_sigmoid", "logaddexp",
            "digamma")  # fmt: skip
PREDICATES = ("eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "signbit",
              "logical_and", "logical_or", "logical_xor", "logical_not")  # fmt: skip


def operands(op: str, dtype: DType, count: int) -> list[Any]:
    """Numbers of the op's domain, wilder ones, and pairs of edge cases."""
    rng = np.random.default_rng(0)
    pairs = list(itertools.product(EDGES, EDGES))
    rng.shuffle(pairs)
    found = []
    for k in range(count):
        low, high = (get_op(op).domain * 2)[k] if get_op(op).domain else (-3, 3)
        x = np.concatenate([
            [p[k % 2] for p in pairs[:80]], rng.uniform(low, high, 60),
            10.0 ** rng.uniform(-6, 6, COUNT - 140) * rng.choice([-1, 1], COUNT - 140),
        ])  # fmt: skip
        x = np.clip(x, -LIMITS[op], LIMITS[op]) if op in LIMITS else x
        if not dtype.is_float:
            x = np.clip(np.nan_to_num(x), -100, 100)
            x = x > 0 if dtype == BOOL else np.round(x)
        found.append(x.astype(to_numpy_dtype(dtype)))
    return found


def compare(nest: LoopNest, given: list[Any]) -> None:
    """The kernel's numbers are numpy's to 64 ulps; nan, inf and the sign of zero are the same.

    The sign of nan is torch's, 0.
    """
    (want,) = run_nest(with_sign_of_nan(nest), given)
    (have,) = (t.numpy() for t in TritonKernel(nest)(*map(torch.from_numpy, given)))
    assert have.dtype == want.dtype and have.shape == want.shape, (have.dtype, want.dtype)
    if want.dtype.kind != "f":
        np.testing.assert_array_equal(have, want)
        return
    info = np.finfo(want.dtype)
    np.testing.assert_allclose(have, want, rtol=64 * info.eps, atol=info.tiny)


def rounded_once(op: str, dtype: DType, attrs: str) -> None:
    """A kernel in half precision is the kernel in float32, rounded."""
    half = torch.bfloat16 if dtype == BF16 else torch.float16
    given = [torch.from_numpy(x).to(half) for x in operands(op, F32, len(get_op(op).inputs))]
    (have,) = TritonKernel(nest_of(op, dtype, attrs))(*given)
    (want,) = TritonKernel(nest_of(op, F32, attrs))(*(x.float() for x in given))
    torch.testing.assert_close(have, want.to(have.dtype), rtol=0, atol=0, equal_nan=True)


def interpret(op: str, dtype: DType, attrs: str) -> None:
    """An op on vectors, and with a number as either operand."""
    if dtype in (F16, BF16):
        rounded_once(op, dtype, attrs)
        return
    given = operands(op, dtype, len(get_op(op).inputs))
    compare(nest_of(op, dtype, attrs), given)
    if len(given) == 2 and dtype != BOOL:
        numbers = (0.1, 2.0) if dtype.is_float else (3, -2)
        for k, value in itertools.product((0, 1), numbers):
            compare(nest_of(op, dtype, attrs, (k, value)), [given[1 - k]])


def _exact(op: str, *x: Any) -> Any:
    """The function by mpmath, of its numbers."""
    softplus = mpmath.log1p(mpmath.exp(-abs(x[0]))) + max(x[0], 0)
    return {
        "digamma": lambda: mpmath.digamma(x[0]), "tanh": lambda: mpmath.tanh(x[0]),
        "expm1": lambda: mpmath.expm1(x[0]),
        "log1p": lambda: mpmath.log1p(x[0]), "sigmoid": lambda: 1 / (1 + mpmath.exp(-x[0])),
        "softplus": lambda: softplus, "log_sigmoid": lambda: x[0] - softplus,
        "logaddexp": lambda: max(x) + mpmath.log1p(mpmath.exp(-abs(x[0] - x[-1]))),
    }[op]()  # fmt: skip


def accuracy(op: str, dtype: DType) -> float:
    """The largest error in ulps, over numbers of all magnitudes.

    Of logaddexp in ulps of its operands, where the sum of two exponentials is near 1.
    """
    rng = np.random.default_rng(2)
    real = to_numpy_dtype(dtype)
    count = len(get_op(op).inputs)
    given = [
        np.concatenate([rng.uniform(-2, 2, 1000), 10.0 ** rng.uniform(-12, 1.9, 1000),
                        -(10.0 ** rng.uniform(-12, 1.9, 1000))]).astype(real)
        for _ in range(count)
    ]  # fmt: skip
    if op in ("log1p", "digamma"):
        given = [x[x > (-0.999 if op == "log1p" else 0.0)] for x in given]
    size = len(given[0])
    attrs = f"[{ATTRS[op][0].replace('20.0', '1e9')}]" if op in ATTRS else ""
    names = [f"%x{k}" for k in range(count)]
    graph = parse_graph(
        f"graph one({', '.join(f'{n} : {dtype}[{size}]' for n in names)}):\n"
        f" %y : {dtype}[{size}] = {op}{attrs}({', '.join(names)})\n return (%y)"
    )
    (node,) = fuse(graph, in_triton, lambda group: True).nodes()
    (have,) = TritonKernel(schedule(node))(*map(torch.from_numpy, given))
    worst = 0.0
    with mpmath.workprec(200):
        for y, *x in zip(have.tolist(), *(a.tolist() for a in given), strict=True):
            want = _exact(op, *map(mpmath.mpf, x))
            top = max(abs(want), *map(abs, x)) if op == "logaddexp" else abs(want)
            ulp = float(np.spacing(real.type(top)))
            error = float(abs(mpmath.mpf(y) - want) / ulp)
            worst = worst if error <= worst else error  # nan is the worst
    return worst


def ptx(dtype: DType, capability: int) -> int:
    """How many ops are in the one kernel of all ops on a dtype."""
    from tests.codegen.triton_ptx import ptx_of

    lines, results = [], []
    for k, (op, _, attrs) in enumerate(c for c in cases() if c[1] == dtype):
        n = len(get_op(op).inputs)
        result = "bool" if op in PREDICATES else attrs[6:] if op == "cast" else dtype.name
        call = f"{op}[{attrs}]" if attrs else op
        lines.append(f" %y{k} : {result}[64] = {call}({', '.join(('%a', '%b')[:n])})")
        results.append(f"%y{k}")
    text = "\n".join(lines)
    name = dtype.name
    graph = parse_graph(
        f"graph all(%a : {name}[64], %b : {name}[64]):\n{text}\n return ({', '.join(results)})"
    )
    (node,) = fuse(graph, in_triton, lambda group: True).nodes()
    (text,) = ptx_of(schedule(node), "pointwise", capability)
    assert text.count("st.global") >= len(results)
    return len(results)


def main(part: str) -> None:
    """Run a part and print what came of it."""
    np.seterr(all="ignore")
    found: dict[str, Any] = {}
    if part == "interpret":
        for op, dtype, attrs in sample.part(cases()):
            name = f"{op}[{attrs}] {dtype}"
            try:
                interpret(op, dtype, attrs)
                found[name] = "ok"
            except Exception:  # what went wrong is the result
                found[name] = traceback.format_exc()[-1500:]
    elif part == "accuracy":
        found = {f"{o} {d}": accuracy(o, d) for o in sample.part(ACCURATE) for d in (F32, F64)}
    else:
        for k, dtype in enumerate(DTYPES):  # triton_matrix compiles each op for all of them
            found[dtype.name] = ptx(dtype, CAPABILITIES[k % len(CAPABILITIES)])
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
