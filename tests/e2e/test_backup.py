"""Backup and restore: whole files, a new epoch, and no answer counted twice (S26, B5)."""

import itertools
import json
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import upcall
from fakes.home import Home, Json, Running, ended, eventually
from upcall.hub.store import Store, backup, epoch, migrate, restore
from upcall.hub.store.read import audit_break


@pytest.fixture
def home() -> Iterator[Home]:
    with Home() as made:
        yield made


def mode_of(path: str) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


def asks(home: Home, state: str = "open") -> list[Json]:
    with home.line("control") as line:
        found: list[Json] = line.ok("asks", state=state)["asks"]
        return found


def raise_one(home: Home, question: str) -> tuple[Running, Json]:
    """Ask from a program that waits; return it and its ask."""
    asking = home.start("ask", question, "-o", "yes", "-o", "no")

    def look() -> list[Json]:
        return [ask for ask in asks(home) if ask["question"] == question]

    return asking, eventually(look, what=question)[0]


def rewound(home: Home) -> str:
    """Take a raw copy of the stopped store."""
    home.run("hub", "stop")
    copy = f"{home.path}/raw.db"
    shutil.copy(f"{home.state}/hub.db", copy)
    return copy


# --- backup --------------------------------------------------------------------------------


def test_a_backup_is_made_while_the_hub_runs_and_is_whole_private_and_alone(home: Home) -> None:
    home.start_hub()
    ask_id = home.hand_over("Keep this?", "-o", "yes")
    target = f"{home.path}/b/upcall.backup"
    os.mkdir(f"{home.path}/b", 0o755)
    old = os.umask(0)
    try:
        done = home.run("hub", "backup", target, "--json")
    finally:
        os.umask(old)
    assert done.code == 0, done
    assert done.json["backup"]["open_asks"] == 1
    assert os.listdir(f"{home.path}/b") == ["upcall.backup"]
    assert mode_of(target) == 0o600
    with sqlite3.connect(f"file:{target}?mode=ro&immutable=1", uri=True) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert db.execute("PRAGMA journal_mode").fetchone() != ("wal",)
        assert db.execute("SELECT public_id FROM ask").fetchall() == [(ask_id,)]
        assert audit_break(db) is None
    db.close()
    assert home.run("hub", "status").code == 0


def test_a_backup_replaces_nothing_unasked_and_follows_no_link(home: Home) -> None:
    home.start_hub()
    taken, link = f"{home.path}/taken", f"{home.path}/link"
    Path(taken).write_text("precious")
    os.symlink(taken, link)
    first = home.run("hub", "backup", taken)
    assert first.code == 1
    assert "--force" in first.err
    for target in (link, "/dev/null"):
        assert home.run("hub", "backup", target, "--force").code == 1
    assert Path(taken).read_text() == "precious"
    assert home.run("hub", "backup", taken, "--force").code == 0
    assert backup.look(taken).asks == 0
    assert home.run("hub", "backup", home.path).code == 2
    assert home.run("hub", "backup", f"{home.state}/hub.db", "--force").code == 2
    loose = f"{home.path}/loose"
    os.mkdir(loose)
    os.chmod(loose, 0o777)
    refused = home.run("hub", "backup", f"{loose}/x")
    assert refused.code == 1
    assert "others can write" in refused.err
    assert os.listdir(loose) == []
    assert home.run("hub", "backup", f"{home.path}/no/such/x").code == 1


def test_a_backup_without_a_hub_starts_none(home: Home) -> None:
    home.start_hub()
    home.run("hub", "stop")
    assert home.run("hub", "backup", f"{home.path}/x").code == 0
    assert home.hub_pid() is None
    home.start_hub()
    home.hand_over("After a crash?", "-o", "yes")
    home.kill_hub()  # leaves a log behind
    assert home.run("hub", "backup", f"{home.path}/y").code == 0
    assert backup.look(f"{home.path}/y").asks == 1
    assert home.run("hub", "backup", f"{home.path}/z", env={"XDG_STATE_HOME": "/tmp/none"}).code


# --- restore -------------------------------------------------------------------------------


def test_a_restore_asks_again_what_still_waits_and_nothing_twice(home: Home) -> None:
    """Three open that still wait, three that were answered since, one handed over."""
    home.start_hub()
    waiting = [raise_one(home, f"waits {number}?") for number in range(3)]
    answered = [raise_one(home, f"answered {number}?") for number in range(3)]
    kept = home.hand_over("handed over?", "-o", "yes")
    file = f"{home.path}/upcall.backup"
    assert home.run("hub", "backup", file).code == 0
    revisions = {ask["id"]: ask["revision"] for ask in asks(home)}
    for running, ask in answered:
        assert home.run("answer", ask["id"], "yes").code == 0
        assert running.end(20).out == "yes\n"
    before = home.hub_pid()
    done = home.run("hub", "restore", file, "--yes", "--json")
    assert done.code == 0, done
    assert done.json["ended_since"] == 3
    assert mode_of(done.json["replaced"]) == 0o600
    assert home.hub_pid() not in {None, before}
    for _, ask in waiting:
        again = home.until_ask(ask["id"], state="open", note="restored, please answer again")
        assert again["revision"] != revisions[ask["id"]]
        with home.line("control") as line:
            # What was pressed on the old card, with the old revision.
            pressed = {"ask": ask["id"], "values": ["yes"], "revision": revisions[ask["id"]]}
            assert line.refused("answer", **pressed) == "stale_card"
    for _, ask in answered:
        ended_since = home.ask_state(ask["id"])
        assert (ended_since["state"], ended_since["outcome"]) == ("closed", "answered")
    assert home.until_ask(kept, state="open")["note"] == "restored, please answer again"
    for running, ask in waiting:
        assert home.run("answer", ask["id"], "no").code == 0
        assert running.end(20).out == "no\n"
    home.run("hub", "stop")
    with home.database() as db:
        rows = dict(db.execute("SELECT event, facts FROM audit WHERE event = 'restored'"))
        facts = json.loads(rows["restored"])
        assert facts["epoch"] == 2
        assert facts["from_head"] != facts["replaced_head"]
        assert audit_break(db) is None
        told = db.execute("SELECT text FROM notice WHERE kind = 'security'").fetchall()
    assert "replaced" in told[0][0]


def test_without_the_replaced_store_only_the_programs_know_and_are_asked(home: Home) -> None:
    """The disk was lost: what the asker had answered meanwhile is not shown to anybody."""
    home.start_hub()
    source = (
        "import sys, upcall\n"
        "print(upcall.ask('answered?', ['yes', 'no']), flush=True)\n"
        "sys.stdin.read()\n"  # lives on, and waits for nothing
    )
    living = home.start_program([sys.executable, "-P", "-u", "-c", source], stdin=True)
    ask = eventually(lambda: asks(home), what="the ask")[0]
    file = f"{home.path}/upcall.backup"
    home.run("hub", "backup", file)
    home.run("answer", ask["id"], "yes")
    living.line("yes", on="out")
    home.kill_hub()
    Path(home.state, "hub.db").write_bytes(b"rubbish" * 1000)
    for suffix in ("-wal", "-shm"):
        Path(home.state, f"hub.db{suffix}").unlink(missing_ok=True)
    done = home.run("hub", "restore", file, "--yes", "--json")
    assert done.code == 0, done
    assert Path(done.json["replaced"]).read_bytes() == b"rubbish" * 1000
    home.start_hub()
    with home.line("control") as line:
        assert line.refused("answer", ask=ask["id"], values=["no"]) == "restoring"
        assert line.ok("asks", state="open")["asks"][0]["note"].startswith("restored from")
    living.abandon()
    assert home.until_ask(ask["id"], state="closed")["outcome"] == "unreachable"


def test_a_restore_needs_a_yes(home: Home) -> None:
    home.start_hub()
    file = f"{home.path}/x"
    home.run("hub", "backup", file)
    pid = home.hub_pid()
    refused = home.run("hub", "restore", file)
    assert refused.code == 2
    assert "--yes" in refused.err
    at_terminal = home.start("hub", "restore", file, on_terminal=True)
    at_terminal.line("Type yes")
    at_terminal.type("y\n")
    done = at_terminal.end(20)
    assert done.code == 1
    assert "nothing was changed" in done.err
    assert home.hub_pid() == pid


def test_what_is_no_backup_is_refused_by_name_and_changes_nothing(home: Home) -> None:
    home.start_hub()
    home.hand_over("Stays?", "-o", "yes")
    good = f"{home.path}/good"
    home.run("hub", "backup", good)
    data = Path(good).read_bytes()
    cases = {
        "garbage": b"not a database at all",
        "empty": b"",
        "cut": data[: len(data) // 2],
        "flipped": data[:20000] + b"\xff" * 3000 + data[23000:],
    }
    for name, content in cases.items():
        path = Path(home.path, name)
        path.write_bytes(content)
        path.chmod(0o600)
        done = home.run("hub", "restore", str(path), "--yes")
        assert done.code == 1, (name, done)
        assert "Traceback" not in done.err
    with sqlite3.connect(f"{home.path}/newer") as db:
        sqlite3.connect(good).backup(db)
        db.execute("PRAGMA user_version = 99")
        db.execute("UPDATE meta SET value = '0.4' WHERE name = 'schema_by'")
    db.close()
    os.chmod(f"{home.path}/newer", 0o600)
    newer = home.run("hub", "restore", f"{home.path}/newer", "--yes", "--json")
    assert newer.code == 1
    assert "store_newer" in newer.out + newer.err
    other = f"{home.path}/other.db"
    sqlite3.connect(other).execute("CREATE TABLE t (x)").connection.close()
    os.chmod(other, 0o600)
    assert "another program" in home.run("hub", "restore", other, "--yes").err
    os.symlink(good, f"{home.path}/link")
    assert home.run("hub", "restore", f"{home.path}/link", "--yes").code == 1
    os.chmod(good, 0o666)
    assert "others can write" in home.run("hub", "restore", good, "--yes").err
    assert [ask["question"] for ask in asks(home)] == ["Stays?"]


KILLED = """
import os, signal, sys
from upcall.hub.store import backup, migrate, restore
import sqlite3
left = int(sys.argv[3])
def step(frame, event, arg):
    global left
    if event == "call" and "/store/" in frame.f_code.co_filename:
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.setprofile(step)
restore.restore(sys.argv[1], backup.look(sys.argv[2]), now_ms=1, machine="m",
                scripts=migrate.steps())
sys.setprofile(None)
print("done")
"""


def test_a_restore_killed_anywhere_leaves_one_whole_store(home: Home) -> None:
    home.start_hub()
    home.hand_over("old?", "-o", "yes")
    file = f"{home.path}/f"
    home.run("hub", "backup", file)
    home.hand_over("new?", "-o", "yes")
    home.kill_hub()  # with a log that holds the newest
    db_path = f"{home.state}/hub.db"
    saved = f"{home.path}/saved"
    shutil.copytree(home.state, saved, ignore=shutil.ignore_patterns("*.sock"))
    seen = set()
    for point in itertools.count(1, 9):
        shutil.rmtree(home.state)
        shutil.copytree(saved, home.state)
        os.chmod(home.state, 0o700)
        program = [sys.executable, "-P", "-c", KILLED, db_path, file, str(point)]
        done = subprocess.run(
            program, capture_output=True, text=True, check=False, env=home.env, umask=0o077
        )
        assert done.returncode in {0, -signal.SIGKILL}, done.stderr
        store = Store.open(db_path)
        number = epoch.epoch_of(store._connection)
        count = len(store.snapshot().asks)
        assert store._connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        store.close_now()
        assert (number, count) in {(1, 2), (2, 1)}, point
        seen.add((number, done.returncode))
        if done.returncode == 0:
            break
    assert {epoch_ for epoch_, _ in seen} == {1, 2}


# --- copies that were put back -------------------------------------------------------------


def test_an_old_copy_that_was_put_back_is_refused_with_both_remedies(home: Home) -> None:
    home.start_hub()
    copy = rewound(home)
    home.start_hub()
    home.hand_over("Later?", "-o", "yes")
    home.run("hub", "stop")
    shutil.copy(copy, f"{home.state}/hub.db")
    refused = home.run("hub", "start")
    assert refused.code == 1
    assert "older than" in refused.err
    assert "upcall hub adopt" in refused.err
    assert "upcall hub restore" in refused.err
    assert home.hub_json()["last_error"]["code"] == "store_behind"
    assert home.run("hub", "adopt", "--yes").code == 0
    assert home.run("hub", "start").code == 0
    assert asks(home, "all") == []
    assert mode_of(f"{home.state}/hub.db.epoch") == 0o600


def test_an_old_copy_is_seen_also_after_a_crash(home: Home) -> None:
    home.start_hub()
    home.hand_over("First?", "-o", "yes")
    copy = rewound(home)
    home.start_hub()
    home.hand_over("Second?", "-o", "yes")
    home.run("hub", "stop")
    home.start_hub()
    home.kill_hub()
    for suffix in ("-wal", "-shm"):
        Path(home.state, f"hub.db{suffix}").unlink(missing_ok=True)
    shutil.copy(copy, f"{home.state}/hub.db")
    assert home.run("hub", "start").code == 1
    assert home.hub_json()["last_error"]["code"] == "store_behind"


def test_the_database_of_another_computer_is_refused(home: Home) -> None:
    home.start_hub()
    home.run("hub", "stop")
    with sqlite3.connect(f"{home.state}/hub.db") as db:
        db.execute("UPDATE meta SET value = 'elsewhere' WHERE name = 'machine'")
    db.close()
    if not epoch.machine_id():
        pytest.skip("this computer has no machine id")
    refused = home.run("hub", "start")
    assert refused.code == 1
    assert "another computer" in refused.err
    assert home.hub_json()["last_error"]["code"] == "store_moved"
    assert home.run("hub", "adopt", "--yes").code == 0
    assert home.run("hub", "start").code == 0


def test_a_store_that_was_removed_on_purpose_begins_anew(home: Home) -> None:
    home.start_hub()
    home.hand_over("Gone?", "-o", "yes")
    home.run("hub", "stop")
    Path(home.state, "hub.db").unlink()
    assert home.run("hub", "start").code == 0
    with home.database() as db:
        assert db.execute("SELECT value FROM meta WHERE name = 'epoch'").fetchone() == ("2",)


# --- upgrade and downgrade -----------------------------------------------------------------


def test_after_a_downgrade_the_backup_of_before_is_named_and_can_be_restored(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.start_hub()
    home.hand_over("Before 0.4?", "-o", "yes")
    home.run("hub", "stop")
    db_path = f"{home.state}/hub.db"
    newest = max(migrate.steps())
    later = "CREATE TABLE later (id INTEGER PRIMARY KEY) STRICT;"
    connection = sqlite3.connect(db_path, isolation_level=None)
    kept = migrate.migrate(
        connection, db_path, {**migrate.steps(), newest + 1: later}, version="0.4"
    )
    connection.close()
    assert kept == f"{db_path}.before-0.4"
    assert mode_of(kept) == 0o600
    refused = home.run("hub", "start")
    assert refused.code == 1
    assert "from upcall 0.4" in refused.err
    assert f"upcall hub restore {db_path}.before-0.4" in refused.err.replace("\n        ", " ")
    assert "loses asks since" in refused.err
    done = home.run("hub", "restore", kept, "--yes")
    assert done.code == 0, done
    assert home.run("hub", "start").code == 0
    assert [ask["question"] for ask in asks(home)] == ["Before 0.4?"]
    assert upcall.__version__ in json.dumps(home.hub_json())


def test_the_words_of_a_restore_say_where_the_former_database_is() -> None:
    done = restore.Restored(2, "/x/hub.db.replaced-1", 0, 0, None)
    assert "/x/hub.db.replaced-1" in restore.replaced_words(done)
    assert "no database" in restore.replaced_words(restore.Restored(2, None, 0, 0, None))
    assert restore.said(0) == time.strftime("%Y-%m-%d %H:%M", time.localtime(0))
    assert ended(os.getpid(), 0) is False
