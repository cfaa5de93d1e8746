"""What waits for a slow client: bounded, in order, live text first to go."""

from upcall.model.frames import Ping, TurnStream
from upcall.session.backlog import Backlog
from upcall.session.guard import is_loopback_host, same_secret
from upcall.session.transport import live_keys


def drained(backlog: Backlog) -> list[bytes]:
    out = []
    while backlog:
        out.append(backlog.pop())
    return out


def test_keeps_order_and_counts_bytes() -> None:
    backlog = Backlog(100)
    assert all([backlog.add(b"one"), backlog.add(b"two", "t"), backlog.add(b"three")])
    assert (len(backlog), backlog.size_bytes) == (3, 11)
    assert drained(backlog) == [b"one", b"two", b"three"]
    assert backlog.size_bytes == 0


def test_newer_live_text_replaces_older_of_the_same_message_only() -> None:
    backlog = Backlog(100)
    for data, key in ((b"a1", "a"), (b"b1", "b"), (b"a2", "a")):
        assert backlog.add(data, key)
    assert backlog.size_bytes == 4
    assert drained(backlog) == [b"b1", b"a2"]


def test_final_text_drops_waiting_live_text() -> None:
    backlog = Backlog(100)
    backlog.add(b"live", "a")
    backlog.forget_live("a")
    backlog.forget_live("b")
    backlog.add(b"final")
    assert drained(backlog) == [b"final"]


def test_drops_live_text_before_it_refuses_an_ask() -> None:
    backlog = Backlog(10)
    assert backlog.add(b"ask1")
    assert backlog.add(b"live1", "a")
    assert backlog.add(b"ask22")
    assert drained(backlog) == [b"ask1", b"ask22"]


def test_live_text_that_does_not_fit_is_dropped_and_nobody_minds() -> None:
    backlog = Backlog(4)
    assert backlog.add(b"ask1")
    assert backlog.add(b"live", "a")
    assert drained(backlog) == [b"ask1"]


def test_says_when_an_ask_does_not_fit() -> None:
    backlog = Backlog(7)
    assert backlog.add(b"ask1")
    assert not backlog.add(b"ask2")
    assert drained(backlog) == [b"ask1"]


def test_clears() -> None:
    backlog = Backlog(7)
    backlog.add(b"ask1")
    backlog.clear()
    assert (len(backlog), backlog.size_bytes) == (0, 0)


def test_only_live_text_may_be_dropped() -> None:
    assert live_keys(Ping(nonce="n")) == (None, None)
    live = TurnStream(session_id="s", phase="live", text="x", message_ref="r")
    assert live_keys(live) == ("r", None)
    final = TurnStream(session_id="s", phase="finalized", text="x", message_ref="r")
    assert live_keys(final) == (None, "r")
    bare = TurnStream(session_id="s", phase="live", text="x")
    assert live_keys(bare)[0] is not None
    assert live_keys(bare)[0] != live_keys(bare)[0]


def test_knows_loopback_hosts_from_others() -> None:
    for host in ("127.0.0.1", "127.0.0.1:80", "127.9.9.9", "LOCALHOST:1", "[::1]", "[::1]:5"):
        assert is_loopback_host(host), host
    for host in (
        "",
        "0.0.0.0",
        "10.0.0.1",
        "localhost.",
        "localhost.evil",
        "127.0.0.1.",
        "::1",
    ):
        assert not is_loopback_host(host), host
    for host in ("[::1", "[::1]5", "[127.0.0.1", "127.0.0.1:x", "127.0.0.1:1:2", "[::2]"):
        assert not is_loopback_host(host), host


def test_compares_secrets_with_any_characters() -> None:
    assert same_secret("abc", "abc")
    for other in ("", "ab", "abcd", "é", "\ud800"):
        assert not same_secret(other, "abc")
