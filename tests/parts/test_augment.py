import pickle
from dataclasses import FrozenInstanceError

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import pad as padded_with_zeros

from fedpca.parts.augment import CropFlip, Mixup, unblended, unchanged


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
    result = CropFlip()(images, rng())
    assert torch.equal(result, CropFlip()(plain, rng()))
    assert result.is_contiguous(memory_format=torch.channels_last) == (layout == "channels_last")


def test_the_same_generator_state_gives_the_same_batch():
    images = batch(16, 3, 32, 32)
    assert torch.equal(CropFlip()(images, rng(1)), CropFlip()(images, rng(1)))
    assert not torch.equal(CropFlip()(images, rng(1)), CropFlip()(images, rng(2)))
    torch.manual_seed(0)
    first = CropFlip()(images, rng(1))
    torch.manual_seed(1)
    assert torch.equal(CropFlip()(images, rng(1)), first)


def test_an_empty_batch_stays_empty():
    assert CropFlip()(batch(0, 3, 8, 8), rng()).shape == (0, 3, 8, 8)


def test_crop_flip_is_a_value():
    assert CropFlip() == CropFlip(pad=4) != CropFlip(pad=2)
    assert hash(CropFlip()) == hash(CropFlip(4))
    assert repr(CropFlip()) == "CropFlip(pad=4)"
    assert pickle.loads(pickle.dumps(CropFlip(3))) == CropFlip(3)  # noqa: S301 (our own bytes)
    with pytest.raises(FrozenInstanceError):
        CropFlip().pad = 1


def test_unchanged_gives_the_very_images_and_draws_nothing():
    generator, images = rng(), batch(2, 1, 8, 8)
    before = generator.get_state()
    assert unchanged(images, generator) is images
    assert torch.equal(generator.get_state(), before)


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
    mixed, shares = Mixup()(images, labels, 5, rng(1))
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
    whole, same = Mixup()(images, LABELS, 4, rng(seed))
    exact, shares = Mixup()(images.double(), LABELS, 4, rng(seed))
    assert (whole.double() - exact).abs().max() <= 0.5 + 1e-3
    assert torch.equal(same, shares), "whatever the type of the images"


def test_mixup_of_equal_images_and_labels_changes_nothing():
    images = batch(1, 1, 8, 8).expand(6, -1, -1, -1)
    mixed, shares = Mixup()(images, torch.full((6,), 2), 4, rng())
    assert torch.equal(mixed, images)
    torch.testing.assert_close(shares, torch.eye(4)[[2] * 6])


def test_mixup_draws_from_the_given_generator_alone():
    images = batch(8, 1, 8, 8)
    torch.manual_seed(0)
    first = Mixup()(images, LABELS, 4, rng(1))
    torch.manual_seed(1)
    again, other = Mixup()(images, LABELS, 4, rng(1)), Mixup()(images, LABELS, 4, rng(2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])
    generator = rng(1)
    Mixup()(images, LABELS, 4, generator)
    assert not torch.equal(Mixup()(images, LABELS, 4, generator)[1], first[1]), "the next batch is blended anew"


@pytest.mark.parametrize("alpha", [0.2, 1.0, 5.0])
def test_mixups_proportion_is_drawn_from_beta(alpha):
    """Whose mean is 1/2 and whose variance is 1 / (4 (2 alpha + 1))."""
    shares = torch.tensor([pairing(seed, alpha, count=16)[0] for seed in range(400)])
    deviation = (1 / (4 * (2 * alpha + 1))) ** 0.5
    assert abs(shares.mean() - 0.5) < 4 * deviation / 20
    assert 0.85 < shares.std() / deviation < 1.15


def test_unblended_gives_the_very_images_and_labels_and_draws_nothing():
    generator, images = rng(), batch(8, 1, 8, 8)
    before = generator.get_state()
    mixed, labels = unblended(images, LABELS, 4, generator)
    assert mixed is images
    assert labels is LABELS
    assert torch.equal(generator.get_state(), before)


def test_mixup_is_a_value():
    assert Mixup() == Mixup(alpha=1.0) != Mixup(0.5)
    assert hash(Mixup()) == hash(Mixup(1.0))
    assert repr(Mixup()) == "Mixup(alpha=1.0)"
