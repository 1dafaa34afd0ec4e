"""Inputs for a model, by the names of its forward's parameters and of its config's fields.

`candidates(model)` yields dicts of keyword arguments, the likeliest first; which of them a model
takes is found out by running it. No architecture is known by name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch

BATCH, WORDS = 2, 12
_LOWEST = 5  # ids below are those of padding, begin and end as a rule


def candidates(model: Any) -> Iterator[dict[str, Any]]:
    """Keyword arguments to try, by the forward's parameters."""
    names = list(inspect.signature(model.forward).parameters)
    required = [
        name for name, p in inspect.signature(model.forward).parameters.items()
        if (p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD)
        or name == "input_features_mask"
    ]  # fmt: skip
    stated = model.main_input_name
    main = stated if isinstance(stated, str) else stated[0]
    if "grid_thw" in names:
        yield from _patches(model.config, names[0])
    found: list[tuple[str, ...]] = []
    # Text and image together, then what the model says it mainly takes, then either alone.
    wanted = [
        ("input_ids", *(n for n in names if n in _BESIDE_TEXT)), (main,), ("input_ids",),
        ("pixel_values",), ("input_features",), ("input_values",), tuple(names[:1]),
    ]  # fmt: skip
    for group in wanted:
        taken = tuple(n for n in names if n in group or n in required or n in _WITH.get(main, ()))
        if taken and taken not in found and all(n in _MAKERS for n in taken):
            found.append(taken)
    for taken in found:
        for made in product(*(_MAKERS[name](model.config) for name in taken)):
            inputs = dict(zip(taken, made, strict=True))
            if "input_ids" in inputs and "attention_mask" in names:
                inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
            yield inputs


def again(inputs: dict[str, Any], seed: int) -> dict[str, Any]:
    """Other values of the same shapes: words in another order, numbers drawn anew."""
    generator = torch.Generator().manual_seed(seed)
    other: dict[str, Any] = {}
    for name, value in inputs.items():
        if value.is_floating_point():
            other[name] = torch.randn(value.shape, generator=generator)
        elif name in _WORDS:
            order = torch.randperm(value.shape[-1], generator=generator)
            other[name] = value[..., order]
        else:
            other[name] = value
    return other


def _setting(config: Any, *names: str) -> Any:
    """The first of these fields that the config or one of its parts has."""
    parts = [config]
    while parts:
        part = parts.pop(0)
        for name in names:
            value = getattr(part, name, None)
            if value is not None:
                return value
        parts += [v for k in part.to_dict() if hasattr(v := getattr(part, k, None), "to_dict")]
    return None


def _all_numbers(value: Any) -> set[int]:
    if isinstance(value, bool):
        return set()
    if isinstance(value, int):
        return {value}
    if isinstance(value, dict):
        return {n for v in value.values() for n in _all_numbers(v)}
    if isinstance(value, (list, tuple)):
        return {n for v in value for n in _all_numbers(v)}
    return set()


def _special(config: Any) -> set[int]:
    """The ids that the config gives a meaning."""
    found: set[int] = set()

    def look(fields: dict[Any, Any]) -> None:
        for name, value in fields.items():
            if isinstance(value, dict):
                look(value)
            elif isinstance(name, str) and "token" in name:
                found.update(_all_numbers(value))

    look(config.to_dict())
    return found


def _words(config: Any) -> Iterator[torch.Tensor]:
    size = _setting(config, "vocab_size") or 64
    special = _special(config)
    words = [i for i in range(_LOWEST, min(size, 64)) if i not in special] or [1]
    generator = torch.Generator().manual_seed(0)
    chosen = torch.randint(len(words), (BATCH, WORDS), generator=generator)
    ids = torch.tensor(words)[chosen]
    yield ids
    end = _setting(config, "eos_token_id")
    if isinstance(end, int) and end >= 0:  # some read a sentence at its end
        ended = ids.clone()
        ended[:, -1] = end
        yield ended


def _images(config: Any) -> Iterator[torch.Tensor]:
    channels = _setting(config, "num_channels", "in_channels", "in_chans") or 3
    sizes: list[tuple[int, ...]] = []
    stated = _setting(config, "image_size", "img_size")
    if isinstance(stated, dict):
        stated = [stated["height"], stated["width"]]
    if isinstance(stated, int):
        stated = [stated, stated]
    if stated:
        sizes.append(tuple(stated))
    sizes += [size for size in ((64, 64), (32, 32), (224, 224)) if size not in sizes]
    frames = _setting(config, "num_frames") or 4
    for size in sizes:
        yield torch.randn(BATCH, channels, *size)
        yield torch.randn(BATCH, frames, channels, *size)
    # patches, cut out before
    patch = _setting(config, "patch_size")
    if isinstance(patch, int):
        yield torch.randn(BATCH, 16, channels * patch**2)


def _features(config: Any) -> Iterator[torch.Tensor]:
    bins = _setting(
        config, "num_mel_bins", "input_dim", "input_feat_per_channel", "feature_size",
        "input_channels", "n_mels",
    ) or 80  # fmt: skip
    positions = _setting(config, "max_source_positions")
    lengths = [2 * positions] if positions else []
    for length in [*lengths, 64, 128, 256]:
        yield torch.randn(BATCH, bins, length)
        yield torch.randn(BATCH, length, bins)
        yield torch.randn(BATCH, 1, length, bins)


def _waves(config: Any) -> Iterator[torch.Tensor]:
    length = _setting(config, "max_length") or 64
    bins = _setting(config, "num_mel_bins") or 80
    yield torch.randn(BATCH, 2000)
    yield torch.randn(BATCH, 1, 4000)
    yield torch.randn(BATCH, length, bins)


def _patches(config: Any, main: str) -> Iterator[dict[str, torch.Tensor]]:
    """Patches of two images, cut out before, and how many there are in each direction."""
    channels = _setting(config, "in_channels", "num_channels", "in_chans") or 3
    times, side = _setting(config, "temporal_patch_size") or 1, _setting(config, "patch_size") or 14
    grid = torch.tensor([[1, 4, 4]] * BATCH)
    for depth in {times, 1}:
        rows = torch.randn(BATCH * 16, channels * depth * side**2)
        yield {main: rows, "grid_thw": grid}
    yield {main: torch.randn(BATCH * 16, channels, side, side), "grid_thw": grid}


def _boxes(config: Any) -> Iterator[torch.Tensor]:
    corners = torch.arange(WORDS).repeat(BATCH, 1)
    yield torch.stack([corners, corners + 1, corners + 2, corners + 3], dim=-1)


def _series(config: Any) -> Iterator[torch.Tensor]:
    past = _setting(config, "context_length", "prediction_length") or 16
    channels = _setting(config, "num_input_channels", "input_size") or 1
    yield torch.randn(BATCH, past, channels)
    yield torch.randn(BATCH, past)


def _all_ones(config: Any) -> Iterator[torch.Tensor]:
    for length in (64, 128):
        yield torch.ones(BATCH, length, dtype=torch.long)


def _states(config: Any) -> Iterator[torch.Tensor]:
    yield torch.randn(BATCH, WORDS, _setting(config, "hidden_size", "d_model") or 32)


_Maker = Callable[[Any], Iterator[torch.Tensor]]
_MAKERS: dict[str, _Maker] = {
    "input_ids": _words, "decoder_input_ids": _words, "src_tokens": _words,
    "pixel_values": _images, "pixel_values_videos": _images, "images": _images,
    "input_features": _features, "input_values": _waves, "audio_values": _waves, "bbox": _boxes,
    "past_values": _series, "inputs_embeds": _states, "hidden_states": _states,
    "query_embeds": _states, "input": _words, "input_features_mask": _all_ones,
    "audio_mel": _features, "audio_mel_mask": _all_ones,
}  # fmt: skip
_WORDS = frozenset({"input_ids", "decoder_input_ids", "src_tokens"})
_BESIDE_TEXT = frozenset({"input_ids", "pixel_values", "input_features", "input_values", "bbox",
                          "decoder_input_ids"})
_WITH = {
    name: frozenset({"decoder_input_ids"}) for name in _MAKERS if name != "decoder_input_ids"
}
