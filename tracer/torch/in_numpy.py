"""torch in a function that is traced as numpy's.

    def loss(a):                                   # a: np.ndarray
        return (a * WEIGHTS.numpy()).sum()         # the elements are constants, and guarded

    def other(a):
        return a * model(POINTS).detach().numpy()  # refused

What torch computes would be a constant, while parameters and random numbers are others at the next
call: the function is then traced as one of torch's (`gradof.runtime.lending`). numpy users may have
no torch: it is never imported here.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gradof.errors import TorchInsideError, TraceError
from gradof.ir.contents import checksum
from gradof.tracer.numpy.active import SURROUNDINGS, active_recorder
from gradof.tracer.numpy.recorder import Recorder
from gradof.tracer.state.origins import Origin
from gradof.tracer.state.reach import Reach
from gradof.tracer.state.reads import Reads
from gradof.tracer.state.source import function_loc, user_loc
from gradof.tracer.state.unheard import quietly


def refuse_torch() -> None:
    """From now on, traces of numpy functions end where torch computes."""
    if _beside_torch not in SURROUNDINGS:
        SURROUNDINGS.append(_beside_torch)


def _error(what: str) -> TorchInsideError:
    return TorchInsideError(
        f"{what} in a function of numpy's", loc=user_loc(),
        hint="pass tensors, or compute it outside and pass it as an array",
    )  # fmt: skip


@contextmanager
def _beside_torch(recorder: Recorder) -> Iterator[None]:
    if "torch" in sys.modules:
        recorder.told.tensors = read = TensorsRead()
        with _mode()(read):
            yield
        if read.error is not None:  # which the function may have caught
            raise read.error
        return
    yield
    if "torch" in sys.modules:
        raise _error("torch is imported")


class ElementsOf(Origin):
    """The elements of a tensor, as an array, where the path leads to it."""

    def read(self, fn: Any) -> Any:
        """The array over its memory."""
        return _array_over(super().read(fn))


class TensorsRead:
    """The tensors whose elements a run has taken over into numpy."""

    def __init__(self) -> None:
        self.error: TorchInsideError | None = None
        self._aliases: dict[int, tuple[Any, Any]] = {}  # by id, kept alive: of which tensor
        self._found: dict[int, tuple[Any, int]] = {}  # by id, with what the elements were

    def refuse(self, what: str) -> None:
        """Raise, now and when the function has returned."""
        self.error = self.error or _error(what)
        raise self.error

    def source(self, tensor: Any) -> Any:
        """The tensor that this is an alias of, or itself."""
        return self._aliases.get(id(tensor), (None, tensor))[1]

    def alias(self, made: Any, tensor: Any) -> Any:
        """Note that one has the elements of another."""
        self._aliases[id(made)] = made, self.source(tensor)
        return made

    def note(self, tensor: Any) -> bool:
        """The elements of a tensor are read, or its shape; False where numpy has no such array."""
        tensor = self.source(tensor)
        if id(tensor) not in self._found:
            try:
                self._found[id(tensor)] = tensor, checksum(_array_over(tensor))
            except (TypeError, RuntimeError):  # bfloat16, sparse, of another device
                return False
        return True

    def content(
        self, fn: Callable[..., Any], reads: Reads, given: Sequence[Any]
    ) -> tuple[tuple[Origin, int], ...]:
        """Where they are, and what they had: the trace holds while they have it.

        Raises TraceError for those that are changed, and that nothing leads to.
        """
        if not self._found:
            return ()
        paths = Reach(reads).find(fn, lambda obj: id(obj) in self._found, given)
        for key, (tensor, before) in self._found.items():
            if key not in paths:
                raise _error("the elements of a tensor that is made inside are read")
            if checksum(_array_over(tensor)) != before:
                raise TraceError(
                    f"{paths[key][1]} is changed in place, which a trace cannot repeat",
                    loc=function_loc(fn), hint="pass it as an argument",
                )  # fmt: skip
        origins = {key: paths[key][1] for key in self._found}
        return tuple(
            (ElementsOf(origins[key].steps, origins[key].place), before)
            for key, (_, before) in self._found.items()
        )


def _array_over(tensor: Any) -> Any:
    torch = sys.modules["torch"]
    with torch._C.DisableTorchFunction():
        return tensor.detach().numpy()


@functools.cache
def _mode() -> Any:
    """The class of the mode that sees calls of torch's API by what is traced."""
    from gradof.tracer.torch.known_calls import DETACHES, METADATA

    torch: Any = sys.modules["torch"]
    tensor = torch.Tensor
    aliases = {*DETACHES, tensor.cpu}
    reads = {tensor.numpy, tensor.__array__, tensor.item, tensor.tolist}

    class Beside(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        """Notes what is read of tensors, and refuses all else."""

        def __init__(self, read: TensorsRead) -> None:
            super().__init__()
            self.read = read

        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if active_recorder() is None:  # a function that only runs, as that of a primitive
                return func(*args, **(kwargs or {}))
            return quietly(self.of_trace, func, args, kwargs or {})  # it may compile a checksum

        def of_trace(self, func: Any, args: Any, kwargs: Any) -> Any:
            """A call by code that is traced."""
            known = func in METADATA or func in aliases or func in reads
            is_plain = bool(args) and type(args[0]).__module__.startswith("torch")
            if not known or not is_plain or not self.read.note(args[0]):
                name = torch.overrides.resolve_name(func) or getattr(func, "__name__", "torch")
                self.read.refuse(f"{name} is called")
            made = func(*args, **kwargs)
            return self.read.alias(made, args[0]) if func in aliases else made

    return Beside
