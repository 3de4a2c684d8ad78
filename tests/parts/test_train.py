from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedpca.core import Net, Order, Samples, Site, Verdict
from fedpca.models.build import build
from fedpca.models.flat import flatten, layout_of, params_of
from fedpca.parts.client.augment import CropFlip
from fedpca.parts.client.loss import Batch, LogitAdjustment
from fedpca.parts.client.loss import cross_entropy as plain_loss
from fedpca.parts.client.report import mean_loss
from fedpca.parts.client.select import everything
from fedpca.parts.client.train import PIECE, Descent, LocalTraining, piece_of, pieces
from fedpca.rng import stream

SGD = Descent("sgd", lr=0.1, momentum=0.9, weight_decay=1e-3)


def site_of(net: Net, count: int = 50, seed: int = 0) -> Site:
    generator = torch.Generator().manual_seed(3)
    x = torch.randint(0, 256, (count, 1, 8, 8), dtype=torch.uint8, generator=generator)
    y = torch.randint(0, 4, (count,), generator=generator)
    return Site(net, x, y, {}, Order(1, 1, Verdict()), stream(seed, "train"))


def plain_pytorch(module: nn.Module, site: Site, optimizer: torch.optim.Optimizer, batch: int, epochs: int) -> None:
    """The same training, written down as a tutorial would."""
    rng = stream(0, "train")
    module.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(site.y), generator=rng).split(batch):
            optimizer.zero_grad()
            cross_entropy(module(site.net.scale(site.x[rows])), site.y[rows]).backward()
            optimizer.step()


@pytest.mark.parametrize(
    ("model", "optimizer", "lr", "count"),
    [
        ("mlp", "sgd", 0.01, 50),
        ("mlp", "adam", 1e-3, 50),
        ("cnn-small", "sgd", 0.01, 50),
        ("cnn-small", "adam", 1e-3, 50),
        ("resnet18", "sgd", 1e-3, 16),  # one step: after more, rounding grows as in any deep network
    ],
)
def test_equals_a_plain_pytorch_loop(model: str, optimizer: str, lr: float, count: int):
    """Weights agree to float rounding: the convolutions' memory layout changes the order of sums."""
    net, plain = build(model, (1, 8, 8), 4, seed=1), unflattened(build(model, (1, 8, 8), 4, seed=1))
    site = site_of(net, count)
    made = {
        "sgd": lambda: torch.optim.SGD(plain.parameters(), lr=lr, momentum=0.9, weight_decay=1e-3),
        "adam": lambda: torch.optim.Adam(plain.parameters(), lr=lr, weight_decay=1e-3),
    }[optimizer]()
    plain_pytorch(plain, site, made, batch=16, epochs=1)
    descent = Descent(optimizer, lr=lr, momentum=0.9, weight_decay=1e-3)
    update = LocalTraining(descent, batch=16, epochs=1)(site, everything(site))
    assert update.params is not None
    named = layout_of(net.module).named(update.params)
    for name, tensor in plain.state_dict().items():
        torch.testing.assert_close(named[name], tensor, rtol=1e-3, atol=1e-4, msg=lambda m, name=name: f"{name}: {m}")


def unflattened(net: Net) -> nn.Module:
    """The same model with tensors of its own, in PyTorch's default memory layout."""
    for own in net.module.parameters():
        own.data, own.grad = own.detach().clone(memory_format=torch.contiguous_format), None
    return net.module


def test_the_same_place_trains_to_the_same_bits():
    training = LocalTraining(SGD, batch=16, epochs=1, augment=CropFlip(pad=1))
    results = []
    for _ in range(2):
        site = site_of(build("cnn-small", (1, 8, 8), 4, seed=1))
        results.append(training(site, everything(site)).params)
    assert torch.equal(results[0].weights, results[1].weights)
    other = site_of(build("cnn-small", (1, 8, 8), 4, seed=1), seed=5)
    assert not torch.equal(training(other, everything(other)).params.weights, results[0].weights)


def test_trains_on_the_selected_rows_under_the_given_labels_alone():
    site = site_of(build("mlp", (1, 8, 8), 4, seed=1))
    samples = Samples(torch.tensor([3, 5, 7, 9]), torch.tensor([0, 1, 2, 3]), reliability=0.75)
    first = LocalTraining(SGD, 2, 1)(site, samples)
    assert (first.size, first.reliability) == (4, 0.75)
    spoiled = site_of(build("mlp", (1, 8, 8), 4, seed=1))
    spoiled.x[[0, 1, 2, 4]] = 0
    spoiled.y[:] = 0
    second = LocalTraining(SGD, 2, 1)(spoiled, samples)
    assert torch.equal(first.params.weights, second.params.weights)


def test_without_samples_there_is_no_step_and_nothing_to_send():
    net = build("mlp", (1, 8, 8), 4, seed=1)
    before = params_of(net)
    nothing = Samples(torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64))
    update = LocalTraining(SGD, 16, 1)(site_of(net), nothing)
    assert (update.params, update.size) == (None, 0)
    assert torch.equal(params_of(net).weights, before.weights)


@pytest.mark.parametrize(("count", "steps"), [(50, 4), (48, 3), (49, 3), (17, 1)])
def test_partial_batches_are_kept_but_never_one_alone(count: int, steps: int):
    net = build("resnet18", (1, 8, 8), 4, seed=1)
    LocalTraining(SGD, 16, 1)(site := site_of(net, count), everything(site))
    assert set(net.counters.tolist()) == {steps}


def test_the_model_is_left_in_eval_mode():
    net = build("resnet18", (1, 8, 8), 4, seed=1)
    LocalTraining(SGD, 16, 1)(site := site_of(net), everything(site))
    assert not any(part.training for part in net.module.modules())


def test_parts_print_compare_and_hash():
    one, two = LocalTraining(SGD, 16, 1, CropFlip(pad=4)), LocalTraining(SGD, 16, 1, CropFlip(pad=4))
    assert one == two
    assert hash(one) == hash(two)
    assert one != replace(one, batch=8)
    assert "lr=0.1" in repr(one)


def test_mean_loss_is_the_cross_entropy_of_all_given_labels():
    site = site_of(build("mlp", (1, 8, 8), 4, seed=1), count=700)
    with torch.no_grad():
        assert mean_loss(site)["loss"] == pytest.approx(cross_entropy(site.net(site.x), site.y).item(), rel=1e-5)


def test_parts_of_a_batch_add_up_to_its_gradient(monkeypatch):
    whole = LocalTraining(Descent("sgd", 0.1, 0.9, 1e-4), batch=40, epochs=2)
    x, y = torch.randn(70, 1, 8, 8, generator=stream(0, "x")), torch.arange(70) % 4
    for loss in (plain_loss, LogitAdjustment(tau=1.0)):
        training, sent = replace(whole, loss=loss), []
        for pixels in (8 * 64, 1 << 15):  # parts of eight images, and one part
            monkeypatch.setattr("fedpca.parts.client.train.PIECE", pixels)
            own = Site(build("cnn-small", (1, 8, 8), 4, seed=1), x, y, {}, Order(1, 1, Verdict()), stream(0, "train"))
            sent.append(training(own, Samples(torch.arange(70), y)).params.weights)
        assert not torch.equal(*sent)
        torch.testing.assert_close(*sent, atol=1e-6, rtol=0)


def test_only_layers_that_treat_images_one_by_one_get_parts_of_a_batch():
    assert piece_of(build("cnn-small", (1, 8, 8), 4, seed=1)) == PIECE
    assert piece_of(build("resnet18", (1, 8, 8), 4, seed=1)) is None
    norm = nn.BatchNorm2d(4, track_running_stats=False)  # has no buffers, but looks at the whole batch
    normed = nn.Sequential(nn.Conv2d(1, 4, 3), norm, nn.Flatten(), nn.Linear(144, 4))
    assert piece_of(flatten(normed, normed[-1])) is None


@pytest.mark.parametrize(("count", "pixels", "sizes"), [(64, None, [64]), (64, 32 * 64, [32, 32]), (9, 64, [5, 4])])
def test_parts_of_a_batch_are_of_like_size(count, pixels, sizes):
    images, labels = torch.arange(count * 64).view(count, 1, 8, 8), torch.arange(count)
    parts = list(pieces(images, pixels, labels, labels + 5))
    assert [len(own) for _, own, _ in parts] == sizes
    assert torch.equal(torch.cat([own for _, own, _ in parts]), labels)
    assert torch.equal(torch.cat([some for some, _, _ in parts]), images)
    assert all(torch.equal(rows, own + 5) for _, own, rows in parts)


@pytest.mark.parametrize("model", ["mlp", "cnn-small"])
def test_a_loss_knows_which_samples_its_batch_has(model: str):
    """Also where a batch is worked on in parts; every sample comes once in every epoch."""
    net, seen = build(model, (1, 8, 8), 4, seed=1), []

    def loss(site: Site, samples: Samples):
        def of_batch(batch: Batch) -> torch.Tensor:
            assert torch.equal(batch.images, site.x[batch.rows])
            assert torch.equal(batch.labels, site.y[batch.rows])
            seen.append(batch.rows)
            return cross_entropy(batch.logits, batch.labels)

        return of_batch

    site, rows = site_of(net), torch.arange(1, 50, 2)
    LocalTraining(SGD, batch=16, epochs=2, loss=loss)(site, Samples(rows, site.y[rows]))
    assert torch.cat(seen).sort().values.tolist() == rows.repeat_interleave(2).tolist()


def test_a_client_counts_as_many_samples_as_its_selection_says_and_sends_the_model_where_it_trains_on_none():
    site = site_of(build("mlp", (1, 8, 8), 4, seed=1))
    here, none = params_of(site.net), torch.empty(0, dtype=torch.int64)
    training = LocalTraining(SGD, batch=16, epochs=1, after=lambda site, params: {"seen": 1.0})
    assert training(site, Samples(none, none)).params is None
    idle = training(site, Samples(none, none, counts_as=50))
    assert (idle.size, idle.report) == (50, {"seen": 1.0})
    assert torch.equal(idle.params.weights, here.weights)
    rows = torch.arange(20)
    busy = training(site, Samples(rows, site.y[rows], counts_as=50))
    assert busy.size == 50
    assert not torch.equal(busy.params.weights, here.weights)
