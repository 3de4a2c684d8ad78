import sys
from math import prod

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from fedpca.errors import UserError
from fedpca.models.build import build
from fedpca.models.flat import layout_of, params_of
from fedpca.models.registry import MODELS
from fedpca.models.scaling import IMAGENET_MEAN, IMAGENET_STD
from fedpca.sites.data import net_of


def pixels(*shape: int) -> torch.Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", sorted(MODELS))
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (1, 28, 28)])
def test_every_model_gives_logits_and_the_features_they_come_from(name: str, shape: tuple[int, int, int]):
    net = build(name, shape, 7, seed=0)
    images = pixels(5, *shape)
    with torch.no_grad():
        features, logits = net.features(images)
        assert logits.shape == (5, 7)
        assert features.ndim == 2
        assert torch.equal(net.head(features), logits)
        assert torch.equal(net(images), logits)


def test_the_seed_draws_the_weights_and_nothing_else_does():
    first = params_of(build("cnn-small", (1, 8, 8), 10, seed=1))
    torch.manual_seed(99)
    again, other = (
        params_of(build("cnn-small", (1, 8, 8), 10, seed=1)),
        params_of(build("cnn-small", (1, 8, 8), 10, seed=2)),
    )
    assert torch.equal(first.weights, again.weights)
    assert not torch.equal(first.weights, other.weights)


def test_building_leaves_the_global_generator_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    build("mlp", (1, 8, 8), 10, seed=1)
    assert torch.equal(torch.rand(3), expected)


def test_resnet18_is_torchvisions_by_name_shape_and_count():
    state = build("resnet18-imagenet", (3, 64, 64), 1000, seed=0).module.state_dict()
    assert len(state) == 122
    assert (
        sum(t.numel() for name, t in state.items() if "running" not in name and "num_batches" not in name) == 11_689_512
    )
    assert state["conv1.weight"].shape == (64, 3, 7, 7)
    assert state["layer2.0.downsample.0.weight"].shape == (128, 64, 1, 1)
    assert state["layer2.0.downsample.1.running_var"].shape == (128,)
    assert state["layer4.1.bn2.num_batches_tracked"].dtype == torch.int64
    assert state["fc.weight"].shape == (1000, 512)
    assert build("resnet18", (3, 32, 32), 10, seed=0).module.state_dict()["conv1.weight"].shape == (64, 3, 3, 3)


@pytest.mark.parametrize("name", ["resnet8", "resnet8-gn"])
def test_the_narrow_resnet_has_the_weights_of_its_layers(name: str):
    convolutions = 9 * (3 * 16 + 2 * 16 * 16 + 16 * 32 + 32 * 32 + 32 * 64 + 64 * 64) + 16 * 32 + 32 * 64
    norms = 2 * (3 * 16 + 3 * 32 + 3 * 64)  # a shortcut that changes the size has one too
    net = build(name, (3, 16, 16), 10, seed=0)
    assert len(net.weights) == convolutions + norms + 64 * 10 + 10
    assert net.head.in_features == 64
    assert len(net.buffers) == (norms if name == "resnet8" else 0)
    assert net(pixels(2, 3, 32, 32)).shape == (2, 10)


def test_with_group_norm_an_image_is_judged_by_itself_in_training_too():
    net = build("resnet8-gn", (3, 16, 16), 10, seed=0)
    images = pixels(4, 3, 16, 16)
    net.module.train()
    with torch.no_grad():
        torch.testing.assert_close(net(images)[:1], net(images[:1]))


def test_colour_is_standardised_with_imagenets_figures():
    seen = []
    net = build("resnet18", (3, 8, 8), 2, seed=0)
    net.module.conv1.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    images = pixels(2, 3, 8, 8)
    net(images)
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (IMAGENET_MEAN, IMAGENET_STD))
    torch.testing.assert_close(seen[0], (images / 255 - mean) / std)


def test_float_images_pass_as_they_are():
    seen = []
    net = build("mlp", (1, 8, 8), 2, seed=0)
    net.module[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    images = torch.randn(2, 1, 8, 8)
    net(images)
    assert torch.equal(seen[0], images)


def test_pretrained_weights_load_and_a_head_for_other_classes_is_drawn(tmp_path):
    source = build("resnet18-imagenet", (3, 32, 32), 1000, seed=3).module.state_dict()
    save_file({name: tensor.contiguous() for name, tensor in source.items()}, tmp_path / "weights.safetensors")
    torch.save({name: tensor.contiguous() for name, tensor in source.items()}, tmp_path / "weights.pth")
    for file in ("weights.safetensors", "weights.pth"):
        net = build("resnet18-imagenet", (3, 32, 32), 8, seed=0, weights=tmp_path / file)
        assert torch.equal(net.module.state_dict()["layer3.0.conv1.weight"], source["layer3.0.conv1.weight"])
        assert net.head.out_features == 8


def test_weights_of_another_model_are_refused(tmp_path):
    save_file({"conv1.weight": torch.zeros(2, 2)}, tmp_path / "other.safetensors")
    with pytest.raises(UserError, match=r"other.safetensors has no fitting 'conv1.weight'"):
        build("resnet18", (3, 32, 32), 8, seed=0, weights=tmp_path / "other.safetensors")
    (tmp_path / "noise.safetensors").write_bytes(b"no weights")
    with pytest.raises(UserError, match="cannot read"):
        build("resnet18", (3, 32, 32), 8, seed=0, weights=tmp_path / "noise.safetensors")


def test_a_file_of_something_else_than_named_tensors_is_refused(tmp_path):
    torch.save({"epoch": 3, "state_dict": {}}, tmp_path / "checkpoint.pth")
    with pytest.raises(UserError, match=r"checkpoint.pth must hold nothing but tensors by name"):
        build("mlp", (1, 8, 8), 2, seed=0, weights=tmp_path / "checkpoint.pth")


def test_kernels_for_colour_are_summed_for_grey(tmp_path):
    source = build("resnet18-imagenet", (3, 32, 32), 8, seed=3).module.state_dict()
    torch.save(source, tmp_path / "weights.pth")
    net = build("resnet18-imagenet", (1, 32, 32), 8, seed=0, weights=tmp_path / "weights.pth")
    torch.testing.assert_close(net.module.state_dict()["conv1.weight"][:, 0], source["conv1.weight"].sum(dim=1))


def test_a_linear_models_features_are_what_goes_in():
    net = build("linear", (3, 4, 4), 2, seed=0)
    images = torch.randn(5, 3, 4, 4)
    assert torch.equal(net.features(images)[0], images.flatten(1))


def test_a_users_own_function(tmp_path, monkeypatch):
    (tmp_path / "own_model.py").write_text(
        "from torch import nn\n"
        "def make(shape, classes):\n"
        "    return nn.Sequential(\n"
        "        nn.Flatten(), nn.Linear(shape[1] * shape[2], 5), nn.Dropout(), nn.Linear(5, classes))\n"
        "def headless(shape, classes):\n    return nn.Flatten()\n"
        "def nothing(shape, classes):\n    return None\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    net = build("own_model:make", (1, 8, 8), 3, seed=0)
    features, _ = net.features(pixels(4, 1, 8, 8))
    assert features.shape == (4, 5)
    assert net.draws
    assert not build("cnn-small", (1, 8, 8), 3, seed=0).draws
    with pytest.raises(UserError, match=r"must have an output per class.*\(2, 3\), got \(2, 64\)"):
        build("own_model:headless", (1, 8, 8), 3, seed=0)
    with pytest.raises(UserError, match=r"must return an nn.Module, got NoneType"):
        build("own_model:nothing", (1, 8, 8), 3, seed=0)
    with pytest.raises(UserError, match="the module 'own_model' has no 'absent'"):
        build("own_model:absent", (1, 8, 8), 3, seed=0)


def test_functional_dropout_is_found_too_and_probing_leaves_no_trace():
    from fedpca.models.build import draws_in_forward

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.head = nn.BatchNorm2d(1), nn.Linear(64, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(nn.functional.dropout(self.norm(x).flatten(1), training=self.training))

    model, torch_state = Model().eval(), torch.get_rng_state()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert draws_in_forward(model, (1, 8, 8))
    assert all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in before.items())
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert not model.training


def test_frozen_layers_are_not_stepped():
    from fedpca.models.flat import flatten

    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Linear(8, 3))
    module[1].requires_grad_(False)
    frozen = module[1].weight.clone()
    net = flatten(module, module[2])
    assert len(net.weights) == 8 * 3 + 3
    assert len(net.buffers) == 64 * 8 + 8
    optimizer = torch.optim.SGD([net.weights], lr=0.5, weight_decay=0.1)
    nn.functional.cross_entropy(net(torch.randn(4, 64)), torch.tensor([0, 1, 2, 0])).backward()
    optimizer.step()
    assert torch.equal(module[1].weight, frozen)
    assert set(layout_of(module).named(params_of(net))) == set(module.state_dict())


def test_a_named_head_is_taken():
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(64, 3)
            self.later = nn.Linear(3, 3)

    from fedpca.models.build import last_linear

    model = Model()
    assert last_linear(model, 3) is model.head


def test_unknown_names_list_what_there_is():
    with pytest.raises(UserError, match=r"no model 'vgg'; there are .*resnet18"):
        build("vgg", (3, 8, 8), 2, seed=0)


def test_too_small_images_are_refused():
    with pytest.raises(UserError, match="at least 8x8, got 4x4"):
        build("cnn-small", (1, 4, 4), 2, seed=0)


class Views(nn.Module):
    """A user's model in the style of many tutorials: `view` takes rows out of the images, and out of a convolution."""

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        channels, height, width = shape
        self.conv = nn.Conv2d(channels, 4, 3, padding=1)
        self.head = nn.Linear((channels + 4) * height * width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = self.conv(x).relu()
        return self.head(torch.cat([x.view(len(x), -1), seen.view(len(x), -1)], dim=1))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("as_floats", [False, True])
def test_images_reach_a_users_model_contiguous(channels: int, as_floats: bool):
    shape = (channels, 8, 8)
    images = pixels(5, *shape).to(memory_format=torch.channels_last)
    for net in (build(f"{__name__}:Views", shape, 3, seed=0), net_of(lambda: Views(shape, 3), shape, "cpu")):
        net(images.float() / 255 if as_floats else images).sum().backward()
        assert net.weights.grad.abs().sum() > 0
        named = layout_of(net.module).named(params_of(net))
        assert all(torch.equal(named[name], tensor) for name, tensor in net.module.state_dict().items())


def wide(shape: tuple[int, int, int], classes: int, *, width: int = 4, bias: bool = True) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), width, bias), nn.Linear(width, classes))


def test_a_users_function_gets_its_arguments():
    assert len(build(f"{__name__}:wide", (1, 2, 2), 3, seed=0).head.weight[0]) == 4
    net = build(f"{__name__}:wide", (1, 2, 2), 3, seed=0, args={"width": 7, "bias": False})
    assert net.head.in_features == 7
    assert net.module[1].bias is None


@pytest.mark.parametrize(
    ("name", "args", "words"),
    [("wide", {"depth": 2}, "'depth'.*model.args"), ("alone", {}, "is called as .shape, classes., but takes .shape")],
)
def test_arguments_that_a_users_function_does_not_take(name, args, words):
    with pytest.raises(UserError, match=words):
        build(f"{__name__}:{name}", (1, 2, 2), 3, seed=0, args=args)


def alone(shape: tuple[int, int, int]) -> nn.Module:
    return nn.Flatten()


class Convolutional(nn.Module):
    """A user's model that ends in a convolution and a mean over the image: no linear layer at all."""

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        self.conv, self.pool = nn.Conv2d(shape[0], 5, 3), nn.AdaptiveAvgPool2d(1)
        self.last, self.spare = nn.Conv2d(5, classes, 1), nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.pool(self.conv(x).relu())).flatten(1)


PLACE = f"{__name__}:Convolutional"


def test_features_are_the_output_of_the_submodule_that_is_named():
    net, images = build(PLACE, (3, 8, 8), 4, seed=0, features="pool"), pixels(6, 3, 8, 8)
    features, logits = net.features(images)
    assert features.shape == (6, 5, 1, 1)
    assert torch.equal(net.module.last(features).flatten(1), logits)
    assert net.classes == 4
    named = build("cnn-small", (1, 8, 8), 4, seed=0, features="0")
    assert named.features(pixels(2, 1, 8, 8))[0].shape == named.module[0](torch.zeros(2, 1, 8, 8)).shape


def test_a_model_without_features_can_be_built_and_used():
    net = build(PLACE, (3, 8, 8), 4, seed=0)
    assert net(pixels(6, 3, 8, 8)).shape == (6, 4)
    with pytest.raises(UserError, match=r"Convolutional has no linear layer with 4 outputs.*set model\.features"):
        net.features(pixels(6, 3, 8, 8))


@pytest.mark.parametrize(
    ("name", "words"),
    [("pol", "no submodule 'pol' .did you mean 'pool'"), ("spare", "is not used in a pass")],
)
def test_features_that_there_are_not(name, words):
    with pytest.raises(UserError, match=words):
        build(PLACE, (3, 8, 8), 4, seed=0, features=name)


def test_models_of_the_package_stay_channels_last():
    net = build("cnn-small", (3, 8, 8), 3, seed=0)
    assert net.scale(pixels(5, 3, 8, 8)).is_contiguous(memory_format=torch.channels_last)
    assert all(slot.channels_last for slot in layout_of(net.module).weights)
