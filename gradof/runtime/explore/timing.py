"""What each statement of emitted code takes, beside what memory and arithmetic allow.

    rows = measure(stages, bound, lines)
    {"part": "f", "line": 17, "text": "np.tanh", "seconds": 2.1e-5, "bytes": 98304, ...}

The code runs as it is emitted, one statement a line, with the clock read after each. Bytes are
those of the arrays that a statement reads and makes; a product of matrices has two operations per
multiplication. `best` is the longer of both at this machine's speeds, measured just before: memory
by copying 64 MB, arithmetic by a product of 768 x 768. Arrays that stay in a cache can be faster.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from math import prod
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from gradof.codegen.lowering.half import raw_numpy_dtype
from gradof.codegen.machine.executable import Executable
from gradof.codegen.whole.function import WholeExecutable
from gradof.ir.core import Value
from gradof.ir.types import TensorType
from gradof.runtime.arrays import torch_if_loaded
from gradof.runtime.cache import Bound
from gradof.runtime.explore.lines import Lines, with_origins
from gradof.runtime.explore.stages import Stages

_PRODUCT = re.compile(r"[\w.]*(?:matmul|mm)\w*$")
_SECONDS = 0.5  # for the runs of one executable, after the first two


def speeds() -> dict[str, float]:
    """Bytes a second of memory, and float32 operations a second of products, here and now."""
    source, target = np.ones(1 << 23), np.empty(1 << 23)
    square = np.ones((768, 768), np.float32)
    memory = min(_timed(lambda: np.copyto(target, source)) for _ in range(4))
    if (torch := torch_if_loaded()) is not None:
        tensor = torch.from_numpy(square)
        product = min(_timed(lambda: torch.mm(tensor, tensor)) for _ in range(4))
    else:
        product = min(_timed(lambda: square @ square) for _ in range(4))
    return {"bytes": 2 * source.nbytes / memory, "operations": 2 * 768**3 / product}


def measure(stages: Stages, bound: Bound, lines: Lines) -> dict[str, Any]:
    """Run f and df with the arrays of the call, and ones as cotangents."""
    found = speeds()
    gradient, df = stages.gradient, stages.df
    inputs = _as_taken(gradient.f.executable, bound.inputs)
    results, f_rows = _run(gradient.f.executable, inputs, lines)
    outputs = [gradient.gradient.f.outputs[k] for k in gradient.output_vjps]
    given: list[Any] = [_ones(gradient.f.executable, v) for v in outputs]
    given += [inputs[k] for k in gradient.captured_inputs]
    given += [results[k] for k in gradient.captured_outputs]
    _, df_rows = _run(df.plan.executable, [given[k] for k in df.inputs], lines)
    rows = [{"part": part, **row} for part, each in (("f", f_rows), ("df", df_rows))
            for row in each]  # fmt: skip
    for row in rows:
        row["best"] = max(row["bytes"] / found["bytes"], row["operations"] / found["operations"])
    return {"speeds": found, "rows": rows,
            "f": sum(r["seconds"] for r in f_rows), "df": sum(r["seconds"] for r in df_rows)}


def _timed(run: Callable[[], object]) -> float:
    start = perf_counter()
    run()
    return perf_counter() - start


def _as_taken(executable: Executable, values: Sequence[Any]) -> list[Any]:
    """The inputs of a call as emitted code takes them, and its own: it may not write into them."""
    torch = torch_if_loaded()
    if torch is None or not any(isinstance(v, torch.Tensor) for v in values):
        return [np.array(v) for v in values]
    tensors = [v.detach().clone() for v in values]
    if executable.takes_tensors:
        return tensors
    from gradof.runtime.torch_arrays import to_arrays

    return to_arrays(tensors)


def _ones(executable: Executable, value: Value) -> Any:
    type_ = value.type
    assert isinstance(type_, TensorType) and type_.shape is not None
    if not executable.takes_tensors:
        raw = raw_numpy_dtype(type_.dtype)
        is_bits = type_.dtype.name == "bf16"  # whose bits numpy has as integers
        return np.full(type_.shape, 0x3F80 if is_bits else 1, raw)
    import torch

    from gradof.tracer.aten.types import to_torch_dtype

    return torch.ones(type_.shape, dtype=to_torch_dtype(type_.dtype), device=type_.device)


def _run(
    executable: Executable, inputs: Sequence[Any], lines: Lines
) -> tuple[tuple[Any, ...], list[dict[str, Any]]]:  # fmt: skip
    """The results, and a row for each statement that takes time."""
    if isinstance(executable, WholeExecutable):
        return _run_whole(executable, inputs, lines)
    watched = _Watched(executable)
    results = watched(inputs)
    first = watched.seconds
    runs: list[dict[int, float]] = []
    start = perf_counter()
    while len(runs) < 15 and (len(runs) < 2 or perf_counter() - start < _SECONDS):
        watched(inputs)
        runs.append(watched.seconds)
    rows = []
    texts = with_origins(executable.source)
    for number in sorted(first):
        text, origins = texts[number - 1]
        call = watched.calls[number]
        rows.append({
            "line": lines.add(text, origins), "text": call,
            "seconds": median(run[number] for run in runs), "bytes": watched.bytes[number],
            "operations": watched.operations[number],
            "kernel": next((k.nest.name for k in executable.kernels
                            if k.nest.name == call), ""),
        })  # fmt: skip
    return results, rows


def _run_whole(
    executable: WholeExecutable, inputs: Sequence[Any], lines: Lines
) -> tuple[tuple[Any, ...], list[dict[str, Any]]]:  # fmt: skip
    """The same of what is one native function: one row."""
    results = executable(*inputs)
    taken = [_timed(lambda: executable(*inputs)) for _ in range(15)]
    head = next(text for text in executable.statements.source.splitlines()
                if text.startswith(f"def {executable.name}("))  # fmt: skip
    return results, [{
        "line": lines.add(head), "text": f"{executable.name} (one native function)",
        "seconds": median(taken), "bytes": sum(int(a.nbytes) for a in (*inputs, *results)),
        "operations": 0.0, "kernel": executable.name,
    }]  # fmt: skip


class _Watched:
    """An executable whose statements are timed, one by one."""

    def __init__(self, executable: Executable) -> None:
        tree = ast.parse(executable.source)
        function = next(n for n in tree.body if isinstance(n, ast.FunctionDef)
                        and n.name == executable.name)  # fmt: skip
        self.calls: dict[int, str] = {}
        function.body = list(self._with_marks(function.body))
        self.space = {**executable.function.__globals__, "_mark": self._mark}
        ast.fix_missing_locations(tree)
        exec(compile(tree, executable.filename, "exec"), self.space)
        self.run, self.boxed = self.space[executable.name], executable.boxed
        self.seconds: dict[int, float] = {}
        self.bytes: dict[int, int] = {}
        self.operations: dict[int, float] = {}
        self._last = 0.0

    def __call__(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Run once; `seconds` are those of this run, by line."""
        self.seconds = {}
        with np.errstate(all="ignore"):
            self._last = perf_counter()
            results: tuple[Any, ...] = self.run(*self.boxed(inputs))
        return results

    def _with_marks(self, body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
        for statement in body:
            yield statement
            if isinstance(statement, ast.For):
                self.calls[statement.lineno] = f"for {ast.unparse(statement.target)}"
                mark = ast.parse(f"_mark({statement.lineno}, [], [])").body[0]
                yield ast.increment_lineno(mark, statement.lineno - 1)
            elif isinstance(statement, ast.Assign):
                line = statement.lineno
                value = statement.value
                called = value.func if isinstance(value, ast.Call) else value
                self.calls[line] = ast.unparse(called)
                names = [n.id for n in ast.walk(value) if isinstance(n, ast.Name)]
                made = [n.id for t in statement.targets for n in ast.walk(t)
                        if isinstance(n, ast.Name)]  # fmt: skip
                text = f"_mark({line}, [{', '.join(names)}], [{', '.join(made)}])"
                mark = ast.parse(text).body[0]
                yield ast.increment_lineno(mark, line - 1)

    def _mark(self, line: int, read: Sequence[Any], made: Sequence[Any]) -> None:
        now = perf_counter()
        self.seconds[line] = now - self._last
        if line not in self.bytes:
            arrays = {id(a): a for a in (*read, *made) if hasattr(a, "nbytes")}
            self.bytes[line] = sum(int(a.nbytes) for a in arrays.values())
            self.operations[line] = self._product(line, read, made)
        self._last = perf_counter()

    def _product(self, line: int, read: Sequence[Any], made: Sequence[Any]) -> float:
        """Operations of a product of matrices: of sizes mk, kn and mn, per batch."""
        arrays = [a for a in read if hasattr(a, "nbytes") and len(a.shape) >= 2]
        if not _PRODUCT.match(self.calls[line]) or len(arrays) < 2 or len(made) != 1:
            return 0.0
        inner = int(arrays[0].shape[-1])
        return 2.0 * float(prod(made[0].shape)) * inner
