import csv
import io
import json
from pathlib import Path

import pytest

from fedpca.errors import SettingsError
from fedpca.results.tables import paper
from fedpca.results.tables.facts import FACTS, Facts, read_facts, study_of
from fedpca.results.tables.paper import PaperNumbers, with_paper
from fedpca.results.tables.plain import as_csv, as_json
from fedpca.results.tables.sheets import for_terminal
from fedpca.runs.check import check_experiment
from tests.results.test_rows import ABOUT, tables_of, write_run

NOISE = {"clients": 0.2, "labels": 1.0}
SHARES = {"rare": 0.1, "mislabeled": 0.2}


def published(folder: Path, dataset: str | None = None) -> PaperNumbers:
    (results,) = with_paper(tables_of(folder), dataset)
    return results.published


def write_cifar(folder: Path, clients: int = 50, rounds: int = 500, rare: float = 0.1, **more: object):
    """A run as in the paper's first setting, but for what is given."""
    about = {**ABOUT, "dataset": "cifar10", "clients": {"id": ["0", "1", "10"] + ["x"] * (clients - 3)}}
    given = {"noise": NOISE, "rare": {"share": rare}, "shares": SHARES, "about": about, "rounds": rounds, **more}
    write_run(folder, **given)


def test_the_facts_have_the_published_numbers():
    figures = dict(read_facts().numbers())
    first = ("iid", "cifar10", 0.2, 1.0)
    assert figures[*first, "fedavg", "worst_acc"] == 63.99
    assert figures[*first, "fedism+d", "worst_acc"] == 81.74
    assert figures["iid", "cifar10", 0.6, 0.5, "fedpca-d", "w_r_times_not_w_m"] == 0.5258
    assert figures["iid", "isic-2019", 0.1, 1.0, "fedga+fedcorr", "w_r_times_not_w_m"] == 0.031


@pytest.mark.parametrize(
    ("dataset", "rho", "eta", "method", "clean"),
    [
        ("cifar10", 0.2, 1.0, "fedavg", 85.87),
        ("cifar10", 0.2, 1.0, "fedism", 87.85),
        ("cifar10", 0.2, 1.0, "fedpca-d", 90.12),
        ("cifar10", 0.2, 1.0, "fedpca-hs", 89.77),
        ("cifar10", 0.6, 0.5, "fedavg", 84.05),
        ("cifar10", 0.6, 0.5, "fedpca-d", 86.88),
        ("rsna-ich", 0.1, 1.0, "fedavg", 84.55),
        ("rsna-ich", 0.1, 1.0, "fedpca-d", 85.83),
        ("isic-2019", 0.1, 1.0, "fedavg", 67.81),
        ("isic-2019", 0.1, 1.0, "fedpca-d", 63.86),
    ],
)
def test_the_accuracy_of_the_common_group_follows(dataset: str, rho: float, eta: float, method: str, clean: float):
    figures = dict(read_facts().numbers())
    average, worst = (figures["iid", dataset, rho, eta, method, score] for score in ("average_acc", "worst_acc"))
    assert 2 * average - worst == pytest.approx(clean, abs=0.001)


@pytest.mark.parametrize(("dataset", "rare"), [("cifar10", 0.1), ("rsna-ich", 0.2)])
def test_fedavg_weighs_everybody_alike(dataset: str, rare: float):
    own = {
        place: v
        for place, v in read_facts().numbers()
        if place[1] == dataset and place[4:] == ("fedavg", "w_r_times_not_w_m")
    }
    assert len(own) == 3
    for (_, _, rho, *_), value in own.items():
        assert value == pytest.approx(rare * (1 - rho))


def test_every_number_and_deviation_of_the_paper_is_there():
    """Counted in the paper; 40 numbers stand in two tables, and the table of weights has no deviations."""
    facts = read_facts()
    assert len(list(facts.numbers())) == 998
    assert len(dict(facts.numbers())) == 958
    assert len(list(facts.spreads())) == 928
    assert all(table.complete for table in facts.tables.values())
    without = {place.score for place, _ in facts.numbers() if place not in dict(facts.spreads())}
    assert without == {"w_r_times_not_w_m"}


def test_every_table_of_the_paper_has_its_settings():
    tables = read_facts().tables
    assert {name: len(table.cells) for name, table in tables.items()} == {
        "main": 7,
        "ablation": 2,
        "combined": 2,
        "std": 7,
        "weights": 7,
        "non-iid-label": 3,
        "non-iid-input": 3,
        "uniform-noise": 1,
    }


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("worst_acc = 63.99", "worst_acc = 163.99", "less than or equal to 100"),
        ("worst_acc = 63.99", "worse_acc = 63.99", "worse_acc"),
        (
            "fedce = { worst_acc = 59.80,",
            "fedde = { worst_acc = 59.80,",
            "fedce has a deviation of average_acc, but no such number",
        ),
        ("fedce = { worst_acc = 10.06,", "fedde = { worst_acc = 10.06,", "fedde has a deviation"),
        ("fedavg = { w_r_times_not_w_m", "fedawg = { w_r_times_not_w_m", "'fedawg' is not in .methods. .*'fedavg'"),
        ('dataset = "cifar10"', 'dataset = "cifar11"', "'cifar11' is not in .datasets."),
        ("fedga = { worst_acc = 58.51,", "fedga = { worst_acc = 58.52,", "fedga, worst_acc is 58.52 and 58.51"),
        ("[methods]", "[methods", "cannot be used"),
    ],
)
def test_a_wrong_facts_file_is_refused(tmp_path: Path, old: str, new: str, message: str):
    (tmp_path / "facts.toml").write_text(FACTS.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
    with pytest.raises(SettingsError, match=message):
        read_facts(tmp_path / "facts.toml")


def test_a_run_as_in_the_paper_is_compared_with_its_own_setting(tmp_path: Path):
    write_cifar(tmp_path / "a", values=[(0.9, 0.65)])
    told = published(tmp_path)
    assert told.setting == "CIFAR-10, ρ = 0.2, η = 1.0"
    pair = told.pairs["fedavg"]["worst_acc"]
    assert (pair.ours, pair.paper) == pytest.approx((65, 63.99))
    assert told.pairs["fedavg"]["w_r_times_not_w_m"].paper == 0.08
    assert not any("another" in remark for remark in told.remarks)


@pytest.mark.parametrize(
    ("changed", "difference"),
    [
        ({"clients": 20}, "50 clients (here 20)"),
        ({"rare": 0.3}, "10% of them rare (here 30%)"),
        ({"data": {"dataset": "cifar10", "clients": 50, "train_images": 500}}, "all images of CIFAR-10"),
    ],
)
def test_a_smaller_federation_is_compared_and_the_difference_mentioned(tmp_path: Path, changed: dict, difference: str):
    write_cifar(tmp_path / "a", **changed)
    for told in (published(tmp_path), published(tmp_path, "CIFAR-10")):
        assert told.pairs
        assert told.remarks[0].startswith("The paper's setting is another: ")
        assert difference in told.remarks[0]


@pytest.mark.parametrize(
    ("dataset", "noise", "title"),
    [
        ("fashion-mnist", (0.2, 1.0), "CIFAR-10"),
        ("ich-ct", (0.1, 1.0), "RSNA ICH"),
        ("isic2019-ham10000", (0.1, 1.0), "ISIC 2019"),
    ],
)
def test_a_dataset_that_stands_in_for_the_papers_is_compared(tmp_path: Path, dataset: str, noise: tuple, title: str):
    about = {**ABOUT, "dataset": dataset}
    write_run(tmp_path / "a", about=about, noise=dict(zip(("clients", "labels"), noise, strict=True)))
    told = published(tmp_path)
    assert told.setting == f"{title}, ρ = {noise[0]}, η = {noise[1]}"
    assert f"{title} (here {dataset})" in told.remarks[0]


def test_fewer_rounds_are_compared_and_mentioned(tmp_path: Path):
    write_cifar(tmp_path / "a", rounds=100)
    told = published(tmp_path)
    assert told.pairs
    assert told.remarks[0] == "The paper's setting is another: 500 rounds (here 100)."


def test_other_data_are_compared_only_if_asked(tmp_path: Path):
    write_run(tmp_path / "a", noise=NOISE)
    assert "no table for digits" in published(tmp_path).remarks[0]
    assert published(tmp_path, "cifar10").pairs["fedavg"]["worst_acc"].paper == 63.99
    with pytest.raises(SettingsError, match=r"--paper-of cifar100: .* no such dataset \(did you mean 'cifar10'"):
        published(tmp_path, "cifar100")


def test_settings_that_the_paper_does_not_have(tmp_path: Path):
    write_run(tmp_path / "a", noise={"clients": 0.3, "labels": 1.0})
    told = published(tmp_path, "ich")
    assert told.setting is None
    assert told.remarks[0].endswith(
        "no such setting of RSNA ICH. It has (ρ, η): iid (0.1, 1.0), (0.2, 0.8), (0.4, 0.6)."
    )


@pytest.mark.parametrize(
    ("tables", "study"),
    [
        ({}, "iid"),
        ({"data": {"clients": 4, "split": "dirichlet"}}, "non-iid label"),
        ({"rare": {"share": 0.1, "clean_share": 0.4}}, "non-iid input"),
        ({"noise": {**NOISE, "where": "anywhere"}}, "uniform noise"),
        ({"noise": {**NOISE, "kind": "pair"}}, None),
        ({"noise": {**NOISE, "others_labels": 0.1}}, None),
        ({"data": {"split": "sizes", "sizes": [3, 4]}}, None),
        ({"data": {"clients": 4, "split": "dirichlet"}, "noise": {**NOISE, "where": "anywhere"}}, None),
    ],
)
def test_which_study_settings_belong_to(tables: dict, study: str | None):
    assert study_of(check_experiment({"name": "made", **tables}, "made")) == study


def test_what_the_paper_does_not_print_is_told_from_what_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The paper has no table of weights of the study with uniform noise, and no row of RFA in it."""
    write_run(tmp_path / "a", noise={**NOISE, "where": "anywhere"}, shares=SHARES)
    write_run(tmp_path / "b", noise={**NOISE, "where": "anywhere"}, method="rfa")
    told = published(tmp_path, "cifar10")
    assert told.setting == "CIFAR-10, uniform noise, ρ = 0.2, η = 1.0"
    assert "For all of these methods the paper prints no number: STD ACC, STD AUC, w_r(1-w_m)." in told.remarks
    assert "For these methods the paper prints no number: rfa." in told.remarks

    facts = FACTS.read_text(encoding="utf-8")
    lacking = facts.replace('study = "uniform noise"', 'study = "uniform noise"\ncomplete = false')
    (tmp_path / "facts.toml").write_text(lacking, encoding="utf-8")
    monkeypatch.setattr(paper, "read_facts", lambda: read_facts(tmp_path / "facts.toml"))
    told = published(tmp_path, "cifar10")
    assert "For these methods the paper's number is not known here: rfa." in told.remarks


def test_every_number_of_the_paper_is_shown(tmp_path: Path):
    """A run of each method in each of the paper's settings: its tables then have all 958 different numbers."""
    facts = read_facts()
    for i, (study, dataset, rho, eta) in enumerate({place[:4]: None for place, _ in facts.numbers()}):
        for place in {place.method: place for place, _ in facts.numbers() if place[:4] == (study, dataset, rho, eta)}:
            write_run(tmp_path / f"{i}/{place}", method=place, **as_in_the_paper(facts, study, dataset, rho, eta))
    tables = with_paper(tables_of(tmp_path))
    pairs = [pair for table in tables for own in table.published.pairs.values() for pair in own.values()]
    assert len(pairs) == 958
    assert sum(pair.spread is not None for pair in pairs) == 888  # 928, less the 40 that stand twice
    shown = [sheet for sheet in for_terminal(tables) if sheet.title.startswith("Beside the paper")]
    cells = [cell for sheet in shown for line in sheet.lines for cell in line.cells[1::2] if cell is not None]
    assert len(cells) == 958
    assert max(len(sheet.columns) for sheet in shown) == 6


def as_in_the_paper(facts: Facts, study: str, dataset: str, rho: float, eta: float) -> dict:
    """Settings of one study in the paper."""
    own = facts.datasets[dataset]
    about = {**ABOUT, "dataset": own.names[0], "clients": {"id": ["0", "1", "10"] + ["x"] * (own.clients - 3)}}
    noise = {"clients": rho, "labels": eta, "where": "anywhere" if study == "uniform noise" else "common"}
    rare = {"share": own.rare, "clean_share": 0.4 if study == "non-iid input" else 0.0}
    more = {"data": {"clients": own.clients, "split": "dirichlet"}} if study == "non-iid label" else {}
    return {"about": about, "noise": noise, "rare": rare, "shares": SHARES, "rounds": own.rounds, **more}


def test_the_order_of_methods(tmp_path: Path):
    """By the paper FedCE < FedAvg < q-FedAvg < FedPCA (D) in worst ACC; here the first two are swapped."""
    for method, worst in (("fedavg", 0.5), ("fedce", 0.6), ("qfedavg", 0.7), ("fedpca-d", 0.8), ("qffl", 0.1)):
        write_run(tmp_path / method, method=method, values=[(0.9, worst)], noise=NOISE)
    told = published(tmp_path, "cifar10")
    orders = {order.score: (order.methods, order.tau) for order in told.orders}
    assert orders["worst_acc"] == (4, pytest.approx((5 - 1) / 6))  # of six pairs five agree
    assert orders["average_acc"] == (4, pytest.approx(4 / 6))
    assert "Not among the paper's methods: qffl." in told.remarks
    sheet = next(s for s in for_terminal(with_paper(tables_of(tmp_path), "cifar10")) if s.title.startswith("Beside"))
    assert "worst ACC 0.67 (4 methods)" in sheet.notes[0]


def test_two_methods_have_no_order(tmp_path: Path):
    for method in ("fedavg", "fedce"):
        write_run(tmp_path / method, method=method, noise=NOISE)
    sheet = next(s for s in for_terminal(with_paper(tables_of(tmp_path), "cifar10")) if s.title.startswith("Beside"))
    few = "worst ACC (2), average ACC (2), STD ACC (2)"
    assert sheet.notes[0] == f"Fewer than 3 methods in both, so no order to compare: {few}."


def test_ties_count_as_tau_b_has_them(tmp_path: Path):
    """Two of three methods are equal here: (2 - 0) / sqrt(2 x 3)."""
    for method, worst in (("fedce", 0.5), ("fedavg", 0.5), ("qfedavg", 0.7)):
        write_run(tmp_path / method, method=method, values=[(0.9, worst)], noise=NOISE)
    (order,) = [order for order in published(tmp_path, "cifar10").orders if order.score == "worst_acc"]
    assert order.tau == pytest.approx(2 / 6**0.5)


def test_no_order_where_all_are_equal(tmp_path: Path):
    for method in ("fedce", "fedavg", "qfedavg"):
        write_run(tmp_path / method, method=method, noise=NOISE)
    sheets = for_terminal(with_paper(tables_of(tmp_path), "cifar10"))
    flat = "worst ACC, average ACC, STD ACC"
    assert f"All methods the same on one side, so no order to compare: {flat}." in sheets[1].notes


def test_of_a_method_under_two_settings_the_first_row_counts(tmp_path: Path):
    """By the paper FedAvg < FedISM < FedPCA (D); the second row of FedPCA (D) would be below both."""
    for method, worst in (("fedavg", 0.5), ("fedism", 0.6)):
        write_run(tmp_path / method, method=method, values=[(0.9, worst)], noise=NOISE)
    for q, worst in ((1.0, 0.7), (3.0, 0.1)):
        own = {"method": "fedpca-d", "settings": {"fedpca-d": {"q": q}}}
        write_run(tmp_path / f"q{q}", values=[(0.9, worst)], noise=NOISE, **own)
    told = published(tmp_path, "cifar10")
    assert list(told.pairs) == ["fedavg", "fedism", "fedpca-d (q=1.0)", "fedpca-d (q=3.0)"]
    assert {(order.methods, order.tau) for order in told.orders if order.score == "worst_acc"} == {(3, 1.0)}
    assert "In the order of methods the first row counts of fedpca-d." in told.remarks


def test_the_accuracy_of_isic_is_balanced(tmp_path: Path):
    write_run(tmp_path / "a", noise={"clients": 0.1, "labels": 1.0}, values=[(0.9, 0.6)])
    told = published(tmp_path, "isic_2019")
    assert told.pairs["fedavg"]["worst_bacc"].ours == pytest.approx(30)  # the made rounds have bacc = acc / 2
    assert told.pairs["fedavg"]["worst_bacc"].paper == 37.79
    assert "worst_acc" not in told.pairs["fedavg"]


def test_csv_and_json_have_the_papers_figures(tmp_path: Path):
    write_run(tmp_path / "a", noise=NOISE, shares=SHARES)
    write_run(tmp_path / "b", noise=NOISE, method="rfa")
    tables = with_paper(tables_of(tmp_path), "cifar10")
    first, second = csv.DictReader(io.StringIO(as_csv(tables)))
    assert (first["paper_worst_acc"], first["paper_w_r_times_not_w_m"]) == ("63.99", "0.08")
    assert (first["paper_worst_acc_spread"], first["paper_w_r_times_not_w_m_spread"]) == ("6.21", "")
    assert second["paper_worst_acc"] == ""
    (table,) = json.loads(json.dumps(as_json(tables)))
    assert table["published"]["pairs"]["fedavg"]["average_auc"]["paper"] == 96.71
