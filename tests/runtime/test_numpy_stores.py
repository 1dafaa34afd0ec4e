"""What a numpy function writes to Python's state is written again at each call, in one trace.

Every program runs five times, as it is and compiled, in a namespace of its own; value, gradient and
everything that it keeps are compared after each call.
"""

from __future__ import annotations

import collections
import itertools
from typing import Any

import numpy as np
import pytest

import gradof
from gradof.errors import TraceError

CALLS = 5
CONSTANT = 1  # traces, where what is written does not change what is computed

# name → source that defines f(x) and `kept()`, and how many traces it may take
PROGRAMS: dict[str, tuple[str, int]] = {
    "a counter and a weight on self": ("""
class Loss:
    def __init__(self): self.step, self.beta, self.log = 0, 1.0, []
    def __call__(self, x):
        self.step += 1
        self.beta *= 0.9
        self.log.append((self.step, self.beta))
        return (x ** 2).sum() * self.beta / self.step
f = Loss()
kept = lambda: (f.step, f.beta, f.log)
""", CONSTANT),
    "a value on self beside a list of the function's own": ("""
class Model:
    def __init__(self): self.rates, self.last = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7], None
    def run(self, m):
        found = []
        for rate in self.rates:
            found.append(np.exp(-(rate - m) ** 2))
        self.last = np.sum(np.log(found))
        return np.asarray(found)
model = Model()
f = lambda x: np.sum(model.run(x[0])) + model.last
kept = lambda: model.last
""", 2),
    "a global counter": ("""
step = 0
def f(x):
    global step
    step += 1
    return np.sum(x * step)
kept = lambda: step
""", CONSTANT),
    "a counter of a closure": ("""
def make():
    step = 0
    def f(x):
        nonlocal step
        step += 1
        return np.sum(np.sin(x) * step)
    return f, lambda: step
f, kept = make()
""", CONSTANT),
    "a log of losses, a deque of a length, a set": ("""
log, last, seen = [], collections.deque(maxlen=3), set()
def f(x):
    loss = np.sum(np.tanh(x) ** 2)
    log.append(loss)
    last.append({"loss": loss, "x": x * 2})
    seen.add(x.shape)
    return loss
kept = lambda: (log, list(last), seen)
""", CONSTANT),
    "arrays that the next call reads": ("""
class Net:
    def __init__(self): self.hidden = np.zeros(3), np.ones(3)
    def __call__(self, x):
        h, c = self.hidden
        c = np.tanh(x[0] + c)
        h = c * np.exp(x[1] - h) + x
        self.hidden = h, c
        return h.sum()
f = Net()
kept = lambda: f.hidden
""", CONSTANT),
    "a mask that is made when first used": ("""
class Net:
    def __init__(self): self.mask = None
    def __call__(self, x):
        if self.mask is None:
            self.mask = np.tril(np.ones((3, 3)))
        return (self.mask * x).sum()
f = Net()
kept = lambda: f.mask
""", 2),
    "functions of C's, looked up by name in a memo": ("""
import scipy.linalg
memo = {}
def routines(*names):
    if names not in memo:
        memo[names] = [getattr(np, names[0]), *scipy.linalg.get_lapack_funcs(names[1:], dtype="d")]
    return memo[names]
def f(x):
    return np.sum(x ** 2) * len(routines("exp", "pbtrs", "gttrs"))
kept = lambda: memo
""", 2),
    "an object of its own": ("""
class State:
    def __init__(self, x): self.x, self.norm = x, np.sum(x * x)
class Holder: pass
holder = Holder()
def f(x):
    new = State(x * 2)
    holder.state = new
    return new.norm
kept = lambda: [vars(s) for s in vars(holder).values()]
""", CONSTANT),
    "in a loop, and in a function that is called": ("""
path = []
def step(x, n):
    path.append((n, x[0]))
    return x - 0.1 * np.cos(x)
def f(x):
    for n in range(4):
        x = step(x, n)
    return x.sum()
kept = lambda: path
""", CONSTANT),
    "the arguments themselves": ("""
class Model: pass
model = Model()
def f(x):
    model.inputs, model.first, model.parts = x, x[:1], [x[0] * 1.0, 7, "a"]
    return np.prod(x)
kept = lambda: (model.inputs is given, model.first) if vars(model) else 0
""", CONSTANT),
    "a running mean, then a number of numpy's": ("""
class Model:
    mean = 0.0
    def __call__(self, x):
        self.mean = 0.9 * self.mean + 0.1 * x.mean()
        return np.sum((x - self.mean) ** 2)
f = Model()
kept = lambda: float(f.mean)
""", 2),
    "an array that plain numpy reads and the call replaces": ("""
class Model:
    def __init__(self): self.h = np.linspace(0, 1, 3)
    def __call__(self, x):
        e = np.exp(self.h)
        self.h = 0.5 * self.h + 0.1 * x
        return np.sum((x - e) ** 2)
f = Model()
kept = lambda: f.h
""", CONSTANT),
    "an array that is written to, and one in a closure": ("""
class Model:
    def __init__(self): self.h = np.zeros(3)
def make():
    w, model = np.ones(3), Model()
    def f(x):
        w[0] = x[1] * w[2]
        model.h[1:] += x[:2]
        return np.sum((x - np.exp(w) - model.h) ** 2)
    return f, lambda: [w, model.h]
f, kept = make()
""", CONSTANT),
    "values that leave the trace": ("""
log = []
def f(x):
    log.append(gradof.value_of(np.sum(x)))
    log.append(gradof.stop_gradient(x * 2))
    return np.sum(x ** 2)
kept = lambda: log
""", CONSTANT),
}  # fmt: skip


def _space(source: str) -> dict[str, Any]:
    space: dict[str, Any] = {
        "np": np, "gradof": gradof, "collections": collections, "__name__": "program"
    }
    exec(source, space)
    return space


def _equal(a: Any, b: Any) -> None:
    assert type(a) is type(b), (a, b)
    if isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for left, right in zip(a, b, strict=True):
            _equal(left, right)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        _equal(list(a.values()), list(b.values()))
    elif isinstance(a, (float, np.ndarray)):
        np.testing.assert_allclose(a, b, rtol=1e-13)
    else:
        assert a == b


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_plain_python(name: str) -> None:
    source, traces = PROGRAMS[name]
    plain, ours = _space(source), _space(source)
    compiled = gradof.value_and_grad(ours["f"])
    for n in range(CALLS):
        x = np.array([0.5, -1.5, 2.0]) / (n + 1)
        plain["given"] = ours["given"] = x
        want = plain["f"](x)
        value, gradient = compiled(x)
        np.testing.assert_allclose(value, want, rtol=1e-13)
        assert gradient.shape == x.shape and np.isfinite(gradient).all()
        _equal(ours["kept"](), plain["kept"]())
    info = compiled.cache_info()
    assert info.misses <= traces and info.backward_runs == CALLS


@pytest.mark.parametrize("made", [
    "iter([1.0, 2.0, 3.0])", "iter(range(1, 9))", "itertools.count(1)", "zip([1, 2], [3, 4])",
    "(2.0 ** n for n in range(9))", "itertools.cycle([1, 2])",
])  # fmt: skip
def test_an_iterator_is_taken_from_at_each_call_or_not_at_all(made: str) -> None:
    items = eval(made, {"itertools": itertools})

    def of_a_closure(x: Any) -> Any:
        return np.sum(x) * np.sum(next(items))

    def given(x: Any, numbers: Any) -> Any:
        return np.sum(x) * np.sum([n for n, _ in zip(numbers, range(1), strict=False)])

    x = np.ones(2)
    with pytest.raises(TraceError, match=r"takes from a .* that was there before"):
        gradof.grad(of_a_closure)(x)
    with pytest.raises(TraceError, match=r"takes from a .* that was there before"):
        gradof.grad(given)(x, items)

    def of_its_own(x: Any) -> Any:
        (first, *_) = zip(x, range(2), strict=True)
        return np.sum(x) * first[0]

    np.testing.assert_allclose(gradof.grad(of_its_own)(x), [3.0, 1.0])


def test_gradients_with_a_number_of_the_state() -> None:
    space = _space(PROGRAMS["a counter and a weight on self"][0])
    compiled, x = gradof.value_and_grad(space["f"]), np.array([1.0, 2.0])
    for n in range(1, CALLS):
        np.testing.assert_allclose(compiled(x)[1], 2 * x * 0.9**n / n)


def test_a_trace_that_is_only_looked_at_writes_nothing() -> None:
    space = _space(PROGRAMS["a counter and a weight on self"][0])
    compiled = gradof.differentiate(space["f"])
    compiled.explain(np.ones(3))
    compiled.trace(np.ones(3))
    assert space["kept"]() == (0, 1.0, [])


class Table:
    """What nobody can make again without its constructor."""

    __slots__ = ("rows",)
    rows: Any

    def __new__(cls, rows: Any) -> Table:
        made = super().__new__(cls)
        made.rows = rows
        return made


def test_what_a_graph_cannot_make_is_made_by_the_function() -> None:
    class Model:
        table: Any = None

        def __call__(self, x: Any) -> Any:
            self.table = Table([1, 2])
            return np.sum(x**2)

    model = Model()
    compiled, found = gradof.grad(model), []
    for n in range(4):
        np.testing.assert_allclose(compiled(np.full(2, float(n))), np.full(2, 2.0 * n))
        found.append(model.table)
    assert len({id(table) for table in found}) == 4 and compiled.cache_info().misses == 1


def test_an_array_that_is_written_to_and_read_under_another_name_is_refused() -> None:
    space = _space("""
total = np.ones(3)
class Other: total = total
def f(x):
    global total
    total += x
    return np.sum(np.sin(Other.total) * x)
""")
    with pytest.raises(TraceError, match=r"into a plain array(.|\n)*hint"):
        gradof.grad(space["f"])(np.ones(3))
    assert space["total"].tolist() == [1.0, 1.0, 1.0]


def test_what_is_made_once_is_traced_twice() -> None:
    tables: dict[str, Any] = {}

    def loss(x: Any) -> Any:
        if "t" not in tables:
            tables["t"] = Table([1, 2])
        return np.sum(x ** tables["t"].rows[1])

    compiled = gradof.grad(loss)
    for n in range(4):
        np.testing.assert_allclose(compiled(np.full(2, float(n))), np.full(2, 2.0 * n))
    assert compiled.cache_info().misses == 2 and isinstance(tables["t"], Table)


def test_objects_that_hold_what_is_traced_are_made_by_the_function() -> None:
    log: list[Any] = []

    def loss(x: Any) -> Any:
        log.append(Table(x * 2))
        return np.sum(x)

    compiled = gradof.grad(loss)
    for n in range(3):
        compiled(np.full(2, float(n)))
    assert [table.rows.tolist() for table in log] == [[0.0, 0.0], [2.0, 2.0], [4.0, 4.0]]
    assert compiled.cache_info().misses == 1
