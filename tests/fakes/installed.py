"""An installation of this program of its own, whose version a test can change.

It is an environment with copies of our packages; the libraries they need are those of the
environment that runs the tests.
"""

import re
import shutil
import sys
import sysconfig
from pathlib import Path

import upcall
import upcall_adapters
import upcall_discovery


class Installed:
    """One installation.

    Args:
        folder: where it is made.
        version: what it says it is.

    Attributes:
        python: its interpreter.
    """

    def __init__(self, folder: Path, version: str) -> None:
        base = Path(sys.base_prefix) / "bin"
        name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        self.python = str(folder / "bin" / "python")
        self._packages = folder / "lib" / name / "site-packages"
        (folder / "bin").mkdir(parents=True)
        Path(self.python).symlink_to((base / name).resolve())
        (folder / "pyvenv.cfg").write_text(f"home = {base}\n")
        self._packages.mkdir(parents=True)
        # As a folder only: what that one's own path files name is not read.
        libraries = sysconfig.get_paths()["purelib"]
        (self._packages / "libraries.pth").write_text(f"{libraries}\n")
        for package in (upcall, upcall_adapters, upcall_discovery):
            source = Path(str(package.__file__)).parent
            shutil.copytree(
                source,
                self._packages / source.name,
                ignore=shutil.ignore_patterns("__pycache__"),
            )
        self.set_version(version)

    def set_version(self, version: str) -> None:
        """Upgrade it, or downgrade it, as an installer does: by a file in place of the old."""
        path = self._packages / "upcall" / "__init__.py"
        line = f'__version__ = "{version}"'
        text, count = re.subn(r'(?m)^__version__ = ".*"$', line, path.read_text())
        assert count == 1
        fresh = path.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(path)

    def argv(self, *words: str) -> list[str]:
        """Return the argument vector of this installation's `upcall`."""
        return [self.python, "-I", "-m", "upcall", *words]
