'''`gradof export TARGET --backend triton -o file.py`: kernels of f and df as a file to keep.

    class Loss(torch.autograd.Function): ...     # forward runs f's kernels, backward df's
    def loss(x, w): ...                          # the original's signature

What is written was run first, on CPU tensors in Triton's interpreter, in a process that cannot
import gradof. It gave the values and gradients of the original. Nothing in it depends on a device.
'''

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import tempfile
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from gradof.cli.export import Derived, derive
from gradof.codegen.export.readable import wrapped
from gradof.codegen.export.triton import IMPORTS, Halves, Module, write_module
from gradof.codegen.lowering.torch_ops import dtype_text
from gradof.codegen.triton.attention.replace import without_attention
from gradof.errors import CodegenError, GradientMismatchError, TargetError
from gradof.ir.types import TensorType
from gradof.runtime.results import gradient_flags
from gradof.tracer.core.pytree import TreeDef
from gradof.tracer.core.result import ConstantOut, GivenOut, InputOut, NumberOut, Traced
from gradof.tracer.core.spread import spread

CHECK_TENSOR = '''def check_tensor(name, tensor, dtype, shape, requires_grad):
    """Kernels are for the tensors of one call: any other is an error."""
    if not torch.is_tensor(tensor):
        raise ValueError(f"{name} is a {type(tensor).__name__}, not a tensor")
    if tensor.dtype != dtype or tuple(tensor.shape) != shape:
        raise ValueError(f"{name} is {tensor.dtype} {tuple(tensor.shape)}, not {dtype} {shape}")
    if tensor.requires_grad and not requires_grad:
        raise ValueError(f"no gradient of {name} is here: pass {name}.detach()")
'''
CHECK_VALUE = '''def check_value(name, value, expected):
    """Python values are part of the kernels."""
    if type(value) is not type(expected) or value != expected:
        raise ValueError(f"{name} is {value!r}; the kernels were made for {expected!r}")
'''
_PLAIN = ("leaf", "tuple", "list", "dict")


def export_triton(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """The text of a module that imports torch and triton only; TargetError for what cannot be one.

    The function itself is checked first (`gradof.testing.check`), then the text.
    GradientMismatchError if either is wrong, CodegenError for an op torch has no form of.
    """
    from gradof.testing import check

    if importlib.util.find_spec("triton") is None:
        raise CodegenError("triton is not installed", hint="pip install 'gradof[triton]'")
    derived = derive(fn, args, kwargs)
    name, text = triton_module(derived, args, kwargs)
    check(derived.compiled.fn, args, kwargs)
    from gradof.testing.torch_export import check_exported

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "exported.py")
        path.write_text(text)
        report = check_exported(derived.compiled, args, kwargs, path, name)
    if not report.ok:
        rows = [f"{r.what} by {r.error:.1e} ({r.reference})" for r in report.rows if not r.ok]
        raise GradientMismatchError(
            f"the exported file is wrong, in {', '.join(rows) or 'that it gives nothing'}",
            hint="nothing was written; this is a bug in gradof",
        )
    return text


def triton_module(
    derived: Derived, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[str, str]:
    """The name of the function in the file, and the text, not yet checked; errors as above."""
    _refuse(derived.bound.entry.traced, derived)
    public = _Public(derived, args, kwargs)
    return public.name, public.module(write_module(_halves(derived), public.name))


def _refuse(traced: Traced, derived: Derived) -> None:
    if traced.library != "torch":
        raise TargetError(
            "kernels are for torch tensors, and the arguments are numpy arrays",
            hint="--backend numpy, or a function of tensors",
        )
    if any(t.device.type != "cpu" for t in derived.bound.inputs):
        raise TargetError(
            "a file is checked in Triton's interpreter, and the arguments are on a device",
            hint="export it with CPU tensors; the file runs on tensors of either",
        )
    if traced.origins:
        raise TargetError(
            f"the function reads tensors that are no arguments: {_listed(traced.origins)}",
            hint="pass them as arguments",
        )
    for tree in (*derived.bound.call.tree.children, traced.out_tree):
        odd = {t.kind for t in _walk(tree)} - set(_PLAIN)
        if odd:
            raise TargetError(
                f"an argument or a result is a {odd.pop()}", hint="use tuples, lists and dicts"
            )


def _listed(things: Iterable[object]) -> str:
    return ", ".join(map(str, things))


def _walk(tree: TreeDef) -> Iterator[TreeDef]:
    yield tree
    for child in tree.children:
        yield from _walk(child)


def _halves(derived: Derived) -> Halves:
    gradient, special = derived.plan.gradient, derived.df
    lists = (
        gradient.df_input_vjps, gradient.df_input_captured_inputs,
        gradient.df_input_captured_outputs,
    )  # fmt: skip
    taken = [
        (which, n) for k, (which, n) in enumerate((w, n) for w, ns in enumerate(lists) for n in ns)
        if k in special.inputs
    ]  # fmt: skip
    vjps, inputs, outputs = (tuple(n for w, n in taken if w == which) for which in range(3))
    return Halves(
        without_attention(derived.plan.f.prepared), without_attention(special.plan.prepared),
        gradient.f_real_outputs,
        vjps=vjps, saved_inputs=inputs, saved_outputs=outputs,
        wanted=tuple(gradient.df_output_vjps[k] for k in special.outputs),
        differentiable=tuple(gradient.df_input_vjps),
    )  # fmt: skip


class _Public:
    """The function of the original's signature, and the text around it."""

    def __init__(self, derived: Derived, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.derived = derived
        self.traced = derived.bound.entry.traced
        fn = derived.compiled.fn
        name = getattr(fn, "__name__", type(fn).__name__)
        self.name = name if name.isidentifier() else "f"
        self.signature = inspect.signature(fn)
        self.args, self.kwargs = args, kwargs
        call = derived.bound.call
        self.leaves = [self.place(path) for path in call.paths]
        self.inputs = [self.leaves[i] for i in self.traced.arg_leaves]

    def place(self, path: str) -> str:
        """Where the function finds an argument: `args[0]['w']` is `p['w']`."""
        found = re.fullmatch(r"(args|kwargs)\[('?)(\w+)'?\](.*)", path)
        if found is None:
            raise TargetError(f"the argument {path} has no name in the file")
        kinds = inspect.Parameter
        parameters = list(self.signature.parameters.values())
        ordered = [p.name for p in parameters
                   if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)]  # fmt: skip
        rest = {p.kind: p.name for p in parameters}
        key = found[3]
        if found[1] == "kwargs":
            named = key in self.signature.parameters
            return (key if named else f"{rest[kinds.VAR_KEYWORD]}[{key!r}]") + found[4]
        k = int(key)
        first = ordered[k] if k < len(ordered) else None
        return (first or f"{rest[kinds.VAR_POSITIONAL]}[{k - len(ordered)}]") + found[4]

    def module(self, made: Module) -> str:
        """The whole text."""
        body = self.body(made)
        checks = [CHECK_TENSOR] + [CHECK_VALUE] * any("check_value(" in line for line in body)
        parts = [
            *self.head(made), IMPORTS + "\n", *(f"{text}\n" for text in checks), made.source, "",
            f"def {self.name}{self.header(made)}:", *body,
        ]  # fmt: skip
        return "\n".join(parts) + "\n"

    def head(self, made: Module) -> list[str]:
        graph = self.traced.graph
        rows = [
            f"    {place} : {v.type}" for place, v in zip(self.inputs, graph.inputs, strict=True)
        ]
        notes = (
            "Values and gradients were those of the original when this file was written. "
            f"{made.function_class} joins the kernels; the launcher of each comes after it. In "
            "kernels, r and c are the numbers of rows and columns, x_s0 is the stride of x along "
            "axis 0. Sizes and strides are arguments; BR and BC, the rows and columns of one "
            "program, and its warps were chosen for these sizes."
        )
        return [
            f'"""{self.name} and its gradient as Triton kernels, for these tensors:\n', *rows, "",
            *textwrap.wrap(notes, 88), "",
            "CPU tensors need TRITON_INTERPRET=1 in the environment when triton is imported.",
            '"""', "",
        ]  # fmt: skip

    def header(self, made: Module) -> str:
        own = {made.function_class, "check_tensor", "check_value", "torch", self.name}
        for p in self.signature.parameters.values():
            if p.name in own:
                raise TargetError(f"the file needs the name {p.name} of an argument for itself")
        bare = [p.replace(annotation=p.empty) for p in self.signature.parameters.values()]
        return str(self.signature.replace(parameters=bare, return_annotation=self.signature.empty))

    def body(self, made: Module) -> list[str]:
        lines = [f'    """{self.name}, differentiable once by torch\'s autograd."""']
        lines += self.values()
        flags = gradient_flags(self.derived.bound)
        for place, value, flag in zip(self.inputs, self.traced.graph.inputs, flags, strict=True):
            assert isinstance(value.type, TensorType)
            kind = f"{dtype_text(value.type.dtype)}, {value.type.shape}, {flag}"
            lines += wrapped(f'check_tensor("{place}", {place}, {kind})', 4)
        call = f"{made.function_class}.apply({', '.join(self.inputs)})"
        count = self.derived.plan.gradient.f_real_outputs
        results = [f"result_{k}" for k in range(count)] if count > 1 else ["result"]
        if self.traced.out_tree.kind == "leaf" and count == 1:
            return [*lines, *wrapped(f"return {call}", 4)]
        lines += wrapped(f"{', '.join(results)} = {call}", 4)
        return [*lines, *wrapped(f"return {self.rebuilt(results)}", 4)]

    def values(self) -> list[str]:
        """Checks of what is no tensor: values, lengths, and defaults that were not given."""
        found: dict[str, Any] = {self.leaves[i]: value for i, value in self.traced.static_leaves}
        bound = self.signature.bind(*self.args, **self.kwargs)
        for name, p in self.signature.parameters.items():
            if p.kind is p.VAR_POSITIONAL or p.kind is p.VAR_KEYWORD:
                found[f"len({name})"] = len(bound.arguments.get(name, ()))
            elif name not in bound.arguments:
                found[name] = p.default
            for path, size in _lengths(bound.arguments.get(name), name):
                found[f"len({path})"] = size
        return [
            line for place, value in found.items()
            for line in wrapped(f'check_value("{place}", {place}, {_literal(place, value)})', 4)
        ]  # fmt: skip

    def rebuilt(self, results: list[str]) -> str:
        """The expression of the user's result."""
        leaves = []
        for out in self.traced.outputs:
            if isinstance(out, ConstantOut):
                leaves.append(_literal("a result", out.value))
            elif isinstance(out, InputOut):
                leaves.append(self.inputs[out.index])
            elif isinstance(out, NumberOut):
                leaves.append(f"{results[out.index]}.item()")
            elif isinstance(out, GivenOut):
                raise TargetError("the function changes a container among its arguments")
            else:
                leaves.append(results[out.index] + ("" if out.requires_grad else ".detach()"))
        tree, order = spread(self.traced.out_tree)
        return _expression(tree, iter([leaves[i] for i in order]))


def _expression(tree: TreeDef, leaves: Iterator[str]) -> str:
    if tree.kind == "leaf":
        return next(leaves)
    parts = [_expression(child, leaves) for child in tree.children]
    if tree.kind == "dict":
        keys = [_literal("a key of a result", key) for key in tree.keys]
        return "{" + ", ".join(f"{k}: {p}" for k, p in zip(keys, parts, strict=True)) + "}"
    if tree.kind == "list":
        return f"[{', '.join(parts)}]"
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def _lengths(value: Any, path: str) -> Iterator[tuple[str, int]]:
    """Every container of an argument."""
    if isinstance(value, (tuple, list, dict)):
        yield path, len(value)
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _lengths(part, f"{path}[{key!r}]")


def _literal(place: str, value: Any) -> str:
    """A plain value as source, or a dtype of torch's; TargetError for any other."""
    import torch

    text = repr(value)
    if isinstance(value, torch.dtype):
        return text
    try:
        plain = ast.literal_eval(text) == value
    except (ValueError, SyntaxError):
        plain = False
    if not plain:
        raise TargetError(f"{place} is {text}, which a file cannot spell", hint="pass plain values")
    return text if '"' in text or "\\" in text else text.replace("'", '"')
