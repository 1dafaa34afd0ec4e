"""The transforms of a function that cannot be traced, by torch's own autograd.

>>> gradient_eagerly(lambda x: (x ** 2).sum() * len(x.tolist()), (0,), (torch.ones(2),), {}, False)
(tensor(4.), [tensor([4., 4.])])

The function runs once. All are made of its pullback (`pulled`); within a transform of torch.func,
where autograd cannot be asked, the pullback is torch.func.vjp's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from gradof.errors import CotangentError, DtypeError, LeafTypeError, OutputError
from gradof.runtime.checks import basis, match_seeds, stack
from gradof.tracer.core.pytree import TreeDef, flatten
from gradof.tracer.torch.functional import within_transform

Tensor = torch.Tensor
Tensors = list[Tensor]
Pullback = Callable[[Sequence[Tensor | None]], Tensors]  # None: a cotangent of zeros


class Run:
    """`fn` as a function of some tensors among its arguments, to the tensors of its result.

    With `positions` those are all leaves of these arguments, and each must be a tensor of floats,
    or LeafTypeError or DtypeError is raised; else all floating-point tensors.
    """

    def __init__(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
        positions: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        self._fn, self._args, self._kwargs = fn, args, kwargs
        self.positions = range(len(args)) if positions is None else positions
        self._flat: list[tuple[list[Any], TreeDef]] = [flatten(args[n]) for n in self.positions]
        if positions is not None:
            for n, (leaves, _) in zip(positions, self._flat, strict=True):
                _check_leaves(n, leaves)
        self.inputs: Tensors = [x for leaves, _ in self._flat for x in leaves if is_inexact(x)]
        self._result: list[Any] = []
        self.tree: TreeDef | None = None

    def __call__(self, *tensors: Tensor) -> Tensors:
        """Run it; `tensors` stand for `inputs`."""
        given, at = list(self._args), iter(tensors)
        for n, (leaves, tree) in zip(self.positions, self._flat, strict=True):
            if any(map(is_inexact, leaves)):  # others stay the objects they are
                given[n] = tree.unflatten([next(at) if is_inexact(x) else x for x in leaves])
        self._result, self.tree = flatten(self._fn(*given, **self._kwargs))
        return [x for x in self._result if isinstance(x, Tensor)]

    def value(self, outputs: Sequence[Tensor]) -> Any:
        """The result with these for its tensors."""
        assert self.tree is not None
        at = iter(outputs)
        return self.tree.unflatten(
            [next(at) if isinstance(x, Tensor) else x for x in self._result]
        )

    def leaves(self, of_tensors: Sequence[Any]) -> list[Any]:
        """One entry per leaf of the result, None where it is no floating-point tensor."""
        at = iter(of_tensors)
        found = [next(at) if isinstance(x, Tensor) else None for x in self._result]
        return [g if is_inexact(x) else None for g, x in zip(found, self._result, strict=True)]

    def structured(self, per_input: Sequence[Any]) -> list[Any]:
        """One entry per position, in the structure of the argument; None where there is none."""
        at = iter(per_input)
        return [
            tree.unflatten([next(at) if is_inexact(x) else None for x in leaves])
            for leaves, tree in self._flat
        ]

    def scalar(self, outputs: Sequence[Tensor], has_aux: bool = False) -> int:
        """Which output is the one to differentiate: a real number; OutputError otherwise."""
        first = self.tree
        if has_aux and first is not None:
            pair = first.kind == "tuple" and len(first.children) == 2
            first = first.children[0] if pair else None
        if first is None or first.kind != "leaf" or not isinstance(self._result[0], Tensor):
            raise OutputError("the function does not return one scalar", hint="sum or average it")
        if outputs[0].numel() != 1 or not outputs[0].is_floating_point():
            raise OutputError(
                f"the function returns a {outputs[0].dtype} of shape {list(outputs[0].shape)}, not "
                "a floating-point scalar", hint="sum or average it, or use vjp or jacobian",
            )  # fmt: skip
        return 0

    def check_floats(self) -> None:
        """Raise OutputError unless all of the result are tensors of real numbers."""
        if not all(isinstance(x, Tensor) and x.is_floating_point() for x in self._result):
            raise OutputError(
                "jacobian needs a function that returns floating-point arrays",
                hint="return only floating-point arrays computed from the arguments",
            )


def is_inexact(leaf: Any) -> bool:
    """Whether a leaf is a floating-point or complex tensor."""
    return isinstance(leaf, Tensor) and (leaf.is_floating_point() or leaf.is_complex())


def _check_leaves(n: int, leaves: Sequence[Any]) -> None:
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise LeafTypeError(
                f"args[{n}] is a {type(leaf).__name__}, which has no gradient",
                hint="choose argnums whose leaves are floating-point arrays",
            )
        if not is_inexact(leaf):
            raise DtypeError(
                f"args[{n}] is of {leaf.dtype}: integers and booleans have no gradient",
                hint="convert it to a floating-point dtype",
            )


# --- the pullback ---------------------------------------------------------------------------------


class Pulled(NamedTuple):
    """The tensors that a function gave, and its pullback: one gradient for each input.

    `recorded`: whether outputs and gradients have a history, as something that requires grad leads
    to them.
    """

    outputs: Tensors
    pullback: Pullback
    recorded: bool


def pulled(fn: Callable[..., Tensors], inputs: Sequence[Tensor], recording: bool) -> Pulled:
    """Run `fn(*inputs)`; without `recording` nothing has a history."""
    if within_transform():
        func: Any = torch.func
        outputs, back = func.vjp(lambda *xs: tuple(fn(*xs)), *inputs)
        return Pulled(list(outputs), lambda seeds: [*back(tuple(_seeds(seeds, outputs)))], True)
    wrt = [x if x.requires_grad else x.detach().requires_grad_() for x in inputs]
    times = Counter(map(id, wrt))
    with torch.enable_grad():
        # each place is a tensor of its own
        wrt = [x.view_as(x) if times[id(x)] > 1 else x for x in wrt]
        results = fn(*wrt)
    live = [i for i, y in enumerate(results) if y.requires_grad]
    recorded = recording and (
        any(x.requires_grad for x in inputs) or _reads_others([results[i] for i in live], wrt)
    )

    def pullback(seeds: Sequence[Tensor | None]) -> Tensors:
        if not live:
            return [torch.zeros_like(x) for x in wrt]
        filled = _seeds(seeds, results)
        create = recorded or any(seed.requires_grad for seed in filled)
        return list(torch.autograd.grad(
            [results[i] for i in live], wrt, [filled[i] for i in live], retain_graph=True,
            create_graph=create and torch.is_grad_enabled(), allow_unused=True,
            materialize_grads=True,
        ))  # fmt: skip

    return Pulled(results if recorded else [y.detach() for y in results], pullback, recorded)


def _seeds(seeds: Sequence[Tensor | None], outputs: Sequence[Tensor]) -> Tensors:
    pairs = zip(seeds, outputs, strict=True)
    return [torch.zeros_like(y) if s is None else s for s, y in pairs]


def _reads_others(outputs: Sequence[Tensor], wrt: Sequence[Tensor]) -> bool:
    """Whether a leaf other than `wrt` leads to the outputs: a parameter that the function reads."""
    own = {id(x) for x in wrt}
    stack, seen = [y.grad_fn for y in outputs], set[Any]()
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        before = node.next_functions
        if not before and id(getattr(node, "variable", None)) not in own:
            return True
        stack += [found for found, _ in before]
    return False


def _one(outputs: Sequence[Tensor], place: int) -> list[Tensor | None]:
    return [torch.ones_like(y) if i == place else None for i, y in enumerate(outputs)]


# --- the transforms -------------------------------------------------------------------------------


def gradient_eagerly(
    fn: Callable[..., Any], positions: Sequence[int], args: tuple[Any, ...],
    kwargs: dict[str, Any], has_aux: bool,
) -> tuple[Any, list[Any]]:  # fmt: skip
    """`fn(*args, **kwargs)`, and one gradient for each of the arguments at `positions`.

    Raises LeafTypeError or DtypeError for an argument that is no tensor of floats, OutputError for
    a result that is no scalar (with `has_aux`, the first of two).
    """
    run = Run(fn, args, kwargs, positions)
    found = pulled(run, run.inputs, torch.is_grad_enabled())
    grads = found.pullback(_one(found.outputs, run.scalar(found.outputs, has_aux)))
    return run.value(found.outputs), run.structured(grads)


def vjp_eagerly(
    fn: Callable[..., Any], args: tuple[Any, ...]
) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """As `gradof.vjp`."""
    run = Run(fn, args, {})
    found = pulled(run, run.inputs, torch.is_grad_enabled())
    value = run.value(found.outputs)

    def pullback(cotangents: Any) -> tuple[Any, ...]:
        leaves, tree = flatten(cotangents)
        if tree != run.tree:
            raise CotangentError(
                "the cotangents have another structure than the result",
                hint="pass cotangents in the structure that the function returns",
            )
        pairs = zip(leaves, flatten(value)[0], strict=True)
        seeds = [_seed(seed, y) for seed, y in pairs if isinstance(y, Tensor)]
        return tuple(run.structured(found.pullback(seeds)))

    return value, pullback


def _seed(seed: Any, result: Tensor) -> Tensor | None:
    if not is_inexact(result):
        return None
    wanted = result.shape, result.dtype, result.device
    if not isinstance(seed, Tensor) or (seed.shape, seed.dtype, seed.device) != wanted:
        shown = f"{seed.dtype} {list(seed.shape)}" if isinstance(seed, Tensor) else repr(seed)
        raise CotangentError(
            f"a cotangent is {shown}, the result {result.dtype} {list(result.shape)} on "
            f"{result.device}", hint="a cotangent is like its result: torch.ones_like(out)",
        )  # fmt: skip
    return seed


def jvp_eagerly(
    fn: Callable[..., Any], primals: tuple[Any, ...], tangents: tuple[Any, ...]
) -> tuple[Any, Any]:
    """As `gradof.jvp`: the pullback of the pullback."""
    run = Run(fn, primals, {})
    given = [leaf for leaf in flatten(tangents)[0] if leaf is not None]
    seeds = match_seeds(given, run.inputs, "tangents")
    found = pulled(run, run.inputs, torch.is_grad_enabled())
    live = [is_inexact(y) for y in found.outputs]

    def back(*cotangents: Tensor) -> Tensors:
        at = iter(cotangents)
        return found.pullback([next(at) if moves else None for moves in live])

    zeros = [torch.zeros_like(y) for y, moves in zip(found.outputs, live, strict=True) if moves]
    moved = iter(pulled(back, [z.detach() for z in zeros], found.recorded).pullback(seeds))
    assert run.tree is not None
    return run.value(found.outputs), run.tree.unflatten(
        run.leaves([next(moved) if moves else None for moves in live])
    )


def hvp_eagerly(
    fn: Callable[..., Any], primals: tuple[Any, ...], tangents: Sequence[Any]
) -> tuple[Any, ...]:
    """As `gradof.hvp`."""
    run = Run(fn, primals, {}, range(len(primals)))
    seeds = match_seeds(flatten(tuple(tangents))[0], run.inputs, "tangents")
    second = pulled(_gradient_of(run), run.inputs, torch.is_grad_enabled()).pullback
    return tuple(run.structured(second(seeds)))


def jacobian_eagerly(
    fn: Callable[..., Any], positions: Sequence[int], args: tuple[Any, ...],
    kwargs: dict[str, Any], of_gradient: bool, shaped: Callable[[list[Any]], Any],
) -> Any:  # fmt: skip
    """As `gradof.jacobian` and `gradof.hessian`; `shaped` makes one result of one per position."""
    run = Run(fn, args, kwargs, positions)
    inner = _gradient_of(run) if of_gradient else run
    found = pulled(inner, run.inputs, torch.is_grad_enabled())
    if not of_gradient:
        run.check_floats()
    blocks = [shaped(run.structured(_rows(run, found, k))) for k in range(len(found.outputs))]
    if of_gradient:
        return shaped(run.structured(blocks))
    assert run.tree is not None
    return run.tree.unflatten(blocks)


def _gradient_of(run: Run) -> Callable[..., Tensors]:
    """The gradient of a scalar function, as a function of the same tensors."""

    def gradient(*tensors: Tensor) -> Tensors:
        inner = pulled(run, tensors, recording=True)
        return inner.pullback(_one(inner.outputs, run.scalar(inner.outputs)))

    return gradient


def _rows(run: Run, found: Pulled, k: int) -> list[Tensor]:
    """d output k / d each input, of shapes output.shape + input.shape."""
    output = found.outputs[k]
    columns: list[Tensors] = [[] for _ in run.inputs]
    for j in range(output.numel()):
        seeds = [basis(y, j) if i == k else None for i, y in enumerate(found.outputs)]
        for column, grad in zip(columns, found.pullback(seeds), strict=True):
            column.append(grad)
    shape = tuple(output.shape)
    return [stack(c, x, shape) for c, x in zip(columns, run.inputs, strict=True)]
