"""Flattening: round trips, paths, hashable structures, static arguments."""

from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

import gradof
from gradof.errors import InputError
from gradof.tracer.core.pytree import Static, flatten, flatten_call, thaw

Pair = namedtuple("Pair", ["a", "b"])


@dataclass(frozen=True)
class Params:
    w: Any
    b: Any = 0


@pytest.mark.parametrize(
    "tree",
    [
        1,
        None,
        (),
        [],
        {},
        (1, [2, {"a": 3, "b": (4,)}]),
        Pair(1, (2, 3)),
        Params([1, 2], {"x": 3}),
        OrderedDict(z=1, a=2),
    ],
)
def test_round_trip_keeps_types_and_order(tree: Any) -> None:
    leaves, treedef = flatten(tree)
    again = treedef.unflatten(leaves)
    assert again == tree and type(again) is type(tree)
    assert len(leaves) == treedef.num_leaves == len(treedef.paths())
    assert hash(treedef) == hash(flatten(tree)[1]) and treedef == flatten(tree)[1]


def test_paths_read_like_python() -> None:
    _, treedef = flatten((Params({"k": 1}), [2], Pair(3, 4)))
    assert treedef.paths("args") == (
        "args[0].w['k']",
        "args[0].b",
        "args[1][0]",
        "args[2].a",
        "args[2].b",
    )


def test_structures_differ_by_container_and_key() -> None:
    trees = [(1, 2), [1, 2], {"a": 1, "b": 2}, {"a": 1, "c": 2}, Pair(1, 2), ((1,), 2)]
    assert len({flatten(t)[1] for t in trees}) == len(trees)


def test_wrong_number_of_leaves_is_refused() -> None:
    with pytest.raises(InputError, match="has 2 leaves, got 1"):
        flatten((1, 2))[1].unflatten([1])


def test_static_arguments_become_one_leaf_each() -> None:
    def fn(x: int, mode: object, *, flags: object = ()) -> None: ...

    leaves, _, paths = flatten_call(fn, (1, [2, 3]), {"flags": (4,)}, ("mode", "flags"))
    assert leaves == [1, Static([2, 3]), Static((4,))]
    assert [thaw(leaf) for leaf in leaves] == [1, [2, 3], (4,)]
    assert paths == ("args[0]", "args[1]", "kwargs['flags']")


def test_unknown_static_argument_is_refused() -> None:
    with pytest.raises(InputError, match="'nope', which is no parameter"):
        flatten_call(lambda x: x, (1,), {}, ("nope",))


@pytest.mark.parametrize("at", [slice(1, 3), slice(None, None, 2), (slice(0, 2),), np.s_[1:5]])
def test_slices_among_the_arguments_and_in_results(at: Any) -> None:
    def fn(x: Any, at: Any) -> Any:
        return (x[at] ** 2).sum(), at

    call = gradof.differentiate(fn)
    for x in np.arange(6.0), torch.arange(6.0):
        for _ in range(2):
            value, given = call(x, at)
            assert float(value) == float(fn(x, at)[0]) and given == at
    assert call.cache_info().misses == 2 and call.cache_info().eager_runs == 0
