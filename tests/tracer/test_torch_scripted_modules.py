"""Modules of torch.jit inside traced code: what they hold is read at each call, as of others."""

import copy
import io
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

import gradof
from gradof.errors import UnsupportedOpError

# torch.jit.script is to be torch.compile's, says torch
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
Tensor = torch.Tensor


class Net(nn.Module):
    """A layer twice, a buffer, a tensor that is none, settings, lists, and a method besides."""

    table: Tensor
    shifts: list[Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.scale, self.power, self.terms = 0.5, 2, [1, 2]
        self.loose, self.nothing = torch.ones(3), None
        self.shifts = [torch.zeros(3), torch.ones(3)]
        self.register_buffer("table", torch.linspace(0.0, 1.0, 3))

    def forward(self, x: Tensor) -> Tensor:
        parts = [self.first(x)]  # a list of its own may be changed
        parts.append(x.sin())
        x = (parts[0] + parts[1]) * self.scale
        if self.power > 1:
            x = x**self.power
        for term in self.terms:
            x = x + term
        if self.nothing is not None:
            x = x * 3
        for shift in self.shifts:
            x = x + shift
        if self.training:
            self.table.mul_(0.9).add_(x.detach().mean(0))
        y: Tensor = self.second(torch.tanh(x)) * self.table + self.loose
        return y


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(2)])
        self.norm = nn.BatchNorm1d(3)
        self.scales = nn.ParameterList([torch.ones(3), torch.ones(3)])  # by the names "0" and "1"

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.sigmoid(layer(x))
        for scale in self.scales:
            x = x * scale
        y: Tensor = self.norm(x)
        return y


class Recurrent(nn.Module):
    """A layer whose weights torch has in a list, too."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.drop = nn.GRU(3, 3), nn.Dropout(0.3)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.drop(self.cell(x.unsqueeze(1))[0].squeeze(1))
        return y


class Around(nn.Module):
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner, self.weight = inner, nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Any:
        return torch.tanh(self.inner(x)) * self.weight


def scripted(module: nn.Module) -> Any:
    script: Any = torch.jit.script
    return script(module)


def loaded(module: nn.Module) -> Any:
    file, jit = io.BytesIO(), _jit()
    jit.save(scripted(module), file)
    file.seek(0)
    return jit.load(file)


def traced(module: nn.Module) -> Any:
    return _jit().trace(module.eval(), torch.ones(4, 3))


def _jit() -> Any:
    return torch.jit


_exported: Callable[[Any], Any] = _jit().export
_ignored: Callable[[Any], Any] = _jit().ignore

def check(plain: Any, module: Any, change: Callable[[Any, int], None] | None, runs: int) -> Any:
    """Values, gradients to second order and buffers are those of the plain module; the counts."""
    compiled: Any = gradof.differentiate(module, strict=True)
    for i in range(runs):
        torch.manual_seed(-i - 1)
        x, seed = torch.randn(4, 3), torch.randn(4, 3)
        found = []
        for call, of in ((plain, plain), (compiled, module)):
            if change is not None:
                change(of, i)
            parameters = dict(of.named_parameters())
            torch.manual_seed(i)
            leaf = x.clone().requires_grad_()
            inputs = [leaf, *(parameters[name] for name in sorted(parameters))]
            value = call(leaf)
            first = torch.autograd.grad(value, inputs, seed, create_graph=True)
            total: Any = sum(g.square().sum() for g in first)
            second = torch.autograd.grad(total, inputs, allow_unused=True)
            buffers = dict(of.named_buffers())
            found.append([value, *first, *second, *(buffers[name] for name in sorted(buffers))])
        for have, want in zip(*reversed(found), strict=True):
            torch.testing.assert_close(have, want)
    info = compiled.cache_info()
    assert info.eager_runs == 0 and info.backward_runs >= 2 * runs
    return info


@pytest.fixture(autouse=True)
def _double() -> Any:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize("made", [scripted, loaded])
@pytest.mark.parametrize("kind", [Net, Normed, Recurrent])
def test_as_the_module_itself(kind: Any, made: Any, within: bool) -> None:
    plain = kind()
    module = made(copy.deepcopy(plain))
    if within:
        plain, module = Around(plain), Around(module)
    assert check(plain, module, None, 4).misses <= 2


@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize("kind", [Net, Normed])
def test_one_of_torch_jit_trace(kind: Any, within: bool) -> None:
    plain = kind().eval()
    module = traced(copy.deepcopy(plain))
    if within:
        plain, module = Around(plain), Around(module)
    assert check(plain, module, None, 4).misses == 1


def test_one_that_is_frozen() -> None:
    plain = Net().eval()
    module = _jit().freeze(scripted(copy.deepcopy(plain)))
    compiled: Any = gradof.differentiate(module, strict=True)
    for _ in range(3):
        x = torch.randn(4, 3, requires_grad=True)
        values = compiled(x), plain(x)
        torch.testing.assert_close(*values)
        torch.testing.assert_close(*[torch.autograd.grad(v.sin().sum(), x)[0] for v in values])
    assert compiled.cache_info().misses == 1


def _trains(module: Any, i: int) -> None:
    module.train(i % 2 == 0)


def _sets_numbers(module: Any, i: int) -> None:
    module.inner.power, module.inner.scale = 1 + i % 2, 0.5 + i % 2


def _sets_a_list(module: Any, i: int) -> None:
    module.inner.terms = [1, i % 2]


def _sets_a_tensor(module: Any, i: int) -> None:
    module.inner.loose = torch.full((3,), float(i))


def _sets_tensors(module: Any, i: int) -> None:
    module.inner.shifts = [torch.full((3,), float(i)), torch.ones(3)]


def _writes(module: Any, i: int) -> None:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(0.9)


@pytest.mark.filterwarnings("ignore::gradof.errors.RetraceWarning")
@pytest.mark.parametrize("change, most", [
    (_trains, 2), (_sets_numbers, 6), (_sets_a_list, 6), (_sets_a_tensor, 1), (_sets_tensors, 1),
    (_writes, 1),
])  # fmt: skip
def test_what_it_holds_is_read_again(change: Any, most: int) -> None:
    plain = Around(Net())
    module = copy.deepcopy(plain)
    module.inner = scripted(module.inner)
    assert check(plain, module, change, 6).misses <= most


def test_other_methods_and_modules_of_one() -> None:
    class Methods(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.weight = nn.Linear(3, 3), nn.Parameter(torch.ones(3))

        @_exported
        def scaled(self, x: Tensor, k: float) -> Tensor:
            return x * self.weight * k

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.scaled(self.layer(x), 2.0)
            return y

    plain = Methods()
    module = scripted(copy.deepcopy(plain))

    class Uses(nn.Module):
        def __init__(self, of: Any) -> None:
            super().__init__()
            self.of = of

        def forward(self, x: Tensor) -> Any:
            return self.of.scaled(x, k=3.0) + self.of.layer(x).sin() + self.of(x)

    check(Uses(plain), Uses(module), None, 3)


class Pair(NamedTuple):
    first: Tensor
    second: Tensor | None


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor, scales: dict[str, Tensor]) -> tuple[Pair, list[Tensor]]:
        y = self.layer(x) * scales["a"]
        if bool(y.sum() > 0):
            return Pair(y, None), [x.sin()]
        return Pair(y.sin(), y), [x, x * 2]


def test_branches_by_value_and_named_results() -> None:
    plain = Branches()
    module = scripted(copy.deepcopy(plain))
    compiled: Any = gradof.differentiate(module, strict=True)
    for i in range(6):
        x = torch.full((2, 3), 1.0 + i, requires_grad=True)
        scales = {"a": torch.full((3,), (-1.0) ** i)}
        found = []
        for call in (plain, compiled):
            pair, rest = call(x, scales)
            assert type(pair)._fields == Pair._fields
            leaves = [t for t in (*pair, *rest) if t is not None]
            total: Any = sum(leaf.square().sum() for leaf in leaves)
            found.append([*leaves, *torch.autograd.grad(total, x)])
        assert len(found[0]) == len(found[1])
        torch.testing.assert_close(*found)
    assert compiled.cache_info().misses == 2 and compiled.cache_info().backward_runs == 6


class Sets(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * self.calls


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scales = {"a": 2.0}

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scales["a"]


class Ignoring(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Identity()

    @_ignored
    def doubled(self, x: Tensor) -> Tensor:
        return x * 2

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.doubled(self.layer(x))
        return y


class Appending(nn.Module):
    calls: list[float]

    def __init__(self) -> None:
        super().__init__()
        self.calls = [1.0]

    def forward(self, x: Tensor) -> Tensor:
        self.calls.append(2.0)
        return x * len(self.calls)


CASES = [
    (Appending, "may change calls, a list"), (Sets, "sets an attribute"),
    (Named, "reads scales, a dict"), (Ignoring, "calls a function of Python's"),
]  # fmt: skip


def test_what_cannot_be_read_again_is_not_followed() -> None:
    for kind, text in CASES:
        module = scripted(kind())
        with pytest.raises(UnsupportedOpError, match=text):
            gradof.differentiate(module, strict=True)(torch.ones(3))
        for call in (2.0, 4.0):  # as eager has it
            with pytest.warns(gradof.errors.EagerWarning, match=text):
                value = gradof.differentiate(lambda x, m=module: m(x))(torch.ones(3))
            changes = {Sets: call / 2, Appending: 1.0 + call / 2}
            assert value[0] == changes.get(kind, 2.0)


def test_an_attribute_that_the_function_sets() -> None:
    module = scripted(Net())

    def sets(x: Tensor) -> Any:
        module.scale = module.scale + 1.0
        return module(x)

    with pytest.raises(UnsupportedOpError, match=r"scale of a module of torch\.jit is set"):
        gradof.differentiate(sets, strict=True)(torch.ones(2, 3))
    assert module.scale == 0.5
