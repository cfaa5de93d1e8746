"""S14: a quorum is of different people, counted under the policy in force at the claim."""

from typing import Any

import pytest

from fakes.chat import ChatHome, FakeChat
from fakes.home import eventually
from fakes.kernel_rig import Rig, channel
from upcall.config import parse
from upcall.core.ballots import ANOTHER_HERE
from upcall.core.door import NO_VOTE
from upcall.model.ask import AskSpec
from upcall.model.errors import ConfigInvalid
from upcall.model.events import Due, OperatorChanged, PersonActed, SettingsChanged
from upcall.model.platform import Answered, Receipt, Who
from upcall.model.policy import Match, Operator, Policy, Route, Terms
from upcall.model.settings import LiveSettings
from upcall.model.struct import replaced

PERMIT = AskSpec(
    question="Deploy?", options=("yes", "no"), free_text=False, ask_class="permission"
)
UID = "1000"


def person(name: str, *roles: str, **more: str) -> Operator:
    identities = {"phone": name, "desk": f"{name}@desk", **more}
    return Operator(name=name, identities=identities, roles=frozenset(roles))


PEOPLE = {
    "ada": person("ada", web="ada", local=UID),
    "bob": person("bob", "ops"),
    "cyd": person("cyd", "ops"),
    "dan": person("dan"),
}
QUORUM = Terms(quorum=2, exclude_asker=False)


def rig(terms: Terms = QUORUM, **settings: Any) -> Rig:
    return Rig(
        channel("web"),
        channel("phone", own_user=False),
        channel("desk", own_user=False),
        **{
            "people": PEOPLE,
            "policy": Policy(defaults=terms),
            "uid": UID,
            "local_answers": "any",
            **settings,
        },
    )


def vote(made: Rig, name: str, on: str = "phone", **fields: Any) -> Receipt:
    identity = {"phone": name, "desk": f"{name}@desk"}.get(on, name)
    receipt = made.answer(on=on, who=Who(identity=identity, name=name), **fields)
    assert receipt is not None
    return receipt


def local(made: Rig, uid: str = UID, **fields: Any) -> Receipt | None:
    who = Who(identity=uid, name=f"user{uid}", local=True, tty="/dev/pts/1", detail="pid 7")
    return made.answer(on="terminal", who=who, **fields)


def answer_of(made: Rig) -> tuple[str, ...]:
    answer = made.only().answer
    assert answer is not None
    return answer.labels


def state_line(made: Rig) -> str:
    (view,) = made.kernel.open_asks()
    return view.note


def live(made: Rig, terms: Terms = QUORUM, people: dict[str, Operator] | None = None) -> None:
    """Let the configuration change."""
    settings = LiveSettings(
        people=PEOPLE if people is None else people,
        policy=Policy(defaults=terms),
        local_answers="any",
    )
    made.do(SettingsChanged(at=made.now, settings=settings, source=f"{terms}"))


def revoke(made: Rig, name: str) -> None:
    who = Who(identity=UID, name="root", local=True)
    made.do(OperatorChanged(at=made.now, who=who, name=name))


# --- one person counts once -----------------------------------------------------------------


def test_two_people_make_it_and_one_on_two_channels_does_not() -> None:
    made = rig()
    made.ask(wait=False, spec=PERMIT)
    first = vote(made, "ada", "phone")
    assert (first.ok, first.code) == (True, "voted")
    again = vote(made, "ada", "desk")
    assert (again.ok, again.code) == (True, "voted")
    assert made.only().state == "open"
    assert "1 more person" in again.msg
    done = vote(made, "bob", "phone")
    assert done.ok
    assert made.only().outcome == "answered"
    assert answer_of(made) == ("yes",)


def test_an_identity_under_two_names_is_an_error_of_the_configuration() -> None:
    text = (
        '[operators.ada]\nidentities = { web = "x" }\n[operators.bob]\n'
        'identities = { web = "x" }\n'
    )
    with pytest.raises(ConfigInvalid, match="one person, one name"):
        parse(text.encode(), "f")


def test_votes_for_different_answers_do_not_add_up() -> None:
    made = rig()
    made.ask(wait=False)
    vote(made, "ada", indices=(0,))
    vote(made, "bob", indices=(1,))
    assert made.only().state == "open"
    vote(made, "cyd", indices=(1,))
    assert answer_of(made) == ("no",)


def test_a_person_who_votes_otherwise_takes_the_former_vote_back() -> None:
    made = rig()
    made.ask(wait=False)
    vote(made, "ada", "phone", indices=(0,))
    vote(made, "ada", "desk", indices=(1,))
    vote(made, "bob", indices=(0,))
    assert made.only().state == "open"
    vote(made, "cyd", indices=(1,))
    assert answer_of(made) == ("no",)


def test_a_platforms_role_is_nobody_and_two_accounts_of_one_role_are_two_people() -> None:
    made = rig(Terms(quorum=2, answer_by=("role:ops",)))
    made.ask(wait=False)
    # Whoever merely sits in the same place is nobody, whatever the platform calls them.
    nobody = made.answer(on="phone", who=Who(identity="ops", name="ops"))
    assert nobody == Receipt(ok=False, code="stranger")
    assert vote(made, "dan").code == "not_permitted"
    assert vote(made, "bob").code == "voted"
    assert made.only().state == "open"
    assert vote(made, "cyd").ok
    assert made.only().outcome == "answered"


def test_a_vote_is_not_lost_by_a_crash_and_not_counted_twice() -> None:
    made = rig()
    made.ask(wait=False)
    vote(made, "ada", key="tap")
    made.restart()
    vote(made, "ada", key="tap")
    assert made.only().state == "open"
    assert "ada on phone" in state_line(made)
    vote(made, "bob")
    assert made.only().outcome == "answered"


def test_a_quorum_that_was_complete_when_the_hub_was_killed_is_claimed_after() -> None:
    made = rig(Terms(quorum=2, veto=True, exclude_asker=False))
    made.ask(wait=False)
    vote(made, "ada")
    vote(made, "bob")
    assert made.only().state == "open"
    made.restart()
    made.wait(0.01)
    assert made.only().outcome == "answered"


# --- who asks has no vote -------------------------------------------------------------------


@pytest.mark.parametrize("terms", [Terms(quorum=2), Terms(quorum=1, exclude_asker=True)])
def test_the_person_who_asked_has_no_vote_from_anywhere(terms: Terms) -> None:
    made = rig(terms)
    made.ask(wait=False)
    for on in ("phone", "desk", "web"):
        refused = vote(made, "ada", on)
        assert (refused.ok, refused.msg) == (False, NO_VOTE), on
    mine = local(made)
    assert mine is not None
    assert (mine.ok, mine.msg) == (False, NO_VOTE)
    assert made.store.votes == {}


def test_the_login_of_the_hubs_user_is_the_uid_that_asked() -> None:
    people = {**PEOPLE, "ada": Operator(name="ada", identities={"web": "ada"})}
    made = rig(Terms(quorum=2), people=people)
    made.ask(wait=False)
    # Nothing says that ada is this uid, but the page is open to its programs.
    assert vote(made, "ada", "web").msg == NO_VOTE


def test_the_programs_own_prompt_does_not_decide_for_several() -> None:
    made = rig()
    made.ask()
    waiter = made.took(indices=(0,), local=True)
    assert made.error(waiter) == "not_permitted"
    assert made.only().state == "open"


def test_only_one_vote_from_this_computer_counts() -> None:
    people = {**PEOPLE, "dan": Operator(name="dan", identities={"local": "0"})}
    made = rig(people=people)
    made.ask(wait=False)
    assert vote(made, "ada", "web").code == "voted"
    second = local(made, uid="0")
    assert second is not None
    assert (second.ok, second.msg) == (False, ANOTHER_HERE)
    assert vote(made, "bob").ok
    assert made.only().outcome == "answered"


def test_a_client_of_the_endpoint_is_nobody_where_several_decide() -> None:
    for terms in (QUORUM, Terms(answer_by=("bob",)), Terms(second="machine")):
        made = rig(terms)
        made.ask()
        made.reply(answer="yes")
        (_, frame) = made.to_clients()[-1]
        assert frame.reason == "resolver_unavailable"
        assert made.only().state == "open"


# --- the policy in force counts -------------------------------------------------------------


def test_a_vote_falls_out_with_the_right_of_its_person() -> None:
    made = rig()
    made.ask(wait=False)
    vote(made, "bob")
    revoke(made, "bob")
    vote(made, "ada")
    assert made.only().state == "open"
    assert "bob" not in state_line(made)
    vote(made, "cyd")
    assert made.only().outcome == "answered"


def test_rights_that_are_given_back_bring_no_vote_back() -> None:
    made = rig()
    made.ask(wait=False)
    vote(made, "bob")
    revoke(made, "bob")
    who = Who(identity=UID, name="root", local=True)
    made.do(OperatorChanged(at=made.now, who=who, name="bob", back=True))
    made.arrive_all()
    vote(made, "ada")
    assert made.only().state == "open"


def test_a_raised_k_is_honoured_between_two_votes() -> None:
    made = rig()
    made.ask(wait=False)
    vote(made, "ada")
    live(made, Terms(quorum=3, exclude_asker=False))
    assert "(1 of 3)" in state_line(made)
    vote(made, "bob")
    assert made.only().state == "open"
    vote(made, "cyd")
    assert made.only().outcome == "answered"


def test_a_lowered_k_claims_nothing_before_somebody_acts() -> None:
    made = rig(Terms(quorum=3, exclude_asker=False))
    made.ask(wait=False)
    vote(made, "ada")
    vote(made, "bob")
    live(made)
    made.wait(60)
    assert made.only().state == "open"
    vote(made, "bob")
    assert made.only().outcome == "answered"


def test_an_identity_that_is_taken_out_takes_its_vote_along() -> None:
    made = rig()
    made.ask(wait=False)
    vote(made, "bob")
    live(made, people={**PEOPLE, "bob": Operator(name="bob", identities={"desk": "bob@desk"})})
    vote(made, "ada")
    assert made.only().state == "open"


def test_a_claimed_quorum_is_taken_back_with_the_right_of_one_of_them() -> None:
    made = rig()
    made.up()
    made.needs()
    made.down()
    (ask,) = made.kernel.open_rows()
    vote(made, "ada", row=ask)
    vote(made, "bob", row=ask)
    assert made.only().state == "claimed"
    revoke(made, "ada")
    row = made.only()
    assert row.state == "open"
    assert "taken back" in row.note
    vote(made, "cyd", row=row)
    assert made.only().state == "claimed"


# --- the veto -------------------------------------------------------------------------------


VETO = Terms(quorum=2, veto=True, exclude_asker=False)


def test_one_refusal_with_a_veto_ends_it_as_declined() -> None:
    made = rig(VETO)
    made.ask(wait=False)
    vote(made, "ada")
    vote(made, "bob", decline=True)
    assert made.only().outcome == "declined"


@pytest.mark.parametrize("refuses", ["ada", "dan"])
def test_a_veto_counts_from_this_computer_whatever_came_from_it_before(refuses: str) -> None:
    """A program that voted first must not take it from whoever sits there."""
    people = {**PEOPLE, "dan": Operator(name="dan", identities={"local": "0"})}
    made = rig(VETO, people=people)
    made.ask(wait=False)
    if refuses == "dan":
        assert vote(made, "ada", "web").code == "voted"
        receipt = local(made, uid="0", decline=True)
    else:
        told = local(made, uid="0")
        assert told is not None
        assert told.code == "voted"
        receipt = vote(made, "ada", "web", decline=True)
    assert receipt is not None
    assert receipt.ok
    assert made.only().outcome == "declined"


@pytest.mark.parametrize(("label", "ends"), [("no", True), ("yes", False)])
def test_a_plain_no_to_a_permission_is_a_veto(label: str, ends: bool) -> None:
    made = rig(VETO)
    made.ask(spec=PERMIT, wait=False)
    vote(made, "ada", indices=(0,))
    vote(made, "bob", indices=(PERMIT.options.index(label),))
    # Where both agree, a veto of the same moment could still come.
    assert (made.only().state != "open") is ends
    if ends:
        assert answer_of(made) == ("no",)


def test_a_no_to_a_question_is_an_answer_like_another() -> None:
    made = rig(VETO)
    made.ask(spec=replaced(PERMIT, ask_class="question"), wait=False)
    vote(made, "bob", indices=(1,))
    assert made.only().state == "open"


def test_without_a_veto_a_refusal_is_a_vote_like_another() -> None:
    made = rig()
    made.ask(wait=False)
    vote(made, "ada", decline=True)
    assert made.only().state == "open"
    vote(made, "bob")
    vote(made, "cyd", decline=True)
    assert made.only().outcome == "declined"


@pytest.mark.parametrize("veto_first", [True, False])
@pytest.mark.parametrize("together", [True, False])
def test_a_veto_in_the_same_millisecond_wins_whatever_is_heard_first(
    *, veto_first: bool, together: bool
) -> None:
    made = rig(VETO)
    made.ask(wait=False)
    vote(made, "ada")
    row = made.only()

    def act(name: str, *, decline: bool) -> PersonActed:
        answered = Answered(
            key=f"k-{name}",
            ask=row.ask_id,
            revision=row.revision,
            who=Who(identity=name),
            indices=None if decline else (0,),
            decline=decline,
        )
        return PersonActed(at=made.now, channel="phone", inbound=answered)

    events = [act("cyd", decline=True), act("bob", decline=False)]
    events = events if veto_first else events[::-1]
    if together:
        made.together(*events)
    else:
        for event in events:
            made.do(event)
    made.do(Due(at=made.now))
    made.wait(1)
    assert made.only().outcome == "declined"
    closed = [line for line in made.store.audit if line.event == "closed"]
    assert len(closed) == 1


def test_a_quorum_without_a_veto_in_its_moment_is_claimed_at_once_after() -> None:
    made = rig(VETO)
    made.ask(wait=False)
    vote(made, "ada")
    assert vote(made, "bob").code == "voted"
    made.wait(0.01)
    assert made.only().outcome == "answered"


def test_a_veto_stops_a_program_that_knows_no_decline() -> None:
    made = rig(VETO)
    made.up(capabilities=())
    made.needs()
    (ask,) = made.kernel.open_rows()
    assert vote(made, "ada", row=ask, decline=True).code == "voted"
    vote(made, "bob", row=ask)
    vote(made, "cyd", row=ask)
    made.wait(1)
    assert made.only().state == "open"


# --- withdrawing, and what the card says ----------------------------------------------------


def test_a_vote_can_be_withdrawn_until_it_is_enough() -> None:
    made = rig()
    made.ask(wait=False)
    vote(made, "ada", "phone")
    vote(made, "ada", "desk")
    taken = vote(made, "ada", "desk", withdraw=True, indices=None)
    assert (taken.ok, taken.code) == (True, "withdrawn")
    vote(made, "bob")
    assert made.only().state == "open"
    made.restart()
    vote(made, "cyd")
    assert made.only().outcome == "answered"
    late = vote(made, "cyd", withdraw=True, indices=None)
    assert (late.ok, late.code) == (False, "already_answered")


def test_nobody_withdraws_a_vote_that_they_have_not_given() -> None:
    made = rig()
    made.ask(wait=False)
    vote(made, "ada")
    none = vote(made, "bob", withdraw=True, indices=None)
    assert (none.ok, none.code) == (False, "no_vote")
    vote(made, "cyd")
    assert made.only().outcome == "answered"


def test_the_card_lists_each_vote_and_says_what_is_missing() -> None:
    from datetime import UTC

    made = rig(zone=UTC)
    made.ask(wait=False)
    made.arrive_all()
    assert state_line(made) == "Needed: 2 people who agree."
    vote(made, "ada")
    made.wait(60)
    vote(made, "bob", "desk", indices=(1,))
    words = state_line(made)
    assert 'ada on phone 08:00: "yes"' in words
    assert 'bob on desk 08:01: "no"' in words
    assert "Needed: 1 more person for the same answer (1 of 2)." in words
    (edit, *_) = [row for row in made.sending("phone") if row.kind == "edit"]
    assert "ada on phone" in made.card(edit).state_line


def test_a_local_vote_is_named_by_what_the_system_knows() -> None:
    made = rig()
    made.ask(wait=False)
    local(made)
    assert "user user1000 on this computer (pid 7)" in state_line(made)


def test_rules_are_of_the_route_that_fits() -> None:
    policy = Policy(
        routes=(
            Route(match=Match(kind="permission"), terms=Terms(quorum=2, answer_by=("bob",))),
        )
    )
    made = rig(policy=policy)
    made.ask(1, wait=False)
    assert vote(made, "dan").ok
    assert made.only().outcome == "answered"


# --- the second factor ----------------------------------------------------------------------


def test_a_second_channel_of_the_same_person_is_needed() -> None:
    made = rig(Terms(second="channel"))
    made.ask(wait=False)
    assert vote(made, "bob", "phone").code == "voted"
    assert vote(made, "cyd", "desk").code == "voted"
    assert "the same person on a second channel" in state_line(made)
    assert vote(made, "bob", "desk").ok
    assert made.only().outcome == "answered"


def test_web_and_command_line_of_one_computer_are_one_channel() -> None:
    made = rig(Terms(second="channel"))
    made.ask(wait=False)
    vote(made, "ada", "web")
    local(made)
    assert made.only().state == "open"
    vote(made, "ada", "phone")
    assert made.only().outcome == "answered"


def test_a_second_operator_is_needed() -> None:
    made = rig(Terms(second="operator"))
    made.ask(wait=False)
    vote(made, "bob", "phone")
    vote(made, "bob", "desk")
    assert made.only().state == "open"
    vote(made, "cyd")
    assert made.only().outcome == "answered"


def test_somebody_at_this_machine_is_needed() -> None:
    made = rig(Terms(second="machine"))
    made.ask(wait=False)
    vote(made, "bob", "phone")
    vote(made, "cyd", "phone")
    assert "the same answer at this computer" in state_line(made)
    local(made, indices=(1,))
    assert made.only().state == "open"
    local(made)
    assert made.only().outcome == "answered"


# --- with a real hub ------------------------------------------------------------------------


def test_two_people_in_a_real_chat_agree_over_a_kill() -> None:
    rules = "[policy]\nquorum = 2\n"
    with FakeChat() as chat, ChatHome(chat, config=rules) as home:
        home.start_chat_hub()
        asker = home.start("confirm", "Deploy?")
        card = chat.card("Deploy?")
        first = chat.receipt(chat.press(card, "Yes", who="ada"))
        assert (first["ok"], first["code"]) == (True, "voted")
        chat.until(lambda: "ada on fakechat" in card.state, what="the vote is on the card")
        home.kill_hub()
        eventually(lambda: home.chat_state() == "hearing", what="the next hub hears")
        again = chat.receipt(chat.press(card, "Yes", who="ada"))
        assert again["code"] == "voted"
        assert chat.receipt(chat.press(card, "Yes", who="bob"))["ok"]
        assert asker.end().code == 0


def test_a_button_takes_a_vote_back_once_there_is_one() -> None:
    with FakeChat() as chat, ChatHome(chat, config="[policy]\nquorum = 2\n") as home:
        home.start_chat_hub()
        home.hand_over("Deploy?", "-o", "yes", "-o", "no")
        card = chat.card("Deploy?")
        assert "[withdraw]" not in card.buttons
        assert chat.receipt(chat.press(card, "yes", who="ada"))["code"] == "voted"
        chat.until(lambda: "[withdraw]" in card.buttons, what="the vote can be taken back")
        none = chat.receipt(chat.press(card, "[withdraw]", who="bob"))
        assert none["code"] == "no_vote"
        assert chat.receipt(chat.press(card, "[withdraw]", who="ada"))["code"] == "withdrawn"
        chat.until(lambda: "[withdraw]" not in card.buttons, what="there is none any more")
        assert chat.receipt(chat.press(card, "yes", who="bob"))["code"] == "voted"


@pytest.mark.parametrize("name", ["any", "owner", '"role:ops"', '" "'])
def test_a_name_that_means_everybody_is_no_operators(name: str) -> None:
    with pytest.raises(ConfigInvalid, match="meaning of its own"):
        parse(f"[operators.{name}]\n".encode(), "f")
