"""What NVFlare's `provision` reads: a server on this machine, sites, and an operator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

SERVER, ADMIN = "localhost", "admin@fedpca.org"
PROJECT = "hospitals"


def project_of(port: int, names: Sequence[str]) -> dict[str, object]:
    """The project of a server at that port, with certificates for all."""
    participants = [{"name": SERVER, "type": "server", "org": "fedpca", "fed_learn_port": port}]
    participants += [{"name": name, "type": "client", "org": name} for name in names]
    participants += [{"name": ADMIN, "type": "admin", "org": "fedpca", "role": "project_admin"}]
    impl = "nvflare.lighter.impl"
    builders: list[dict[str, object]] = [
        {"path": f"{impl}.workspace.WorkspaceBuilder", "args": {"template_file": ["master_template.yml"]}},
        {"path": f"{impl}.static_file.StaticFileBuilder", "args": {"config_folder": "config"}},
        {"path": f"{impl}.cert.CertBuilder"},
        {"path": f"{impl}.signature.SignatureBuilder"},
    ]
    return {
        "api_version": 3,
        "name": PROJECT,
        "description": "-",
        "participants": participants,
        "builders": builders,
    }


def kit_of(workspace: Path, name: str) -> Path:
    """The startup kit that `provision` made for somebody."""
    return workspace / PROJECT / "prod_00" / name
