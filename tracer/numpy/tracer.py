"""trace_numpy: one concrete run of a numpy function, recorded.

    def f(p):
        return np.sum(100 * (p[1:] - p[:-1] ** 2) ** 2 + (1 - p[:-1]) ** 2)

    trace_numpy(f, (np.zeros(5),), {}).graph
    graph f(%p : f64[5]): ...

The arrays among the arguments become TracedArrays; plain numpy code does the rest. torch is never
imported.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np

from gradof.errors import GradofError, LeafTypeError, UnsupportedOpError
from gradof.ir.garbage import few_collections
from gradof.passes.eliminate_dead_code import eliminate_dead_code
from gradof.tracer.core.loop_notes import Evaluate, Varying
from gradof.tracer.core.place_numbers import NumberAt, NumbersInPlaces, is_numeric
from gradof.tracer.core.pytree import flatten_call, parameters_of, thaw
from gradof.tracer.core.regions import recording_into
from gradof.tracer.core.result import Traced, split_guards
from gradof.tracer.core.whiles import Whiles
from gradof.tracer.numpy import by_value as numpy_by_value
from gradof.tracer.numpy import complex as numpy_complex
from gradof.tracer.numpy import factor as numpy_factor
from gradof.tracer.numpy import histograms as numpy_histograms
from gradof.tracer.numpy import index_functions as numpy_index_functions
from gradof.tracer.numpy import joins as numpy_joins
from gradof.tracer.numpy import linalg as numpy_linalg
from gradof.tracer.numpy import numeric as numpy_numeric
from gradof.tracer.numpy import operators as numpy_operators
from gradof.tracer.numpy import pad as numpy_pad
from gradof.tracer.numpy import quantile as numpy_quantile
from gradof.tracer.numpy import reductions as numpy_reductions
from gradof.tracer.numpy import selection as numpy_selection
from gradof.tracer.numpy import shapes as numpy_shapes
from gradof.tracer.numpy.active import activate
from gradof.tracer.numpy.adopt import INTO_PLAIN, Adoptions
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.c_errors import clear, met
from gradof.tracer.numpy.conversions import CALLS
from gradof.tracer.numpy.creation import creation_for
from gradof.tracer.numpy.free import origins_of
from gradof.tracer.numpy.functions import record_function
from gradof.tracer.numpy.indexing import get_item, set_item
from gradof.tracer.numpy.lengths import Sizes
from gradof.tracer.numpy.lent import LENT
from gradof.tracer.numpy.loop_notes import ArrayLoopNotes
from gradof.tracer.numpy.names import seen
from gradof.tracer.numpy.outcome import Outcome
from gradof.tracer.numpy.raising import settle
from gradof.tracer.numpy.recorder import Handlers, Recorder
from gradof.tracer.numpy.reports import reports
from gradof.tracer.numpy.sight import Sight
from gradof.tracer.numpy.steps import rows
from gradof.tracer.numpy.ufuncs import record_ufunc
from gradof.tracer.numpy.whiles import ArrayLoops
from gradof.tracer.state.changes import Change
from gradof.tracer.state.cold import Warming
from gradof.tracer.state.generators import Generators
from gradof.tracer.state.loop_code import handles_errors
from gradof.tracer.state.origins import ATOMS
from gradof.tracer.state.places import Place
from gradof.tracer.state.reads import Reads

# Importing these registers their adaptors.
ADAPTORS = (
    numpy_by_value, numpy_complex, numpy_factor, numpy_histograms, numpy_index_functions,
    numpy_joins, numpy_linalg, numpy_numeric, numpy_operators, numpy_pad, numpy_quantile,
    numpy_reductions, numpy_selection, numpy_shapes,
)  # fmt: skip
_HANDLERS = Handlers(record_ufunc, record_function, get_item, set_item, rows)


def trace_numpy(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    static_argnames: Sequence[str] = (),
    numbers: Collection[int] = (),
    varying: Sequence[Place] = (),
    reads: Reads | None = None,
    evaluate: Evaluate | None = None,
    sizes: Callable[[], Sizes] = Sizes,
) -> Traced:
    """Record one call; the caller's arrays and Python's state stay as they are.

    The leaves `numbers` are Python numbers that become inputs of the graph (`tracer.number`), and
    so do the numbers in the places `varying`. `reads` notes what the run read of Python's state.
    `evaluate` gives what values of the graph so far are in this run; without it every step of a
    loop runs (`steps`). `sizes` makes the notes of what it was told of them (`numpy.lengths`).

    Raises UnsupportedOpError, DataDependentError (a Python branch or number by value),
    DataDependentShapeError, LeafTypeError and DtypeError for arrays that cannot be traced, and
    TraceError for random draws that are not recorded, plain arrays changed in place, and what was
    written to Python's state and cannot be written again.
    """
    reads = Reads() if reads is None else reads
    reads.lends.update(LENT)
    sight = Sight(reads)
    adoptions = Adoptions(fn)
    loops_vary = Varying()
    warming = Warming()
    while True:
        loops_vary.begin()
        reads.misses.begin()
        loops = ArrayLoopNotes(reads, evaluate, loops_vary, sizes())
        try:
            traced = _trace(
                fn, args, kwargs, static_argnames, numbers, varying, sight, adoptions, loops
            )
        except Exception as error:
            adoptions.note(met(error), failed=True)
            cold = reads.misses.cold  # the function may have caught it, and failed by that
            if cold is not None:
                reads.performs = None
                if not warming.warm(cold):
                    raise cold from (None if error is cold else error)
            elif loops.has_missed_errors:
                evaluate = None
            elif sizes is not Sizes:  # a Length may be no int to some code: numbers from now on
                sizes = Sizes
            elif not adoptions.fresh and not loops_vary.give_up():  # Note [Adopted arrays]
                if (told := clear(error)) is not error:
                    raise told from error
                raise
        else:
            if loops.hashed or loops.has_missed_errors:
                evaluate = None  # numbers of steps are numbers from the first on
            elif not adoptions.fresh and not loops_vary.another():
                return traced


def put_back(changes: Iterable[Change]) -> None:
    """Make Python's state as it was."""
    for change in changes:
        change.undo()


def _trace(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
    static_argnames: Sequence[str], numbers: Collection[int], varying: Sequence[Place],
    sight: Sight, adoptions: Adoptions, loops: ArrayLoopNotes,
) -> Traced:  # fmt: skip
    """One run; Python's state is then as it was, and the stores write to it."""
    reads, places = sight.reads, NumbersInPlaces(varying)
    leaves, tree, paths = flatten_call(fn, args, kwargs, static_argnames)
    thawed = [thaw(leaf) for leaf in leaves]
    recorder = Recorder(fn, getattr(fn, "__name__", "f").strip("<>"), _HANDLERS, sight.arrays)
    traced, values = _arguments(recorder, leaves, thawed, fn, paths, numbers, loops.sizes)
    generators = Generators(fn, thawed, reads)
    held = _Held(recorder, places)
    _listen(recorder, loops, adoptions, reads)
    try:
        places.fill(held.number, reads.held)
        with _recording(recorder, sight):
            positional, named = tree.unflatten(values)  # sparse matrices are made as by scipy
            sight.roots([fn, *filter(callable, thawed)], (positional, named), _objects(thawed))
            with reads, adoptions.at_work(recorder, CALLS):
                result = _call(fn, positional, named)
                settle(recorder)
        reads.misses.refuse_caught()
        tensors = recorder.told.of_tensors(fn, reads, _objects(thawed))
        sight.check(fn)
        generators.check(lambda: adoptions.note_draws(reads.codes))
        changes = sight.written(fn, thawed, held.arrays)
        outcome = Outcome(fn, recorder, sight, [*traced.values(), *held.arrays], thawed)
        out_tree = outcome.take(result, changes)
    except BaseException:  # an interrupt, too
        _undo(recorder, sight, generators, [*traced.values(), *held.arrays])
        places.restore()
        _note_written(fn, adoptions, sight)
        raise
    put_back(reads.held.changes() if adoptions.fresh else changes)  # fresh: it went on in vain
    places.restore(reads.held)
    reads.switches.update(recorder.told.files)
    origins, content = origins_of(fn, recorder, sight, held.values)
    outcome.number()
    writebacks = outcome.writebacks([*(leaves[i] for i in traced), *held.values])
    recorder.graph.set_outputs(outcome.values)
    eliminate_dead_code(recorder.graph)
    graph, recorded, deciding = split_guards(recorder.graph)
    return Traced(
        graph=graph, library="numpy", in_tree=tree,
        arg_leaves=tuple(traced),
        static_leaves=tuple((i, v) for i, v in enumerate(thawed) if i not in traced),
        origins=(*held.origins, *origins),
        out_tree=out_tree, outputs=outcome.outputs,
        stores=outcome.stores,
        performs=outcome.performs,
        writebacks=writebacks,
        requires_grad=(False,) * len(graph.inputs),
        arg_paths=paths, content=(*content, *tensors),
        recorded=recorded, deciding=deciding,
        numbers=frozenset(list(traced).index(i) for i in numbers),
        pinned=tuple(recorder.numbers.pinned.items()), layouts=tuple(recorder.layouts.values()),
        generators=tuple(generator for generator, _ in recorder.generators.values()),
        loops=tuple(recorder.loops.looked_at), sizes=recorder.loops.sizes,
    )


def _listen(
    recorder: Recorder, loops: ArrayLoopNotes, adoptions: Adoptions, reads: Reads
) -> None:
    """What the run reads and says, and the branches in its loops, are told to `loops`."""
    reads.misses.is_traced = lambda obj: type(obj) is TracedArray
    reads.misses.performs = lambda: bool(recorder.told.performs or reads.performs)
    recorder.adoptions = adoptions
    recorder.listen(loops)
    recorder.numbers.converted = adoptions.note_conversion
    loops.decide = recorder.numbers.decide = Whiles(ArrayLoops(recorder)).decide


def _undo(
    recorder: Recorder, sight: Sight, generators: Generators, inputs: Iterable[TracedArray]
) -> None:
    """Put back what a failed run has changed, and note whether that, or what it says, was any."""
    changes, params = sight.reads.held.changes(), recorder.graph.inputs
    put_back(changes)
    arrays, drawn = sight.put_back(), generators.put_back()
    written = any(a.expr.value is not p for a, p in zip(inputs, params, strict=False))
    done = changes or arrays or drawn or written or recorder.generators or recorder.told.performs
    sight.reads.failed.undone = bool(done) and sight.are_copied(arrays)


def _note_written(fn: Callable[..., Any], adoptions: Adoptions, sight: Sight) -> None:
    """Where the arrays are that a failed run may have written to: they can be inputs.

    Data frames are as they were again.
    """
    sight.reads.held.frames.changed()
    old = [array for array in adoptions.written if id(array) in sight.arrays] + sight.changed
    found = sight.paths(fn, old) if old else {}
    sight.reads.failed.written = [
        origin.place for array, origin in found.values()
        if origin.place is not None and origin.place.kind != "block"
        and any(array is w for w in old)
    ]  # fmt: skip


class _Held:
    """Numbers and arrays of Python's state that vary: after the arguments, before free arrays."""

    def __init__(self, recorder: Recorder, places: NumbersInPlaces) -> None:
        self.recorder, self.places = recorder, places
        self.arrays: list[TracedArray] = []
        self.values: list[Any] = []
        self.origins: list[NumberAt] = []

    def number(self, key: Any, value: Any, name: str | None) -> Any:
        """What the function finds in a place."""
        if is_numeric(value):
            made = self.recorder.add_argument(value, name)
            self.arrays.append(made)
            self.values.append(value)
            self.origins.append(self.places.origin(key))
            return made
        made = self.recorder.add_argument(np.result_type(type(value)).type(value), name)
        self.arrays.append(made)
        self.values.append(np.asarray(value))
        self.origins.append(self.places.origin(key))
        return self.recorder.numbers.argument(key, value, made.expr.value)


def _objects(leaves: Sequence[Any]) -> list[Any]:
    """The arguments that are objects with state of their own."""
    no_objects = (*ATOMS, np.ndarray, np.generic, type, ModuleType)
    return [leaf for leaf in leaves if not isinstance(leaf, no_objects)]


@contextmanager
def _recording(recorder: Recorder, sight: Sight) -> Iterator[None]:
    """While the functions run, what they do with traced arrays is recorded."""
    try:
        created = creation_for(sight)
        active = activate(recorder)
        with created, few_collections(), active, reports(), recording_into(recorder.builder):
            yield
    finally:
        recorder.loops.sizes.handles = any(map(handles_errors, sight.reads.codes))
        recorder.close()


def _arguments(
    recorder: Recorder, leaves: Sequence[Any], thawed: Sequence[Any], fn: Callable[..., Any],
    paths: Sequence[str], numbers: Collection[int], sizes: Sizes,
) -> tuple[dict[int, TracedArray], list[Any]]:  # fmt: skip
    """The traced arrays behind the graph's inputs by leaf, and what the function is given."""
    traced: dict[int, TracedArray] = {}
    for i, (leaf, name) in enumerate(zip(leaves, _names(fn, paths), strict=True)):
        if isinstance(leaf, (np.ndarray, np.generic)):
            _check_leaf(leaf, paths[i])
            traced[i] = recorder.add_argument(leaf, name)
        elif i in numbers:
            traced[i] = recorder.add_argument(np.result_type(type(leaf)).type(leaf), name)
    recorder.numbers.ufunc = functools.partial(record_ufunc, recorder)
    values = [
        recorder.numbers.argument(i, leaf, traced[i].expr.value) if i in numbers
        else traced[i] if i in traced else sizes.argument(i, seen(leaf))
        for i, leaf in enumerate(thawed)
    ]  # fmt: skip
    return traced, values


def _call(fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    try:
        return fn(*args, **kwargs)
    except (TypeError, ValueError) as error:
        cause = error.__cause__ or error.__context__
        if isinstance(error, GradofError) or not isinstance(cause, GradofError):
            raise
        raise _unwrapped(cause, str(error)) from None


def _unwrapped(cause: GradofError, text: str) -> GradofError:
    """Our error, where numpy's C code has raised one of its own about it."""
    if "setting an array element" not in text:
        return cause
    return UnsupportedOpError(INTO_PLAIN[0], loc=cause.loc, hint=INTO_PLAIN[1])


def _names(fn: Callable[..., Any], paths: Sequence[str]) -> list[str | None]:
    """The parameter's name for an argument that is one leaf; the last key otherwise."""
    parameters = [p.name for p in parameters_of(fn)]
    names: list[str | None] = []
    for path in paths:
        head, _, rest = path.partition("]")
        if not rest and head.startswith("args["):
            index = int(head.removeprefix("args["))
            names.append(parameters[min(index, len(parameters) - 1)] if parameters else None)
        else:
            tail = path.replace("]", "").replace("'", "").replace(".", "[").split("[")[-1]
            names.append(tail if tail.isidentifier() else None)
    return names


def _check_leaf(leaf: Any, path: str) -> None:
    """Refuse subclasses, whose operators mean something else, and dtypes without an IR dtype."""
    if not isinstance(leaf, np.generic) and type(leaf) not in (np.ndarray, np.memmap):
        raise LeafTypeError(
            f"{path} is a {type(leaf).__module__}.{type(leaf).__qualname__}",
            hint="only plain numpy arrays can be traced: np.asarray(a)",
        )
    if leaf.dtype.kind not in "biufc":
        raise LeafTypeError(
            f"{path} is an array of dtype {leaf.dtype}", hint="convert it: a.astype(np.float64)"
        )


__all__ = ["trace_numpy"]
