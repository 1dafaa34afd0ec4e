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
import functools
import inspect
import json
import os
import random
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import gradof
from gradof.errors import EagerWarning
from tests.packages.compare import differences
from tests.packages.run import Run, finish, seed, settle

CALLS, SECONDS = 3, 200  # the last to second order; for one test
_OF = frozenset(os.environ["SUITE_OF"].split(","))
_ROWS = os.environ["SUITE_ROWS"]
_HERE = __name__.partition(".")[0]
__name__ = "gradof.beside"  # what calls the package's code is none of the user's


class _Inside(threading.local):
    depth, test = 0, ""


_torch: Any = torch
_inside = _Inside()
_seen: set[int] = set()
_wrapped: dict[Any, Any] = {}


def _leaves(tree: Any, path: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(tree, torch.Tensor):
        yield path, tree
    elif isinstance(tree, (list, tuple)):
        for i, part in enumerate(tree):
            yield from _leaves(part, f"{path}.{i}")
    elif isinstance(tree, dict):
        for key, part in tree.items():
            yield from _leaves(part, f"{path}.{key}")


def _kind(tree: Any) -> Any:
    if isinstance(tree, torch.Tensor):
        return str(tree.dtype), tuple(tree.shape)
    if isinstance(tree, (list, tuple)):
        return tuple(map(_kind, tree))
    if isinstance(tree, dict):
        return tuple((str(key), _kind(part)) for key, part in tree.items())
    plain = isinstance(tree, (int, float, str, type(None)))
    return repr(tree)[:60] if plain else type(tree).__name__


def _copied(tree: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(tree, torch.Tensor):
        if type(tree) not in (torch.Tensor, torch.nn.Parameter) or tree.layout is not torch.strided:
            raise TypeError(f"a {type(tree).__name__}, {tree.layout}")
        made = tree.detach().clone()
        if made.is_floating_point() or made.is_complex():
            made = change(made).requires_grad_()
        return made
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(_copied(part, change) for part in tree))
    if type(tree) in (list, tuple):
        return type(tree)(_copied(part, change) for part in tree)
    if type(tree) is dict:
        return {key: _copied(part, change) for key, part in tree.items()}
    return tree


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


def _beside(name: str, thing: Any, args: Any, kwargs: Any) -> None:
    """Compare a call, if it is the first of its kind; random states stay as they were."""
    is_module = isinstance(thing, torch.nn.Module)
    kind = hash((name, _kind((args, kwargs)), str(thing)[:1500] if is_module else ""))
    if kind in _seen:
        return
    _seen.add(kind)
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()
    _inside.depth += 1
    try:
        told = warnings.catch_warnings(record=True)
        with torch.enable_grad(), _torch.autograd.set_detect_anomaly(False), told as caught:
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", EagerWarning)
            row = _compared(thing, (args, kwargs))
        if row["status"] == "fallback" and caught:
            row["reason"] = " ".join(str(caught[0].message).split())[:400]
    except TimeoutError:
        raise
    except Exception:
        row = {"status": "error", "reason": traceback.format_exc()[-600:]}
    finally:
        _inside.depth -= 1
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])
        random.setstate(states[2])
    with open(_ROWS, "a") as file:
        print(json.dumps({"name": name, "test": _inside.test, **row}), file=file)


def _is_asked(args: Any, kwargs: Any) -> bool:
    if _inside.depth or _torch.jit.is_tracing() or _torch.compiler.is_compiling():
        return False
    tensors = any(t.is_floating_point() for _, t in _leaves((args, kwargs)))
    return tensors and not torch._C._are_functorch_transforms_active()


def _watching(original: Any, thing_of: Callable[[Any], Any] | None, name: str = "") -> Any:
    """What calls `original`, and compares the call; of a method `thing_of` gives the object."""

    @functools.wraps(original)
    def watch(*args: Any, **kwargs: Any) -> Any:
        thing = original if thing_of is None else thing_of(args[0])
        given = args if thing_of is None else args[1:]
        own = thing_of is None or (
            type(thing).__call__ is watch and type(thing).__module__.partition(".")[0] in _OF
            and not hasattr(type(thing), "_gradof_original")
            and not isinstance(thing, torch.jit.ScriptModule)
        )  # fmt: skip
        if own and _is_asked(given, kwargs):
            what = name or f"{type(thing).__module__}:{type(thing).__name__}"
            _beside(what, thing, given, kwargs)
        _inside.depth += 1
        try:
            return original(*args, **kwargs)
        finally:
            _inside.depth -= 1

    return watch


def _is_wanted(value: Any) -> bool:
    return (
        inspect.isfunction(value) and str(value.__module__).partition(".")[0] in _OF
        and not value.__name__.startswith("_") and not hasattr(value, "__wrapped__")
        and "test" not in value.__module__ and not inspect.isgeneratorfunction(value)
    )  # fmt: skip


def _watched(value: Any) -> Any:
    if _is_wanted(value):
        if value not in _wrapped:
            _wrapped[value] = _watching(value, None, f"{value.__module__}:{value.__qualname__}")
        return _wrapped[value]
    if type(value) is ModuleType and value.__name__.partition(".")[0] in _OF:
        return _Proxy(value)
    return value


class _Proxy(ModuleType):
    """A module of the package, for its tests: its functions are watched."""

    def __init__(self, module: ModuleType) -> None:
        object.__setattr__(self, "_module", module)

    def __getattribute__(self, name: str) -> Any:
        return _watched(getattr(object.__getattribute__(self, "_module"), name))

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(object.__getattribute__(self, "_module"), name, value)


def _subclasses(cls: type) -> Iterator[type]:
    each: type
    for each in cls.__subclasses__():
        yield each
        yield from _subclasses(each)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Forget our own `tests`, which are imported by now: a package's may be called so, too.

    From then on the folders of SUITE_PATH are on the path of imports, and the one we are in.
    """
    for name in [m for m in sys.modules if m.partition(".")[0] == _HERE]:
        del sys.modules[name]
    sys.path[:0] = [*os.environ["SUITE_PATH"].split(os.pathsep), os.getcwd()]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Watch calls of modules everywhere, and of functions where a test module has them."""
    for cls in {torch.nn.Module, *_subclasses(torch.nn.Module)}:
        owner: Any = cls
        if inspect.isfunction(call := vars(cls).get("__call__")):
            owner.__call__ = _watching(call, lambda module: module)
    for module in {item.module for item in session.items if isinstance(item, pytest.Function)}:
        for name, value in list(vars(module).items()):
            setattr(module, name, _watched(value))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Each test begins with the same random states, and ends in time."""

    def late(*_: Any) -> None:
        raise TimeoutError(f"{item.nodeid} takes more than {SECONDS} s beside eager")

    seed(0)
    _inside.test = item.nodeid
    signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        return (yield)
    finally:
        signal.alarm(0)
