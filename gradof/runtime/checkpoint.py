"""gradof.checkpoint: compute again instead of saving.

>>> y = checkpoint(block, x)            # within a traced function
>>> @checkpoint
... def block(x): ...
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from gradof.errors import InputError
from gradof.runtime.arrays import is_tensor
from gradof.tracer.core.pytree import flatten
from gradof.tracer.core.regions import checkpointed_region, is_recording


def checkpoint(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`fn(*args, **kwargs)`, whose inner values are not saved for the gradient.

    In a function that gradof compiles, what `fn` computes is computed again in the reverse, save
    what it returns; random numbers are not drawn again but kept, so the same ones come back.
    Elsewhere, tensors go through `torch.utils.checkpoint` and numpy arrays through `fn` itself.
    Without arguments the result is a function that does this at each call: `@checkpoint`. Raises
    InputError if `fn` is not callable.
    """
    if not callable(fn):
        raise InputError(
            f"checkpoint takes a function, not a {type(fn).__name__}",
            hint="checkpoint(fn, *args), or @checkpoint",
        )
    if not args and not kwargs:
        return functools.wraps(fn)(functools.partial(_call, fn))
    return _call(fn, *args, **kwargs)


def _call(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if is_recording():
        with checkpointed_region():
            return fn(*args, **kwargs)
    if any(is_tensor(leaf) for leaf in flatten((args, kwargs))[0]):
        from torch.utils.checkpoint import checkpoint as torch_checkpoint

        return torch_checkpoint(fn, *args, use_reentrant=False, **kwargs)
    return fn(*args, **kwargs)
