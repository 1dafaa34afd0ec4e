"""One architecture: built small, run eagerly, then with gradients that gradof derived.

`compare(name)` gives an `Outcome`, a flat record that is written as JSON. Values and gradients are
held against eager's by Note [Closeness]: the bound comes from a run of the same model in float64.
"""

from __future__ import annotations

import copy
import random
import time
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

import gradof
from gradof.testing.closeness import rows
from tests.models.heads import heads, labelled
from tests.models.inputs import again, candidates
from tests.models.shrink import SIZES, shrunk

CALLS = 5
LARGEST = 20_000_000  # parameters; a config that stays larger is no small model


@dataclass
class Outcome:
    """What came of one architecture.

    `status`: "equal", "wrong", "error" (ours), "fallback" (equal, but run eagerly), "nogradient"
    and "noeager" (no part of the list), "killed" (time or memory).
    """

    name: str
    status: str = "killed"
    model: str = ""
    reason: str = ""
    parameters: int = 0
    inputs: dict[str, Any] = field(default_factory=dict)
    traces: int = 0
    backward_runs: int = 0
    first: float = 0.0
    first_cpu: float = 0.0
    hot: float = 0.0
    eager: float = 0.0
    seconds: float = 0.0
    warned: list[str] = field(default_factory=list)
    worst: float = 0.0


def architectures() -> list[str]:
    """Every architecture that AutoModel knows."""
    return list(MODEL_MAPPING_NAMES)


def _class_and_config(name: str) -> tuple[str, Any]:
    """Of an architecture, or of a class with a head."""
    if name in heads():
        return name, CONFIG_MAPPING[heads()[name]]
    entry = MODEL_MAPPING_NAMES[name]
    return entry if isinstance(entry, str) else entry[0], CONFIG_MAPPING[name]


def compare(name: str) -> Outcome:
    """Build, run and compare one architecture."""
    outcome = Outcome(name)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = _runnable(name, outcome)
        if found is not None:
            model, inputs = found
            outcome.model, outcome.parameters = type(model).__name__, _size(model)
            outcome.inputs = {k: list(v.shape) for k, v in inputs.items()}
            _against_eager(model, inputs, outcome)
    outcome.seconds = time.perf_counter() - start
    return outcome


def _size(model: Any) -> int:
    return sum(p.numel() for p in model.parameters())


def _runnable(name: str, outcome: Outcome) -> tuple[Any, dict[str, Any]] | None:
    """The first small model and inputs that eager runs and that have a gradient."""
    class_name, kind = _class_and_config(name)
    reasons: list[str] = []
    for sizes in SIZES:
        try:
            config = shrunk(kind, sizes)
            if sizes not in ("fixed", "filled") and _is_large(class_name, config):
                reasons.append(f"more than {LARGEST:,} parameters")
                continue
            _seed(0)
            if name in heads() and getattr(config, "pad_token_id", None) is None:
                config.pad_token_id = 0  # a head of sentences looks for their end
            model = getattr(transformers, class_name)(config).train(name in heads())
        except Exception as error:  # whatever the library says of such a config is the reason
            reasons.append(f"not built: {_said(error)}")
            continue
        if _size(model) > LARGEST:
            reasons.append(f"more than {LARGEST:,} parameters")
            continue
        tried = ""
        _seed(1)
        for inputs in _given(name, model):
            try:
                _, gradients = _run(model, model, inputs)
            except Exception as error:  # likewise of such inputs
                tried = tried or f"not run on {', '.join(inputs)}: {_said(error)}"
                continue
            if any(g is not None for g in gradients.values()):
                return model, inputs
            tried = "no gradient"
        reasons.append(tried or "no inputs for " + ", ".join(_parameters(model)))
    outcome.status, outcome.reason = "noeager", " | ".join(dict.fromkeys(reasons))
    return None


def _given(name: str, model: Any) -> Iterator[dict[str, Any]]:
    for inputs in candidates(model):
        if name in heads():
            yield from labelled(model, inputs)
        else:
            yield inputs


def _is_large(class_name: str, config: Any) -> bool:
    """Whether a model would take long to fill with random numbers."""
    with torch.device("meta"):
        return _size(getattr(transformers, class_name)(copy.deepcopy(config))) > LARGEST


def _parameters(model: Any) -> list[str]:
    import inspect

    return [n for n, p in inspect.signature(model.forward).parameters.items()
            if p.default is p.empty]


def _said(error: BaseException) -> str:
    text = str(error) or type(error).__name__
    return f"{type(error).__name__}: {' '.join(text.split())[:240]}"


def _seed(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def _run(
    call: Any, model: Any, inputs: dict[str, Any], seed: int = 0
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Values and gradients of one call, by name; None for a parameter without a gradient.

    The gradients are those of the loss, of a model that computes one, else for random cotangents.
    """
    model.zero_grad(set_to_none=True)
    _seed(seed)
    result = call(**inputs)
    values = dict(tensors(result))
    generator = torch.Generator().manual_seed(seed)
    terms = []
    if ".loss" in values and values[".loss"].requires_grad:
        terms = [values[".loss"].sum()]
    for value in values.values() if not terms else ():
        if value.is_floating_point():
            weight = torch.randn(value.shape, generator=generator, dtype=torch.float64)
            if value.requires_grad:
                terms.append((value * weight.to(value.dtype)).sum())
    if terms:
        torch.stack([t.to(terms[0].dtype) for t in terms]).sum().backward()  # type: ignore[no-untyped-call]
    gradients = {n: _copied(p.grad) for n, p in model.named_parameters()}
    return {n: _copied(v) for n, v in values.items()}, gradients


def _copied(tensor: Any) -> Any:
    return None if tensor is None else tensor.detach().clone()


def tensors(result: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor in a result, with its path: caches and other objects are looked into."""
    if isinstance(result, torch.Tensor):
        yield path, result
    elif depth > 6 or isinstance(result, (str, bytes, int, float, type(None), torch.nn.Module)):
        return
    elif isinstance(result, dict):
        for key, part in result.items():
            yield from tensors(part, f"{path}.{key}", depth + 1)
    elif isinstance(result, (list, tuple)):
        for i, part in enumerate(result):
            yield from tensors(part, f"{path}[{i}]", depth + 1)
    elif hasattr(result, "__dict__") and not isinstance(result, type):
        for key, part in vars(result).items():
            yield from tensors(part, f"{path}.{key}", depth + 1)


def _against_eager(model: Any, inputs: dict[str, Any], outcome: Outcome) -> None:
    last = again(inputs, CALLS)
    eager = {}
    try:
        for which, given in (("first", inputs), ("last", last)):
            eager[which] = _run(model, model, given)
    except Exception as error:
        outcome.status, outcome.reason = "noeager", f"not run a second time: {_said(error)}"
        return
    start = time.perf_counter()
    _run(model, model, last)
    outcome.eager = time.perf_counter() - start
    exact = _in_float64(model, inputs, last)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            compiled = gradof.differentiate(model)
            ours = _timed(compiled, model, inputs, last, outcome)
        except Exception as error:
            outcome.status, outcome.reason = "error", _where(error)
            return
        finally:
            outcome.warned = sorted({
                f"{w.category.__name__}: {' '.join(str(w.message).split())[:300]}" for w in caught
                if issubclass(w.category, UserWarning) and "gradof" in w.category.__module__
            })  # fmt: skip
    _judge(ours, eager, exact, outcome)
    info = compiled.cache_info()
    outcome.traces, outcome.backward_runs = info.misses, info.backward_runs
    if outcome.status == "equal" and info.backward_runs == 0:
        outcome.status = "fallback"
        outcome.reason = next((w for w in outcome.warned if w.startswith("Eager")), "")


def _timed(
    compiled: Any, model: Any, inputs: dict[str, Any], last: dict[str, Any], outcome: Outcome
) -> dict[str, Any]:
    _warm_up()
    ours = {}
    start, cpu = time.perf_counter(), time.process_time()
    ours["first"] = _run(compiled, model, inputs)
    outcome.first = time.perf_counter() - start
    outcome.first_cpu = time.process_time() - cpu
    for i in range(1, CALLS - 1):
        _run(compiled, model, again(inputs, i))
    start = time.perf_counter()
    ours["last"] = _run(compiled, model, last)
    outcome.hot = time.perf_counter() - start
    return ours


def _warm_up() -> None:
    """What gradof imports on its first use is not the model's time."""
    layer = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.GELU(), torch.nn.LayerNorm(32))
    f = gradof.differentiate(layer)
    f(torch.randn(64, 32)).softmax(-1).sum().backward()


def _in_float64(model: Any, *given: dict[str, Any]) -> dict[str, Any] | None:
    try:
        double = copy.deepcopy(model).double()
        runs = []
        for inputs in given:
            doubled = {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()}
            runs.append(_run(double, double, doubled))
    except Exception:  # it makes float32 itself somewhere: eager is the reference
        return None
    return dict(zip(("first", "last"), runs, strict=True))


def _judge(
    ours: dict[str, Any], eager: dict[str, Any], exact: dict[str, Any] | None, outcome: Outcome
) -> None:
    wrong: list[str] = []
    for call in ("first", "last"):
        for group in (0, 1):
            mine, theirs = ours[call][group], eager[call][group]
            if mine.keys() != theirs.keys():
                lost, new = theirs.keys() - mine.keys(), mine.keys() - theirs.keys()
                wrong.append(f"{call} call: results missing {sorted(lost)}, new {sorted(new)}")
                continue
            right = None if exact is None else exact[call][group]
            if right is not None and right.keys() != theirs.keys():
                right = None
            wrong += _differences(call, mine, theirs, right, outcome)
    outcome.status = "wrong" if wrong else "equal"
    more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
    outcome.reason = "; ".join(wrong[:3]) + more


def _differences(
    call: str, mine: dict[str, Any], theirs: dict[str, Any], right: dict[str, Any] | None,
    outcome: Outcome,
) -> list[str]:  # fmt: skip
    names = list(theirs)
    wrong = []
    for name in names:
        a, b = mine[name], theirs[name]
        if a is not None and b is not None and (a.shape != b.shape or a.dtype != b.dtype):
            wrong.append(f"{call} call: {name} is {a.dtype}{list(a.shape)}, "
                         f"eager's {b.dtype}{list(b.shape)}")
    if wrong:
        return wrong
    dtypes = [np.float32 for _ in names]
    compared = rows(
        names, [_array(mine[n]) for n in names], [_array(theirs[n]) for n in names],
        None if right is None else [_array(right[n]) for n in names], dtypes,
    )  # fmt: skip
    for row in compared:
        if row.scale and row.allowed:
            outcome.worst = max(outcome.worst, row.error / row.scale)
        if not row.error <= row.allowed:
            wrong.append(f"{call} call: {row.what} is off by {row.error:.1e} "
                         f"(allowed {row.allowed:.1e})")
    return wrong


def _array(tensor: Any) -> Any:
    if tensor is None:
        return None
    return (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy()


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    inner = frames[-1]
    own = next((f for f in reversed(frames) if "/transformers/" in f.filename), inner)
    return (f"{_said(error)} (at {own.filename.rpartition('/')[2]}:{own.lineno}, raised in "
            f"{inner.filename.rpartition('/')[2]}:{inner.lineno})")
