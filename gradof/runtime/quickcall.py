"""A whole call as one generated function: check, run, result. Here of a numpy function:

    def call(args, kwargs):
        inputs = check(args, kwargs)
        if inputs is None: return MISS
        cache.hits += 1
        counts.backward += 1
        with errstate(all="ignore"): r = run(*inputs)
        return (r[0][()], (r[1], r[2]))

For calls whose generated check (`fastcall`) serves, that change no argument and return no view of
one. Everything else takes the general path.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from gradof.errors import CallError, InputError
from gradof.ir.types import TensorType
from gradof.runtime.cache import Bound, Cache
from gradof.runtime.dynamo import left_alone
from gradof.runtime.fastcall import Fast, fast_check
from gradof.runtime.lengths import MISS
from gradof.runtime.plan import GraphPlan
from gradof.runtime.results import shared_view
from gradof.tracer.core.pytree import TreeDef
from gradof.tracer.core.result import ConstantOut, TensorOut

MAX_QUICK = 4  # generated calls per function; each that fails costs its check
Quick = Callable[[tuple[Any, ...], dict[str, Any]], Any]


def quick_call(
    cache: Cache, bound: Bound, plan: GraphPlan, make: Callable[..., str],
    gradients: Sequence[TreeDef] = (), fast: Fast | None = None,
    chosen: tuple[Callable[..., Any], Sequence[str], int] | None = None,
) -> Quick | None:  # fmt: skip
    """The generated call of a plan, or None where there is none; see the module docstring.

    Results of the plan are the function's, then one per leaf of the trees in `gradients`. `make`
    puts the code of the value, or of (value, gradients...), together. `chosen` gives what is run,
    or None, for numbers whose codes come with it; it runs on as many inputs, for the plan itself.
    """
    fast = fast or next((f for f in cache.fast if f.entry is bound.entry), None)
    traced = bound.entry.traced
    if fast is None or traced.writebacks or traced.writes:
        return None
    names: dict[str, Any] = {"check": fast.check, "cache": cache, "MISS": MISS}
    choice = ""
    if chosen is not None:
        choice, run = _chosen_run(plan, names, *chosen)
    else:
        run = _numpy_run(plan, names) if traced.library == "numpy" else _torch_run(plan, names)
    leaves: list[str] = []
    made: dict[TensorOut, str] = {}
    for result, times in Counter(out for out in traced.outputs if type(out) is TensorOut).items():
        made[result] = _made(plan, result, names)
        if times > 1:  # one object in several places, as in eager
            run += f"    v{result.index} = {made[result]}\n"
            made[result] = f"v{result.index}"
    for out in traced.outputs:
        if isinstance(out, TensorOut) and out.view is None and not out.of_leaf:
            leaves.append(made[out])
        elif type(out) is ConstantOut:
            names[f"k{len(leaves)}"] = out.value
            leaves.append(f"k{len(leaves)}")
        elif isinstance(out, ConstantOut):
            names[f"make{len(leaves)}"] = out.make
            leaves.append(f"make{len(leaves)}()")
        else:
            return None
    at = len(traced.graph.outputs)
    grads = [_result(plan, at + i) for i in range(sum(t.num_leaves for t in gradients))]
    codes = [_tree(traced.out_tree, iter(leaves), names)]
    rest = iter(grads)
    codes += [_tree(tree, rest, names) for tree in gradients]
    source = (
        "def call(args, kwargs):\n    inputs = check(args, kwargs)\n"
        f"    if inputs is None: return MISS\n{choice}    cache.hits += 1\n{run}"
        f"    return {make(*codes)}\n"
    )
    exec(compile(source, "<gradof call>", "exec"), names)
    quick: Quick = names["call"]
    return quick


def _made(plan: GraphPlan, out: TensorOut, names: dict[str, Any]) -> str:
    """The expression of a result that is no view of an argument."""
    if out.shared is None:
        return _result(plan, out.index, out.requires_grad, out.is_array)
    names[f"shared{out.index}"] = shared_view(plan, out)
    return f"shared{out.index}(r)"


def _chosen_run(
    plan: GraphPlan, names: dict[str, Any], choose: Callable[..., Any], numbers: Sequence[str],
    arity: int,
) -> tuple[str, str]:
    names.update(counts=plan.counts, choose=choose)
    choice = f"    run = choose({', '.join(numbers)})\n    if run is None: return MISS\n"
    return choice, f"    counts.{_role(plan)} += 1\n    r = run(*inputs[:{arity}])\n"


def _numpy_run(plan: GraphPlan, names: dict[str, Any]) -> str:
    names.update(counts=plan.counts, run=plan.executable.function, errstate=np.errstate)
    run = "r = run(*inputs)"
    if not plan.executable.is_silent:
        run = f"with errstate(all='ignore'): {run}"
    return f"    counts.{_role(plan)} += 1\n    {run}\n"


def _role(plan: GraphPlan) -> str:
    return "forward" if plan.role == "forward" else "backward"


def _torch_run(plan: GraphPlan, names: dict[str, Any]) -> str:
    from gradof.runtime.torch_bridge import call

    names.update(plan=plan, run=call)
    return "    r = run(plan, inputs)\n"


def _result(
    plan: GraphPlan, i: int, requires_grad: bool = True, is_array: bool = False
) -> str:
    type_ = plan.graph.outputs[i].type
    if plan.library == "torch":
        return f"r[{i}]" if requires_grad else f"r[{i}].detach()"
    scalar = isinstance(type_, TensorType) and type_.shape == () and not is_array
    return f"r[{i}][()]" if scalar else f"r[{i}]"


def _tree(tree: TreeDef, leaves: Iterator[str], names: dict[str, Any]) -> str:
    """The code that builds a nested result."""
    if tree.kind == "leaf":
        return next(leaves)
    if tree.has_again or tree.kind not in ("tuple", "list", "dict") or not _is_plain(tree):
        name = f"tree{len(names)}"
        names[name] = tree.unflatten
        return f"{name}([{', '.join(next(leaves) for _ in range(tree.num_leaves))}])"
    parts = [_tree(child, leaves, names) for child in tree.children]
    if tree.kind == "tuple":
        return "(" + "".join(f"{part}, " for part in parts) + ")"
    if tree.kind == "list":
        return f"[{', '.join(parts)}]"
    pairs = (f"{k!r}: {part}" for k, part in zip(tree.keys, parts, strict=True))
    return "{" + ", ".join(pairs) + "}"


def _is_plain(tree: TreeDef) -> bool:
    """Whether a container has a literal of its own."""
    return tree.kind != "dict" or (
        tree.type is dict and all(type(k) in (str, int) for k in tree.keys)
    )


@left_alone
class Prepared:
    """A call whose arguments are taken as checked; see `prepare` of compiled functions.

    Arrays must have the dtypes, shapes and devices of those it was prepared with, torch's modes
    and the Python state the function reads must be as they were, and Python values too: nothing of
    that is looked at. Arrays in closures and modules are read anew.
    """

    def __init__(self, quick: Quick) -> None:
        self._quick = quick

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The result; CallError for another number of arguments."""
        result = self._quick(args, kwargs)
        if result is MISS:
            raise CallError(
                f"a prepared call got {len(args)} positional arguments and {sorted(kwargs)}",
                hint="call it as it was prepared",
            )
        return result


def prepared(
    cache: Cache, bound: Bound, plan: GraphPlan, fn: Any, make: Callable[..., str],
    gradients: Sequence[TreeDef] = (),
) -> Prepared:  # fmt: skip
    """A `Prepared` call of a plan; InputError where each call needs its check."""
    fast = fast_check(bound.entry, bound.call, fn, trusting=True)
    quick = None if fast is None else quick_call(cache, bound, plan, make, gradients, fast)
    if quick is None:
        raise InputError(
            f"{getattr(fn, '__qualname__', fn)} cannot be prepared: values or elements decide what "
            "runs, arguments are changed or handed back, or it has static arguments",
            hint="call it as it is",
        )
    return Prepared(quick)
