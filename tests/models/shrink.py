"""A small config from the default config of any architecture, by the names of its fields.

>>> small = shrunk(transformers.GPT2Config)
>>> small.n_layer, small.n_embd, small.n_head, small.vocab_size
(2, 64, 4, 128)

Four ways are tried, `SIZES` in order. "fixed" gives each kind of field one size (a width is 64, a
number of heads 4). "filled" also states what the default leaves out (a size of heads). "divided"
divides all widths of a config and its parts by one number and keeps the numbers of heads, which
keeps what the fields of one architecture have to do with each other. "stated" keeps the widths, and
has fewer layers, words, experts and pixels. None knows an architecture by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal

Sizes = Literal["fixed", "filled", "divided", "stated"]
SIZES: tuple[Sizes, ...] = ("fixed", "filled", "divided", "stated")
_FIXED = ("fixed", "filled")

VOCABULARY = 128
WIDTH, INNER, HEADS, KEY_VALUE_HEADS, LAYERS, EXPERTS = 64, 128, 4, 2, 2, 4
_ORDINARY = 64  # ids below are words; those of special tokens are moved above
_LARGE = 32  # a width that is divided never falls below 8; small ones are no widths

_LAYERS = re.compile(
    r"(^|_)(n_|num_)?(hidden_)?(layers?|blocks)$|(layers|depth)(_number)?$|^n_layers?$|^depths$"
    r"|num_.*_layers$|_layers_num$|_num_layers$|num_block"
)
_NO_COUNT = re.compile(r"(_idx|_index|_indices|_ids?|_type|_types|layers_to|first_k|_freq|step"
                       r"|proj_layers)")
_KEY_VALUE = re.compile(r"(key_value_heads|kv_heads|num_kv_heads|n_head_kv|num_key_value)")
_HEADS = re.compile(r"(attention_heads|^n_heads?$|num_heads|_heads$|^heads$|num_head$)")
_HEAD_DIM = re.compile(r"(head_dim|head_size|d_kv|dim_head|channels_per_head)")
_ROTARY = re.compile(r"(rotary_dim|qk_rope_head_dim|rope_dim)")
_EXPERTS = re.compile(r"(num_(local_|routed_)?experts|n_routed_experts|moe_num_experts|num_expert)")
_PER_TOKEN = re.compile(r"(per_tok|top_?k(_group)?$|moe_k$|experts_topk|n_group$|num_experts_per)")
_INNER = re.compile(r"(intermediate|ffn|_ff$|d_inner|n_inner|mlp_dim|ff_dim|feed_forward|dim_ff)")
_WIDTH = re.compile(
    r"(hidden_size|hidden_dim|d_model|n_embd|embed(ding)?_(dim|size)|^dim$|^width$|projection_dim"
    r"|hidden_channels|embed_dims|hidden_sizes|_dim$|_dims$|channels$|_rank$|_size$|_features$"
    r"|_width$|^d_|neck)"
)
_POSITIONS = re.compile(r"(position_embeddings|n_positions|max_(source|target)?_?positions|seq_?len"
                        r"|sequence_length|context_length|max_length|block_size$|n_ctx)")
_VOCABULARY = re.compile(r"vocab(ulary)?_?size")
_TOKEN = re.compile(r"(token_id|token_index|_token|token_ids)$")
_KEPT = re.compile(r"(kernel|patch|window|stride|pool|group_size|chunk|num_channels|in_chans"
                   r"|input_channels|in_channels|num_mel|bins|conv_|quantizer|codebook|_freq"
                   r"|sampling|_rate|num_labels|tile|output_size|crop|merge|num_frames|scale)")


def shrunk(config_class: Any, sizes: Sizes) -> Any:
    """A small config of the class; whatever its own checks raise passes through."""
    default = config_class()
    rule = _Rule(sizes, _divisor(default))
    return _shrink(default, rule)


class _Rule:
    """How the fields of one architecture shrink."""

    def __init__(self, sizes: Sizes, divisor: int) -> None:
        self.sizes = sizes
        self.divisor = divisor
        self.tokens: dict[int, int] = {}

    def token(self, value: int) -> int:
        """Special tokens keep being distinct, and equal in all parts."""
        if value < _ORDINARY:
            return value
        return self.tokens.setdefault(value, _ORDINARY + len(self.tokens) % _ORDINARY)

    def width(self, value: int, fixed: int) -> int:
        if self.sizes == "stated":
            return value
        if self.sizes in _FIXED:
            return min(value, fixed)
        return max(value // self.divisor, 8) if value >= _LARGE else value

    def number(self, name: str, value: int, default: Any) -> int:
        """The small size of one field."""
        for pattern, small in _SMALL:
            if pattern.search(name):
                return small(self, value)
        if _LAYERS.search(name) and not _NO_COUNT.search(name):
            return min(value, LAYERS)
        if name == "image_size" or name.endswith(("image_size", "img_size")):
            return _image_size(value, default)
        if _KEPT.search(name):
            return value
        if _POSITIONS.search(name):
            return min(value, 64)
        if _INNER.search(name):
            return self.width(value, INNER)
        return self.width(value, WIDTH) if _WIDTH.search(name) else value


def _fixed_only(small: int) -> Callable[[_Rule, int], int]:
    return lambda rule, value: min(value, small) if rule.sizes in _FIXED else value


# What says nothing of sizes, or follows from the number of stages.
_LEFT_OUT = frozenset({
    "transformers_version", "model_type", "architectures", "dtype", "out_features", "out_indices",
    "stage_names", "_out_features", "_out_indices", "id2label", "label2id", "num_labels",
})  # fmt: skip
_SMALL: tuple[tuple[re.Pattern[str], Callable[[_Rule, int], int]], ...] = (
    (_VOCABULARY, lambda rule, value: min(value, VOCABULARY)),
    (_TOKEN, lambda rule, value: rule.token(value)),
    (_EXPERTS, lambda rule, value: min(value, EXPERTS)),
    (_PER_TOKEN, lambda rule, value: min(value, 2)),
    (_ROTARY, lambda rule, value: rule.width(value, WIDTH // HEADS // 2)),
    (_HEAD_DIM, lambda rule, value: rule.width(value, WIDTH // HEADS)),
    (_KEY_VALUE, _fixed_only(KEY_VALUE_HEADS)),
    (_HEADS, _fixed_only(HEADS)),
)


def _image_size(value: int, config: Any) -> int:
    patch = getattr(config, "patch_size", None)
    if isinstance(patch, (list, tuple)):
        patch = patch[0]
    if not isinstance(patch, int):
        return min(value, 64)
    return min(value, patch * max(2, -(-32 // patch)))


def _shrink(config: Any, rule: _Rule) -> Any:
    """The config again with small sizes; parts that are configs likewise."""
    fields: dict[str, Any] = {}
    stated = config.to_dict()
    layers = _layers_of(config)
    for name in stated:
        value = _field(config, name, stated)
        if _is_config(value):
            fields[name] = _shrink(value, rule)
        elif name not in _LEFT_OUT:
            fields[name] = _value(name, value, rule, config, layers)
    fields = {k: v.to_dict() if _is_config(v) else v for k, v in fields.items()}
    if rule.sizes in _FIXED and isinstance(fields.get("head_dim"), int):
        fields["head_dim"] = min(fields["head_dim"], WIDTH // HEADS)
    if rule.sizes == "filled":
        filled = {"head_dim": WIDTH // HEADS, "num_key_value_heads": KEY_VALUE_HEADS,
                  "vocab_size": VOCABULARY, "pad_token_id": 0}  # fmt: skip
        fields |= {k: v for k, v in filled.items() if k in stated and fields.get(k) is None}
    return type(config)(**fields)


def _field(config: Any, name: str, stated: dict[str, Any]) -> Any:
    try:
        return getattr(config, name, None)
    except Exception:  # a config whose layers differ refuses to say one number for all
        return stated[name]


def _value(name: str, value: Any, rule: _Rule, config: Any, layers: int | None) -> Any:
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        if value != layers and _LAYERS.search(name) and _is_length(value, config):
            return value  # of convolutions, whose sizes are lists
        return rule.number(name, value, config)
    if isinstance(value, (list, tuple)):
        if name.endswith("section"):
            return _sections(value, rule, config)
        if layers is not None and len(value) == layers > LAYERS:
            return type(value)(_ends(value))  # one entry per layer
        if value and all(type(v) is int for v in value):
            if _LAYERS.search(name) and not _NO_COUNT.search(name):
                return type(value)(min(v, 1) for v in value)
            return type(value)(rule.number(name, v, config) for v in value)
        return value
    if isinstance(value, dict) and value and all(isinstance(k, str) for k in value):
        return {k: _value(k, v, rule, config, layers) for k, v in value.items()}
    return value


def _is_length(value: int, config: Any) -> bool:
    lists = [v for v in vars(config).values() if isinstance(v, (list, tuple))]
    return any(len(v) == value and all(type(n) is int for n in v) for v in lists)


def _ends(value: Any) -> list[Any]:
    """Two layers of different kinds where there are two kinds."""
    other = next((v for v in value if v != value[0]), value[-1])
    return [value[0], other]


def _sections(value: Any, rule: _Rule, config: Any) -> Any:
    """Parts of half a head: as many, of a small one."""
    if rule.sizes == "stated":
        return value
    head = getattr(config, "head_dim", None) or WIDTH // HEADS
    head = rule.width(head, WIDTH // HEADS)
    share = 2 * sum(value) / max(getattr(config, "head_dim", None) or 2 * sum(value), 1)
    half = int(head * min(share, 1.0)) // 2
    parts = [max(1, half // len(value))] * len(value)
    parts[0] += half - sum(parts)
    return type(value)(parts)


def _layers_of(config: Any) -> int | None:
    for name in ("num_hidden_layers", "n_layer", "n_layers", "num_layers"):
        found = getattr(config, name, None)
        if isinstance(found, int) and "stage" not in config.attribute_map.get(name, name):
            return found
    return None


def _is_config(value: Any) -> bool:
    return hasattr(value, "to_dict") and hasattr(value, "model_type")


def _divisor(config: Any) -> int:
    """The power of two by which the smallest model width of the parts becomes 32 to 63."""
    widths = [
        value
        for part in _parts(config)
        for name in ("hidden_size", "d_model", "n_embd", "dim", "embed_dim")
        if isinstance(value := getattr(part, name, None), int) and value >= _LARGE
    ]
    divisor = 1
    while min(widths, default=256) // (divisor * 2) >= WIDTH:
        divisor *= 2
    return divisor


def _parts(config: Any) -> list[Any]:
    parts = [config]
    for name in config.to_dict():
        value = getattr(config, name, None)
        if _is_config(value):
            parts += _parts(value)
    return parts
