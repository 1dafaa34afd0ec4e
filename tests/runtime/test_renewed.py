"""Objects of Python's state that are others at each call: Note [Renewed objects]."""

from __future__ import annotations

import dataclasses
import enum
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from gradof import differentiate, value_and_grad
from gradof.errors import RetraceWarning


class Context:
    def __init__(self, training: bool = True, scale: float = 2.0, **more: Any) -> None:
        self.training, self.scale = training, scale
        vars(self).update(more)


class Mode(enum.Enum):
    A, B, C = 1, 2, 3


class Run:
    def __init__(self) -> None:
        self.context: Any = Context()
        self.other: Any = None
        self.stack: list[Any] = [Context()]
        self.w = torch.linspace(-1, 1, 4, dtype=torch.float64, requires_grad=True)


run = Run()


def read(x: Any) -> Any:
    y = (x * run.w).tanh() * run.context.scale
    return y.sum() if run.context.training else y.square().sum()


def of_a_list(x: Any) -> Any:
    return (x * run.w).sum() * run.stack[-1].scale


def of_tensors(x: Any) -> Any:
    return (x * run.w + run.context.bias).tanh().sum()


def nested(x: Any) -> Any:
    return (x * run.w).tanh().sum() * run.context.inner.scale


def counts(x: Any) -> Any:
    run.context.seen = getattr(run.context, "seen", 0) + 1
    run.context.last = (x * run.w).sum()
    return run.context.last * run.context.seen


def takes_away(x: Any) -> Any:
    scale = run.context.scale
    del run.context.scale
    return (x * run.w).sum() * scale


def of_options(x: Any) -> Any:
    options, (first, *_) = run.context.options, run.context.parts
    y = (x * run.w).tanh() * options["scale"] * first
    return y.sum() if options["inner"]["sums"] else y.square().sum()


def grows(x: Any) -> Any:
    run.context.parts.append((x * run.w).sum())
    return run.context.parts[-1] * run.context.parts[0]


def compared(x: Any) -> Any:
    y = x * run.w
    return y.sum() if run.context is run.other else y.square().sum() * run.other.scale


def hands_on(x: Any) -> Any:
    return (x * run.w).sum(), run.context


def puts_another(x: Any) -> Any:
    run.context.scale = 4.0
    run.context = Context(scale=7.0)
    return (x * run.w).sum() * run.context.scale


def puts_a_fresh_one(x: Any) -> Any:
    scale = run.context.scale
    run.context = Context(scale=scale + 1.0, kept=(x * run.w).sum())
    return run.context.kept * scale


def copies_all(x: Any) -> Any:
    before, run.context = run.context, Context(names=set(), parts=[])
    run.context.names.update(before.names)
    run.context.names.add("d")
    run.context.parts.extend(before.parts)
    before.parts = []
    return (x * run.w).sum() * len(run.context.names) + run.context.parts[0]


def adds_to_the_set(x: Any) -> Any:
    run.context.names.add("d")
    run.context.names.discard("a")
    return (x * run.w).sum() * len(run.context.names) + run.context.parts[0]


def of_a_set(i: int) -> Context:
    return Context(names={"a", "b"} if i % 3 else {"c"}, parts=[3.0, 4.0])


def state_of(context: Any) -> Any:
    found = {}
    for name, value in sorted(vars(context).items()):
        found[name] = value.detach().clone() if isinstance(value, torch.Tensor) else (
            state_of(value) if isinstance(value, Context) else
            [float(torch.as_tensor(part).detach()) for part in value] if name == "parts" else
            [ord(part) for part in sorted(value)] if isinstance(value, set) else value)  # fmt: skip
    return found


def same(ours: Any, eager: Any) -> None:
    if isinstance(eager, tuple):
        assert ours[1] is run.context
        ours, eager = ours[0], eager[0]
    torch.testing.assert_close(ours, eager)
    (have,) = torch.autograd.grad(ours, run.w, retain_graph=True)
    (want,) = torch.autograd.grad(eager, run.w, retain_graph=True)
    torch.testing.assert_close(have, want)


def bias(i: int) -> Context:
    return Context(bias=torch.full((4,), float(i), dtype=torch.float64))


def options(i: int) -> Context:
    inner = {"sums": i % 4 != 0, "sizes": [1, 2]}
    return Context(options={"scale": 2.0, "inner": inner}, parts=[3.0, 4.0])


PROGRAMS: list[tuple[Callable[[Any], Any], Callable[[int], Any], int]] = [
    (read, lambda i: Context(training=i % 2 == 0), 3),
    (read, lambda i: Context(scale=1.0 + i), 3),
    (of_a_list, lambda i: Context(), 2),
    (of_tensors, bias, 2),
    (nested, lambda i: Context(inner=Context()), 2),
    (of_options, options, 3),
    (grows, options, 2),
    (counts, lambda i: Context(), 2),
    (takes_away, lambda i: Context(), 2),
    (compared, lambda i: Context(), 3),
    (hands_on, lambda i: Context(), 2),
    (puts_a_fresh_one, lambda i: Context(), 2),
    (puts_another, lambda i: Context(), 2),
    (copies_all, of_a_set, 3),
    (adds_to_the_set, of_a_set, 3),
]


@pytest.mark.parametrize(("fn", "make", "traces"), PROGRAMS)
def test_each_call_has_an_object_of_its_own(
    fn: Callable[[Any], Any], make: Callable[[int], Any], traces: int
) -> None:
    compiled = differentiate(fn)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RetraceWarning)  # of those that cannot be renewed
        for i in range(8):
            x = torch.linspace(0.5, 2.0 + i, 4, dtype=torch.float64)
            found = []
            for f in (fn, compiled):
                run.context = given = make(i)
                run.other = given if i % 3 else make(i)
                run.stack[-1] = given
                result = f(x)
                found.append((result, state_of(given), state_of(run.context)))
            same(found[1][0], found[0][0])
            torch.testing.assert_close(found[1][1:], found[0][1:])
    info = compiled.cache_info()
    assert (info.misses, info.eager_runs) == (traces, 0)


def test_what_an_object_lacks_and_its_class_are_looked_at() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * getattr(run.context, "late", 1.0)

    class Other(Context):
        late = 5.0

    compiled, x = differentiate(fn), torch.ones(3)
    makes: list[Callable[[], Any]] = [
        Context, Context, Context, lambda: Context(late=3.0), Context, Other, Context,
        lambda: SimpleNamespace(late=2.0),
    ]  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RetraceWarning)  # of as many changes
        for make in makes:
            run.context = make()
            torch.testing.assert_close(compiled(x), fn(x))


def test_a_tuple_of_objects_that_is_gone() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * (run.other[0].scale if run.other else 1.0)

    compiled, x = differentiate(fn), torch.ones(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RetraceWarning)
        for other in [(Context(),), None, (Context(scale=3.0),), (Context(scale=3.0),), (), None]:
            run.other = other
            torch.testing.assert_close(compiled(x), fn(x))


def test_a_tuple_of_tensors_that_is_gone() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * (run.other[0] if run.other else run.w[:3].detach())

    compiled, x = differentiate(fn), torch.ones(3)
    pair = (torch.full((3,), 2.0), 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RetraceWarning)
        for other in [pair, pair, pair, None, None, pair, (torch.zeros(3), 1), (), None]:
            run.other = other
            torch.testing.assert_close(compiled(x), fn(x))


def test_members_of_an_enumeration_are_who_they_are() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * {Mode.A: 1.0, Mode.B: 2.0, Mode.C: 3.0}[run.context]

    compiled, x = differentiate(fn), torch.ones(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RetraceWarning)
        for mode in [Mode.A, Mode.B, Mode.C, Mode.A, Mode.C]:
            run.context = mode
            torch.testing.assert_close(compiled(x), fn(x))


def test_an_object_in_a_closure_of_a_numpy_function() -> None:
    context = Context()

    def fn(x: np.ndarray[Any, Any]) -> Any:
        return (np.tanh(x) * context.scale).sum()

    compiled = value_and_grad(fn)
    for i in range(6):
        context = Context(scale=3.0)
        x = np.linspace(0.0, 1.0 + i, 5)
        value, slope = compiled(x)
        np.testing.assert_allclose(value, fn(x))
        np.testing.assert_allclose(slope, 3.0 / np.cosh(x) ** 2)
    assert compiled.cache_info().misses <= 2


def test_one_that_is_an_argument_as_well_or_elsewhere_counts_as_who_it_is() -> None:
    def fn(x: torch.Tensor, given: Context) -> Any:
        return x * given.scale + run.context.scale

    compiled, x = differentiate(fn), torch.ones(3)
    for i in range(5):
        run.context = Context(scale=1.0 + i)
        torch.testing.assert_close(compiled(x, run.context), fn(x, run.context))
        torch.testing.assert_close(compiled(x, Context()), fn(x, Context()))


class Lenient(Context):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return 7.0


WHOLE: dict[str, Callable[[Any], Any]] = {
    "vars": lambda x: x * sum(vars(run.context).values()),
    "__dict__": lambda x: x * sum(run.context.__dict__.values()),
    "inner": lambda x: x * sum(vars(run.context.inner).values()),
    "a list": lambda x: x * sum(sum(vars(each).values()) for each in run.stack),
    "made up": lambda x: x * run.other.late,
}


@pytest.mark.parametrize("is_fresh", [False, True])
@pytest.mark.parametrize("name", WHOLE)
def test_attributes_that_no_name_in_the_code_says(name: str, is_fresh: bool) -> None:
    fn, x = WHOLE[name], torch.ones(3)
    run.context, run.other = Context(inner=0.0), Lenient()
    if name == "inner":
        run.context.inner = Context()
    compiled = differentiate(fn)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of as many changes
        for i in range(6):
            if is_fresh:
                run.context, run.other = Context(inner=0.0), Lenient()
                if name == "inner":
                    run.context.inner = Context()
            held = run.context.inner if name == "inner" else run.context
            held.training, held.scale = i % 2, float(i // 2)
            run.stack[-1] = held if name == "a list" else Context()
            if i == 4:
                run.other.late = held.late = 3.0
            torch.testing.assert_close(compiled(x), fn(x))


class Slots:
    __slots__ = ("scale",)

    def __init__(self, scale: float) -> None:
        self.scale = scale


def of_anything(x: torch.Tensor) -> torch.Tensor:
    held = run.context
    if held is None:
        return x
    return x * (held if isinstance(held, (int, float, torch.Tensor)) else held.scale)


def test_what_is_no_such_object_counts_as_ever_where_one_was() -> None:
    slots, x = Slots(5.0), torch.ones(2)
    compiled = differentiate(of_anything)
    held = [Context(), Context(), Context(), None, 4.0, 3, 5.5, None, torch.full((2,), 2.0),
            Context(scale=3.0), slots, slots, Context(), None]  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of as many changes
        for i, run.context in enumerate(held):
            if i == 11:
                slots.scale = 6.0
            torch.testing.assert_close(compiled(x), of_anything(x))


def test_a_set_of_another_type_of_numbers_is_another_set() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return (x * run.w).sum() * (2.0 if any(n is True for n in run.context.names) else 3.0)

    compiled = differentiate(fn)
    x = torch.ones(4, dtype=torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RetraceWarning)
        for names in ({1}, {1}, {1}, {True}, {1}, {1.0}):
            run.context = Context(names=set(names))
            torch.testing.assert_close(compiled(x), fn(x))


@dataclasses.dataclass
class Options:
    rate: float = 0.1
    step: int = 0


@pytest.mark.parametrize("library", ["torch", "numpy"])
def test_a_counter_in_an_object_that_is_replaced(library: str) -> None:
    """A number of the object that was there is no number of the one that has its place."""

    def run(compiled: bool) -> list[Any]:
        box = SimpleNamespace(options=Options())

        def f(x: Any) -> Any:
            box.options.step += 1
            return (x * (1 - box.options.rate) ** box.options.step).sum()

        g = differentiate(f, strict=True) if compiled else f
        found: list[Any] = []
        replaced = (None, Options(0.2), None, None, Options(0.2), None, Options(0.3, 5), None)
        for call, other in enumerate(replaced):
            box.options = other or box.options
            x: Any = np.linspace(0.5, 1, 5 if call == 1 else 4)
            value = g(x if library == "numpy" else torch.from_numpy(x).requires_grad_())
            found.append((round(value.item(), 12), box.options.rate, box.options.step))
        return found

    assert run(compiled=True) == run(compiled=False)
