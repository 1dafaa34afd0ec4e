"""Models of the transformers package under torch.compile(model, backend="gradof").

Loss, gradients of all parameters and of the gradients' norm: as eager's, and ours ran. Two here,
the others by `make models`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import transformers

from gradof.runtime.torch_dynamo_backend import CapturedGraph, gradof_backend

# Dynamo's own, of what lies between two graphs
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")

LAYERS = {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
WORDS = {"vocab_size": 50, "max_position_embeddings": 32, "hidden_size": 16,
         "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
GROUPED = {**LAYERS, **WORDS, "num_key_value_heads": 1}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "GPT2": ("ForCausalLM", {"n_layer": 2, "n_head": 2, "n_embd": 16, "n_positions": 32,
                             "vocab_size": 50, "bos_token_id": 1, "eos_token_id": 2}),
    "Bert": ("ForMaskedLM", {**LAYERS, **WORDS}),
    "Llama": ("ForCausalLM", GROUPED),
    "T5": ("ForConditionalGeneration", {"num_layers": 2, "num_heads": 2, "d_model": 16, "d_kv": 8,
                                        "d_ff": 32, "vocab_size": 50,
                                        "decoder_start_token_id": 0}),
    "ViT": ("ForImageClassification", {**LAYERS, "hidden_size": 16, "image_size": 16,
                                       "patch_size": 8}),
    "DistilBert": ("ForMaskedLM", {"n_layers": 2, "n_heads": 2, "dim": 16, "hidden_dim": 32,
                                   "vocab_size": 50, "max_position_embeddings": 32}),
    "Roberta": ("ForMaskedLM", {**LAYERS, **WORDS}),
    "Mistral": ("ForCausalLM", GROUPED),
    "Qwen2": ("ForCausalLM", GROUPED),
    "Albert": ("ForMaskedLM", {**LAYERS, **WORDS, "embedding_size": 16}),
}  # fmt: skip
FIRST = ("GPT2",)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    reset: Any = torch._dynamo.reset
    reset()
    yield
    reset()


def _model(name: str) -> Any:
    head, settings = MODELS[name]
    config = getattr(transformers, f"{name}Config")(**settings)
    cls = {"GPT2ForCausalLM": "GPT2LMHeadModel"}.get(name + head, name + head)
    torch.manual_seed(0)
    return getattr(transformers, cls)._from_config(config, attn_implementation="eager").double()


def _batch(name: str) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    if name == "ViT":
        images = torch.randn(2, 3, 16, 16, dtype=torch.float64)
        return {"pixel_values": images, "labels": torch.tensor([0, 1])}
    words = torch.randint(3, 50, (2, 7))
    return {"input_ids": words, "labels": words}


def _derivatives(run: Any, model: Any, batch: dict[str, torch.Tensor]) -> list[Any]:
    torch.manual_seed(2)  # of dropout
    weights = [p for p in model.parameters() if p.requires_grad]
    loss = run(**batch).loss
    grads = torch.autograd.grad(loss, weights, create_graph=True, allow_unused=True)
    norm = torch.stack([(g**2).sum() for g in grads if g is not None]).sum()
    return [loss, *grads, *torch.autograd.grad(norm, weights, allow_unused=True)]


@pytest.mark.parametrize(
    "name", [n if n in FIRST else pytest.param(n, marks=pytest.mark.models) for n in MODELS]
)
def test_model(name: str) -> None:
    graphs: list[CapturedGraph] = []

    def backend(graph: Any, inputs: Any) -> Any:
        made: Any = gradof_backend(graph, inputs)
        graphs.append(made.__self__)
        return made

    model, batch = _model(name), _batch(name)
    fast = torch.compile(model, backend=backend)
    want = _derivatives(model, model, batch)
    for _ in range(2):
        have = _derivatives(fast, model, batch)
        assert [h is None for h in have] == [w is None for w in want]
        largest = max(w.abs().max().item() for w in want if w is not None)
        for a, b in zip(have, want, strict=True):
            if b is not None:  # the models compute softmax and norms in float32
                bound = 1e-5 * b.abs().max().item() + 1e-7 * largest
                torch.testing.assert_close(a, b, rtol=0, atol=bound)
    runs = [graph.compiled.cache_info() for graph in graphs]
    assert runs and all(r.misses == 1 and r.backward_runs >= 4 for r in runs)
