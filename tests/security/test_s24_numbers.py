"""S24: what is up and how much waits is told to strangers as little as can be."""

import re
from datetime import UTC
from typing import Final

import pytest

from fakes.kernel_rig import Rig, ask_id, asker, channel
from fakes.web_client import client_of, running
from fakes.web_hub import FakeHub
from upcall.model.ask import AskSpec
from upcall.model.events import AskRaised
from upcall.model.ids import SessionId
from upcall.model.views import HealthView, Problem
from upcall_adapters.web.metrics import LABELS, metrics_text

PLANTED: Final = ("sekrit", "shop-repo", "/home/ada", "grace", "chat-77")
_LINE: Final = re.compile(r"([a-z_]+)(?:\{([^}]*)\})? (-?[0-9.e+-]+)")
_PAIR: Final = re.compile(r'([a-z]+)="([^"]*)"')
ROUTES: Final = ("/healthz", "/readyz", "/metrics")


def crowd() -> HealthView:
    """Return the health of a hub with 200 sessions whose every word is planted."""
    rig = Rig(channel("telegram"), channel("slack"), zone=UTC)
    for number in range(200):
        spec = AskSpec(question=f"sekrit {number}", options=("sekrit yes", "no"))
        who = asker(1000 + number, parent=f"{number}:p", name=f"chat-77 {number}")
        rig.do(
            AskRaised(
                at=rig.now, waiter=rig.waiter(), ask_id=ask_id(number), spec=spec, asker=who
            )
        )
    rig.up(SessionId("sekrit-session"))
    rig.answer(3, on="telegram")
    return HealthView(
        ready=False,
        degraded=(Problem("config_invalid", "/home/ada/config: sekrit"),),
        channels=tuple(rig.kernel.channels()),
        sessions=len(rig.kernel.sessions()),
        open_asks=len(rig.kernel.open_rows()),
        deliveries_waiting=rig.kernel.waiting_deliveries(),
        started_ms=1_800_000_000_000,
        discovered=201,
        attached=200,
        dead_letters=2,
        numbers=rig.kernel.numbers(rig.now),
        commit_p50_s=0.001,
        commit_p99_s=0.002,
    )


def test_numbers_name_no_session_repository_path_person_or_chat() -> None:
    health = crowd()
    text = metrics_text(health, 1, 1_800_000_100_000)
    assert not any(word in text for word in PLANTED)
    seen: dict[str, set[str]] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            assert re.fullmatch(r"# (HELP [a-z_]+ .+|TYPE [a-z_]+ (gauge|counter))", line)
            continue
        found = _LINE.fullmatch(line)
        assert found is not None, line
        for name, value in _PAIR.findall(found[2] or ""):
            seen.setdefault(name, set()).add(value)
    assert set(seen) <= LABELS
    assert seen["channel"] == {"telegram", "slack"}
    assert seen["lane"] == {"ask", "outcome", "text", "live", "idle"}
    # Two hundred sessions make not one line more than one does.
    assert len(text.splitlines()) < 120


def test_numbers_say_what_is_so() -> None:
    text = metrics_text(crowd(), 1, 1_800_000_100_000)
    for line in (
        "upcall_ready 0",
        "upcall_problems 1",
        "upcall_sessions_discovered 201",
        "upcall_sessions_attached 200",
        "upcall_open_asks 200",
        "upcall_claimed_asks 1",
        "upcall_dead_letters 2",
        'upcall_commit_seconds{quantile="0.99"} 0.002',
        'upcall_channel_hears{channel="telegram"} 1',
    ):
        assert f"\n{line}\n" in f"\n{text}", line
    waiting = re.search(r'upcall_lane_waiting\{lane="ask"\} (\d+)', text)
    assert waiting is not None
    assert int(waiting[1]) > 200


@pytest.mark.asyncio
async def test_health_is_ok_or_not_and_nothing_else() -> None:
    hub = FakeHub()
    hub.raise_ask("sekrit question")
    async with running(hub) as inbox, client_of(inbox, signed_in=False) as page:
        for ready, status, body in ((True, 200, b"ok\n"), (False, 503, b"not ok\n")):
            hub.ready = ready
            got = await page.get("/readyz", headers={})
            assert (got.status, got.body) == (status, body)
            alive = await page.get("/healthz", headers={})
            assert (alive.status, alive.body) == (200, b"ok\n")
            # Without a token of their own there are no numbers at all.
            assert (await page.get("/metrics", headers={})).status == 404


@pytest.mark.asyncio
async def test_a_page_under_another_name_gets_none_of_them() -> None:
    async with (
        running(FakeHub(), secrets={"metrics_token": "t0ken"}) as inbox,
        client_of(inbox, signed_in=False) as page,
    ):
        for route in ROUTES:
            for host in ("evil.example", "evil.example:8737", "127.0.0.1.evil.example"):
                headers = {"Host": host, "Authorization": "Bearer t0ken"}
                assert (await page.get(route, headers=headers)).status == 403


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer t0ke"},
        {"Authorization": "Bearer t0kenn"},
        {"Authorization": "Basic t0ken"},
        {"Authorization": "bearer t0ken"},
        {"Cookie": "token=t0ken"},
    ],
    ids=repr,
)
async def test_numbers_need_their_token(given: dict[str, str]) -> None:
    async with (
        running(FakeHub(), secrets={"metrics_token": "t0ken"}) as inbox,
        client_of(inbox, signed_in=False) as page,
    ):
        assert (await page.get("/metrics", headers=given)).status == 401
        assert (await page.get("/metrics?token=t0ken", headers=given)).status == 401
        right = {"Authorization": "Bearer t0ken"}
        assert (await page.get("/metrics", headers=right)).status == 200
