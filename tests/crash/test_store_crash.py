"""The store and SIGKILL: what was acknowledged is there, and the file stays whole."""

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator

import pytest

from upcall.hub.store import Store

# Commits numbered pairs of rows, some of them at once, and prints each number after its
# commit. A pair is one transaction's: never one without the other.
WRITER = textwrap.dedent(
    """
    import asyncio, os, sys
    from upcall.hub.store import Store
    from upcall.model.effects import SaveGate, SaveSetting

    async def main():
        store = Store.open(sys.argv[1])
        number = int(sys.argv[2])

        async def one(number):
            await store.commit(
                [
                    SaveGate(f"g{number}", number),
                    SaveSetting("web", f"n{number}", "x" * (number % 700)),
                ]
            )
            os.write(1, b"%d\\n" % number)

        os.write(1, b"ready\\n")
        while True:
            await asyncio.gather(*(one(number + step) for step in range(1 + number % 7)))
            number += 7

    asyncio.run(main())
    """
)


@pytest.fixture
def path() -> Iterator[str]:
    folder = tempfile.mkdtemp(prefix="us", dir="/tmp")
    yield f"{folder}/hub.db"
    shutil.rmtree(folder)


def killed_after(path: str, first: int, lines: int) -> set[int]:
    """Run the writer, kill it after so many acknowledgements, and return all of them."""
    child = subprocess.Popen(
        [sys.executable, "-c", WRITER, path, str(first)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert child.stdout is not None
    with child:
        assert child.stdout.readline() == b"ready\n"
        seen = [child.stdout.readline() for _ in range(lines)]
        child.send_signal(signal.SIGKILL)
        seen += child.stdout.read().splitlines(keepends=True)
    assert child.returncode == -signal.SIGKILL
    return {int(line) for line in seen if line.endswith(b"\n")}


@pytest.mark.asyncio
async def test_every_acknowledged_row_survives_sigkill(path: str) -> None:
    chance = random.Random(7)
    acknowledged: set[int] = set()
    for life in range(8):
        acknowledged |= killed_after(path, life * 100_000 + 1, chance.randrange(0, 120))
        # Every second time the next life starts from what the kill left behind.
        if life % 2:
            store = Store.open(path)
            found = store.snapshot(0)
            await store.close()
            kept = set(found.gates.values())
            assert acknowledged <= kept
            assert {name for _, name in found.settings} == {f"n{one}" for one in kept}
    assert len(acknowledged) > 100


@pytest.mark.asyncio
async def test_a_file_that_outgrows_its_limit_ends_the_writer_and_stays_whole(
    path: str,
) -> None:
    limited = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000))\n"
        + WRITER
    )
    done = subprocess.run(
        [sys.executable, "-c", limited, path, "1"],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert done.returncode == 1
    assert b"StoreError" in done.stderr
    acknowledged = {int(line) for line in done.stdout.split()[1:]}
    store = Store.open(path)
    kept = set(store.snapshot(0).gates.values())
    await store.close()
    assert acknowledged
    assert acknowledged <= kept
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
