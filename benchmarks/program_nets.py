"""More networks for benchmarks/programs.py: sequences, graphs, tables, fields.

See `program_models.py`, which has those of images.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from program_models import Program, images, program, words
from torch import Tensor, nn


class RecurrentModel(nn.Module):
    """Embedding, recurrent layers, words: PyTorch's word_language_model."""

    def __init__(self, kind: Any, hidden: int = 128, layers: int = 2, **settings: Any) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, 64)
        self.rnn = kind(64, hidden, layers, batch_first=True, **settings)
        wide = hidden * (2 if settings.get("bidirectional") else 1)
        self.drop, self.last = nn.Dropout(0.2), nn.Linear(wide, 1000)

    def forward(self, x: Tensor) -> Tensor:
        """[N, T] of words to [N, T, 1000]."""
        y, _ = self.rnn(self.embedding(x))
        return self.last(self.drop(y))


@program
def lstm_language_model() -> Program:
    """Two layers of LSTM."""
    return RecurrentModel(nn.LSTM), words(8, 35)


@program
def gru_language_model() -> Program:
    """Two layers of GRU."""
    return RecurrentModel(nn.GRU), words(8, 35)


@program
def rnn_language_model() -> Program:
    """Two layers of tanh."""
    return RecurrentModel(nn.RNN), words(8, 35)


@program
def bilstm_tagger() -> Program:
    """One layer in both directions."""
    return RecurrentModel(nn.LSTM, 64, 1, bidirectional=True), words(8, 25)


@program
def lstm_of_long_series() -> Program:
    """Three hundred steps of a few numbers, as of a time series."""
    class Series(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.last = nn.LSTM(4, 32, batch_first=True), nn.Linear(32, 1)

        def forward(self, x: Tensor) -> Tensor:
            y, _ = self.rnn(x)
            return self.last(y[:, -1])

    return Series(), {"x": torch.randn(16, 300, 4)}


@program
def lstm_cells() -> Program:
    """Two cells in a Python loop: PyTorch's time_sequence_prediction."""
    class Sequence(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.LSTMCell(1, 51), nn.LSTMCell(51, 51)
            self.last = nn.Linear(51, 1)

        def forward(self, x: Tensor) -> Tensor:
            h, c, g, d = (x.new_zeros(x.size(0), 51) for _ in range(4))
            outputs = []
            for given in x.split(1, dim=1):
                h, c = self.first(given, (h, c))
                g, d = self.second(h, (g, d))
                outputs.append(self.last(g))
            return torch.cat(outputs, 1)

    return Sequence(), {"x": torch.randn(32, 40)}


@program
def seq2seq_attention() -> Program:
    """A GRU that reads, and one that writes with additive attention."""
    class Translator(nn.Module):
        def __init__(self, width: int = 64) -> None:
            super().__init__()
            self.words = nn.Embedding(1000, width)
            self.reader = nn.GRU(width, width, batch_first=True)
            self.writer = nn.GRUCell(2 * width, width)
            self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
            self.score, self.last = nn.Linear(width, 1), nn.Linear(width, 1000)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            read, h = self.reader(self.words(x))
            h, keys, outputs = h[0], self.key(read), []
            for t in range(y.size(1)):
                scores = self.score(torch.tanh(self.query(h).unsqueeze(1) + keys)).squeeze(-1)
                context = torch.bmm(F.softmax(scores, -1).unsqueeze(1), read).squeeze(1)
                h = self.writer(torch.cat([self.words(y[:, t]), context], -1), h)
                outputs.append(self.last(h))
            return torch.stack(outputs, 1)

    return Translator(), {"x": torch.randint(1000, (8, 20)), "y": torch.randint(1000, (8, 12))}


class Attention(nn.Module):
    """minGPT's attention, by scaled_dot_product_attention."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """[N, T, C] to the same."""
        n, t, c = x.shape
        q, k, v = (y.view(n, t, self.heads, -1).transpose(1, 2)
                   for y in self.qkv(x).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(n, t, c))


class Block(nn.Module):
    """A transformer's block with the norms before."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(width), Attention(width, heads, causal)
        self.after = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                 nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """[N, T, C] to the same."""
        x = x + self.attention(self.norm(x))
        return x + self.mlp(self.after(x))


@program
def gpt() -> Program:
    """Four blocks of 128."""
    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(1000, 128), nn.Embedding(64, 128)
            self.blocks = nn.Sequential(*[Block(128, 4, True) for _ in range(4)])
            self.norm, self.last = nn.LayerNorm(128), nn.Linear(128, 1000, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            h = self.words(x) + self.places(torch.arange(x.size(1)))
            return self.last(self.norm(self.blocks(h)))

    return GPT(), words(8, 64)


@program
def vision_transformer() -> Program:
    """Patches of 8 x 8, four blocks."""
    class ViT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, 96, 8, 8)
            self.first = nn.Parameter(torch.zeros(1, 1, 96))
            self.places = nn.Parameter(0.02 * torch.randn(1, 65, 96))
            self.blocks = nn.Sequential(*[Block(96, 3, False) for _ in range(4)])
            self.norm, self.last = nn.LayerNorm(96), nn.Linear(96, 10)

        def forward(self, x: Tensor) -> Tensor:
            h = self.patches(x).flatten(2).transpose(1, 2)
            h = torch.cat([self.first.expand(len(x), -1, -1), h], 1) + self.places
            return self.last(self.norm(self.blocks(h))[:, 0])

    return ViT(), images(8, 64)


@program
def transformer_encoder() -> Program:
    """torch.nn's own, with dropout."""
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True)

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(1000, 128)
            self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.body(self.words(x) * math.sqrt(128)).mean(1)

    return Encoder(), words(8, 50)


@program
def mlp_mixer() -> Program:
    """Products over patches, then over channels."""
    class Mixer(nn.Module):
        def __init__(self, patches: int, width: int) -> None:
            super().__init__()
            self.one, self.two = nn.LayerNorm(width), nn.LayerNorm(width)
            self.tokens = nn.Sequential(nn.Linear(patches, 64), nn.GELU(), nn.Linear(64, patches))
            self.channels = nn.Sequential(nn.Linear(width, 256), nn.GELU(), nn.Linear(256, width))

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.tokens(self.one(x).transpose(1, 2)).transpose(1, 2)
            return x + self.channels(self.two(x))

    return nn.Sequential(*[Mixer(64, 96) for _ in range(4)]), {"x": torch.randn(8, 64, 96)}


@program
def mlp() -> Program:
    """Layers, batch norms, dropout, for handwritten digits."""
    return nn.Sequential(
        nn.Linear(784, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, 256),
        nn.BatchNorm1d(256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, 10),
    ), {"x": torch.randn(128, 784)}  # fmt: skip


@program
def vae() -> Program:
    """PyTorch's example, with its draw."""
    class VAE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.mean, self.log_var = (nn.Linear(784, 400), nn.Linear(400, 20),
                                               nn.Linear(400, 20))
            self.b, self.c = nn.Linear(20, 400), nn.Linear(400, 784)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            h = F.relu(self.a(x))
            mean, log_var = self.mean(h), self.log_var(h)
            z = mean + torch.randn_like(mean) * torch.exp(0.5 * log_var)
            return torch.sigmoid(self.c(F.relu(self.b(z)))), mean, log_var

    return VAE(), {"x": torch.rand(128, 784)}


@program
def nerf() -> Program:
    """Sines of places, a deep product, colours and densities."""
    class Field(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(39, 128), nn.ReLU(), nn.Linear(128, 128),
                                      nn.ReLU(), nn.Linear(128, 128), nn.ReLU())
            self.last = nn.Linear(128, 4)

        def forward(self, x: Tensor) -> Tensor:
            parts = [x]
            for k in range(6):
                parts += [torch.sin(2.0**k * x), torch.cos(2.0**k * x)]
            y = self.last(self.body(torch.cat(parts, -1))).view(64, -1, 4)
            colour, density = torch.sigmoid(y[..., :3]), F.relu(y[..., 3])
            clear = torch.exp(-torch.cumsum(density * 0.1, 1))
            return ((clear * (1 - torch.exp(-density * 0.1)))[..., None] * colour).sum(1)

    return Field(), {"x": torch.randn(64 * 32, 3)}


@program
def dense_graph_convolution() -> Program:
    """GCN with a dense adjacency."""
    class GCN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(64, 32), nn.Linear(32, 7)

        def forward(self, x: Tensor, a: Tensor) -> Tensor:
            return F.log_softmax(a @ self.two(F.relu(a @ self.one(x))), -1)

    adjacency = (torch.rand(500, 500) < 0.02).float() + torch.eye(500)
    return GCN(), {"x": torch.randn(500, 64), "a": adjacency / adjacency.sum(1, keepdim=True)}


@program
def message_passing() -> Program:
    """A graph network over lists of edges: index, scatter, mean."""
    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.message = nn.ModuleList([nn.Linear(64, 32) for _ in range(3)])
            self.update = nn.ModuleList([nn.Linear(64, 32) for _ in range(3)])

        def forward(self, x: Tensor, edges: Tensor) -> Tensor:
            source, target = edges
            for message, update in zip(self.message, self.update, strict=True):
                sent = F.relu(message(torch.cat([x[source], x[target]], -1)))
                got = torch.zeros_like(x).index_add(0, target, sent)
                x = x + update(torch.cat([x, got], -1))
            return x.mean(0)

    return Layers(), {"x": torch.randn(500, 32), "edges": torch.randint(500, (2, 4000))}


@program
def graph_attention() -> Program:
    """GAT with masked scores."""
    class GAT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Linear(64, 4 * 16, bias=False)
            self.a, self.b = nn.Parameter(torch.randn(4, 16)), nn.Parameter(torch.randn(4, 16))

        def forward(self, x: Tensor, edges: Tensor) -> Tensor:
            h = self.w(x).view(-1, 4, 16)
            scores = F.leaky_relu((h * self.a).sum(-1)[:, None] + (h * self.b).sum(-1)[None], 0.2)
            shares = F.softmax(scores.masked_fill(edges[..., None] == 0, -1e9), dim=1)
            return F.elu(torch.einsum("ijh,jhf->ihf", shares, h).flatten(1))

    return GAT(), {"x": torch.randn(200, 64), "edges": (torch.rand(200, 200) < 0.1).float()}


@program
def point_net() -> Program:
    """Convolutions of one by one over points, a maximum over them."""
    class PointNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.points = nn.Sequential(
                nn.Conv1d(3, 64, 1), nn.BatchNorm1d(64), nn.ReLU(), nn.Conv1d(64, 128, 1),
                nn.BatchNorm1d(128), nn.ReLU(),
            )  # fmt: skip
            self.last = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))

        def forward(self, x: Tensor) -> Tensor:
            return F.log_softmax(self.last(self.points(x).max(-1).values), -1)

    return PointNet(), {"x": torch.randn(8, 3, 512)}


@program
def recommender() -> Program:
    """DLRM: embeddings, a product of each pair, layers."""
    class DLRM(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tables = nn.ModuleList([nn.Embedding(1000, 16) for _ in range(8)])
            self.bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, 16), nn.ReLU())
            self.top = nn.Sequential(nn.Linear(52, 64), nn.ReLU(), nn.Linear(64, 1))
            self.register_buffer("pairs", torch.tril_indices(9, 9, -1))

        def forward(self, x: Tensor, ids: Tensor) -> Tensor:
            first = self.bottom(x)
            rows = torch.stack([first, *(t(ids[:, k]) for k, t in enumerate(self.tables))], 1)
            products = torch.bmm(rows, rows.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
            return torch.sigmoid(self.top(torch.cat([first, products], 1)))

    return DLRM(), {"x": torch.randn(256, 13), "ids": torch.randint(1000, (256, 8))}


@program
def mixture_of_experts() -> Program:
    """Every expert, weighted by a gate."""
    class Mixture(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(64, 8)
            self.one = nn.Parameter(0.1 * torch.randn(8, 64, 128))
            self.two = nn.Parameter(0.1 * torch.randn(8, 128, 64))

        def forward(self, x: Tensor) -> Tensor:
            shares = F.softmax(self.gate(x), -1)
            h = F.silu(torch.einsum("nc,ech->enh", x, self.one))
            return torch.einsum("ne,enc->nc", shares, torch.einsum("enh,ehc->enc", h, self.two))

    return Mixture(), {"x": torch.randn(256, 64)}


@program
def normalizing_flow() -> Program:
    """RealNVP: coupled layers, and the log determinant."""
    class Flow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.nets = nn.ModuleList([
                nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 16)) for _ in range(6)
            ])

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            a, b = x.chunk(2, -1)
            log = x.new_zeros(x.size(0))
            for net in self.nets:
                s, t = net(a).chunk(2, -1)
                s = torch.tanh(s)
                a, b, log = b * s.exp() + t, a, log + s.sum(-1)
            return torch.cat([a, b], -1), log

    return Flow(), {"x": torch.randn(256, 16)}
