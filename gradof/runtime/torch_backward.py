"""The backward of a compiled graph under torch's autograd, to any order.

Note [Temporaries have no history]
What f computes for df and for nobody else stays what emitted code has made, in the node: as outputs
of the node, which have a history, each would take 3 us a step. Only where the backward itself is
recorded (`create_graph=True`) does a second derivative flow through them. Then they become the
outputs of a node of their own, `Temporaries`, whose backward is df as well. Its edges are those of
f's inputs. Inputs that df reads are saved, with their history; leaves stay what they are; of any
other only the history is kept (`Edge`), since it may be written to before the backward, and its
memory given back. From the next call on they are outputs of f's own node (`edges_of`), so that one
run of df has the second derivatives through them and through the results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gradof.runtime.dynamo import left_alone_in_autograd
from gradof.runtime.plan import GradientPlan, GraphPlan
from gradof.runtime.torch_anomaly import has_nan, is_watched, let_pass, only_adds_up
from gradof.runtime.torch_arrays import to_numpy
from gradof.runtime.torch_batched import batch_of
from gradof.runtime.torch_run import as_tensors, consumed, results
from gradof.tracer.torch.functional import refuse_transformed, transforms_active

Tensor = torch.Tensor
Edges = tuple[Tensor, ...]
_keeps_graph: Any = torch._C._autograd._get_current_graph_task_keep_graph
_NONE: Tensor = torch.empty(0, device="cpu")


def backward(ctx: Any, cotangents: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
    """The gradients of f's inputs, given those of its results, or of its temporaries as well."""
    batch = batch_of(cotangents)
    keeps = _keeps_graph()
    if batch is None:
        gradients = _gradients(ctx, cotangents, not keeps)
    else:
        gradients = batch.map(lambda *slices: _gradients(ctx, slices, False), cotangents)
    if not keeps:
        ctx.values = None  # as saved tensors go
    return gradients


def edges_of(plan: GradientPlan, tensors: Sequence[Tensor]) -> Edges | None:
    """What is kept of the inputs that have a gradient and that df does not read.

    None where the temporaries are to be outputs of f's node: a backward was recorded before, or
    there are so many edges to make, at 10 to 20 us each, that these would take longer.
    """
    if plan.is_recorded:
        return None
    loose = [tensors[i] for i in plan.loose_inputs]
    to_make = sum([not t.is_leaf for t in loose])
    if 5 * to_make > plan.outputs - plan.real_outputs:
        return None
    return tuple([t if t.is_leaf else _edge(t) for t in loose] if to_make else loose)


@left_alone_in_autograd
class Edge(torch.autograd.Function):
    """A tensor of the same shape and history, without its memory."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        """One element in the place of all."""
        return tensor.new_empty(()).expand(tensor.shape)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Tensor:
        """The identity's."""
        return cotangent


@left_alone_in_autograd
class Temporaries(torch.autograd.Function):
    """What f has computed for df, with a history."""

    @staticmethod
    def forward(
        ctx: Any, how: tuple[GradientPlan, Sequence[Any], Any], *given: Tensor
    ) -> tuple[Tensor, ...]:
        """`given` are f's inputs, as far as df or their history needs them, and its results."""
        ctx.set_materialize_grads(False)
        plan, ctx.values, ctx.late = how
        ctx.plan, ctx.seed = plan, None
        ctx.edges = tuple([given[i] for i in plan.loose_inputs])
        captured = [given[i] for i in plan.captured_inputs]
        ctx.save_for_backward(*captured, *given[plan.arity :])
        made = as_tensors(ctx.values, plan.f.held[plan.real_outputs :])
        fresh = tuple([t.detach() for t in made])
        constant = [fresh[i - plan.real_outputs] for i in plan.constant_temporaries]
        ctx.mark_non_differentiable(*constant)
        return fresh

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
        """df for cotangents of temporaries alone."""
        plan: GradientPlan = ctx.plan
        gradients = backward(ctx, (None,) * plan.real_outputs + cotangents)
        return (None, *gradients, *[None] * len(plan.captured_results))


def _gradients(
    ctx: Any, cotangents: Sequence[Tensor | None], consumes: bool
) -> Sequence[Tensor | None]:
    """`consumes`: what f has computed for df is read for the last time."""
    plan: GradientPlan = ctx.plan
    plan.unasked.asked()
    if plan.late is not None:
        plan.late.check(ctx.late)
    watched = is_watched()
    if ctx.seed is not None and not watched:
        there = _computed_with_value(ctx, plan, cotangents)
        if there is not None:
            return there
    result: list[Tensor | None] = [None] * plan.arity
    vjps = [cotangents[i] if i < len(cotangents) else None for i in plan.output_vjps]
    defined = tuple([g is not None for g in vjps])
    wanted = _wanted(ctx, plan)
    if plan.together.is_learning:
        _learn(plan, cotangents, wanted)
    if True in defined and True in wanted:
        special = plan.df(defined, wanted)
        # as in eager, a graph of sums is not freed: no error where nothing of f is read
        reads = watched or any(i >= len(vjps) for i in special.inputs)
        arguments = [*vjps, *(_captures(ctx) if reads else ())]
        given = [arguments[i] for i in special.inputs if arguments[i] is not None]
        if consumes and not watched and not torch.is_grad_enabled():
            arguments, ctx.values = [], None
        grads = _run(special.plan, given)
        for position, grad in zip(special.outputs, grads, strict=True):
            result[plan.input_vjps[position]] = grad
        if watched and has_nan(result):
            operands = [to_numpy(x) if isinstance(x, Tensor) else x for x in arguments]
            if only_adds_up(plan, operands):
                let_pass(ctx)
    if False in defined:
        _spare_hooks(ctx, plan, result)
    return result


class IfGiven:
    """A hook of a tensor that is not called with None, until the backward has ended."""

    def __init__(self, hooks: dict[int, Any], key: int) -> None:
        self.hooks, self.key, self.hook = hooks, key, hooks[key]
        hooks[key] = self
        torch.autograd.Variable._execution_engine.queue_callback(self.end)

    def __call__(self, gradient: Tensor | None) -> Tensor | None:
        """What the hook gives, or None: the gradient stays as it is."""
        found: Tensor | None = None if gradient is None else self.hook(gradient)
        return found

    def end(self) -> None:
        """Put the hook itself back, if it was not removed meanwhile."""
        if self.hooks.get(self.key) is self:
            self.hooks[self.key] = self.hook


def _spare_hooks(ctx: Any, plan: GradientPlan, gradients: Sequence[Tensor | None]) -> None:
    """Keep hooks of leaves from being called where a leaf gets no gradient.

    A backward from some of the results does not come to each input. Eager's does not call hooks
    there; but autograd hands on what a node gives, and calls them with None.
    """
    edges = ctx.next_functions
    for node in [edges[i][0] for i in plan.input_vjps if gradients[i] is None]:
        if node is not None and not hasattr(node, "variable"):  # the leaf is behind a view of it
            node = node.next_functions[0][0] if node.next_functions else None
        hooks = getattr(getattr(node, "variable", None), "_backward_hooks", None) or {}
        for key in [key for key, hook in hooks.items() if type(hook) is not IfGiven]:
            IfGiven(hooks, key)


def _captures(ctx: Any) -> list[Any]:
    """What df reads of f: tensors with a history where the backward is recorded."""
    plan: GradientPlan = ctx.plan
    saved = ctx.saved_tensors
    inputs, rest = saved[: len(plan.captured_inputs)], saved[len(plan.captured_inputs) :]
    shown, unpacked = rest[: len(plan.captured_results)], rest[len(plan.captured_results) :]
    values = unpacked if ctx.values is None else ctx.values
    if len(values) != plan.outputs - plan.real_outputs:  # a backward has ended with an error
        raise freed()
    if torch.is_grad_enabled():
        plan.is_recorded = True
    if torch.is_grad_enabled() and values and ctx.edges is not None:
        given = [_NONE] * plan.arity
        places = (*plan.captured_inputs, *plan.loose_inputs)
        for i, tensor in zip(places, (*inputs, *ctx.edges), strict=True):
            given[i] = tensor
        values = _temporaries((plan, values, ctx.late), *given, *shown)
    of_f = [*shown, *values]
    return [*inputs, *[of_f[i] for i in plan.captured_places]]


def freed() -> RuntimeError:
    """torch's error for a backward of which another has freed what it reads."""
    return RuntimeError(
        "Trying to backward through the graph a second time: what it read is freed when its "
        "backward has run; call it with retain_graph=True"
    )


def _run(plan: GraphPlan, operands: list[Any]) -> Sequence[Tensor]:
    """The list is the run's own, and may be emptied: see `Executable.consume`."""
    if not torch.is_grad_enabled():
        if transforms_active():
            for tensor in (x for x in operands if isinstance(x, Tensor)):  # cotangents, too
                refuse_transformed(tensor, "a tensor that compiled code is to read")
        return results(plan, (), consumed(plan, operands))
    from gradof.runtime.torch_bridge import call

    return call(plan, operands)


def _computed_with_value(
    ctx: Any, plan: GradientPlan, cotangents: Sequence[Tensor | None]
) -> list[Tensor | None] | None:
    """The gradients that f's run has made, once; None where df is to run. Note [Together]."""
    seed, ctx.seed = ctx.seed, None
    gradients, ctx.gradients = ctx.gradients, None
    if torch.is_grad_enabled() or _only_number(cotangents) != seed:
        plan.together.missed()
        return None
    ctx.saved_tensors  # noqa: B018  # refuses tensors changed meanwhile, and a freed graph
    plan.together.taken()
    plan.f.counts.backward += 1
    result: list[Tensor | None] = [None] * plan.arity
    for place, gradient in zip(plan.together.places, gradients, strict=True):
        result[place] = gradient
    return result


def _learn(plan: GradientPlan, cotangents: Sequence[Tensor | None], wanted: Sequence[bool]) -> None:
    number = None if torch.is_grad_enabled() else _only_number(cotangents)
    if number is None or not all(wanted):
        plan.together.note(None)
    elif plan.together.note(number):
        plan.together.begin(number, cotangents[0].detach().clone())  # type: ignore[union-attr]


def _only_number(cotangents: Sequence[Tensor | None]) -> float | None:
    """The cotangent of the value, a number; None where there are others, or it is none."""
    first = cotangents[0]
    if first is None or any(c is not None for c in cotangents[1:]):
        return None
    return float(first.item())


def _wanted(ctx: Any, plan: GradientPlan) -> tuple[bool, ...]:
    """Whether the backward now running asks for the gradients of these tensor inputs.

    `needs_input_grad` is as of the forward; `torch.autograd.grad(loss, [w])` wants less than that.
    Where one gradient is left it is wanted, or there were no backward.
    """
    edges, needs = ctx.next_functions, ctx.needs_input_grad
    nodes = [edges[i][0] if needs[1 + i] else None for i in plan.input_vjps]
    if sum(node is not None for node in nodes) == 1:
        return tuple([node is not None for node in nodes])
    return tuple([_is_wanted(node, plan) for node in nodes])


def _is_wanted(node: Any, plan: GradientPlan) -> bool:
    if node is None:
        return False
    try:
        return bool(torch._C._will_engine_execute_node(node))
    except RuntimeError as error:
        # torch does not say so of a leaf that autograd.grad collects; others get False. The error
        # takes 40 us: from now on this plan's leaves come as views, of which torch says it at once
        if "leaf node" not in str(error):
            raise
        plan.asked_of_leaves = True
        return True


# The apply of torch's own, without what it does in Python for transforms: none is active here.
_edge: Any = super(torch.autograd.Function, Edge).apply
_temporaries: Any = super(torch.autograd.Function, Temporaries).apply
