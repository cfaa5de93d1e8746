"""An installation of its own: a virtual environment with this project and other packages."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]

ADAPTER: Final = '''
"""Other people's adapter: writes down what it is given, and hears."""
import asyncio, json, os, sys
import msgspec
from upcall.model.platform import Body, Capabilities, ChannelState, Spec

open({loaded!r}, "a").write(__name__ + "\\n")
AT_IMPORT = dict(os.environ)

class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    report: str = ""
    chat: str = ""

class Adapter:
    def __init__(self, config, seams):
        self.config, self.seams = config, seams
    async def run(self, inbox):
        seen = {{
            "config": msgspec.to_builtins(self.config), "secrets": dict(self.seams.secrets),
            "environ": [AT_IMPORT, dict(os.environ)], "argv": sys.argv,
            "seams": repr(self.seams),
            "proxy": {{url: self.seams.network.proxy_for(url) for url in (
                "https://chat.example/x", "http://127.0.0.1:80", "ws://localhost:1",
                "http://[::1]/",
            )}},
        }}
        with open(self.config.report + ".new", "w") as file:
            json.dump(seen, file)
        os.replace(self.config.report + ".new", self.config.report)
        inbox.state(ChannelState(hearing=True))
        await asyncio.Event().wait()
    async def post(self, place, body, key):
        return "ref"
    async def edit(self, ref, body):
        pass
    async def check(self):
        return ()

def lower(message, place):
    return (Body(b"x"),)

SPEC = Spec(name={name!r}, config=Config, capabilities=Capabilities(text_limit=100),
            lower=lower, open=Adapter)
'''


class Installation:
    """A virtual environment below *folder* in which `upcall` and what a test adds is found.

    Attributes:
        python: its interpreter.
        packages: its `site-packages`.
        loaded: a file with a line for each adapter module that was run.
    """

    def __init__(self, folder: str) -> None:
        self.folder = f"{folder}/venv"
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", self.folder],
            check=True,
            timeout=60,
        )
        self.python = f"{self.folder}/bin/python"
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        self.packages = f"{self.folder}/lib/{version}/site-packages"
        self.loaded = f"{folder}/loaded"
        # Whatever umask the tests run with, nobody else may write here.
        for at, names, files in os.walk(self.folder):
            for name in (*names, *files):
                if not os.path.islink(f"{at}/{name}"):
                    os.chmod(f"{at}/{name}", os.stat(f"{at}/{name}").st_mode & ~0o022)
        paths = [one for one in sys.path if one.endswith(("site-packages", "dist-packages"))]
        paths += [f"{ROOT}/{one}" for one in ("bridge", "adapters", "discovery")]
        self.write("project.pth", "\n".join(dict.fromkeys(paths)) + "\n")

    def write(self, name: str, text: str, mode: int = 0o644) -> str:
        """Write a file into `site-packages`."""
        path = f"{self.packages}/{name}"
        os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, mode)
        return path

    def add_adapter(self, package: str, adapter: str, source: str | None = None) -> str:
        """Install a package that brings an adapter; return its folder."""
        text = ADAPTER.format(loaded=self.loaded, name=adapter) if source is None else source
        self.write(f"{package}/__init__.py", text)
        metadata = f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n"
        self.write(f"{package}-1.2.dist-info/METADATA", metadata)
        points = f"[upcall.adapters]\n{adapter} = {package}:SPEC\n"
        self.write(f"{package}-1.2.dist-info/entry_points.txt", points)
        return f"{self.packages}/{package}"

    def ran(self) -> list[str]:
        """Return the adapter modules that were run."""
        try:
            with open(self.loaded, encoding="utf-8") as file:
                return file.read().split()
        except FileNotFoundError:
            return []
