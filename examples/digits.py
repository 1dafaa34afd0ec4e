"""Train a classifier of handwritten digits with gradients that gradof derived.

    python examples/digits.py              # what `make demo` runs
    gradof show  examples/digits.py:loss --stage df
    gradof check examples/digits.py:loss

The data are scikit-learn's bundled digits: 1797 images of 8x8 pixels (Alpaydin & Kaynak, 1998).
The network is a small torch CNN; only the differentiation is gradof's. A quarter of the images is
never trained on.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from gradof import differentiate

torch.manual_seed(0)
model = nn.Sequential(
    nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(),
    nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
    nn.Linear(512, 64), nn.GELU(), nn.Linear(64, 10),
)  # fmt: skip


@differentiate
def loss(images: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of the model: images f32[n,64], labels i64[n] -> f32[]."""
    logits = model(images)
    return nn.functional.cross_entropy(logits, labels)


def example_inputs() -> tuple[Tensor, Tensor]:
    """Inputs for `gradof show` and `gradof check`: eight digits."""
    data = load_data()
    return data.train_images[:8], data.train_labels[:8]


@dataclass
class Data:
    """The split: images f32[n,64] in 0..1, labels i64[n]."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor


def load_data() -> Data:
    """scikit-learn's digits, a stratified quarter held out."""
    digits = load_digits()
    parts = train_test_split(
        digits.data / 16.0, digits.target, test_size=0.25, random_state=0, stratify=digits.target
    )
    train_x, test_x, train_y, test_y = (torch.as_tensor(p) for p in parts)
    return Data(train_x.float(), train_y.long(), test_x.float(), test_y.long())


def batches(data: Data, size: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Whole batches of one epoch, shuffled: one shape, so one trace."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(data.train_images), generator=generator)
    for start in range(0, len(order) - size + 1, size):
        chosen = order[start : start + size]
        yield data.train_images[chosen], data.train_labels[chosen]


def accuracy(images: Tensor, labels: Tensor) -> float:
    """Share of images the model names rightly."""
    with torch.no_grad():
        return (model(images).argmax(dim=1) == labels).float().mean().item()


def gradients(fn: object, images: Tensor, labels: Tensor) -> list[Tensor]:
    """Gradients of every parameter."""
    assert callable(fn)
    return list(torch.autograd.grad(fn(images, labels), list(model.parameters())))


def largest_difference(images: Tensor, labels: Tensor) -> float:
    """Largest relative difference to torch eager: max |g - eager| / max |eager| per parameter."""
    compiled = differentiate(loss.fn, strict=True)  # `loss` may have been found faster as it is
    ours = gradients(compiled, images, labels)
    assert compiled.cache_info().backward_runs == 1, "gradof's own backward did not run"
    eager = gradients(loss.fn, images, labels)
    return max(
        ((a - b).abs().max() / b.abs().max()).item() for a, b in zip(ours, eager, strict=True)
    )


def train(data: Data, epochs: int, console: Console) -> float:
    """Train with Adam; returns the seconds of the training loop."""
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    columns = (
        TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("epochs"),
        TimeElapsedColumn(), TextColumn("loss {task.fields[loss]:.4f}"),
        TextColumn("test accuracy {task.fields[accuracy]:.2%}"),
    )  # fmt: skip
    start = time.perf_counter()
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("train", total=epochs, loss=float("nan"), accuracy=0.0)
        for epoch in range(epochs):
            value = torch.tensor(0.0)
            for images, labels in batches(data, 64, epoch):
                optimizer.zero_grad()
                value = loss(images, labels)
                value.backward()
                optimizer.step()
            schedule.step()
            progress.update(
                task, advance=1, loss=value.item(),
                accuracy=accuracy(data.test_images, data.test_labels),
            )  # fmt: skip
    return time.perf_counter() - start


def main(argv: list[str] | None = None) -> dict[str, float]:
    """Train, report, and return the reported figures."""
    parser = argparse.ArgumentParser(description="digits, with gradients derived by gradof")
    parser.add_argument("--epochs", type=int, default=20)
    epochs = parser.parse_args(argv).epochs
    console = Console()
    data = load_data()
    first, labels = data.train_images[:64], data.train_labels[:64]

    start = time.perf_counter()
    gradients(loss, first, labels)
    first_gradient = time.perf_counter() - start

    seconds = train(data, epochs, console)
    figures = {
        "test_accuracy": accuracy(data.test_images, data.test_labels),
        "difference_f32": largest_difference(first, labels),
        "first_gradient_ms": first_gradient * 1e3,
        "step_ms": seconds / (epochs * (len(data.train_images) // 64)) * 1e3,
    }
    model.double()
    figures["difference_f64"] = largest_difference(first.double(), labels)
    model.float()
    report(figures, console)
    return figures


def report(figures: dict[str, float], console: Console) -> None:
    """Print what was reached and what to try next."""
    print_ = console.print
    print_(f"test accuracy (450 images never trained on)  {figures['test_accuracy']:.2%}")
    print_(f"largest relative gradient difference to eager, f32  {figures['difference_f32']:.1e}")
    print_(f"largest relative gradient difference to eager, f64  {figures['difference_f64']:.1e}")
    print_(f"time to the first gradient  {figures['first_gradient_ms']:.0f} ms")
    print_(f"time per training step  {figures['step_ms']:.2f} ms")
    print_("\nNext, try:", highlight=False)
    for command in (
        "gradof show  examples/digits.py:loss --stage trace",
        "gradof show  examples/digits.py:loss --stage df",
        "gradof show  examples/digits.py:loss --stage numpy",
        "gradof check examples/digits.py:loss",
    ):
        print_(f"  .venv/bin/{command}", highlight=False, markup=False)


if __name__ == "__main__":
    main()
