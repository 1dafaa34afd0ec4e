"""Convolutions of a torch caller: which of torch's calls computes one, and in which layout.

    convolution(x, w, stride=(1, 1), ...)        # torch's convolution, by the way that is fastest

A convolution and its two gradients can each be computed in the order of their dims (*rows*), or
with the channels last, copies included; the gradient by the input of a 1x1 convolution is a product
of matrices, too. Which is faster depends on shapes, processor and threads by more than a factor of
two either way: the gradient of a 7x7 weight per channel took 24 ms in rows and 4.5 with channels
last, that of a 1x1 weight 4 and 14. So the ways are timed, in the first calls of each kind, one way
a call, and the best is kept, on disk as well. GRADOF_AUTOTUNE=0 takes the usual way, eager's.

Note [Ways that are wrong]
The first result of a way is compared with the usual one, over memory that holds nan, and a way that
gives other numbers is not taken again. The gradient by a 3-d weight has the usual way alone:
with channels last oneDNN leaves planes of it unwritten (kernel 7, stride 2, of an input 5 or 7
deep, torch 2.13), and writes beside it.

Imported only where torch's arrays are run.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any

from gradof import tuning
from gradof.codegen.lowering.numpy import as_tensor
from gradof.codegen.machine.autotune import is_on, now, processor
from gradof.codegen.machine.bounded import keep
from gradof.codegen.machine.object_cache import object_cache
from gradof.ir import forks

Ints = tuple[int, ...]
Way = Callable[..., Any]
MAX_CHOICES = 1024
_CHOICES: dict[Any, _Choice] = {}


def convolution(
    x: Any, w: Any, *, stride: Ints, padding: Ints, dilation: Ints, transposed: bool,
    output_padding: Ints, groups: int,
) -> Any:  # fmt: skip
    """See the op."""
    settings = stride, padding, dilation, output_padding, groups
    if not transposed:
        return _run("convolution", _FORWARD, as_tensor(x), as_tensor(w), settings)
    ways = _POINTWISE if groups == 1 and _is_pointwise(w.shape[2:], stride, padding) else _SHARED
    if not all(map(int.__lt__, output_padding, stride)) or not (x.size and w.size):
        ways = _SHARED_OVER  # no convolution has this gradient, or torch refuses its shape
    return _run("transposed", ways, as_tensor(x), as_tensor(w), settings)


def conv_weight_grad(
    x: Any, g_out: Any, *, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Any:
    """See the op."""
    settings = kernel, stride, padding, dilation, groups
    ways = _WEIGHT if len(kernel) < 3 else _WEIGHT_OF_SPACE
    return _run("conv_weight_grad", ways, as_tensor(x), as_tensor(g_out), settings)


def _is_pointwise(kernel: Sequence[int], stride: Ints, padding: Ints) -> bool:
    return {*kernel, *stride} == {1} and not any(padding)


def _run(kind: str, ways: dict[str, Way], x: Any, y: Any, settings: Any) -> Any:
    import torch

    if torch.is_autocast_enabled("cpu"):  # what autocast does was recorded as casts
        with torch.autocast("cpu", enabled=False):
            return _chosen(kind, ways, x, y, settings)
    return _chosen(kind, ways, x, y, settings)


def _chosen(kind: str, ways: dict[str, Way], x: Any, y: Any, settings: Any) -> Any:
    import torch

    usual = x.dim() == 3 and ways is not _POINTWISE  # one dim in space has no other layout
    if usual or len(ways) == 1 or not is_on() or torch.are_deterministic_algorithms_enabled():
        return next(iter(ways.values()))(x, y, *settings).numpy()
    key = kind, x.shape, y.shape, x.dtype, settings, torch.get_num_threads()
    choice = _CHOICES.get(key)
    if choice is None:
        name = repr((torch.__version__, *key, tuple(ways), "compared"))
        choice = keep(_CHOICES, key, _Choice(name, tuple(ways)), MAX_CHOICES)
    if choice.best is not None:
        return ways[choice.best](x, y, *settings).numpy()
    way = choice.next()
    if way not in choice.right:
        return _compared(choice, way, ways, (x, y, *settings)).numpy()
    start = now()
    made = ways[way](x, y, *settings)
    choice.took(way, now() - start)
    return made.numpy()


def _compared(choice: _Choice, way: str, ways: dict[str, Way], given: tuple[Any, ...]) -> Any:
    """The usual result, which that of another way was compared with: Note [Ways that are wrong]."""
    import torch

    usual = next(iter(ways.values()))(*given)
    left = [torch.full_like(usual, math.nan) for _ in range(tuning.WAY_SPOILS)]
    del left  # what is allocated next is memory like this
    other = ways[way](*given)
    largest = float(usual.abs().max()) if usual.numel() else 0.0
    if math.isfinite(largest):  # else nothing can be said, and the next call is compared
        close = torch.finfo(usual.dtype).eps ** 0.5 * largest
        choice.compared(way, bool(((other - usual).abs() <= close).all()))
    return usual


class _Choice:
    """What is known of the ways to compute one kind of call; the first is the usual one."""

    def __init__(self, name: str, ways: Sequence[str]) -> None:
        digest = hashlib.sha256(f"{processor()} {name}".encode()).hexdigest()
        self._key = f"convolution-{digest}"
        self._lock = forks.lock()
        self._times: dict[str, list[float]] = {way: [] for way in ways}
        self.right = {next(iter(ways))}  # whose numbers are those of the usual way
        kept = object_cache().load(self._key)
        known = None if kept is None else kept.decode()
        self.best = known if known in ways else None

    def next(self) -> str:
        """The way that is due."""
        with self._lock:
            return min(self._times, key=lambda way: len(self._times[way]))

    def compared(self, way: str, is_right: bool) -> None:
        """A way has given the usual way's numbers, or others: then it is taken no more."""
        with self._lock:
            if is_right:
                self.right.add(way)
            else:
                self._times.pop(way, None)

    def took(self, way: str, seconds: float) -> None:
        """A call went this way."""
        with self._lock:
            self._took(way, seconds)

    def _took(self, way: str, seconds: float) -> None:
        if way not in self._times:
            return  # another thread's call, since dropped
        self._times[way].append(seconds)
        usual = next(iter(self._times))
        best = min(min(times) for times in self._times.values() if times)
        if len(self._times[way]) > 1 and way != usual and (
            min(self._times[way]) > tuning.WAY_HOPELESS * best
        ):
            del self._times[way]
        if all(len(times) >= tuning.WAY_TRIES for times in self._times.values()):
            quickest = min(self._times, key=lambda w: min(self._times[w]))
            worth = tuning.WAY_WORTH * min(self._times[usual])
            self.best = quickest if min(self._times[quickest]) < worth else usual
            object_cache().store(self._key, self.best.encode())


# --- the ways -------------------------------------------------------------------------------------


def _forward(
    x: Any, w: Any, stride: Ints, padding: Ints, dilation: Ints, extra: Ints, groups: int
) -> Any:
    import torch

    zeros = (0,) * len(stride)
    return torch.ops.aten.convolution(
        x.contiguous(), w.contiguous(), None, stride, padding, dilation, False, zeros, groups
    )


def _forward_last(
    x: Any, w: Any, stride: Ints, padding: Ints, dilation: Ints, extra: Ints, groups: int
) -> Any:
    import torch

    zeros = (0,) * len(stride)
    return torch.ops.aten.convolution(
        _last(x), _last(w), None, stride, padding, dilation, False, zeros, groups
    ).contiguous()


def _shared_over(
    g: Any, w: Any, stride: Ints, padding: Ints, dilation: Ints, extra: Ints, groups: int
) -> Any:
    """torch's transposed convolution."""
    import torch

    return torch.ops.aten.convolution(
        g.contiguous(), w.contiguous(), None, stride, padding, dilation, True, extra, groups
    )


def _shared(
    g: Any, w: Any, stride: Ints, padding: Ints, dilation: Ints, extra: Ints, groups: int
) -> Any:
    """The gradient by the input of a convolution, which is the same; of the input only its shape
    is read."""
    g, w = g.contiguous(), w.contiguous()
    x = g.new_empty(_space(g, w, stride, padding, dilation, extra, groups))
    return _backward(g, x, w, stride, padding, dilation, groups, (True, False, False))[0]


def _shared_last(
    g: Any, w: Any, stride: Ints, padding: Ints, dilation: Ints, extra: Ints, groups: int
) -> Any:
    import torch

    g, w = _last(g), _last(w)
    shape = _space(g, w, stride, padding, dilation, extra, groups)
    x = torch.empty(shape, dtype=g.dtype, memory_format=_format(g))
    mask = (True, False, False)
    return _backward(g, x, w, stride, padding, dilation, groups, mask)[0].contiguous()


def _product(
    g: Any, w: Any, stride: Ints, padding: Ints, dilation: Ints, extra: Ints, groups: int
) -> Any:
    import torch

    matrix = w.reshape(w.shape[0], w.shape[1]).t()
    made = torch.matmul(matrix, g.reshape(g.shape[0], g.shape[1], -1))
    return made.reshape(g.shape[0], w.shape[1], *g.shape[2:])


def _weight(
    x: Any, g: Any, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Any:
    g, x = g.contiguous(), x.contiguous()
    w = x.new_empty((g.shape[1], x.shape[1] // groups, *kernel))
    return _backward(g, x, w, stride, padding, dilation, groups, (False, True, False))[1]


def _weight_last(
    x: Any, g: Any, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Any:
    g, x = _last(g), _last(x)
    w = x.new_empty((g.shape[1], x.shape[1] // groups, *kernel))
    mask = (False, True, False)
    return _backward(g, x, w, stride, padding, dilation, groups, mask)[1].contiguous()


def _backward(
    g: Any, x: Any, w: Any, stride: Ints, padding: Ints, dilation: Ints, groups: int,
    mask: tuple[bool, bool, bool],
) -> Any:  # fmt: skip
    import torch

    zeros = (0,) * len(stride)
    return torch.ops.aten.convolution_backward(
        g, x, w, None, stride, padding, dilation, False, zeros, groups, mask
    )


def _space(
    g: Any, w: Any, stride: Ints, padding: Ints, dilation: Ints, extra: Ints, groups: int
) -> Ints:
    """The shape of what was convolved."""
    sizes = zip(g.shape[2:], w.shape[2:], stride, padding, dilation, extra, strict=True)
    space = ((n - 1) * s - 2 * p + d * (k - 1) + 1 + e for n, k, s, p, d, e in sizes)
    return (g.shape[0], w.shape[1] * groups, *space)


def _format(tensor: Any) -> Any:
    import torch

    return torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d


def _last(tensor: Any) -> Any:
    """The tensor with its channels last."""
    return tensor.contiguous(memory_format=_format(tensor))


_FORWARD: dict[str, Way] = {"rows": _forward, "channels last": _forward_last}
_SHARED: dict[str, Way] = {"rows": _shared, "channels last": _shared_last}
_SHARED_OVER: dict[str, Way] = {"rows": _shared_over}
_POINTWISE: dict[str, Way] = {"rows": _shared, "product": _product}
_WEIGHT: dict[str, Way] = {"rows": _weight, "channels last": _weight_last}
_WEIGHT_OF_SPACE: dict[str, Way] = {"rows": _weight}  # Note [Ways that are wrong]
