"""A whole hub: real sockets, kernel and store; channels of the tests' own; time by hand."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakes.hub_rig import ADA, ScriptedAdapter, WholeHub, ask_id, asking, loaded
from fakes.hub_shells import LineClient, short_folder
from upcall.config import ChannelConfig, Config, HubConfig
from upcall.hub import hub_json
from upcall.hub.loop import LAZY_S
from upcall.model.errors import NotSent
from upcall.model.events import RootChanged
from upcall.model.platform import Answered, ChannelState, Receipt
from upcall_discovery import paths


@pytest.fixture
def root() -> Iterator[str]:
    with short_folder() as folder:
        yield folder


@pytest.fixture
def no_idle_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPCALL_IDLE_EXIT_S", "0")


pytestmark = [pytest.mark.asyncio, pytest.mark.usefixtures("no_idle_exit")]


def answer(number: int = 1, index: int = 0) -> Answered:
    return Answered(
        key=f"k{number}", ask=ask_id(number), revision=None, who=ADA, indices=(index,)
    )


def shows(adapter: ScriptedAdapter) -> bool:
    return len(adapter.posts) == 1


def says_taken(adapter: ScriptedAdapter) -> bool:
    return bool(adapter.edits) and "took it" in adapter.card().state_line


async def put(adapter: ScriptedAdapter, act: Answered) -> Receipt:
    assert adapter.inbox is not None
    return await adapter.inbox.put(act)


async def event(client: LineClient, name: str) -> dict[str, Any]:
    """Return the next event called *name*."""
    while (line := await client.receive()).get("event") != name:
        pass
    return line


async def request(client: LineClient, op: str, **fields: Any) -> dict[str, Any]:
    """Return the answer to a request."""
    client.send({"id": 77, "op": op, **fields})
    while (line := await client.receive()).get("id") != 77:
        pass
    return line


async def committed(hub: WholeHub) -> int:
    """Return the number of commits when nothing is on its way, retention included."""
    hub.hub.submit(RootChanged(at=hub.hub.moment(), waiter=0, path="/nowhere", gone=True))
    await hub.hub.loop.settled()
    return hub.store.commits


# --- an ask's life ---


async def test_an_ask_is_answered_on_a_channel_and_taken(root: str) -> None:
    web, chat = ScriptedAdapter(), ScriptedAdapter()
    async with WholeHub(root, [loaded("web", web), loaded("chat", chat)]) as hub:
        client = await hub.client("ask")
        raised = await client.ask(asking(1))
        assert raised["ok"] is True
        assert raised["ask"]["id"] == ask_id(1)
        for adapter in (web, chat):
            await adapter.until(partial(shows, adapter))
        receipt = await put(chat, answer())
        assert receipt.ok
        ended = await event(client, "ended")
        assert ended["result"]["outcome"] == "answered"
        assert ended["result"]["answer"]["labels"] == ["yes"]
        assert ended["result"]["answered_by"] == {"name": "Ada", "channel": "chat"}
        took = await request(client, "took", ask=ask_id(1))
        assert took["result"]["outcome"] == "answered"
        for adapter in (web, chat):
            await adapter.until(partial(says_taken, adapter))
        late = await put(web, answer(2))
        assert late.code == "unknown_ask"
        late = await put(
            web, Answered(key="late", ask=ask_id(1), revision=None, who=ADA, indices=(1,))
        )
        assert late.code == "already_answered"


async def test_an_ask_reaches_the_adapter_with_one_commit_and_ends_with_at_most_five(
    root: str,
) -> None:
    web = ScriptedAdapter()
    async with WholeHub(root, [loaded("web", web)]) as hub:
        client = await hub.client("ask")
        before = await committed(hub)
        at_post: list[int] = []
        web.at_post = lambda: at_post.append(hub.store.commits - before)
        await client.ask(asking(1))
        await web.until(lambda: bool(web.posts))
        assert at_post == [1]
        assert web.posts[0][2].attempt == 1
        await put(web, answer())
        await event(client, "ended")
        await request(client, "took", ask=ask_id(1))
        await web.until(partial(says_taken, web))
        await hub.clock.settle()
        await hub.clock.advance(LAZY_S)
        await client.close()
        await hub.hub.loop.settled()
        assert hub.hub.health().deliveries_waiting == 0
        assert 0 < hub.store.commits - before <= 5


async def test_the_asker_hears_where_its_ask_is_shown(root: str) -> None:
    web = ScriptedAdapter()
    web.script = [NotSent("no route"), None]
    async with WholeHub(root, [loaded("web", web)]) as hub:
        client = await hub.client("ask")
        raised = await client.ask(asking(1))
        assert [one["state"] for one in raised["channels"]] == ["sending"]
        await web.until(lambda: len(web.posts) == 1)
        await hub.hub.loop.settled()
        await hub.clock.advance(2.0)
        assert [one["state"] for one in (await event(client, "channels"))["channels"]] == [
            "delivered"
        ]
        assert [key.attempt for _, _, key in web.posts] == [1, 1]


async def test_a_defect_in_drawing_a_card_ends_neither_the_ask_nor_the_hub(root: str) -> None:
    def fail(*_: object) -> Any:
        raise ZeroDivisionError

    bad, web = ScriptedAdapter(), ScriptedAdapter()
    broken = loaded("bad", bad)
    object.__setattr__(broken.spec, "lower", fail)
    async with WholeHub(root, [broken, loaded("web", web)]) as hub:
        client = await hub.client("ask")
        await client.ask(asking(1))
        await web.until(lambda: bool(web.posts))
        await put(web, answer())
        assert (await event(client, "ended"))["result"]["outcome"] == "answered"
        assert bad.posts == []
        assert hub.log.of("adapter_defect")


# --- the end, and the next life ---


async def test_it_stops_when_told_to_and_says_so_in_its_file(root: str) -> None:
    async with WholeHub(root, [loaded("web", ScriptedAdapter())]) as hub:
        running = hub_json.read(hub.state)
        assert running is not None
        assert (running.pid, running.ended_ms) == (os.getpid(), None)
        client = await hub.client()
        stopped = await request(client, "stop", reason="upgrade")
        assert stopped["ok"] is True
        await hub.ended()
        assert hub.hub.stop_reason == "upgrade"
        ended = hub_json.read(hub.state)
        assert ended is not None
        assert ended.ended_ms is not None
        assert ended.last_error is None
        assert not any(os.path.lexists(path) for path in paths.socket_paths(hub.state))


async def test_it_stops_by_a_signal(root: str) -> None:
    async with WholeHub(root, [loaded("web", ScriptedAdapter())]) as hub:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, hub.hub.ask_to_stop, "signal SIGTERM")
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            await hub.ended()
        finally:
            loop.remove_signal_handler(signal.SIGTERM)
        assert hub.hub.stop_reason == "signal SIGTERM"


async def test_what_was_queued_before_the_stop_is_committed_and_answered(root: str) -> None:
    async with WholeHub(root, [loaded("web", ScriptedAdapter())]) as hub:
        client = await hub.client()
        client.send(asking(1, wait=False))
        client.send({"id": 2, "op": "stop"})
        lines = [await client.receive(), await client.receive()]
        assert sorted(line["id"] for line in lines) == [1, 2]
        assert all(line["ok"] for line in lines)
        await hub.ended()
    async with WholeHub(root, [loaded("web", ScriptedAdapter())]) as again:
        assert [row.ask_id for row in again.hub.kernel.open_rows()] == [ask_id(1)]


async def test_a_stopping_hub_waits_for_the_call_that_is_under_way(root: str) -> None:
    web, stuck = ScriptedAdapter(), asyncio.Event()
    web.script = [stuck]
    async with WholeHub(root, [loaded("web", web, repeat="none")]) as hub:
        client = await hub.client()
        await client.ask(asking(1, wait=False))
        await web.until(lambda: bool(web.posts))
        hub.hub.ask_to_stop("test")
        await hub.clock.settle()
        assert not hub.task.done()
        stuck.set()
        await hub.ended()
    second = ScriptedAdapter()
    async with WholeHub(root, [loaded("web", second, repeat="none")]) as again:
        await again.hub.loop.settled()
        assert second.posts == []
        assert again.hub.health().deliveries_waiting == 0


async def test_a_stopping_hub_does_not_wait_for_ever(root: str) -> None:
    web = ScriptedAdapter()
    web.script = [asyncio.Event()]
    async with WholeHub(root, [loaded("web", web)]) as hub:
        client = await hub.client()
        await client.ask(asking(1, wait=False))
        await web.until(lambda: bool(web.posts))
        hub.hub.ask_to_stop("test")
        await hub.clock.until_waited(5.0)
        await hub.clock.advance(5.0)
        await hub.ended()
        assert hub.log.of("stopped_with_work_left")


async def test_the_next_life_has_the_same_asks_and_posts_no_card_twice(root: str) -> None:
    first = ScriptedAdapter()
    async with WholeHub(root, [loaded("web", first)]) as hub:
        client = await hub.client()
        for number in (1, 2):
            await client.ask(asking(number, wait=False))
        await first.until(lambda: len(first.posts) == 2)
        await hub.hub.loop.settled()
    second = ScriptedAdapter()
    async with WholeHub(root, [loaded("web", second)]) as again:
        client = await again.client()
        listed = await request(client, "asks", state="open")
        assert sorted(view["id"] for view in listed["asks"]) == [ask_id(1), ask_id(2)]
        answered = await request(client, "answer", ask=ask_id(1), values=["no"])
        assert answered["result"]["outcome"] == "answered"
        await second.until(lambda: bool(second.edits))
        assert second.posts == []
        assert {ref for ref, _ in second.edits} == {f"ref:post:{ask_id(1)}:web:0"}


async def test_an_asker_finds_its_open_ask_again_in_the_next_life(root: str) -> None:
    async with WholeHub(root, [loaded("web", ScriptedAdapter())]) as hub:
        client = await hub.client("ask")
        await client.ask(asking(1))
        await hub.crash()
    web = ScriptedAdapter()
    async with WholeHub(root, [loaded("web", web)]) as again:
        client = await again.client("ask")
        raised = await client.ask(asking(1))
        assert raised["ok"] is True
        assert raised["existing"] is True
        assert raised["ask"]["state"] == "open"
        await put(web, answer())
        assert (await event(client, "ended"))["result"]["answer"]["labels"] == ["yes"]


@pytest.mark.parametrize(("repeat", "is_marked"), [("harmless", False), ("none", True)])
async def test_what_was_under_way_at_a_crash_is_sent_again_and_marked(
    root: str, repeat: str, is_marked: bool
) -> None:
    first = ScriptedAdapter()
    first.script = [asyncio.Event()]
    async with WholeHub(root, [loaded("web", first, repeat=repeat)]) as hub:
        client = await hub.client()
        await client.ask(asking(1, wait=False))
        await first.until(lambda: bool(first.posts))
        await hub.crash()
    second = ScriptedAdapter()
    async with WholeHub(root, [loaded("web", second, repeat=repeat)]) as again:
        await second.until(lambda: bool(second.posts))
        await again.hub.loop.settled()
        assert [key.attempt for _, _, key in second.posts] == [2]
        before, after = (msgspec.json.decode(one.posts[0][1].data) for one in (first, second))
        if is_marked:
            mark = after["blocks"].pop(0)
            words = mark["spans"][0]["text"]
            assert words.startswith("This may be a repeat:")
            after["plain"] = after["plain"].removeprefix(f"{words}\n")
        assert after == before


async def test_an_answer_on_its_way_at_a_crash_reaches_the_asker_in_the_next_life(
    root: str,
) -> None:
    web = ScriptedAdapter()
    async with WholeHub(root, [loaded("web", web)]) as hub:
        client = await hub.client("ask")
        await client.ask(asking(1))
        await put(web, answer())
        await event(client, "ended")
        await hub.crash()
    async with WholeHub(root, [loaded("web", ScriptedAdapter())]) as again:
        client = await again.client("ask")
        await client.ask(asking(1))
        assert (await event(client, "ended"))["result"]["answer"]["labels"] == ["yes"]
        took = await request(client, "took", ask=ask_id(1))
        assert took["result"]["outcome"] == "answered"


# --- idle ---


def idle_after(seconds: float, *names: str) -> Config:
    channels = {name: ChannelConfig("fake") for name in names or ("web",)}
    return Config(hub=HubConfig(idle_exit_s=seconds), channels=channels)


def embedded(name: str, adapter: ScriptedAdapter) -> Any:
    """Return a channel that does not keep a hub alive."""
    channel = loaded(name, adapter)
    object.__setattr__(channel.spec, "name", name)
    return channel


@pytest.fixture
def may_idle(no_idle_exit: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("UPCALL_IDLE_EXIT_S", "INVOCATION_ID", "XPC_SERVICE_NAME"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("may_idle")
async def test_with_nothing_to_do_it_ends_after_the_time_that_is_configured(root: str) -> None:
    channels = [embedded("web", ScriptedAdapter())]
    async with WholeHub(root, channels, config=idle_after(600.0)) as hub:
        await hub.clock.until_waited(1.0)
        await hub.clock.advance(598.0)
        assert not hub.task.done()
        assert hub.hub.stop_reason == ""
        await hub.clock.advance(3.0)
        await hub.ended()
        assert "600 s" in hub.hub.stop_reason


@pytest.mark.usefixtures("may_idle")
async def test_an_open_ask_keeps_it_alive_and_its_end_starts_the_time(root: str) -> None:
    web = ScriptedAdapter()
    async with WholeHub(root, [embedded("web", web)], config=idle_after(60.0)) as hub:
        client = await hub.client("ask")
        await client.ask(asking(1, wait=False))
        await client.close()
        await web.until(lambda: bool(web.posts))
        await hub.hub.loop.settled()
        await hub.clock.advance(300.0)
        assert hub.hub.stop_reason == ""
        await put(web, answer())
        await web.until(lambda: bool(web.edits))
        await hub.hub.loop.settled()
        await hub.clock.advance(2.0)
        await hub.hub.loop.settled()
        assert hub.hub.health().deliveries_waiting == 0
        await hub.clock.advance(57.0)
        assert hub.hub.stop_reason == ""
        await hub.clock.advance(5.0)
        await hub.ended()


@pytest.mark.usefixtures("may_idle")
async def test_a_client_keeps_it_alive(root: str) -> None:
    channels = [embedded("web", ScriptedAdapter())]
    async with WholeHub(root, channels, config=idle_after(60.0)) as hub:
        await hub.client()
        await hub.clock.advance(300.0)
        assert hub.hub.stop_reason == ""


@pytest.mark.usefixtures("may_idle")
async def test_an_open_page_keeps_it_alive(root: str) -> None:
    web = ScriptedAdapter()
    async with WholeHub(root, [embedded("web", web)], config=idle_after(60.0)) as hub:
        assert web.inbox is not None
        web.inbox.state(ChannelState(hearing=True, audience=1))
        await hub.hub.loop.settled()
        await hub.clock.advance(300.0)
        assert hub.hub.stop_reason == ""
        web.inbox.state(ChannelState(hearing=True, audience=0))
        await hub.hub.loop.settled()
        await hub.clock.advance(62.0)
        await hub.ended()


@pytest.mark.usefixtures("may_idle")
async def test_a_channel_besides_web_and_terminal_keeps_it_alive(root: str) -> None:
    channels = [loaded("chat", ScriptedAdapter())]
    async with WholeHub(root, channels, config=idle_after(60.0, "chat")) as hub:
        await hub.clock.advance(300.0)
        assert hub.hub.stop_reason == ""


@pytest.mark.usefixtures("may_idle")
async def test_a_service_does_not_end_by_itself(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INVOCATION_ID", "1")
    channels = [embedded("web", ScriptedAdapter())]
    async with WholeHub(root, channels, config=idle_after(60.0)) as hub:
        await hub.clock.advance(300.0)
        assert hub.hub.stop_reason == ""
        assert hub.hub.status()["service"] is True


@pytest.mark.usefixtures("may_idle")
@pytest.mark.parametrize(
    ("given", "idle_s"), [("5", 5.0), ("0", None), ("soon", 600.0), ("-1", None), ("nan", None)]
)
async def test_the_environment_may_set_the_time(
    root: str, monkeypatch: pytest.MonkeyPatch, given: str, idle_s: float | None
) -> None:
    monkeypatch.setenv("UPCALL_IDLE_EXIT_S", given)
    channels = [embedded("web", ScriptedAdapter())]
    async with WholeHub(root, channels, config=idle_after(600.0)) as hub:
        assert hub.hub.status()["idle_exit_s"] == idle_s
        if idle_s == 5.0:
            await hub.clock.until_waited(1.0)
            await hub.clock.advance(7.0)
            await hub.ended()


# --- what it says of itself ---


async def test_the_status_document_has_all_that_is_promised(root: str) -> None:
    async with WholeHub(root, [loaded("web", ScriptedAdapter())]) as hub:
        client = await hub.client()
        await client.ask(asking(1, wait=False))
        status = await request(client, "status")
        assert set(status) - {"id", "ok"} >= {
            "pid",
            "version",
            "protocol",
            "started_ms",
            "state_dir",
            "runtime_dir",
            "web_url",
            "ready",
            "degraded",
            "channels",
            "sessions",
            "open_asks",
            "deliveries_waiting",
            "store",
            "idle_exit_s",
            "service",
        }
        assert status["pid"] == os.getpid()
        assert status["open_asks"] == 1
        assert status["sessions"] == 1
        assert {"size_bytes", "commits"} <= set(status["store"])
        [channel] = status["channels"]
        assert {"name", "state", "audience", "reason", "heard_ms"} <= set(channel)


async def test_a_channel_that_does_not_hear_is_told_with_the_reason(root: str) -> None:
    web = ScriptedAdapter()
    web.runs = [ValueError("wrong token")]
    async with WholeHub(root, [loaded("web", web)]) as hub:
        await hub.log.until("adapter_ended")
        await hub.hub.loop.settled()
        client = await hub.client()
        status = await request(client, "status")
        assert status["ready"] is False
        [problem] = status["degraded"]
        assert problem["code"] == "channel_deaf"
        assert "wrong token" in problem["msg"]


# --- roots ---


async def test_roots_are_added_listed_and_removed(root: str) -> None:
    shop = Path(root, "shop")
    shop.mkdir()
    async with WholeHub(root, [loaded("web", ScriptedAdapter())]) as hub:
        client = await hub.client()
        added = await request(client, "roots", action="add", path=str(shop))
        assert [one["path"] for one in added["roots"]] == [str(shop)]
        again = await request(client, "roots", action="add", path=str(shop))
        assert [one["path"] for one in again["roots"]] == [str(shop)]
    async with WholeHub(root, [loaded("web", ScriptedAdapter())]) as later:
        client = await later.client()
        listed = await request(client, "roots", action="list")
        assert [one["path"] for one in listed["roots"]] == [str(shop)]
        removed = await request(client, "roots", action="remove", path=str(shop))
        assert removed["roots"] == []
        gone = await request(client, "roots", action="remove", path=str(shop))
        assert "not registered" in gone["error"]["msg"]


async def test_a_root_by_a_link_is_the_folder_itself(root: str) -> None:
    shop = Path(root, "shop")
    shop.mkdir()
    Path(root, "link").symlink_to(shop)
    async with WholeHub(root, [loaded("web", ScriptedAdapter())]) as hub:
        client = await hub.client()
        added = await request(client, "roots", action="add", path=f"{root}/link")
        assert [one["path"] for one in added["roots"]] == [str(shop)]
        removed = await request(client, "roots", action="remove", path=f"{root}/link")
        assert removed["roots"] == []


async def test_what_is_no_folder_is_no_root(root: str) -> None:
    Path(root, "file").touch()
    async with WholeHub(root, [loaded("web", ScriptedAdapter())]) as hub:
        client = await hub.client()
        for path in (f"{root}/missing", f"{root}/file", "shop", "../shop"):
            refused = await request(client, "roots", action="add", path=path)
            assert refused["error"]["code"] == "usage"
        assert hub.hub.kernel.roots() == []


async def test_a_root_that_vanished_can_be_removed(root: str) -> None:
    shop = Path(root, "shop")
    shop.mkdir()
    async with WholeHub(root, [loaded("web", ScriptedAdapter())]) as hub:
        client = await hub.client()
        await request(client, "roots", action="add", path=str(shop))
        shop.rmdir()
        removed = await request(client, "roots", action="remove", path=str(shop))
        assert removed["roots"] == []


# --- reload ---


@pytest.fixture
def config_file(root: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", f"{root}/c")
    path = Path(root, "c", "upcall", "config.toml")
    path.parent.mkdir(parents=True)
    return path


def as_loaded(config_file: Path, text: str) -> Config:
    from upcall.config import load

    config_file.write_text(text)
    config_file.chmod(0o600)
    return load()


async def test_reload_names_the_tables_that_differ(root: str, config_file: Path) -> None:
    before = as_loaded(config_file, '[operators.ann]\nidentities = {web = "ann"}\n')
    channels = [embedded("web", ScriptedAdapter())]
    async with WholeHub(root, channels, config=before) as hub:
        client = await hub.client()
        same = await request(client, "reload")
        assert (same["changed"], same["restart_needed"]) == ([], False)
        as_loaded(
            config_file,
            "[hub]\nmachine_name = 'box'\n[web]\nenabled = false\n"
            "[channels.terminal]\nenabled = false\n[operators.bob]\n"
            "[policy]\nlocal_answers = 'any'\n",
        )
        other = await request(client, "reload")
        assert other["restart_needed"] is True
        assert other["changed"] == [
            "hub",
            "policy",
            "channels.terminal",
            "web",
            "operators.ann",
            "operators.bob",
        ]
        assert other["problems"] == []
        assert hub.hub.kernel.machine != "box"


async def test_reload_tells_what_is_wrong_with_a_channel(root: str, config_file: Path) -> None:
    before = as_loaded(config_file, "")
    channels = [embedded("web", ScriptedAdapter())]
    async with WholeHub(root, channels, config=before) as hub:
        as_loaded(config_file, "[channels.chat]\nadapter = 'nosuch'\n")
        client = await hub.client()
        told = await request(client, "reload")
        assert told["changed"] == ["channels.chat"]
        [problem] = told["problems"]
        assert "nosuch" in problem["msg"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[hub]\nidle_exit = 5\n", ":2: unknown key 'hub.idle_exit'; did you mean"),
        ("\n[hub]\nidle_exit_s = 'soon'\n", ":3: hub.idle_exit_s"),
        ("[policy\n", "not TOML"),
    ],
)
async def test_reload_of_a_broken_file_names_file_line_and_key(
    root: str, config_file: Path, text: str, words: str
) -> None:
    before = as_loaded(config_file, "")
    channels = [embedded("web", ScriptedAdapter())]
    async with WholeHub(root, channels, config=before) as hub:
        config_file.write_text(text)
        client = await hub.client()
        refused = await request(client, "reload")
        assert refused["ok"] is False
        assert refused["error"]["code"] == "config_invalid"
        assert str(config_file) in refused["error"]["msg"]
        assert words in refused["error"]["msg"]
        assert "stays in force" in refused["error"]["msg"]
        as_loaded(config_file, "")
        assert (await request(client, "reload"))["changed"] == []


# --- a real process ---

FULL_DISK = """
import sys
from upcall.hub import daemon
real = daemon.Store.open
daemon.Store.open = lambda path, **options: real(path, max_pages=600, **options)
sys.exit(daemon.main(False))
"""


async def test_a_full_disk_ends_the_hub_with_a_clear_sentence(root: str) -> None:
    env = {
        **os.environ,
        "XDG_STATE_HOME": f"{root}/st",
        "XDG_RUNTIME_DIR": f"{root}/rt",
        "XDG_CONFIG_HOME": f"{root}/co",
    }
    for name in ("st", "rt", "co"):
        Path(root, name).mkdir(mode=0o700)
    state = f"{root}/st/upcall"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", FULL_DISK, env=env, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    client = None
    try:
        said = b""
        while b"hub_started" not in said:
            line = await process.stderr.readline()
            assert line, said
            said += line
        client = await LineClient.connect(paths.socket_paths(state)[0])
        long = "x" * 20_000
        answered = 0
        for number in range(200):
            client.send(asking(number, wait=False, detail=long))
            line = await client.reader.readline()
            if not line:
                break
            assert json.loads(line)["ok"] is True
            answered += 1
        assert 0 < answered < 200
        said += await process.stderr.read()
        assert await process.wait() == 1
    finally:
        if client is not None:
            await client.close()
        if process.returncode is None:
            process.kill()
            await process.wait()
    words = said.decode()
    assert "no room is left" in words
    assert "[store_full]" in words
    assert "free some space" in words
    assert "Traceback" not in words
    file = hub_json.read(state)
    assert file is not None
    assert file.last_error is not None
    assert file.last_error.code == "store_full"
    assert "no room is left" in file.last_error.msg
    assert file.ended_ms is not None
