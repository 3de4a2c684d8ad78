"""Experiment files say what the paper says: its facts, written down once more, beside the federations they make."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from fedpca.data.cache import Dataset, Part
from fedpca.data.federation import federate
from fedpca.methods.registry import method_names, settings_of
from fedpca.results.tables.facts import read_facts, study_of
from fedpca.runs.check import method_of, read_settings
from fedpca.settings.experiment import Experiment

FOLDER = Path(__file__).parents[1] / "experiments"
SIZES = {"cifar10": (50_000, 10), "rsna-ich": (20_000, 2), "isic-2019": (20_262, 8)}  # training images, classes
SGD = {"optimizer": "sgd", "lr": 0.03, "momentum": 0.9, "weight_decay": 5e-4, "batch": 64, "epochs": 1}
ADAM = {"optimizer": "adam", "lr": 3e-4, "weight_decay": 5e-4, "batch": 32, "epochs": 1}
AGAINST = {"qfedavg", "fedce", "fedga", "fedism", "median", "rfa", "fedcorr", "fednoro"}
TOGETHER = {"qfedavg+median", "fedce+rfa", "fedga+fedcorr", "fedism+fednoro", "hnobs"}
ROWS = {"fedavg", *AGAINST, *TOGETHER, "fedpca-d", "fedpca-hs"}
WITH_D = {name for fair in ("qfedavg", "fedce", "fedga", "fedism") for name in (fair, f"{fair}+d")}
ABLATED = {"fedpca-d", "fedpca-wo-fairness", "fedpca-wo-robustness"}
BOTH = {"fedpca-d", "fedpca-hs"}
FAIR_BY_LOSS = {"qfedavg", "hnobs"}
GRID = {0.1, 0.25, 0.5, 1.0, 2.0, 5.0}

Noise = tuple[float, float]  # rho, eta
Sizes = tuple[int, int, int]  # clients that are common with right labels, rare, mislabeled
CIFAR: dict[Noise, Sizes] = {(0.2, 1.0): (35, 5, 10), (0.4, 0.8): (25, 5, 20), (0.6, 0.5): (15, 5, 30)}
FIRST: dict[Noise, Sizes] = {(0.2, 1.0): (35, 5, 10)}
FURTHER: dict[Noise, Sizes] = {(0.1, 1.0): (40, 5, 5), (0.2, 0.8): (35, 5, 10), (0.4, 0.6): (25, 5, 20)}
ICH: dict[Noise, Sizes] = {(0.1, 1.0): (14, 4, 2), (0.2, 0.8): (12, 4, 4), (0.4, 0.6): (8, 4, 8)}
FIRST_ICH: dict[Noise, Sizes] = {(0.1, 1.0): (14, 4, 2)}
WITHOUT_AND_WITH: dict[Noise, Sizes] = {(0.0, 0.0): (16, 4, 0), (0.1, 1.0): (14, 4, 2)}
UNIFORM: dict[Noise, Sizes] = {(0.2, 1.0): (36, 5, 10)}
ISIC: dict[Noise, Sizes] = {(0.1, 1.0): (14, 4, 2)}


@dataclass(frozen=True)
class Fact:
    """What a file must say."""

    dataset: str
    noises: dict[Noise, Sizes]
    methods: set[str]
    study: str = "iid"
    q: float | None = 3.0  # of FedPCA; None where it is what varies
    warmup: int | None = 10
    seeds: tuple[int, ...] = (0, 1, 2)


FACTS = {
    "cifar10": Fact("cifar10", CIFAR, ROWS),
    "rsna-ich": Fact("rsna-ich", ICH, ROWS, q=1.0),
    "isic-2019": Fact("isic-2019", ISIC, ROWS, q=0.4),
    "fair-robust": Fact("rsna-ich", WITHOUT_AND_WITH, ROWS, q=1.0),
    "ablation": Fact("cifar10", FIRST, ABLATED),
    "ablation-rsna-ich": Fact("rsna-ich", FIRST_ICH, ABLATED, q=1.0),
    "combined": Fact("cifar10", FIRST, {*WITH_D, "fedpca-d"}),
    "combined-rsna-ich": Fact("rsna-ich", FIRST_ICH, {*WITH_D, "fedpca-d"}, q=1.0),
    "q-sweep": Fact("cifar10", FIRST, BOTH, q=None),
    "q-sweep-rsna-ich": Fact("rsna-ich", FIRST_ICH, BOTH, q=None),
    "warmup-sweep": Fact("cifar10", FIRST, BOTH, warmup=None),
    "warmup-sweep-rsna-ich": Fact("rsna-ich", FIRST_ICH, BOTH, q=1.0, warmup=None),
    "tsne": Fact("cifar10", FIRST, {"fedavg", "fedpca-d", "fedpca-hs"}, seeds=(0,)),
    "non-iid-label": Fact("cifar10", FURTHER, ROWS, study="non-iid label"),
    "non-iid-input": Fact("cifar10", FURTHER, ROWS, study="non-iid input"),
    "uniform-noise": Fact("cifar10", UNIFORM, ROWS, study="uniform noise"),
    "search-q-cifar10": Fact("cifar10", CIFAR, FAIR_BY_LOSS, seeds=(0,)),
    "search-q-rsna-ich": Fact("rsna-ich", ICH, FAIR_BY_LOSS, seeds=(0,)),
    "search-q-isic-2019": Fact("isic-2019", ISIC, FAIR_BY_LOSS, seeds=(0,)),
    "search-q-non-iid-label": Fact("cifar10", FURTHER, FAIR_BY_LOSS, study="non-iid label", seeds=(0,)),
    "search-q-non-iid-input": Fact("cifar10", FURTHER, FAIR_BY_LOSS, study="non-iid input", seeds=(0,)),
    "search-q-uniform-noise": Fact("cifar10", UNIFORM, FAIR_BY_LOSS, study="uniform noise", seeds=(0,)),
}
SETTINGS = [(name, setting) for name in FACTS for setting in read_settings(FOLDER / f"paper/{name}.toml")]


@cache
def paper(name: str) -> dict[str, Experiment]:
    return read_settings(FOLDER / f"paper/{name}.toml")


def settings(experiment: Experiment, table: str):
    """A method's own settings in an experiment."""
    return settings_of(table, table, experiment.method.get(table, {}))


def only_labels(dataset: str) -> Dataset:
    """As many labels as the published data have; an image is one black pixel."""
    count, classes = SIZES[dataset]
    labels = np.random.default_rng(0).permutation(np.arange(count) % classes)
    parts = [Part(np.zeros((len(own), 1, 1, 1), np.uint8), own, {}) for own in (labels, np.arange(classes))]
    return Dataset(dataset, *parts, tuple(map(str, range(classes))), ())


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.toml")), ids=lambda path: str(path.relative_to(FOLDER)))
def test_every_file_says_what_it_is_and_every_method_of_it_can_be_made(path: Path):
    assert path.read_text().startswith("# "), "the first line is shown by `fedpca list experiments`"
    for experiment in read_settings(path).values():
        for method in experiment.methods:
            method_of(experiment, method)


def test_the_facts_know_every_file_of_the_paper():
    assert {path.stem for path in (FOLDER / "paper").glob("*.toml")} == FACTS.keys()
    names = [experiment.name for name in FACTS for experiment in paper(name).values()]
    assert set(names) == {f"paper-{name}" for name in FACTS}, "so that no two run into one folder"


@pytest.mark.parametrize(("name", "setting"), SETTINGS)
def test_the_federation_is_the_papers(name: str, setting: str):
    experiment, fact = paper(name)[setting], FACTS[name]
    federation = federate(experiment, only_labels(fact.dataset))
    truth, rare, wrong = federation.truth, set(federation.truth.rare), set(federation.truth.mislabeled)
    common = set(federation.shards) - rare - wrong
    noise = (experiment.noise.clients, experiment.noise.labels)
    assert (len(common), len(rare), len(wrong)) == fact.noises[noise]
    assert len(rare & wrong) == (1 if fact.study == "uniform noise" else 0)
    for client, shard in federation.shards.items():
        flipped = int((shard.y != truth.labels[client]).sum())
        assert flipped == (int(noise[1] * len(shard.y) + 0.5 + 1e-9) if client in wrong else 0)
    sizes = [len(shard.y) for shard in federation.shards.values()]
    kept = 0.9 if experiment.evaluation.on == "validation" else 1.0
    assert sum(sizes) == pytest.approx(kept * SIZES[fact.dataset][0], abs=5)
    if experiment.data.split == "iid":
        assert max(sizes) - min(sizes) <= 1
    else:
        assert min(sizes) >= 128
        assert max(sizes) > 1.3 * min(sizes)


@pytest.mark.parametrize("name", FACTS)
def test_every_noise_setting_of_the_paper_is_there(name: str):
    noises = {(each.noise.clients, each.noise.labels) for each in paper(name).values()}
    assert noises == FACTS[name].noises.keys()
    tables = read_facts().tables.values()
    printed = {
        (cell.rho, cell.eta)
        for table in tables
        for cell in table.cells
        if (table.study, cell.dataset) == (FACTS[name].study, FACTS[name].dataset)
    }
    assert noises - {(0.0, 0.0)} <= printed, "as the facts file of the results has it"


@pytest.mark.parametrize(("name", "setting"), SETTINGS)
def test_data_model_and_training_are_the_papers(name: str, setting: str):
    experiment, fact = paper(name)[setting], FACTS[name]
    cifar, isic = fact.dataset == "cifar10", fact.dataset == "isic-2019"
    assert experiment.data.dataset == fact.dataset
    assert experiment.data.clients == (50 if cifar else 20)
    assert experiment.rare.share == (0.1 if cifar else 0.2)
    assert (experiment.rare.corruption, experiment.rare.severity, experiment.rare.table) == (
        "gaussian_noise", 3, "imagenet",
    )  # fmt: skip
    assert experiment.rounds == {"cifar10": 500, "rsna-ich": 300, "isic-2019": 100}[fact.dataset]
    assert experiment.model.name == ("resnet18" if cifar else "resnet18-imagenet")
    assert experiment.model.weights == (None if cifar else Path("imagenet"))
    training = experiment.training.model_dump()
    assert {key: training[key] for key in (SGD if cifar else ADAM)} == (SGD if cifar else ADAM)
    assert training["augment"] == ("crop-flip" if cifar else "affine-flip")
    assert training["logit_adjustment"] == (isic or fact.study == "non-iid label")
    assert experiment.evaluation.accuracy == ("bacc" if isic else "acc")
    assert (experiment.evaluation.every, experiment.evaluation.last_rounds) == (1, 5)
    assert (experiment.seeds, experiment.data.seed) == (fact.seeds, 0)
    assert (experiment.participation, experiment.noise.mode, experiment.noise.kind) == (1.0, "exclusive", "symmetric")
    assert study_of(experiment) == fact.study
    assert set(experiment.methods) == fact.methods


@pytest.mark.parametrize(("name", "setting"), SETTINGS)
def test_methods_have_the_papers_settings(name: str, setting: str):
    experiment, fact = paper(name)[setting], FACTS[name]
    for method in experiment.methods:
        own = settings(experiment, method)
        if method.startswith("fedpca"):
            assert own.q == 0 if method == "fedpca-wo-fairness" else fact.q in (None, own.q)
            assert fact.warmup in (None, own.warmup)
            assert own.identify.dispersion_per_sample
        if method == "fedpca-hs":
            assert own.high_confidence.min_confidence == 0.9
        if method == "fedcorr":
            assert own.stages == ((10, 240) if fact.dataset == "cifar10" else (10, 140))
        if method == "fednoro":
            assert (own.warmup, own.begin, own.end) == (10, 10, 49)
        if method.endswith("+d"):
            assert own.warmup == 10


def test_the_stages_of_fedcorr_add_up_to_all_rounds_but_on_isic():
    last = {name: paper(name) for name in ("cifar10", "rsna-ich", "isic-2019")}
    left = {
        name: [each.rounds - sum(settings(each, "fedcorr").stages) for each in own.values()]
        for name, own in last.items()
    }
    assert left == {"cifar10": [250] * 3, "rsna-ich": [150] * 3, "isic-2019": [-50]}, "there stage 2 never ends"


def test_sweeps_hold_the_papers_own_value():
    q = [settings(each, "fedpca-d").q for each in paper("q-sweep").values()]
    warmups = [settings(each, "fedpca-d").warmup for each in paper("warmup-sweep").values()]
    assert 3.0 in q
    assert 10 in warmups
    assert (len(set(q)), len(set(warmups))) == (len(q), len(warmups)) == (6, 5)


@pytest.mark.parametrize("name", [name for name in FACTS if name.startswith("search-q-")])
@pytest.mark.parametrize("method", sorted(FAIR_BY_LOSS))
def test_q_is_searched_over_the_papers_grid_and_never_on_test_images(name: str, method: str):
    found, fact = paper(name), FACTS[name]
    tried = {(each.noise.clients, each.noise.labels, settings(each, method).q) for each in found.values()}
    assert tried == {(*noise, q) for noise in fact.noises for q in GRID}
    assert {each.evaluation.on for each in found.values()} == {"validation"}
    assert {each.data.validation_share for each in found.values()} == {0.1}


def test_what_the_further_studies_change():
    label, inputs, uniform = (paper(name) for name in ("non-iid-label", "non-iid-input", "uniform-noise"))
    assert {(each.data.split, each.data.alpha) for each in label.values()} == {("dirichlet", 2.0)}
    assert {each.rare.clean_share for each in inputs.values()} == {(0.8, 0.6, 0.4, 0.2, 0.0)}
    assert {each.noise.where for each in uniform.values()} == {"evenly"}
    assert {each.evaluation.features > 0 for each in paper("tsne").values()} == {True}


LITE = {
    "fashion": ("fashion-mnist", 50, 5, [(0.2, 1.0), (0.4, 0.8), (0.6, 0.5)]),
    "cifar10": ("cifar10", 50, 5, [(0.2, 1.0), (0.4, 0.8), (0.6, 0.5)]),
    "ct": ("ich-ct", 20, 4, [(0.1, 1.0)]),
    "skin": ("isic2019-ham10000", 20, 4, [(0.1, 1.0)]),
}


@pytest.mark.parametrize("name", LITE)
def test_lite_experiments_have_the_papers_clients_noise_and_rows(name: str):
    dataset, clients, rare, noise = LITE[name]
    found = read_settings(FOLDER / "lite" / f"{name}.toml")
    assert [(e.noise.clients, e.noise.labels) for e in found.values()] == noise
    for experiment in found.values():
        assert (experiment.data.dataset, experiment.data.clients) == (dataset, clients)
        assert round(experiment.rare.share * clients) == rare
        assert {"fedavg", "hnobs", "fedism+fednoro", "fedpca-d", "fedpca-hs", "fedpca-wo-fairness"} <= {
            *experiment.methods
        }
        assert list(experiment.seeds) == [0, 1, 2]
        assert experiment.evaluation.on == "test"
        assert experiment.data.validation_share == 0


@pytest.mark.parametrize("name", LITE)
def test_lite_searches_choose_on_validation_images_alone_and_are_obeyed(name: str):
    final = next(iter(read_settings(FOLDER / "lite" / f"{name}.toml").values()))
    for experiment in read_settings(FOLDER / "lite" / f"search-{name}.toml").values():
        assert experiment.evaluation.on == "validation"
        assert experiment.data.validation_share > 0
        assert (experiment.rare, experiment.model, experiment.training) == (final.rare, final.model, final.training)
        assert experiment.rounds == final.rounds


STUDIES = ("q-sweep", "warmup-sweep", "tsne", "non-iid-label", "non-iid-input", "uniform-noise")


@pytest.mark.parametrize("name", STUDIES)
def test_lite_studies_ask_what_the_papers_do_on_the_data_and_model_of_the_lite_table(name: str):
    main = next(iter(read_settings(FOLDER / "lite" / "cifar10.toml").values()))
    papers, own = paper(name), read_settings(FOLDER / "lite" / f"{name}.toml")
    for experiment in own.values():
        split = {"split": experiment.data.split, "alpha": experiment.data.alpha}
        assert experiment.data == main.data.model_copy(update=split)
        assert experiment.model == main.model
        assert (experiment.rounds, experiment.rare.sigma) == (main.rounds, main.rare.sigma)
        assert (experiment.training.lr, experiment.training.batch) == (main.training.lr, main.training.batch)
        assert experiment.evaluation.on == "test"

    def asked(experiment: Experiment) -> tuple[object, ...]:
        noise, training = experiment.noise, experiment.training
        return experiment.data.split, experiment.rare.clean_share, noise, training.logit_adjustment, experiment.seeds

    lengths = name == "warmup-sweep"  # of 60 rounds in place of 500
    assert lengths or list(own) == list(papers)
    assert {asked(e) for e in own.values()} == {asked(e) for e in papers.values()}


@pytest.mark.parametrize(
    ("name", "without"),
    [
        ("rivals", set()),
        ("lite/fashion", set()),
        ("lite/cifar10n", set()),
        ("lite/dirichlet", set()),
        ("heart-disease", {"hnobs"}),  # an oracle, where nobody knows the truth
        ("lite/skin-centres", {"hnobs"}),
    ],
)
def test_the_benchmark_compares_all_methods(name: str, without: set[str]):
    for own in read_settings(FOLDER / f"{name}.toml").values():
        assert set(own.methods) == set(method_names()) - without
        assert len(own.methods) == len(set(own.methods))
