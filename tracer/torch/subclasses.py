"""`x.as_subclass(torch.Tensor)` of a traced tensor: a view of it, which no mode of torch's sees.

Code that may be given subclasses takes their names or layouts off in this way, of plain tensors,
too. A subclass of a traced tensor would be seen by nobody: it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from gradof.errors import UnsupportedOpError
from gradof.tracer.core.regions import is_recording
from gradof.tracer.state.source import user_loc
from gradof.tracer.torch.functional import is_wrapper

_Tensor: Any = torch.Tensor


@contextmanager
def subclasses(lift: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[None]:
    """Within it, the threads that record make views instead; `lift` gives what is traced."""
    original = _Tensor.as_subclass

    def as_subclass(x: torch.Tensor, cls: type[torch.Tensor]) -> torch.Tensor:
        if not is_recording() or (cls is not torch.Tensor and not is_wrapper(x)):
            return original(x, cls)  # type: ignore[no-any-return]
        if cls is not torch.Tensor:
            raise UnsupportedOpError(
                f"a {cls.__qualname__}, a subclass of Tensor, is made of a traced tensor",
                loc=user_loc(), hint="stay with plain tensors inside the function",
            )  # fmt: skip
        with torch._C.DisableTorchFunction():  # ours, not the user's
            traced = lift(x)
        return traced.expand(traced.shape)

    _Tensor.as_subclass = as_subclass
    try:
        yield
    finally:
        del _Tensor.as_subclass
