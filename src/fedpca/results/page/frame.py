"""What every page of fedpca is made of: its style and script in one file, and a policy that loads nothing else."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from html import escape
from importlib.resources import files
from string import Template

from fedpca import __version__

PACKAGE = "fedpca.results.page"


def asset(name: str, package: str = PACKAGE) -> str:
    """A file of a page."""
    return files(package).joinpath("assets", name).read_text(encoding="utf-8")


def fill(template: str, style: str, script: str = "", served: bool = False, **parts: str) -> str:
    """The page: a template with its style, its script and its parts, which are HTML already."""
    return Template(template).substitute(
        policy=policy(style, script, served), style=style, script=script, version=escape(__version__), **parts
    )


def policy(style: str, script: str, served: bool) -> str:
    """What the browser may load: this very style and script, by their hashes, and nothing from any network.

    A page that is `served` may ask its own server, for data and for images.
    """
    hashes = [f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in (style, script)]
    own, asking = (" 'self'", "; connect-src 'self'") if served else ("", "")
    return (
        f"default-src 'none'; style-src {hashes[0]}; script-src {hashes[1]}; img-src data:{own}{asking}; "
        "base-uri 'none'; form-action 'none'"
    )
