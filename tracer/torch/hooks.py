"""Hooks on gradients inside traced functions: of tensors, and of the modules that are called.

    h.register_hook(lambda g: g.clamp(-1, 1))        →  %h.1 = CustomRule(%h) block(%dh, %h.1):
                                                            clamp(%dh)
    net[1].register_full_backward_pre_hook(lambda module, go: (go[0] * 10,))

A hook that only computes is recorded as the rule of an identity; whatever is between it and the
parameters gets what it returns, in the second derivative, too (`ops.custom.behind_hooks`). A hook
that does anything else (counts, stores, prints) has to run at every backward, of which a graph
knows nothing: that is a TraceError. So is whatever torch offers beside these two to look into a
backward: nodes of autograd, `retain_grad`, hooks on what is saved.

Note [Hooks that only compute]
What a hook does is judged by its code, before it runs: it may read its gradients, its variables,
numbers and tensors from outside, call torch, plain builtins and functions like itself, and change
nothing. Of a module's hook the module is not read, which may hold anything.
"""

from __future__ import annotations

import builtins
import contextlib
import dis
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import torch

from gradof.errors import TraceError
from gradof.ir.core import Node, Value
from gradof.tracer.state.source import function_loc, user_loc
from gradof.tracer.torch.functional import inner, is_base, is_written
from gradof.tracer.torch.modes import ApiMode
from gradof.tracer.torch.recorder import Recorder

Hook = Callable[..., Any]
_BUILTINS = frozenset({
    "tuple", "list", "len", "range", "zip", "enumerate", "isinstance", "float", "int", "bool",
    "max", "min", "abs", "sum", "reversed", "slice", "map", "any", "all",
})  # fmt: skip
_PLAIN = (int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Tensor)
_CHANGES = frozenset({
    "STORE_ATTR", "STORE_SUBSCR", "STORE_GLOBAL", "STORE_SLICE", "DELETE_ATTR", "DELETE_SUBSCR",
    "DELETE_GLOBAL", "IMPORT_NAME", "SETUP_WITH", "BEFORE_WITH", "RAISE_VARARGS",
})  # fmt: skip
_ACTIONS = frozenset({
    "save", "load", "backward", "register_hook", "retain_grad", "seed", "distributed", "item",
    "tolist", "numpy", "data", "grad", "data_ptr", "storage", "untyped_storage", "ops", "library",
})  # fmt: skip


def acts(hook: Any, unread: Collection[int] = ()) -> str | None:
    """What a hook does, or reads, that a graph does not have; None where it only computes.

    `unread`: its parameters that are not to be read. See Note [Hooks that only compute].
    """
    if not isinstance(hook, FunctionType):
        return f"is a {type(hook).__name__}"
    if hook.__defaults__ or hook.__kwdefaults__:
        return "has default arguments"
    code = hook.__code__
    hidden = {code.co_varnames[i] for i in unread if i < code.co_argcount}
    if code.co_argcount <= max(unread, default=-1) or code.co_flags & 0x0C:  # *args, **kwargs
        return "takes other arguments"
    return _acts(hook, code, hidden)


def _acts(hook: FunctionType, code: CodeType, hidden: Collection[str]) -> str | None:
    for step in dis.get_instructions(code):
        names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
        if step.opname in _CHANGES or (
            step.opname in ("STORE_DEREF", "DELETE_DEREF") and names[0] in hook.__code__.co_freevars
        ):
            return "changes something"
        if step.opname.startswith("BINARY_OP") and step.argrepr.endswith("="):
            return "changes something"
        if step.opname.startswith(("LOAD_FAST", "LOAD_DEREF", "LOAD_CLOSURE", "LOAD_CLASSDEREF")):
            if any(name in hidden for name in names):
                return f"reads {next(n for n in names if n in hidden)}"
            found = _outside(hook, names[0]) if "DEREF" in step.opname else None
        elif step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            found = _of_global(hook, names[0])
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"):
            found = _of_attribute(names[0])
        else:
            continue
        if found is not None:
            return found
    nested = (_acts(hook, c, hidden) for c in code.co_consts if isinstance(c, CodeType))
    return next((found for found in nested if found is not None), None)


def _outside(hook: FunctionType, name: str) -> str | None:
    if name not in hook.__code__.co_freevars or hook.__closure__ is None:
        return None  # a variable of its own
    cell = hook.__closure__[hook.__code__.co_freevars.index(name)]
    try:
        return _of_value(cell.cell_contents, name)
    except ValueError:
        return f"reads {name}, which is not set yet"


def _of_global(hook: FunctionType, name: str) -> str | None:
    if name in hook.__globals__:
        return _of_value(hook.__globals__[name], name)
    if name in _BUILTINS and hasattr(builtins, name):
        return None
    return f"uses {name}"


def _of_value(value: Any, name: str) -> str | None:
    if isinstance(value, _PLAIN):
        return None
    if isinstance(value, ModuleType):
        library = value.__name__.partition(".")[0]
        return None if library in ("torch", "math") else f"uses {name}"
    if isinstance(value, BuiltinFunctionType):
        return None if str(value.__module__).startswith(("torch", "math")) else f"uses {name}"
    if isinstance(value, FunctionType):
        if str(value.__module__).startswith("torch.nn.functional"):
            return None
        return acts(value)
    return f"uses {name}"


def _of_attribute(name: str) -> str | None:
    if name in _ACTIONS or name.startswith("set_") or (
        name.endswith("_") and not name.endswith("__")
    ):
        return f"uses {name}"
    return None


def refusal(what: str, why: str, hook: Any) -> TraceError:
    """The error for a hook that cannot be recorded."""
    return TraceError(
        f"{what} {why}, which has to happen at every backward",
        loc=function_loc(hook) if isinstance(hook, FunctionType) else user_loc(),
        hint="let it only compute the gradient that it returns, or call the function as it is",
    )


def hooked(tensor: torch.Tensor, hook: Hook) -> torch.Tensor:
    """The tensor itself, whose gradient goes through `hook`, which returns it or another."""

    class GradientHook(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()  # a view would be taken of x again, where x is written

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> Any:
            return hook(g)

    apply: Any = GradientHook.apply
    made: torch.Tensor = apply(tensor)
    return made


# --- hooks of tensors -----------------------------------------------------------------------------


class Handle:
    """What `register_hook` gives while a trace runs."""

    def remove(self) -> None:
        """TraceError: the hook is part of the graph."""
        raise TraceError(
            "a gradient hook that was recorded is removed", loc=user_loc(),
            hint="do not register it, or call the function as it is",
        )  # fmt: skip


class TensorHooks:
    """The hooks that a traced function registers on tensors it computes."""

    def __init__(self, recorder: Recorder, api: ApiMode) -> None:
        self.recorder = recorder
        self.api = api
        self._made_by: dict[Value, Value] = {}  # what a hooked value was

    def register(self, tensor: Any, hook: Any) -> Handle:
        """Let the gradient of a tensor go through a hook; TraceError where it cannot."""
        value = self.recorder.value(inner(tensor), user_loc())
        if not tensor.requires_grad and value not in self.recorder.attached:
            tensor.register_hook(hook)  # eager's error
        if value.node is None or (tensor.is_leaf and tensor.requires_grad):
            raise TraceError(
                "a gradient hook is registered on a tensor from outside, where it would stay",
                loc=user_loc(), hint="register it outside, or on a copy (x.clone())",
            )  # fmt: skip
        why = acts(hook)
        if why is None and self.api.histories.follows(tensor):
            why = "belongs to a tensor that shares its memory with detached ones"
        if why is None and not is_base(tensor) and is_written(tensor):
            why = "belongs to a view of what was changed in place"  # views of it are taken again
        if why is not None:
            raise refusal("a gradient hook", why, hook)
        while value in self._made_by:
            value = self._made_by[value]  # the hooks that were there before come first
        self.recorder.bind(inner(tensor), value)
        uses = value.uses
        before = self.recorder.graph.block.returns._prev
        with self.api:
            result = hooked(tensor, lambda g: _or_same(hook(g), g))
        made = self.recorder.value(inner(result), None)
        _make_a_hook(made, value)
        self._put_before([use.node for use in uses], before)
        for node, index in uses:
            node.replace_input(index, made)
        last = self._last_of(tensor, value, made)
        self._made_by[last] = value
        self.recorder.bind(inner(tensor), last)
        if tensor.requires_grad:
            with torch._C.DisableTorchFunction():
                tensor.register_hook(hook)  # for torch.autograd.grad inside the function
        return Handle()

    def _last_of(self, tensor: torch.Tensor, value: Value, made: Value) -> Value:
        """What stands for the tensor: the outermost of its hooks."""
        for outer, inside in self._made_by.items():
            if inside is value:
                del self._made_by[outer]
                return outer
        return made

    def _put_before(self, users: Sequence[Node], before: Node | None) -> None:
        """Move what was recorded after `before` in front of the first of the users."""
        if not users:
            return
        first = users[0]
        for user in users[1:]:
            first = user if user.is_before(first) else first
        made: list[Node] = []
        node = self.recorder.graph.block._head if before is None else before.next
        while node is not None and node is not self.recorder.builder.anchor:
            made.append(node)
            node = node.next
        own = {out for node in made for out in node.outputs}
        for node in made:
            for value in node.inputs:
                maker = value.node
                if value not in own and maker is not None and not maker.is_before(first):
                    raise TraceError(
                        "a gradient hook reads what was computed after its tensor was used",
                        loc=user_loc(), hint="register it where the tensor is made",
                    )  # fmt: skip
            node.move_before(first)


def _make_a_hook(made: Value, value: Value) -> None:
    """Let the identity be a rule of the value itself; see `gradof.ops.custom`."""
    node = made.node
    assert node is not None and node.kind == "CustomRule"
    node.replace_input(0, value)
    node.remove_input(1)
    node.attrs["wrt"] = (0,)


def _or_same(returned: Any, given: torch.Tensor) -> Any:
    return given if returned is None else returned


# --- hooks of modules -----------------------------------------------------------------------------


@contextlib.contextmanager
def module_hooks(api: ApiMode) -> Iterator[None]:
    """Within it, backward hooks of the modules that this thread calls are recorded or refused."""
    here = threading.get_ident()
    modules: Any = torch.nn.modules.module
    torchs = modules.BackwardHook

    def choose(module: Any, hooks: Sequence[Hook], pre_hooks: Sequence[Hook]) -> Any:
        if threading.get_ident() != here:
            return torchs(module, hooks, pre_hooks)
        return _ModuleHooks(api, module, hooks, pre_hooks)

    modules.BackwardHook = choose
    try:
        yield
    finally:
        modules.BackwardHook = torchs


class _ModuleHooks:
    """The backward hooks of one call of a module, in the place of torch's `BackwardHook`.

    Those of its arguments' gradients are refused: torch runs them where the gradient came through
    the module's result in the same backward, and not where it is a derivative of the gradient.
    """

    def __init__(
        self, api: ApiMode, module: Any, hooks: Sequence[Hook], pre_hooks: Sequence[Hook]
    ) -> None:
        self.api = api
        self.what = f"a backward hook of {type(module).__name__}"
        self.pre_hooks = list(pre_hooks)
        for hook in hooks:
            raise refusal(self.what, "is given the gradients of one backward", hook)
        for hook in pre_hooks:
            why = acts(hook, unread=(0,))
            if why is not None:
                raise refusal(self.what, why, hook)

    def setup_input_hook(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments of the module."""
        return args

    def setup_output_hook(self, result: Any) -> Any:
        """The result of the module, whose gradient goes through the pre-hooks."""
        several = result if isinstance(result, tuple) else (result,)
        places = [i for i, leaf in enumerate(several) if isinstance(leaf, torch.Tensor)]
        if not torch.is_grad_enabled() or not places:
            return result
        if len(places) > 1:
            raise refusal(self.what, "is given several gradients", self.pre_hooks[0])
        (place,) = places
        made = hooked(self.api.traced(several[place]), self._through)
        if not isinstance(result, tuple):
            return made
        return (*several[:place], made, *several[place + 1 :])

    def _through(self, g: torch.Tensor) -> torch.Tensor | None:
        for hook in self.pre_hooks:
            found = hook(None, (g,))
            if found is not None:
                (g,) = found
                if g is None:
                    return None
        return g
