"""Every dataset that has a name, one entry each: what it is, where it lies, what it needs, and where to get it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fedpca.settings.experiment import DataSettings, NoiseSettings

CIFAR10 = "airplane automobile bird cat deer dog frog horse ship truck"
FASHION = "T-shirt/top,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Ankle boot"
ISIC_FILES = "https://isic-challenge-data.s3.amazonaws.com/2019"
PARQUET = "train.parquet and test.parquet"

TruthSource = Literal["assumed", "unknown", "column"]


@dataclass(frozen=True)
class Known:
    """A published dataset."""

    summary: str
    images: int  # as published, and as a run uses them
    page: str
    folders: tuple[str, ...] = ()  # it may be in, in the data folder
    get: tuple[str, ...] = ()  # commands, for the data folder
    needs: str = ""  # files, as messages name them
    format: str | None = None  # the one of data.formats that it is published in; None: any
    embedded: bool = False  # in a package that is installed anyway; there are no files to look for
    has_test: bool = True
    classes: tuple[str, ...] = ()  # where the files may not name them
    hub: str | None = None  # folder of its train and test file there; None: it cannot be downloaded


KNOWN: Mapping[str, Known] = {
    "digits": Known(
        summary="1,797 grey 8x8 digits of scikit-learn, 10 classes; embedded, the default",
        images=1_797,
        page="https://scikit-learn.org/stable/modules/generated/sklearn.datasets.load_digits.html",
        embedded=True,
    ),
    "fashion-mnist": Known(
        summary="70,000 grey 28x28 clothes, 10 classes; idx or parquet files, or a download",
        folders=("fashion-mnist",),
        images=70_000,
        page="https://github.com/zalandoresearch/fashion-mnist",
        get=(
            "sudo apt install dataset-fashion-mnist    # on Debian and Ubuntu, or",
            "fedpca data prepare fashion-mnist         # downloads it",
        ),
        classes=tuple(FASHION.split(",")),
        needs="train*.parquet and test*.parquet, or the four idx files",
        hub="zalando-datasets/fashion_mnist/resolve/main/fashion_mnist",
    ),
    "cifar10": Known(
        summary="60,000 colour 32x32 photographs, 10 classes; parquet, cifar-10-batches-py, or a download",
        folders=("cifar10", "cifar10/cifar-10-batches-py", "cifar-10-batches-py"),
        images=60_000,
        page="https://www.cs.toronto.edu/~kriz/cifar.html",
        get=(
            "fedpca data prepare cifar10    # downloads it, or",
            "curl -LO https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz && tar xzf cifar-10-python.tar.gz",
        ),
        classes=tuple(CIFAR10.split()),
        needs="train*.parquet and test*.parquet, or data_batch_1 to data_batch_5 and test_batch",
        hub="uoft-cs/cifar10/resolve/main/plain_text",
    ),
    "rsna-ich": Known(
        summary="25,000 of RSNA's brain CT slices at 224x224, haemorrhage or not; stage_2_train.csv with DICOM or PNG",
        folders=("rsna-ich", "rsna-intracranial-hemorrhage-detection"),
        images=25_000,
        page="https://www.kaggle.com/c/rsna-intracranial-hemorrhage-detection",
        get=(
            "kaggle competitions download -c rsna-intracranial-hemorrhage-detection    # after accepting its rules",
            "unzip -q rsna-intracranial-hemorrhage-detection.zip -d rsna-ich",
        ),
        needs="stage_2_train.csv and its images, stage_2_train/ID_*.dcm or ID_*.png",
        format="rsna",
        has_test=False,
    ),
    "isic-2019": Known(
        summary="25,331 colour skin lesions at 224x224, 8 classes; ISIC's ground truth CSV with JPEG",
        folders=("isic-2019", "isic2019", "ISIC_2019"),
        images=25_331,
        page="https://challenge.isic-archive.com/data/#2019",
        get=(
            "mkdir -p isic-2019 && cd isic-2019",
            f"curl -LO {ISIC_FILES}/ISIC_2019_Training_GroundTruth.csv",
            f"curl -LO {ISIC_FILES}/ISIC_2019_Training_Input.zip && unzip -q ISIC_2019_Training_Input.zip",
        ),
        needs="ISIC_2019_Training_GroundTruth.csv and its images, ISIC_2019_Training_Input/*.jpg",
        format="isic",
        has_test=False,
    ),
    "ich-ct": Known(
        summary="3,478 grey 128x128 brain CT slices, haemorrhage or not; parquet",
        folders=("ich-ct",),
        images=3_478,
        page="https://figshare.com/articles/dataset/PHE-SICH-CT-IDS/23957937",
        get=(f"# slices with a label for each, written as {PARQUET} (docs/data.md); there is no command for it",),
        needs=PARQUET,
    ),
    "isic2019-ham10000": Known(
        summary="10,015 colour 200x150 skin lesions, ISIC's 8 classes, 4 centres; parquet",
        folders=("isic2019-ham10000",),
        images=10_015,
        page="https://doi.org/10.7910/DVN/DBW86T",
        get=(f"# images with ISIC's labels, written as {PARQUET} (docs/data.md); there is no command for it",),
        needs=PARQUET,
    ),
}


def truth_source(data: DataSettings, noise: NoiseSettings) -> TruthSource:
    """How the truth about labels is known: they are taken as true, a column has the true ones, or nobody knows it.

    Labels of known datasets are taken as true, and so are those into which the scenario injects wrong ones.
    """
    if data.truth_column is not None:
        return "column"
    return data.truth or ("assumed" if data.dataset in KNOWN or noise.injects else "unknown")


def noise_words(noise: NoiseSettings, percent: str = "%") -> str:
    """How many of the mislabeled clients' labels are made wrong, in words."""
    if not noise.has_rates:
        return f"labels of column {noise.column}"
    shares = dict.fromkeys(f"{100 * rate:.0f}{percent}" for rate in (min(noise.rates), max(noise.rates)))
    return f"{' to '.join(shares)} of their labels"


def others_words(noise: NoiseSettings, percent: str = "%") -> str:
    """The same of the other clients; nothing where their labels are as the data have them."""
    if noise.others is not None:
        return f"labels of column {noise.others}"
    return f"{100 * noise.others_labels:.0f}{percent} of their labels" if noise.others_labels > 0 else ""


def truth_words(data: DataSettings, noise: NoiseSettings) -> str:
    """The same of a user's own data, in words; nothing of known datasets, whose labels everybody takes as true."""
    source = truth_source(data, noise)
    if source == "column":
        return f"true labels in column {data.truth_column}"
    if source == "unknown":
        return "nobody knows which labels are true"
    return "" if data.dataset in KNOWN else "labels of the data are taken as true"
