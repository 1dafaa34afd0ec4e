"""Running a plan on the arrays of a call, and what the caller gets of it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradof.runtime.arrays import is_tensor, write_back
from gradof.runtime.cache import Bound
from gradof.runtime.checks import wrt_leaves
from gradof.runtime.performed import perform
from gradof.runtime.plan import GraphPlan
from gradof.tracer.core.result import OutputLeaf, TensorOut
from gradof.tracer.numpy.places import check_apart


def run_plan(plan: GraphPlan, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Run a plan on arrays of its library; torch's autograd records it."""
    if plan.library == "torch":
        from gradof.runtime.torch_bridge import call

        return call(plan, inputs)
    return plan(*inputs)


def run_call(bound: Bound) -> Any:
    """What a call of the function gives: its plan is run, and what it writes is written."""
    traced = bound.entry.traced
    for i in traced.new_leaves:
        bound.inputs[i].requires_grad_()
    if traced.library == "numpy" or not (traced.writebacks or traced.stores):
        return finish(bound, run_plan(bound.entry.plan, bound.inputs), recorded=True)
    from gradof.runtime.torch_bridge import unsaved

    try:
        results = run_plan(bound.entry.plan, bound.inputs)
    except Exception:
        outputs = unsaved.take()
        if outputs is not None:  # Note [Ended by a hook] in `torch_bridge`
            finish(bound, [output.detach() for output in outputs])
        raise
    return finish(bound, results, recorded=True)


def inputs_at_entry(bound: Bound) -> list[Any]:
    """The inputs of a call, copies of those it changes in place: as a pullback is to read them."""
    inputs = list(bound.inputs)
    for back in bound.entry.traced.writebacks:
        array = inputs[back.input]
        inputs[back.input] = array.clone() if is_tensor(array) else np.array(array)
    return inputs


def finish(bound: Bound, results: Sequence[Any], recorded: bool = False) -> Any:
    """Copy write-backs into the caller's arrays, rebuild the user's result, repeat its stores.

    Where the function is performed, it does all that itself. `recorded`: what requires grad by a
    leaf that the function has made does so, as in eager.
    """
    traced = bound.entry.traced
    if traced.performs:
        return perform(bound, results)
    for back in traced.writebacks if traced.library == "numpy" else ():
        name = traced.graph.inputs[back.input].hint or str(back.input)
        written = traced.graph.outputs[back.output].node
        check_apart(bound.inputs, back.input, name, None if written is None else written.loc)
    for back in traced.writebacks:
        target = bound.inputs[back.input]
        if results[back.output] is target:
            continue  # it is written: an inner result, see `torch_inner`
        if back.generator is not None:
            back.generator.set_state(results[back.output].detach())
        elif traced.library == "torch":
            write_back(target, results[back.output], back.requires_grad)
        else:
            target[...] = results[back.output]
    visible = list(results)
    if traced.library == "numpy":
        visible = [r[()] if r.ndim == 0 else r for r in results]
    else:
        for out in traced.all_outputs:
            if isinstance(out, TensorOut) and not out.requires_grad:
                shown = results[out.index].detach()
                visible[out.index] = shown.clone() if out.counted else shown
    _share_memory(bound, results, visible)
    if recorded:
        _of_leaves(traced.all_outputs, visible)
    containers = traced.containers(bound.given)  # before one of them is changed
    result = traced.leaves(traced.outputs, bound.inputs, visible, containers)
    stores = [
        (store.found(), traced.leaves(store.outputs, bound.inputs, visible, containers))
        for store in traced.stores
    ]  # each as Python is at entry, before one of them is written
    for store, stored in stores:
        store.write(stored, containers)
    return traced.out_tree.unflatten(result)


def _share_memory(bound: Bound, results: Sequence[Any], visible: list[Any]) -> None:
    """Results that are views of inputs, or of one another; torch's of inputs that stay are."""
    traced = bound.entry.traced
    changed = {back.input for back in traced.writebacks}
    for out in traced.all_outputs:
        if isinstance(out, TensorOut) and out.view is not None:
            if traced.library == "numpy" or out.view.input in changed:
                visible[out.index] = out.view.of(bound.inputs[out.view.input])
        elif isinstance(out, TensorOut) and out.shared is not None:
            visible[out.index] = shared_view(bound.entry.plan, out)(results)


def _of_leaves(outputs: Sequence[OutputLeaf], visible: list[Any]) -> None:
    """Results that require grad by what the function made itself do so here, too."""
    for i in {out.index for out in outputs if isinstance(out, TensorOut) and out.of_leaf}:
        if not visible[i].requires_grad:
            from gradof.runtime.torch_bridge import of_leaf

            visible[i] = of_leaf(visible[i])


def shared_view(plan: GraphPlan, out: TensorOut) -> Callable[[Sequence[Any]], Any]:
    """How a result that is a view of another comes from all results."""
    assert out.shared is not None
    if plan.inner is not None and out.index in plan.inner.views:
        return functools.partial(plan.inner.shown, out)
    return out.shared.of


def gradient_flags(bound: Bound) -> tuple[bool, ...]:
    """One flag per graph input: torch's own requires_grad; otherwise every float argument."""
    traced = bound.entry.traced
    if traced.library == "torch" and any(t.requires_grad for t in bound.inputs):
        return tuple(t.requires_grad for t in bound.inputs)
    arguments = set(wrt_leaves(traced))
    return tuple(i in arguments for i in range(len(traced.graph.inputs)))
