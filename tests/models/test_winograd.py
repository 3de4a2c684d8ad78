"""Convolutions by Winograd's algorithm, beside PyTorch's own in double precision."""

import pytest
import torch
from torch.nn.functional import conv2d

from fedpca.models import winograd
from fedpca.models.build import build
from fedpca.models.winograd import FOUR, TWO, Conv3x3, Scheme, conv3x3, is_faster


def made(images: int, inputs: int, outputs: int, height: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    chance = torch.Generator().manual_seed(images * height + width)
    x = torch.randn(images, inputs, height, width, generator=chance).to(memory_format=torch.channels_last)
    weight = torch.randn(outputs, inputs, 3, 3, generator=chance) / (9 * inputs) ** 0.5
    return x.requires_grad_(), weight.requires_grad_()


def far(ours: torch.Tensor, exact: torch.Tensor) -> float:
    return float(((ours - exact).abs().max() / exact.abs().max()).detach())


@pytest.mark.parametrize(
    ("images", "inputs", "outputs", "height", "width"),
    [(2, 3, 5, 4, 4), (5, 8, 8, 2, 6), (1, 1, 1, 2, 2), (33, 64, 128, 8, 8), (3, 16, 4, 10, 14), (3, 4, 2, 28, 32)],
)
def test_output_and_gradients_are_those_of_the_convolution(
    images: int, inputs: int, outputs: int, height: int, width: int
):
    x, weight = made(images, inputs, outputs, height, width)
    ours = conv3x3(x, weight)
    slope = torch.randn_like(ours)
    exact = conv2d(x.double(), weight.double(), padding=1)
    assert far(ours, exact) < (1e-5 if winograd._fits(x, FOUR) else 2e-6)
    for own, true in zip(
        torch.autograd.grad(ours, (x, weight), slope),
        torch.autograd.grad(exact, (x, weight), slope.double()),
        strict=True,
    ):
        assert far(own, true) < 1e-5


@pytest.mark.parametrize(("scheme", "bound"), [(TWO, 2e-6), (FOUR, 1e-5)])
@pytest.mark.parametrize("channels", [4, 256])
def test_small_tiles_are_more_exact_than_large_ones_and_both_exact_enough(scheme: Scheme, bound: float, channels: int):
    x, weight = made(3, channels, 8, 8, 12)
    exact = conv2d(x.double(), weight.double(), padding=1)
    assert far(winograd._Winograd.apply(x, weight, scheme), exact) < bound


def test_parts_of_a_batch_give_what_the_whole_gives(monkeypatch: pytest.MonkeyPatch):
    x, weight = made(7, 16, 16, 8, 8)
    slope = torch.randn(7, 16, 8, 8)
    whole = conv3x3(x, weight)
    of_whole = torch.autograd.grad(whole, (x, weight), slope)
    monkeypatch.setattr(winograd, "ROWS", 2 * 8 * 8 // 4)
    parts = conv3x3(x, weight)
    of_parts = torch.autograd.grad(parts, (x, weight), slope)
    assert torch.equal(whole, parts)
    assert torch.equal(of_whole[0], of_parts[0])
    assert far(of_parts[1], of_whole[1]) < 1e-6


def test_only_gradients_that_are_asked_for():
    x, weight = made(2, 4, 4, 4, 4)
    whole = torch.autograd.grad(conv3x3(x, weight).sum(), (x, weight))
    assert torch.equal(torch.autograd.grad(conv3x3(x.detach(), weight).sum(), weight)[0], whole[1])
    assert torch.equal(torch.autograd.grad(conv3x3(x, weight.detach()).sum(), x)[0], whole[0])


def test_used_on_large_even_images_of_many_channels_on_a_cpu():
    layer = Conv3x3(64, 64)
    x = torch.zeros(8, 64, 8, 8)
    assert is_faster(x, layer.weight)
    assert not is_faster(x[:, :, :7], layer.weight)  # of odd height
    assert not is_faster(x[:7], layer.weight)  # too few tiles
    assert not is_faster(x[:, :32], layer.weight[:, :32])  # too few channels
    assert not is_faster(x.double(), layer.weight.double())
    assert not is_faster(x.to("meta"), layer.weight.to("meta"))


@pytest.mark.parametrize("size", [7, 8])
def test_layer_is_a_convolution_under_the_same_names(size: int):
    layer = Conv3x3(64, 64)
    assert {name: tuple(tensor.shape) for name, tensor in layer.state_dict().items()} == {"weight": (64, 64, 3, 3)}
    x = torch.randn(16, 64, size, size, generator=torch.Generator().manual_seed(0))
    assert far(layer(x), conv2d(x.double(), layer.weight.double(), padding=1)) < 2e-6


def test_a_second_derivative_is_refused():
    x, weight = made(2, 4, 4, 4, 4)
    (slope,) = torch.autograd.grad(conv3x3(x, weight).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


def images_and_gradient(**switch: bool) -> tuple[torch.Tensor, torch.Tensor]:
    net = build("resnet18", (3, 32, 32), 4, seed=0, **switch)
    x = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    logits = net(x)
    logits.square().sum().backward()
    assert net.weights.grad is not None
    return logits.detach(), net.weights.grad.clone()


def test_resnet18_uses_it_unless_it_is_switched_off(monkeypatch: pytest.MonkeyPatch):
    default, on, off = images_and_gradient(), images_and_gradient(winograd=True), images_and_gradient(winograd=False)
    monkeypatch.setattr(Conv3x3, "forward", torch.nn.Conv2d.forward)
    own = images_and_gradient()
    for a, b in zip(default, on, strict=True):
        assert torch.equal(a, b)
    for a, b in zip(off, own, strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(default[0], off[0])
    torch.testing.assert_close(default[0], off[0], atol=1e-4, rtol=1e-4)
