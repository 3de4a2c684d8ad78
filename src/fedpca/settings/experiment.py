"""An experiment's settings as frozen values; what their names stand for is checked by `runs.check`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import (
    BeforeValidator,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_validator,
)

from fedpca.settings.attack import AttackSettings
from fedpca.settings.base import Count, Device, Names, NonNegative, Positive, Settings, Share, Table
from fedpca.settings.privacy import PrivacySettings
from fedpca.settings.toml import NAME

PILLOW_PIXELS = 89_478_485  # of an image, from which on Pillow takes it for an attack
IMAGENET = Path("imagenet")  # as `model.weights`: those published for the model
Shares = Annotated[  # a list of shares, or one
    tuple[Share, ...], BeforeValidator(lambda given: given if isinstance(given, list | tuple) else [given])
]


def _in_one_line(required: str) -> WrapValidator:
    """One message for a value of several possible types, where there would be one for each of them."""

    def check(given: object, validate: ValidatorFunctionWrapHandler) -> object:
        try:
            return validate(given)
        except ValidationError:
            raise ValueError(f"input should be {required}") from None

    return WrapValidator(check)


Rates = Annotated[
    Share | tuple[Share, ...], _in_one_line("a share from 0 to 1, or a list of them, one for each mislabeled client")
]
Matrix = Annotated[
    Literal["model"] | tuple[tuple[NonNegative, ...], ...],
    _in_one_line('"model", or a list with a row for each class, each a list of a number from 0 on for each class'),
]


class DataSettings(Settings):
    """Which images, and how they are spread over the clients."""

    RENAMED: ClassVar = {"least": "min_images"}

    dataset: str = "digits"
    clients: Count | None = None  # given by the data when the split is by column or by sizes
    split: Literal["iid", "dirichlet", "column", "sizes"] = "iid"
    alpha: Positive = 2.0  # of the Dirichlet split: small is uneven
    min_images: Count | None = None  # per client of the Dirichlet split; two batches if not given and possible
    column: str | None = None  # whose values are the clients, for split = "column"
    sizes: tuple[Count, ...] | None = None  # images per client, for split = "sizes"
    group_column: str | None = None  # such as a patient's id: images with one value stay on one side of every split
    seed: int = 0  # of split, corruption and label noise: the same federation for every training seed
    train_images: Count | None = None  # use only so many, drawn at random; all if not given
    test_images: Count | None = None
    test_share: Annotated[float, Field(gt=0, lt=1)] = 0.2  # of data that come without a test part
    validation_share: Annotated[float, Field(ge=0, lt=1)] = 0.0  # of the training images of each class, set aside
    image_column: str = "image"
    label_column: str = "label"
    feature_columns: Names | None = None  # of a table of numbers; all without another use if not given
    truth: Literal["assumed", "unknown"] | None = None  # of labels; default: data.known.truth_source
    truth_column: str | None = None  # the column that has the true labels
    corrected_labels: Path | None = None  # corrected.csv of an audit's review, or a folder with several of them
    image_root: Path | None = None  # where the paths of a CSV start; the CSV's own folder if not given
    image_size: Annotated[int, Field(ge=4)] | None = None  # images are resized to this square when decoded
    max_pixels: Annotated[int, Field(ge=16, le=PILLOW_PIXELS)] = 50_000_000  # of an image; a larger one is unreadable
    max_bytes: Annotated[int, Field(ge=1_000_000)] = 2**33  # of memory for one array, table or packed file

    @model_validator(mode="after")
    def _split_has_what_it_needs(self) -> DataSettings:
        needed = {"iid": "clients", "dirichlet": "clients", "column": "column", "sizes": "sizes"}[self.split]
        if getattr(self, needed) is None:
            raise ValueError(f"split = {self.split!r} needs data.{needed}")
        if self.split == "sizes" and self.clients not in (None, len(self.sizes or ())):
            raise ValueError(f"data.clients = {self.clients}, but data.sizes lists {len(self.sizes or ())} clients")
        if self.split == "sizes" and self.group_column is not None:
            got = "data.sizes cannot be kept where data.group_column keeps images together"
            raise ValueError(f"{got}: use split = 'iid'")
        return self

    @model_validator(mode="after")
    def _one_truth(self) -> DataSettings:
        if self.truth and self.truth_column is not None:
            got = f"truth = {self.truth!r} and truth_column = {self.truth_column!r}"
            raise ValueError(f"{got}: give one of them; a column of true labels makes the truth known")
        return self


class RareSettings(Settings):
    """Which clients hold corrupted images, and how those are corrupted."""

    RENAMED: ClassVar = {"clean": "clean_share"}

    share: Share = 0.0  # of all clients
    corruption: str = "gaussian_noise"  # one of `fedpca list corruptions`, or package.module:name
    severity: Annotated[int, Field(ge=1, le=5)] = 3
    table: Literal["imagenet", "cifar"] = "imagenet"  # whose published constants a severity stands for
    sigma: NonNegative | None = None  # in place of table and severity; noise and Gaussian blur only
    clean_share: Shares = (0.0,)  # of a rare client's images stay clean: one share for all of them, or one each


class NoiseSettings(Settings):
    """Which clients have wrong labels, and how many."""

    clients: Share = 0.0  # rho: share of all clients
    labels: Rates = 0.0  # eta: share of each such client's labels: one for all of them, or one each in their order
    others_labels: Share = 0.0  # the same of every other client
    mode: Literal["exclusive", "inclusive"] = "exclusive"  # exact count and never the true class, or each by chance
    kind: str = "symmetric"  # one of `fedpca list noise`, or package.module:name
    where: Literal["common", "anywhere", "evenly"] = "common"  # who may be mislabeled; evenly: of both kinds alike
    file: str | None = None  # of kind "given": its rows stand beside the training rows; else the data's own columns
    column: str | None = None  # of kind "given": the labels of the mislabeled clients
    others: str | None = None  # of kind "given": the column of the other clients; they keep theirs if not given
    matrix: Matrix | None = None  # of kind "confusion": how often class j is named for class i; "model": estimated

    @property
    def rates(self) -> tuple[float, ...]:
        """One rate for all mislabeled clients, or one for each."""
        return self.labels if isinstance(self.labels, tuple) else (self.labels,)

    @property
    def mean_rate(self) -> float | None:
        """Eta as one number, the mean where clients differ; None where a column has the labels."""
        return sum(self.rates) / len(self.rates) if self.has_rates and self.rates else None

    @property
    def injects(self) -> bool:
        """Whether anybody's labels are made wrong."""
        return self.clients > 0 or self.others_labels > 0 or self.others is not None

    @property
    def has_rates(self) -> bool:
        """Whether the settings say how many labels are wrong; not where they are given as a column."""
        return self.column is None and self.others is None

    @model_validator(mode="after")
    def _both_or_neither(self) -> NoiseSettings:
        wrong = any(self.rates)
        if not self.has_rates and (wrong or self.others_labels > 0):
            key = "labels" if wrong else "others_labels"
            got, given = getattr(self, key), self.column or self.others
            raise ValueError(f"noise.{key} = {got}, but the column {given!r} has the labels as they are: leave it out")
        if not self.has_rates and (self.clients > 0) != (self.column is not None):
            got = f"noise.clients = {self.clients} and noise.column = {self.column!r}"
            raise ValueError(f"{got}: give both, or neither")
        if self.has_rates and self.kind != "given" and (self.clients > 0) != wrong:
            raise ValueError(f"noise.clients = {self.clients} and noise.labels = {self.labels}: give both, or neither")
        return self


class ModelSettings(Settings):
    """The network; its name, or `package.module:function` of your own."""

    name: str = "cnn-small"
    weights: Path | None = None  # .safetensors or torchvision's .pth to start from; "imagenet": the published ones
    sha256: Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$")] | None = None  # of that file
    backbone: str | None = None  # frozen, with ImageNet weights: the model is trained on its features
    backbone_size: Annotated[int, Field(ge=32)] = 224  # side of the square that images are resized to for it
    features: str | None = None  # the submodule whose output they are; else what goes into the last layer is
    args: Table = Field(default_factory=dict)  # [model.args]: keyword arguments of a function of your own
    winograd: bool = True  # of ResNet on a CPU: 3x3 convolutions with fewer products, rounded otherwise than PyTorch's

    @model_validator(mode="after")
    def _hash_is_of_a_file(self) -> ModelSettings:
        if self.sha256 and not self.weights:
            raise ValueError("model.sha256 is that of the file model.weights, which is not given")
        return self


class TrainingSettings(Settings):
    """What every client does with the samples it trains on."""

    optimizer: Literal["sgd", "adam"] = "sgd"
    lr: Positive = 0.03
    momentum: Share = 0.9  # of SGD
    weight_decay: NonNegative = 5e-4
    batch: Annotated[int, Field(ge=2)] = 64
    epochs: Count = 1
    augment: str = "none"  # none, crop-flip, crop-flip-2, affine-flip, or package.module:name
    logit_adjustment: bool = False  # cross-entropy of f(x) + log of each class's share among the client's labels


class EvaluationSettings(Settings):
    """When and how the global model is tested."""

    every: Count = 1  # rounds; the last `last_rounds` are always tested
    last_rounds: Count = 5  # over which results are averaged
    on: Literal["test", "validation"] = "test"  # images of the test part, or those of data.validation_share
    accuracy: str = "acc"  # the metric that everything shows as accuracy, such as bacc: the mean over the classes
    features: Annotated[int, Field(ge=0)] = 0  # images per client whose features are saved at the end; 0: none
    groups: Literal["kind", "client", "column"] | None = None  # "client" for data.split = "column", else "kind"
    group_column: str | None = None  # whose values are the test groups, for groups = "column"

    @model_validator(mode="after")
    def _groups_have_their_column(self) -> EvaluationSettings:
        if (self.groups == "column") != (self.group_column is not None):
            got = f"evaluation.groups = {self.groups!r}, evaluation.group_column = {self.group_column!r}"
            raise ValueError(f"{got}: groups = 'column' needs evaluation.group_column, and only that uses it")
        return self


class AggregationSettings(Settings):
    """How far one client can move the global model, whatever it claims; without settings as far as the method lets it.

    A deployment has bounds unless it sets others: `sites.settings.BOUNDS`.
    """

    max_weight: NonNegative = 0.0  # of one client in a round, in multiples of an equal share; 0: no bound
    max_size: NonNegative = 0.0  # samples of one client that count, in multiples of the median client's; 0: no bound
    clip: NonNegative = 0.0  # length of one client's update, in multiples of the median length; 0: no bound
    max_share: Share = 0.0  # of one client in the step of a round: its weight, and weight times length; 0: no bound
    rule: Literal["mean", "median", "trimmed-mean", "geometric-median"] = "mean"  # under the method's weights
    trim: Annotated[float, Field(ge=0, lt=0.5)] = 0.2  # share of all weight that a trimmed mean leaves out at each end

    @property
    def is_off(self) -> bool:
        """Whether nothing is bounded."""
        return not (self.max_weight or self.max_size or self.clip or self.max_share) and self.rule == "mean"


class Experiment(Settings):
    """Everything that determines an experiment's numbers.

    >>> from fedpca import Experiment
    >>> Experiment(rounds=5, data={"clients": 10}).data.dataset
    'digits'
    """

    name: Annotated[str, Field(pattern=NAME)] = "experiment"  # also of its folder
    rounds: Count = 60
    methods: tuple[str, ...] = ("fedavg",)
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = (0, 1, 2)
    participation: Annotated[float, Field(gt=0, le=1)] = 1.0  # share of the clients that take part in a round
    checkpoint_every: Count = 1  # rounds
    keep_large_checkpoint: bool = False  # when a run is finished; one smaller than its final weights is always kept
    device: Device = "cpu"  # where models are trained
    data: DataSettings = DataSettings(clients=20)
    rare: RareSettings = RareSettings()
    noise: NoiseSettings = NoiseSettings()
    model: ModelSettings = ModelSettings()
    training: TrainingSettings = TrainingSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    aggregation: AggregationSettings = AggregationSettings()
    privacy: PrivacySettings = PrivacySettings()
    attack: AttackSettings = AttackSettings()
    method: dict[str, Table] = Field(default_factory=dict)  # [method.NAME]: settings of one method

    @property
    def test_groups(self) -> Literal["kind", "client", "column"]:
        """What the test groups are: `evaluation.groups`, or what suits the split."""
        return self.evaluation.groups or ("client" if self.data.split == "column" else "kind")

    @field_validator("methods", "seeds")
    @classmethod
    def _something_once(cls, values: tuple[object, ...]) -> tuple[object, ...]:
        if not values or len(set(values)) < len(values):
            raise ValueError("needs at least one entry, and none twice")
        return values

    @model_validator(mode="after")
    def _validation_has_images(self) -> Experiment:
        if self.evaluation.on == "validation" and self.data.validation_share == 0:
            raise ValueError('evaluation.on = "validation" needs a data.validation_share above 0, such as 0.1')
        if self.evaluation.on == "validation" and self.test_groups == "client" and self.data.split != "column":
            got = f"data.split = {self.data.split!r}"
            raise ValueError(f'{got}: validation images are of no client, so evaluation.groups cannot be "client"')
        return self

    @model_validator(mode="after")
    def _features_are_no_images(self) -> Experiment:
        if self.model.backbone and self.training.augment != "none":
            got = f"training.augment = {self.training.augment!r}"
            raise ValueError(f'{got}, but with model.backbone clients have no images to change: set it to "none"')
        return self
