"""S9: five rights apart, a lock that nothing but this machine ends, rights taken at once."""

import contextlib
import json
import os
import signal
from typing import Any

import pytest

from fakes.chat import ChatHome, FakeChat
from fakes.home import eventually
from fakes.kernel_rig import Rig, channel
from upcall.core.policy import NOT_OPERATOR
from upcall.core.standing import ONLY_UNLOCK
from upcall.model.ask import AskSpec
from upcall.model.events import LockAsked, OperatorChanged, SettingsChanged
from upcall.model.platform import Commanded, Place, Pressed, Receipt, Texted, Who
from upcall.model.policy import RIGHTS, Operator, Policy, Right, Terms
from upcall.model.settings import LiveSettings

PERMIT = AskSpec(
    question="Deploy?", options=("yes", "no"), free_text=False, ask_class="permission"
)
UID = "1000"
HERE = Who(identity=UID, name="root", local=True, tty="/dev/pts/1", detail="pid 7, bash")


def person(name: str, *rights: Right, **on: frozenset[Right]) -> Operator:
    given = frozenset(rights) or Operator(name="x").rights
    identities = {"phone": name, "desk": f"{name}@desk"}
    return Operator(name=name, identities=identities, rights=given, rights_on=on)


def rig(*people: Operator, **settings: Any) -> Rig:
    return Rig(
        channel("phone", own_user=False, buttons=10),
        channel("desk", own_user=False, buttons=10),
        **{"people": {one.name: one for one in people}, "uid": UID, **settings},
    )


def answer(made: Rig, name: str, on: str = "phone", **fields: Any) -> Receipt:
    identity = name if on == "phone" else f"{name}@{on}"
    receipt = made.answer(on=on, who=Who(identity=identity, name=name), **fields)
    assert receipt is not None
    return receipt


def write(made: Rig, name: str, on: str = "phone", key: str = "t") -> Receipt:
    text = Texted(key=key, who=Who(identity=name, name=name), text="go on", session_id="sess-1")
    receipt = made.act(text, on=on)
    assert receipt is not None
    return receipt


def command(made: Rig, who: str, name: str, text: str = "", on: str = "phone") -> Receipt:
    event = Commanded(key=f"{who}-{name}", who=Who(identity=who), name=name, text=text)
    receipt = made.act(event, on=on)
    assert receipt is not None
    return receipt


def revoke(made: Rig, name: str, *, back: bool = False) -> None:
    made.do(OperatorChanged(at=made.now, who=HERE, name=name, back=back))


def lock(made: Rig, *, lock: bool = True, reason: str = "") -> None:
    made.do(LockAsked(at=made.now, lock=lock, who=HERE, reason=reason))


# --- rights are apart -----------------------------------------------------------------------


@pytest.mark.parametrize("right", RIGHTS)
def test_each_right_lets_its_own_act_through_and_no_other(right: Right) -> None:
    made = rig(person("ada", right, "see"))
    made.up()
    made.ask(1, wait=False)
    made.ask(2, wait=False, spec=PERMIT)
    let = {
        "answer": answer(made, "ada"),
        "approve": answer(made, "ada", row=2),
        "steer": write(made, "ada"),
    }
    for name, receipt in let.items():
        assert receipt.ok == (name == right), name
        if name != right:
            assert receipt == Receipt(ok=False, code="not_permitted", msg=NOT_OPERATOR)


def test_who_may_not_see_may_not_answer_and_learns_nothing() -> None:
    made = rig(person("ada", "answer", "approve"))
    made.ask(1, wait=False)
    assert answer(made, "ada") == Receipt(ok=False, code="not_permitted", msg=NOT_OPERATOR)


def test_a_right_can_be_kept_to_a_channel() -> None:
    made = rig(person("ada", phone=frozenset({"see"})))
    made.ask(1, wait=False)
    assert answer(made, "ada").code == "not_permitted"
    assert answer(made, "ada", "desk").ok


def test_no_card_goes_where_nobody_may_see() -> None:
    made = rig(person("ada", phone=frozenset()))
    made.ask(1, wait=False)
    assert {row.target for row in made.sending()} == {"desk"}


def test_a_named_person_is_asked_and_others_are_refused_politely() -> None:
    policy = Policy(defaults=Terms(answer_by=("bob",)))
    made = rig(person("ada"), person("bob"), policy=policy)
    made.ask(1, wait=False)
    assert answer(made, "ada") == Receipt(ok=False, code="not_permitted", msg=NOT_OPERATOR)
    assert answer(made, "bob").ok


def test_the_owner_is_whose_program_asks() -> None:
    ada = Operator(name="ada", identities={"phone": "ada", "local": UID})
    policy = Policy(defaults=Terms(answer_by=("owner",)))
    made = rig(ada, person("bob"), policy=policy)
    made.ask(1, wait=False)
    assert answer(made, "bob").code == "not_permitted"
    assert answer(made, "ada").ok


def test_a_stranger_hears_nothing_whatever_they_do() -> None:
    made = rig(person("ada"))
    made.up()
    made.ask(1, wait=False)
    nothing = Receipt(ok=False, code="stranger")
    eve = Who(identity="eve", name="ada")
    token = next(iter(made.store.tokens))
    place = Place("phone", "x")
    assert made.answer(on="phone", who=eve) == nothing
    assert made.answer(on="phone", who=eve, revision="other") == nothing
    for pressed in (token, "nonsense"):
        act = Pressed(key=f"p{pressed}", token=pressed, place=place, who=eve)
        assert made.act(act, on="phone") == nothing
    for name in ("lock", "unlock", "help", "redact"):
        assert command(made, "eve", name) == nothing
    text = Texted(key="t", who=eve, text="hello", session_id="sess-1", place=place)
    assert made.act(text, on="phone") == nothing
    assert made.kernel.lock is None
    denied = [line.facts for line in made.store.audit if line.event == "denied"]
    # The first and the tenth, so that nobody can fill the audit.
    assert [line["count"] for line in denied] == [1]


def test_without_configured_people_a_chat_knows_nobody() -> None:
    made = Rig(channel("web"), channel("phone", own_user=False), uid=UID)
    made.ask(1, wait=False)
    assert made.answer(on="phone", who=Who(identity="root")) == Receipt(
        ok=False, code="stranger"
    )
    done = made.answer(on="web")
    assert done is not None
    assert done.ok


def test_control_from_a_chat_is_off_until_it_is_given() -> None:
    boss = person("boss", *RIGHTS)
    made = rig(person("ada"), boss)
    refused = command(made, "ada", "redact", "off")
    assert refused == Receipt(ok=False, code="not_permitted", msg=NOT_OPERATOR)
    assert command(made, "boss", "redact", "off").code != "not_permitted"
    assert command(made, "ada", "reload").code == "not_permitted"
    assert command(made, "boss", "reload").code == "unknown_command"
    assert command(made, "ada", "hello").code == "unknown_command"


# --- the lock -------------------------------------------------------------------------------


def test_anybody_who_is_an_operator_can_lock_from_anywhere() -> None:
    made = rig(person("ada", "see"), person("bob"))
    made.ask(1, wait=False)
    made.arrive_all()
    locked = command(made, "ada", "lock", "phone lost")
    assert (locked.ok, locked.code) == (True, "locked")
    refused = answer(made, "bob", "desk")
    assert (refused.ok, refused.code) == (False, "locked")
    assert "phone lost" in refused.msg
    assert ONLY_UNLOCK in refused.msg
    again = command(made, "bob", "lock", "other")
    assert (again.ok, again.code) == (True, "locked")
    assert made.kernel.lock is not None
    assert made.kernel.lock.name == "ada"
    # A chat cannot end it.
    assert command(made, "ada", "unlock").code == "locked"


def test_a_lock_refuses_every_act_but_those_of_the_control_socket() -> None:
    made = rig(person("ada", *RIGHTS), Operator(name="root", identities={"local": UID}))
    made.up()
    made.ask(1)
    lock(made, reason="stop")
    token = next(iter(made.store.tokens))
    press = Pressed(key="p", token=token, place=Place("phone", "x"), who=Who(identity="ada"))
    pressed = made.act(press, on="phone")
    assert pressed is not None
    refused = [pressed, answer(made, "ada"), write(made, "ada")]
    refused += [command(made, "ada", name) for name in ("redact", "session_create", "help")]
    refused += [answer(made, "ada", hold=True, indices=None)]
    assert {(one.ok, one.code) for one in refused} == {(False, "locked")}
    made.reply(answer="yes")
    assert made.to_clients()[-1][1].reason == "resolver_unavailable"
    assert made.error(made.took(indices=(0,), local=True)) == "locked"
    audited = [line.facts["code"] for line in made.store.audit if line.event == "denied"]
    assert "locked" in audited
    assert made.only().state == "open"
    made.answer(on="terminal", who=HERE)
    assert made.only().state == "claimed"


def test_every_open_card_says_that_it_is_locked_and_no_longer() -> None:
    made = rig(person("ada"))
    for number in (1, 2):
        made.ask(number, wait=False)
    made.arrive_all()
    lock(made, reason="stop \x1b[2J")
    edits = [row for row in made.sending() + made.waiting() if row.kind == "edit"]
    assert {row.ask_id for row in edits} == {row.ask_id for row in made.kernel.open_rows()}
    for row in edits:
        line = made.card(row).state_line
        assert "Locked by root" in line
        assert "\x1b" not in line
    made.arrive_all()
    lock(made, lock=False)
    for row in [row for row in made.sending() if row.kind == "edit"]:
        assert "Locked" not in made.card(row).state_line
    assert answer(made, "ada").ok


def test_a_lock_outlives_the_hub() -> None:
    made = rig(person("ada"))
    made.ask(1, wait=False)
    lock(made)
    made.restart()
    assert answer(made, "ada").code == "locked"
    made.restart()
    lock(made, lock=False)
    made.restart()
    assert answer(made, "ada").ok


def test_a_lock_takes_back_what_no_program_has_yet() -> None:
    made = rig(person("ada"))
    made.up()
    made.needs()
    made.down()
    answer(made, "ada", row=made.only())
    assert made.only().state == "claimed"
    lock(made)
    assert made.only().state == "open"


def test_operators_are_told_of_a_lock_and_of_its_end() -> None:
    made = rig(person("ada"))
    lock(made, reason="stop")
    lock(made, lock=False)
    told = [row.text for row in made.store.notices.values() if row.kind == "security"]
    assert [word in text for word, text in zip(("locked", "unlocked"), told, strict=True)]
    assert {row.target for row in made.sending()} == {"phone", "desk"}


# --- rights taken ---------------------------------------------------------------------------


def test_a_press_on_a_card_from_before_the_revocation_is_refused() -> None:
    made = rig(person("ada"), person("bob"))
    made.ask(1, wait=False)
    made.arrive_all()
    revoke(made, "ada")
    token = next(iter(made.store.tokens))
    press = Pressed(key="p", token=token, place=Place("phone", "x"), who=Who(identity="ada"))
    refused = made.act(press, on="phone")
    assert refused is not None
    assert refused.code in {"not_permitted", "foreign_place"}
    assert answer(made, "ada") == Receipt(ok=False, code="not_permitted", msg=NOT_OPERATOR)
    assert command(made, "ada", "lock").code == "not_permitted"
    made.restart()
    assert answer(made, "ada").code == "not_permitted"
    revoke(made, "ada", back=True)
    made.arrive_all()
    assert answer(made, "ada").ok


@pytest.mark.parametrize("sending", ["away", "under way", "restarted"])
def test_an_answer_of_somebody_revoked_does_not_count_while_the_session_is_away(
    sending: str,
) -> None:
    made = rig(person("ada"), person("bob"))
    made.up()
    made.needs()
    if sending != "under way":
        made.down()
    answer(made, "ada", row=made.only())
    (reply,) = [row for row in made.store.deliveries.values() if row.kind == "reply"]
    if sending == "away":
        made.fail(reply, "not_sent")
    if sending == "restarted":
        made.restart()
    revoke(made, "ada")
    assert made.only().state == "open"
    if sending == "under way":
        made.fail(reply, "not_sent")
    made.restart()
    made.up(sync=False)
    made.needs()
    made.sync()
    made.wait(600)
    assert made.sent_frames() == []
    assert made.only().state == "open"
    assert answer(made, "bob", row=made.only()).ok
    (frame,) = made.sent_frames()
    assert frame.by.name == "bob"


def test_a_session_that_had_the_answer_already_says_what_happened() -> None:
    made = rig(person("ada"))
    made.up()
    made.needs()
    answer(made, "ada", row=made.only())
    revoke(made, "ada")
    made.resolved(resolved_by="client", answer="yes", outcome="answered")
    row = made.only()
    assert row.outcome == "answered"
    assert row.answered_by is not None
    assert row.answered_by.name == "ada"


def test_what_the_asker_has_in_its_hands_is_not_taken_back() -> None:
    made = rig(person("ada"))
    made.ask()
    answer(made, "ada")
    revoke(made, "ada")
    assert made.only().state == "claimed"
    made.took()
    assert made.only().outcome == "answered"


def test_a_reload_that_drops_a_person_takes_their_answer_back_too() -> None:
    made = rig(person("ada"), person("bob"))
    made.up()
    made.needs()
    made.down()
    answer(made, "ada", row=made.only())
    settings = LiveSettings(people={"bob": person("bob")})
    made.do(SettingsChanged(at=made.now, settings=settings, source="x"))
    assert made.only().state == "open"


# --- a real hub -----------------------------------------------------------------------------


def test_a_real_hub_locked_from_a_chat_stays_locked_after_kill_9() -> None:
    with FakeChat() as chat, ChatHome(chat) as home:
        running = home.start_chat_hub()
        ask = home.hand_over("Deploy?", "-o", "yes", "-o", "no")
        card = chat.card("Deploy?")
        assert chat.receipt(chat.command(card.place, "lock", "lost", who="bob"))["ok"]
        chat.until(lambda: "Locked by bob" in card.state, what="the card says so")
        assert chat.receipt(chat.press(card, "yes"))["code"] == "locked"
        assert chat.receipt(chat.write(card.place, "yes"))["code"] == "locked"
        os.kill(running.pid, signal.SIGKILL)
        running.end()
        home.start_chat_hub()
        assert chat.receipt(chat.press(card, "yes"))["code"] == "locked"
        assert home.ask_state(ask)["state"] == "open"
        status = home.run("hub", "status", "--json").json
        assert "locked" in {one["code"] for one in status["degraded"]}
        assert home.run("lock").code == 0
        assert home.run("unlock").out == "unlocked\n"
        assert home.run("unlock").out == "it was not locked\n"
        assert chat.receipt(chat.press(card, "yes"))["ok"]
        assert home.until_ask(ask, state="closed")["outcome"] == "answered"


SESSION = """
import asyncio
from upcall import Session

async def main():
    async with Session("agent", session_id="agent") as session:
        print("=", await session.ask("Go on?", ["yes", "no"]), flush=True)

asyncio.run(main())
"""


def test_an_answer_of_somebody_revoked_never_reaches_a_session_that_was_away() -> None:
    with FakeChat() as chat, ChatHome(chat) as home:
        running = home.start_chat_hub()
        session = home.start_python(SESSION)
        card = chat.card("Go on?")
        eventually(lambda: home.rows("SELECT 1 FROM card WHERE ref IS NOT NULL"))
        # It lives, and answers nobody: the next hub cannot attach to it.
        session.signal(signal.SIGSTOP)
        try:
            running.kill()
            home.start_chat_hub()
            assert chat.receipt(chat.press(card, "yes", who="ada"))["code"] == "claimed"
            (ask,) = home.run("asks", "--json").json["asks"]
            assert ask["state"] == "claimed"
            assert home.run("operators", "revoke", "ada").code == 0
            assert home.ask_state(ask["id"])["state"] == "open"
        finally:
            session.signal(signal.SIGCONT)

        def is_attached() -> bool:
            with home.line("control") as line:
                return {one["state"] for one in line.ok("sessions")["sessions"]} == {"attached"}

        eventually(is_attached, what="the session is back")
        assert home.ask_state(ask["id"])["state"] == "open"
        chat.until(lambda: "taken back" in card.state, what="the card says so")
        assert chat.receipt(chat.press(card, "yes", who="ada"))["code"] == "not_permitted"
        assert chat.receipt(chat.press(card, "no", who="bob"))["ok"]
        session.line("= ", on="out")
        assert session.end().out == "= no\n"
        assert home.until_ask(ask["id"], state="closed")["answered_by"]["name"] == "bob"


def test_operators_are_added_and_revoked_at_a_real_hub() -> None:
    with FakeChat() as chat, ChatHome(chat) as home:
        home.start_chat_hub()
        home.hand_over("Deploy?", "-o", "yes", "-o", "no")
        card = chat.card("Deploy?")
        assert chat.receipt(chat.press(card, "yes", who="eve"))["code"] == "stranger"
        added = home.run(
            *("operators", "add", "eve", "--channel", "fakechat", "--id", "eve"),
            *("--role", "ops", "--rights", "see,approve", "--json"),
        )
        assert added.code == 0, added
        (eve,) = [one for one in added.json["operators"] if one["name"] == "eve"]
        assert eve["roles"] == ["ops"]
        told = chat.card("New operator identity: eve")
        assert "see, approve" in told.text
        # What was told has arrived, and the right to answer was not given.
        eventually(
            lambda: chat.receipt(chat.press(card, "yes", who="eve"))["msg"] == NOT_OPERATOR
        )
        assert home.run("operators", "revoke", "ada").code == 0
        refused = chat.receipt(chat.press(card, "yes", who="ada"))
        assert (refused["code"], refused["msg"]) == ("not_permitted", NOT_OPERATOR)
        assert "ada  revoked" in home.run("operators").out
        taken = home.run("operators", "add", "x", "--channel", "fakechat", "--id", "bob")
        assert taken.code == 1
        assert "bob already" in taken.err
        assert home.run("operators", "revoke", "nobody").code == 1
        assert home.run("operators", "restore", "ada").code == 0
        eventually(lambda: chat.receipt(chat.press(card, "yes", who="ada"))["ok"])


def test_none_of_it_can_be_asked_for_on_the_socket_that_can_only_ask() -> None:
    with FakeChat() as chat, ChatHome(chat) as home:
        home.start_chat_hub()
        with home.line("ask") as line:
            for op in ("lock", "unlock", "operators"):
                assert line.refused(op) == "not_permitted"
        with contextlib.closing(home.line("control")) as line:
            assert line.refused("operators", action="add", name="x") == "invalid_request"
            assert line.refused("operators", action="add", name="x", channel="no", identity="1")
            told = line.ok("operators", action="list")
            assert json.dumps(told)
