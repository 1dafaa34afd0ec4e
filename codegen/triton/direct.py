"""A planned call as one Python function that hands compiled kernels to the driver.

    def f_kernel(t0, t1):
        if device() != 0 or runtime.launch_enter_hook is not entering or entering.calls or ...:
            return None
        p0 = t0.data_ptr()
        p1 = t1.data_ptr()
        o0 = empty(shape0, strides0, dtype0)
        p2 = o0.data_ptr()
        if (p0 | p1 | p2) & 15:
            return None
        stream = current_stream(0)
        run0(8, 1, 1, stream, function0, packed0, None, None, None, p0, 64, 1, p1, 1, p2, ...)
        return (o0,)

Note [Launches past triton's JIT]
`kernel[grid](...)` binds and specialises its arguments each time. What it decides by: dtypes, which
numbers are 1 or divisible by 16, and whether addresses are divisible by 16. A plan has fixed dtypes
and numbers, so one compiled kernel is right for it whenever all addresses are divisible by 16. Its
first call goes through the JIT, and so does each call that has another address, that has hooks to
run (profilers set them), or that another device is current for: the function returns None then.

What is used of triton is the same from 3.6 to 3.9: `run` of a compiled kernel takes grid, stream,
function, packed metadata, launch metadata, two hooks, and then every parameter in order, those that
are constexpr too; pointers may be numbers. Hooks are chains, with a list `calls`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gradof.codegen.machine.executable import remember_source

ALIGNMENT = 16  # bytes; what triton specialises addresses by
ROOM = 256  # bytes; each partial result begins at a multiple, as memory of its own would


@dataclass(frozen=True)
class Step:
    """A launch: what the JIT returned for it, its grid, and its arguments.

    An argument is a number of a pointer in brackets, `(3,)`, or else the value itself.
    """

    compiled: Any
    grid: tuple[int, ...]
    arguments: Sequence[Any]


@dataclass(frozen=True)
class Memory:
    """What a call makes: shape, strides, dtype; pointers into it by the number of bytes."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any
    offsets: tuple[int, ...] = (0,)


def direct(
    name: str, device: Any, operands: int, memory: Sequence[Memory], steps: Sequence[Step],
    results: Sequence[int],
) -> Callable[..., Any]:  # fmt: skip
    """The function: operands to the results, by their number in `memory`, or to None.

    Pointers are numbered: those of the operands, then those into `memory`, in order.
    """
    from triton import knobs
    from triton.runtime import driver

    space: dict[str, Any] = {
        "device": driver.active.get_current_device, "empty": _empty(device),
        "current_stream": driver.active.get_current_stream,
        "runtime": knobs.runtime, "entering": knobs.runtime.launch_enter_hook,
        "leaving": knobs.runtime.launch_exit_hook,
    }  # fmt: skip
    hooks = []
    for name_of, chain in (("launch_enter_hook", "entering"), ("launch_exit_hook", "leaving")):
        hooks.append(f"runtime.{name_of} is not {chain}")
        hooks += [] if space[chain] is None else [f"{chain}.calls"]
    wrong = " or ".join([f"device() != {device.index or 0}", *hooks])
    lines = [f"if {wrong}:", "    return None"]
    lines += [f"p{k} = t{k}.data_ptr()" for k in range(operands)]
    pointers = operands
    for k, m in enumerate(memory):
        space |= {f"shape{k}": m.shape, f"strides{k}": m.strides, f"dtype{k}": m.dtype}
        lines.append(f"o{k} = empty(shape{k}, strides{k}, dtype{k})")
        for offset in m.offsets:
            lines.append(f"p{pointers} = o{k}.data_ptr(){f' + {offset}' if offset else ''}")
            pointers += 1
    if pointers:
        every = " | ".join(f"p{k}" for k in range(pointers))
        lines += [f"if ({every}) & {ALIGNMENT - 1}:", "    return None"]
    lines.append(f"stream = current_stream({device.index or 0})")
    for k, step in enumerate(steps):
        space |= {
            f"run{k}": step.compiled.run, f"function{k}": step.compiled.function,
            f"packed{k}": step.compiled.packed_metadata,
        }  # fmt: skip
        grid = ", ".join(str(n) for n in (*step.grid, 1, 1)[:3])
        given = []
        for j, a in enumerate(step.arguments):
            if not isinstance(a, (tuple, int)):
                space[f"c{k}_{j}"] = a
            given.append(f"p{a[0]}" if isinstance(a, tuple) else str(a) if isinstance(a, int)
                         else f"c{k}_{j}")  # fmt: skip
        head = f"run{k}({grid}, stream, function{k}, packed{k}, None, None, None"
        lines.append(f"{head}, {', '.join(given)})")
    made = "".join(f"o{k}, " for k in results)
    lines.append(f"return ({made})")
    head = f"def {name}({', '.join(f't{k}' for k in range(operands))}):\n"
    text = head + "".join(f"    {line}\n" for line in lines)
    filename = f"<gradof launch of {name}>"
    remember_source(filename, text)
    exec(compile(text, filename, "exec"), space)
    function: Callable[..., Any] = space[name]
    return function


def _empty(device: Any) -> Callable[..., Any]:
    """Memory on the current device, by shape, strides and dtype."""
    import torch

    if device.type == "cuda":
        made: Callable[..., Any] = torch._C._dynamo.guards._empty_strided_cuda  # type: ignore[attr-defined]
        return made

    def empty(shape: Any, strides: Any, dtype: Any) -> Any:
        return torch.empty_strided(shape, strides, dtype=dtype, device=device)

    return empty
