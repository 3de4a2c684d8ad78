"""The doctor names what is wrong, and what to do, before a site joins."""

import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedpca.errors import UserError
from fedpca.operate.check_keys import check_keys
from fedpca.operate.check_server import check_clock, check_server
from fedpca.operate.doctor import Expected, Machine, _guard, check_data, examine
from fedpca.operate.findings import Finding
from fedpca.operate.keys import make_keys, read_certificate, read_tls_key

EXPECTED = Expected(classes=("0", "1", "2"), shape=(1, 8, 8))


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    make_keys(["berlin", "paris"], folder)
    return folder


def errors(findings: Iterator[Finding]) -> list[str]:
    return [finding.what for finding in findings if finding.level == "error"]


def certificate(keys: Path, target: Path, hosts: list[str], end: timedelta) -> tuple[Path, Path]:
    """A certificate of the same authority, for other hosts or another time."""
    key, authority = ec.generate_private_key(ec.SECP256R1()), read_certificate(keys / "server" / "ca.crt")
    now = datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "another server")])
    builder = x509.CertificateBuilder(authority.subject, subject, key.public_key(), 7)
    builder = builder.not_valid_before(now - timedelta(days=9)).not_valid_after(now + end)
    names = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
    signed = builder.add_extension(names, critical=False).sign(read_tls_key(keys / "ca.key"), hashes.SHA256())
    files = target / "other.crt", target / "other.key"
    files[0].write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    files[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, *plain))
    return files


@contextmanager
def serving(files: tuple[Path, Path] | None, status: int = 403) -> Iterator[str]:
    """A server that shows that certificate and gives every question the same answer."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            pass

    with Quiet(("127.0.0.1", 0), Answer) as server:
        if files:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*files)
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def own(keys: Path) -> tuple[Path, Path]:
    return keys / "server" / "server.crt", keys / "server" / "server.key"


def test_a_good_server_is_found_good(keys: Path):
    with serving(own(keys)) as server:
        findings = list(check_server(server, keys / "sites" / "berlin"))
    assert {finding.level for finding in findings} == {"ok"}
    assert f"{server} is a fedpca server" in [finding.what for finding in findings]
    assert f"this clock agrees with that of {server}" in [finding.what for finding in findings]


def test_an_expired_certificate_is_named_with_its_date(keys: Path, tmp_path: Path):
    with serving(certificate(keys, tmp_path, ["127.0.0.1"], timedelta(days=-2))) as server:
        found = errors(check_server(server, keys / "sites" / "berlin"))
    assert found == [f"the certificate of 127.0.0.1 has expired on {datetime.now(UTC) - timedelta(days=2):%Y-%m-%d}"]


def test_a_certificate_for_another_host_is_named_with_its_hosts(keys: Path, tmp_path: Path):
    with serving(certificate(keys, tmp_path, ["fl.example.org"], timedelta(days=90))) as server:
        found = errors(check_server(server, keys / "sites" / "berlin"))
    assert found == ["the certificate of 127.0.0.1 is for fl.example.org and not for 127.0.0.1"]


def test_another_federations_certificate_is_an_error(keys: Path, tmp_path: Path):
    make_keys(["berlin"], tmp_path)
    with serving(own(tmp_path)) as server:
        (found,) = errors(check_server(server, keys / "sites" / "berlin"))
    assert found.startswith("127.0.0.1 shows a certificate that ca.crt did not sign")


def test_a_server_without_tls_is_an_error_where_keys_are_given(keys: Path):
    with serving(None) as server:
        (found,) = errors(check_server(server, keys / "sites" / "berlin"))
    assert "does not speak TLS" in found


def test_flowers_own_port_in_the_open_is_warned_of(keys: Path):
    with serving(own(keys), status=200) as server:
        warned = [f.what for f in check_server(server, keys / "sites" / "berlin") if f.level == "warning"]
    assert warned == [f"{server} lets anyone start runs (answer 200 in place of 403)"]


def test_a_closed_port_and_an_unknown_name_stop_the_check(keys: Path):
    with serving(None) as server:
        pass
    with pytest.raises(UserError, match="is the server up, and is the port right"):
        list(check_server(server, keys / "sites" / "berlin"))
    with pytest.raises(UserError, match=r"nowhere\.invalid is not a name that this machine can find"):
        list(check_server("nowhere.invalid:8000", None))
    with pytest.raises(UserError, match="HOST:PORT"):
        list(check_server("https://fl.example.org/", None))


@pytest.mark.parametrize(
    ("ahead", "level"), [(0, "ok"), (-1, "ok"), (4, "warning"), (6, "error"), (-20, "warning"), (-301, "error")]
)
def test_clocks_may_differ_as_far_as_flower_lets_them(ahead: float, level: str):
    assert check_clock(ahead, "the server").level == level


def test_good_keys_are_found_good(keys: Path):
    assert {f.level for f in check_keys(keys / "sites" / "berlin", "berlin")} == {"ok"}
    assert {f.level for f in check_keys(keys / "server", None)} == {"ok"}


def test_keys_that_others_can_read_are_an_error(tmp_path: Path):
    make_keys(["berlin"], tmp_path)
    for folder, name in (("sites/berlin", "site.key"), ("server", "server.key")):
        path = tmp_path / folder / name
        path.chmod(0o644)
        (finding,) = [f for f in check_keys(tmp_path / folder, None) if f.level == "error"]
        assert finding.what == f"{path} can be read by others (mode 644)"
        assert finding.remedy == f"chmod 600 {path}"


def test_keys_that_do_not_belong_together_are_named(tmp_path: Path):
    make_keys(["berlin", "paris"], tmp_path / "a")
    make_keys(["berlin"], tmp_path / "b")
    sites = tmp_path / "a" / "sites"
    assert [f.level for f in check_keys(sites / "berlin", "paris")].count("warning") == 1
    (sites / "berlin" / "site.pub").write_text((sites / "paris" / "site.pub").read_text())
    assert errors(check_keys(sites / "berlin", "berlin")) == [f"{sites}/berlin/site.pub does not belong to site.key"]
    server = tmp_path / "a" / "server"
    (server / "server.crt").write_bytes((tmp_path / "b" / "server" / "server.crt").read_bytes())
    assert errors(check_keys(server, None)) == [
        f"{server}/server.crt is not signed by ca.crt",
        f"{server}/server.key does not belong to server.crt",
    ]


def test_a_certificate_that_will_soon_expire_is_warned_of(tmp_path: Path):
    make_keys(["berlin"], tmp_path, days=10)
    (warned,) = [f.what for f in check_keys(tmp_path / "server", None) if f.level == "warning"]
    assert warned.startswith(f"{tmp_path}/server/server.crt expires on ")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Twelve images of three classes."""
    monkeypatch.setenv("FEDPCA_CACHE", str(tmp_path / "cache"))
    pixels, labels = np.zeros((12, 8, 8), np.uint8), np.arange(12) % 3
    path = tmp_path / "site.npz"
    np.savez(path, x_train=pixels, y_train=labels, x_test=pixels[:6], y_test=labels[:6])
    return path


def test_data_as_the_federation_expects_are_found_good(data: Path):
    findings = list(check_data(data, EXPECTED))
    assert {finding.level for finding in findings} == {"ok"}
    assert findings[0].what == f"{data}: 12 images to train on, 6 to test on, 1 x 8 x 8, 3 classes"


def test_images_of_another_shape_are_an_error(data: Path):
    found = errors(check_data(data, EXPECTED.model_copy(update={"shape": (3, 8, 8)})))
    assert found == ["images are 1 x 8 x 8, but the federation's 3 x 8 x 8"]


def test_a_class_that_the_federation_lacks_is_an_error_and_a_missing_one_a_warning(data: Path):
    found = errors(check_data(data, EXPECTED.model_copy(update={"classes": ("0", "1")})))
    assert found == ["the federation has no class '2'; there are 0, 1"]
    more = list(check_data(data, EXPECTED.model_copy(update={"classes": ("0", "1", "2", "3")})))
    assert [f.what for f in more if f.level == "warning"] == ["no images of 3"]
    assert not errors(iter(more))


TABLE = Expected(classes=("0", "1"), model="mlp")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Thirty rows, of which only the first has a value of `marker`."""
    rows = [f"{number},{'a' if number % 3 else 'b'},{'' if number else 3.5},{number % 2}" for number in range(30)]
    for part in ("train", "test"):
        (tmp_path / "own").mkdir(exist_ok=True)
        (tmp_path / "own" / f"{part}.csv").write_text("\n".join(["age,pain,marker,label", *rows]))
    return tmp_path / "own"


def test_a_table_is_found_good_and_what_its_sums_tell_is_warned_of(table: Path):
    good, warning, classes = check_data(table, TABLE)
    assert good.what == f"{table}: 30 rows to train on, 30 to test on, 2 classes, 3 columns: age, pain, marker"
    assert (warning.level, warning.what.partition(":")[0]) == ("warning", "marker")
    assert "sums=false" in warning.remedy
    assert classes.level == "ok"


def test_a_table_that_cannot_take_part_is_an_error(table: Path, data: Path):
    lacking = TABLE.model_copy(update={"feature_columns": ("age", "weight")})
    assert "has no column 'weight'" in str(errors(_guard(check_data(table, lacking)))[0])
    found = errors(check_data(table, TABLE.model_copy(update={"model": "cnn-small"})))
    assert found == [f"model cnn-small is for images, and {table} is a table"]
    assert f"{table} is a table, but the federation's data are images" in errors(check_data(table, EXPECTED))
    (found, *_) = errors(check_data(data, TABLE))
    assert found.startswith(f"{data} has images, but the federation's data are tables")


def test_other_versions_than_the_federations_are_errors(tmp_path: Path):
    path = tmp_path / "federation.toml"
    path.write_text('classes = ["0", "1"]\nshape = [1, 8, 8]\nflwr = "1.40.0"\nfedpca = "9.9"\n')
    found = errors(examine(Machine(federation=path, state=tmp_path)))
    assert [text.partition(",")[2] for text in found] == [
        " but the federation needs 1.40.0",
        " but the federation has 9.9",
    ]


def test_a_typo_in_the_federations_file_is_named(tmp_path: Path):
    path = tmp_path / "federation.toml"
    path.write_text('classes = ["0", "1"]\nshape = [1, 8, 8]\nmodle = "mlp"\n')
    (found,) = errors(examine(Machine(federation=path, state=tmp_path)))
    assert found.startswith(f"{path}: unknown key 'modle'")
    assert "did you mean 'model'?" in found


def test_the_command_line_ends_with_1_at_an_error_and_goes_on_after_it(keys: Path, data: Path):
    command = [sys.executable, "-m", "fedpca", "doctor", "--keys", str(keys / "sites" / "berlin")]
    good = subprocess.run([*command, "--data", str(data)], capture_output=True, text=True, check=False)
    assert (good.returncode, good.stdout.splitlines()[-1]) == (0, "0 errors"), good.stdout + good.stderr
    command += ["--server", "127.0.0.1:1", "--data", str(data)]
    bad = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (bad.returncode, bad.stdout.splitlines()[-1]) == (1, "1 error")
    assert "12 images to train on" in bad.stdout
