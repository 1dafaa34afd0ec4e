"""What every test shares: verified passes, one thread, golden texts, and GPU tests skipped aloud.

def test_prints(golden):
    golden(print_graph(graph))            # compared with tests/goldens/<module>/test_prints.txt
    golden(print_graph(other), "other")   # compared with tests/goldens/<module>/other.txt

`pytest --update-golden` writes the files anew; read the difference before you commit it.
"""

from __future__ import annotations

import atexit
import difflib
import gc
import importlib.util
import os
import random
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

# Set before numpy or torch is imported: their thread pools are sized once.
for _variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_variable] = "1"

import numpy as np  # noqa: E402

from tests.sample import not_in_sample  # noqa: E402

os.environ["GRADOF_CHECK"] = "1"  # verify the graph after every pass
os.environ.setdefault("GRADOF_AUTOTUNE", "0")  # compiled code runs every call

# A hundred tests start a process of their own, which would compile all our modules anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Tests make and drop more graphs than programs do. With Python's own settings, which look for dead
# cycles after every 700 new objects, a tenth of the time went into looking.
gc.set_threshold(20_000, 20, 10)

if "GRADOF_CACHE_DIR" not in os.environ:  # one for the run, shared with its workers
    os.environ["GRADOF_CACHE_DIR"] = tempfile.mkdtemp(prefix="gradof-tests-")
    atexit.register(shutil.rmtree, os.environ["GRADOF_CACHE_DIR"], ignore_errors=True)

TESTS = Path(__file__).parent
GOLDENS = TESTS / "goldens"

Golden = Callable[..., None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden texts instead of comparing"
    )
    parser.addoption(
        "--sample", action="store_true", help="a fixed part of long lists of cases: tests/sample.py"
    )


def pytest_configure(config: pytest.Config) -> None:
    # A GPU machine may lack hypothesis; tests that need it fail there at their own import.
    if importlib.util.find_spec("hypothesis") is not None:
        from hypothesis import HealthCheck, settings

        # The same examples on every machine, however slow it is: random search is the fuzzer's.
        settings.register_profile(
            "gradof", deadline=None, derandomize=True, database=None,
            suppress_health_check=[HealthCheck.too_slow],
        )  # fmt: skip
        settings.load_profile("gradof")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--sample"):
        left = not_in_sample(items)
        config.hook.pytest_deselected(items=list(left))
        items[:] = [item for item in items if item not in left]
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    reason = _why_no_gpu()
    if reason is not None:
        for item in marked:
            if not (_interprets() and "device" in getattr(item, "fixturenames", ())):
                item.add_marker(pytest.mark.skip(reason=reason))


def _interprets() -> bool:
    """Whether tests that ask for a device are to run on the CPU, in triton's interpreter."""
    return (os.environ.get("TRITON_INTERPRET"), os.environ.get("GRADOF_BACKEND")) == ("1", "triton")


def _why_no_gpu() -> str | None:
    for module in ("torch", "triton"):
        if importlib.util.find_spec(module) is None:
            return f"needs a GPU: {module} is not installed"
    import torch

    return None if torch.cuda.is_available() else "needs a GPU: torch sees no CUDA device"


def pytest_collection_finish() -> None:
    # Ten thousand tests live to the end: no search for dead cycles need look at them.
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()


@pytest.fixture
def products_of_mkl(monkeypatch: pytest.MonkeyPatch) -> None:
    """MKL multiplies, within native functions, as on Intel's processors."""
    from gradof.codegen.lowering import products
    from gradof.codegen.whole import library_products

    for module in (products, library_products):
        monkeypatch.setattr(module, "float32_library", lambda: "MKL")
        monkeypatch.setattr(module, "has_native", lambda: False)


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Random numbers of a test are the same in any order of tests, alone and on any worker."""
    random.seed(0)
    np.random.seed(0)
    if "torch" in sys.modules:  # else its generators start from a seed of torch's own
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(autouse=True)
def anew() -> None:
    """No test is given what `grad(f)` of another has compiled, under other thresholds."""
    if "gradof.runtime.once" in sys.modules:
        sys.modules["gradof.runtime.once"].forget_compiled()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Return `compare(text, name=None)`: `text` must equal the stored golden of that name."""
    module = request.path.relative_to(TESTS).with_suffix("")
    update = bool(request.config.getoption("--update-golden"))
    seen: set[str] = set()

    def compare(text: str, name: str | None = None) -> None:
        stem = re.sub(r"[^\w.=-]+", "_", request.node.name if name is None else name).strip("_")
        if stem in seen:
            pytest.fail(f"golden {stem!r} is compared twice in this test: give each text a name")
        seen.add(stem)
        check_golden(GOLDENS / module / f"{stem}.txt", text, update=update)

    return compare


def check_golden(path: Path, text: str, *, update: bool) -> None:
    """Compare `text` with the file at `path`, or write it there when `update` is set."""
    text = text.rstrip("\n") + "\n"
    if update:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return
    if not path.exists():
        pytest.fail(f"there is no golden {path}\nrun pytest with --update-golden to write it")
    stored = path.read_text(encoding="utf-8")
    if text != stored:
        diff = difflib.unified_diff(
            stored.splitlines(), text.splitlines(), "stored", "now", lineterm=""
        )
        pytest.fail(
            "\n".join(diff) + f"\n{path} differs\nif the new text is right, run pytest with"
            " --update-golden"
        )


@pytest.fixture
def op_by_op(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs of small arrays are not one native function, as for statements and their text."""
    from gradof import tuning

    monkeypatch.setattr(tuning, "WHOLE_CELLS", -1)
    monkeypatch.setattr(tuning, "WHOLE_LOOP_CELLS", -1)
    monkeypatch.setattr(tuning, "STRETCH_CELLS", -1)
