from pathlib import Path

import pytest

from fedpca.results.tables.plain import as_json
from fedpca.results.tables.sheet import Cell, Sheet
from fedpca.results.tables.sheets import for_pages, for_terminal, group_by_noise, noise_of, overview
from tests.results.test_rows import ABOUT, tables_of, write_run

NOISES = [(0.6, 0.5), (0.2, 1.0), (0.4, 0.8)]


def write_noises(folder: Path, **more: object):
    for rho, eta in NOISES:
        write_run(
            folder / f"{rho}", values=[(0.9, rho)], noise={"clients": rho, "labels": eta}, name=f"at {rho}", **more
        )


def column(sheet: Sheet, head: str) -> list[Cell | str | None]:
    (at,) = [i for i, column in enumerate(sheet.columns) if f"{column.group} {column.head}".strip() == head]
    return [line.cells[at] for line in sheet.lines]


def test_scenarios_that_differ_in_noise_alone_stand_side_by_side_by_rising_rho(tmp_path: Path):
    write_noises(tmp_path)
    main, *_ = for_pages(tables_of(tmp_path))
    assert list(dict.fromkeys(column.group for column in main.columns)) == [
        "ρ = 0.2, η = 1.0",
        "ρ = 0.4, η = 0.8",
        "ρ = 0.6, η = 0.5",
    ]
    (line,) = main.lines
    assert [cell.mean for cell in line.cells[::4]] == pytest.approx([20, 40, 60])  # worst ACC of each
    assert main.title == "Worst and average over the test groups; digits, 3 clients, 1 rare, 12 rounds"


def test_rates_of_each_client_and_columns_of_labels_are_named(tmp_path: Path):
    about = {**ABOUT, "mislabeled": ["1"], "truth": "assumed"}
    given = {"clients": 0.4, "kind": "given", "file": "people.csv", "others": "some"}
    noises = [{"clients": 0.2, "labels": [0.1, 0.3]}, {"clients": 0.4, "labels": 0.8}]
    for number, noise in enumerate([*noises, {**given, "column": "worst"}]):
        write_run(tmp_path / f"{number}", noise=noise, about=about)
    each, one, file = tables_of(tmp_path)
    assert "1 mislabeled (10% to 30% of their labels), 12 rounds" in each.title
    assert "1 mislabeled (80% of their labels), 12 rounds" in one.title
    assert "1 mislabeled (labels of column worst), others (labels of column some), 12 rounds" in file.title
    assert [noise_of(results) for results in (each, one, file)] == [
        "ρ = 0.2, η = 0.1, 0.3",
        "ρ = 0.4, η = 0.8",
        "ρ = 0.4, η = column worst",
    ]
    assert [table["eta"] for table in as_json([each, one, file])] == [pytest.approx(0.2), 0.8, None]
    assert [len(family) for family in group_by_noise([each, one, file])] == [2, 1]


def test_scenarios_that_differ_in_more_stand_one_after_another(tmp_path: Path):
    write_noises(tmp_path)
    write_run(tmp_path / "longer", rounds=20, noise={"clients": 0.4, "labels": 0.8})
    assert [len(family) for family in group_by_noise(tables_of(tmp_path))] == [3, 1]


def test_what_side_by_side_scenarios_share_tells_them_from_other_tables(tmp_path: Path):
    write_noises(tmp_path / "plain")
    for name, noise in (("a", {"clients": 0.2, "labels": 1.0}), ("b", {"clients": 0.4, "labels": 0.8})):
        write_run(tmp_path / name, noise=noise, model={"name": "mlp"})
    ends = {sheet.title.rpartition("; ")[2] for sheet in for_pages(tables_of(tmp_path))}
    assert ends == {"model.name=mlp", "model.name=cnn-small"}


def test_the_same_noise_under_two_names_is_told_apart_by_title(tmp_path: Path):
    for name in ("one", "two"):
        write_run(tmp_path / name, name=name)
    sheets = for_pages(tables_of(tmp_path))
    assert [sheet.title.split(";")[1].split(":")[0].strip() for sheet in sheets[::2]] == ["one", "two"]


def test_a_note_names_methods_whose_runs_were_begun_under_another_plan(tmp_path: Path):
    write_run(tmp_path / "a", method="fedavg")
    write_run(tmp_path / "b", method="fedga", about={**ABOUT, "earlier_plans": [{"rounds": 6, "until": 6}]})
    (results,) = tables_of(tmp_path)
    assert {row.name: row.replanned for row in results.rows} == {"fedavg": 0, "fedga": 1}
    for sheet in (overview(results), for_pages([results])[0]):
        (note,) = [note for note in sheet.notes if "would differ" in note]
        assert note.endswith("12 rounds from the start would differ: fedga.")


def test_who_was_found_is_told_with_the_scenario_where_there_are_several(tmp_path: Path):
    groups = ["common", "mislabeled", "rare"]
    write_run(tmp_path / "a", name="one", method="fedpca-d", groups=groups)
    assert for_terminal(tables_of(tmp_path))[-1].title == "Judged mislabeled (truly: 1)"
    write_run(tmp_path / "b", name="two", method="fedpca-d", groups=groups)
    titles = [sheet.title for sheet in for_terminal(tables_of(tmp_path))[-2:]]
    assert [title.partition("; ")[2].partition(":")[0] for title in titles] == ["one", "two"]


def test_a_method_that_one_scenario_lacks_has_empty_cells_there(tmp_path: Path):
    write_noises(tmp_path)
    write_run(tmp_path / "rfa", method="rfa", noise={"clients": 0.4, "labels": 0.8}, name="at 0.4")
    main, *_ = for_pages(tables_of(tmp_path))
    assert [line.method for line in main.lines] == ["fedavg", "rfa"]
    assert [cell is None for cell in main.lines[1].cells[::4]] == [True, False, True]
    assert "-: no runs, or not defined." in main.notes


def test_the_best_are_all_those_that_look_the_same(tmp_path: Path):
    for method, worst in (("fedavg", 0.70001), ("rfa", 0.70004), ("median", 0.6999)):
        write_run(tmp_path / method, values=[(0.9, worst)], method=method)
    sheet = overview(tables_of(tmp_path)[0])
    assert [line.method for line in sheet.lines] == ["fedavg", "median", "rfa"]
    assert [cell.best for cell in column(sheet, "worst ACC")] == [True, False, True]  # 70.00, 69.99, 70.00
    assert [cell.best for cell in column(sheet, "STD ACC")] == [True, False, True]  # the least: 10.00, 10.01, 10.00
    assert not any(cell.best for cell in column(sheet, "seeds"))


def test_one_method_alone_is_not_the_best_of_anything(tmp_path: Path):
    write_run(tmp_path / "a")
    assert not any(cell.best for cell in overview(tables_of(tmp_path)[0]).lines[0].cells if isinstance(cell, Cell))


def test_the_tables_of_the_paper(tmp_path: Path):
    groups, shares = ["common", "mislabeled", "mislabeled"], {"rare": 0.5, "mislabeled": 0.2}
    write_run(tmp_path / "a", method="fedpca-d", groups=groups, shares=shares)
    write_run(tmp_path / "b", method="rfa")
    main, deviations, weights, found = for_pages(tables_of(tmp_path))
    assert [column.head for column in main.columns] == ["worst ACC", "average ACC", "worst AUC", "average AUC"]
    assert column(deviations, "STD ACC")[0].mean == pytest.approx(5)
    assert [(line.method, line.cells[0].mean) for line in weights.lines] == [("fedpca-d", pytest.approx(0.4))]
    assert [line.method for line in found.lines] == ["fedpca-d"]
    assert column(found, "wrong rare")[0].mean == 1
    assert main.notes[-2:] == ("1 seed.", "* has runs that are not finished.")


def test_tables_that_would_say_nothing_are_left_out(tmp_path: Path):
    write_run(tmp_path / "a", values=[(0.9,)], about={**ABOUT, "rare": []})
    assert [sheet.title.split(" ")[0] for sheet in for_pages(tables_of(tmp_path))] == ["Worst"]
    assert len(for_terminal(tables_of(tmp_path))) == 1


def test_who_was_named_in_how_many_seeds(tmp_path: Path):
    write_run(tmp_path / "a", 0, groups=["common", "mislabeled", "rare"])
    write_run(tmp_path / "b", 1, groups=["common", "mislabeled", "mislabeled"])
    _, accused = for_terminal(tables_of(tmp_path))
    assert accused.title == "Judged mislabeled (truly: 1)"
    assert accused.lines[0].cells[-1] == "1, 10 (1)"


def test_names_without_the_truth(tmp_path: Path):
    about = {"dataset": "own", "clients": {"id": ["0", "1", "10"]}}
    write_run(tmp_path / "a", groups=["common", "mislabeled", "rare"], about=about)
    path = tmp_path / "a/rounds.jsonl"
    path.write_text(path.read_text().replace('"identification": {', '"identification": null, "other": {'))
    _, accused = for_terminal(tables_of(tmp_path))
    assert accused.title == "Judged mislabeled (the truth is not known)"
    assert accused.lines[0].cells == ("1",)
    assert not [sheet for sheet in for_pages(tables_of(tmp_path)) if sheet.title.startswith("Found")]


def test_tables_show_balanced_accuracy_where_it_is_asked_for(tmp_path: Path):
    write_noises(tmp_path, evaluation={"accuracy": "bacc"})
    main, deviations, *_ = for_pages(tables_of(tmp_path))
    heads = [column.head for column in main.columns[:4]]
    assert heads == ["worst balanced ACC", "average balanced ACC", "worst AUC", "average AUC"]
    assert [column.head for column in deviations.columns[:2]] == ["STD balanced ACC", "STD AUC"]
    first = overview(tables_of(tmp_path)[0])
    assert [column.head for column in first.columns[:3]] == [
        "worst balanced ACC",
        "average balanced ACC",
        "STD balanced ACC",
    ]
    results = tables_of(tmp_path)[0]
    assert (
        column(first, "worst balanced ACC")[0].mean
        == results.rows[0].scores["bacc"].worst.mean
        != results.rows[0].scores["acc"].worst.mean
    )


def test_tables_on_validation_images_say_so(tmp_path: Path):
    held_out = {"data": {"clients": 3, "validation_share": 0.1}, "evaluation": {"on": "validation"}}
    write_noises(tmp_path, **held_out)
    main, *_ = for_pages(tables_of(tmp_path))
    assert main.title.endswith("12 rounds, on validation images")
    assert "12 rounds, on validation images; noise.clients=0.2" in overview(tables_of(tmp_path)[0]).title


def test_one_test_group_has_no_average_and_no_deviation_and_no_weights_have_no_column(tmp_path: Path):
    write_run(tmp_path / "a", values=[(0.9,)])
    assert [column.head for column in overview(tables_of(tmp_path)[0]).columns] == ["ACC", "AUC", "seeds"]
    write_run(tmp_path / "b/b", name="two", shares={"rare": 0.5, "mislabeled": 0.2})
    heads = [column.head for column in overview(tables_of(tmp_path / "b")[0]).columns]
    assert heads == ["worst ACC", "average ACC", "STD ACC", "worst AUC", "average AUC", "w_r(1-w_m)", "seeds"]
