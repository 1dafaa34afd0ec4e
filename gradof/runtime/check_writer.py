"""Writes the code that compares a call with one that was traced, condition by condition.

    writer = Writer(call, trusting=False)
    writer.signature()                  # a0, a1 = args; the conditions on each
    writer.modes()
    check, source = writer.compiled("<gradof check>")    # def check(args, kwargs)

`gradof.runtime.fastcall` and `gradof.runtime.as_it_is` say what is looked at, and what then runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any, cast

import numpy as np

from gradof.ir.contents import checksum
from gradof.runtime.arrays import (
    FIRST_LEAF,
    MODES,
    MODES_OF_NUMPY,
    SAME,
    Call,
    guard_of,
    is_tensor,
    torch_if_loaded,
)
from gradof.runtime.cache import Entry, graph_input
from gradof.runtime.lengths import ITSELF, NOWHERE, Places
from gradof.runtime.place_code import NotSimple, key_code, place_code
from gradof.tracer.core.containers import OPEN
from gradof.tracer.core.exact import exact
from gradof.tracer.core.lent_arrays import LentArray, given_array, lent_leaves
from gradof.tracer.core.named_tuples import has_attributes, has_room
from gradof.tracer.core.number import LARGEST
from gradof.tracer.core.numpy_errors import SETTINGS, raised
from gradof.tracer.core.pytree import FIXED, Static, TreeDef
from gradof.tracer.core.result import Layout

_Tensors = list[tuple[str, Any, tuple[Any, ...]]]  # name in the code, the tensor, its part of a key
_PAIRS = 10  # names of which each two are compared; of more the ids are counted


class Writer:
    """Writes the lines of one check."""

    def __init__(
        self, call: Call, trusting: bool, lengths: Places = NOWHERE, missed: str = "None"
    ) -> None:  # fmt: skip
        self.call = call
        self.missed = missed  # the code of what is returned where a condition does not hold
        self.lengths = lengths
        self.first: dict[str, str] = {}  # by name of a length, the code of its first size
        self.equal: list[str] = []  # conditions on those after it
        self.trusting = trusting
        self.lines: list[str] = []
        library = call.library  # the code must not keep the arrays of the call
        self.names: dict[str, Any] = {"ndarray": np.ndarray, "exact": exact}
        self.names["lift"] = lambda x: graph_input(x, library)
        self.leaf = 0
        self.lent: dict[str, str] = {}  # by name of a tensor, the array whose memory it has
        self.given: _Tensors = []  # arguments still to be checked
        self.read: _Tensors = []  # parameters still to be checked
        self.scalars: set[int] = set()  # leaves that are arrays without dims, or numbers of numpy's
        self.free_names: dict[int, str] = {}  # by the id of an origin
        self.containers: dict[Any, list[str]] = {}  # those that can be changed, by type

    def compiled(self, file: str) -> tuple[Any, str]:
        """The check and its text."""
        source = "\n".join(["def check(args, kwargs):", *_indented(self.lines), ""])
        exec(compile(source, file, "exec"), self.names)
        return self.names["check"], source

    def bind(self, value: Any, stem: str) -> str:
        """A name for an object the code refers to."""
        self.names[name := f"{stem}{len(self.names)}"] = value
        return name

    def unless(self, condition: str) -> None:
        """Give up where the condition does not hold."""
        if self.trusting:
            return
        self.lines.append(f"if not ({condition}): return {self.missed}")

    def signature(self) -> None:
        """Structure and leaves of the arguments."""
        positional, named = self.call.tree.children
        if named.children:
            self.unless(f"tuple(kwargs) == {named.keys!r} and len(args) == {len(positional.keys)}")
        else:
            count = len(positional.keys)
            self.lines.append(f"if kwargs or len(args) != {count}: return {self.missed}")
        self.items("args", positional)
        self.items("kwargs", named)
        self.tensors()

    def items(self, holder: str, tree: TreeDef) -> None:
        """The children of a container."""
        for place, (key, child) in enumerate(zip(tree.keys, tree.children, strict=True)):
            code = f"{holder}[{key_code(self.bind, place if tree.kind == 'namedtuple' else key)}]"
            if tree.kind == "dataclass":
                code = f"{holder}.{key}"
            if child.kind == "leaf" or child.type is LentArray:
                self.lines.append(f"a{self.leaf} = {code}")
                if child.kind != "leaf":
                    self.lend(f"a{self.leaf}", child)
                self.check_leaf(self.leaf)
                self.leaf += 1
                continue
            if child.kind in ("structseq", "registered", "object") or has_attributes(child):
                raise NotSimple
            name = self.bind(None, "c")
            self.lines.append(f"{name} = {code}")
            self.container(name, child)
            self.items(name, child)

    def container(self, name: str, tree: TreeDef) -> None:
        """A container is of the type, and has the keys, of the trace."""
        if tree.kind not in FIXED and self.call.library == "torch":
            self.containers.setdefault(tree.type, []).append(name)
        same_type = f"type({name}) is {self.bind(tree.type, 'cls')}"
        if tree.kind in ("namedtuple", "dataclass"):
            self.unless(same_type)
            if has_room(tree.type):
                self.unless(f"not vars({name})")
            if issubclass(cast(type, tree.type), OPEN):
                self.unless(f"tuple(vars({name})) == {tree.keys!r}")
        else:
            self.unless(f"{same_type} and len({name}) == {len(tree.keys)}")
        if tree.kind == "dict":
            texts = tree.context is None
            keys = self.bind(tree.context.value if tree.context else tree.keys, "keys")
            self.unless(f"tuple({name if texts else f'map(exact, {name})'}) == {keys}")

    def check_leaf(self, i: int) -> None:
        """One leaf is as it was in the trace."""
        leaf, part = self.call.leaves[i], self.call.key[FIRST_LEAF + i]
        if i in self.call.handed:
            self.handed(i, part)
            return
        if isinstance(part[0], np.dtype):
            self.array(f"a{i}", part, i)
        elif self.call.library == "torch" and isinstance(part[0], torch_if_loaded().dtype):
            self.given.append((f"a{i}", leaf, part))
        elif isinstance(leaf, Static):
            raise NotSimple
        else:
            any_ = i in self.call.numbers or self.is_length(f"a{i}", (i, ITSELF))
            self.unless(self.same(f"a{i}", leaf, any_))

    def lend(self, name: str, tree: TreeDef) -> None:
        """An array of numpy's in a torch function is the tensor over its memory from here on."""
        lend, who = self.bind(given_array, "lend"), f"who{name}"
        self.lines += [f"{who} = {name}", f"{name} = {lend}({who}, {lent_leaves(tree)[0]})"]
        self.lines.append(f"if {name} is None: return {self.missed}")
        self.lent[name] = who

    def handed(self, i: int, part: tuple[Any, ...]) -> None:
        """An object that is in a place is of the class it was, and is put there."""
        cls, _, first = part
        self.unless(f"type(a{i}) is {self.bind(cls, 'cls')}" + (
            "" if first is None else f" and a{i} is a{first}"
        ))  # fmt: skip
        assert self.call.room is not None
        self.lines.append(f"{self.bind(self.call.room.put, 'put')}({self.call.paths[i]!r}, a{i})")

    def identities(self) -> bool | None:
        """Which tensors are the same object: of those alike, as others cannot be. `Fast.apart`.

        Of containers none is.
        """
        alike: dict[tuple[Any, ...], list[str]] = {}
        apart: bool | None = None
        for i, part in enumerate(self.call.key[FIRST_LEAF : FIRST_LEAF + len(self.call.leaves)]):
            if len(part) <= SAME:
                continue
            mine = self.who(i)
            if part[SAME] is None:
                alike.setdefault(part[:SAME], []).append(mine)
            else:
                apart = part[SAME] < 0
                self.unless(f"{mine} is {self.who(~part[SAME] if apart else part[SAME])}")
        for names in (*alike.values(), *self.containers.values()):
            if len(names) > _PAIRS:
                self.unless(f"len({{{', '.join(f'id({n})' for n in names)}}}) == {len(names)}")
            elif len(names) > 1:
                pairs = (f"{a} is not {b}" for a, b in combinations(names, 2))
                self.unless(" and ".join(pairs))
        return apart

    def who(self, leaf: int) -> str:
        """The code for the object that the caller has given for a leaf."""
        return self.lent.get(f"a{leaf}", f"a{leaf}")

    def same(self, name: str, value: Any, varies: bool) -> str:
        """The condition that a Python value is what it was."""
        cls = type(value)
        kind = f"type({name}) is {cls.__name__ if cls in (int, float) else self.bind(cls, 'cls')}"
        if varies:
            return f"{kind} and -{LARGEST} < {name} < {LARGEST}" if cls is int else kind
        if isinstance(value, (float, np.number)):
            if value and value == value:
                return f"{kind} and {name} == {self.bind(value, 'v')}"
            return f"{kind} and repr({name}) == {repr(value)!r}"
        if type(value) in (int, str, bytes):
            return f"type({name}) is {type(value).__name__} and {name} == {value!r}"
        return f"{name} is {self.bind(value, 'v')}"

    def array(self, name: str, part: tuple[Any, ...], leaf: int = -1) -> None:
        """A numpy array of the dtype and shape of the trace."""
        dtype = self.bind(part[0], "dtype")
        shape = f"{name}.shape == {part[1]!r}"
        if any(place[0] == leaf for place in self.lengths):
            codes = {dim: f"{name}.shape[{dim}]" for dim in range(len(part[1]))}
            fixed = [f"{code} == {part[1][dim]}" for dim, code in codes.items()
                     if not self.is_length(code, (leaf, dim))]  # fmt: skip
            shape = " and ".join([f"{name}.ndim == {len(codes)}", *fixed])
        fits = f"type({name}) is ndarray and {name}.dtype is {dtype} and {shape}"
        if part[2:]:  # a number of numpy's
            self.scalars.add(leaf)
            fits = f"type({name}) is {self.bind(part[0].type, 'scalar')}"
        self.unless(fits)

    def is_length(self, code: str, place: tuple[int, int]) -> bool:
        """Whether a size may be any; it is the same as those of its name before."""
        name = self.lengths.get(place)
        if name is not None and self.first.setdefault(name, code) != code:
            self.equal.append(f"{code} == {self.first[name]}")
        return name is not None

    def tensors(self) -> None:
        """Tensors among the arguments are of dtype, shape, requires_grad and device of the trace.

        torch's own guard, in C++, looks at all in a call. It looks at their strides as well: where
        it says no, each condition is looked at. It does not see which are leaves.
        """
        values = [value for _, value, _ in self.given]
        known = not self.trusting and not self.lengths and all(map(is_tensor, values))
        guard = guard_of(values) if known else None
        before, self.lines = self.lines, []
        for name, _, part in self.given:
            self.tensor(name, part)
        one_by_one, self.lines = self.lines, []
        for name, _, part in self.given:
            self.leaf_of_graph(name, part)
        leaves, self.lines = self.lines, before
        if guard is None:
            self.lines += one_by_one
            return
        names = ", ".join(name for name, _, _ in self.given)
        holds = f"{self.bind(guard.check, 'guard')}({names})"
        if not leaves:
            self.lines += [f"if not {holds}:", *_indented(one_by_one)]
            return
        self.lines.append(f"if {holds}:")
        self.lines += [*_indented(leaves), "else:", *_indented(one_by_one)]

    def leaf_of_graph(self, name: str, part: tuple[Any, ...]) -> None:
        """A tensor that requires grad is a leaf of autograd's graph, or none, as in the trace."""
        requires_grad, is_leaf, is_parameter = part[2], part[3], part[5]
        if requires_grad and not is_parameter:  # a parameter is one
            self.unless(f"{name}.is_leaf is {is_leaf}")

    def tensor(self, name: str, part: tuple[Any, ...]) -> None:
        """A dense tensor of the dtype, shape, requires_grad and device of the trace."""
        torch = torch_if_loaded()
        dtype, shape, requires_grad, _, device, is_parameter = part[:SAME]
        there = "is_cpu" if device.type == "cpu" else f"device == {self.bind(device, 'device')}"
        self.names.update(Tensor=torch.Tensor, Parameter=torch.nn.Parameter, strided=torch.strided)
        conditions = [
            f"type({name}) is {'Parameter' if is_parameter else 'Tensor'}",
            f"{name}.dtype is {self.bind(dtype, 'dtype')}",
            f"{name}.shape == {self.bind(tuple(shape), 'shape')}",
            f"{name}.requires_grad is {requires_grad}",
            f"{name}.{there}",
        ]  # fmt: skip
        if not is_parameter:  # which is dense
            conditions.append(f"{name}.layout is strided")
        self.unless(" and ".join(conditions))
        self.leaf_of_graph(name, part)

    def layout(self, name: str, layout: Layout) -> None:
        """A tensor is laid out as in the trace."""
        if self.call.library != "torch":
            self.unless(f"{self.bind(layout.holds, 'laid_out')}({name})")
            return
        if layout.rows:
            self.unless(f"{name}.is_contiguous() or {self.bind(layout.holds, 'rows')}({name})")
            return
        if layout.offset is not None:
            self.unless(f"{name}.storage_offset() == {layout.offset}")
        same = "is_contiguous()" if layout.strides is None else f"stride() == {layout.strides!r}"
        self.unless(f"{name}.{same}")

    def modes(self) -> None:
        """torch's modes, or the errors that numpy raises, are those of the trace."""
        if self.call.library != "torch":
            (kinds,) = self.call.key[-len(MODES_OF_NUMPY) :]
            by_default = "" if kinds else f"{self.bind(SETTINGS, 'settings')}(None) is None or "
            self.unless(f"{by_default}{self.bind(raised, 'raised')}() == {kinds}")
            return
        torch = torch_if_loaded()
        from torch.autograd import forward_ad

        from gradof.tracer.torch.functional import only_of_devices

        grad, inference, autocast, dtype, cuda, default, anomaly = self.call.key[-len(MODES) :]
        self.names.update(
            grad=torch.is_grad_enabled, inference=torch.is_inference_mode_enabled,
            autocast=torch.is_autocast_enabled, autocast_dtype=torch.get_autocast_dtype,
            default=torch.get_default_dtype, anomaly=torch.is_anomaly_enabled,
            transforms=torch._C._are_functorch_transforms_active, forward_ad=forward_ad,
            jit=torch._C._get_tracing_state, dispatching=torch._C._len_torch_dispatch_stack,
            observing=torch._C._len_torch_function_stack, on_devices=only_of_devices,
        )  # fmt: skip
        self.unless(
            f"grad() is {grad} and inference() is {inference} and autocast('cpu') is {autocast} "
            f"and autocast_dtype('cpu') is {self.bind(dtype, 'dtype')} "
            f"and autocast('cuda') is {cuda is not None} "
            f"and default() is {self.bind(default, 'dtype')} and anomaly() is {anomaly} "
            "and not transforms() and forward_ad._current_level < 0 and jit() is None "
            "and not dispatching() and (not observing() or on_devices())"
        )
        if cuda is not None:
            self.unless(f"autocast_dtype('cuda') is {self.bind(cuda, 'dtype')}")

    def state(self, entry: Entry) -> None:
        """The Python state that the trace read is as it was."""
        self.names["state"] = entry.state.check
        self.unless("state()")

    def free(self, origin: Any, fn: Any, part: Any) -> str:
        """A free array, read where it is kept, of the kind in a key; the name it has then."""
        name, value = self.read_free(origin, fn)
        if is_tensor(value) and part[-1]:
            self.read.append((name, value, part))
        elif is_tensor(value):
            self.tensor(name, part)
        elif type(value) is np.ndarray:
            self.array(name, part)
        elif part in (int, float) or (self.call.library == "torch" and type(value) is np.float64):
            self.unless(self.same(name, value, True))
            return f"lift({name})"
        else:
            raise NotSimple
        return name

    def read_free(self, origin: Any, fn: Any) -> tuple[str, Any]:
        """The name of a free array that is read where it is kept, and the array."""
        place = getattr(origin, "place", None)
        if place is None:
            raise NotSimple
        if id(origin) not in self.free_names:
            name, code = self.bind(None, "f"), place_code(self.bind, place)
            self.free_names[id(origin)] = name
            gone = f"except (LookupError, AttributeError, ValueError): return {self.missed}"
            self.lines += [f"try: {name} = {code}", gone]
        return self.free_names[id(origin)], origin.read(fn)

    def contents(self, origin: Any, fn: Any, before: int) -> None:
        """An array whose elements the trace has baked in holds what it held."""
        name, value = self.read_free(origin, fn)
        same = f"{self.bind(checksum, 'sum_of')}({name}) == {before}"
        self.unless(f"type({name}) is {self.bind(type(value), 'kind')} and {same}")

    def parameters(self) -> None:
        """The parameters of modules are of dtype, shape, requires_grad and device of the trace.

        A model has many: torch's own guard, in C++, looks at all in a call. It looks at their
        strides as well, so it is less often satisfied, never wrongly.
        """
        guard = guard_of([value for _, value, _ in self.read])
        if guard is None:
            for name, _, part in self.read:
                self.tensor(name, part)
            return
        self.unless(f"{self.bind(guard.check, 'guard')}({', '.join(n for n, _, _ in self.read)})")

    def input(self, i: int) -> str:
        """A leaf as the graph takes it."""
        return f"lift(a{i})" if i in self.call.numbers or i in self.scalars else f"a{i}"


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]
