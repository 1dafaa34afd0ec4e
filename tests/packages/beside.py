"""A pytest plugin: what a package's own tests call is compared with eager, each kind of call once.

    SUITE_OF=zuko SUITE_PATH=installed SUITE_ROWS=rows.jsonl \
        python -P -m pytest -p tests.packages.beside tests

The tests themselves run as they are. Before a module or function of the package does, copies of it
are called three times, eagerly and differentiated, with copies of the arguments; values, gradients,
second derivatives and state are compared as in `tests.packages.compare`. One row each is written. A
kind of call is what is called and the types and shapes of its arguments. `tests.packages.suites`
makes such runs.
"""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import gradof
from gradof.errors import EagerWarning
from tests.packages.compare import differences
from tests.packages.run import Run, finish, seed, settle
from tests.packages.watching import OF, Watch, forget_our_tests, kind, mapped

CALLS = 3  # the last to second order
__name__ = "gradof.beside"  # what calls the package's code is none of the user's

_torch: Any = torch


def _leaves(tree: Any, path: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(tree, torch.Tensor):
        yield path, tree
    elif isinstance(tree, (list, tuple)):
        for i, part in enumerate(tree):
            yield from _leaves(part, f"{path}.{i}")
    elif isinstance(tree, dict):
        for key, part in tree.items():
            yield from _leaves(part, f"{path}.{key}")


def _copied(tree: Any, change: Callable[[Any], Any]) -> Any:
    return mapped(tree, lambda leaf: _tensor(leaf, change))


def _tensor(leaf: Any, change: Callable[[Any], Any]) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    if type(leaf) not in (torch.Tensor, torch.nn.Parameter) or leaf.layout is not torch.strided:
        raise TypeError(f"a {type(leaf).__name__}, {leaf.layout}")
    made = leaf.detach().clone()
    if made.is_floating_point() or made.is_complex():
        made = change(made).requires_grad_()
    return made


def _same(tensor: Any) -> Any:
    return tensor


def _moved(tensor: Any) -> Any:
    return tensor * (1 + 2.0**-23)


def _wide(tensor: Any) -> Any:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def _once(
    function: Any, module: Any, given: Any, number: int, change: Callable[[Any], Any] = _same
) -> Run:
    args, kwargs = _copied(given, change)
    tensors = dict(_leaves((args, kwargs)))
    before = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    run = Run()
    seed(number)
    try:
        leaves = {f"input {k}": v for k, v in tensors.items() if v.requires_grad}
        finish(run, function(*args, **kwargs), module, leaves, number, number == CALLS - 1)
    except TimeoutError:
        raise
    except Exception as error:
        run.error = error
    settle(run, module, {k: (tensors[k], then) for k, then in before.items()})
    return run


def _again(thing: Any, given: Any, last: int) -> Iterator[Run]:
    """Eager's run of the last of these calls, on inputs moved by an ulp, and in float64."""
    for change in (_moved, _wide):
        module = copy.deepcopy(thing)
        if change is _wide and isinstance(module, torch.nn.Module):
            module.double()
        for number in range(last + 1):
            run = _once(module, module, given, number, change)
        if run.error is None:
            yield run


def _compared(thing: Any, given: Any) -> dict[str, Any]:
    try:
        _copied(given, _same)
        first, theirs, ours = (copy.deepcopy(thing) for _ in range(3))
    except Exception as error:
        return {"status": "not copied", "reason": repr(error)[:200]}
    compiled, wrong, errors, gradients = gradof.differentiate(ours), list[str](), 0, 0
    for number in range(CALLS):
        expected = _once(theirs, theirs, given, number)
        found = _once(compiled, ours, given, number)
        errors += expected.error is not None
        gradients += sum(g is not None for g in expected.gradients.values())
        if number == CALLS - 1 and expected.error is not None and found.error is None:
            continue  # eager has no second derivative
        wrong = list(differences(expected, found))
        if any(" is off by " in text for text in wrong):
            wrong = list(differences(expected, found, list(_again(first, given, number))))
        if wrong:
            wrong = [f"call {number}: {text}" for text in wrong[:3]]
            break
    info = compiled.cache_info()
    status = (
        "wrong" if wrong else "noeager" if errors == CALLS else "fallback" if info.eager_runs
        else "equal" if gradients else "values"
    )  # fmt: skip
    return {"status": status, "reason": "; ".join(wrong)[:900], "traces": info.misses,
            "eager_runs": info.eager_runs, "backward_runs": info.backward_runs}  # fmt: skip


def _told(thing: Any, given: Any) -> dict[str, Any]:
    """A row of a call, with what the user would be told of it."""
    state = torch.get_rng_state()
    told = warnings.catch_warnings(record=True)
    try:
        with torch.enable_grad(), _torch.autograd.set_detect_anomaly(False), told as caught:
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", EagerWarning)
            row = _compared(thing, given)
    finally:
        torch.set_rng_state(state)
    if row["status"] == "fallback" and caught:
        row["reason"] = " ".join(str(caught[0].message).split())[:400]
    return row


def _is_asked(args: Any, kwargs: Any) -> bool:
    if _torch.jit.is_tracing() or _torch.compiler.is_compiling():
        return False
    tensors = any(t.is_floating_point() for _, t in _leaves((args, kwargs)))
    return tensors and not torch._C._are_functorch_transforms_active()


def _kind_of(thing: Any, given: Any) -> Any:
    return kind(given), str(thing)[:1500] if isinstance(thing, torch.nn.Module) else ""


_watch = Watch(_is_asked, _told, _kind_of)


def _of_modules(call: Any) -> Any:
    """The `__call__` of a class of modules, watched where it is that of a module's own class."""

    def module_of(module: Any) -> Any:
        own = (
            type(module).__call__ is watched and type(module).__module__.partition(".")[0] in OF
            and not hasattr(type(module), "_gradof_original")
            and not isinstance(module, torch.jit.ScriptModule)
        )  # fmt: skip
        return module if own else None

    watched = _watch.of_calls(call, module_of)
    return watched


def _subclasses(cls: type) -> Iterator[type]:
    each: type
    for each in cls.__subclasses__():
        yield each
        yield from _subclasses(each)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """A package's tests may be called as ours."""
    forget_our_tests()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Watch calls of modules everywhere, and of functions where a test module has them."""
    for cls in {torch.nn.Module, *_subclasses(torch.nn.Module)}:
        owner: Any = cls
        if inspect.isfunction(call := vars(cls).get("__call__")):
            owner.__call__ = _of_modules(call)
    for module in {item.module for item in session.items if isinstance(item, pytest.Function)}:
        for name, value in list(vars(module).items()):
            setattr(module, name, _watch.watched(value))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Each test begins with the same random states, and ends in time."""
    seed(0)
    with _watch.test(item.nodeid):
        return (yield)
