"""Loading what the command line names: `file.py:function` or `module:function`, and its inputs.

>>> parse_array("x=f32[4,3]")
('x', TensorType f32[4,3])

Inputs come from `--arg name=f32[4,3]` (random normal, seeded), `--arg name=0.5` (a literal), or
from a function `example_inputs` (or `<function>_example_inputs`) beside the target, which returns
a tuple of arguments.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np

from gradof.errors import TargetError
from gradof.ir.attrs import to_numpy_dtype
from gradof.ir.types import DType, all_dtypes

_ARRAY = re.compile(r"^(?P<dtype>[a-z]+\d*)\[(?P<dims>[\d, ]*)\]$")
_DTYPES: dict[str, DType] = {d.name: d for d in all_dtypes()}
Library = Literal["numpy", "torch"]


def load_target(target: str) -> tuple[Callable[..., Any], ModuleType]:
    """The function (or module object) named by `target`, and the module it was found in.

    Raises TargetError if the file, module or name is missing, or is not callable.
    """
    place, colon, name = target.rpartition(":")
    if not colon or not place or not name:
        raise TargetError(
            f"cannot read the target {target!r}", hint="file.py:function or package.module:function"
        )
    module = _load_file(Path(place)) if place.endswith(".py") else _load_module(place)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            known = [k for k, v in vars(module).items() if callable(v) and not k.startswith("_")]
            raise TargetError(
                f"{place} has no {part!r}", hint="it has: " + ", ".join(sorted(known)[:20])
            )
        found = getattr(found, part)
    if not callable(found):
        raise TargetError(f"{target} is a {type(found).__name__}, not a function")
    return found, module


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise TargetError(f"no file {path}", hint="give the path from the current folder")
    name = path.stem
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(path.resolve()):
        return known
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # as `python file.py` does
    spec.loader.exec_module(module)
    return module


def _load_module(name: str) -> ModuleType:
    if "" not in sys.path:
        sys.path.insert(0, "")  # as `python -m` does
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise TargetError(f"cannot import {name}: {error}") from error


def inputs_for(
    fn: Callable[..., Any], module: ModuleType, specs: Sequence[str], library: Library | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments for `fn`: from `--arg` specs if there are any, else from `example_inputs`."""
    if not specs:
        return _example_inputs(fn, module), {}
    owner = library or _library_of(module)
    values = dict(_parse(spec, owner) for spec in specs)
    try:
        bound = inspect.signature(fn).bind(**values)
    except TypeError as error:
        raise TargetError(
            f"the arguments do not fit {getattr(fn, '__name__', fn)}: {error}",
            hint=f"its signature is {inspect.signature(fn)}",
        ) from error
    return bound.args, bound.kwargs


def _example_inputs(fn: Callable[..., Any], module: ModuleType) -> tuple[Any, ...]:
    own = f"{getattr(fn, '__name__', '')}_example_inputs"
    for name in (own, "example_inputs"):
        make = getattr(module, name, None)
        if make is not None:
            args = make()
            return args if isinstance(args, tuple) else (args,)
    raise TargetError(
        "no inputs for the target",
        hint="pass --arg x=f32[4,3] per argument, or define example_inputs() beside the function",
    )


def _library_of(module: ModuleType) -> Library:
    """torch if the target's module uses it, else numpy."""
    uses_torch = any(
        isinstance(v, ModuleType) and v.__name__.partition(".")[0] == "torch"
        for v in vars(module).values()
    )
    return "torch" if uses_torch else "numpy"


def _parse(spec: str, library: Library) -> tuple[str, Any]:
    name, equals, text = spec.partition("=")
    if not equals or not name.isidentifier():
        raise TargetError(f"cannot read --arg {spec!r}", hint="--arg x=f32[4,3] or --arg n=3")
    match = _ARRAY.match(text.strip())
    if match is None:
        try:
            return name, ast.literal_eval(text)
        except (ValueError, SyntaxError):
            raise TargetError(
                f"cannot read --arg {spec!r}", hint="a type such as f32[4,3], or a Python literal"
            ) from None
    if match["dtype"] not in _DTYPES:
        raise TargetError(f"--arg {spec!r}: unknown dtype", hint="known: " + ", ".join(_DTYPES))
    shape = tuple(int(d) for d in match["dims"].split(",") if d.strip())
    return name, _random(name, _DTYPES[match["dtype"]], shape, library)


def _random(name: str, dtype: DType, shape: tuple[int, ...], library: Library) -> Any:
    rng = np.random.default_rng([ord(c) for c in name])
    if dtype.name == "bf16" or dtype.is_complex:
        raise TargetError(f"--arg {name}: no random {dtype} arrays", hint="use f32 or f64")
    target = to_numpy_dtype(dtype)
    if dtype.is_float:
        array: Any = rng.standard_normal(shape).astype(target)
    else:
        array = rng.integers(0, 2, shape).astype(target)
    array = np.asarray(array)
    if library == "numpy":
        return array
    import torch

    return torch.from_numpy(array).requires_grad_(dtype.is_float)
