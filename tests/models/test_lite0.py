from collections.abc import Iterator

import pytest
import torch
from efficientnet_lite_pytorch import EfficientNet

from fedpca.models.build import build
from fedpca.models.lite0 import same
from fedpca.models.pretrained import imagenet


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pixels(*shape: int) -> torch.Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("size", [(224, 224), (75, 100)])
def test_the_logits_are_those_of_the_published_network(size: tuple[int, int]):
    theirs = EfficientNet.from_name("efficientnet-lite0", image_size=None).eval()
    theirs.load_state_dict(torch.load(imagenet("efficientnet-lite0"), weights_only=True))
    ours = build("efficientnet-lite0", (3, *size), 1000, seed=0, weights=imagenet("efficientnet-lite0"))
    images = pixels(2, 3, *size)
    with torch.no_grad():
        expected = theirs((images.float() - 127) / 128)
        features, logits = ours.features(images)
    assert expected.abs().max() > 1
    assert (logits - expected).abs().max() < 1e-4
    assert features.shape == (2, 1280)


def test_a_grey_image_is_seen_as_one_of_three_equal_colours():
    weights = imagenet("efficientnet-lite0")
    grey, colour = (build("efficientnet-lite0", (channels, 64, 64), 1000, 0, weights) for channels in (1, 3))
    images = pixels(2, 1, 64, 64)
    with torch.no_grad():
        assert (grey(images) - colour(images.expand(-1, 3, -1, -1))).abs().max() < 1e-4


def test_other_classes_keep_the_weights_but_for_the_last_layer():
    published = torch.load(imagenet("efficientnet-lite0"), weights_only=True)
    net = build("efficientnet-lite0", (3, 32, 32), 8, seed=0, weights=imagenet("efficientnet-lite0"))
    state = net.module.state_dict()
    assert state["_fc.weight"].shape == (8, 1280)
    assert all(torch.equal(state[name], tensor) for name, tensor in published.items() if not name.startswith("_fc."))


def test_its_weights_are_as_many_as_published_and_no_pass_draws_random_numbers():
    net = build("efficientnet-lite0", (3, 32, 32), 1000, seed=0)
    assert len(net.weights) == 4_652_008
    assert not net.draws


@pytest.mark.parametrize(
    ("side", "kernel", "stride", "zeros"), [(8, 3, 2, (0, 1)), (7, 3, 2, (1, 1)), (9, 5, 1, (2, 2))]
)
def test_zeros_are_put_where_tensorflow_puts_them(side: int, kernel: int, stride: int, zeros: tuple[int, int]):
    before, after = zeros
    padded = same(torch.ones(1, 1, side, side), kernel, stride)[0, 0]
    assert padded.shape == (before + side + after,) * 2
    assert padded[before : before + side, before : before + side].sum() == padded.sum() == side * side
