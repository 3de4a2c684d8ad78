import base64
import hashlib
import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fedpca.results.page.data import columns, key, news, run_data, shares
from fedpca.results.page.page import first, in_order, write_page
from fedpca.results.read.clients import truth
from fedpca.results.read.runs import find_runs, read_run
from tests.results.made import CLIENTS, a_line, write_run

EVIL = ('<img src=x onerror="alert(1)">', "</script><script>alert(2)</script>", "'\"&amp;", "<!--")


class Seen(HTMLParser):
    """What a browser would make of a page: elements with attributes, and the text inside each kind of element."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, list[str]] = {}
        self.inside = [""]
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while tag in self.inside and self.inside.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        self.text.setdefault(self.inside[-1], []).append(data)

    def data(self) -> dict:
        return json.loads(self.text["script"][0])


def a_page(folder: Path, *lines: dict[str, object], **options: object) -> Seen:
    return Seen(write_page([read_run(write_run(folder / "run", lines or [a_line(1)], **options))]))


def test_nothing_is_fetched_and_only_the_own_script_runs(tmp_path: Path):
    seen = a_page(tmp_path)
    for tag, attributes in seen.elements:
        assert not {"src", "srcset", "action", "data", "style"} & attributes.keys(), tag
        assert not [name for name in attributes if name.startswith("on")], tag
        assert attributes.get("href", "#")[:1] == "#" or attributes["href"] == "data:,"
    (policy,) = [a["content"] for _, a in seen.elements if a.get("http-equiv") == "Content-Security-Policy"]
    digests = {
        kind: base64.b64encode(hashlib.sha256("".join(texts).encode()).digest()).decode()
        for kind, texts in (("script", seen.text["script"][1:]), ("style", seen.text["style"]))
    }
    assert policy.startswith("default-src 'none'; ")
    assert f"script-src 'sha256-{digests['script']}'" in policy
    assert f"style-src 'sha256-{digests['style']}'" in policy
    assert "connect-src" not in policy
    assert "unsafe" not in policy


def test_the_data_are_the_record_rounded(tmp_path: Path):
    line = a_line(1, suspicion=[0, 0.12345, 0.5, 1.0], weights=[0.123456, 0, 0.5, 0.376544])
    line["clients"]["loss"] = [0.12345, None, 2, 1e3]
    (run,) = a_page(tmp_path, line).data()["runs"]
    assert run["columns"]["loss"] == [[0.123, None, 2, 1000]]
    assert run["columns"]["suspicion"] == [[0, 0.123, 0.5, 1]]
    assert run["columns"]["weight"] == [[12.35, 0, 50, 37.65]]
    assert run["columns"]["group"] == ["ccrm"]
    assert (run["columns"]["worst"], run["columns"]["average"]) == ([60.0], [70.0])
    assert (run["clients"], run["truth"], run["planned"], run["threshold"]) == (list(CLIENTS), "ccrm", 1, 0.5)


def test_names_stay_text(tmp_path: Path):
    seen = a_page(
        tmp_path,
        a_line(1, clients=EVIL, groups=["mislabeled"] * 4, left_out={EVIL[0]: EVIL[1]}),
        clients=EVIL,
        truth={"rare": [], "mislabeled": [EVIL[0]]},
    )
    assert {tag for tag, _ in seen.elements}.isdisjoint({"img"})
    assert [tag for tag, _ in seen.elements].count("script") == 2
    assert seen.data()["runs"][0]["clients"] == list(EVIL)
    assert any(EVIL[0] in text for text in seen.text["p"])


@pytest.mark.parametrize(
    ("lines", "options"),
    [
        ([a_line(1, tested=False)], {"truth": {}}),
        ([a_line(1, groups=None), a_line(2, groups=None)], {"method": "fedavg", "rounds": 9}),
        ([{**a_line(1, groups=None), "clients": {"id": list(CLIENTS)}, "weights": None}], {"method": "rfa"}),
        ([a_line(1, tested=False), a_line(2)], {}),
        ([a_line(1, clients=("a", "b"), groups=("common", "mislabeled"))], {"clients": ("a", "b"), "truth": {}}),
    ],
    ids=[
        "nothing tested, no truth",
        "unfinished, nobody judged",
        "no weights, old record",
        "tested late",
        "two clients",
    ],
)
def test_runs_of_all_kinds_have_a_page(tmp_path: Path, lines: list[dict[str, object]], options: dict[str, object]):
    (run,) = a_page(tmp_path, *lines, **options).data()["runs"]
    assert len(run["columns"]["round"]) == len(lines)


def test_a_client_that_came_later_has_nothing_before(tmp_path: Path):
    lines = [
        a_line(1, clients=("a", "b"), groups=("common", "rare")),
        a_line(2, clients=("b", "e"), groups=("rare", "common")),
    ]
    run = read_run(write_run(tmp_path / "run", lines, clients=("a", "b"), truth={}))
    data = run_data(run, 0)
    assert data["clients"] == ["a", "b", "e"]
    assert data["columns"]["group"] == ["cr-", "-rc"]
    assert data["since"] == [None, 1, 2]
    assert data["sizes"] == [10, 10, None]


def test_shares_follow_the_truth_where_it_is_known(tmp_path: Path):
    line = a_line(1, groups=("common", "common", "common", "rare"), weights=[0.1, 0.2, 0.3, 0.4])
    known = read_run(write_run(tmp_path / "a", [line], truth={"rare": ["c", "d"], "mislabeled": ["d"]}))
    assert shares(line, CLIENTS, truth(known)) == {"c": 30.0, "r": 30.0, "b": 40.0}
    assert shares(line, CLIENTS, None) == {"c": 60.0, "r": 40.0}


def test_runs_stand_as_in_the_table_and_the_first_has_something_to_show(tmp_path: Path):
    runs = [
        read_run(write_run(tmp_path / "a", [a_line(1)], seed=1)),
        read_run(write_run(tmp_path / "b", [a_line(1)], seed=0)),
        read_run(write_run(tmp_path / "c", [a_line(1, groups=None)], method="fedavg")),
    ]
    ordered = in_order(runs)
    assert [(run.method, run.seed) for run in ordered] == [("fedavg", 0), ("fedpca-d", 0), ("fedpca-d", 1)]
    assert first(ordered) == 1
    under_way = read_run(write_run(tmp_path / "d", [a_line(1, groups=None)], method="fedavg", seed=7, rounds=2))
    assert first([*ordered, under_way]) == 3
    seen = Seen(write_page(runs))
    shown = [a["data-run"] for _, a in seen.elements if "data-run" in a and "hidden" not in a]
    assert set(shown) == {"1"}


def test_the_page_opens_on_an_auto_run(tmp_path: Path):
    runs = in_order(
        [
            read_run(write_run(tmp_path / "a", [a_line(1)], rounds=2)),
            read_run(write_run(tmp_path / "b", [a_line(1)], method="fedpca-hs-auto", seed=0)),
            read_run(write_run(tmp_path / "c", [a_line(1)], method="fedpca-hs-auto", seed=1, rounds=2)),
        ]
    )
    assert (runs[first(runs)].method, runs[first(runs)].seed) == ("fedpca-hs-auto", 1), "of two, the one under way"
    assert runs[first(runs[:-1])].method == "fedpca-hs-auto"


def test_the_verdict_comes_first(tmp_path: Path):
    lines = [a_line(i, suspicion=[0.01, 0.02, 0.11, 0.93]) for i in (1, 2, 3)]
    page = write_page([read_run(write_run(tmp_path / "run", lines, method="fedpca-hs-auto", truth={}))])
    places = [page.index(text) for text in ("client d.</p>", "How sure:", "What to do next:", '<dl class="notes">')]
    assert places == sorted(places)


def test_the_best_of_the_table_is_bold(tmp_path: Path):
    worse = {"common": {"acc": 0.1, "bacc": 0.1, "auc": 0.1, "auc_ovo": 0.1}}
    runs = [
        read_run(write_run(tmp_path / "a", [a_line(1)])),
        read_run(write_run(tmp_path / "b", [{**a_line(1, groups=None), "groups": worse}], method="fedavg")),
    ]
    seen = Seen(write_page(runs))
    assert "60.00 ± 0.00" in seen.text["strong"]
    assert "10.00 ± 0.00" in seen.text["td"]


def test_news_are_what_a_page_does_not_have(tmp_path: Path):
    run = read_run(write_run(tmp_path / "run", [a_line(i) for i in (1, 2, 3)]))
    (fresh,) = news([run], [2])
    assert fresh["columns"]["round"] == [3]
    assert {len(values) for values in fresh["columns"].values()} == {1}
    whole = columns(run, 0)
    assert all(whole[name][2:] == values for name, values in fresh["columns"].items())
    other = read_run(write_run(tmp_path / "other", [a_line(1)], seed=1))
    assert key([run]) != key([run, other])


def test_settings_give_the_run_again(tmp_path: Path):
    folder = write_run(tmp_path / "run", [a_line(1)])
    seen = Seen(write_page([read_run(folder)]))
    assert (folder / "settings.toml").read_text() in seen.text["code"]


def test_without_pytorch_and_plotting():
    code = (
        "import sys, fedpca.results.page, fedpca.results.page.watch; print({'torch', 'matplotlib'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_scenarios_to_choose_from_are_told_apart_by_their_settings(tmp_path: Path):
    for name in ("mlp", "cnn-small"):
        write_run(tmp_path / name, [a_line(1)], model={"name": name})
    page = write_page(find_runs([tmp_path]))
    assert "1 round, 1 method, 1 seed; model.name=mlp" in page
    assert "1 round, 1 method, 1 seed; model.name=cnn-small" in page
