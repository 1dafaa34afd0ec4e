"""Dropout masks that a kernel draws: the numbers that torch's dropout draws on CUDA devices.

    seed, place = philox_state(...)                     # moves the generator on, as eager does
    mask = philox_kept(position(...), seed, place)      # elementwise: computed again, never saved

Note [Philox]
torch's dropout runs T threads, 256 in each of as many blocks as a device has room for. Thread t
takes `width` elements that are next to each other, then those that T * width later come, and so on.
Its numbers are those of Philox4x32-10 (Salmon et al., 2011): the key is the generator's seed, the
counter has the number of the four in its low half, from offset / 4 on, and t in its high half. Each
word w is the uniform number w 2^-32 + 2^-33, rounded to float32; an element stays where it is below
1 - p. So each bit of a mask follows from where it is. `place` has offset / 4 above 20 bits, and
there the number of blocks. Half precision has a width of eight, float32 of four.
`gradof.codegen.lowering.philox` holds all of this to what torch itself draws.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradof.errors import InferenceError
from gradof.ir.attrs import Attr
from gradof.ir.types import BOOL, I64, TensorType, Type
from gradof.ops.families import broadcast_shapes, int_tuple, tensor
from gradof.ops.registry import Family, op

Array = NDArray[Any]
BLOCK = 256  # threads
BLOCK_BITS = 20  # of a place, for the number of blocks
_LOW = (1 << 32) - 1


def words(number: Any, thread: Any, seed: Any) -> list[Any]:
    """The four words of Philox4x32-10, below 2^32 each, of int64 numbers or arrays of them."""
    counter = [number & _LOW, (number >> 32) & _LOW, thread & _LOW, (thread >> 32) & _LOW]
    key = [seed & _LOW, (seed >> 32) & _LOW]
    for _ in range(10):
        first, second = counter[0] * 0xD2511F53, counter[2] * 0xCD9E8D57
        counter = [
            ((second >> 32) & _LOW) ^ counter[1] ^ key[0], second & _LOW,
            ((first >> 32) & _LOW) ^ counter[3] ^ key[1], first & _LOW,
        ]  # fmt: skip
        key = [(key[0] + 0x9E3779B9) & _LOW, (key[1] + 0xBB67AE85) & _LOW]
    return counter


def word_of(
    position: Any, seed: Any, place: Any, width: int, where: Callable[..., Any]
) -> Any:  # fmt: skip
    """The word that decides of an element; see Note [Philox]."""
    threads = (place & ((1 << BLOCK_BITS) - 1)) * BLOCK
    group = position // width
    number = (place >> BLOCK_BITS) + group // threads * (width // 4) + position % width // 4
    four = words(number, group % threads, seed)
    lane = position % 4
    return where(lane < 2, where(lane == 0, four[0], four[1]), where(lane == 2, four[2], four[3]))


def increment(cells: int, blocks: int, step: int) -> int:
    """How far one mask moves the generator's offset: by `step` for so many elements a thread."""
    return ((cells - 1) // (BLOCK * blocks * step) + 1) * step


def _infer_position(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    device = attrs["device"]
    if not isinstance(device, str):
        raise InferenceError("positions need a device")
    return (TensorType(I64, int_tuple(attrs["shape"], "shape"), device),)


def _np_position(*, shape: tuple[int, ...], device: str) -> Array:
    return np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)


op("position(; shape, device) -> y", family=Family(_infer_position), numpy=_np_position,
   traits={"constant"}, doc="The number of each element, counted from 0 in the order of the dims.")


def _infer_state(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    device = attrs["device"]
    if not isinstance(device, str):
        raise InferenceError("a random state needs a device")
    return (TensorType(I64, (), device),) * 2


def _np_state(*, cells: int, width: int, dtype: Any, device: str) -> tuple[Array, Array]:
    seed, offset = np.random.randint(0, 1 << 62), np.random.randint(0, 1 << 20)
    blocks = min(64, -(-cells // BLOCK))
    return np.asarray(seed), np.asarray(offset << BLOCK_BITS | blocks)


op("philox_state(; cells, width, dtype, device) -> seed, place", numpy=_np_state,
   family=Family(_infer_state, frozenset({"random"})),
   doc="What a dropout of so many elements draws from on a CUDA device.")


def _infer_kept(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    types = [tensor(t) for t in inputs]
    if any(t.dtype != I64 for t in types) or attrs["width"] not in (4, 8):
        raise InferenceError("philox_kept takes int64 operands, and a width of 4 or 8")
    return (TensorType(BOOL, broadcast_shapes(*(t.shape for t in types)), types[0].device),)


def _np_kept(
    position: Array, seed: Array, place: Array, *, p: float, width: int, cells: int
) -> Array:  # fmt: skip
    with np.errstate(over="ignore"):
        at, key, first = (np.atleast_1d(a) for a in (position, seed, place))
        word = np.asarray(word_of(at, key, first, width, np.where))
    uniform = word.reshape(np.shape(position)).astype(np.float32) * np.float32(2**-32)
    return np.asarray(uniform + np.float32(2**-33) < np.float32(1.0 - p))


# No CALL: it runs on devices, a quarter of Philox an element, and saving its bit costs bytes.
op("philox_kept(position, seed, place; p, width, cells) -> mask", numpy=_np_kept,
   family=Family(_infer_kept, frozenset({"elementwise"})),
   vjp={"position": None, "seed": None, "place": None},
   doc="Whether dropout keeps the element at a position, among so many `cells`.")
