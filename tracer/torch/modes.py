"""The two modes a function is traced under.

`ApiMode` stands above autograd and sees the torch API as the user calls it: it lifts free tensors,
and refuses what tracing cannot follow. `AtenMode` stands below functionalization and sees every
aten op on plain tensors, in-place ops and views already made functional.

    user ──▶ ApiMode ──▶ autograd ──▶ functionalization ──▶ AtenMode ──▶ Recorder

Note [Cut gradients]
torch decides by object whether a gradient flows (`requires_grad`); the graph decides by value. They
part where a tensor is changed behind autograd's back, which `torch_histories` puts right, and where
a `torch.autograd.Function` replaces the gradient. Every tensor that enters an API call, and every
result, is checked: one that requires grad must not stand for a value that was cut off from all
inputs. The same can happen inside one call of torch: an op that runs without gradients in a call
that was made with them is refused.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from gradof.errors import (
    DataDependentError,
    GradofError,
    TraceError,
    UnsupportedOpError,
)
from gradof.ir.core import Loc
from gradof.tracer.aten.types import type_of
from gradof.tracer.core.number_trees import plain
from gradof.tracer.state.source import Site, caller, user_loc, user_site
from gradof.tracer.state.unheard import heard, unheard
from gradof.tracer.torch.array_tensors import array_over, of_arrays, takes_arrays
from gradof.tracer.torch.attributes import ReadAttributes
from gradof.tracer.torch.decompose import decomposition, refuses_by_itself
from gradof.tracer.torch.functional import inner, is_wrapper, plainly
from gradof.tracer.torch.histories import Histories, wrappers_in
from gradof.tracer.torch.instead import instead
from gradof.tracer.torch.known_calls import (
    CUTS,
    DETACHES,
    FROM_NUMPY,
    GET_DATA,
    METADATA,
    NUMBERS_OUT,
    PRINTS,
    cuts_inside,
)
from gradof.tracer.torch.layout import ASKING as LAYOUT
from gradof.tracer.torch.layout import Layouts
from gradof.tracer.torch.loop_state import TESTS
from gradof.tracer.torch.numbers import READS, TorchNumbers
from gradof.tracer.torch.numpy_memory import NumpyMemory
from gradof.tracer.torch.overrides import INDEXING, OVERRIDES, takes_numbers
from gradof.tracer.torch.overwrites import overwriting
from gradof.tracer.torch.picks import INDEXES, Picks
from gradof.tracer.torch.random import OwnGenerators
from gradof.tracer.torch.recorder import Recorder, data_dependent_shape, knows
from gradof.tracer.torch.refusals import notes_refusals
from gradof.tracer.torch.refused import MAKES_LEAF, SETS_DATA, as_ours, refuse
from gradof.tracer.torch.renorm import RENORMS, renormed
from gradof.tracer.torch.rows import laid_out_as
from gradof.tracer.torch.sizes_apart import torchs_own
from gradof.tracer.torch.transforms import TransformedWrites, gradients_are_off, inside, transformed
from gradof.tracer.torch.versions import ASKS_INFERENCE
from gradof.tracer.torch.windows import WindowViews

Lift = Callable[[torch.Tensor], torch.Tensor]
_TORCHS_OWN = frozenset({"aten", "prims"})  # ops of others may be the user's Python
_CONSTANTS = frozenset({torch.ops.aten.lift_fresh.default, torch.ops.aten.lift.default})
_ASKS = (torch.ops.aten._use_cudnn_ctc_loss, torch.ops.aten._use_miopen_ctc_loss)  # off in a trace
# Tagged as of dynamic shape, for results that depend on the rank; an Opaque node checks it.
_FIXED = frozenset({torch.ops.aten.linalg_lstsq.default})


class AtenMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs every op for real, now or when its elements are asked for, and records it."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # torch's default wraps the handler in a lazy import of torch._dynamo: 1.6 s at the first op
        return False

    def __init__(self, recorder: Recorder, generators: OwnGenerators) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.recorder = recorder
        self.generators = generators
        self.layouts: Layouts
        self.of_numpy: NumpyMemory

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Record one op; see the module docstring."""
        with torch._C.DisableTorchFunction():  # what is done here is not the user's doing
            if self.recorder.paused:
                self.recorder.deferred.settle(args, kwargs)
                return func(*args, **(kwargs or {}))
            run = self._dispatch_unheard if func.namespace in _TORCHS_OWN else self._dispatch
            try:
                return run(func, args, kwargs or {}, user_site(caller(self.recorder.thread)))
            except GradofError as error:
                self.recorder.refused = error
                raise

    def _dispatch(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], site: Site
    ) -> Any:
        if func in _CONSTANTS:
            self._constant(args[0], site)
            return args[0]
        if func.namespace == "profiler" or func.overloadpacket in _ASKS:
            return func(*args, **kwargs)  # record_function: a range of this run, no computation
        deferred = self.recorder.deferred
        if torch.Tag.nondeterministic_seeded in func.tags and args and torch.is_tensor(args[0]):
            self.layouts.drawn(args[0], self.recorder.value(args[0], site.loc))
        if func is torch.ops.aten._local_scalar_dense.default:
            deferred.settle(args)
            number = func(*args, **kwargs)
            self.recorder.read_number(args[0], number, site)
            return number
        made = instead(func, args)
        if made is not None:
            with self:
                return made(func, args, kwargs)
        if torch.Tag.dynamic_output_shape in func.tags and not knows(func) and func not in _FIXED:
            raise data_dependent_shape(func, site)
        if func is torch.ops.aten.native_batch_norm.default:
            return self._batch_norm(args, site)
        if func is torch.ops.aten._linalg_check_errors.default:
            deferred.settle(args)
            self.recorder.checked(args[0])
            return func(*args, **kwargs)  # raises for a singular matrix, as eager does
        if not knows(func):
            out = self._in_parts(func, args, kwargs)
            if out is not NotImplemented:
                return out
        generator = kwargs.get("generator")
        if generator is not None:
            deferred.settle(args, kwargs)
            self.recorder.builder.loc = site.loc
            with self.generators.drawing(generator):
                out = func(*args, **kwargs)
                self.recorder.record(func, args, {**kwargs, "generator": None}, out, site)
            return out
        out = deferred.call(func, args, kwargs)
        if not func._schema.is_mutable and any(out is a for a in args):
            return out  # contiguous() of a contiguous tensor: nothing happened
        self.recorder.record(func, args, kwargs, out, site)
        return out

    _dispatch_unheard = unheard(_dispatch)

    def _in_parts(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """torch's own program for an op; NotImplemented where it has none that can be recorded."""
        parts = decomposition(func)
        if parts is None:
            return NotImplemented
        want = None
        if refuses_by_itself(func):
            self.recorder.deferred.settle(args, kwargs)
            want = func(*args, **kwargs)  # torch's program may accept what the op refuses
        recorder = self.recorder
        before = recorder.graph.block.returns._prev
        recorder.parts += 1
        try:
            with self:  # it may cover some arguments only
                return laid_out_as(parts(*args, **kwargs), want, (args, kwargs), recorder)
        except UnsupportedOpError:
            if recorder.strict or recorder.parts > 1:
                raise
            recorder.roll_back(before)
            return NotImplemented
        finally:
            recorder.parts -= 1

    def _constant(self, tensor: torch.Tensor, site: Site) -> None:
        if self.recorder.find(tensor) is not None:
            return
        # Only numpy's memory is not resizable: this is torch.from_numpy. Once the elements are read
        # off as an array, by `constant`, no other memory is either.
        storage = tensor.untyped_storage()
        start, is_numpys = storage.data_ptr(), not storage.resizable()
        made = is_numpys and self.of_numpy.admit(storage, start, start + storage.nbytes(), site.loc)
        value = self.recorder.constant(tensor, site)
        if is_numpys:
            self.of_numpy.constant(value, made, site.loc)

    def _batch_norm(self, args: tuple[Any, ...], site: Site) -> Any:
        # The op changes its running statistics in place even after functionalization. Its
        # functional twin returns them; the tensors that hold them are pointed at the new ones.
        x, weight, bias, mean, var, training, momentum, eps = args
        call = self.recorder.deferred.call
        if mean is None or not training:
            func = torch.ops.aten.native_batch_norm.default
            out = call(func, args, {})
            self.recorder.record(func, args, {}, out, site)
            return out
        func = torch.ops.aten._native_batch_norm_legit_functional.default
        args = (x, weight, bias, mean, var, True, momentum, eps)
        out = call(func, args, {})
        self.recorder.record(func, args, {}, out, site)
        self.recorder.deferred.settle_readers(mean, var)
        for tensor, new in ((mean, out[3]), (var, out[4])):
            tensor.set_(new)
            self.recorder.bind(tensor, self.recorder.value(new, site.loc))
        return out[:3]


def _shown(arg: Any) -> Any:
    return inner(arg) if isinstance(arg, torch.Tensor) and is_wrapper(arg) else arg


class ApiMode(TorchFunctionMode):
    """Lifts free tensors and refuses what cannot be followed; see the module docstring."""

    def __init__(self, recorder: Recorder, lift: Lift) -> None:
        super().__init__()
        self.recorder = recorder
        self.lift = lift
        self.checking = True
        self.numbers = TorchNumbers(recorder)
        self.windows = WindowViews()
        self.transforms = TransformedWrites()
        self.histories = Histories(recorder)
        self.layouts = Layouts(recorder)
        self.picks = Picks(recorder, self.numbers)
        self.of_numpy = NumpyMemory(recorder)
        self.register_hook: Callable[..., Any]  # see torch_hooks
        self.attributes: ReadAttributes
        self.tested: Callable[..., Any] = lambda *_: NotImplemented  # see loops

    @notes_refusals
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Handle one call of the torch API."""
        func, kwargs = torchs_own(func), kwargs or {}
        if func in METADATA or func in _CONSTANTS:
            if func in LAYOUT and isinstance(args[0], torch.Tensor):
                args = (self.traced(args[0]), *args[1:])
                self.layouts.note(func, args, kwargs)
            return func(*plain(args), **kwargs)
        if refuse(func, args, kwargs, sys._getframe(1), self):
            return None
        if func in PRINTS:
            with self.recorder.pause():
                return heard(func, [_shown(a) for a in args], kwargs)  # print options
        if takes_arrays(func, args, kwargs) and (taken := self._taken(func, args, kwargs)):
            return taken[0]
        if func in FROM_NUMPY:
            self.of_numpy.admit_arrays((*args, *kwargs.values()), user_loc(sys._getframe(1)))
        if func is torch.Tensor.__eq__:
            self.layouts.compared(sys._getframe(1))
        if takes_numbers(func, args, kwargs):
            with self.recorder.pause(), plainly():
                found = func(*args, **kwargs)
                func, args, kwargs = torch.tensor, (found.item(),), {"dtype": found.dtype}
        self.checking = func not in CUTS and not gradients_are_off()
        args = tuple(self._wrapped(a) for a in args)
        kwargs = {k: self._wrapped(v) for k, v in kwargs.items()}
        args = args if func in INDEXING else self.histories.apart(func, args)
        if func == SETS_DATA:
            args = (args[0], self.histories.cut(args[1], is_data=True))
        with self:
            if func in RENORMS:
                args, kwargs = renormed(func, args, kwargs)
            if func in INDEXES:
                func, args, kwargs = self.picks.indexing(func, args, kwargs)
        found = self._found(func, args, kwargs, sys._getframe(1))
        if found is not NotImplemented:
            return found
        if self.numbers.active:
            checking = self.checking
            with self:
                func, args, kwargs = self.numbers.resolve(func, args, kwargs)
            self.checking = checking
        self.layouts.note(func, args, kwargs)
        if func in NUMBERS_OUT:
            raise DataDependentError(
                f"the elements of a traced tensor are taken out of torch by {func.__name__}",
                loc=user_loc(sys._getframe(1)),
                hint="stay in torch inside the function, or do it outside",
            )
        if func is torch.Tensor.register_hook:
            return self.register_hook(*args, **kwargs)
        if func in DETACHES and not transformed(args[0]):
            return self.windows.detached(args[0], self.histories.cut(args[0], func == GET_DATA))
        loc = user_loc(sys._getframe(1))
        self.transforms.watch(func, args, cuts=func in CUTS, loc=loc)
        with overwriting(self.recorder, self.histories, func, args):
            self.of_numpy.called = func
            result = self._run(OVERRIDES.get(func, func), args, kwargs, loc)
        self.layouts.made(func, args or (kwargs.get("input"),), result)
        return result

    def _taken(self, func: Any, args: Any, kwargs: Any) -> tuple[Any] | None:
        with self:
            return of_arrays(func, args, kwargs)

    def _found(self, func: Any, args: Any, kwargs: Any, frame: FrameType) -> Any:
        """What a call gives that reads, picks or takes a number of the graph, or NotImplemented."""
        if func in ASKS_INFERENCE:
            return self.attributes.versions.is_inference(args[0])
        if func in READS:
            return self.numbers.read(func, args[0], frame)
        if func in TESTS:
            return self.tested(func, args, kwargs, frame)
        with self:
            if func is torch.Tensor.numpy:
                return array_over(*args, **kwargs)
            if func in INDEXING:
                return self.picks.resolve(func, args, frame)
            return self.numbers.written(func, args, kwargs)

    def _run(self, func: Any, args: Any, kwargs: Any, loc: Loc | None) -> Any:
        """Run torch's function on wrappers; its errors about traced tensors become ours."""
        outer, self.recorder.no_grad_is_known = self.recorder.no_grad_is_known, (
            gradients_are_off() or func is torch.autograd.grad
        )
        try:
            cutting = not torch.is_grad_enabled() or cuts_inside(func, args, kwargs)
            had = func in MAKES_LEAF and args[0].requires_grad
            calls = self.histories.before(func, list(wrappers_in((args, kwargs))), cutting)
            result = self.windows.watch(func, args, kwargs, loc)
            if not torch.is_grad_enabled():
                self.histories.see_leaves(args, result)
            self.histories.after(calls, result)
            if func == SETS_DATA:
                made = args[0]
                self.histories.given(made)
            elif func in MAKES_LEAF:
                made = None if had else args[0]
                if had and not args[0].requires_grad:
                    self.histories.leaves.let_go(args[0])
            else:  # torch.ones(3, requires_grad=True)
                made = result if kwargs.get("requires_grad") else None
            if isinstance(made, torch.Tensor) and not transformed(made):
                self.histories.make_leaf(made)
            return result
        except (AssertionError, RuntimeError) as error:
            ours = None if isinstance(error, TraceError) else as_ours(error, func, loc)
            if ours is None:
                raise
            raise ours from None
        finally:
            self.recorder.no_grad_is_known, self.of_numpy.called = outer, None

    def _wrapped(self, arg: Any) -> Any:
        if isinstance(arg, torch.Tensor):
            return self.traced(arg)
        if type(arg) in (list, tuple):
            return type(arg)([self._wrapped(a) for a in arg])
        if type(arg) is dict:
            return {k: self._wrapped(v) for k, v in arg.items()}
        return arg

    def traced(self, tensor: torch.Tensor) -> torch.Tensor:
        """The wrapper to use for a tensor: itself, checked, or a lifted free tensor."""
        if transformed(tensor):
            self.traced(inside(tensor, user_loc(sys._getframe(1))))
            return tensor
        if not is_wrapper(tensor):
            tensor = self.lift(tensor)
        if not torch.is_grad_enabled():
            with torch.enable_grad():  # a view may be taken again of what was written to
                inner(tensor)
        self.histories.read(tensor)
        if self.recorder.numpys:
            self.of_numpy.note(tensor)
        if tensor.requires_grad and self.checking:
            self.check_gradient(tensor)
        return tensor

    def check_gradient(self, tensor: torch.Tensor) -> None:
        """Raise where torch and the graph disagree on the gradient; see Note [Cut gradients]."""
        if self.recorder.applying:
            return
        value = self.recorder.find(inner(tensor))
        if value is None or value in self.recorder.attached or value not in self.recorder.cut:
            return
        loc = value.node.loc if value.node is not None else user_loc(sys._getframe(1))
        maker = tensor.grad_fn
        if isinstance(maker, torch.autograd.function.BackwardCFunction):
            name = type(maker).__name__.removesuffix("Backward")
            raise UnsupportedOpError(
                f"{name}, a torch.autograd.Function, is called inside a traced function", loc=loc,
                hint="its backward would be ignored: write its forward as a plain function",
            )  # fmt: skip
        raise TraceError(
            f"a {type_of(tensor)} that requires grad was changed behind autograd's back",
            loc=loc,
            hint="under no_grad, or through .data or .detach(), change only copies of it",
        )
