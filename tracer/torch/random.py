"""torch's random state, where the traced function sets it itself.

    torch.manual_seed(7)                     random_seed[seed=7]()
    with torch.random.fork_rng(): ...        %s : u8[5056] = random_state[...](); ...
                                             set_random_state(%s)

Seeding is no op that the dispatcher sees, and a seed that was left out would change every draw
after it. All of torch's functions for it go through `torch.random.default_generator`, and
`torch.cuda.default_generators` for devices, which are other objects while a trace runs.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from gradof.errors import TraceError, UnsupportedOpError
from gradof.ir.core import Graph, Value
from gradof.ir.opinfo import has_trait
from gradof.ir.types import TensorType
from gradof.tracer.aten.types import type_of
from gradof.tracer.state.source import user_loc
from gradof.tracer.torch.functional import plainly
from gradof.tracer.torch.recorder import Recorder


@dataclass(frozen=True)
class GeneratorState:
    """The state of a generator of the caller's own: read before each call, set after it."""

    generator: torch.Generator
    name: str = "generator"

    def read(self, fn: Any) -> torch.Tensor:
        """The state as it is now, a fresh tensor."""
        return self.generator.get_state()

    def __str__(self) -> str:
        return "the state of a torch.Generator"


def drawn_from(graph: Graph) -> tuple[torch.Generator, ...]:
    """torch's own generators that a graph may draw from."""
    devices: dict[str, None] = {}
    for node in graph.walk():
        if has_trait(node.kind, "random") or node.kind in ("Opaque", "library_call"):
            types = (value.type for value in (*node.inputs, *node.outputs))
            devices.update((t.device, None) for t in types if isinstance(t, TensorType))
    found = [torch.default_generator] if devices else []
    for name in devices:
        device = torch.device(name)
        if device.type == "cuda":  # a device that is not there, of fake tensors, has none
            place = device.index or 0
            found += torch.cuda.default_generators[place : place + 1]
    return tuple(found)


def id_of(generator: torch.Generator) -> int:
    """What tells generators apart: several Python objects may stand for one."""
    which: Any = generator
    return int(which._cdata)


AddInput = Callable[[torch.Tensor, GeneratorState], Value]


class OwnGenerators:
    """Generators that are passed to ops. A draw from one is a draw from torch's own in its state.

        %outer = random_state[...](); set_random_state(%g)
        %r = uniform[...]()
        %g' = random_state[...](); set_random_state(%outer)

    The state is an input of the graph, and what it is in the end an output, written back. Where the
    function seeds one, its state is that of the seed from there on.

    `leads_to` says whether the function or an argument leads to a generator, which is otherwise
    made by the call.
    """

    def __init__(
        self, recorder: Recorder, add_input: AddInput, leads_to: Callable[[torch.Generator], bool]
    ) -> None:
        self.recorder = recorder
        self.add_input = add_input
        self.leads_to = leads_to
        self.states: dict[torch.Generator, Value] = {}
        self._before: dict[torch.Generator, torch.Tensor] = {}
        self._now: dict[torch.Generator, torch.Tensor] = {}
        self._seeded: set[torch.Generator] = set()  # since the last draw
        self._met: dict[int, torch.Generator] = {}  # what an op gets may be another object for one

    def hear(self, function: Any) -> None:
        """A function in C is about to be called: it may seed a generator."""
        given = getattr(function, "__self__", None)
        if isinstance(given, torch.Generator) and function.__name__ == "manual_seed":
            generator = self._met.setdefault(id_of(given), given)
            if generator not in self._before:
                self._before[generator] = _state_of(generator)
            self._seeded.add(generator)

    @contextlib.contextmanager
    def drawing(self, given: torch.Generator) -> Iterator[None]:
        """What is drawn inside is recorded as drawn from this generator."""
        generator = self._met.setdefault(id_of(given), given)
        default = _Default(self.recorder, _index(generator))
        outer, _ = default.read()
        default.set(self._state(generator, default, outer))
        yield
        self.states[generator], _ = default.read()
        default.set(outer)
        self._now[generator] = _state_of(generator)

    def _state(self, generator: torch.Generator, default: _Default, outer: Value) -> Value:
        """What the generator is at: what it was before the call, after a draw, or of a seed."""
        if generator in self._seeded:
            self._seeded.discard(generator)
            seed = generator.initial_seed()
            self._check(generator, _state_of(torch.Generator(generator.device).manual_seed(seed)))
            self._admit(generator)
            default.seed(seed)
            self.states[generator], _ = default.read()
            default.set(outer)
        elif generator in self.states:
            self._check(generator, self._now[generator])
        else:
            state = _state_of(generator)
            fresh = _same(state, _state_of(torch.Generator(generator.device)))
            if fresh and not self.leads_to(generator):
                raise TraceError(
                    "a torch.Generator that the function makes is drawn from", loc=user_loc(),
                    hint="seed it, or make it outside the traced function",
                )
            self._before[generator] = state
            self._admit(generator)
        return self.states[generator]

    def _admit(self, generator: torch.Generator) -> None:
        """Make the state before the call an input."""
        if generator not in self.states:
            state = self._before[generator]
            self.states[generator] = self.add_input(state, GeneratorState(generator))

    def settle(self) -> None:
        """Record seeds that no draw has followed."""
        for generator in list(self._seeded):
            with self.drawing(generator):
                pass

    def restore(self) -> None:
        """The generators are as before the trace; TraceError if something else moved one."""
        try:
            for generator, now in self._now.items():
                self._check(generator, now)
        finally:
            for generator, state in self._before.items():
                generator.set_state(state)

    def _check(self, generator: torch.Generator, state: torch.Tensor) -> None:
        if not _same(_state_of(generator), state):
            raise TraceError(
                "a torch.Generator is seeded, or drawn from, where a trace does not see it",
                loc=user_loc(), hint="seed it outside the traced function",
            )


def _state_of(generator: torch.Generator) -> torch.Tensor:
    """Its state, a tensor that is none of the trace's."""
    with _disable_current_modes(), plainly():
        return generator.get_state()


def _same(state: torch.Tensor, other: torch.Tensor) -> bool:
    with _disable_current_modes(), plainly():
        return torch.equal(state, other)


def _index(generator: torch.Generator) -> int | None:
    """The device of a generator: None for the CPU, else the number of the CUDA device."""
    if generator.device.type == "cpu":
        return None
    if generator.device.type != "cuda":
        raise UnsupportedOpError(
            f"a generator on {generator.device}", loc=user_loc(), hint="use torch.manual_seed"
        )
    index = generator.device.index
    return torch.cuda.current_device() if index is None else index


class _Default:
    """The nodes for torch's default generator of one device; `index` is None for the CPU."""

    def __init__(self, recorder: Recorder, index: int | None) -> None:
        self.recorder = recorder
        self.kind = "" if index is None else "cuda_"
        self.attrs: dict[str, Any] = {} if index is None else {"generator": index}
        every: Any = torch.cuda.default_generators if index is not None else None
        self.generator: Any = torch.default_generator if index is None else every[index]

    def read(self) -> tuple[Value, torch.Tensor]:
        """A node for the state, and the state as it is now."""
        # past what records: torch.Generator's own
        generator = getattr(self.generator, "plain", self.generator)
        state: torch.Tensor = generator.get_state()
        type_ = type_of(state)
        value = self.recorder.builder.emit(
            f"{self.kind}random_state", shape=type_.shape, dtype=type_.dtype, device=type_.device,
            **self.attrs,
        )  # fmt: skip
        self.recorder.varying.add(value)
        return value, state

    def set(self, state: Value) -> None:
        """A node that sets it."""
        self.recorder.builder.emit_node(f"set_{self.kind}random_state", state, **self.attrs)

    def seed(self, seed: int) -> None:
        """A node that seeds it."""
        self.recorder.builder.emit_node(f"{self.kind}random_seed", seed=seed, **self.attrs)


class RecordedGenerator:
    """torch's default generator of a device within a trace; what it is told is recorded.

    Other threads see it as well, and what they tell the generator is none of the trace's: it is
    told so, and once more when the trace has put it back.
    """

    def __init__(self, generator: torch.Generator, recorder: Recorder) -> None:
        self.plain = generator
        self._recorder = recorder
        self._nodes = _Default(recorder, _index(generator))
        self._thread = threading.get_ident()

    def manual_seed(self, seed: int) -> torch.Generator:
        """As `torch.Generator.manual_seed`."""
        if self._is_elsewhere():
            return self._told(self.plain.manual_seed(seed))
        self._settle()
        self._nodes.seed(int(seed))
        return self.plain.manual_seed(seed)

    def get_state(self) -> torch.Tensor:
        """As `torch.Generator.get_state`; the tensor stands for the state of each call."""
        if self._is_elsewhere():
            return self.plain.get_state()
        self._settle()
        value, state = self._nodes.read()
        self._recorder.bind(state, value)
        return state

    def set_state(self, state: torch.Tensor) -> torch.Generator:
        """As `torch.Generator.set_state`."""
        if self._is_elsewhere():
            return self._told(self.plain.set_state(state))
        loc = user_loc()
        if self._recorder.find(state) is None:
            raise UnsupportedOpError(
                "the random state is set to a tensor that is not what get_rng_state gave", loc=loc,
                hint="set it before the call, or use torch.manual_seed",
            )  # fmt: skip
        self._settle()
        self._nodes.set(self._recorder.value(state, loc))
        return self.plain.set_state(state)

    def _is_elsewhere(self) -> bool:
        return threading.get_ident() != self._thread

    def _told(self, generator: torch.Generator) -> torch.Generator:
        self._recorder.seeded_elsewhere[generator] = generator.get_state()
        return generator

    def _settle(self) -> None:
        """Draws that wait come before what is done to the generator."""
        with self._recorder.pause(), plainly():
            self._recorder.deferred.settle_draws()
        self._recorder.builder.loc = user_loc()

    def __getattr__(self, name: str) -> Any:
        if self._is_elsewhere():
            return getattr(self.plain, name)

        def refuse(*args: Any, **kwargs: Any) -> Any:
            raise UnsupportedOpError(
                f"{name} of torch's random generator cannot be traced", loc=user_loc(),
                hint="call it outside the traced function",
            )  # fmt: skip

        return refuse  # not at once: torch's own modules look methods up when they are imported


@contextlib.contextmanager
def recorded_seeds(recorder: Recorder) -> Iterator[None]:
    """Inside, seeding torch's default generator becomes part of the graph."""
    module: Any = torch.random
    generator = module.default_generator
    module.default_generator = torch.default_generator = RecordedGenerator(generator, recorder)  # type: ignore[assignment]
    try:
        yield
    finally:
        module.default_generator = torch.default_generator = generator
