"""Is a torch program right? Beside eager, to second order, with float64 as the judge.

    judge(program, inputs, Setting(backend="tiles"), seed=3)      # inputs() gives fresh arguments

Note [Fuzzing's bound]
A tensor that is within 64 ulps (4 in half precision) of its own largest number of eager's is
right. Otherwise it may be as far from float64 as eight times eager's distance, or eight times as
far from eager as eager moves when its inputs, its cotangents and the results of all arithmetic
are moved by up to three ulps, by which a number on which everything turns turns, too. Integers
and booleans are equal, unless they move as well. Which results and gradients are None, dtypes,
shapes, and what is left of the inputs have to be eager's exactly; what eager gives in rows has to
lie in rows. A result of constants need not require a gradient that is zero, as it does in eager.
Where a gradient of eager's is nan, ours may be anything: rules that divide by zero do so on
different occasions. Where it is infinite, or a result in float32, ours may be what float64 says.
Where terms of a sum overflow that is finite in float64, it is infinite or nan by the order in which
they are added. Group and batch norms with infinite weights may be anything where eager's are not
finite: it multiplies a mean by the weights. A second derivative of log_softmax in float64 may be
what a probability of 1 is rounded by.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from gradof.errors import EagerWarning, GradofError, OpaqueOpWarning
from gradof.runtime.function import Differentiated
from gradof.runtime.thread import calling_plain
from gradof.testing.closeness import FACTOR, HALF_ULPS, ULPS, distance, largest
from gradof.testing.fuzz.program import Setting, made_from, whole_source, widened
from gradof.testing.fuzz.torch_arrays import (
    apart,
    array,
    eps,
    is_in_rows,
    where_added_up,
    where_finite,
    where_number,
    wide,
)
from gradof.testing.fuzz.torch_noise import Noise
from gradof.testing.fuzz.torch_runs import Run, derivatives
from gradof.testing.fuzz.verdict import Verdict, compiling_for

Tensor = torch.Tensor
NAMES = ("output", "gradient", "second")
MOVES = 6
_KINKS = re.compile(r"\b(prelu|entr)_?\(")  # where they are 0
# Note [Rough in eager]
# In float64 there is no run in more digits. Three things are known to be coarse there: constants
# that are float32, such as 1 / 6; the 1e-12 that a second derivative of binary cross entropy adds
# to what it divides by; and what is added up element by element: variances (Welford), norms of
# expanded rows, and softmax along a first dim, 300 ulps off after 100 000 elements (ours, in
# blocks, 6).
_AT_NAN = re.compile(r"\b(hardtanh|relu6|(hard|soft)shrink|hardswish|(c|s)?elu|i1e?)_?\(")
ROUGH = {"hardsigmoid": 1e-6, "hardswish": 1e-6, "binary_cross_entropy(": 1e-9}
_ONE_BY_ONE = re.compile(r"\b((var|std)(_mean)?|((instance|group|layer|batch|vector)_)?norm|"
                         r"(log_)?soft(max|min))\(")


def judge(
    fn: Callable[..., Any], inputs: Callable[[], tuple[Any, ...]], setting: Setting, seed: int = 0,
    subject: Callable[..., Any] | None = None,
) -> Verdict:  # fmt: skip
    """See the module. `subject` is compiled code of another compiler's, in place of ours."""
    verdict = Verdict()
    with warnings.catch_warnings(), _threads(setting.threads):
        warnings.simplefilter("ignore")
        try:
            theirs, setting = _reference(fn, inputs, setting, seed)
        except Exception as error:  # whatever eager refuses is no program
            verdict.refused = f"{type(error).__name__}: {str(error).splitlines()[:1]}"
            return verdict
        verdict.orders = len(theirs.groups) - 1
        with warnings.catch_warnings(record=True) as heard, compiling_for(setting):
            warnings.simplefilter("always")
            try:
                _compare_runs(verdict, fn, inputs, setting, seed, theirs, subject)
            except Exception as error:  # any error of ours is a finding
                verdict.wrong.append(_error(error))
        eager = [w for w in heard if issubclass(w.category, EagerWarning)]
        verdict.opaque = tuple(str(w.message).split(" has")[0] for w in heard
                               if issubclass(w.category, OpaqueOpWarning))  # fmt: skip
        if eager:
            verdict.eager = str(eager[0].message)
            if "a defect of gradof's" in verdict.eager:
                verdict.wrong.append(verdict.eager.split("autograd: ")[-1].splitlines()[0])
        elif not verdict.wrong and subject is None:
            _require_runs(verdict, theirs)
    return verdict


def _reference(
    fn: Callable[..., Any], inputs: Callable[[], tuple[Any, ...]], setting: Setting, seed: int
) -> tuple[Run, Setting]:
    """Eager's run, of the first order alone where torch has no second derivative."""
    with calling_plain():
        try:
            return derivatives(fn, inputs(), setting.order, seed), setting
        except (RuntimeError, NotImplementedError):
            lower = replace(setting, order=1)
            return derivatives(fn, inputs(), 1, seed), lower


def _error(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"error {type(error).__name__}: {text[0][:300] if text else ''}"


def _require_runs(verdict: Verdict, theirs: Run) -> None:
    info = verdict.compiled.cache_info()
    first = theirs.groups[1] if len(theirs.groups) > 1 else []
    gradients = [g for g in first if g is not None and g.any()]
    if info.eager_runs:
        verdict.eager = "a call ran eagerly"
    elif theirs.computed and gradients and not info.backward_runs:
        verdict.wrong.append("runs our own f and df did not run")


def _compare_runs(
    verdict: Verdict, fn: Callable[..., Any], inputs: Callable[[], tuple[Any, ...]],
    setting: Setting, seed: int, theirs: Run, subject: Callable[..., Any] | None,
) -> None:  # fmt: skip
    run: Callable[..., Any]
    if subject is None:
        run = verdict.compiled = Differentiated(
            fn, memory_budget=setting.memory_budget, numerics=setting.numerics
        )
        if setting.prepare:
            run = _prepared(verdict.compiled, inputs())
    else:
        run = subject(fn)
    for call in range(setting.calls):
        ours = derivatives(run, inputs(), setting.order, seed)
        judged = _Judge(fn, inputs, setting, seed, theirs, ours)
        found = judged.wrong()
        if found:
            again = f" (call {call + 1})" if call else ""
            verdict.wrong += [line + again for line in found]
            return


def _prepared(compiled: Differentiated, args: tuple[Any, ...]) -> Callable[..., Any]:
    """The function for such arguments; as it is where it says that it needs the check."""
    try:
        return compiled.prepare(*args)
    except GradofError:  # what cannot be traced is an EagerWarning of the call
        return compiled


class _Judge:
    """One run of ours beside eager's; see Note [Fuzzing's bound]."""

    def __init__(
        self, fn: Callable[..., Any], inputs: Callable[[], tuple[Any, ...]], setting: Setting,
        seed: int, theirs: Run, ours: Run,
    ) -> None:  # fmt: skip
        self.fn, self.inputs, self.setting, self.seed = fn, inputs, setting, seed
        self.theirs, self.ours = theirs, ours
        self._exact: Run | None = None
        self._moved: list[Run | None] = []

    @functools.cached_property
    def _text(self) -> str:
        """The program; nothing for a function of the library's own."""
        return inspect.getsource(self.fn) if inspect.isfunction(self.fn) else ""

    def wrong(self) -> list[str]:
        """What is wrong, of the lowest order at which anything is."""
        mine, other = self.ours, self.theirs
        if len(mine.groups[0]) != len(other.groups[0]):
            return [f"output {len(mine.groups[0])} results, eager has {len(other.groups[0])}"]
        found = self._exactly(mine, other)
        for k in range(len(other.groups)):
            ours = mine.groups[k] if k < len(mine.groups) else [None] * len(other.groups[k])
            for i, (a, b) in enumerate(zip(ours, other.groups[k], strict=True)):
                line = self._one(k, i, a, b)
                if line:
                    found.append(f"{NAMES[k]} {i}: {line}")
            if found:
                return [] if k == 2 and self._is_at_a_kink() else found
        for i, (a, b) in enumerate(zip(mine.left, other.left, strict=True)):
            line = self._one(-1, i, a, b)
            if line:
                found.append(f"input {i} afterwards: {line}")
        return found

    def _exactly(self, mine: Run, other: Run) -> list[str]:
        found = [
            f"output {i}: requires_grad {a}, eager {b}"
            for i, (a, b) in enumerate(zip(mine.needs, other.needs, strict=True))
            if a and not b  # the other way around, gradients are zero, or they differ
        ]  # fmt: skip
        if not found and self.setting.numerics == "eager":
            found = [
                f"strides {i}: {a}, eager {b}"
                for i, (a, b) in enumerate(zip(mine.strides, other.strides, strict=True))
                if is_in_rows(b, other.groups[0][i]) and not is_in_rows(a, other.groups[0][i])
                and self._is_promised(i, b)
            ]  # fmt: skip
        return found

    def _is_promised(self, i: int, strides: Any) -> bool:
        """Whether eager lays a result out so in a training step, too: max_pool1d does not."""
        args = self.inputs()
        for t in args:
            if isinstance(t, Tensor) and t.is_leaf and t.is_floating_point():
                t.requires_grad_()
        try:
            with calling_plain():
                return bool(derivatives(self.fn, args, 0, self.seed).strides[i] == strides)
        except RuntimeError:  # it changes an argument in place
            return True

    def _one(self, k: int, i: int, mine: Tensor | None, other: Tensor | None) -> str:
        if mine is None or other is None:
            if mine is other:
                return ""
            there = other if mine is None else mine
            assert there is not None
            if mine is None:  # nan is 0 times what eager's rule divides by
                there = torch.where(there == there, there, 0)
            if k == 2 or mine is None:  # a second gradient of None is zero, up to rounding
                near = ULPS * eps(there) if k == 2 else 0.0
                zero = bool(there.isfinite().all()) and largest(array(there)) <= near
                return "" if zero or self._is_noise(k, i, there) else "None, or not"
            return f"None {mine is None}, eager {other is None}"
        if mine.dtype != other.dtype or mine.shape != other.shape:
            return f"{mine.dtype} {tuple(mine.shape)}, eager {other.dtype} {tuple(other.shape)}"
        a, b = array(mine), array(other)
        if k > 0:  # see Note [Fuzzing's bound]
            a, b = where_number(a, b)
        if self._has_infinite_weights():
            a, b = np.where(np.isfinite(b), a, 0.0), np.where(np.isfinite(b), b, 0.0)
        if k > 0 and self._is_at_nan():
            return ""
        off = distance(a, b)
        ulp = eps(other)
        ulps = (HALF_ULPS if ulp > 1e-4 else ULPS) * ulp
        allowed = ulps * largest(b)
        if off <= allowed:
            return ""
        allowed += self._rough(ulp) * largest(b) + self._of_the_mean(k, ulp)
        allowed += self._of_one_hot(k, ulp)
        own = self._own(k, i, b)
        if own is not None:
            exact, lost = own
            if ulp < 1e-4:  # what overflows in half precision does so by rule, not by order
                a, b, exact = where_added_up(a, b, exact)
                off, lost = distance(a, b), distance(b, exact)
            if (k > 0 or ulp < 1e-4) and not math.isfinite(off):
                a, b = where_finite(a, b, exact)
                off, allowed = distance(a, b), max(allowed, ulps * largest(b))
                lost = distance(b, exact)
            own_loss = FACTOR * lost if math.isfinite(lost) else 0.0
            if off <= allowed or distance(a, exact) <= own_loss + allowed:
                return ""
        noise = 0.0
        for moved in self._moved_runs():
            noise = max(noise, self._moves(moved, k, i, b))
            if off <= FACTOR * noise + allowed:
                return ""
        size = largest(b)
        return (f"{other.dtype} {tuple(other.shape)} off by {off:.2e}, allowed "
                f"{FACTOR * noise + allowed:.2e}, largest {size:.2e}")  # fmt: skip

    def _is_at_a_kink(self) -> bool:
        """Whether a second derivative may be that of either side, as in our table of edges."""
        text = self._text
        zeros = any(isinstance(t, Tensor) and bool((t == 0).any()) for t in self.inputs())
        return zeros and _KINKS.search(text) is not None

    def _is_at_nan(self) -> bool:
        """Whether eager's gradient depends on where in its vectors a nan is, as in our table."""
        nan = any(isinstance(t, Tensor) and bool((t != t).any()) for t in self.theirs.left)
        return nan and _AT_NAN.search(self._text) is not None

    def _rough(self, eps: float) -> float:
        """What eager itself loses in float64, where no other run says so: Note [Rough in eager]."""
        if eps > 1e-10:
            return 0.0
        text = self._text
        rough = max((rough for name, rough in ROUGH.items() if name in text), default=0.0)
        if not _ONE_BY_ONE.search(text):
            return rough
        return max(rough, max((t.numel() for t in self.theirs.left), default=0) / 16 * eps)

    def _is_noise(self, k: int, i: int, there: Tensor) -> bool:
        """Whether a second gradient is what rounding leaves of zero: in float64 it vanishes."""
        own = self._own(k, i, array(there)) if k == 2 and eps(there) > 1e-10 else None
        return own is not None and largest(own[0]) <= 1e-6 * largest(array(there))

    def _has_infinite_weights(self) -> bool:
        """Whether eager's value may be nan, and ours right: it multiplies a mean by the weights."""
        tensors = [t for t in self.inputs() if isinstance(t, Tensor) and t.is_floating_point()]
        infinite = any(bool(t.isinf().any()) for t in tensors)
        norm = re.search(r"\b(group|batch)_norm\(", self._text)
        return infinite and norm is not None

    def _of_one_hot(self, k: int, eps: float) -> float:
        """What a second derivative of log_softmax is where a probability is rounded to 1."""
        alone = k == 2 and eps < 1e-10  # others have float64's run to be held against
        return FACTOR * eps if alone and "log_softmax(" in self._text else 0.0

    def _of_the_mean(self, k: int, eps: float) -> float:
        """What a variance of equal numbers is where their mean is rounded: its square."""
        if k or not re.search(r"\bvar(_mean)?\(", self._text):
            return 0.0
        tensors = [t for t in self.inputs() if isinstance(t, Tensor) and t.is_floating_point()]
        equal = [t for t in tensors if not apart(t)]
        return max(((ULPS * eps * largest(array(t))) ** 2 for t in equal), default=0.0)

    def _own(self, k: int, i: int, theirs: Any) -> tuple[Any, float] | None:
        """The tensor in float64, and how far eager is from it."""
        if self._exact is None:
            self._exact = self._in_float64()
        groups = self._exact.groups if k >= 0 else [self._exact.left]
        if not groups or k >= len(groups) or i >= len(groups[k]):
            return None
        exact = groups[k][i]
        if exact is None or not (exact.is_floating_point() or exact.is_complex()):
            return None
        right = array(exact)
        return (right, distance(theirs, right)) if right.shape == theirs.shape else None

    def _in_float64(self) -> Run:
        fn = made_from(widened(whole_source(self.fn)), self.fn.__name__)
        default = torch.get_default_dtype()
        try:
            torch.set_default_dtype(torch.float64)
            with calling_plain():
                return derivatives(fn, tuple(map(wide, self.inputs())), self.setting.order,
                                    self.seed)  # fmt: skip
        except Exception:  # what does not run in float64 is judged without it
            return Run([])
        finally:
            torch.set_default_dtype(default)

    def _moved_runs(self) -> Iterator[Run]:
        """Runs of eager with everything moved by some ulps, as many as are asked for."""
        for way in range(MOVES):
            if way == len(self._moved):
                self._moved.append(self._move(way))
            run = self._moved[way]
            if run is not None:
                yield run

    def _moves(self, run: Run, k: int, i: int, theirs: Any) -> float:
        """How far a tensor of eager's has moved."""
        group = run.left if k < 0 else run.groups[k] if k < len(run.groups) else []
        tensor = group[i] if i < len(group) else None
        return math.inf if tensor is None else distance(array(tensor), theirs)

    def _move(self, way: int) -> Run | None:
        generator = torch.Generator().manual_seed(self.seed + 2 + way)

        def move(tensor: Tensor) -> Tensor:
            if not (tensor.is_floating_point() or tensor.is_complex()):
                return tensor
            ways = torch.empty(tensor.shape, dtype=torch.float64)
            ways.uniform_(-1, 1, generator=generator)
            eps = torch.finfo(tensor.dtype).eps
            return (tensor.detach() * (1 + eps * ways)).to(tensor.dtype)

        args = self.inputs()
        with torch.no_grad():
            for t in args:
                if isinstance(t, Tensor) and way < MOVES // 3 and apart(t):
                    t.copy_(move(t))
        try:
            with calling_plain(), Noise(self.seed + way, 1 + way % 3):
                return derivatives(self.fn, args, self.setting.order, self.seed, move)
        except Exception:  # a moved input may take another path, which may be refused
            return None


@contextmanager
def _threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
