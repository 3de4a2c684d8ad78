from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from fedpca.errors import RunError
from fedpca.results.page import watch
from fedpca.results.page.data import key
from fedpca.results.page.feed import RunFeed, answer
from fedpca.results.page.watch import serve
from fedpca.results.read.tail import Tail
from tests.results.made import a_line, append, write_run

if TYPE_CHECKING:
    from selenium.webdriver import Chrome


def until(true: Callable[[], object], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.02)


@contextmanager
def served(folder: Path, end_seconds: float = 0.3) -> Iterator[tuple[list[str], Thread, str]]:
    """The server in a thread: what it tells, the thread, the address."""
    told: list[str] = []
    seconds = {"poll_seconds": 0.05, "end_seconds": end_seconds}
    thread = Thread(target=serve, args=(folder, 0, told.append), kwargs=seconds, daemon=True)
    thread.start()
    until(lambda: told)
    yield told, thread, told[0].split()[0]
    assert not thread.is_alive(), "a test ends with its run"


def get(address: str, path: str = "/", host: str | None = None) -> tuple[int, str]:
    """Status and text of an answer."""
    connection = HTTPConnection(address.split("/")[2], timeout=10)
    connection.request("GET", path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_it_waits_shows_new_rounds_and_ends_with_the_run(tmp_path: Path):
    folder = tmp_path / "runs"
    with served(folder) as (told, thread, address):
        until(lambda: len(told) == 2)
        assert told[1] == f"waiting for the first round in {folder} (there is no such folder yet)"
        assert "Waiting for the first round" in get(address)[1]
        write_run(folder / "run", [], rounds=2)
        assert "Waiting for the first round" in get(address)[1]
        append(folder / "run", a_line(1))
        assert "made" in get(address)[1]
        shown = key(RunFeed(folder, 60).state().runs)
        news = json.loads(get(address, f"/new?key={shown}&have=0")[1])
        assert news["runs"][0]["columns"]["round"] == [1]
        assert news["state"].startswith("Under way: fedpca-d (warmup=0), seed 0 (round 1 of 2).")
        assert "runs" not in json.loads(get(address, f"/new?key={shown}&have=1")[1]), "only what is new"
        assert thread.is_alive()
        append(folder / "run", a_line(2))
        thread.join(20)
        assert told[-1].startswith("finished; `fedpca results")


def test_a_run_that_follows_keeps_it_alive(tmp_path: Path):
    write_run(tmp_path / "a", [a_line(1)], rounds=2)
    with served(tmp_path, end_seconds=1.0) as (_, thread, _):
        append(tmp_path / "a", a_line(2))
        time.sleep(0.3)
        write_run(tmp_path / "b", [a_line(1)], rounds=2, seed=1)
        thread.join(1.5)
        assert thread.is_alive()
        append(tmp_path / "b", a_line(2))
        thread.join(20)


def test_finished_runs_are_served_until_an_interrupt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_run(tmp_path / "a", [a_line(1)])
    told: list[str] = []
    pages = []

    def interrupt(_: float) -> None:
        pages.append(get(told[0].split()[0])[1])
        raise KeyboardInterrupt

    monkeypatch.setattr(watch, "_wait_for_interrupt", interrupt)
    with pytest.raises(KeyboardInterrupt):
        serve(tmp_path, 0, told.append)
    assert told[0].endswith(f"shows {tmp_path}; its runs are finished; Ctrl-C stops")
    assert "judged mislabeled" in pages[0]


def test_an_unreadable_folder_is_named_and_the_others_are_shown(tmp_path: Path):
    write_run(tmp_path / "a", [a_line(1)], rounds=2)
    write_run(tmp_path / "b", [a_line(1)], seed=1, rounds=2)
    (tmp_path / "b/about.json").write_text("{")
    with served(tmp_path) as (told, thread, address):
        until(lambda: len(told) == 2)
        assert told[1].startswith(f"passed over: the run folder {tmp_path / 'b'} cannot be read")
        state = json.loads(get(address, "/new")[1])["state"]
        assert state.startswith("Under way: fedpca-d (warmup=0), seed 0 (round 1 of 2). Passed over: the run folder")
        append(tmp_path / "a", a_line(2))
        thread.join(20)


def test_other_hosts_and_paths_are_refused(tmp_path: Path):
    write_run(tmp_path / "a", [a_line(1)], rounds=2)
    with served(tmp_path) as (_, thread, address):
        port = address.split(":")[2].strip("/")
        assert address == f"http://127.0.0.1:{port}/", "loopback alone"
        assert get(address, host="evil.example")[0] == 403
        assert get(address, host=f"evil.example:{port}")[0] == 403
        assert get(address, host="127.0.0.1.evil.example")[0] == 403
        assert get(address, host=f"localhost:{port}")[0] == 200
        assert get(address, "/etc/passwd")[0] == 404
        append(tmp_path / "a", a_line(2))
        thread.join(20)


def test_a_busy_port_is_named_with_the_remedy(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        with pytest.raises(RunError, match=rf"port {port} cannot be used .*choose another --port; 0 takes a free one"):
            serve(tmp_path, port, print)


def test_a_file_is_no_folder(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="is a file: name the folder"):
        serve(tmp_path / "file", 0, print)


def test_an_interrupt_frees_the_port(tmp_path: Path):
    addresses = []

    def interrupt(text: str) -> None:
        addresses.append(text.partition(" ")[0])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        serve(tmp_path, 0, interrupt)
    port = int(addresses[0].split(":")[2].strip("/"))
    with socket.create_server(("127.0.0.1", port)):
        pass


def test_standing_still_is_said(tmp_path: Path):
    write_run(tmp_path / "a", [a_line(1)], rounds=2)
    assert RunFeed(tmp_path, 60).state().words.startswith("Under way")
    past = time.time() - 180
    os.utime(tmp_path / "a/rounds.jsonl", (past, past))
    assert (
        RunFeed(tmp_path, 60).state().words == "No new round for 3 minutes: fedpca-d (warmup=0), seed 0 (round 1 of 2)."
    )


def test_a_page_that_no_longer_fits_is_made_anew(tmp_path: Path):
    folder = write_run(tmp_path / "a", [a_line(1), a_line(2)], rounds=3)
    feed = RunFeed(tmp_path, 60)
    state = feed.state()
    shown = key(state.runs)
    assert "reload" not in answer(state, f"key={shown}&have=2")
    assert answer(state, f"key={shown}&have=3")["reload"], "a resumed run has fewer rounds"
    assert answer(state, "key=other&have=2")["reload"]
    assert answer(state, "")["reload"]
    assert answer(state, f"key={shown}&have=x")["reload"]
    write_run(tmp_path / "b", [a_line(1)], seed=1, rounds=3)
    assert answer(feed.state(), f"key={shown}&have=2")["reload"]
    assert folder.exists()


def test_a_tail_reads_whole_lines_once_and_begins_anew_with_another_file(tmp_path: Path):
    folder = write_run(tmp_path / "a", [a_line(1)], rounds=9)
    tail = Tail(folder)
    first = tail.read().rounds[0]
    text = json.dumps(a_line(2)) + "\n"
    with (folder / "rounds.jsonl").open("a") as file:
        file.write(text[:40])
    assert len(tail.read().rounds) == 1
    with (folder / "rounds.jsonl").open("a") as file:
        file.write(text[40:])
    assert [line["round"] for line in tail.read().rounds] == [1, 2]
    assert tail.read().rounds[0] is first, "read once"
    (folder / "other").write_text(json.dumps(a_line(7)) + "\n")
    (folder / "other").replace(folder / "rounds.jsonl")
    assert [line["round"] for line in tail.read().rounds] == [7]
    with (folder / "rounds.jsonl").open("a") as file:
        file.write("{\n")
    with pytest.raises(RunError, match="a cannot be read"):
        tail.read()


def test_the_browser_follows_a_run(browser: Chrome, tmp_path: Path):
    def shown(selector: str) -> str:
        return browser.find_element("css selector", selector).text

    from selenium.webdriver.common.keys import Keys

    folder = write_run(tmp_path / "a", [a_line(1), a_line(2)], rounds=5)
    with served(tmp_path, end_seconds=3) as (_, thread, address):
        browser.get(address)
        assert shown("#at").startswith("Round 2 of 5")
        append(folder, a_line(3))
        until(lambda: shown("#at").startswith("Round 3 of 5"))
        assert "3 of 5 rounds have been played" in shown("#found")
        assert "(round 3 of 5)" in shown("#live")
        slider = browser.find_element("css selector", "#round")
        slider.send_keys(Keys.HOME)
        append(folder, a_line(4, groups=("mislabeled", "common", "rare", "mislabeled")))
        until(lambda: slider.get_attribute("max") == "4")
        assert shown("#at").startswith("Round 1 of 5"), "who looks back is left there"
        assert "2 of the 4 clients are judged mislabeled: clients a and d." in shown("#found")
        assert [row.text.split()[0] for row in browser.find_elements("css selector", "#sheet tbody tr")][:2] == [
            "a",
            "d",
        ]
        append(folder, a_line(5))
        until(lambda: shown("#live") == "Finished: 1 run. This page no longer changes.")
        browser.get("about:blank")
        thread.join(20)
