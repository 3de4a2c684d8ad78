"""Everything that a settings file may name, one line each, readable without importing PyTorch."""

from typing import Annotated, Literal

from pydantic import Field

from fedpca.settings.base import Count, NonNegative, NoSettings, Positive, Settings, Share


class MixtureSettings(Settings):
    """How the paper's rule fits three groups on the loss-dispersion plane."""

    starts: Count = 9  # fits; the most frequent set of mislabeled clients wins
    covariance: Literal["full", "tied", "diag", "spherical"] = "full"
    ridge: Positive = 1e-6  # added to the covariances' diagonals
    steps: Count = 100  # of expectation-maximisation at most
    scale: Literal["minmax", "none"] = "minmax"
    membership: Literal["hard", "soft"] = "hard"  # what is smoothed: in or out, or the responsibility
    gate: NonNegative | None = None  # deviations that the group must stand out by; none: it always accuses somebody


class AutoSettings(Settings):
    """How `auto` decides whether anybody has wrong labels at all."""

    share: Annotated[float, Field(gt=0, lt=1)] = 0.25  # of uninformative labels, from which on a client is mislabeled
    certainty: NonNegative = 2.0  # standard errors by which the share must exceed zero


class SharpnessSettings(Settings):
    """GSAM's step."""

    radius: NonNegative = 0.05
    alpha: NonNegative = 0.1
    growth: NonNegative = 0.0  # the radius is multiplied by round / rounds to this power; 0: constant


class GrowingSharpnessSettings(SharpnessSettings):
    """GSAM's step with a radius that grows over the rounds."""

    growth: NonNegative = 0.5


class DropSettings(Settings):
    """Who is mislabeled; what the paper leaves open has the default and the reason given in docs/fedpca.md."""

    warmup: Annotated[int, Field(ge=0)] = 10  # rounds of FedAvg before anybody is judged
    identify: Literal["mixture", "auto"] = "mixture"
    identity_smoothing: Annotated[float, Field(gt=0, le=1)] = 0.5  # share of the new evidence
    identity_threshold: Annotated[float, Field(gt=0, le=1)] = 0.5  # of smoothed membership, for the mixture
    dispersion_per_sample: bool = True
    dispersion_denominator: Literal["all", "predicted"] = "all"
    report_augmented: bool = False  # measure on images augmented as in training, as the authors' other code does
    mixture: MixtureSettings = MixtureSettings()
    auto: AutoSettings = AutoSettings()


class WithoutFairnessSettings(DropSettings):
    """FedPCA but for the strength of its fairness."""

    weight_smoothing: Annotated[float, Field(gt=0, le=1)] = 0.5  # share of the new weights
    exclude_after_smoothing: bool = True  # dropped clients have weight zero, not a remainder of earlier rounds
    sharpness: SharpnessSettings = SharpnessSettings()
    sharpness_in_warmup: bool = False


class FedPCASettings(WithoutFairnessSettings):
    """FedPCA (D)."""

    q: NonNegative = 1.0  # strength of fairness: weights grow with exp(-q dispersion)
    dispersion_depth: Positive = 3.0  # how far below the median a dispersion still lifts a client's weight


class FedPCAAutoSettings(FedPCASettings):
    """FedPCA (D) with `auto` as the default identification."""

    identify: Literal["mixture", "auto"] = "auto"


class HighConfidenceSettings(FedPCASettings):
    """FedPCA (HS)."""

    least_confidence: Share = 0.9  # tau_min
    confidence: Literal["quantile", "top-mean"] = "quantile"  # how "top t/T" is read
    least_samples: Annotated[int, Field(ge=2)] = 2  # confident samples below which a client does not train


class HighConfidenceAutoSettings(HighConfidenceSettings):
    """FedPCA (HS) with `auto` as the default identification."""

    identify: Literal["mixture", "auto"] = "auto"


class QFedAvgSettings(Settings):
    """q-FedAvg, simplified."""

    q: NonNegative = 1.0  # strength of fairness; the paper searches .1, .25, .5, 1, 2, 5
    by_size: bool = True  # False: weights l^q without N, as the authors' other code has it


class QFFLSettings(Settings):
    """The original q-FFL."""

    q: NonNegative = 1.0


class FedISMSettings(Settings):
    """FedISM."""

    q: NonNegative = 2.0  # strength of fairness; its README's command
    smoothing: Annotated[float, Field(gt=0, le=1)] = 0.5  # share of the new weights
    sharpness: SharpnessSettings = SharpnessSettings()


class FedISMPlusSettings(FedISMSettings):
    """FedISM+."""

    sharpness: GrowingSharpnessSettings = GrowingSharpnessSettings()


class FedCESettings(Settings):
    """FedCE."""

    mode: Literal["times", "plus"] = "times"  # how the two estimates of a contribution are joined
    averaged: bool = True  # over rounds; False: each round's own, at least 1e-3, as the original


class FedGASettings(Settings):
    """FedGA."""

    step: NonNegative = 0.05  # by which a weight moves at most, as a share of the mean weight; shrinks over the run
    centred: bool = True  # gaps less their mean; False as the original
    measure: Literal["loss", "accuracy"] = "loss"  # what the gap is a gap of; the original takes accuracy


class FedCorrSettings(Settings):
    """FedCorr."""

    stages: tuple[Count, Count] | None = None  # rounds of the first two; 10, and up to half of all, if not given
    neighbours: Count = 20  # over which the dimension of predictions is estimated
    proximal: NonNegative = 5.0  # pull towards the global model in the first stage, times the estimated noise
    corrected: Share = 0.5  # share of the labels thought wrong that a round of the first stage may correct
    confidence: Share = 0.5  # of the global model, above which a label is corrected
    clean: Share = 0.1  # share of wrong labels up to which a client takes part in the second stage
    mixup: NonNegative = 1.0  # of the Beta distribution that blends images; 0: no blending


class FedNoRoSettings(Settings):
    """FedNoRo."""

    warmup: Count = 10  # rounds before the noisy clients are named, once
    fits: Count = 9  # of the mixture; the most frequent answer counts
    distillation: Share = 0.8  # share of the global model's opinion in the noisy clients' loss, at its most
    temperature: Positive = 0.8  # of that opinion; below 1 it is sharpened
    begin: Annotated[int, Field(ge=0)] = 10  # round, counted from 0, from which on the share rises
    end: Count | Literal["proportional"] = 49  # round at which it is reached; proportional: begin + .4 rounds
    logit_adjustment: bool | None = None  # if not given: yes alone, and as training.logit_adjustment in a combination


class MixSettings(Settings):
    """A + B."""

    share: Share = 0.5  # of A's model in the mean of both


class RFASettings(Settings):
    """The geometric median."""

    steps: Annotated[int, Field(ge=0)] = 4
    least_distance: Positive = 1e-5
    tolerance: NonNegative = 1e-6


class HNobsSettings(Settings):
    """H-nobs."""

    q: NonNegative = 1.0
    screened: Annotated[int, Field(ge=0)] | None = None  # updates left out; noise.clients x data.clients if not given


Category = Literal["baseline", "fair", "robust", "fair + robust", "ours", "outside"]


class Entry(Settings):
    """One method of the catalogue: what it does, where it belongs in the tables, what can be set."""

    summary: str
    category: Category
    settings: type[Settings]
    judges: bool = False  # whether it names mislabeled clients itself, so that `+d` has nothing to add


METHODS: dict[str, Entry] = {
    "fedavg": Entry(
        summary="size-weighted mean of the clients' models (McMahan et al. 2017)",
        category="baseline",
        settings=NoSettings,
    ),
    "qfedavg": Entry(
        summary="weights N loss^q: q-FedAvg as the paper simplifies it (after Li et al. 2020)",
        category="fair",
        settings=QFedAvgSettings,
    ),
    "qffl": Entry(
        summary="the original q-FFL with its dynamic step (Li et al. 2020)",
        category="fair",
        settings=QFFLSettings,
    ),
    "fedce": Entry(
        summary="weights grow with what a client adds: direction, and where the others fail (Jiang et al. 2023)",
        category="fair",
        settings=FedCESettings,
    ),
    "fedga": Entry(
        summary="weights move towards clients for whom the global model is worse than their own (Zhang et al. 2023)",
        category="fair",
        settings=FedGASettings,
    ),
    "fedism": Entry(
        summary="weights grow with the sharpness of each client's loss, GSAM locally (Wu et al. 2024)",
        category="fair",
        settings=FedISMSettings,
    ),
    "fedism+": Entry(
        summary="fedism with a radius that grows over the rounds (FedISM+)",
        category="fair",
        settings=FedISMPlusSettings,
    ),
    "median": Entry(
        summary="coordinate-wise median (Yin et al. 2018)",
        category="robust",
        settings=NoSettings,
    ),
    "rfa": Entry(
        summary="geometric median by smoothed Weiszfeld steps (Pillutla et al. 2022)",
        category="robust",
        settings=RFASettings,
    ),
    "fedcorr": Entry(
        summary="finds noisy clients by the dimension of their predictions and corrects their labels (Xu et al. 2022)",
        category="robust",
        settings=FedCorrSettings,
        judges=True,
    ),
    "fednoro": Entry(
        summary="finds noisy clients by class losses, distils on them, weighs them by distance (Wu et al. 2023)",
        category="robust",
        settings=FedNoRoSettings,
        judges=True,
    ),
    "qfedavg+median": Entry(
        summary="the mean of what qfedavg and median make of the same updates",
        category="fair + robust",
        settings=MixSettings,
    ),
    "fedce+rfa": Entry(
        summary="the mean of what fedce and rfa make of the same updates",
        category="fair + robust",
        settings=MixSettings,
    ),
    "fedga+fedcorr": Entry(
        summary="the mean of what fedga and fedcorr make of the same updates, labels corrected",
        category="fair + robust",
        settings=MixSettings,
        judges=True,
    ),
    "fedism+fednoro": Entry(
        summary="the mean of what fedism and fednoro make of the same updates",
        category="fair + robust",
        settings=MixSettings,
        judges=True,
    ),
    "hnobs": Entry(
        summary="screens out the longest updates, as many as there are mislabeled clients (an oracle), then q-FedAvg",
        category="fair + robust",
        settings=HNobsSettings,
    ),
    "fedpca-d": Entry(
        summary="performance-capacity analysis; mislabeled clients are dropped (Wu et al. 2025)",
        category="ours",
        settings=FedPCASettings,
        judges=True,
    ),
    "fedpca-hs": Entry(
        summary="performance-capacity analysis; the mislabeled train on confident predictions (Wu et al. 2025)",
        category="ours",
        settings=HighConfidenceSettings,
        judges=True,
    ),
    "fedpca-d-auto": Entry(
        summary="fedpca-d that first asks whether anybody is mislabeled at all",
        category="ours",
        settings=FedPCAAutoSettings,
        judges=True,
    ),
    "fedpca-hs-auto": Entry(
        summary="fedpca-hs that first asks whether anybody is mislabeled at all",
        category="ours",
        settings=HighConfidenceAutoSettings,
        judges=True,
    ),
    "fedpca-wo-fairness": Entry(
        summary="ablation: fedpca-d with q = 0, so that rare clients are not lifted",
        category="ours",
        settings=WithoutFairnessSettings,
        judges=True,
    ),
    "fedpca-wo-robustness": Entry(
        summary="ablation: weights exp(-q dispersion) alone, nobody is dropped",
        category="ours",
        settings=FedPCASettings,
        judges=True,
    ),
    **{
        f"{name}+d": Entry(
            summary=f"{name} without the clients that FedPCA finds mislabeled",
            category="ours",
            settings=DropSettings,
            judges=True,
        )
        for name in ("fedavg", "qfedavg", "fedce", "fedga", "fedism")
    },
}

DATASETS: dict[str, str] = {
    "digits": "1,797 grey 8x8 digits of scikit-learn, 10 classes; embedded, the default",
    "fashion-mnist": "70,000 grey 28x28 clothes, 10 classes; idx or parquet files, or a download",
    "cifar10": "60,000 colour 32x32 photographs, 10 classes; parquet, cifar-10-batches-py, or a download",
    "rsna-ich": "25,000 of RSNA's brain CT slices at 224x224, haemorrhage or not; stage_2_train.csv with DICOM or PNG",
    "isic-2019": "25,331 colour skin lesions at 224x224, 8 classes; ISIC's ground truth CSV with JPEG",
    "ich-ct": "3,478 grey 128x128 brain CT slices, haemorrhage or not; parquet",
    "isic2019-ham10000": "10,015 colour 200x150 skin lesions, ISIC's 8 classes, 4 centres; parquet",
    "NAME": "a folder of that name in the data folder: parquet files, images by class, or CSV with images",
    "PATH": "your own .npz, .parquet or .csv file, or a folder of those or of images by class",
}

Augmentation = Literal["none", "crop-flip", "affine-flip"]
