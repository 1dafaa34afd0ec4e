"""`torch.autograd.Function`s called by a traced function: their backward is the rule.

    out = Scaled.apply(x)      →    %raw = ...forward, without gradients...
                                    %out = CustomRule[results=1, wrt=(1,)](%raw, %x) block(...)

torch runs the Function itself, on the wrappers, so that everything its context offers is there; its
backward is then traced once, with gradients on and every cotangent given, as `create_graph=True`
would run it. Tensors saved from within the forward have no history, as in eager.

Where gradof is asked for a gradient that torch does not know of (`gradof.grad`, whose arguments
need not require grad), the Function is given copies that do.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch.autograd.function import BackwardCFunction, _SingleLevelFunction

from gradof.errors import CustomRuleError, UnsupportedOpError
from gradof.ir.core import Loc, Value
from gradof.ops.expr import Expr, F
from gradof.tracer.aten.types import type_of
from gradof.tracer.core.custom_rule import RuleRecording
from gradof.tracer.state.code_facts import facts_of
from gradof.tracer.state.reads import Reads
from gradof.tracer.state.source import function_loc, user_loc
from gradof.tracer.torch.functional import inner, is_written, wrap, write_back
from gradof.tracer.torch.modes import ApiMode
from gradof.tracer.torch.recorder import Recorder
from gradof.tracer.torch.transforms import transformed
from gradof.tuning import MOST_RULES

_base: Any = _SingleLevelFunction
_BY_TORCH = "torch._library.autograd"  # the gradient of a torch.library op, which is opaque


@contextlib.contextmanager
def custom_functions(recorder: Recorder, api: ApiMode, reads: Reads) -> Iterator[None]:
    """Within it, Functions that this thread applies are recorded with their backward."""
    here = threading.get_ident()

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        run = super(_base, cls).apply
        if threading.get_ident() != here or cls.forward.__module__ == _BY_TORCH:
            return run(*args, **kwargs)
        with torch._C.DisableTorchFunction():  # ours, not the user's
            wrapped = tuple(api.traced(a) if isinstance(a, torch.Tensor) else a for a in args)
        if any(isinstance(a, torch.Tensor) and transformed(a) for a in wrapped):
            raise UnsupportedOpError(
                f"{cls.__name__}, a torch.autograd.Function within a transform of torch.func",
                loc=user_loc(), hint="transform a plain function, or call it outside",
            )  # fmt: skip
        if recorder.paused or not torch.is_grad_enabled():
            return run(*wrapped, **kwargs)
        call = _Call(recorder, cls, wrapped, reads)
        # another call may ask for a gradient of what requires none, as `gradof.grad` does
        api.histories.decided |= call.asks
        return call.record(lambda given: run(*given, **kwargs))

    _base.apply = classmethod(apply)
    try:
        yield
    finally:
        del _base.apply


class _Call:
    """One call of a Function."""

    def __init__(
        self, recorder: Recorder, cls: Any, args: tuple[Any, ...], reads: Reads
    ) -> None:
        self.recorder = recorder
        self.reads = reads
        self.cls = cls
        self.args = args
        self.outside: list[torch.Tensor] = []  # what there was before the forward
        self.handed: list[torch.Tensor] = []  # results in memory that the forward has written
        self.loc = user_loc()
        self.values = {
            i: recorder.value(inner(a), self.loc)
            for i, a in enumerate(args) if isinstance(a, torch.Tensor)
        }  # fmt: skip
        known = [i for i, v in self.values.items() if v in recorder.attached]
        self.live = [i for i in self.values if args[i].requires_grad or i in known]
        self.asks = any(not args[i].requires_grad for i in self.live) and _asks_for_inputs(cls)
        if self.asks:  # which gradients are due, which is of these calls alone
            self.live = [i for i in self.live if args[i].requires_grad]

    def record(self, run: Callable[[tuple[Any, ...]], Any]) -> Any:
        """Run the Function and, where a gradient can flow to it, record its rule."""
        if not self.live:
            return run(self.args)
        if self.recorder.rules.count(self.cls) == MOST_RULES:
            return self._without_rule(run(self.args))
        given = {i: self._requiring(i) for i in self.live}
        self.outside = self.recorder.known()
        self.recorder.applying += 1
        try:
            result = run(tuple(given.get(i, a) for i, a in enumerate(self.args)))
        finally:
            self.recorder.applying -= 1
        self._refuse_changed(given)
        outs = list(result) if isinstance(result, tuple) else [result]
        tensors = [o for o in outs if isinstance(o, torch.Tensor)]
        with_grad = [o for o in tensors if o.requires_grad]
        if not with_grad:
            return result
        ctx = _maker(with_grad[0])
        if not isinstance(ctx, BackwardCFunction) or any(_maker(o) is not ctx for o in with_grad):
            raise UnsupportedOpError(
                f"{self.cls.__name__}, a torch.autograd.Function, returns a view of an argument "
                "that it changes in place", loc=self.loc, hint="return a copy",
            )  # fmt: skip
        recorder = self.recorder
        recorder.builder.loc = self.loc
        rule = RuleRecording(
            recorder.builder, [recorder.value(inner(o), self.loc) for o in with_grad],
            [self.values[i] for i in self.live],
        )  # fmt: skip
        for out, value in zip(with_grad, rule.node.outputs, strict=True):
            self._know(value)
            recorder.bind(inner(out), value)
        self._trace_rule(rule, ctx, outs, with_grad)
        for out in with_grad:
            self._hand_over(out)
        if any(a.requires_grad for a in self.args if isinstance(a, torch.Tensor)):
            return result
        plain = [self._without_history(o) if isinstance(o, torch.Tensor) else o for o in outs]
        return tuple(plain) if isinstance(result, tuple) else plain[0]

    def _without_rule(self, result: Any) -> Any:
        """Results of a Function within its own backward, as deep as rules are recorded."""
        known = [Expr(self.values[i], self.recorder.emitter) for i in self.live]
        for out in result if isinstance(result, tuple) else (result,):
            if isinstance(out, torch.Tensor) and out.requires_grad:
                value = Expr(self.recorder.value(inner(out), self.loc), self.recorder.emitter)
                ended = F.once_differentiable(value, *known, deepest=self.cls.__name__)
                self.recorder.bind(inner(out), ended.value)
        return result

    def _hand_over(self, out: torch.Tensor) -> None:
        """Give memory that was written the gradient of the result: views of it are taken there."""
        if not is_written(out) or any(out is a for a in self.args):
            return
        memory = _memory(inner(out))
        if any(_memory(tensor) == memory for tensor in self.outside):
            raise UnsupportedOpError(
                f"{self.cls.__name__}, a torch.autograd.Function, returns a view of memory that "
                "was changed in place before", loc=self.loc, hint="return a copy",
            )  # fmt: skip
        write_back(out)
        self.handed.append(inner(out))

    def _requiring(self, i: int) -> torch.Tensor:
        """The argument, or a copy that requires grad and stands for the same value."""
        arg: torch.Tensor = self.args[i]
        if arg.requires_grad:
            return arg
        with self.recorder.pause(), torch._C.DisableTorchFunction(), torch.enable_grad():
            base = arg.detach().clone().requires_grad_()
            copy = base.view_as(arg)
        self.recorder.bind(inner(base), self.values[i])  # where the forward returns an alias
        self.recorder.bind(inner(copy), self.values[i])
        return copy

    def _without_history(self, out: torch.Tensor) -> torch.Tensor:
        held = inner(out)
        value = self.recorder.value(held, self.loc)
        with self.recorder.pause(), torch._C.DisableTorchFunction():
            if any(held is tensor for tensor in self.handed):
                return wrap(held)  # a view would be taken of its memory again, and detached
            plain = out.detach()
        self.recorder.bind(inner(plain), value)
        return plain

    def _refuse_changed(self, given: dict[int, torch.Tensor]) -> None:
        for i, tensor in given.items():
            if tensor is not self.args[i] and (
                self.recorder.find(inner(tensor)) is not self.values[i]
            ):
                raise UnsupportedOpError(
                    f"{self.cls.__name__}, a torch.autograd.Function, changes an argument in place",
                    loc=self.loc, hint="pass tensors that require grad, or return a new one",
                )  # fmt: skip

    def _know(self, value: Value) -> None:
        self.recorder.attached.add(value)
        self.recorder.varying.add(value)

    # --- the backward ---------------------------------------------------------------------------

    def _trace_rule(
        self, rule: RuleRecording, ctx: Any, outs: Sequence[Any], with_grad: Sequence[torch.Tensor]
    ) -> None:
        stand_ins = iter(rule.cotangents)
        with torch.enable_grad():
            cotangents = [
                self._cotangent(o, next(stand_ins)) if any(o is w for w in with_grad)
                else torch.zeros_like(o) if isinstance(o, torch.Tensor) else None
                for o in outs
            ]  # fmt: skip
            self.recorder.rules.append(self.cls)
            try:
                with self.reads.of_backwards.of(inspect.unwrap(self.cls.backward), ctx):
                    returned = ctx.apply(*cotangents)
            finally:
                self.recorder.rules.pop()
        grads = list(returned) if isinstance(returned, tuple) else [returned]
        line = function_loc(inspect.unwrap(self.cls.backward)) or self.loc
        if len(grads) < len(self.args) or any(g is not None for g in grads[len(self.args) :]):
            raise CustomRuleError(
                f"the backward of {self.cls.__name__} returns {len(grads)} gradients for "
                f"{len(self.args)} arguments of its forward", loc=line,
                hint="return one per argument, None for those without a gradient",
            )  # fmt: skip
        self.recorder.builder.loc = line
        seeds = [c for c in rule.cotangents if c is not None]
        values = [self._gradient(i, grads[i], line, seeds) for i in self.live]
        self.recorder.forget(rule.close(values, line))

    def _cotangent(self, out: torch.Tensor, stand_in: Value | None) -> torch.Tensor:
        assert stand_in is not None  # torch lets only floating-point results require grad
        with self.recorder.pause(), torch._C.DisableTorchFunction():
            made = torch.ones_like(out).requires_grad_().clone()
        self._know(stand_in)
        self.recorder.bind(inner(made), stand_in)
        return made

    def _gradient(
        self, i: int, grad: Any, line: Loc | None, cotangents: Sequence[Value]
    ) -> Value | None:
        """The value of one gradient, cast and summed to its argument as torch's engine does."""
        if grad is None:
            return None
        want, name = self.values[i].type, self.cls.__name__
        if not isinstance(grad, torch.Tensor):
            raise CustomRuleError(
                f"the backward of {name} returns a {type(grad).__name__} for argument {i}",
                loc=line, hint="return a tensor, or None",
            )  # fmt: skip
        recorder = self.recorder
        expr = Expr(recorder.value(inner(grad), line), recorder.emitter)
        have, shape = type_of(grad), tuple(self.args[i].shape)
        if have.shape != shape:
            try:
                fits = np.broadcast_shapes(have.shape or (), shape) == have.shape
            except ValueError:
                fits = False
            if not fits:
                raise CustomRuleError(
                    f"the backward of {name} returns a gradient of {have} for argument {i}, "
                    f"which is {want}", loc=line, hint="a gradient has the shape of its argument",
                )  # fmt: skip
            expr = F.sum_to(expr, shape=shape)
        expr = expr.cast(type_of(self.args[i]).dtype)
        maker = _maker(grad)
        if maker is not None and "Error" in maker.name():
            known = [*cotangents, *(self.values[k] for k in self.live)]
            operands = (Expr(v, recorder.emitter) for v in known)
            expr = F.once_differentiable(expr, *operands, deepest="")
        return expr.value


def _asks_for_inputs(cls: type) -> bool:
    """Whether the code of a Function names `ctx.needs_input_grad`."""
    parts = (inspect.unwrap(getattr(cls, n)) for n in ("forward", "setup_context", "backward"))
    return any(
        "needs_input_grad" in facts_of(part.__code__).reads
        for part in parts if isinstance(part, FunctionType)
    )


def _memory(tensor: torch.Tensor) -> int:
    with torch._C.DisableTorchFunction():
        return int(tensor.untyped_storage()._cdata)


def _maker(tensor: torch.Tensor) -> Any:
    """`tensor.grad_fn`, read past the mode that checks what the user reads."""
    with torch._C.DisableTorchFunction():
        return tensor.grad_fn
