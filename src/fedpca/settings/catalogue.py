"""What a settings file may name, one line each."""

from typing import Literal

Augmentation = Literal["none", "crop-flip", "affine-flip"]
