'''`gradof export TARGET --backend numpy -o file.py`: f and df as a file that needs gradof no more.

    def loss(x, w): ...                   # f: the outputs, then what df reads of them
    def dloss(d, w, t0): ...              # df: cotangents and saved values to gradients
    def value_and_gradients(inputs, cotangents): ...

What is written was run first, from its text, and gave the numbers of the function it came from.
'''

from __future__ import annotations

import linecache
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from gradof.cli.target import Library
from gradof.codegen import Executable, compile_graph
from gradof.codegen.export.numpy import standalone
from gradof.codegen.export.readable import comment
from gradof.errors import GradientMismatchError, TargetError
from gradof.ir.core import Value
from gradof.ir.types import TensorType
from gradof.runtime.cache import Bound
from gradof.runtime.function import Differentiated
from gradof.runtime.plan import GradientPlan, GraphPlan, SpecializedPlan
from gradof.runtime.results import gradient_flags

# What two orders of the same float operations may differ by, in ulps of the largest number.
ULPS = 4096


@dataclass(frozen=True)
class Derived:
    """A function with f and df of one call."""

    compiled: Differentiated
    bound: Bound
    plan: GradientPlan
    df: SpecializedPlan
    defined: tuple[bool, ...]  # which cotangents df is given: those of results


def derive(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Derived:
    """What is exported; TargetError for what no file can hold."""
    from gradof.api import differentiate

    compiled = differentiate(fn)
    if not isinstance(compiled, Differentiated):
        raise TargetError(
            f"{getattr(fn, '__name__', fn)} is no plain function",
            hint="export the function whose gradient is meant, not grad(fn) or a module's class",
        )
    bound = compiled.bind(args, kwargs, apart=True)  # a file knows no objects
    _require_pure(bound)
    plan = bound.entry.plan.gradient(gradient_flags(bound))
    if not plan.gradient.df_output_vjps:
        raise TargetError("there is no gradient: no output depends on an input that requires grad")
    defined = tuple(i < plan.gradient.f_real_outputs for i in plan.gradient.df_input_vjps)
    df = plan.df(defined, (True,) * len(plan.gradient.df_output_vjps))
    return Derived(compiled, bound, plan, df, defined)


def export_numpy(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """The text of a module that imports numpy only; TargetError for what cannot be one.

    The function itself is checked first (`gradof.testing.check`), then the text against it, with
    random cotangents; GradientMismatchError if either is wrong.
    """
    from gradof.testing import check

    derived = derive(fn, args, kwargs)
    bound, plan, df, defined = derived.bound, derived.plan, derived.df, derived.defined
    _refuse_dtypes(plan)
    check(derived.compiled.fn, args, kwargs)
    text = _module_text(derived.compiled.fn, plan, df)
    _verify(text, bound, plan, df, defined)
    return text


def write_export(text: str, path: Path, force: bool) -> None:
    """Write the text; TargetError where the file exists and may not be written over."""
    if path.exists() and not force:
        raise TargetError(f"{path} exists", hint="--force writes over it")
    path.write_text(text)


def _require_pure(bound: Bound) -> None:
    traced = bound.entry.traced
    if traced.deciding is not None:
        raise TargetError(
            "the function branches on values, and a file holds one path only",
            hint="gradof show --stage explain names the lines; use where() instead of if",
        )
    if traced.writebacks:
        raise TargetError("the function changes its arguments in place", hint="return new arrays")
    if traced.writes:
        raise TargetError(
            "the function writes to Python state or to its arguments, which a file does not do",
            hint="return what is to be stored",
        )


def _executable(plan: GraphPlan) -> Executable:
    return compile_graph(plan.prepared, library="numpy", name=plan.graph.name, backend="numpy")


def _module_text(
    fn: Callable[..., Any], plan: GradientPlan, df: SpecializedPlan
) -> str:
    f, d = _executable(plan.f), _executable(df.plan)
    name = getattr(fn, "__name__", "f")
    head = [
        f'"""{name} and its gradient in plain numpy, for the shapes and dtypes below.\n',
        *(f"    {line}" for line in _described(plan)),
        '"""\n',
        "import numpy as np\n\n\n",
    ]
    source = _with_the_users_lines(standalone([f, d]))
    return "\n".join(head) + source + "\n\n" + _driver(f.name, d.name, plan, df)


def _with_the_users_lines(source: str) -> str:
    """Emitted source with each line of the user's once, above what was made of it."""
    found: list[str] = []
    current = ""
    for line in source.split("\n"):
        match = re.fullmatch(r"( +)(\S.*)  # (.+):(\d+)", line)
        if line.startswith("def "):
            current = ""
        if match is None:
            found.append(line)
            continue
        indent, code, file, number = match.groups()
        name = f"{PurePath(file).name}:{number}"
        if name != current:
            current = name
            text = linecache.getline(file, int(number)).strip()
            found.append(comment(name, text, len(indent)))
        found.append(indent + code)
    return "\n".join(found)


def _names(values: Sequence[Value]) -> list[str]:
    return [v.hint or f"value {k}" for k, v in enumerate(values)]


def _described(plan: GradientPlan) -> list[str]:
    gradient = plan.gradient
    f = gradient.f
    rows = [f"input    {n} : {v.type}" for n, v in zip(_names(f.inputs), f.inputs, strict=True)]
    rows += [f"output   {v.type}" for v in f.outputs[: gradient.f_real_outputs]]
    rows.append("gradient of " + ", ".join(_names(f.inputs)[i] for i in gradient.df_output_vjps))
    return rows


def _driver(
    f: str, df: str, plan: GradientPlan, special: SpecializedPlan
) -> str:
    """Source of value_and_gradients, which joins f and df by the index lists of the gradient."""
    gradient = plan.gradient
    arguments = [
        *(f"cotangents[{i}]" for i in gradient.df_input_vjps),
        *(f"inputs[{i}]" for i in gradient.df_input_captured_inputs),
        *(f"results[{i}]" for i in gradient.df_input_captured_outputs),
    ]
    given = ", ".join(arguments[i] for i in special.inputs)
    order = [gradient.df_output_vjps[k] for k in special.outputs]
    named = ", ".join(_names(gradient.f.inputs)[i] for i in order)
    n, real = len(gradient.f.inputs), gradient.f_real_outputs
    call = textwrap.wrap(f"gradients = {df}({given})", 96, subsequent_indent="    ",
                         break_long_words=False)  # fmt: skip
    return "\n".join([
        "def value_and_gradients(inputs, cotangents):",
        f'    """(outputs, gradients) for {n} input{"s" * (n != 1)} and a cotangent per output.\n',
        *("    " + line for line in textwrap.wrap(f"Gradients are of {named}.", 90)),
        '    """',
        '    with np.errstate(all="ignore"):  # inf and nan are results',
        f"        results = {f}(*inputs)",
        *("        " + line for line in call),
        f"    return results[:{real}], gradients",
        "",
    ])  # fmt: skip


def _verify(
    text: str, bound: Bound, plan: GradientPlan, df: SpecializedPlan, defined: Sequence[bool]
) -> None:
    """Run the text beside the compiled function; GradientMismatchError where they differ."""
    gradient = plan.gradient
    library: Library = plan.f.library
    inputs = [_as_numpy(v, library) for v in bound.inputs]
    expected = _results(plan.f, inputs)
    rng = np.random.default_rng(0)
    cotangents = [
        rng.standard_normal(np.shape(v)).astype(np.asarray(v).dtype)
        for v in expected[: gradient.f_real_outputs]
    ]
    arguments = [
        *(cotangents[i] if given else None
          for i, given in zip(gradient.df_input_vjps, defined, strict=True)),
        *(inputs[i] for i in gradient.df_input_captured_inputs),
        *(expected[i] for i in gradient.df_input_captured_outputs),
    ]  # fmt: skip
    wanted = _results(df.plan, [arguments[i] for i in df.inputs])
    namespace: dict[str, Any] = {"__name__": "exported"}
    exec(compile(text, "<exported>", "exec"), namespace)
    outputs, gradients = namespace["value_and_gradients"](inputs, cotangents)
    _compare("output", outputs, expected[: gradient.f_real_outputs])
    _compare("gradient", gradients, wanted)


def _results(plan: GraphPlan, arrays: Sequence[Any]) -> tuple[Any, ...]:
    """What compiled code gives for numpy arrays, also where it takes tensors."""
    if not plan.executable.takes_tensors:
        return plan(*arrays)
    from gradof.codegen.lowering.numpy import as_array, as_tensor

    return tuple(as_array(t) for t in plan(*map(as_tensor, arrays)))


def _as_numpy(value: Any, library: Library) -> Any:
    if library == "numpy":
        return value
    from gradof.runtime.torch_arrays import to_numpy

    return to_numpy(value.detach())


def _compare(what: str, ours: Sequence[Any], theirs: Sequence[Any]) -> None:
    if len(ours) != len(theirs):
        raise GradientMismatchError(f"the exported file gives {len(ours)} {what}s")
    for k, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        a, b = np.asarray(a), np.asarray(b)
        exact = not np.issubdtype(b.dtype, np.inexact)
        size = 0.0 if exact else float(np.max(np.abs(b[np.isfinite(b)]), initial=0.0))
        atol = 0.0 if exact else ULPS * float(np.finfo(b.dtype).eps) * size
        if a.dtype != b.dtype or a.shape != b.shape or not np.allclose(
            a, b, rtol=0.0, atol=atol, equal_nan=True
        ):  # fmt: skip
            raise GradientMismatchError(f"{what} {k} of the exported file is not the function's")


def _refuse_dtypes(plan: GradientPlan) -> None:
    """TargetError for dtypes numpy does not have."""
    for value in (*plan.gradient.f.inputs, *plan.gradient.f.outputs):
        if isinstance(value.type, TensorType) and value.type.dtype.name in ("bf16", "c32"):
            raise TargetError(f"numpy has no {value.type.dtype}", hint="export it in float32")
