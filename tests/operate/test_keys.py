"""Keys of a federation: made once, never overwritten, readable by their owners alone."""

import shutil
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from fedpca.errors import UserError
from fedpca.operate.keys import host_names, make_keys, read_certificate, read_site_key, registered_sites, same_key


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_machine_gets_a_folder_of_its_own(tmp_path: Path):
    made = make_keys(["berlin", "paris"], tmp_path, ["fl.example.org", "10.0.0.5"])
    assert made.new == (tmp_path / "server", tmp_path / "sites" / "berlin", tmp_path / "sites" / "paris")
    assert {path.name for path in (tmp_path / "sites" / "paris").iterdir()} == {"ca.crt", "site.key", "site.pub"}
    assert {p.name for p in (tmp_path / "server").iterdir()} == {"ca.crt", "server.crt", "server.key", "sites"}
    assert set(registered_sites(tmp_path / "server")) == {"berlin", "paris"}
    assert (tmp_path / "README.txt").read_text().count(". ") + 1 == 2, "two sentences"


def test_private_keys_are_their_owners_alone_and_nowhere_else(tmp_path: Path):
    make_keys(["berlin"], tmp_path)
    private = [path for path, content in contents(tmp_path).items() if b"PRIVATE KEY" in content]
    assert {str(path.relative_to(tmp_path)) for path in private} == {
        "ca.key",
        "server/server.key",
        "sites/berlin/site.key",
    }
    assert [path.stat().st_mode & 0o777 for path in private] == [0o600] * 3


def test_the_certificate_is_for_the_hosts_and_for_loopback(tmp_path: Path):
    make_keys(["berlin"], tmp_path, ["FL.example.org", "10.0.0.5"], days=40)
    certificate = read_certificate(tmp_path / "server" / "server.crt")
    assert set(host_names(certificate)) == {"fl.example.org", "10.0.0.5", "localhost", "127.0.0.1", "::1"}
    assert (certificate.not_valid_after_utc - certificate.not_valid_before_utc).days == 40
    certificate.verify_directly_issued_by(read_certificate(tmp_path / "sites" / "berlin" / "ca.crt"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server" / "server.crt", tmp_path / "server" / "server.key")


def test_each_site_has_a_key_of_its_own_that_flower_takes(tmp_path: Path):
    make_keys(["berlin", "paris"], tmp_path)
    keys = {site: read_site_key(tmp_path / "sites" / site / "site.key") for site in ("berlin", "paris")}
    assert all(isinstance(key.curve, ec.SECP384R1) for key in keys.values())
    for site, path in registered_sites(tmp_path / "server").items():
        assert [name for name, key in keys.items() if same_key(path.read_text(), key.public_key())] == [site]


def test_a_site_is_added_later_and_nothing_else_changes(tmp_path: Path):
    make_keys(["berlin"], tmp_path, ["fl.example.org"])
    before = contents(tmp_path)
    made = make_keys(["berlin", "rome"], tmp_path)
    assert made.new == (tmp_path / "sites" / "rome",)
    assert made.kept == (tmp_path / "server", tmp_path / "sites" / "berlin")
    after = contents(tmp_path)
    assert {path: after[path] for path in before} == before
    assert after[tmp_path / "sites" / "rome" / "ca.crt"] == before[tmp_path / "server" / "ca.crt"]


def test_a_site_whose_folder_was_handed_over_keeps_its_key(tmp_path: Path):
    make_keys(["berlin"], tmp_path)
    public = (tmp_path / "server" / "sites" / "berlin.pub").read_text()
    shutil.rmtree(tmp_path / "sites" / "berlin")
    assert make_keys(["berlin"], tmp_path).new == ()
    assert (tmp_path / "server" / "sites" / "berlin.pub").read_text() == public
    assert not (tmp_path / "sites" / "berlin").exists()


def test_what_a_killed_call_left_undone_is_done_by_the_next(tmp_path: Path):
    make_keys(["berlin"], tmp_path)
    for name in ("server/ca.crt", "server/sites/berlin.pub"):
        (tmp_path / name).unlink()
    make_keys(["berlin"], tmp_path)
    server = tmp_path / "server"
    read_certificate(server / "server.crt").verify_directly_issued_by(read_certificate(server / "ca.crt"))
    key = read_site_key(tmp_path / "sites" / "berlin" / "site.key")
    assert same_key((server / "sites" / "berlin.pub").read_text(), key.public_key())


def test_a_new_certificate_is_good_for_the_sites_that_are_there(tmp_path: Path):
    make_keys(["berlin"], tmp_path, ["fl.example.org"])
    old = (tmp_path / "server" / "server.crt").read_bytes()
    for name in ("server.crt", "server.key"):
        (tmp_path / "server" / name).unlink()
    assert make_keys(["berlin"], tmp_path, ["other.org"]).new == (tmp_path / "server",)
    renewed = read_certificate(tmp_path / "server" / "server.crt")
    renewed.verify_directly_issued_by(read_certificate(tmp_path / "sites" / "berlin" / "ca.crt"))
    assert "other.org" in host_names(renewed)
    assert (tmp_path / "server" / "server.crt").read_bytes() != old


@pytest.mark.parametrize("name", ["", "köln", "a/b", "../x", "a b", 'a"b', "-x", "x" * 64])
def test_a_name_that_is_no_file_name_is_refused(name: str, tmp_path: Path):
    with pytest.raises(UserError, match="a site's name must be letters, digits, - and _"):
        make_keys([name], tmp_path)
    assert not any(tmp_path.iterdir())


def test_another_host_needs_another_certificate(tmp_path: Path):
    make_keys(["berlin"], tmp_path, ["fl.example.org"])
    with pytest.raises(UserError, match=r"is for .*fl.example.org.* and not for other.org: to make them anew remove"):
        make_keys(["berlin"], tmp_path, ["other.org"])


@pytest.mark.parametrize("host", ["fl.example.org:8000", "https://fl.example.org", "a b"])
def test_a_host_is_a_name_or_an_address(host: str, tmp_path: Path):
    with pytest.raises(UserError, match="without a port"):
        make_keys(["berlin"], tmp_path, [host])


def test_a_lost_authority_is_not_replaced_in_silence(tmp_path: Path):
    make_keys(["berlin"], tmp_path)
    (tmp_path / "ca.key").unlink()
    with pytest.raises(UserError, match=r"is there without .*ca\.key: bring that key back"):
        make_keys(["rome"], tmp_path)
    assert not (tmp_path / "sites" / "rome").exists()


def test_half_a_pair_is_named(tmp_path: Path):
    make_keys(["berlin"], tmp_path)
    (tmp_path / "server" / "server.key").unlink()
    with pytest.raises(UserError, match="must both be there, and only one is"):
        make_keys(["berlin"], tmp_path)


def test_the_command_line_says_what_it_made(tmp_path: Path):
    command = [sys.executable, "-m", "fedpca", "deploy", "keys", "berlin", "--out", str(tmp_path / "keys")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:2] == [f"made {tmp_path}/keys/server", f"made {tmp_path}/keys/sites/berlin"]
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.stdout.splitlines()[:2] == [f"kept {tmp_path}/keys/server", f"kept {tmp_path}/keys/sites/berlin"]
