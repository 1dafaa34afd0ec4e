"""The harness for torch functions: against eager, eager in float64, finite differences."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from math import inf
from typing import Any

import torch

from gradof.errors import DeviceError, GradientMismatchError, LeafTypeError
from gradof.ir.opinfo import has_trait
from gradof.passes.unroll_loops import unrolled
from gradof.runtime.cache import Bound
from gradof.runtime.function import Differentiated
from gradof.runtime.results import gradient_flags
from gradof.runtime.thread import calling_plain
from gradof.runtime.torch_arrays import to_numpy
from gradof.testing.closeness import equal, largest, noise, rows
from gradof.testing.localize import examine_ops, values_of
from gradof.testing.report import Report, Row
from gradof.testing.torch_differences import finite_differences
from gradof.testing.torch_lines import first_diverging_line
from gradof.testing.torch_runs import Inputs, Run, in_parts, is_inexact, random_like
from gradof.tracer.core.pytree import flatten, flatten_call

Tensor = torch.Tensor
MOVES = 3  # runs on moved inputs


def check_torch(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], order: int, seed: int,
    per_op: bool = False,
) -> Report:  # fmt: skip
    """See `gradof.testing.check`."""
    compiled = fn if isinstance(fn, Differentiated) else Differentiated(fn)
    eager = compiled.fn
    args, kwargs = own_leaves(eager, args, kwargs)
    bound = compiled.bind(args, kwargs)
    away = [t.device for t in bound.inputs if not t.is_cpu]
    if away:
        raise DeviceError(
            f"check compares on the CPU, and a tensor is on {away[0]}",
            hint="check the function with .cpu() tensors; f and df are the same graphs there",
        )
    inputs = sample_inputs(bound, args, kwargs)
    graph = bound.entry.traced.graph
    report = Report(getattr(eager, "__qualname__", type(eager).__name__), nodes=len(graph.block))
    before = compiled.cache_info()
    ours = _derivatives(compiled, inputs, order, seed)
    info = compiled.cache_info()
    if info.forward_runs <= before.forward_runs or info.backward_runs <= before.backward_runs:
        raise GradientMismatchError("our own f and df did not run: torch was compared with itself")
    theirs = reference_results(eager, inputs, order, seed)
    exact = None
    if any(has_trait(n.kind, "random") for n in graph.walk()):
        report.notes.append("random numbers: compared with eager under one seed, not with float64")
    else:
        with in_float64(inputs):
            exact = reference_results(eager, inputs, order, seed)
            finite_differences(report, eager, inputs, (ours, theirs, exact), seed)
    moved = functools.partial(moved_inputs, eager, inputs, order, seed)
    compare_results(report, inputs.wanted_names, ours, theirs, exact, moved)
    if per_op or not report.ok:
        _localise(report, bound, eager, inputs, seed, keep=per_op)
    return report


def compare_results(
    report: Report, names: list[str], ours: Run, theirs: Run, exact: Run | None,
    moved: Callable[[], list[Run]],
) -> None:  # fmt: skip
    """Add a row to the report for each result, gradient and second gradient."""
    if len(ours.results) != len(theirs.results):
        raise GradientMismatchError(
            f"{report.name} returns {len(ours.results)} tensors, eager {len(theirs.results)}"
        )
    for i, (mine, other) in enumerate(zip(ours.results, theirs.results, strict=True)):
        if mine.dtype != other.dtype or mine.requires_grad != other.requires_grad:
            report.rows.append(Row(f"output {i}: dtype, requires_grad", "eager", inf, None, 0, 0))
        elif not is_inexact(mine):
            report.rows.append(equal(f"output {i}", mine.numpy(), other.numpy()))
    groups = [("output", ours.floats, theirs.floats, None if exact is None else exact.floats)]
    for k, title in enumerate(("gradient of", "second gradient of")[: len(ours.gradients)]):
        reference = None if exact is None else exact.gradients[k]
        groups.append((title, ours.gradients[k], theirs.gradients[k], reference))  # type: ignore[arg-type]  # gradients may be None
    for k, (title, mines, others, references) in enumerate(groups):
        labels = names if title != "output" else [str(i) for i in range(len(mines))]
        compare = functools.partial(
            rows, [f"{title} {n}" for n in labels], _arrays(mines), _arrays(others),
            None if references is None else _arrays(references),
            [_numpy_dtype(t) for t in others],
        )  # fmt: skip
        found = compare()
        if k and exact is not None and not all(row.ok for row in found):
            again = [_arrays(run.gradients[k - 1]) for run in moved()]
            size = max(map(largest, _arrays(exact.floats)))
            found = compare([noise(g, [run[i] for run in again], size, _numpy_dtype(others[i]))
                             for i, g in enumerate(_arrays(others))])  # fmt: skip
        report.rows += found


def moved_inputs(eager: Callable[..., Any], inputs: Inputs, order: int, seed: int) -> list[Run]:
    """Eager's derivatives on inputs that are moved by an ulp; see Note [Closeness]."""
    runs, saved = [], inputs.saved
    generator = torch.Generator().manual_seed(seed + 3)
    try:
        for _ in range(MOVES):
            inputs.saved = [
                s + s * torch.finfo(s.dtype).eps * random_like(s, generator).sgn()
                if is_inexact(s) else s for s in saved
            ]  # fmt: skip
            inputs.restore()
            runs.append(reference_results(eager, inputs, order, seed))
    finally:
        inputs.saved = saved
        inputs.restore()
    return runs


def _localise(
    report: Report, bound: Bound, eager: Callable[..., Any], inputs: Inputs, seed: int, keep: bool
) -> None:
    """Every op by itself; if none is wrong, the first line where values part."""
    f = unrolled(bound.entry.plan.gradient(gradient_flags(bound)).gradient.f)
    arrays = [to_numpy(t) for t in bound.inputs]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        values = values_of(f, arrays, "torch")
        ops = examine_ops(f, values, seed)

    def run_eager() -> None:
        with torch.random.fork_rng(devices=[]), calling_plain():
            torch.manual_seed(seed)
            eager(*inputs.args, **inputs.kwargs)

    report.culprits = [culprit for row in ops for culprit in row.culprits]
    if not report.ok and not report.culprits:
        graph = unrolled(bound.entry.traced.graph)  # composites are whole there, as eager has them
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            values = values_of(graph, arrays, "torch")
        found = first_diverging_line(run_eager, graph, values)
        inputs.restore()
        if found is None:  # the rule of a composite may be wrong
            ops = examine_ops(graph, values, seed)
            report.culprits = [culprit for row in ops for culprit in row.culprits]
        else:
            report.culprits = [found]
    if keep or not report.ok:
        report.ops = ops


def own_leaves(
    fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The caller's arguments copied, so that theirs stay as they are."""
    leaves, tree, _ = flatten_call(fn, args, kwargs)
    copies = [
        x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x
        for x in leaves
    ]
    result: tuple[tuple[Any, ...], dict[str, Any]] = tree.unflatten(copies)
    return result


def sample_inputs(bound: Bound, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Inputs:
    """The leaves that are tensors, as the trace takes them, with the names for the report."""
    traced = bound.entry.traced
    n = len(traced.arg_leaves)
    leaves, free = list(bound.inputs[:n]), list(bound.inputs[n:])
    if not any(t.requires_grad for t in (*leaves, *free)):
        for leaf in leaves:
            leaf.requires_grad_(is_inexact(leaf))
    if not any(t.requires_grad for t in (*leaves, *free)):
        raise LeafTypeError(
            "no argument can be differentiated", hint="pass a floating-point tensor"
        )
    saved = [t.detach().clone() for t in (*leaves, *free)]
    return Inputs(args, kwargs, leaves, free, list(traced.input_names), saved)


def reference_results(fn: Callable[..., Any], inputs: Inputs, order: int, seed: int) -> Run:
    """Eager, with compiled functions inside called plain, and attention that has two derivatives.

    torch's fused attention is refused a second derivative by torch itself.
    """
    attention: Any = nullcontext()
    if order > 1:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        attention = sdpa_kernel(SDPBackend.MATH)
    with calling_plain(), attention:
        return _derivatives(fn, inputs, order, seed)


def _derivatives(fn: Callable[..., Any], inputs: Inputs, order: int, seed: int) -> Run:
    """Results, gradients for random cotangents, and second gradients; inputs are put back.

    A second gradient of None is zero: whether an input is seen to have no part in a gradient is
    a matter of how the gradient is written.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        result = fn(*inputs.args, **inputs.kwargs)
    outputs = [t for t in flatten(result)[0] if isinstance(t, Tensor)]
    _assert_runs(outputs, own=isinstance(fn, Differentiated))
    run = Run(outputs, [])
    generator = torch.Generator().manual_seed(seed + 1)
    weights = [random_like(t, generator) for t in run.floats]
    chosen = [i for i, t in enumerate(run.floats) if t.requires_grad]
    if not chosen:
        raise GradientMismatchError("no output depends on an input: there is nothing to compare")
    wanted = inputs.wanted
    grads = torch.autograd.grad(
        [run.floats[i] for i in chosen], wanted, [weights[i] for i in chosen],
        create_graph=order > 1, allow_unused=True,
    )  # fmt: skip
    run.gradients.append([None if g is None else in_parts(g) for g in grads])
    if order > 1:
        again = [(g, random_like(t, generator)) for g, t in zip(grads, wanted, strict=True)]
        live = [(g, w) for g, w in again if g is not None and g.requires_grad]
        second: Sequence[Tensor | None] = [None] * len(wanted)
        if live:
            first, seeds = zip(*live, strict=True)
            second = torch.autograd.grad(first, wanted, seeds, allow_unused=True)
        run.gradients.append([
            in_parts(torch.zeros_like(t) if g is None else g)
            for g, t in zip(second, wanted, strict=True)
        ])  # fmt: skip
    run.results = [t.detach().clone().requires_grad_(t.requires_grad) for t in outputs]
    inputs.restore()
    return run


def _assert_runs(outputs: Sequence[Tensor], own: bool) -> None:
    """Behind our outputs stands our autograd node, and behind eager's none of ours."""
    for i, output in enumerate(outputs):
        if output.grad_fn is None:
            continue
        compiled = any("_Compiled" in name for name in _nodes_behind(output))
        if own and not compiled:
            raise GradientMismatchError(f"output {i} was not computed by our own f")
        if not own and compiled:
            raise GradientMismatchError(
                f"output {i} of the reference was computed by our own f: we would be compared "
                "with ourselves", hint="pass tensors without history, and the plain function",
            )  # fmt: skip


def _nodes_behind(tensor: Tensor) -> Iterator[str]:
    seen: set[Any] = set()
    queue: list[Any] = [tensor.grad_fn]
    while queue:
        node = queue.pop()
        if node is not None and node not in seen:
            seen.add(node)
            yield node.name()
            queue += [child for child, _ in node.next_functions]


def _widened(tensor: Tensor) -> Tensor:
    wide = torch.complex128 if tensor.is_complex() else torch.float64
    return tensor.to(wide) if is_inexact(tensor) else tensor


@contextmanager
def in_float64(inputs: Inputs) -> Iterator[None]:
    """All floating-point inputs, free tensors included, in float64 for a while."""
    everything = [*inputs.leaves, *inputs.free]
    originals = [t.data for t in everything]
    saved = inputs.saved
    inputs.saved = [_widened(s) for s in saved]
    default = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        for tensor in everything:
            if is_inexact(tensor):
                tensor.data = _widened(tensor.data)
        yield
    finally:
        torch.set_default_dtype(default)
        inputs.saved = saved
        for tensor, original in zip(everything, originals, strict=True):
            tensor.data = original


def _arrays(tensors: Sequence[Tensor | None]) -> list[Any]:
    # force: eager may answer with a tensor of zeros it has not written to memory
    return [None if t is None else t.detach().double().numpy(force=True) for t in tensors]


def _numpy_dtype(tensor: Tensor | None) -> Any:
    return "float32" if tensor is None else str(tensor.dtype).removeprefix("torch.")
