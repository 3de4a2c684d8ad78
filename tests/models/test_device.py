"""What can be known of other devices without one: PyTorch's `meta` device refuses tensors from the CPU, as a GPU does.

It holds no numbers, so nothing here tests values, and what needs a number (`item`, a copy back) cannot be run on it.
"""

from __future__ import annotations

import pytest
import torch

from fedpca.core import Order, Samples, Site, Verdict
from fedpca.errors import SettingsError, UserError
from fedpca.models.build import build
from fedpca.models.device import require_device, to_device
from fedpca.models.flat import load, params_of
from fedpca.parts.client.augment import CropFlip, Mixup
from fedpca.parts.client.loss import Batch, Distillation, LogitAdjustment, cross_entropy
from fedpca.parts.client.report import whole
from fedpca.runs.check import check_experiment
from fedpca.simulate.batched import ModelBatch, Step

SHAPE, CLASSES = (3, 8, 8), 4


def site_on(device: str, model: str = "cnn-small") -> Site:
    net = build(model, SHAPE, CLASSES, 0, device=device)
    labels = torch.arange(12) % CLASSES
    images = torch.zeros(12, *SHAPE, dtype=torch.uint8)
    return Site(net, images, labels, {}, Order(1, 2, Verdict("mislabeled")), torch.Generator())


@pytest.mark.parametrize(
    "loss",
    [
        cross_entropy,
        LogitAdjustment(tau=1.0),
        Distillation(begin=0, end=1, max_share=0.8, temperature=0.8, adjusted=True),
    ],
)
@pytest.mark.parametrize(("augment", "blend"), [(None, None), (CropFlip(1), Mixup(alpha=1.0))])
def test_a_batch_meets_the_model_on_its_device(loss, augment, blend):
    site = site_on("meta")
    load(site.net, params_of(site_on("cpu").net))
    of_batch = loss(site, Samples(torch.arange(12), site.y))
    images, labels = (augment(site.x, site.rng), site.y) if augment else (site.x, site.y)
    images, labels = blend(images, labels, CLASSES, site.rng) if blend else (images, labels)
    logits = site.net(images)
    value = of_batch(Batch(images, logits, to_device(labels, site.net.device), torch.arange(12)))
    value.backward()
    assert value.device == site.net.weights.grad.device == torch.device("meta")


@pytest.mark.parametrize("model", ["mlp", "cnn-small", "resnet18"])
def test_a_model_is_wholly_on_its_device(model):
    net = site_on("meta", model).net
    held = [net.weights, net.weights.grad, net.buffers, net.counters, net.scale.factor, net.scale.shift]
    held += [*net.module.parameters(), *net.module.buffers()]
    assert {tensor.device.type for tensor in held} == {"meta"}


def test_a_batch_of_clients_is_on_the_models_device():
    site = site_on("meta", "mlp")
    images = site.net.scale(whole(site)).flatten(1).view(2, 6, -1)
    labels, shares = (to_device(tensor, site.net.device) for tensor in (site.y.view(2, 6), torch.full((2, 6), 1 / 6)))
    models = ModelBatch(site.net, 2, pull=0.1)
    assert models.gradient(Step(images, labels, shares, None), models.weights).device.type == "meta"


def test_weights_are_the_same_wherever_the_model_goes():
    assert torch.equal(build("mlp", SHAPE, CLASSES, 3).weights, build("mlp", SHAPE, CLASSES, 3, device="cpu").weights)


def test_what_is_on_the_device_already_is_not_copied():
    tensor = torch.zeros(3)
    assert to_device(tensor, torch.device("cpu")) is tensor
    assert to_device(tensor, torch.device("meta")).device.type == "meta"


def test_a_device_that_is_not_there_is_refused_by_name():
    assert require_device("cpu") == "cpu"
    missing = f"cuda:{torch.cuda.device_count()}"
    with pytest.raises(UserError, match=f"there is no '{missing}' for PyTorch .*; use \"cpu\""):
        require_device(missing)


def test_an_unknown_device_is_refused_with_the_settings():
    assert check_experiment({"device": "cuda:1"}, "file").device == "cuda:1"
    with pytest.raises(SettingsError, match="device"):
        check_experiment({"device": "gpu"}, "file")
