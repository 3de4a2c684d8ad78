"""Everything that a settings file may name, one line each, readable without importing PyTorch."""

from typing import Literal

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """Frozen settings that refuse unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class FedAvgSettings(Settings):
    """FedAvg takes no settings."""


Category = Literal["baseline", "fair", "robust", "fair + robust", "ours"]


class Entry(Settings):
    """One method of the catalogue: what it does, where it belongs in the tables, what can be set."""

    summary: str
    category: Category
    settings: type[Settings]


METHODS: dict[str, Entry] = {
    "fedavg": Entry(
        summary="size-weighted mean of the clients' models (McMahan et al. 2017)",
        category="baseline",
        settings=FedAvgSettings,
    ),
}

DATASETS: dict[str, str] = {
    "digits": "1,797 grey 8x8 digits of scikit-learn, 10 classes; embedded, the default",
    "fashion-mnist": "70,000 grey 28x28 clothes, 10 classes; idx or parquet files, or a download",
    "cifar10": "60,000 colour 32x32 photographs, 10 classes; parquet, cifar-10-batches-py, or a download",
    "NAME": "a folder of that name in the data folder: parquet files, images by class, or CSV with images",
    "PATH": "your own .npz, .parquet or .csv file, or a folder of those or of images by class",
}

MODELS: dict[str, str] = {
    "mlp": "one hidden layer of 64; for 8x8 digits and for speed",
    "cnn-small": "two convolutions and a hidden layer, for images of 8x8 to 32x32",
    "resnet18": "ResNet-18 with the CIFAR stem (3x3, no pooling), for 32x32",
    "resnet18-imagenet": "ResNet-18 with the ImageNet stem (7x7, pooling); takes torchvision's weights",
    "PACKAGE.MODULE:FUNCTION": "your own: function(shape=(C, H, W), classes=n) returning an nn.Module",
}

Corruption = Literal[
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "speckle_noise",
    "gaussian_blur",
    "defocus_blur",
    "brightness",
    "contrast",
    "saturate",
    "jpeg",
    "pixelate",
]
