"""A folder imports only from folders above it; the truth, PyTorch and Flower stay where they belong."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fedpca

ROOT = Path(fedpca.__file__).parent
# From top to bottom: each imports only from those before it, and from modules of its own room.
ROOMS = [
    ("errors", "rng", "atomic", "core"),
    ("screening", "loop"),
    *(
        (folder,)
        for folder in (
            "settings",
            "models",
            "parts",
            "methods",
            "data",
            "simulate",
            "runs",
            "cluster",
            "results",
            "auditing",
            "sites",
            "flower",
            "nvflare",
            "operate",
            "api",
            "cli",
        )
    ),
    ("__main__",),
]
CLIENT_AND_SERVER = (
    "core",
    "loop",
    "screening",
    "parts",
    "methods",
    "models",
    "simulate",
    "flower.wire",
    "nvflare.wire",
    "sites.messages",
)
TORCH_FREE = (
    "fedpca.cli.main",
    "fedpca.methods.registry",
    "fedpca.models.registry",
    "fedpca.runs.folder",
    "fedpca.runs.metrics",
    "fedpca.runs.follow",
    "fedpca.cluster.options",
    "fedpca.cluster.tasks",
    "fedpca.results.claims",
    "fedpca.results.tables",
    "fedpca.results.page",
    "fedpca.api.progress",
)


def modules() -> dict[str, Path]:
    return {".".join(p.relative_to(ROOT).with_suffix("").parts): p for p in ROOT.rglob("*.py")}


def imports(path: Path) -> set[str]:
    """Dotted names of everything a file imports, at its top or inside a function; `from a import b` counts as a.b."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def level(dotted: str) -> int:
    """The number of the room that a module of fedpca lies in, counted from the top."""
    first = dotted.removeprefix("fedpca.").split(".")[0]
    return next(number for number, rooms in enumerate(ROOMS) if first in rooms)


@pytest.mark.parametrize("name", sorted(set(modules()) - {"__init__"}))
def test_imports_only_from_rooms_above(name: str):
    own = {imported for imported in imports(modules()[name]) if imported.startswith("fedpca.")}
    below = {imported for imported in own - {"fedpca.__version__"} if level(imported) > level(name)}
    assert not below, f"{name} imports from a room below its own"


def test_every_room_has_a_place_and_a_sentence():
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == {room for rooms in ROOMS for room in rooms if (ROOT / room).is_dir()}
    assert all((ROOT / folder / "__init__.py").read_text().startswith('"""') for folder in folders)


@pytest.mark.parametrize("name", sorted(modules()))
def test_clients_and_server_cannot_import_the_data_or_the_truth(name: str):
    if name.startswith(CLIENT_AND_SERVER):
        assert not any(i.startswith(("fedpca.data", "fedpca.runs.evaluate")) for i in imports(modules()[name]))
        assert "truth" not in modules()[name].read_text().lower().split()


@pytest.mark.parametrize("name", sorted(modules()))
def test_flower_is_imported_by_its_own_folder_alone(name: str):
    flower = {i for i in imports(modules()[name]) if i.split(".")[0] == "flwr"}
    if not name.startswith("flower."):
        assert not flower
    public = ("flwr.app.", "flwr.clientapp.", "flwr.serverapp.")
    assert all(i.startswith(public) for i in flower), "what lies behind these modules changes with every release"
    assert flower or name != "flower.wire"


@pytest.mark.parametrize("name", sorted(modules()))
def test_nvflare_is_imported_by_its_own_folder_alone_and_engines_do_not_know_each_other(name: str):
    found = imports(modules()[name])
    if not name.startswith("nvflare."):
        assert not {i for i in found if i.split(".")[0] == "nvflare"}
    strangers = {"flower": "fedpca.nvflare", "nvflare": "fedpca.flower"}.get(name.split(".", maxsplit=1)[0])
    assert not (strangers and any(i.startswith(strangers) for i in found))


@pytest.mark.parametrize("name", TORCH_FREE)
def test_what_answers_quickly_does_not_import_torch(name: str):
    code = f"import sys, {name}; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_dask_is_imported_by_its_own_folder_alone():
    for name, path in modules().items():
        if not name.startswith("cluster."):
            assert not re.search(r"^\s*(import|from) (dask|distributed)\b", path.read_text(), re.MULTILINE), name


def test_nothing_is_unpickled():
    """Loading by pickle would run whatever code a file brings."""
    for name, path in modules().items():
        found = imports(path)
        assert not any(i.split(".")[0] in ("pickle", "dill", "joblib", "shelve", "marshal") for i in found), name
        text = path.read_text()
        assert "allow_pickle=True" not in text
        assert text.count("torch.load(") == text.count("weights_only=True"), name
