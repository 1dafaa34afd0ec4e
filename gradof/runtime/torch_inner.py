"""The gradients of results that other results are computed from, under torch's autograd.

    h, y = compiled(x)

    y.backward()                   y ---------> f -> x    df runs once, for all results
    torch.autograd.grad(y, h)      y -> h                 the vjp of the part from x and h to y
    h.retain_grad()                y -> h ----> f -> x    the same; and what of the gradient of x
    y.backward()                   y - - - - -> f         does not pass through h is kept for f

Each such result is given to the caller through a node of its own in front of f's, with edges to
the results that it is computed from. Its backward hands the cotangent on to f, unless the gradient
of an earlier result is asked for: by the inputs of the backward that runs, or by a hook.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from gradof.runtime.dynamo import left_alone_in_autograd
from gradof.runtime.shell import is_distributed
from gradof.runtime.torch_again import vjp_of
from gradof.runtime.torch_backward import freed
from gradof.runtime.torch_batched import batch_of
from gradof.tracer.state.generators import GLOBAL, Rewound

if TYPE_CHECKING:
    from gradof.runtime.inner_results import InnerResults
    from gradof.runtime.plan import GraphPlan

Tensor = torch.Tensor
Run = Callable[["GraphPlan", Sequence[Tensor]], Sequence[Tensor]]
_ENGINE = torch.autograd.graph._engine_run_backward.__code__
_INPUTS = 3  # of its `args`: cotangents, retain_graph, create_graph, inputs, ...
_keeps_graph: Any = torch._C._autograd._get_current_graph_task_keep_graph
_task: Any = torch._C._current_graph_task_id
_executes: Any = torch._C._will_engine_execute_node
# No gradient ever comes here: its node is part of a backward just if that goes to all leaves
_PROBE: Tensor = torch.ops.aten.alias.default(torch.zeros((), requires_grad=True, device="cpu"))


class Kept:
    """What f was given, as long as its graph is there; copies of what the call writes to."""

    def __init__(
        self, tensors: Sequence[Tensor], overwritten: Sequence[int], inner: InnerResults
    ) -> None:
        self.states: RandomStates | None = None
        if inner.is_random:
            self.states = RandomStates(tensors, GLOBAL if inner.draws_in_python else ())
        self._passed: Sequence[Tensor | None] = ()  # of gradients: what passes inner results by
        self._task = -1  # the backward in which it did
        self._tensors = list(tensors)
        for i in overwritten:
            self._tensors[i] = tensors[i].clone()
        self._versions = list(map(_version, self._tensors))

    def read(self) -> list[Tensor]:
        """The tensors; torch's errors where they are gone, or were written to."""
        if not self._versions:
            raise freed()
        if self._versions != list(map(_version, self._tensors)):
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an "
                "inplace operation"
            )
        return self._tensors

    def leave(self, gradients: Sequence[Tensor | None]) -> None:
        """Keep a part of the gradients for the backward of f, which is to come in this task."""
        self._passed = _sum(self._there(), gradients)
        self._task = _task()

    def add_to(self, gradients: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        """The gradients that the backward of f ends with. As saved tensors go, these do."""
        passed, self._passed = self._there(), ()
        if not _keeps_graph():
            self._tensors, self._versions = [], []
        return _sum(passed, gradients)

    def _there(self) -> Sequence[Tensor | None]:
        return self._passed if self._task == _task() else ()  # another one was ended by an error


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


class RandomStates:
    """What torch's generators, and `others`, are at, so that what is drawn next is drawn again."""

    def __init__(self, tensors: Sequence[Tensor], others: Iterable[Any]) -> None:
        self._devices = list({t.device for t in tensors if t.is_cuda})
        self._states = [torch.get_rng_state(), *map(torch.cuda.get_rng_state, self._devices)]
        self._others = Rewound(others)

    @contextmanager
    def again(self) -> Iterator[None]:
        """Within it the generators are back there; after it, where they were before it."""
        with torch.random.fork_rng(devices=self._devices), self._others.again():
            torch.set_rng_state(self._states[0])
            for device, state in zip(self._devices, self._states[1:], strict=True):
                torch.cuda.set_rng_state(state, device)
            yield


def apart(
    inner: InnerResults, outputs: Sequence[Tensor], given: Sequence[Tensor], kept: Kept, run: Run
) -> tuple[Tensor, ...]:
    """What f has given, its inner results and those computed from them by nodes of their own.

    Of the tensors that are `given` those are written here whose new contents are an inner result:
    what is computed from it has the argument for its history. `run` runs a plan under autograd.
    """
    shown, read = list(outputs), dict[int, Tensor]()
    f: Any = next((value.grad_fn for value in outputs if value.requires_grad), None)
    if f is None:  # all results have gradients of zero
        return tuple(shown)
    f.kept = kept
    for result, earlier in inner.earlier.items():
        value, view = shown[result], inner.views.get(result)
        if value.requires_grad and view is not None:
            shown[result] = view.of(shown)
        elif value.requires_grad:
            how = inner, result, kept, run, f, [read.get(i, shown[i]) for i in earlier]
            shown[result] = _result(value, _PROBE, how, *[shown[i] for i in earlier])
            if result in inner.written:
                shown[result] = given[inner.written[result]].copy_(shown[result])
                _list_hooks(shown[result])
                read[result] = shown[result].clone()  # the next call may write to it again
    return tuple(shown)


@left_alone_in_autograd
class Result(torch.autograd.Function):
    """A result of f, in the same memory."""

    @staticmethod
    def forward(
        ctx: Any, value: Tensor, probe: Tensor, how: tuple[Any, ...], *earlier: Tensor
    ) -> Tensor:
        """`probe` is here for its node; `how` is what `apart` knows."""
        ctx.set_materialize_grads(False)
        ctx.inner, ctx.result, ctx.kept, ctx.run, ctx.f, read = how
        ctx.earlier = [weakref.ref(t) for t in earlier]
        ctx.hooks = [t._backward_hooks for t in earlier]
        ctx.save_for_backward(*read)  # `earlier`, so that they and their hooks stay, or copies
        return value.detach()

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor | None) -> tuple[Tensor | None, ...]:
        """The cotangent for f, or those of the earlier results that are asked for."""
        before: list[Tensor | None] = [None] * len(ctx.earlier)
        if cotangent is None:
            return (None, None, None, *before)
        asked = _asked(ctx)
        if not asked:
            return (cotangent, None, None, *before)
        batch = batch_of((cotangent,))
        if batch is None:
            found = _vjp(ctx, asked, cotangent)
        else:
            found = batch.map(lambda given: _vjp(ctx, asked, given), (cotangent,))
        for i, gradient in zip(asked, found, strict=False):
            before[i] = gradient
        ctx.kept.leave(found[len(asked) :])
        return (None, None, None, *before)


def _sum(
    terms: Sequence[Tensor | None], others: Sequence[Tensor | None]
) -> Sequence[Tensor | None]:
    if not terms or not others:
        return terms or others
    return [
        b if a is None else a if b is None else a + b for a, b in zip(terms, others, strict=True)
    ]


def _vjp(ctx: Any, asked: Sequence[int], cotangent: Tensor) -> tuple[Tensor | None, ...]:
    """Of the part from some earlier results: their gradients, and those of f's inputs."""
    if ctx.f.plan.late is not None:
        ctx.f.plan.late.check(ctx.f.late)
    inputs = ctx.kept.read()
    arity = len(inputs)
    earlier = [ctx.saved_tensors[i] for i in asked]
    part = ctx.inner.part(ctx.result, tuple(ctx.inner.earlier[ctx.result][i] for i in asked))
    needs = ctx.f.needs_input_grad[-arity:] if _executes(ctx.f) else ()
    wanted = [*range(arity, arity + len(asked)), *(i for i, needed in enumerate(needs) if needed)]

    def run(given: list[Tensor]) -> Sequence[Tensor]:
        if ctx.kept.states is None:
            return ctx.run(part, given)  # type: ignore[no-any-return]
        with ctx.kept.states.again():
            return ctx.run(part, given)  # type: ignore[no-any-return]

    found = vjp_of(run, [*inputs, *earlier], wanted, (cotangent,))
    return (*found[arity:], *found[:arity])


def _asked(ctx: Any) -> list[int]:
    """Which of the earlier results get their own gradient in the backward that runs."""
    nodes = [node for node, _ in ctx.next_functions[-len(ctx.earlier) :]] if ctx.earlier else []
    goals = _goals() if nodes else []
    asked = []
    for i, (node, ref) in enumerate(zip(nodes, ctx.earlier, strict=True)):
        if node is None:
            continue
        if goals is None:  # not known: all that may be
            is_goal = not _executes(_PROBE.grad_fn) and _executes(node)
        else:
            is_goal = any(goal is node for goal in goals)
        if is_goal or _is_hooked(ref(), node) or _read_it(ctx.hooks[i]):
            asked.append(i)
    return asked


def _goals() -> list[Any] | None:
    """The nodes whose gradients the backward collects; None where that cannot be told.

    A device's nodes run in a thread of its own, while the one that asked waits in torch's engine.
    """
    own = list(_in_engine(sys._getframe()))[:1]
    others = [] if own else list(map(list, map(_in_engine, sys._current_frames().values())))
    waiting = own or [frame for frames in others for frame in frames]
    if len(waiting) != 1:  # several backwards at once, or one that C++ has begun
        return None
    inputs = waiting[0].f_locals["args"][_INPUTS]
    return [t.grad_fn if isinstance(t, Tensor) else t.node for t in inputs]


def _in_engine(frame: FrameType | None) -> Iterator[FrameType]:
    """The frames of a thread that called torch's engine, the innermost first."""
    while isinstance(frame, FrameType):  # CPython 3.11 has given a lock once
        if frame.f_code is _ENGINE:
            yield frame
        frame = frame.f_back


def _is_hooked(result: Any, node: Any) -> bool:
    """Whether a hook reads the gradient; those of torch's distributed wrappers wait for it."""
    if result is None or result.grad_fn is not node:  # or it was written to since
        return False
    return result.retains_grad or _read_it(result._backward_hooks)


def _read_it(hooks: dict[int, Any] | None) -> bool:
    return bool(hooks and not all(map(is_distributed, hooks.values())))


def _list_hooks(argument: Any) -> None:
    """Begin the list of a tensor's hooks: with its next change in place torch lets go of it."""
    argument.register_hook(_same).remove()


def _same(gradient: Tensor) -> Tensor:
    return gradient


_result: Any = super(torch.autograd.Function, Result).apply
