"""`fedpca audit` as a process, as a coordinator and a site type it."""

import signal
import subprocess
import sys
import time
from pathlib import Path

from fedpca.auditing.suspects import read_suspects, with_reviews, write_suspects
from tests.cli.test_main import fedpca
from tests.unmeasured import unmeasured

AUDIT = ("audit", "digits", "--set", "model.name=mlp", "--set", "data.clients=8", "--rounds", 4, "--sample", 5)


def test_an_audit_its_site_and_a_review(tmp_path: Path):
    shown = fedpca(*AUDIT, "--out", tmp_path / "audit").stdout
    assert shown.startswith("not tested: ")  # what could not be tested comes first
    assert "verdict" in shown
    assert "page.html" in shown
    site = tmp_path / "audit" / "0"
    assert "labels are on the list" in fedpca("audit", "--site", site).stdout
    path = site / "suspects.csv"
    assert "no estimate: no row of the random sample" in fedpca("audit", "review", site).stdout
    rows = read_suspects(path)
    read = {own.row: own.given for own in rows if own.in_sample}
    changed = next(own for own in rows if own.in_sample)
    read[changed.row] = changed.predicted if changed.predicted != changed.given else str((int(changed.given) + 1) % 10)
    write_suspects(path, with_reviews(rows, read))
    shown = fedpca("audit", "review", site).stdout
    assert "wrong labels: 20.0%, 95 % interval" in shown
    assert "1 labels changed" in shown
    assert (site / "corrected.csv").read_text().startswith("row,path,given_label,label\n")


def test_a_killed_audit_goes_on_and_writes_the_same_files(tmp_path: Path):
    fedpca(*AUDIT, "--out", tmp_path / "whole")
    command = [sys.executable, "-m", "fedpca", *map(str, AUDIT), "--out", str(tmp_path / "part")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=unmeasured())
    first = tmp_path / "part/work/fold-0/probabilities.safetensors"
    while not first.exists() and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    fedpca(*AUDIT, "--out", tmp_path / "part")
    for name in ("audit.json", "clients.csv", "3/suspects.csv"):
        assert (tmp_path / "part" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_messages_say_what_to_do(tmp_path: Path):
    assert "name what is to be audited" in fedpca("audit", "--out", tmp_path, code=2).stderr
    assert "there is no file, folder or experiment 'absent'" in fedpca("audit", "absent", code=2).stderr
    assert "is no folder of an audited site" in fedpca("audit", "review", tmp_path, code=2).stderr
    assert "review" in fedpca("audit", "--help").stdout
