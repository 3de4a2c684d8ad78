import pytest
import torch
from torch import nn

from fedpca.core import Params
from fedpca.models.build import build
from fedpca.models.flat import flatten, layout_of, load, params_of


def with_batch_norm() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 5))


@pytest.fixture
def images() -> torch.Tensor:
    return torch.randn(7, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def test_flattening_changes_neither_output_nor_state(images: torch.Tensor):
    plain, module = with_batch_norm().eval(), with_batch_norm().eval()
    net = flatten(module, module[-1])
    torch.testing.assert_close(net(images), plain(images))
    for name, tensor in plain.state_dict().items():
        assert torch.equal(module.state_dict()[name], tensor), name


def test_vectors_hold_every_kind_of_tensor_once():
    module = with_batch_norm()
    net = flatten(module, module[-1])
    assert len(net.weights) == sum(p.numel() for p in module.parameters())
    assert len(net.buffers) == 8  # running mean and variance of four channels
    assert net.counters.tolist() == [0]
    assert net.counters.dtype == torch.int64


def test_training_moves_the_vectors(images: torch.Tensor):
    module = with_batch_norm()
    net = flatten(module, module[-1])
    before = params_of(net)
    module.train()
    net(images).square().sum().backward()
    assert net.weights.grad is not None
    assert net.weights.grad.abs().sum() > 0
    with torch.no_grad():
        net.weights.sub_(0.1 * net.weights.grad)
    after = params_of(net)
    assert not torch.equal(before.weights, after.weights)
    assert not torch.equal(before.buffers, after.buffers)
    assert after.counters.tolist() == [1]
    assert torch.equal(module[0].weight.detach(), layout_of(module).named(after)["0.weight"])


def test_gradients_equal_those_of_the_plain_model(images: torch.Tensor):
    plain, module = with_batch_norm().train(), with_batch_norm().train()
    net = flatten(module, module[-1])
    plain(images).square().sum().backward()
    net(images).square().sum().backward()
    for own, reference in zip(module.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(own.grad, reference.grad)


def test_load_and_named_are_inverse(images: torch.Tensor):
    module = with_batch_norm()
    net, layout = flatten(module, module[-1]), layout_of(module)
    module.train()
    net(images)
    module.eval()
    state, output = params_of(net), net(images).detach().clone()
    load(net, Params(*(torch.zeros_like(v) for v in (state.weights, state.buffers, state.counters))))
    load(net, layout.params(layout.named(state)))
    assert torch.equal(net(images), output)
    assert params_of(net).counters.tolist() == [1]


def test_named_tensors_are_what_state_dict_gives():
    net = build("resnet18", (3, 8, 8), 4, seed=0)
    named = layout_of(net.module).named(params_of(net))
    state = net.module.state_dict()
    assert set(named) == set(state)
    assert all(torch.equal(named[name], state[name]) and named[name].is_contiguous() for name in state)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.pop("0.bias"), r"needs '0.bias'.*lack"),
        (lambda t: t.update(extra=torch.zeros(1)), "have 'extra'"),
        (lambda t: t.update({"0.bias": torch.zeros(9)}), r"0.bias must have shape \(4,\), got \(9,\)"),
    ],
)
def test_foreign_tensors_are_refused_by_name(change, words: str):
    module = with_batch_norm()
    layout = layout_of(module)
    tensors = dict(module.state_dict())
    change(tensors)
    with pytest.raises(ValueError, match=words):
        layout.params(tensors)


def test_buffers_that_are_not_part_of_the_state_stay_apart():
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scratch", torch.ones(3), persistent=False)
            self.head = nn.Linear(3, 2)

    layout = layout_of(Model())
    assert [slot.name for slot in layout.weights] == ["head.weight", "head.bias"]
    assert layout.buffers == ()
