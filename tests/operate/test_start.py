"""What a server and a site refuse to start with, before anything listens or connects."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fedpca.errors import UserError
from fedpca.operate import findings, keys, server, site
from fedpca.operate.keys import make_keys
from fedpca.operate.server import ServerOptions
from fedpca.operate.site import SiteOptions


@pytest.fixture
def made(tmp_path: Path) -> Path:
    make_keys(["berlin"], tmp_path / "keys", ["localhost"])
    (tmp_path / "data").mkdir()
    return tmp_path


def check_server(made: Path) -> None:
    server._check(ServerOptions(made / "state", "127.0.0.1", 0, made / "keys" / "server"), insecure=False)


def check_site(made: Path) -> None:
    own = next(path.parent for path in (made / "keys").rglob(keys.SITE_KEY))
    options = SiteOptions("berlin", made / "data", "localhost:1", own, made / "state", {})
    site._check(options, False, [].append)


def in_two_years(monkeypatch: pytest.MonkeyPatch) -> None:
    class Later(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:
            return datetime.now(UTC) + timedelta(days=730)

    monkeypatch.setattr(findings, "datetime", Later)


def test_good_keys_are_taken(made: Path):
    check_server(made)
    check_site(made)


def test_an_expired_certificate_is_refused_at_start(made: Path, monkeypatch: pytest.MonkeyPatch):
    in_two_years(monkeypatch)
    with pytest.raises(UserError, match=r"has expired on .*fedpca deploy keys"):
        check_server(made)


@pytest.mark.parametrize(("name", "check"), [(keys.SERVER_KEY, check_server), (keys.SITE_KEY, check_site)])
def test_a_key_that_others_can_read_is_refused_at_start(made: Path, name: str, check):
    (path,) = (made / "keys").rglob(name)
    path.chmod(0o644)
    with pytest.raises(UserError, match=r"can be read by others .*chmod 600"):
        check(made)


def test_a_sites_store_is_made_for_its_owner_alone(made: Path):
    (made / "state").mkdir()
    site._node_settings(SiteOptions("berlin", made / "data", "localhost:1", None, made / "state", {}))
    assert (made / "state" / "store").stat().st_mode & 0o777 == 0o700


def test_a_broken_policy_is_refused_at_start_and_a_good_one_is_shown(made: Path):
    policy, said = made / "state" / "store" / "site-policy.toml", []
    own = next(path.parent for path in (made / "keys").rglob(keys.SITE_KEY))
    options = SiteOptions("berlin", made / "data", "localhost:1", own, made / "state", {})
    policy.parent.mkdir(parents=True)
    policy.write_text("rounds = 5\n")
    with pytest.raises(UserError, match=r"site-policy.toml: unknown key 'rounds' \(did you mean 'max_rounds'\?\)"):
        site._check(options, False, said.append)
    policy.write_text('methods = ["fedavg"]\n')
    site._check(options, False, said.append)
    assert said == [f'[berlin] policy {policy}: methods = ["fedavg"]']
    with pytest.raises(UserError, match=r"there is no settings file .*mine.toml"):
        site._check(replace(options, policy=made / "mine.toml"), False, said.append)
