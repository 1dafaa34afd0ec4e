"""Dynamo's graphs, with its own operators written as the Python they came from.

    autograd_function_apply(fwd, bwd, x)     bwd without Dynamo's no_grad around all of it
    tag_activation_checkpoint(body, x)       torch.utils.checkpoint.checkpoint(body, x)
    cond(p, true_body, false_body, (x,))     (true_body if p else false_body)(x)

Dynamo traces the backward of a `torch.autograd.Function` as one that nobody differentiates: all of
it stands under no_grad, so that of a second derivative the part that goes through it would be lost
without a word. Without these, it is run as torch would run it under create_graph=True.
"""

from __future__ import annotations

import ast
import functools
import linecache
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.autograd.function import once_differentiable
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.utils.checkpoint import checkpoint

from gradof.tracer.torch.control_flow import run_cond, run_while_loop

_OPERATORS: Any = torch.ops.higher_order
_APPLY = "autograd_function_apply"
_FRAME = re.compile(r'File "(.*)", line (\d+), in')
_SWITCHES = frozenset({
    "once_differentiable", "no_grad", "inference_mode", "set_grad_enabled", "enable_grad",
})  # fmt: skip


def as_torch_wrote_it(graph: fx.GraphModule) -> fx.GraphModule:
    """The graph and those within it, changed in place; see the module docstring."""
    for module in list(graph.modules()):
        if isinstance(module, fx.GraphModule):
            if _rewrite(module):
                module.recompile()
            _LazyGraphModule.force_recompile(module)  # else its first call would change it
    return graph


def _rewrite(graph: fx.GraphModule) -> bool:
    changed = False
    for node in list(graph.graph.nodes):
        if node.op != "call_function":
            continue
        is_operator = isinstance(node.target, torch._ops.HigherOrderOperator)
        name = str(node.target) if is_operator else ""
        if name == _APPLY:
            target = str(node.args[1].target)
            backward = graph.get_submodule(target)
            assert isinstance(backward, fx.GraphModule)
            _differentiable(backward)
        elif name in _WRITTEN:
            node.target = _WRITTEN[name]
            changed = True
    return changed


# --- torch.autograd.Function ------------------------------------------------------------------


def _differentiable(backward: fx.GraphModule) -> None:
    """Take Dynamo's no_grad off the backward of a Function.

    Dynamo leaves out what of that the user wrote. So a backward whose source says no_grad or
    once_differentiable, or that has no source to look at, is once_differentiable.
    """
    nodes = [n for n in backward.graph.nodes if n.op not in ("placeholder", "get_attr", "output")]
    if len(nodes) < 2 or not (_sets_grad(nodes[0], False) and _sets_grad(nodes[-1], True)):
        return
    for node in (nodes[0], nodes[-1]):
        backward.graph.erase_node(node)
    backward.recompile()
    if any(_without_gradients(node.stack_trace) for node in nodes[1:-1]):
        _mark_once(backward)


def _sets_grad(node: fx.Node, mode: bool) -> bool:
    return node.target is torch._C._set_grad_enabled and node.args == (mode,)


def _without_gradients(stack: str | None) -> bool:
    """Whether a function that an op was called from names what switches gradients off."""
    frames = _FRAME.findall(stack or "")
    return not frames or any(_names(file, int(line)) for file, line in frames)


@functools.lru_cache(maxsize=1024)
def _names(file: str, line: int) -> bool:
    """Whether the function around a line, its decorators included, names one of _SWITCHES."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return True  # what is there is not Python
    around = [
        f for f in ast.walk(tree)
        if isinstance(f, (ast.FunctionDef, ast.Lambda)) and f.lineno <= line <= (f.end_lineno or 0)
    ]  # fmt: skip
    if not around:
        return True
    function = max(around, key=lambda f: f.lineno)
    words = (getattr(n, "id", getattr(n, "attr", None)) for n in ast.walk(function))
    return any(word in _SWITCHES for word in words)


def _mark_once(backward: fx.GraphModule) -> None:
    inner = fx.GraphModule(backward, backward.graph)

    @once_differentiable
    def run(ctx: Any, *args: Any) -> Any:
        return inner(*args)

    outer = fx.Graph()
    places = [outer.placeholder(n.name) for n in inner.graph.nodes if n.op == "placeholder"]
    outer.output(outer.call_function(run, (None, *places)))
    backward.graph = outer


# --- the others ---------------------------------------------------------------------------------


def _checkpoint(body: fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
    if "_checkpoint_context_fn" in body.meta:  # what is saved was chosen op by op
        return _OPERATORS.tag_activation_checkpoint(body, *args, **kwargs)
    return checkpoint(body, *args, **kwargs)


_WRITTEN: dict[str, Callable[..., Any]] = {
    "tag_activation_checkpoint": _checkpoint,
    "cond": run_cond,
    "while_loop": run_while_loop,
}


# --- torch.func -----------------------------------------------------------------------------------


def levels_kept(run: Callable[..., Any]) -> Callable[..., Any]:
    """A function that leaves torch.func's levels as they were, where it ends with an error.

    In Dynamo's graphs a level is one call that begins it and another that ends it.
    """

    def kept(*args: Any) -> Any:
        before = _levels()
        refused = torch._C._autograd._saved_tensors_hooks_get_disabled_error_message()
        try:
            return run(*args)
        except BaseException:
            while len(levels := _levels()) > len(before):
                _END[levels[-1].key()]()
            if refused is None:
                torch._C._autograd._saved_tensors_hooks_enable()
            raise

    return kept


_functorch: Any = torch._C._functorch
_kind: Any = _functorch.TransformType
_END = {
    _kind.Vmap: _functorch._vmap_decrement_nesting,
    _kind.Grad: _functorch._grad_decrement_nesting,
    _kind.Jvp: _functorch._jvp_decrement_nesting,
}


def _levels() -> list[Any]:
    return _functorch.get_interpreter_stack() or []
