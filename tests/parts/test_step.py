"""GSAM on a bowl whose numbers are known, and on networks with batch norm."""

import math

import pytest
import torch
from torch import nn
from torch.optim import SGD

from fedpca.core import Net, Order, Site, Verdict
from fedpca.models.build import build
from fedpca.models.flat import params_of
from fedpca.parts.client.step import GSAM, descend


def bowl(weights: list[float]) -> tuple[Net, object]:
    """A two-weight net and the gradient of (w1^2 + 4 w2^2) / 2."""
    head = nn.Linear(1, 1)
    vector = nn.Parameter(torch.tensor(weights, dtype=torch.float64))
    vector.grad = torch.zeros_like(vector)
    net = Net(nn.Identity(), head, vector, torch.empty(0), torch.empty(0, dtype=torch.int64))

    def backward() -> None:
        (0.5 * (vector[0] ** 2 + 4 * vector[1] ** 2)).backward()

    return net, backward


def site(net: Net, round: int = 1, rounds: int = 1) -> Site:
    nobody = torch.empty(0, dtype=torch.int64)
    return Site(net, torch.empty(0), nobody, {}, Order(round, rounds, Verdict()), torch.Generator())


def stepped(step, weights=(1.0, 1.0), lr: float = 0.1) -> Net:
    net, backward = bowl(list(weights))
    step(site(net), backward, SGD([net.weights], lr=lr))
    return net


def test_the_specifications_example():
    net = stepped(GSAM(0.05, 0.1, growth=0.0))
    assert net.weights.tolist() == pytest.approx([0.899115200, 0.580518025], abs=1e-9)
    assert net.weights.grad.tolist() == pytest.approx([1.008848003, 4.194819753], abs=1e-9)
    assert stepped(GSAM(0.05, 0.0, growth=0.0)).weights.tolist() == pytest.approx([0.898787322, 0.580597150], abs=1e-9)


def test_alpha_zero_is_sam():
    direction = stepped(GSAM(0.05, 0.0, growth=0.0)).weights.grad
    norm = math.hypot(1, 4)
    assert direction.tolist() == pytest.approx([1 + 0.05 / norm, 4 * (1 + 0.05 * 4 / norm)], abs=1e-12)


def test_radius_zero_is_plain_descent():
    assert stepped(GSAM(0.0, 0.1, growth=0.0)).weights.tolist() == pytest.approx(
        stepped(descend).weights.tolist(), abs=1e-12
    )
    assert torch.equal(stepped(GSAM(0.0, 0.0, growth=0.0)).weights, stepped(descend).weights)


def test_what_is_taken_off_is_orthogonal_to_the_risen_gradient():
    risen, direction = (stepped(GSAM(0.05, a, growth=0.0)).weights.grad for a in (0.0, 0.1))
    rest = (risen - direction) / 0.1
    assert rest.tolist() == pytest.approx([0.032787781, -0.007912534], abs=1e-8)
    assert torch.dot(rest, risen).item() == pytest.approx(0, abs=1e-10)


def test_a_larger_loss_scale_changes_only_the_length():
    def scaled(own, backward, optimizer):
        def louder() -> None:
            backward()
            own.net.weights.grad.mul_(7)

        GSAM(0.05, 0.1, growth=0.0)(own, louder, optimizer)

    assert (stepped(scaled).weights.grad / 7).tolist() == pytest.approx(
        stepped(GSAM(0.05, 0.1, growth=0.0)).weights.grad.tolist(), abs=1e-9
    )


def test_a_flat_place_is_left_alone():
    net = stepped(GSAM(0.05, 0.1, growth=0.0), (0.0, 0.0))
    assert net.weights.tolist() == [0.0, 0.0]


@pytest.fixture
def deep():
    net = build("resnet18", (1, 8, 8), 4, seed=1)
    images = torch.randint(0, 256, (12, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(12) % 4
    net.module.train()

    def backward() -> None:
        nn.functional.cross_entropy(net(images), labels).backward()

    return net, backward


def test_weights_are_back_to_the_bit_before_the_step(deep):
    net, backward = deep
    before = params_of(net)
    GSAM(0.05, 0.1, growth=0.0)(site(net), backward, SGD([net.weights], lr=0.0))
    assert torch.equal(params_of(net).weights, before.weights)


def test_running_statistics_change_once_and_momentum_comes_back(deep):
    net, backward = deep
    other = build("resnet18", (1, 8, 8), 4, seed=1)
    descend(site(net), backward, SGD([net.weights], lr=0.0))
    once = params_of(net).buffers
    from fedpca.models.flat import load

    load(net, params_of(other))
    GSAM(0.05, 0.1, growth=0.0)(site(net), backward, SGD([net.weights], lr=0.0))
    assert torch.equal(params_of(net).buffers, once)
    assert {layer.momentum for layer in net.module.modules() if isinstance(layer, nn.BatchNorm2d)} == {0.1}


def test_both_passes_drop_the_same_units():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(50, 40), nn.Dropout(), nn.Linear(40, 2)).train()
    from fedpca.models.flat import flatten

    net, seen, images = flatten(module, module[2], draws=True), [], torch.randn(6, 50)
    module[1].register_forward_hook(lambda _, inputs, output: seen.append(output == 0))

    def backward() -> None:
        nn.functional.cross_entropy(net(images), torch.tensor([0, 1] * 3)).backward()

    step, optimizer = GSAM(0.05, 0.1, growth=0.0), SGD([net.weights], lr=0.1)
    step(site(net), backward, optimizer)
    step(site(net), backward, optimizer)
    assert torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[1], seen[2]), "the next batch has a mask of its own"
