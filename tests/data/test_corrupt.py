import colorsys

import numpy as np
import pytest

from fedpca.data import corrupt as module
from fedpca.data.corrupt import CORRUPTIONS, check_corruption, corruption
from fedpca.errors import SettingsError
from fedpca.settings.experiment import RareSettings

KINDS = list(CORRUPTIONS.own)
NOISES = [kind for kind in KINDS if kind.endswith("_noise")]
BLURS = [kind for kind in KINDS if kind.endswith("_blur")]
EVERY = [(kind, severity, table) for kind in KINDS for severity in range(1, 6) for table in ("imagenet", "cifar")]


def corrupt(images, kind, amount, rng, **further):
    return module.corrupt(images, CORRUPTIONS[kind], amount, rng, **further)


def constant(kind, severity, table):
    return CORRUPTIONS[kind].constant(severity, table)


def rng(seed=0):
    return np.random.default_rng(seed)


def photographs(count=4, channels=3, side=32):
    """Colour gradients with soft blobs, fine ripples and an edge, away from black and white."""
    draw = rng(42)
    y, x = np.mgrid[:side, :side] / side
    images = np.empty((count, channels, side, side))
    for image in images.reshape(-1, side, side):
        a, b, c, d = draw.uniform(0.1, 0.9, 4)
        blob = np.exp(-((x - a) ** 2 + (y - b) ** 2) / 0.05)
        ripples = np.sin(side * (a * x + b * y)) * np.sin(side * (c * x - d * y))
        image[:] = 0.3 + 0.2 * c * x + 0.2 * d * y + 0.3 * blob - 0.2 * (x + y > a + b) + 0.1 * ripples
    return (images.clip(0.05, 0.95) * 255).astype(np.uint8)


def change(images, kind, amount, seed=0):
    return np.abs(corrupt(images, kind, amount, rng(seed)).astype(int) - images).mean()


@pytest.mark.parametrize(("sigma", "expected"), [(0.18, [208, 146, 172]), (0.08, [163, 136, 147])])
def test_gaussian_noise_gives_the_published_example(sigma, expected):
    grey = np.full((1, 3, 1, 1), 128, np.uint8)
    assert corrupt(grey, "gaussian_noise", sigma, np.random.RandomState(0)).ravel().tolist() == expected


@pytest.mark.parametrize("kind", ["gaussian_noise", "speckle_noise", "gaussian_blur"])
def test_no_sigma_leaves_every_value_as_it_is(kind):
    every_value = np.arange(256, dtype=np.uint8).reshape(1, 1, 16, 16)
    assert np.array_equal(corrupt(every_value, kind, 0.0, rng()), every_value)


@pytest.mark.parametrize(("kind", "severity", "table"), EVERY)
def test_every_published_corruption_changes_images_and_only_copies_of_them(kind, severity, table):
    images = photographs()
    before = images.copy()
    result = corrupt(images, kind, constant(kind, severity, table), rng())
    assert result.dtype == np.uint8
    assert result.shape == images.shape
    assert np.array_equal(images, before)
    assert all(not np.array_equal(new, old) for new, old in zip(result, images, strict=True))
    assert np.abs(result.astype(int) - images).mean() < 128


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "saturate"])
@pytest.mark.parametrize("side", [8, 28])
def test_grey_images_can_be_corrupted(kind, side):
    images = photographs(channels=1, side=side)
    result = corrupt(images, kind, constant(kind, 3, "imagenet"), rng())
    assert result.shape == images.shape
    assert not np.array_equal(result, images)


@pytest.mark.parametrize("kind", KINDS)
def test_the_size_of_chunks_does_not_matter_and_seeds_repeat(kind):
    images = photographs(7, side=16)
    amount = constant(kind, 3, "imagenet")
    whole = corrupt(images, kind, amount, rng())
    for chunk in (1, 2 * images[0].size, 3 * images[0].size + 5):
        assert np.array_equal(corrupt(images, kind, amount, rng(), chunk=chunk), whole)
    assert np.array_equal(corrupt(images, kind, amount, rng()), whole)
    differs = not np.array_equal(corrupt(images, kind, amount, rng(1)), whole)
    assert differs == (kind in NOISES)


@pytest.mark.parametrize("kind", NOISES + BLURS)
@pytest.mark.parametrize("table", ["imagenet", "cifar"])
def test_a_higher_severity_moves_further_from_the_original(kind, table):
    images = photographs(side=64)
    changes = [change(images, kind, constant(kind, severity, table)) for severity in range(1, 6)]
    assert changes == sorted(changes)


@pytest.mark.parametrize("kind", KINDS)
def test_the_large_images_table_is_the_harsher_one(kind):
    images = photographs(side=64)
    assert change(images, kind, constant(kind, 5, "imagenet")) > change(images, kind, constant(kind, 5, "cifar"))


def test_memory_layout_of_the_images_does_not_matter():
    images = photographs()
    turned = np.ascontiguousarray(images.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    for kind in KINDS:
        amount = constant(kind, 2, "cifar")
        assert np.array_equal(corrupt(turned, kind, amount, rng()), corrupt(images, kind, amount, rng()))


def test_no_images_give_no_images():
    assert corrupt(np.empty((0, 3, 8, 8), np.uint8), "jpeg", 25, rng()).shape == (0, 3, 8, 8)


# The single kinds.


def test_shot_noise_has_the_spread_of_counted_photons():
    grey = np.full((1, 1, 200, 200), 102, np.uint8)  # 0.4
    values = corrupt(grey, "shot_noise", 60.0, rng()) / 255
    assert values.mean() == pytest.approx(0.4, abs=0.004)
    assert values.std() == pytest.approx((0.4 / 60) ** 0.5, rel=0.03)


def test_speckle_noise_grows_with_the_value_and_spares_black():
    images = np.array([0, 50, 100], np.uint8)[:, None, None, None].repeat(10_000, axis=3)
    spread = corrupt(images, "speckle_noise", 0.2, rng()).std(axis=(1, 2, 3))
    assert spread == pytest.approx([0, 10, 20], rel=0.05)


def test_impulse_noise_makes_as_many_values_white_as_black():
    grey = np.full((1, 3, 200, 200), 100, np.uint8)
    result = corrupt(grey, "impulse_noise", 0.2, rng())
    assert set(np.unique(result)) == {0, 100, 255}
    assert (result == 0).mean() == pytest.approx(0.1, abs=0.005)
    assert (result == 255).mean() == pytest.approx(0.1, abs=0.005)


def point(side=41):
    image = np.zeros((1, 1, side, side), np.uint8)
    image[0, 0, side // 2, side // 2] = 255
    return image


def test_gaussian_blur_spreads_a_point_to_a_bell():
    middle = corrupt(point(), "gaussian_blur", 1.0, rng())[0, 0, 20, 20:24]
    assert middle == pytest.approx(255 / (2 * np.pi) * np.exp(-(np.arange(4) ** 2) / 2), abs=1.1)


def test_defocus_spreads_a_point_to_a_disk():
    bright = corrupt(point(), "defocus_blur", (3, 0.1), rng())[0, 0] > 0
    y, x = np.mgrid[-20:21, -20:21]
    assert np.array_equal(bright, x**2 + y**2 <= 9)


def test_defocus_softens_the_edge_by_the_second_number():
    weights = corrupt(point(), "defocus_blur", (0.3, 0.4), rng())[0, 0, 19:22, 19:22]
    bell = np.exp(-(np.array([-1, 0, 1]) ** 2) / (2 * 0.4**2))
    bell /= bell.sum()
    assert np.array_equal(weights, (255 * np.outer(bell, bell)).astype(np.uint8))


@pytest.mark.parametrize("kind", BLURS)
def test_blurs_keep_channels_and_images_apart(kind):
    images = np.zeros((2, 3, 16, 16), np.uint8)
    images[1, 2] = 200
    blurred = corrupt(images, kind, constant(kind, 2, "imagenet"), rng())
    assert not blurred[0].any()
    assert not blurred[1, :2].any()
    assert (blurred[1, 2] >= 199).all()  # truncation may take one


def test_contrast_halves_the_distance_to_each_channels_mean():
    images = np.array([[[[100, 200]], [[10, 30]], [[50, 50]]]], np.uint8)
    result = corrupt(images, "contrast", 0.5, rng()).astype(int)
    assert np.abs(result - [[[[125, 175]], [[15, 25]], [[50, 50]]]]).max() <= 1  # truncation may take one


def random_pixels():
    pixels = rng(5).integers(0, 256, (2000, 3), dtype=np.uint8)
    pixels[:20] = pixels[:20, :1]  # greys
    pixels[20] = 0
    return pixels


def in_hsv(pixels, edit):
    return np.array([colorsys.hsv_to_rgb(*edit(*colorsys.rgb_to_hsv(*(pixel / 255)))) for pixel in pixels]) * 255


@pytest.mark.parametrize("amount", [0.1, 0.5])
def test_brightness_is_an_addition_to_the_value_of_hsv(amount):
    pixels = random_pixels()
    result = corrupt(pixels.reshape(1, 40, 50, 3).transpose(0, 3, 1, 2), "brightness", amount, rng())
    expected = in_hsv(pixels, lambda h, s, v: (h, s, min(1, v + amount)))
    assert np.abs(result.transpose(0, 2, 3, 1).reshape(-1, 3) - (expected - 0.5)).max() < 0.5 + 1e-6


@pytest.mark.parametrize("numbers", [(0.3, 0), (2, 0), (20, 0.2)])
def test_saturate_is_a_line_through_the_saturation_of_hsv(numbers):
    pixels = random_pixels()
    result = corrupt(pixels.reshape(1, 40, 50, 3).transpose(0, 3, 1, 2), "saturate", numbers, rng())
    expected = in_hsv(pixels, lambda h, s, v: (h, min(1, numbers[0] * s + numbers[1]), v))
    assert np.abs(result.transpose(0, 2, 3, 1).reshape(-1, 3) - (expected - 0.5)).max() < 0.5 + 1e-6


def test_brightness_of_grey_images_is_added_to_the_value_itself():
    grey = np.array([0, 100, 250], np.uint8).reshape(1, 1, 1, 3)
    assert corrupt(grey, "brightness", 0.2, rng()).ravel().tolist() == [51, 151, 255]


def test_pixelate_makes_squares():
    result = corrupt(photographs(side=32), "pixelate", 0.25, rng())
    squares = result.reshape(4, 3, 8, 4, 8, 4)
    assert (squares == squares[:, :, :, :1, :, :1]).all()


def test_jpeg_keeps_the_colours_in_their_channels():
    red = np.zeros((1, 3, 16, 16), np.uint8)
    red[:, 0] = 200
    assert corrupt(red, "jpeg", 80, rng()).mean(axis=(0, 2, 3)) == pytest.approx([200, 0, 0], abs=3)


# What cannot be.


def test_grey_images_have_no_saturation():
    with pytest.raises(ValueError, match="saturate needs images of 3 channels, got 1: choose another corruption"):
        corrupt(photographs(channels=1), "saturate", (2, 0), rng())


@pytest.mark.parametrize("kind", KINDS)
def test_other_numbers_of_channels_are_for_noise_only(kind):
    images = photographs(channels=4)
    if kind in NOISES:
        assert corrupt(images, kind, 0.3, rng()).shape == images.shape
    else:
        with pytest.raises(ValueError, match=f"{kind} needs images of (1 or )?3 channels, got 4: choose"):
            corrupt(images, kind, constant(kind, 1, "cifar"), rng())


@pytest.mark.parametrize("images", [np.zeros((2, 3, 4, 4)), np.zeros((3, 4, 4), np.uint8)])
def test_images_of_another_form_are_refused(images):
    with pytest.raises(ValueError, match=r"must be uint8 \(N, C, H, W\), got (float64|uint8) \("):
        corrupt(images, "gaussian_noise", 0.1, rng())


@pytest.mark.parametrize("severity", [0, 6])
def test_severities_end_at_five(severity):
    with pytest.raises(SettingsError, match=f"severity of jpeg must be 1 to 5, got {severity}"):
        constant("jpeg", severity, "cifar")


def test_constants_are_the_published_ones():
    assert constant("gaussian_noise", 3, "imagenet") == 0.18
    assert constant("gaussian_noise", 3, "cifar") == 0.08
    assert constant("defocus_blur", 5, "cifar") == (1.5, 0.1)
    assert constant("saturate", 5, "imagenet") == (20, 0.2)
    assert constant("jpeg", 1, "cifar") == 80


# Settings, and corruptions from elsewhere.


@pytest.mark.parametrize(
    ("rare", "reason"),
    [
        ({"corruption": "jpg"}, r"rare.corruption: there is no corruption 'jpg' \(did you mean 'jpeg'\?\)"),
        ({"corruption": "jpeg", "sigma": 0.1}, "rare.sigma is for gaussian_noise, .*; jpeg takes rare.severity"),
        ({"corruption": "colorsys:hsv_to_rgb"}, "must be a fedpca.Corruption, got function"),
        ({"corruption": f"{__name__}:mirror", "table": "cifar"}, "rare.table of mirror must be imagenet, got cifar"),
        ({"corruption": f"{__name__}:mirror", "severity": 3}, "rare.severity of mirror must be 1 to 1, got 3"),
    ],
)
def test_settings_that_no_corruption_can_follow_are_refused(rare, reason):
    with pytest.raises(SettingsError, match=reason):
        check_corruption(RareSettings(**rare))


@corruption(imagenet=(1,))
def mirror(x, rng, _):
    """Left and right exchanged."""
    return x[..., ::-1]


def test_a_corruption_of_another_module_is_used():
    rare = RareSettings(corruption=f"{__name__}:mirror", severity=1)
    check_corruption(rare)
    assert CORRUPTIONS[rare.corruption].summary == "Left and right exchanged"
    images = photographs()
    assert np.array_equal(corrupt(images, rare.corruption, 1.0, rng()), images[..., ::-1])


def test_every_corruption_says_what_it_does():
    assert all(CORRUPTIONS[name].summary and CORRUPTIONS[name].name == name for name in CORRUPTIONS)
