import math
import pickle
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch.nn.functional import pad as padded_with_zeros

from fedpca.parts.client.augment import AUGMENTATIONS, AffineFlip, CropFlip, Mixup, moved


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def batch(*shape, dtype=torch.uint8):
    return torch.randint(1, 256, shape, generator=rng(9)).to(dtype)  # never 0, which padding brings


def one_by_one(images, pad, generator):
    """The same draws, applied to one image after another."""
    count, _, height, width = images.shape
    tops, lefts = torch.randint(2 * pad + 1, (2, count, 1), generator=generator)[..., 0].tolist()
    mirrored = torch.randint(2, (count, 1), generator=generator)[:, 0].tolist()
    results = []
    for image, top, left, mirror in zip(images, tops, lefts, mirrored, strict=True):
        crop = padded_with_zeros(image, (pad,) * 4)[:, top : top + height, left : left + width]
        results.append(crop.flip(2) if mirror else crop)
    return torch.stack(results)


@pytest.mark.parametrize(
    "shape", [(64, 3, 32, 32), (5, 1, 8, 8), (3, 1, 28, 28), (2, 3, 224, 224), (4, 2, 9, 14), (1, 3, 8, 8)]
)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64])
@pytest.mark.parametrize("pad", [0, 1, 4])
def test_a_batch_is_cropped_and_flipped_as_its_images_one_by_one(shape, dtype, pad):
    images = batch(*shape, dtype=dtype)
    before = images.clone()
    result = CropFlip(pad)(images, rng())
    assert torch.equal(result, one_by_one(images, pad, rng()))
    assert result.dtype == dtype
    assert torch.equal(images, before)


def test_without_padding_images_are_only_flipped():
    images = batch(200, 3, 8, 8)
    result = CropFlip(pad=0)(images, rng())
    kept = (result == images).flatten(1).all(1)
    mirrored = (result == images.flip(3)).flatten(1).all(1)
    assert (kept ^ mirrored).all()
    assert 70 < kept.sum() < 130


def test_every_shift_is_as_likely():
    images = torch.zeros(9000, 1, 9, 9)
    images[:, :, 4, 4] = 1
    places = CropFlip(pad=1)(images, rng()).sum(0)[0, 3:6, 3:6]
    assert places.sum() == 9000
    assert ((places > 850) & (places < 1150)).all()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("layout", ["contiguous", "channels_last", "turned", "every_other"])
def test_memory_layout_changes_no_value_and_channels_last_is_kept(dtype, layout):
    plain = batch(6, 3, 10, 10, dtype=dtype)
    images = {
        "contiguous": lambda: plain,
        "channels_last": lambda: plain.contiguous(memory_format=torch.channels_last),
        "turned": lambda: plain.transpose(2, 3).contiguous().transpose(2, 3),
        "every_other": lambda: plain.repeat_interleave(2, dim=3)[..., ::2],
    }[layout]()
    result = CropFlip(pad=4)(images, rng())
    assert torch.equal(result, CropFlip(pad=4)(plain, rng()))
    assert result.is_contiguous(memory_format=torch.channels_last) == (layout == "channels_last")


def test_the_same_generator_state_gives_the_same_batch():
    images = batch(16, 3, 32, 32)
    assert torch.equal(CropFlip(pad=4)(images, rng(1)), CropFlip(pad=4)(images, rng(1)))
    assert not torch.equal(CropFlip(pad=4)(images, rng(1)), CropFlip(pad=4)(images, rng(2)))
    torch.manual_seed(0)
    first = CropFlip(pad=4)(images, rng(1))
    torch.manual_seed(1)
    assert torch.equal(CropFlip(pad=4)(images, rng(1)), first)


def test_an_empty_batch_stays_empty():
    assert CropFlip(pad=4)(batch(0, 3, 8, 8), rng()).shape == (0, 3, 8, 8)


def test_crop_flip_is_a_value():
    assert CropFlip(pad=4) == CropFlip(pad=4) != CropFlip(pad=2)
    assert hash(CropFlip(pad=4)) == hash(CropFlip(4))
    assert repr(CropFlip(pad=4)) == "CropFlip(pad=4)"
    assert pickle.loads(pickle.dumps(CropFlip(3))) == CropFlip(3)  # noqa: S301 (our own bytes)
    with pytest.raises(FrozenInstanceError):
        CropFlip(pad=4).pad = 1


def by(turn=0.0, right=0, down=0, mirrored=False):
    """One image's change, as a batch of one."""
    return torch.tensor([turn]), torch.tensor([float(right)]), torch.tensor([float(down)]), torch.tensor([mirrored])


def test_no_turn_and_no_move_change_nothing():
    for shape in [(1, 3, 32, 32), (1, 1, 7, 12), (1, 3, 224, 224)]:
        images = batch(*shape)
        assert torch.equal(moved(images, *by()), images)
        assert torch.equal(moved(images, *by(mirrored=True)), images.flip(3))


@pytest.mark.parametrize("side", [2, 5, 8, 224])
def test_quarter_turns_are_clockwise_and_exact(side):
    image = batch(1, 3, side, side)
    for quarters in (1, 2, 3):
        turned = moved(image, *by(turn=quarters * math.pi / 2))
        assert torch.equal(turned, image.rot90(-quarters, (2, 3)))
    assert torch.equal(moved(image, *by(math.pi / 2, mirrored=True)), image.rot90(-1, (2, 3)).flip(3))


def test_moves_are_to_the_right_and_down_and_bring_zeros():
    image = batch(1, 1, 5, 6)
    result = moved(image, *by(right=2, down=1))
    assert torch.equal(result[:, :, 1:, 2:], image[:, :, :-1, :-2])
    assert result[:, :, 0].sum() == 0
    assert result[:, :, :, :2].sum() == 0
    assert torch.equal(moved(image, *by(right=2, down=1, mirrored=True)), result.flip(3))


def as_pillow_does(images, degrees, shift, generator):
    """The same draws, through Pillow's transform with the matrix that torchvision gives it, one image after another."""
    count, _, height, width = images.shape
    turns, rights, downs = (2 * torch.rand((3, count), generator=generator) - 1).tolist()
    mirrored = torch.randint(2, (count,), generator=generator).tolist()
    results = []
    for image, turn, right, down, mirror in zip(images, turns, rights, downs, mirrored, strict=True):
        angle, x, y = math.radians(turn * degrees), round(right * shift * width), round(down * shift * height)
        cos, sin, middle = math.cos(angle), math.sin(angle), (width / 2, height / 2)
        start = -middle[0] - x, -middle[1] - y
        first = (cos, sin, cos * start[0] + sin * start[1] + middle[0])
        second = (-sin, cos, -sin * start[0] + cos * start[1] + middle[1])
        channels = [Image.fromarray(channel) for channel in image.numpy()]
        made = [
            np.array(c.transform((width, height), Image.Transform.AFFINE, (*first, *second), Image.Resampling.NEAREST))
            for c in channels
        ]
        result = torch.from_numpy(np.stack(made))
        results.append(result.flip(2) if mirror else result)
    return torch.stack(results)


@pytest.mark.parametrize(
    ("shape", "degrees", "shift"),
    [((8, 3, 224, 224), 10, 0.02), ((16, 1, 32, 32), 10, 0.1), ((16, 2, 20, 31), 180, 0.3), ((4, 1, 9, 9), 0, 0.5)],
)
def test_a_batch_is_turned_and_moved_as_pillow_does_it_image_by_image(shape, degrees, shift):
    images = batch(*shape)
    before = images.clone()
    result = AffineFlip(degrees, shift)(images, rng(3))
    expected = as_pillow_does(images, degrees, shift, rng(3))
    assert (result == expected).float().mean() > 0.998, "Pillow reckons with 16 bits behind the point"
    assert torch.equal(images, before)
    assert (expected[degrees == 0 :] == 0).any(), "something came in from outside"


def test_turns_and_moves_stay_within_their_limits_and_differ_from_image_to_image():
    marks = torch.zeros(400, 1, 101, 101)
    marks[:, :, 50, 75] = 1  # 25 to the right of the centre
    places = AffineFlip(10.0, 0.02)(marks, rng()).flatten(1)
    found = places.argmax(dim=1)
    rows, columns = found // 101 - 50, (found % 101 - 50).abs()
    assert rows.abs().max() in (5, 6, 7), "25 sin 10 degrees is 4.3, and a shift of 2"
    assert columns.max() in (26, 27)
    assert columns.min() in (22, 23), "25 cos 10 degrees is 24.6"
    assert len(found.unique()) > 50


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64])
@pytest.mark.parametrize("layout", ["contiguous", "channels_last", "turned"])
def test_turning_keeps_type_and_layout_and_neither_changes_a_value(dtype, layout):
    plain = batch(6, 3, 10, 10)
    images = {
        "contiguous": plain,
        "channels_last": plain.contiguous(memory_format=torch.channels_last),
        "turned": plain.transpose(2, 3).contiguous().transpose(2, 3),
    }[layout].to(dtype)
    result = AffineFlip(degrees=10.0, shift=0.02)(images, rng())
    assert result.dtype == dtype
    assert torch.equal(result.to(torch.uint8), AffineFlip(degrees=10.0, shift=0.02)(plain, rng()))
    assert result.is_contiguous(memory_format=torch.channels_last) == (layout == "channels_last")


def test_turning_draws_from_the_given_generator_alone():
    images = batch(16, 3, 32, 32)
    torch.manual_seed(0)
    first = AffineFlip(degrees=10.0, shift=0.02)(images, rng(1))
    torch.manual_seed(1)
    generator = rng(1)
    assert torch.equal(AffineFlip(degrees=10.0, shift=0.02)(images, generator), first)
    assert not torch.equal(AffineFlip(degrees=10.0, shift=0.02)(images, generator), first), (
        "the next batch is drawn anew"
    )
    assert not torch.equal(AffineFlip(degrees=10.0, shift=0.02)(images, rng(2)), first)
    assert AffineFlip(degrees=10.0, shift=0.02)(batch(0, 3, 8, 8), rng()).shape == (0, 3, 8, 8)


def test_settings_name_every_augmentation():
    assert tuple(AUGMENTATIONS) == ("none", "crop-flip", "crop-flip-2", "affine-flip")
    assert AUGMENTATIONS["none"] is None, "by which clients are trained as one"
    assert AUGMENTATIONS["affine-flip"] == AffineFlip(degrees=10.0, shift=0.02)


LABELS = torch.tensor([0, 3, 1, 1, 2, 0, 3, 2])


def pairing(seed, alpha=1.0, count=8):
    """The share a of the first image, and which image each is blended with, read off images that tell their number."""
    marks = torch.eye(count, dtype=torch.float64).view(count, count, 1, 1)
    made_of = Mixup(alpha)(marks, torch.zeros(count, dtype=torch.int64), 4, rng(seed))[0].view(count, count)
    own = made_of.diagonal()
    other = torch.where(own > 1 - 1e-6, torch.arange(count), (made_of - torch.diag(own)).argmax(dim=1))
    return own.min().item(), other


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(8, 1, 8, 8), (8, 3, 5, 7)])
def test_mixup_keeps_type_and_shape_and_changes_no_input(dtype, shape):
    images, labels = batch(*shape, dtype=dtype), LABELS.clone()
    before = images.clone()
    mixed, shares = Mixup(alpha=1.0)(images, labels, 5, rng(1))
    assert (mixed.dtype, mixed.shape) == (dtype, images.shape)
    assert (shares.dtype, shares.shape) == (torch.float32, (8, 5))
    assert torch.equal(images, before)
    assert torch.equal(labels, LABELS)


@given(st.integers(0, 10**6), st.sampled_from([0.2, 1.0, 5.0]))
def test_mixup_blends_images_and_labels_of_the_same_pairs_in_the_same_proportion(seed, alpha):
    a, other = pairing(seed, alpha)
    assert sorted(other.tolist()) == list(range(8)), "each image is the other one of one image"
    images = batch(8, 1, 4, 4, dtype=torch.float64)
    mixed, shares = Mixup(alpha)(images, LABELS, 4, rng(seed))
    torch.testing.assert_close(mixed, a * images + (1 - a) * images[other], atol=1e-4, rtol=1e-4)
    hot = torch.eye(4)[LABELS]
    torch.testing.assert_close(shares, a * hot + (1 - a) * hot[other], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(shares.sum(dim=1), torch.ones(8))
    assert shares.min() >= 0
    low, high = torch.minimum(images, images[other]), torch.maximum(images, images[other])
    assert ((mixed >= low - 1e-3) & (mixed <= high + 1e-3)).all()


@given(st.integers(0, 10**6))
def test_mixup_rounds_whole_pixels_to_the_nearest(seed):
    images = batch(8, 1, 8, 8)
    whole, same = Mixup(alpha=1.0)(images, LABELS, 4, rng(seed))
    exact, shares = Mixup(alpha=1.0)(images.double(), LABELS, 4, rng(seed))
    assert (whole.double() - exact).abs().max() <= 0.5 + 1e-3
    assert torch.equal(same, shares), "whatever the type of the images"


def test_mixup_of_equal_images_and_labels_changes_nothing():
    images = batch(1, 1, 8, 8).expand(6, -1, -1, -1)
    mixed, shares = Mixup(alpha=1.0)(images, torch.full((6,), 2), 4, rng())
    assert torch.equal(mixed, images)
    torch.testing.assert_close(shares, torch.eye(4)[[2] * 6])


def test_mixup_draws_from_the_given_generator_alone():
    images = batch(8, 1, 8, 8)
    torch.manual_seed(0)
    first = Mixup(alpha=1.0)(images, LABELS, 4, rng(1))
    torch.manual_seed(1)
    again, other = Mixup(alpha=1.0)(images, LABELS, 4, rng(1)), Mixup(alpha=1.0)(images, LABELS, 4, rng(2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])
    generator = rng(1)
    Mixup(alpha=1.0)(images, LABELS, 4, generator)
    assert not torch.equal(Mixup(alpha=1.0)(images, LABELS, 4, generator)[1], first[1]), (
        "the next batch is blended anew"
    )


@pytest.mark.parametrize("alpha", [0.2, 1.0, 5.0])
def test_mixups_proportion_is_drawn_from_beta(alpha):
    """Whose mean is 1/2 and whose variance is 1 / (4 (2 alpha + 1))."""
    shares = torch.tensor([pairing(seed, alpha, count=16)[0] for seed in range(400)])
    deviation = (1 / (4 * (2 * alpha + 1))) ** 0.5
    assert abs(shares.mean() - 0.5) < 4 * deviation / 20
    assert 0.85 < shares.std() / deviation < 1.15


def test_mixup_is_a_value():
    assert Mixup(alpha=1.0) == Mixup(alpha=1.0) != Mixup(0.5)
    assert hash(Mixup(alpha=1.0)) == hash(Mixup(1.0))
    assert repr(Mixup(alpha=1.0)) == "Mixup(alpha=1.0)"
