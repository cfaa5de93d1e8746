"""S21: a keyring that protects nothing is refused by name, a silent one is given up in time.

The package `keyring` is optional and not installed here: stand-ins for it are put on the
path of one process each, with back ends named and built like the real ones.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fakes.home import Home, eventually
from fakes.installation import Installation
from upcall.keyrings import ANSWER_WITHIN_S

PASSWORD = "kept-4d1c9e7b2a-password"
CORE = """
import threading
class KeyringBackend: pass
def get_keyring(): return BACKEND
def get_password(service, user):
    if (service, user) != ("upcall", "metrics"): return None
    return BACKEND.get_password(service, user)
"""
KEPT = f"    def get_password(self, service, user): return {PASSWORD!r}\n"
ASK = """
import sys; sys.path.insert(0, sys.argv[1])
import json, time
from upcall.model.errors import ConfigInvalid
from upcall.keyrings import Keyrings
from upcall.secrets import SecretSources
sources = SecretSources({}, Keyrings(float(sys.argv.pop(2))))
out = []
for where in sys.argv[2:]:
    begun = time.monotonic()
    try:
        told = {"value": sources.read("web.metrics_token", {"keyring": where}).reveal()}
    except ConfigInvalid as exc:
        told = {"code": exc.code, "msg": exc.msg, "recover": exc.recover}
    out.append({**told, "took_s": time.monotonic() - begun})
print(json.dumps(out))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "keyring").mkdir()
    return tmp_path


def asked(
    folder: Path, backend: str, *where: str, within_s: float = ANSWER_WITHIN_S
) -> tuple[list[dict[str, object]], str]:
    """Return what comes of reading, with a stand-in whose back end is made by *backend*."""
    (folder / "keyring" / "__init__.py").write_text(CORE + backend)
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-c",
            ASK,
            str(folder),
            str(within_s),
            *(where or ("upcall/metrics",)),
        ],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, object]] = json.loads(done.stdout)
    return found, done.stdout + done.stderr


def backend(module: str, name: str, body: str = KEPT, base: str = "KeyringBackend") -> str:
    """Return source for `BACKEND`, an instance of a class of that module and name."""
    return f"class {name}({base}):\n{body}{name}.__module__ = {module!r}\nBACKEND = {name}()\n"


SAFE = {
    "secret service": backend("keyring.backends.SecretService", "Keyring"),
    "macOS": backend("keyring.backends.macOS", "Keyring"),
    "encrypted file": backend("keyrings.alt.file", "EncryptedKeyring"),
    "somebody's own": backend("acme_vault.keyring", "VaultKeyring"),
}
UNSAFE = {
    "null": backend("keyring.backends.null", "Keyring"),
    "fail": backend("keyring.backends.fail", "Keyring"),
    "plain text": backend("keyrings.alt.file", "PlaintextKeyring"),
    "plain text, renamed module": backend("acme.backends", "PlaintextKeyring"),
    "unencrypted": backend("acme.backends", "UnencryptedFileKeyring"),
    "derived from one": backend("acme", "Base", base="KeyringBackend").replace(
        "'acme'", "'keyrings.alt.file'"
    )
    + backend("acme", "Mine", base="Base"),
}  # fmt: skip


@pytest.mark.parametrize("case", SAFE)
def test_a_keyring_that_protects_is_read(folder: Path, case: str) -> None:
    [found], _ = asked(folder, SAFE[case])
    assert found.get("value") == PASSWORD, found


@pytest.mark.parametrize("case", UNSAFE)
def test_a_keyring_that_protects_nothing_is_refused_by_name(folder: Path, case: str) -> None:
    [found], text = asked(folder, UNSAFE[case])
    assert found["code"] == "keyring_unsafe"
    name = UNSAFE[case].rpartition("class ")[2].partition("(")[0]
    assert f".{name}" in str(found["msg"])
    assert "0600" in str(found["recover"])
    assert PASSWORD not in text


def test_a_chain_is_as_good_as_its_worst_part(folder: Path) -> None:
    parts = SAFE["secret service"].replace("BACKEND", "GOOD") + UNSAFE["plain text"].replace(
        "BACKEND", "BAD"
    )
    chain = "    backends = [GOOD, BAD]\n" + KEPT
    source = parts + backend("keyring.backends.chainer", "ChainerBackend", chain)
    [found], text = asked(folder, source)
    assert found["code"] == "keyring_unsafe"
    assert "PlaintextKeyring" in str(found["msg"])
    assert PASSWORD not in text
    good = source.replace("[GOOD, BAD]", "(GOOD,)")
    assert asked(folder, good)[0][0].get("value") == PASSWORD


@pytest.mark.parametrize("where", ["get_keyring", "get_password", "import"])
def test_a_keyring_that_does_not_answer_is_given_up_and_not_asked_again(
    folder: Path, where: str
) -> None:
    """As without a desktop, where the bus waits for someone to unlock it."""
    silent = {
        "get_keyring": SAFE["secret service"] + "def get_keyring(): threading.Event().wait()\n",
        "get_password": backend(
            "keyring.backends.SecretService",
            "Keyring",
            "    def get_password(self, service, user): threading.Event().wait()\n",
        ),
        "import": "threading.Event().wait()\n",
    }
    found, _ = asked(folder, silent[where], "upcall/metrics", "upcall/other", within_s=0.4)
    assert [one["code"] for one in found] == ["keyring_silent"] * 2
    first, second = (float(str(one["took_s"])) for one in found)
    assert 0.3 <= first < 3.0
    assert second < 0.3
    assert "file" in str(found[0]["recover"])


@pytest.mark.parametrize("error", ["RuntimeError", "KeyError", "ImportError"])
def test_a_keyring_that_fails_does_not_tell_the_password(folder: Path, error: str) -> None:
    body = f"    def get_password(self, service, user): raise {error}({PASSWORD!r})\n"
    [found], text = asked(folder, backend("keyring.backends.SecretService", "Keyring", body))
    assert found["code"] == "secret_missing"
    assert error in str(found["msg"])
    assert PASSWORD not in text


def test_a_hub_starts_in_time_without_a_secret_that_its_keyring_holds_back() -> None:
    """The channel is disabled with the remedy; nothing else waits."""
    with Home() as home:
        installation = Installation(home.path)
        source = CORE + "def get_keyring(): threading.Event().wait()\n"
        installation.write("keyring/__init__.py", source)
        home.write_config(
            "[web]\nmetrics_token = { keyring = 'upcall/metrics' }\n"
            "[network]\nproxy = { keyring = 'upcall/proxy' }\n"
        )
        begun = time.monotonic()
        argv = [installation.python, "-P", "-m", "upcall", "hub", "start", "--json"]
        done = home.start_program(argv).end()
        assert done.code == 0, done
        # Three seconds for the first, none for the second, and what a start takes.
        assert ANSWER_WITHIN_S <= time.monotonic() - begun < 9.0
        assert eventually(home.hub_pid) is not None
        with home.line("control") as line:
            status = line.ok("status")
        silent = [one for one in status["degraded"] if one["code"] == "keyring_silent"]
        assert len(silent) == 2
        assert all("file" in one["recover"] for one in silent)
        assert [one["name"] for one in status["channels"]] == ["terminal"]
