'''The check of one signature as straight-line code, generated when the signature is traced.

    def check(args, kwargs):
        if kwargs or len(args) != 2: return None
        a0, a1 = args
        if type(a0) is not ndarray or a0.dtype is not d0 or a0.shape != (16, 16): return None
        if type(a1) is not float or a1 != 0.5: return None
        if not state(): return None
        return [a0]

It says less often than the full check (`inspect_call`, `Differentiated._find`) that a trace serves
a call, and never wrongly: where it says None, the full check decides.
'''

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from gradof.runtime.arrays import Call, without_arrays
from gradof.runtime.cache import Cache, Entry
from gradof.runtime.check_writer import Writer
from gradof.runtime.lengths import ITSELF, NOWHERE, Places
from gradof.runtime.place_code import NotSimple

_MAX_FAST = 8  # generated checks; each that fails costs a fraction of a microsecond
_FEW_PATHS = 2  # of one signature that have generated checks: of more, what fails tells which it is

Check = Callable[[tuple[Any, ...], dict[str, Any]], list[Any] | None]


class Fast(NamedTuple):
    """A generated check, its text, the entry it stands for, and the call without its arrays.

    `apart`: which calls it is for, where a tensor comes twice (Note [Who is who]); None for all.
    """

    check: Check
    source: str
    entry: Entry
    call: Call
    apart: bool | None = None


def fast_check(
    entry: Entry, call: Call, fn: Any, trusting: bool = False, lengths: Places = NOWHERE
) -> Fast | None:  # fmt: skip
    """The generated check of an entry; None where only the full check will do.

    Sizes in `lengths` may be any: those of one name are the same. With `trusting` it only collects
    the arrays: the caller says that the arguments are of this kind.

    That is for static arguments, for struct sequences, for free arrays that are not items of a
    container, and, where `trusting`, for baked elements and where values decide what runs.
    """
    traced = entry.traced
    told = traced.content or entry.decisions is not None
    is_of_state = traced.library == "torch" and traced.origins  # `forward(self)`
    if not (traced.arg_leaves or call.handed or is_of_state) or (trusting and told):
        return None
    writer = Writer(call, trusting, lengths)
    try:
        writer.signature()
        for condition in writer.equal:
            writer.unless(condition)
        apart = writer.identities()
        writer.modes()
        if call.handed:  # traces that differ in what is in objects: what told one apart is quick
            apart_again = functools.partial(entry.is_told_apart, fn)
            writer.unless(f"not {writer.bind(apart_again, 'apart')}()")
        writer.state(entry)
        free = [
            writer.free(origin, fn, part)
            for origin, part in zip(traced.origins, entry.free_keys, strict=True)
        ]
        for origin, before in traced.content:
            writer.contents(origin, fn, before)
        writer.parameters()
    except NotSimple:
        return None
    inputs = [writer.input(i) for i in traced.arg_leaves]
    for layout in traced.layouts:
        writer.layout([*inputs, *free][layout.input], layout)
    numbers = dict.fromkeys(f"a{leaf}" for leaf, dim in lengths if dim == ITSELF)
    writer.lines.append(f"inputs = [{', '.join([*inputs, *free, *numbers])}]")
    for holds in entry.conditions:
        writer.unless(f"{writer.bind(holds, 'holds')}(inputs)")
    if entry.decisions is not None:
        writer.unless(f"{writer.bind(entry.decisions.failure, 'decides')}(inputs) is None")
    writer.lines.append("return inputs")
    return Fast(*writer.compiled("<gradof check>"), entry, without_arrays(call), apart)


def hasten(cache: Cache, fn: Any, entry: Entry, call: Call) -> None:
    """Generate the check of an entry that has come into the cache, which is now the last."""
    cache.evict()
    cache.last = without_arrays(call), entry
    few = entry.decisions is None or len(cache.entries[call.key]) <= _FEW_PATHS
    few &= not entry.traced.performs  # which wants the call's own leaves
    fast = fast_check(entry, call, fn) if few else None  # each runs what decides
    if fast is not None:
        cache.fast = (fast, *cache.fast)[:_MAX_FAST]
    cache.eager.cold.pop(call.key, None)
