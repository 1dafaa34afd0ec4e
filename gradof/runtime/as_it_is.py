"""The call of a function that runs as it is, by `gradof.runtime.trial`, as straight-line code:

    def check(args, kwargs):
        if kwargs or len(args) != 1: return MISS
        a0 = args[0]
        if guard(a0): ...                                   # torch's, in C++
        else: ...                                           # condition by condition
        if not (grad() is True and training() is True): return MISS
        if hooks(False) is not None: return ours(args, kwargs)
        if not turn() % 64 and full(args, kwargs) is None: return MISS
        count()
        return fn(*args, **kwargs)

or, where all arguments are tensors, as a native call of the same questions, before it.

Eager's run is right whatever the arguments and Python's state are. What is looked at is what the
trial was about: other arguments, another grad mode or another mode of the module are another
function, of which it has said nothing. Python's state, parameters and torch's other modes are
looked at now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from operator import attrgetter
from typing import Any

from gradof import tuning
from gradof.codegen.machine.hand_on import Handing, Question, hand_on
from gradof.runtime.arrays import MODES, Call, guard_of, is_tensor, torch_if_loaded
from gradof.runtime.cache import Cache
from gradof.runtime.check_writer import Writer
from gradof.runtime.fastcall import Fast
from gradof.runtime.lengths import MISS

Quick = Callable[[tuple[Any, ...], dict[str, Any]], Any]


def call_as_it_is(cache: Cache, fast: Fast, call: Call, fn: Any, ours: Quick) -> Quick:
    """The call of `fn` as it is, for arguments like those of `call`; MISS for others.

    `ours` runs under hooks of saved tensors: Note [Two runs of one call] in `gradof.runtime.trial`.
    """
    modes = modes_of(call, fn)
    by_python = _by_python(cache, fast, call, fn, ours, modes)

    def again(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return MISS if fast.check(args, kwargs) is None else by_python(args, kwargs)

    positional, named = call.tree.children
    are_tensors = all(child.kind == "leaf" for child in positional.children)
    are_tensors = are_tensors and not named.children and all(map(is_tensor, call.leaves))
    guard = guard_of(list(call.leaves)) if are_tensors else None
    if guard is None:
        return by_python
    asked = [*modes, Question(guard.check, None, True), Question(_hooks(), (False,), None)]
    native = hand_on(Handing(
        fn, len(call.leaves), asked, by_python, again, tuning.TRIAL_AGAIN, cache.eager.counted
    ))  # fmt: skip
    return native or by_python


def modes_of(call: Call, fn: Any) -> list[Question]:
    """Grad mode, and the mode of the module whose forward it is."""
    asked = [Question(torch_if_loaded().is_grad_enabled, (), call.key[-len(MODES)])]
    owner = getattr(fn, "__self__", None)
    if isinstance(getattr(owner, "training", None), bool):
        asked.append(Question(attrgetter("training"), (owner,), owner.training))  # type: ignore[union-attr]
    return asked


def write_modes(writer: Writer, modes: Sequence[Question]) -> None:
    """Let a generated check ask for these modes."""
    for mode in modes:
        given = ", ".join(writer.bind(value, "of") for value in mode.arguments or ())
        writer.unless(f"{writer.bind(mode.asked, 'mode')}({given}) is {mode.expected}")


def _hooks() -> Any:
    return torch_if_loaded()._C._autograd._top_saved_tensors_default_hooks


def _by_python(
    cache: Cache, fast: Fast, call: Call, fn: Any, ours: Quick, modes: Sequence[Question]
) -> Quick:  # fmt: skip
    writer = Writer(call, trusting=False, missed="MISS")
    writer.signature()
    writer.names.update(
        MISS=MISS, ours=ours, full=fast.check, fn=fn, hooks=_hooks(), turn=count(1).__next__,
        count=cache.eager.count,
    )  # fmt: skip
    write_modes(writer, modes)
    writer.lines += [
        "if hooks(False) is not None: return ours(args, kwargs)",
        f"if not turn() % {tuning.TRIAL_AGAIN} and full(args, kwargs) is None: return MISS",
        "count()",
        "return fn(*args, **kwargs)",
    ]
    made: Quick
    made, _ = writer.compiled("<gradof as it is>")
    return made
