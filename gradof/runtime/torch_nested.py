"""The session of a torch trace, or of a plain run: torch's own autograd, traced in turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

Tensor = torch.Tensor


class TorchSession:
    """See `gradof.runtime.nested.Session`."""

    def is_array(self, leaf: Any) -> bool:
        """A tensor."""
        return isinstance(leaf, Tensor)

    def is_float(self, leaf: Tensor) -> bool:
        """Floating point, real or complex."""
        return leaf.is_floating_point() or leaf.is_complex()

    def fresh(self, leaf: Tensor) -> Tensor:
        """A tensor of its own in the history, a leaf where the original has none.

        A view, not a detached one: the trace may be differentiated for arguments that require no
        grad as torch has it, as `vjp(grad(f), x)` does.
        """
        with torch.enable_grad():
            view = leaf.view_as(leaf)
            return view if leaf.requires_grad else view.requires_grad_()

    def ones(self, like: Tensor) -> Tensor:
        """A tensor of ones."""
        return torch.ones_like(like)

    def stack(self, arrays: Sequence[Tensor], shape: tuple[int, ...]) -> Tensor:
        """One tensor with all of them."""
        return torch.stack(list(arrays)).reshape(shape) if arrays else torch.zeros(shape)

    def pullback(
        self, outputs: Sequence[Tensor], seeds: Sequence[Tensor], wrt: Sequence[Tensor]
    ) -> list[Tensor]:
        """torch.autograd.grad, differentiable again; zeros where there is no path."""
        live = [(o, s) for o, s in zip(outputs, seeds, strict=True) if o.requires_grad]
        if not live:
            return [torch.zeros_like(w) for w in wrt]
        grads = torch.autograd.grad(
            [o for o, _ in live], list(wrt), [s for _, s in live],
            create_graph=True, allow_unused=True,
        )  # fmt: skip
        return [torch.zeros_like(w) if g is None else g for g, w in zip(grads, wrt, strict=True)]
