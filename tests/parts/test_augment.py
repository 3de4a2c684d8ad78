import pickle
from dataclasses import FrozenInstanceError

import pytest
import torch
from torch.nn.functional import pad as padded_with_zeros

from fedpca.parts.augment import CropFlip, unchanged


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
