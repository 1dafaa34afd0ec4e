"""Models with a head and a loss, as they are trained: each class that transformers' Auto... know.

    heads()["BertForMaskedLM"]      →   "bert"
    labelled(model, inputs)         →   inputs with labels, the likeliest kind first

Which labels a head takes is found out by running it, as for inputs. Such models are in training
mode, with all dropout that their configs have, and the gradient is that of the loss alone.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from typing import Any

import torch
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

Tensor = torch.Tensor
_LABELS = ("labels", "mc_labels", "next_sentence_label", "sentence_order_label")


@functools.cache
def heads() -> dict[str, str]:
    """The classes that are no AutoModel, by name, with the first config that has them."""
    base = set(_classes(modeling_auto.MODEL_MAPPING_NAMES))
    found: dict[str, str] = {}
    for name, mapping in vars(modeling_auto).items():
        if name.startswith("MODEL_FOR") and name.endswith("MAPPING_NAMES"):
            for config, entry in mapping.items():
                for head in (entry,) if isinstance(entry, str) else entry:
                    if head not in base and config in CONFIG_MAPPING:
                        found.setdefault(head, config)
    return dict(sorted(found.items()))


def _classes(mapping: dict[str, Any]) -> Iterator[str]:
    for entry in mapping.values():
        yield from (entry,) if isinstance(entry, str) else entry


def labelled(model: Any, inputs: dict[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """The inputs with each kind of labels that the head may take; last, without any."""
    names = inspect.signature(model.forward).parameters
    batch = next(iter(inputs.values())).shape[0]
    if type(model).__name__.endswith("MultipleChoice"):
        chosen = {name: torch.stack([x, x.flip(0)], 1) for name, x in inputs.items()}
        yield {**chosen, "labels": torch.arange(batch) % 2}
        return
    if "start_positions" in names and "labels" not in names:
        yield {**inputs, "start_positions": torch.ones(batch, dtype=torch.long),
               "end_positions": torch.full((batch,), 3)}  # fmt: skip
    for name in _LABELS:
        if name in names:
            for made in _labels(model, inputs, batch):
                yield {**inputs, name: made}
    if "future_values" in names:
        yield {**inputs, "future_values": torch.randn(batch, 8)}
    yield dict(inputs)


def _labels(model: Any, inputs: dict[str, Tensor], batch: int) -> Iterator[Tensor]:
    """Words; a class for each row, word or pixel; numbers; what was put in."""
    classes = max(getattr(model.config, "num_labels", None) or 2, 1)
    words = inputs.get("decoder_input_ids", inputs.get("input_ids"))
    if words is not None:
        yield words.clone()
    yield torch.randint(classes, (batch,))
    if words is not None:
        yield torch.randint(classes, tuple(words.shape))
    yield torch.randn(batch, classes)
    images = inputs.get("pixel_values")
    if images is not None and images.dim() == 4:
        yield torch.randint(classes, (batch, *images.shape[-2:]))
        yield torch.rand(batch, *images.shape[-2:])
        yield torch.rand(images.shape)
    sound = inputs.get("input_values")
    if sound is not None or "input_features" in inputs:
        yield torch.randint(5, 20, (batch, 4))
    if sound is not None:
        yield torch.rand(sound.shape)
