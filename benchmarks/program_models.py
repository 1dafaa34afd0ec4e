"""Networks as their papers' usual code has them, for benchmarks/programs.py.

    model, inputs = MODELS["resnet"]()

Widths and images are those of small experiments, so that a step takes milliseconds. Nothing here
knows of gradof. Others are in `program_nets.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Program = tuple[Any, dict[str, Tensor]]
MODELS: dict[str, Callable[[], Program]] = {}


def program(make: Callable[[], Program]) -> Callable[[], Program]:
    """Put a program on the list, under its function's name."""
    MODELS[make.__name__.strip("_").replace("_", " ")] = make
    return make


def images(n: int, size: int, channels: int = 3) -> dict[str, Tensor]:
    """A batch of images as the argument x."""
    return {"x": torch.randn(n, channels, size, size)}


def words(n: int, length: int, vocabulary: int = 1000) -> dict[str, Tensor]:
    """A batch of sentences as the argument x."""
    return {"x": torch.randint(vocabulary, (n, length))}


def conv_bn(i: int, o: int, k: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Convolution and batch norm, without a bias."""
    conv = nn.Conv2d(i, o, k, stride, k // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(o))


class BasicBlock(nn.Module):
    """ResNet's block of two convolutions."""

    def __init__(self, i: int, o: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = conv_bn(i, o, 3, stride), conv_bn(o, o)
        self.short = conv_bn(i, o, 1, stride) if stride > 1 or i != o else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """[N, I, H, W] to [N, O, H / stride, W / stride]."""
        y = self.second(F.relu(self.first(x), inplace=True))
        return F.relu(y + self.short(x), inplace=True)


class Bottleneck(nn.Module):
    """ResNet's block of three convolutions; ResNeXt's with groups."""

    def __init__(self, i: int, o: int, stride: int, groups: int = 1) -> None:
        super().__init__()
        mid = o // 4
        self.body = nn.Sequential(
            conv_bn(i, mid, 1), nn.ReLU(inplace=True), conv_bn(mid, mid, 3, stride, groups),
            nn.ReLU(inplace=True), conv_bn(mid, o, 1),
        )  # fmt: skip
        self.short = conv_bn(i, o, 1, stride) if stride > 1 or i != o else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """[N, I, H, W] to [N, O, H / stride, W / stride]."""
        return F.relu(self.body(x) + self.short(x))


def residual_net(block: Any, widths: list[int], **settings: Any) -> nn.Sequential:
    """Stem, two blocks of each width, and a classifier."""
    layers: list[nn.Module] = [conv_bn(3, widths[0], 3), nn.ReLU(inplace=True)]
    i = widths[0]
    for depth, o in enumerate(widths):
        layers += [block(i, o, 2 if depth else 1, **settings), block(o, o, 1, **settings)]
        i = o
    pool = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(i, 10)]
    return nn.Sequential(*layers, *pool)


@program
def resnet() -> Program:
    """ResNet-18's blocks, narrower."""
    return residual_net(BasicBlock, [32, 64, 128, 256]), images(8, 32)


@program
def resnet_channels_last() -> Program:
    """The same with its memory in another order."""
    model = residual_net(BasicBlock, [32, 64, 128, 256]).to(memory_format=torch.channels_last)
    given = torch.randn(8, 3, 32, 32).to(memory_format=torch.channels_last)
    return model, {"x": given}


@program
def resnet_bottleneck() -> Program:
    """ResNet-50's blocks."""
    return residual_net(Bottleneck, [64, 128, 256]), images(8, 32)


@program
def resnext() -> Program:
    """Convolutions in groups."""
    return residual_net(Bottleneck, [64, 128, 256], groups=8), images(4, 32)


@program
def vgg() -> Program:
    """Convolutions with biases, max pooling, dropout."""
    layers: list[nn.Module] = []
    i = 3
    for o in (32, 64, 128):
        layers += [nn.Conv2d(i, o, 3, padding=1), nn.ReLU(inplace=True),
                   nn.Conv2d(o, o, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
        i = o
    head = [nn.Flatten(), nn.Linear(i * 16, 128), nn.ReLU(), nn.Dropout(), nn.Linear(128, 10)]
    return nn.Sequential(*layers, *head), images(8, 32)


class DenseLayer(nn.Module):
    """DenseNet's layer: what it gives is put beside what it got."""

    def __init__(self, i: int, growth: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(i), nn.ReLU(), nn.Conv2d(i, 4 * growth, 1, bias=False),
            nn.BatchNorm2d(4 * growth), nn.ReLU(),
            nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """[N, I, H, W] to [N, I + growth, H, W]."""
        return torch.cat([x, self.body(x)], 1)


@program
def densenet() -> Program:
    """Three dense blocks of four layers."""
    layers: list[nn.Module] = [nn.Conv2d(3, 24, 3, padding=1)]
    width = 24
    for _ in range(3):
        for _ in range(4):
            layers.append(DenseLayer(width, 12))
            width += 12
        layers += [nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width // 2, 1),
                   nn.AvgPool2d(2)]
        width //= 2
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)), \
        images(8, 32)


class Inverted(nn.Module):
    """MobileNetV2's block, with EfficientNet's squeeze where it is asked for."""

    def __init__(self, i: int, o: int, stride: int, act: Any, squeeze: bool = False) -> None:
        super().__init__()
        wide = 4 * i
        self.inside = nn.Sequential(
            conv_bn(i, wide, 1), act(), conv_bn(wide, wide, 3, stride, wide), act()
        )
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, i // 2, 1), act(), nn.Conv2d(i // 2, wide, 1),
            nn.Sigmoid(),
        ) if squeeze else None  # fmt: skip
        self.last, self.same = conv_bn(wide, o, 1), stride == 1 and i == o

    def forward(self, x: Tensor) -> Tensor:
        """[N, I, H, W] to [N, O, H / stride, W / stride]."""
        y = self.inside(x)
        if self.squeeze is not None:
            y = y * self.squeeze(y)
        y = self.last(y)
        return x + y if self.same else y


def _inverted_net(act: Any, squeeze: bool) -> nn.Sequential:
    layers: list[nn.Module] = [conv_bn(3, 16), act()]
    for i, o, stride in ((16, 24, 2), (24, 24, 1), (24, 40, 2), (40, 40, 1), (40, 80, 2)):
        layers.append(Inverted(i, o, stride, act, squeeze))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(80, 10))


@program
def mobilenet() -> Program:
    """Depthwise convolutions and ReLU6."""
    return _inverted_net(nn.ReLU6, False), images(8, 48)


@program
def efficientnet() -> Program:
    """Depthwise convolutions, SiLU, squeeze and excitation."""
    return _inverted_net(nn.SiLU, True), images(8, 48)


class Fire(nn.Module):
    """SqueezeNet's module."""

    def __init__(self, i: int, squeezed: int, o: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(i, squeezed, 1)
        self.one, self.three = nn.Conv2d(squeezed, o, 1), nn.Conv2d(squeezed, o, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """[N, I, H, W] to [N, 2 O, H, W]."""
        x = F.relu(self.squeeze(x))
        return torch.cat([F.relu(self.one(x)), F.relu(self.three(x))], 1)


@program
def squeezenet() -> Program:
    """Fire modules and max pooling in ceil mode."""
    pool = nn.MaxPool2d(3, 2, ceil_mode=True)
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, 2), nn.ReLU(), pool, Fire(32, 16, 32), Fire(64, 16, 32), pool,
        Fire(64, 32, 64), nn.Dropout(), nn.Conv2d(128, 10, 1), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    ), images(8, 64)  # fmt: skip


class ConvNextBlock(nn.Module):
    """ConvNeXt's block: depthwise, layer norm over channels, two products, scale, residual."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(dim, dim, 7, padding=3, groups=dim)
        self.norm, self.scale = nn.LayerNorm(dim), nn.Parameter(1e-2 * torch.ones(dim))
        self.first, self.second = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] to the same."""
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.second(F.gelu(self.first(y)))
        return x + y.permute(0, 3, 1, 2)


@program
def convnext() -> Program:
    """A patch stem and four blocks."""
    return nn.Sequential(
        nn.Conv2d(3, 48, 4, 4), ConvNextBlock(48), ConvNextBlock(48), nn.Conv2d(48, 96, 2, 2),
        ConvNextBlock(96), ConvNextBlock(96), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(96, 10),
    ), images(8, 64)  # fmt: skip


class UNet(nn.Module):
    """Two levels down and up, with bridges."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        w = width
        self.down = nn.ModuleList([self.pair(3, w), self.pair(w, 2 * w), self.pair(2 * w, 4 * w)])
        self.wider = nn.ModuleList([nn.ConvTranspose2d(4 * w, 2 * w, 2, 2),
                                    nn.ConvTranspose2d(2 * w, w, 2, 2)])
        self.up = nn.ModuleList([self.pair(4 * w, 2 * w), self.pair(2 * w, w)])
        self.last = nn.Conv2d(w, 2, 1)

    @staticmethod
    def pair(i: int, o: int) -> nn.Sequential:
        """Two convolutions with norms."""
        return nn.Sequential(conv_bn(i, o), nn.ReLU(inplace=True), conv_bn(o, o),
                             nn.ReLU(inplace=True))

    def forward(self, x: Tensor) -> Tensor:
        """[N, 3, H, W] to [N, 2, H, W]."""
        kept = []
        for k, stage in enumerate(self.down):
            x = stage(F.max_pool2d(x, 2) if k else x)
            kept.append(x)
        for k, (wider, stage) in enumerate(zip(self.wider, self.up, strict=True)):
            x = stage(torch.cat([kept[1 - k], wider(x)], 1))
        return self.last(x)


@program
def unet() -> Program:
    """U-Net on small images."""
    return UNet(), images(2, 64)


@program
def super_resolution() -> Program:
    """ESPCN: convolutions, then a pixel shuffle."""
    return nn.Sequential(
        nn.Conv2d(3, 64, 5, padding=2), nn.Tanh(), nn.Conv2d(64, 32, 3, padding=1), nn.Tanh(),
        nn.Conv2d(32, 12, 3, padding=1), nn.PixelShuffle(2),
    ), images(4, 48)  # fmt: skip


@program
def style_transfer() -> Program:
    """Reflection pads, instance norms, upsampling."""
    def layer(i: int, o: int, k: int, stride: int = 1) -> list[nn.Module]:
        return [nn.ReflectionPad2d(k // 2), nn.Conv2d(i, o, k, stride),
                nn.InstanceNorm2d(o, affine=True), nn.ReLU()]

    return nn.Sequential(
        *layer(3, 16, 9), *layer(16, 32, 3, 2), *layer(32, 64, 3, 2), *layer(64, 64, 3),
        nn.Upsample(scale_factor=2), *layer(64, 32, 3), nn.Upsample(scale_factor=2),
        *layer(32, 16, 3), nn.Conv2d(16, 3, 3, padding=1),
    ), images(2, 64)  # fmt: skip


@program
def video_3d() -> Program:
    """C3D: convolutions and pools in three dims."""
    return nn.Sequential(
        nn.Conv3d(3, 16, 3, padding=1), nn.BatchNorm3d(16), nn.ReLU(), nn.MaxPool3d(2),
        nn.Conv3d(16, 32, 3, padding=1), nn.BatchNorm3d(32), nn.ReLU(), nn.AvgPool3d(2),
        nn.Flatten(), nn.Linear(32 * 2 * 8 * 8, 10),
    ), {"x": torch.randn(2, 3, 8, 32, 32)}  # fmt: skip


@program
def dcgan_generator() -> Program:
    """Transposed convolutions from noise."""
    layers: list[nn.Module] = []
    for i, o, stride, pad in ((64, 128, 1, 0), (128, 64, 2, 1), (64, 32, 2, 1)):
        layers += [nn.ConvTranspose2d(i, o, 4, stride, pad, bias=False), nn.BatchNorm2d(o),
                   nn.ReLU(True)]
    return nn.Sequential(*layers, nn.ConvTranspose2d(32, 3, 4, 2, 1, bias=False), nn.Tanh()), \
        {"x": torch.randn(8, 64, 1, 1)}


@program
def dcgan_discriminator() -> Program:
    """Strided convolutions and leaky ReLU."""
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, True)]
    for i, o in ((32, 64), (64, 128)):
        layers += [nn.Conv2d(i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o),
                   nn.LeakyReLU(0.2, inplace=True)]
    return nn.Sequential(*layers, nn.Conv2d(128, 1, 4, bias=False), nn.Sigmoid()), images(8, 32)


@program
def tcn() -> Program:
    """Dilated convolutions in one dim, causal by padding."""
    class Block(nn.Module):
        def __init__(self, i: int, o: int, dilation: int) -> None:
            super().__init__()
            self.dilation = dilation
            self.conv, self.again = nn.Conv1d(i, o, 3, dilation=dilation), nn.Conv1d(i, o, 1)

        def forward(self, x: Tensor) -> Tensor:
            y = self.conv(F.pad(x, (2 * self.dilation, 0)))
            return F.dropout(F.relu(y), 0.1, self.training) + self.again(x)

    return nn.Sequential(Block(8, 32, 1), Block(32, 32, 2), Block(32, 32, 4), Block(32, 32, 8)), \
        {"x": torch.randn(8, 8, 200)}
