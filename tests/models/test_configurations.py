"""Configurations of transformers that change between calls: each call is as eager's."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import transformers

from gradof import differentiate

pytestmark = [
    pytest.mark.filterwarnings("ignore::gradof.errors.RetraceWarning"),
    pytest.mark.filterwarnings("ignore::gradof.errors.EagerWarning"),
]
SMALL = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
         "intermediate_size": 32}  # fmt: skip
MODELS: dict[str, tuple[Any, Any]] = {
    "bert": (transformers.BertForSequenceClassification, transformers.BertConfig(**SMALL)),
    "llama": (
        transformers.LlamaForCausalLM, transformers.LlamaConfig(**SMALL, num_key_value_heads=2)
    ),
    "gpt2": (
        transformers.GPT2LMHeadModel,
        transformers.GPT2Config(vocab_size=60, n_embd=16, n_layer=2, n_head=2),
    ),
}  # fmt: skip


def _set(name: str, value: Any) -> Any:
    return lambda model: setattr(model.config, name, value)


CHANGES: dict[str, Any] = {
    "nothing": lambda model: None,
    "hidden states": _set("output_hidden_states", True),
    "an implementation": lambda model: model.set_attn_implementation("eager"),
    "attentions": _set("output_attentions", True),
    "no hidden states": _set("output_hidden_states", False),
    "no cache": _set("use_cache", False),
    "what saving writes": lambda model: model.config.update(
        {"architectures": ["x"], "dtype": "float32"}
    ),
    "another implementation": lambda model: (
        _set("output_attentions", False)(model), model.set_attn_implementation("sdpa")
    ),
    "by a dict": lambda model: model.config.update({"output_hidden_states": True}),
    "padding": _set("pad_token_id", 5),
    "a copy": lambda model: setattr(model, "config", copy.deepcopy(model.config)),
    "of the copy": _set("output_hidden_states", False),
    "in use": lambda model: model.eval(),
}  # fmt: skip


def _parts(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach()
    if hasattr(value, "items"):
        return {key: _parts(part) for key, part in value.items()}
    return [_parts(part) for part in value] if isinstance(value, (tuple, list)) else []  # a cache


@pytest.mark.parametrize("name", [
    "bert", *(pytest.param(name, marks=pytest.mark.models) for name in ("llama", "gpt2"))
])  # fmt: skip
def test_what_is_set_in_a_configuration_is_seen(name: str) -> None:
    make, config = MODELS[name]
    words = torch.randint(0, 50, (2, 6), generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1]) if name == "bert" else words
    torch.manual_seed(0)
    plain = make(copy.deepcopy(config))
    other = copy.deepcopy(plain)
    compiled: Any = differentiate(other)
    for seed, change in enumerate(CHANGES.values()):
        found = list[Any]()
        for model, call in ((plain, plain), (other, compiled)):
            change(model)
            model.zero_grad()
            torch.manual_seed(seed)
            result = call(input_ids=words, labels=labels)
            result.loss.backward()
            grads = [p.grad for p in model.parameters()]
            found.append((_parts(result), grads))
        assert found[0][0].keys() == found[1][0].keys()
        torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=1e-5)
    assert compiled.cache_info().backward_runs >= len(CHANGES) - 2
