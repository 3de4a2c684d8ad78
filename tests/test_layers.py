"""A module imports only from lower layers; the truth and PyTorch stay where they belong."""

import ast
from pathlib import Path

import pytest

import fedpca

ROOT = Path(fedpca.__file__).parent
LAYERS = [
    {"__init__", "core", "chance", "faults", "catalogue", "files"},
    {"params", "lookup", "pages", "scenario", "models", "lite0", "pretrained", "winograd", "scores"},
    {"data", "parts"},
    {"methods", "loop"},
    {"simulate", "deploy.wire"},
    {"evaluate", "features", "record", "backbone"},
    {"experiment"},
    {"results", "jobs", "trackers", "deploy"},
    {"console"},
    {"cli", "cli_data"},
    {"__main__"},
]
# in each pair the second is the lower of the two
SAME_LAYER = {
    ("models", "params"),
    ("models", "lite0"),
    ("models", "winograd"),
    ("scenario", "lookup"),
    ("pages", "lookup"),
    ("pages", "scenario"),
    ("pretrained", "scenario"),
    ("cli", "cli_data"),
}
CLIENT_AND_SERVER = (
    "parts",
    "methods",
    "loop",
    "simulate",
    "core",
    "params",
    "models",
    "lite0",
    "winograd",
    "deploy.wire",
)


def modules() -> dict[str, Path]:
    return {".".join(p.relative_to(ROOT).with_suffix("").parts): p for p in ROOT.rglob("*.py")}


def imports(path: Path, top_level_only: bool = False) -> set[str]:
    """Dotted names of everything a file imports; `from a import b` counts as a.b."""
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level_only else list(ast.walk(tree))
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def unit(dotted: str) -> str:
    """The module or sub-package of fedpca that a dotted name lies in, the smallest that has a layer."""
    parts = dotted.removeprefix("fedpca").strip(".").split(".")
    known = {name for layer in LAYERS for name in layer}
    return next((name for name in (".".join(parts[:2]), parts[0]) if name in known), "__init__")


def level(name: str) -> int:
    return next(number for number, layer in enumerate(LAYERS) if name in layer)


@pytest.mark.parametrize("name", sorted(modules()))
def test_imports_only_from_lower_layers(name: str):
    own = unit(name)
    if own == "__init__":
        return  # the public names, imported when they are first used
    for imported in imports(modules()[name]):
        if imported.startswith("fedpca") and (other := unit(imported)) != own and (own, other) not in SAME_LAYER:
            assert level(other) < level(own), f"{name} (layer {level(own)}) imports {imported} (layer {level(other)})"


@pytest.mark.parametrize("name", sorted(modules()))
def test_clients_and_server_cannot_import_the_data_or_the_truth(name: str):
    if unit(name) in CLIENT_AND_SERVER:
        assert not any(i.startswith(("fedpca.data", "fedpca.evaluate")) for i in imports(modules()[name]))
        assert "truth" not in modules()[name].read_text().lower().split()


@pytest.mark.parametrize("name", sorted(modules()))
def test_flower_is_imported_by_deploy_alone(name: str):
    flower = {i for i in imports(modules()[name]) if i.split(".")[0] == "flwr"}
    if not name.startswith("deploy."):
        assert not flower
    public = ("flwr.app.", "flwr.clientapp.", "flwr.serverapp.")
    assert all(i.startswith(public) for i in flower), "what lies behind these modules changes with every release"
    assert flower or name != "deploy.wire"


def test_what_answers_quickly_does_not_import_torch():
    """chance may: it is not on the way of help, list and results."""
    import subprocess
    import sys

    code = (
        "import sys, fedpca.cli, fedpca.console, fedpca.catalogue, fedpca.results.table; print('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_nothing_is_unpickled():
    """Loading by pickle would run whatever code a file brings."""
    for name, path in modules().items():
        found = imports(path)
        assert not any(i.split(".")[0] in ("pickle", "dill", "joblib", "shelve", "marshal") for i in found), name
        text = path.read_text()
        assert "allow_pickle=True" not in text
        assert text.count("torch.load(") == text.count("weights_only=True"), name
