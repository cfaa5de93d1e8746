"""S21: private files whatever the umask, and texts that are gone when they are forgotten."""

import json
import os
import shutil
import sqlite3
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.home import Done, Home, eventually
from upcall.hub.store import Store, backup
from upcall.hub.store.files import copies, sweep_copies
from upcall.hub.store.read import audit_break
from upcall.model.ask import AskSpec, Selection
from upcall.model.ids import ActionId, AskId, Revision, SessionId
from upcall.model.rows import (
    AskRow,
    AuditRow,
    DeliveryRow,
    HeldText,
    NoticeRow,
    SessionRow,
    VoteRow,
)

DAY_MS = 86_400_000
QUESTION, DETAIL = "planted-question-81c4", "planted-detail-55f0"
WORDS, NOTICE = "planted-answer-a9d2", "planted-notice-c3b7"
TITLE, NAME, FILE = "planted-title-77e1", "planted-name-2d66", b"planted-file-9b08"
PLANTED = (QUESTION, DETAIL, WORDS, NOTICE, TITLE, NAME)


@pytest.fixture
def home() -> Iterator[Home]:
    with Home() as made:
        yield made


def holders(folder: str, *words: str | bytes) -> dict[str, list[str]]:
    """Return which of *words* each file below *folder* holds."""
    found: dict[str, list[str]] = {}
    for where, _, names in os.walk(folder):
        for name in names:
            path = Path(where, name)
            if not path.is_file():
                continue
            data = path.read_bytes()
            held = [
                str(word)
                for word in words
                if (word.encode() if isinstance(word, str) else word) in data
            ]
            if held:
                found[str(path)] = held
    return found


def held(folder: str) -> set[str]:
    """Return what of everything planted is somewhere below *folder*."""
    return {word for words in holders(folder, *PLANTED).values() for word in words}


def loose(folder: str) -> list[str]:
    """Return every entry below *folder*, itself included, that is open to anybody else."""
    found = []
    for where, folders, names in os.walk(folder):
        for path in [where, *(os.path.join(where, name) for name in [*folders, *names])]:
            mode = os.lstat(path).st_mode
            wanted = 0o700 if stat.S_ISDIR(mode) else 0o600
            if stat.S_IMODE(mode) & ~wanted:
                found.append(f"{path} {stat.filemode(mode)}")
    return found


SESSION = """
import asyncio, sys
from upcall import Session
async def main():
    async with Session("probe", project=sys.argv[1]) as session:
        await session.attach(b"planted-file-9b08", name="a.bin", mime="text/plain")
        print("up", flush=True)
        await session.ask("Still there?", ["yes"])
asyncio.run(main())
"""


def test_everything_is_private_whatever_the_umask(home: Home) -> None:
    old = os.umask(0)
    try:
        project = f"{home.path}/project"
        os.mkdir(project, 0o755)
        home.start_hub()
        home.hand_over("Keep?", "-o", "yes")
        program = home.start_python(SESSION, project)
        program.line("up", on="out")
        kept = f"{home.state}/files"
        eventually(lambda: [one for _, _, one in os.walk(kept) if one], what="the attachment")
        assert home.run("notify", "told").code == 0
        assert home.run("hub", "backup", f"{home.path}/backup").code == 0
        assert home.run("config", "check").code == 0
        while_it_runs = loose(home.state) + loose(home.runtime)
        assert os.path.exists(f"{home.state}/hub.db-wal")
        assert home.run("hub", "restore", f"{home.path}/backup", "--yes").code == 0
        program.abandon()
        home.run("hub", "stop")
    finally:
        os.umask(old)
    assert while_it_runs == []
    assert loose(home.state) + loose(home.runtime) + loose(f"{project}/.upcall") == []
    assert stat.S_IMODE(os.stat(f"{home.path}/backup").st_mode) == 0o600
    names = {name.split("-")[0] for name in os.listdir(home.state)}
    assert {"hub.db", "hub.db.epoch", "hub.log", "hub.lock", "hub.db.replaced"} <= names


def test_a_project_shows_nothing_to_git_and_holds_no_token(home: Home) -> None:
    git = shutil.which("git")
    if git is None:
        pytest.skip("git is not installed")
    project = f"{home.path}/project"
    os.mkdir(project, 0o755)
    subprocess.run([git, "init", "-q", project], check=True, env=home.env)
    home.start_hub()
    for configured in (False, True):
        if configured:
            home.write_config("[publish]\nproject_token = true\n")
        program = home.start_python(SESSION, project)
        program.line("up", on="out")
        (record,) = Path(project, ".upcall/state/sdk").glob("*.json")
        assert Path(project, ".upcall/.gitignore").read_text() == "*\n"
        beside = json.loads(record.read_text())
        own = json.loads(Path(home.sessions, record.name).read_text())
        assert (beside["token"] == own["token"]) is configured
        assert (beside["token"] == "") is not configured
        status = subprocess.run(
            [git, "-C", project, "status", "--porcelain", "--untracked-files=all"],
            check=True, capture_output=True, text=True, env=home.env,
        )  # fmt: skip
        assert status.stdout == ""
        program.abandon()
        record.unlink()


def test_publishing_beside_a_project_is_off_unless_asked_for(home: Home) -> None:
    home.start_hub()
    source = SESSION.replace(", project=sys.argv[1]", "")
    program = home.start_python(source, home.path)
    program.line("up", on="out")
    assert not os.path.exists(f"{home.path}/.upcall")
    program.abandon()


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_a_project_that_others_can_write_gets_no_record(home: Home, mode: int) -> None:
    project = f"{home.path}/project"
    os.mkdir(project)
    os.chmod(project, mode)
    done = home.start_python(SESSION, project).end(20)
    assert done.code != 0
    assert "folder_not_private" in done.err or "written by others" in done.err
    assert os.listdir(project) == []


# --- forgetting ----------------------------------------------------------------------------


def planted(home: Home) -> str:
    """Have everything planted said, answered and told; return the ask's id."""
    asking = home.start(
        "ask", QUESTION, "--detail", DETAIL, "--session", NAME, "--title", TITLE
    )

    def look() -> str | None:
        with home.line("control") as line:
            found = line.ok("asks")["asks"]
        return found[0]["id"] if found else None

    ask_id = eventually(look, what="the ask")
    assert ask_id is not None
    assert home.run("notify", NOTICE, "--session", NAME).code == 0
    assert home.run("answer", ask_id, WORDS).code == 0
    assert asking.end(20).code == 0
    return ask_id


def forget(home: Home, *args: str) -> Done:
    done = home.run("forget", *args, "--yes")
    assert done.code == 0, done
    return done


def test_what_is_forgotten_is_in_no_byte_of_any_file_and_said_in_the_audit(home: Home) -> None:
    home.start_hub()
    ask_id = planted(home)
    assert held(home.path) == set(PLANTED)
    dry = home.run("forget", ask_id, "--dry-run")
    assert "would erase" in dry.out
    assert holders(home.path, QUESTION, WORDS)
    assert home.run("forget", ask_id).code == 2  # nobody to ask, and no --yes
    forget(home, ask_id)
    assert holders(home.path, QUESTION, DETAIL, WORDS) == {}  # while the hub runs
    listed = home.run("asks", "--all", "--json").json["asks"][0]
    assert listed["question"] == "(the text is not kept any more)"
    assert listed["answer"] is None
    assert home.run("forget", "--session", NAME, "--yes").code == 0
    assert home.run("hub", "backup", f"{home.path}/after").code == 0
    assert holders(home.path, *PLANTED) == {}
    home.run("hub", "stop")
    assert holders(home.path, *PLANTED) == {}
    with home.database() as db:
        events = db.execute("SELECT event, ask_id FROM audit ORDER BY id").fetchall()
        assert audit_break(db) is None
    assert ("closed", ask_id) in events
    assert ("forgotten", ask_id) in events
    assert "nothing to forget" in home.run("forget", ask_id, "--yes").out


def test_before_a_time_forgets_what_had_ended_by_then(home: Home) -> None:
    home.start_hub()
    planted(home)
    still = home.hand_over("Still open?", "-o", "yes")
    assert "nothing" in home.run("forget", "--before", "1h", "--yes").out
    done = forget(home, "--before", "0s")
    assert "1 open question kept" in done.err
    assert holders(home.path, QUESTION, DETAIL, WORDS, NOTICE, TITLE) == {}
    assert home.ask_state(still)["question"] == "Still open?"
    for bad in ("yesterday", "2999-01-01", ""):
        assert home.run("forget", "--before", bad, "--yes").code == 2, bad


def test_what_is_open_or_unknown_is_not_forgotten(home: Home) -> None:
    home.start_hub()
    ask_id = home.hand_over("Open?", "-o", "yes")
    done = home.run("forget", ask_id, "--yes")
    assert done.code == 2
    assert "still open" in done.err
    assert home.run("forget", "azzzzzzzzzzzz", "--yes").code == 2
    assert home.run("forget", "--yes").code == 2
    assert home.run("forget", "--session", "nobody", "--yes").code == 2
    with home.line() as line:
        assert line.refused("forget", asks=[ask_id]) == "not_permitted"
    assert home.ask_state(ask_id)["question"] == "Open?"


def test_attached_files_go_with_their_session(home: Home) -> None:
    home.start_hub()
    program = home.start_python(SESSION.replace(", project=sys.argv[1]", ""), "x")
    program.line("up", on="out")
    eventually(lambda: holders(home.state, FILE), what="the attachment")
    with home.line("control") as line:
        session_id = line.ok("sessions")["sessions"][0]["session_id"]
    program.abandon()

    def gone() -> bool:
        with home.line("control") as line:
            return not line.ok("sessions")["sessions"]

    eventually(gone, within_s=20, what="the session's end")
    forget(home, "--session", session_id)
    assert holders(home.state, FILE) == {}


def test_older_copies_beside_the_database_are_named(home: Home) -> None:
    home.start_hub()
    ask_id = planted(home)
    home.run("hub", "backup", f"{home.path}/x")
    assert home.run("hub", "restore", f"{home.path}/x", "--yes").code == 0
    done = forget(home, ask_id)
    assert "hub.db.replaced-" in done.err
    assert "backups made before" in done.err


# --- retention -----------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_retention_leaves_no_byte_of_a_text(tmp_path: Path) -> None:
    folder = f"/tmp/ur{os.getpid()}"
    os.mkdir(folder, 0o700)
    try:
        path, now_ms = f"{folder}/hub.db", 2_000 * DAY_MS
        store = Store.open(path)
        (secure,) = store._connection.execute("PRAGMA secure_delete").fetchone()
        assert secure == 1
        session, at_ms = SessionId("s1"), now_ms - 31 * DAY_MS
        await store.commit(
            [
                SessionRow(session_id=session, kind="sdk", conversation="c"),
                AskRow(
                    ask_id=AskId("a" + "0" * 12),
                    session_id=session,
                    action_id=ActionId("x"),
                    state="closed",
                    spec=AskSpec(question=QUESTION, detail=DETAIL * 2000),
                    revision=Revision("r"),
                    raised_ms=at_ms,
                    closed_ms=at_ms,
                    outcome="answered",
                    answer=Selection(text=WORDS),
                ),
                AuditRow(at_ms=at_ms, event="closed", ask_id=None, session_id=None, facts={}),
                NoticeRow(id=1, session_id=session, kind="info", text=NOTICE, at_ms=at_ms),
                NoticeRow(id=2, session_id=session, kind="info", text="new", at_ms=now_ms),
            ]
        )
        await store.retain(now_ms, text_days=60)
        assert held(folder) == set(PLANTED[:4])
        await store.retain(now_ms, text_days=30)
        assert holders(folder, *PLANTED) == {}
        await store.close()
        assert holders(folder, *PLANTED) == {}
        backup.copy(path, str(tmp_path / "copy"))
        assert holders(str(tmp_path), *PLANTED) == {}
        with sqlite3.connect(path) as db:
            assert db.execute("SELECT count(*) FROM ask").fetchone() == (1,)
            assert audit_break(db) is None
        db.close()
    finally:
        shutil.rmtree(folder)


@pytest.mark.asyncio
async def test_retention_reaches_votes_held_words_given_up_cards_and_the_newest_notice() -> (
    None
):
    folder = tempfile.mkdtemp(prefix="ur", dir="/tmp")
    try:
        os.chmod(folder, 0o700)
        path, now_ms = f"{folder}/hub.db", 2_000 * DAY_MS
        store = Store.open(path)
        session, at_ms = SessionId("s1"), now_ms - 31 * DAY_MS
        ask_id = AskId("a" + "0" * 12)
        await store.commit(
            [
                SessionRow(session_id=session, kind="sdk", conversation="c"),
                AskRow(
                    ask_id=ask_id,
                    session_id=session,
                    action_id=ActionId("x"),
                    state="closed",
                    spec=AskSpec(question="q"),
                    revision=Revision("r"),
                    raised_ms=at_ms,
                    closed_ms=at_ms,
                    outcome="answered",
                ),
                VoteRow(
                    ask_id=ask_id,
                    person="ada",
                    channel="chat",
                    name="ada",
                    selection=Selection(text=WORDS),
                    inbound=1,
                    at_ms=at_ms,
                ),
                HeldText(
                    id=1,
                    channel="chat",
                    place="p",
                    session_id="s1",
                    event_key="k",
                    identity="1",
                    name=None,
                    text=DETAIL,
                    at_ms=at_ms,
                ),
                DeliveryRow(
                    id=1,
                    effect="post:1",
                    kind="post",
                    lane="ask",
                    target="chat",
                    place="p",
                    state="dead",
                    body=QUESTION.encode(),
                    ask_id=ask_id,
                    created_ms=at_ms,
                    error=TITLE,
                ),
                NoticeRow(id=1, session_id=session, kind="info", text=NOTICE, at_ms=at_ms),
            ]
        )
        await store.retain(now_ms, text_days=60)
        assert held(folder) == {WORDS, DETAIL, QUESTION, NOTICE, TITLE}
        await store.retain(now_ms, text_days=30)
        assert holders(folder, *PLANTED) == {}
        await store.close()
        assert holders(folder, *PLANTED) == {}
    finally:
        shutil.rmtree(folder)


def test_the_configuration_decides_how_long(home: Home) -> None:
    home.write_config("[retention]\ntext_days = 1\nfiles_days = 1\naudit_days = 2\n")
    home.start_hub()
    planted(home)
    home.run("hub", "stop")
    then_ms = int(time.time() * 1000) - int(1.5 * DAY_MS)
    with sqlite3.connect(f"{home.state}/hub.db") as db:
        db.execute("UPDATE ask SET closed_ms = ?, raised_ms = ?", (then_ms, then_ms))
    db.close()
    old = f"{home.state}/hub.db.before-0.0.1"
    shutil.copy(f"{home.state}/hub.db", old)
    os.utime(old, (then_ms / 1000, then_ms / 1000))
    home.start_hub()

    def gone() -> bool:
        return holders(home.state, QUESTION, WORDS) == {}

    eventually(gone, what="the retention of the start")
    assert not os.path.exists(old)
    home.write_config("[retention]\ntext_days = 400\naudit_days = 30\n")
    assert "audit_days" in home.run("config", "check").err


def test_only_old_copies_are_swept(tmp_path: Path) -> None:
    path = str(tmp_path / "hub.db")
    for name in ("hub.db", "hub.db.before-1", "hub.db.replaced-2", "hub.db.epoch", "other"):
        (tmp_path / name).write_text("x")
        os.utime(tmp_path / name, (1000, 1000))
    os.utime(f"{path}.replaced-2", (3000, 3000))
    assert [os.path.basename(one) for one in copies(path)] == [
        "hub.db.before-1",
        "hub.db.replaced-2",
    ]
    assert sweep_copies(path, 2000) == [f"{path}.before-1"]
    assert os.path.exists(path)
