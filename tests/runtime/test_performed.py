"""What numpy functions say, store as text and read of clocks and files: as Python, at every call.

Every program runs four times, as it is and compiled, each in a namespace of its own; values,
gradients, all that is printed and logged, and what it keeps are compared after each call.
"""

from __future__ import annotations

import io
import itertools
import logging
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.optimize

import gradof
from gradof.errors import DataDependentError, TraceError

CALLS = 4
# name → a body of f(x), which may append to `kept`
PROGRAMS = {
    "print of a value": "l = np.sum(x ** 2); print('loss', l); return l",
    "print of nothing": "print('called'); return np.sum(x ** 2)",
    "f-strings": "l = np.sum(x ** 2); print(f'{l:.3f} {x} {x[0]!r}'); return l",
    "percent": "l = np.sum(x ** 2); print('%d %.3f %s' % (l, l, l)); return l",
    "format": "l = np.sum(x ** 2); print('{:10.4e}|{}'.format(l, x)); return l",
    "print of conversions": "l = np.sum(x ** 2); print(float(l), int(l), round(l, 2)); return l",
    "standard error": "l = np.sum(x ** 2); print(l, file=sys.stderr); return l",
    "a stream": "l = np.sum(x ** 2); sys.stdout.write(f'{l}\\n'); sys.stdout.flush(); return l",
    "logging": "l = np.sum(x ** 2); logging.getLogger('a').warning('%s %.2f', l, l); return l",
    "memory": "b = io.StringIO(); print(x, file=b); kept.append(b.getvalue()); return np.sum(x**2)",
    "a text that is kept": "l = np.sum(x ** 2); kept.append(f'{l:.3f}'); return l",
    "a text that is padded": "kept.append(str(x[0]).rjust(30)); return np.sum(x ** 2)",
    "a dict of texts": "kept.append({str(x.shape): repr(np.sum(x))}); return np.sum(x ** 2)",
    "an object": "kept.append(pathlib.PurePath(f'{x[0]}')); return np.sum(x ** 2)",
    "of value_of": "kept.append(gradof.value_of(np.sum(x)) * 2); return np.sum(x ** 2)",
    "floats that are kept": "l = np.sum(x ** 2); kept.append(float(l)); return l",
    "floats of a loop": "s = 0.0\nfor v in x: s += float(v) ** 2\nreturn s",
    "floats by map": "return sum(map(float, x * x))",
    "floats in a comprehension": "return np.sum(np.array([float(v) ** 2 for v in x]))",
    "a float that flows": "s = float(np.sum(x)); return np.sum(np.sin(x * s))",
    "a float that is returned": "return float(np.sum(x ** 2))",
    "a float in math": "return math.exp(float(x[0])) * x[1] + math.hypot(float(x[1]), 2)",
    "a float that decides": "l = np.sum(x)\nreturn l * 2 if float(l) > 4 else l ** 2",
    "ints that are kept": "l = np.sum(x ** 2); kept.append((int(l), round(l))); return l",
    "ints in arithmetic": "n = int(np.sum(x)); return np.sum(x ** 2) * (n + 1)",
    "an in-place write and a print": "y = x * 1; y[0] = x[1]; print(y); return np.sum(y * x)",
    "an argument that is written": "print(x[0]); r = np.sum(x ** 2); x *= 1; return r",
    "random numbers": "z = rng.normal(size=3); print(z); kept.append(str(z)); return np.sum(x * z)",
    "a counter": "count[0] += 1; print(count[0]); return np.sum(x) * count[0]",
    "progress": "for i, v in enumerate(x): print(f'\\r{i}: {v:.2f}', end='')\nreturn np.sum(x**2)",
    "a branch": "l = np.sum(x)\nif l > 4: print('large', l)\nreturn l ** 2",
    "an inner derivative": "g = gradof.grad(lambda y: np.sum(y ** 3))(x); print(g); "
                           "return np.sum(g * x)",
}  # fmt: skip
PLENTY = {  # those that differ from call to call in more than numbers
    "a float that decides": 2, "a branch": 2, "a counter": 2, "ints in arithmetic": 4,
}  # fmt: skip


def _space(body: str) -> dict[str, Any]:
    import math
    import pathlib

    lines = "\n".join(f"    {line}" for part in body.split("\n") for line in [part])
    space: dict[str, Any] = {
        "np": np, "gradof": gradof, "sys": sys, "io": io, "math": math, "logging": logging,
        "pathlib": pathlib, "kept": [], "count": [0], "rng": np.random.default_rng(3),
        "__name__": "program",
    }  # fmt: skip
    exec(f"def f(x):\n{lines}", space)
    return space


def _slope(f: Callable[[Any], Any], x: Any) -> Any:
    return np.array([(f(x + d) - f(x - d)) / 2e-6 for d in np.eye(x.size) * 1e-6])


@pytest.mark.cases(24)
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_plain_python(
    name: str, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    plain, ours = _space(PROGRAMS[name]), _space(PROGRAMS[name])
    compiled = gradof.value_and_grad(ours["f"])
    said: list[Any] = []
    for n in range(CALLS):
        x = np.array([0.53, 1.5, 2.0]) + n
        outcomes = []
        for call in (plain["f"], compiled):
            result = call(x.copy())
            outcomes.append((capsys.readouterr(), [r.getMessage() for r in caplog.records]))
            caplog.clear()
            value = result[0] if call is compiled else result
            if call is compiled:
                gradient = result[1]
            else:
                want = value
        assert outcomes[0] == outcomes[1]
        said.append(outcomes[0])
        np.testing.assert_allclose(value, want, rtol=1e-12)
        assert repr(plain["kept"]) == repr(ours["kept"])
        assert type(want) is type(value) or name.startswith("floats")
        again = _space(PROGRAMS[name])
        again["count"][0] = plain["count"][0] - 1

        def f(y: Any, space: Any = again, n: int = n) -> Any:
            space["rng"] = np.random.default_rng(3)
            for _ in range(n + 1):
                z = space["rng"].normal(size=3) if _ < n and "rng" in PROGRAMS[name] else None
            del z
            space["count"][0] = n
            return space["f"](y)

        np.testing.assert_allclose(gradient, _slope(f, x), rtol=1e-6, atol=1e-7)
        capsys.readouterr()
        caplog.clear()
    assert compiled.cache_info().misses <= PLENTY.get(name, 1)


def test_other_transformations_perform_one_call(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x: Any) -> Any:
        print("called")
        return np.sum(x**3)

    x = np.array([1.0, 2.0])
    np.testing.assert_allclose(gradof.differentiate(f)(x), 9.0)
    np.testing.assert_allclose(gradof.hessian(f)(x), np.diag(6 * x))
    np.testing.assert_allclose(gradof.jacobian(f)(x), 3 * x**2)
    np.testing.assert_allclose(gradof.hvp(f, (x,), (x,))[0], 6 * x * x)
    value, pullback = gradof.vjp(f, x)
    np.testing.assert_allclose(pullback(1.0)[0], 3 * x**2)
    np.testing.assert_allclose(gradof.jvp(f, (x,), (x,))[1], np.sum(3 * x**3))
    assert capsys.readouterr().out == "called\n" * 6 and value == 9.0
    assert "for print at" in str(gradof.differentiate(f).explain(x))


def test_a_minimizer_sees_all_calls(capsys: pytest.CaptureFixture[str]) -> None:
    losses: list[float] = []

    def f(x: Any) -> Any:
        loss = np.sum((x - 3) ** 2)
        losses.append(float(loss))
        print(f"{loss:.3f}")
        return loss

    found = scipy.optimize.minimize(gradof.value_and_grad(f), np.zeros(3), jac=True)
    assert found.nfev == len(losses) == len(capsys.readouterr().out.split())
    assert losses[0] == 27.0 and losses[-1] < 1e-10


def test_a_warning_is_shown_as_often_as_by_python() -> None:
    def f(x: Any) -> Any:
        warnings.warn(f"large: {x[0]}", stacklevel=1)
        return np.sum(x**2)

    compiled = gradof.grad(f)
    for action, count in (("always", 3), ("default", 1)):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter(action)  # type: ignore[arg-type]
            for _ in range(3):
                compiled(np.ones(2))
        assert [str(w.message) for w in seen] == ["large: 1.0"] * count


def test_a_number_that_is_read_off_a_text_is_an_error_where_it_differs() -> None:
    def f(x: Any) -> Any:
        return np.sum(x) * float(f"{x[0]:.2f}")

    compiled = gradof.value_and_grad(f)
    np.testing.assert_allclose(compiled(np.ones(3))[0], 3.0)
    with pytest.raises(DataDependentError, match=r"more than arrays.*test_performed.py:\d+"):
        compiled(np.full(3, 2.0))


# --- clocks and files -----------------------------------------------------------------------------


def test_a_clock_is_read_at_every_call() -> None:
    took: list[float] = []

    def f(x: Any) -> Any:
        start = time.time()
        took.append(time.perf_counter())
        return np.sum(x) * start

    compiled = gradof.grad(f)
    for _ in range(3):
        before = time.time()
        assert before <= compiled(np.ones(2))[0] <= time.time()
    assert compiled.cache_info().misses == 1
    assert all(a < b for a, b in itertools.pairwise(took)) and len(took) == 3


def _read(path: Path) -> float:
    with open(path) as file:
        return float(file.read())


@pytest.mark.parametrize("read", [
    _read, lambda path: float(path.read_text()),
    lambda path: np.loadtxt(path),
])  # fmt: skip
def test_a_file_that_changes_is_read_again(read: Any, tmp_path: Path) -> None:
    path = tmp_path / "scale.txt"
    compiled = gradof.grad(lambda x: np.sum(x) * read(path))
    for n, text in enumerate(("2.0", "2.0", "3.25")):
        if n != 1:
            path.write_text(text)
        np.testing.assert_allclose(compiled(np.ones(2)), np.full(2, float(text)))
    assert compiled.cache_info().misses == 2


@pytest.mark.parametrize("body", [
    "open(PATH, 'w').write('1')", "PATH.write_text('1')", "np.savetxt(PATH, np.ones(2))",
    "LOG.write('1')", "print('1', file=LOG)", "input()",
])  # fmt: skip
def test_what_would_be_written_while_tracing_is_refused(body: str, tmp_path: Path) -> None:
    with open(tmp_path / "log", "w") as log:
        space: dict[str, Any] = {"np": np, "PATH": tmp_path / "a", "LOG": log}
        source = f"def f(x):\n    y = np.sum(x ** 2)\n    {body}\n    return y"
        exec(compile(source, "a_program.py", "exec"), space)
        with pytest.raises(TraceError, match=r"a_program.py:3(.|\n)*hint: call it outside"):
            gradof.grad(space["f"])(np.ones(2))
    assert (tmp_path / "log").read_text() == "" and not (tmp_path / "a").exists()


def test_a_function_that_says_something_may_write_to_what_it_returns() -> None:
    """As arch's recursions of GARCH, which warn at every call where numba is not there."""

    def recursion(p: Any, squares: Any, variances: Any) -> Any:
        warnings.warn("slow", RuntimeWarning, stacklevel=2)
        for t in range(1, len(squares)):
            variances[t] = p[0] + p[1] * squares[t - 1] + p[2] * variances[t - 1]
        return variances

    compiled = gradof.differentiate(recursion)
    for scale in (1.0, 1.0, 1.5):
        given = np.array([0.1, 0.3, 0.5]) * scale, np.linspace(1.0, 2.0, 20)
        mine, theirs = np.full(20, scale), np.full(20, scale)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            assert compiled(*given, mine) is mine
            np.testing.assert_allclose(mine, recursion(*given, theirs), rtol=1e-14)
        assert [str(w.message) for w in told] == ["slow"] * 2


def test_other_threads_print_while_one_traces(capsys: pytest.CaptureFixture[str]) -> None:
    import threading

    def f(x: Any) -> Any:
        thread = threading.Thread(target=print, args=("from the thread",))
        thread.start()
        thread.join()
        print("from the function")
        return np.sum(x)

    gradof.grad(f)(np.ones(2))
    out = capsys.readouterr().out.split("\n")
    assert out.count("from the function") == 1 and "from the thread" in out
