"""Single pictures: those that hold what is no colour are named, not decoded to something."""

from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from fedpca.data.formats.pictures import Decoding, pixels


def tiff(values: np.ndarray) -> bytes:
    file = BytesIO()
    Image.fromarray(values.astype(np.float32)).save(file, "TIFF")
    return file.getvalue()


def test_floats_from_0_to_1_are_decoded():
    decoded = pixels(Decoding(), 1, tiff(np.full((4, 4), 0.5)))
    assert not isinstance(decoded, str)
    assert (decoded == 128).all()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_picture_with_a_value_that_is_no_number_is_refused(value: float):
    values = np.zeros((4, 4))
    values[1, 2] = value
    assert pixels(Decoding(), 1, tiff(values)) == "it holds NaN or infinite values"
