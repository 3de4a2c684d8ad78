"""The settings files that come with the package."""

import os
from pathlib import Path

from fedpca.errors import SettingsError, nearest


def shipped_experiments() -> dict[str, Path]:
    """The settings files that come with the package, by name; those in folders, such as lite/fashion, last."""
    package = Path(__file__).parents[1]
    installed, checkout = package / "experiments", package.parents[1] / "experiments"
    folder = installed if installed.is_dir() else checkout
    paths = sorted(folder.rglob("*.toml"), key=lambda path: (len(path.parts), path))
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in paths}


def settings_file(name: str) -> Path:
    """The file of that name, else the shipped experiment of that name."""
    path, shipped = Path(name), shipped_experiments()
    if os.path.isfile(path) or path.suffix:  # os.path: a name that is too long is no file, and no error
        return path
    if name not in shipped and os.path.isdir(path):
        raise SettingsError(f"{name} is a folder: name a settings file in it, such as {path / 'mine.toml'}")
    if name not in shipped:
        raise SettingsError(f"there is no settings file and no experiment {name!r}{nearest(name, shipped)}")
    return shipped[name]
