"""What code asks of the machine, without a seed or from a file, is asked at every call."""

from __future__ import annotations

import gc
import logging
import os
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
import torch
from numpy.random import default_rng

from gradof import differentiate
from gradof.errors import EagerWarning, TraceError

LOGGER = logging.getLogger("gradof.tests.machine_reads")

UNSEEDED: dict[str, Callable[[], float]] = {
    "default_rng": lambda: float(np.random.default_rng().random(3)[0]),
    "an imported name": lambda: float(default_rng(None).normal()),
    "RandomState": lambda: float(np.random.RandomState().rand()),
    "a bit generator": lambda: float(np.random.Generator(np.random.PCG64()).random()),
    "SeedSequence": lambda: float(np.random.SeedSequence().generate_state(1)[0]),
    "random.Random": lambda: random.Random().random(),
    "random.SystemRandom": lambda: random.SystemRandom().random(),
    "random.Random of None": lambda: random.Random(None).uniform(0.0, 2.0),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::gradof.errors.EagerWarning")
@pytest.mark.parametrize("name", UNSEEDED)
def test_generators_without_a_seed_draw_at_every_call(name: str) -> None:
    drawn = UNSEEDED[name]
    compiled = differentiate(lambda x: (x * drawn()).sum())
    x = torch.ones(2, requires_grad=True)
    assert len({compiled(x).item() for _ in range(4)}) == 4
    assert compiled.cache_info().misses == 1


@pytest.mark.parametrize("name", UNSEEDED)
def test_in_numpy_they_draw_at_every_call_or_are_an_error(name: str) -> None:
    drawn = UNSEEDED[name]
    compiled = differentiate(lambda x: np.sum(x * drawn()))
    try:
        found = {float(compiled(np.ones(2))) for _ in range(4)}
    except TraceError as error:
        assert "seed" in str(error) and "test_machine_reads.py" in str(error)
    else:
        assert len(found) == 4


def test_generators_with_a_seed_are_constants() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        noise = np.random.default_rng(3).random() + random.Random(4).random()
        assert isinstance(np.random.RandomState(1), np.random.RandomState)
        return (x * noise).sum()

    compiled, x = differentiate(f, strict=True), torch.ones(2)
    assert compiled(x).item() == compiled(x).item() == f(x).item()
    assert type(np.random.default_rng).__name__ != "Unseeded", "the name is put back"


def test_classes_of_generators_are_classes_in_a_trace() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        class Own(np.random.RandomState):
            pass

        made = Own(5)
        return x * float(isinstance(made, np.random.RandomState)) * made.rand()

    x = torch.ones(2)
    assert torch.equal(differentiate(f)(x), f(x))


def _write(folder: Path, k: int) -> None:
    np.save(folder / "a.npy", np.full(3, float(k)))
    np.savez(folder / "a.npz", a=np.full(3, float(k)))
    (folder / "a.txt").write_text(f"{k}.0 1.0\n")
    table = pd.DataFrame({"a": [float(k), 1.0]})
    table.to_pickle(folder / "a.pickle")
    table.to_json(folder / "a.json")
    table.to_stata(folder / "a.dta")
    table.to_csv(folder / "a.csv")
    (folder / f"file{k}").touch()
    (folder / "grows.txt").write_text("x" * k)


READ: dict[str, Callable[[Path], float]] = {
    "np.load": lambda at: float(np.load(at / "a.npy")[0]),
    "np.load of several": lambda at: float(np.load(at / "a.npz")["a"][0]),
    "np.loadtxt": lambda at: float(np.loadtxt(at / "a.txt")[0]),
    "np.genfromtxt": lambda at: float(np.genfromtxt(at / "a.txt")[0]),
    "np.memmap": lambda at: float(np.memmap(at / "a.npy", np.float64, "r", offset=128)[0]),
    "open_memmap": lambda at: float(np.lib.format.open_memmap(at / "a.npy", "r")[0]),
    "listdir": lambda at: float(len(os.listdir(at))),
    "scandir": lambda at: float(len(list(os.scandir(at)))),
    "walk": lambda at: float(len(next(iter(os.walk(at)))[2])),
    "read_csv": lambda at: float(pd.read_csv(at / "a.csv")["a"].iloc[0]),
    "read_pickle": lambda at: float(pd.read_pickle(at / "a.pickle")["a"].iloc[0]),
    "read_json": lambda at: float(pd.read_json(at / "a.json")["a"].iloc[0]),
    "read_stata": lambda at: float(pd.read_stata(at / "a.dta")["a"].iloc[0]),
    "stat": lambda at: float(os.stat(at / "grows.txt").st_size),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_files_are_read_at_every_call(name: str, tmp_path: Path) -> None:
    read = READ[name]

    def f(x: torch.Tensor) -> torch.Tensor:
        return (x * read(tmp_path)).sum()

    compiled, x = differentiate(f), torch.ones(2, requires_grad=True)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for k in range(4):
            _write(tmp_path, k)
            compiled(x).backward()
            assert x.grad is not None and x.grad.tolist() == [read(tmp_path)] * 2
            x.grad = None
    assert sum(w.category is EagerWarning for w in told) == 1
    assert compiled.cache_info().misses == 1


_LISTED = ["listdir", "scandir", "walk", "stat"]


@pytest.mark.parametrize("name", [name for name in READ if name not in _LISTED])
def test_numpy_functions_guard_the_files_they_read(name: str, tmp_path: Path) -> None:
    read = READ[name]

    def f(x: Any) -> Any:
        return np.sum(x * read(tmp_path))

    compiled = differentiate(f)
    for k in range(2):
        _write(tmp_path, 10 * k)
        for _ in range(3):
            assert compiled(np.ones(2)) == f(np.ones(2))
    assert compiled.cache_info().misses == 2


@pytest.mark.parametrize("name", _LISTED)
def test_a_numpy_function_that_lists_a_folder_is_never_silently_old(
    name: str, tmp_path: Path
) -> None:
    read = READ[name]
    compiled = differentiate(lambda x: np.sum(x * read(tmp_path)))
    _write(tmp_path, 0)
    try:
        assert compiled(np.ones(2)) == 2 * read(tmp_path)
    except TraceError:
        return
    _write(tmp_path, 1)
    with pytest.raises(TraceError, match="depends on more than"):
        compiled(np.ones(2))


SETTINGS: dict[str, tuple[Callable[[], float], Callable[[Any, int], Any]]] = {
    "recursion": (sys.getrecursionlimit, lambda m, k: sys.setrecursionlimit(9000 + k)),
    "gc": (gc.isenabled, lambda m, k: gc.enable() if k % 2 else gc.disable()),
    "folder": (lambda: len(os.getcwd()), lambda m, k: m.chdir("/tmp" if k % 2 else "/")),
    "cudnn": (
        lambda: torch.backends.cudnn.benchmark,
        lambda m, k: torch._C._set_cudnn_benchmark(k % 2 == 0),  # others may have frozen it
    ),
    "errors": (
        lambda: len(np.geterr()["divide"]),
        lambda m, k: np.seterr(divide="ignore" if k % 2 else "warn"),
    ),
    "level": (LOGGER.getEffectiveLevel, lambda m, k: LOGGER.setLevel(10 * (k + 1))),
    "enabled": (lambda: LOGGER.isEnabledFor(20), lambda m, k: LOGGER.setLevel(10 + 20 * (k % 2))),
}  # fmt: skip


@pytest.fixture
def _as_it_was() -> Iterator[None]:
    before = sys.getrecursionlimit(), np.geterr()
    tuned = torch._C._get_cudnn_benchmark()
    yield
    sys.setrecursionlimit(before[0])
    np.seterr(**before[1])
    gc.enable()
    torch._C._set_cudnn_benchmark(tuned)
    LOGGER.setLevel(logging.NOTSET)


@pytest.mark.usefixtures("_as_it_was")
@pytest.mark.parametrize("library", ["torch", "numpy"])
@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_the_process_are_guarded(
    name: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, change = SETTINGS[name]
    x: Any = torch.ones(2) if library == "torch" else np.ones(2)
    compiled = differentiate(lambda x: (x * ask()).sum())
    for k in (0, 0, 1, 1, 0):
        change(monkeypatch, k)
        assert float(compiled(x)) == 2.0 * ask()
    assert compiled.cache_info().misses == 2


@pytest.mark.usefixtures("_as_it_was")
def test_a_message_that_is_shown_later_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    """As long as it is not shown, the trace has nothing to say."""
    def f(x: torch.Tensor) -> torch.Tensor:
        LOGGER.debug("called")
        return x.sum()

    compiled, x = differentiate(f), torch.ones(2)
    LOGGER.setLevel(logging.WARNING)
    compiled(x)
    assert not caplog.records and compiled.cache_info().eager_runs == 0
    LOGGER.setLevel(logging.DEBUG)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EagerWarning)
        compiled(x)
        compiled(x)
    assert [r.message for r in caplog.records] == ["called"] * 2
