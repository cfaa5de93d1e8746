"""Parts of the hub's sockets, each alone: workspaces, requests, shortened answers."""

import asyncio
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.hub_shells import ManualClock, short_folder
from upcall.hub import requests
from upcall.hub.desk import shortened
from upcall.hub.peer import Peer
from upcall.hub.workspace import UNKNOWN, Workspace, Workspaces, describe
from upcall.model.errors import AmbiguousLabels, InvalidAsk
from upcall.model.limits import MAX_LINE_BYTES


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as path:
        yield Path(path)


def repository(path: Path, head: str = "ref: refs/heads/main\n") -> Path:
    (path / ".git").mkdir(parents=True)
    (path / ".git" / "HEAD").write_text(head)
    return path


def test_tells_repository_and_branch_from_any_folder_below(folder: Path) -> None:
    top = repository(folder / "shop", "ref: refs/heads/feature/cart\n")
    below = top / "a" / "b"
    below.mkdir(parents=True)
    assert describe(str(below)) == Workspace("shop", "feature/cart")
    assert describe(str(top)) == Workspace("shop", "feature/cart")


def test_a_detached_head_is_its_commit(folder: Path) -> None:
    top = repository(folder / "shop", "0123456789abcdef0123456789abcdef01234567\n")
    assert describe(str(top)) == Workspace("shop", "01234567")


def test_a_worktree_belongs_to_its_repository(folder: Path) -> None:
    main = repository(folder / "shop")
    inner = main / ".git" / "worktrees" / "w"
    inner.mkdir(parents=True)
    (inner / "HEAD").write_text("ref: refs/heads/fix\n")
    tree = folder / "elsewhere"
    tree.mkdir()
    (tree / ".git").write_text(f"gitdir: {inner}\n")
    assert describe(str(tree)) == Workspace("shop", "fix")
    (tree / ".git").write_text("gitdir: ../shop/.git/worktrees/w\n")
    assert describe(str(tree)) == Workspace("shop", "fix")


@pytest.mark.parametrize("head", ["", "garbage", "\0" * 10, "ref:", "x" * 100_000])
def test_a_strange_head_is_no_branch(folder: Path, head: str) -> None:
    top = repository(folder / "shop", head)
    assert describe(str(top)) == Workspace("shop", None)


def test_a_pipe_in_place_of_a_file_does_not_hold_us_up(folder: Path) -> None:
    top = repository(folder / "shop")
    (top / ".git" / "HEAD").unlink()
    os.mkfifo(top / ".git" / "HEAD")
    assert describe(str(top)) == Workspace("shop", None)


@pytest.mark.parametrize("path", ["", "relative", "/no/such/folder", "/\0"])
def test_no_folder_is_unknown(path: str) -> None:
    assert describe(path) == UNKNOWN


@pytest.mark.asyncio
async def test_a_disk_that_does_not_answer_holds_nobody_up(folder: Path) -> None:
    stuck, go_on = threading.Event(), threading.Event()

    def look(path: str) -> Workspace:
        stuck.set()
        go_on.wait(30)
        return Workspace("shop", "main")

    clock = ManualClock()
    places = Workspaces(clock, look)
    first = asyncio.create_task(places.describe("/a"))
    await asyncio.to_thread(stuck.wait)
    clock.advance(0.5)
    assert await first == UNKNOWN
    # The second folder is not even tried while the first one hangs.
    assert await places.describe("/b") == UNKNOWN
    go_on.set()
    places.close()


@pytest.mark.asyncio
async def test_looks_again_only_after_a_while(folder: Path) -> None:
    looked: list[str] = []

    def look(path: str) -> Workspace:
        looked.append(path)
        return Workspace("shop", "main")

    clock = ManualClock()
    places = Workspaces(clock, look)
    assert places.known("/a") is None
    for _ in range(3):
        assert await places.describe("/a") == Workspace("shop", "main")
    assert looked == ["/a"]
    clock.advance(6)
    await places.describe("/a")
    assert looked == ["/a", "/a"]
    places.close()


def test_the_real_thing_agrees_with_git(folder: Path) -> None:
    made = subprocess.run(
        ["git", "init", "-q", "-b", "trunk", str(folder / "shop")], check=False
    )
    if made.returncode != 0:
        pytest.skip("there is no git here")
    assert describe(str(folder / "shop")) == Workspace("shop", "trunk")


def words(**fields: object) -> requests.AskWords:
    line = {"op": "ask", "ask": {"id": "a0123456789ab", "question": "q", **fields}}
    request = requests.read_request("ask", json.dumps(line).encode())
    assert isinstance(request, requests.Ask)
    return request.ask


def test_labels_become_indices() -> None:
    spec = requests.spec_of(words(options=["Yes", "No"], recommended="no", default="Yes"))
    assert spec.recommended == 1
    assert spec.default == "Yes"
    assert spec.free_text is False
    assert requests.spec_of(words()).free_text is True


def test_bounds_are_checked_at_the_door() -> None:
    with pytest.raises(InvalidAsk, match="recommended"):
        requests.spec_of(words(options=["Yes"], recommended="Maybe"))
    with pytest.raises(InvalidAsk, match="timeout"):
        requests.spec_of(words(timeout_s=0))
    with pytest.raises(AmbiguousLabels):
        requests.spec_of(words(options=["Yes", "yes "]))
    with pytest.raises(InvalidAsk, match="permission"):
        requests.spec_of(words(**{"class": "permission"}, options=["a", "b"], default="a"))


@pytest.mark.parametrize(
    ("op", "line", "field"),
    [
        ("ask", {"ask": {"id": "a", "question": 5}}, "question"),
        ("ask", {"ask": {"id": "a", "question": "q", "options": "yes"}}, "options"),
        ("ask", {"ask": {"id": "a", "question": "q", "class": "order"}}, "class"),
        ("ask", {"ask": {"id": "a", "question": "q", "multi": 1}}, "multi"),
        ("ask", {}, "ask"),
        ("wait", {"ask": None}, "ask"),
        ("notify", {"text": ""}, "text"),
        ("answer", {"ask": "a1b2"}, "values"),
        ("answer", {"ask": "a1b2", "values": ["x"], "decline": True}, "values"),
        ("asks", {"limit": 0}, "limit"),
        ("roots", {"action": "add"}, "path"),
        ("login", {"action": "steal"}, "action"),
    ],
)
def test_a_wrong_field_is_named(op: str, line: dict[str, object], field: str) -> None:
    with pytest.raises(requests.InvalidRequest, match=field):
        requests.read_request(op, json.dumps({"op": op, **line}).encode())


def test_hostile_json_is_no_line() -> None:
    assert requests.read_head(b"[" * 100_000) is None
    assert requests.read_head(b"\xff\xfe") is None
    assert requests.read_head(b'"op"') is None
    with pytest.raises(requests.InvalidRequest):
        requests.read_head(b'{"op":7}')
    with pytest.raises(requests.InvalidRequest):
        requests.read_head(b'{"op":"ask","id":"x"}')


def test_session_words_are_cut_and_checked() -> None:
    cut = requests.check_session(requests.SessionWords(title="t" * 500))
    assert cut.title is not None
    assert len(cut.title) == 200
    with pytest.raises(requests.InvalidRequest, match=r"session\.cwd"):
        requests.check_session(requests.SessionWords(cwd="/a\0b"))


def test_a_long_list_loses_details_first_and_then_asks() -> None:
    asks = [{"id": str(n), "detail": "d" * 200_000, "option_details": None} for n in range(8)]
    short = shortened({"id": 1, "ok": True, "asks": asks})
    assert [ask["id"] for ask in short["asks"]] == [str(n) for n in range(8)]
    assert all(ask["detail"] is None for ask in short["asks"])
    many = [{"id": str(n), "question": "q" * 8000} for n in range(500)]
    fits = shortened({"id": 1, "ok": True, "asks": many})
    assert 0 < len(fits["asks"]) < 500
    assert len(json.dumps(fits)) < MAX_LINE_BYTES * 1.1
    assert shortened({"id": 1}) == {"id": 1}


def test_a_peer_of_another_pid_namespace_is_told_by_its_uid_alone() -> None:
    peer = Peer(0, os.getuid())
    asker = peer.asker(cwd="/there", program="script")
    assert (asker.pid, asker.start, asker.parent) == (0, "", "")
    assert (asker.cwd, asker.program) == ("/there", "script")
    who = peer.who()
    assert who.pid is None
    assert who.local
    assert who.identity == str(os.getuid())


def test_a_program_cannot_call_itself_what_it_is_not() -> None:
    peer = Peer(os.getpid(), os.getuid())
    assert peer.asker(program="backup").program != "backup"
    own = Path(f"/proc/{os.getpid()}/comm")
    if own.exists():
        name = own.read_text().strip()
        assert peer.asker(program=name).program == name
    assert peer.asker(cwd="/elsewhere").cwd == str(Path.cwd())
