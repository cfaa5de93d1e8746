"""Who is who, who may what, and what is said of differences and votes: the pure parts."""

from typing import Any

import pytest

from fakes.kernel_rig import YES_NO, Rig, channel
from upcall.core.changes import changes
from upcall.core.door import DENIED_KEPT, Door
from upcall.core.operators import is_asked, is_asker, operator_views, rules_of, uids_of
from upcall.core.standing import standing
from upcall.core.state import Step
from upcall.core.votes import needs_words, tally, votes_words
from upcall.model.ask import AskSpec, Selection
from upcall.model.events import LockAsked, OperatorChanged, SettingsChanged
from upcall.model.ids import AskId
from upcall.model.platform import Answered, Commanded, Receipt, Who
from upcall.model.policy import Operator, Policy, Right, Route, Rules, Terms
from upcall.model.rows import Course, PairingRow, VoteRow
from upcall.model.settings import Change, LiveSettings
from upcall.model.struct import replaced

UID = "1000"
HERE = Who(identity=UID, name="root", local=True, tty="/dev/pts/1", detail="pid 7")
YES, NO = Selection((0,), ("yes",)), Selection((1,), ("no",))


def rig(**settings: Any) -> Rig:
    return Rig(
        channel("web"),
        channel("phone", own_user=False),
        **{"uid": UID, "local_answers": "any", **settings},
    )


def pair(made: Rig, name: str, identity: str, on: str = "phone", **fields: Any) -> None:
    pairing = PairingRow(name=name, channel=on, identity=identity, **fields)
    made.do(OperatorChanged(at=made.now, who=HERE, pairing=pairing))
    made.arrive_all()


def press(made: Rig, identity: str, on: str = "phone", **fields: Any) -> Receipt:
    receipt = made.answer(on=on, who=Who(identity=identity, name=identity), **fields)
    assert receipt is not None
    return receipt


def vote(
    person: str, selection: Selection | None = YES, on: str = "phone", **f: Any
) -> VoteRow:
    number = f.pop("n", 1)
    return VoteRow(
        ask_id=AskId("a1"),
        person=person,
        channel=on,
        name=person,
        selection=selection,
        inbound=number,
        at_ms=f.pop("at_ms", number),
        **f,
    )


def count(rules: Rules, *votes: VoteRow) -> Any:
    return tally(votes, rules, lambda _: True, YES_NO)


# --- people ---------------------------------------------------------------------------------


def test_a_paired_telephone_does_not_take_the_inbox_away() -> None:
    made = rig()
    pair(made, "grace", "42")
    made.ask(1, wait=False)
    made.ask(2, wait=False)
    assert press(made, "42").ok
    assert press(made, "grace", "web", row=2).ok
    (grace,) = operator_views(made.kernel._state)
    assert [(one.channel, one.added) for one in grace.identities] == [
        ("local", False),
        ("phone", True),
    ]


def test_rights_of_a_pairing_are_for_its_channel() -> None:
    made = rig(people={"ada": Operator(name="ada", identities={"web": "ada"})})
    pair(made, "ada", "7", rights=("see",), roles=("ops",))
    made.ask(1, wait=False)
    assert press(made, "7").code == "not_permitted"
    assert press(made, "ada", "web").ok
    (ada,) = operator_views(made.kernel._state)
    assert (ada.roles, ada.rights_on) == (("ops",), {"phone": ("see",)})


def test_a_named_identity_is_stronger_than_a_paired_one() -> None:
    made = rig(people={"ada": Operator(name="ada", identities={"phone": "7"})})
    pair(made, "eve", "7")
    made.ask(1, wait=False)
    press(made, "7")
    row = made.only()
    assert row.answered_by is not None
    assert row.answered_by.name == "ada"


def test_identities_without_a_person_count_as_one_with_that_name() -> None:
    made = rig(operators={("phone", "7"): "ada"})
    made.ask(1, wait=False)
    assert press(made, "7").ok
    assert [one.name for one in operator_views(made.kernel._state)] == ["ada"]


def test_who_waits_or_was_revoked_is_listed() -> None:
    made = rig(confirm_changes=True, people={"ada": Operator(name="ada")})
    pair(made, "eve", "7")
    made.do(OperatorChanged(at=made.now, who=HERE, name="mallory"))
    listed = {one.name: one for one in operator_views(made.kernel._state)}
    assert listed["eve"].identities[0].waits_for is not None
    assert listed["eve"].rights == ()
    assert listed["mallory"].revoked
    made.do(OperatorChanged(at=made.now, who=HERE, name="nobody", back=True))


def test_local_rights_are_those_of_local_then_of_the_terminal() -> None:
    see: frozenset[Right] = frozenset({"see"})
    for rights_on in ({"local": see}, {"terminal": see}):
        ada = Operator(name="ada", identities={"local": UID}, rights_on=rights_on)
        made = rig(people={"ada": ada})
        made.ask(1, wait=False)
        refused = made.answer(on="terminal", who=HERE)
        assert refused is not None
        assert refused.code == "not_permitted"


def test_whose_user_a_person_is() -> None:
    made = rig(
        people={
            "ada": Operator(name="ada", identities={"web": "grace"}),
            "bob": Operator(name="bob", identities={"phone": "grace"}),
        }
    )
    pair(made, "bob", "1001", on="local")
    state = made.kernel._state
    assert uids_of(state, state.settings.people["ada"]) == {UID}
    assert uids_of(state, state.settings.people["bob"]) == {"1001"}


def test_an_escalated_person_or_role_may_answer_too() -> None:
    ops = Operator(name="cyd", identities={"phone": "c"}, roles=frozenset({"ops"}))
    made = rig(
        people={"ada": Operator(name="ada", identities={"phone": "a"}), "cyd": ops},
        policy=Policy(defaults=Terms(answer_by=("bob",))),
    )
    made.ask(1, wait=False)
    state, row = made.kernel._state, made.only()
    rules = rules_of(state, row)
    assert not is_asked(state, row, ops, rules)
    for people in (("cyd",), ("role:ops",)):
        asked = replaced(row, course=Course(people=people))
        assert is_asked(state, asked, ops, rules)
        assert not is_asked(state, asked, state.settings.people["ada"], rules)


def test_without_a_user_nobody_is_the_asker() -> None:
    made = rig(uid="")
    made.up()
    made.needs()
    row, ada = made.only(), Operator(name="ada")
    assert not is_asker(made.kernel._state, row, ada, here=True, uid="")


def test_rules_of_an_ask_whose_session_is_forgotten_are_those_for_all() -> None:
    made = rig(policy=Policy(routes=(Route(terms=Terms(quorum=3)),)))
    made.ask(1, wait=False)
    row = replaced(made.only(), session_id="gone")
    assert rules_of(made.kernel._state, row).quorum == 3


# --- refused acts ---------------------------------------------------------------------------


def test_refused_acts_are_written_down_ever_less_and_forgotten_at_last() -> None:
    made = rig(people={"ada": Operator(name="ada")})
    state = made.kernel._state
    door = Door(state)
    step = Step(state, made.now, b"x" * 16)
    for _ in range(100):
        door.note(step, "phone", Who(identity="eve"), "stranger")
    assert len(step.decision.writes) == 3
    for number in range(DENIED_KEPT):
        door.note(step, "phone", Who(identity=str(number)), "stranger")
    assert len(state.denied) == DENIED_KEPT


def test_a_name_that_nobody_bears_any_more_is_a_stranger() -> None:
    made = rig(people={"ada": Operator(name="ada", identities={"web": "x"})})
    made.ask(1, wait=False)
    unknown = Answered(key="k", ask="nosuch", revision=None, who=Who(identity="eve"))
    assert made.act(unknown, on="phone") == Receipt(ok=False, code="stranger")
    # The inbox is signed in: whoever is there is told, and no more than that.
    refused = made.act(replaced(unknown, key="k2"), on="web")
    assert refused is not None
    assert refused.code == "not_permitted"


# --- votes ----------------------------------------------------------------------------------


def test_votes_count_in_their_order_whatever_order_they_are_read_in() -> None:
    votes = [vote("ada", n=2), vote("bob", n=1), vote("cyd", NO, n=3)]
    rules = Rules(quorum=2)
    for order in (votes, votes[::-1]):
        assert count(rules, *order).winner == votes[0]


def test_of_two_answers_that_are_enough_the_first_wins() -> None:
    votes = (vote("a", n=1), vote("b", NO, n=2), vote("c", NO, n=3), vote("d", n=4))
    assert count(Rules(quorum=2), *votes).winner == votes[2]


@pytest.mark.parametrize(
    ("rules", "votes", "words"),
    [
        (Rules(quorum=2), (), "Needed: 2 people who agree."),
        (
            Rules(second="channel"),
            (),
            "Needed: 1 person and the same person on a second channel.",
        ),
        (
            Rules(second="machine"),
            (vote("ada", here=True, on="web"),),
            "Needed: the same answer from another place than this computer.",
        ),
        (
            Rules(quorum=3),
            (vote("ada"),),
            "Needed: 2 more people for the same answer (1 of 3).",
        ),
        (Rules(quorum=1), (vote("ada"),), ""),
        (Rules(second="channel"), (vote("ada"), vote("ada", on="desk", n=2)), ""),
    ],
)
def test_what_is_missing_is_said(rules: Rules, votes: tuple[VoteRow, ...], words: str) -> None:
    assert needs_words(count(rules, *votes)) == words


def test_votes_are_told_without_a_clock_and_with_a_refusal() -> None:
    words = votes_words(count(Rules(quorum=1), vote("ada", None)), lambda _: "")
    assert words == "Votes: ada on phone: declined."


def test_a_machine_vote_of_two_people_here_needs_one_from_elsewhere() -> None:
    rules = Rules(second="machine")
    votes = (vote("ada", here=True, on="web"), vote("bob", n=2))
    assert count(rules, votes[0]).winner is None
    assert count(rules, *votes).winner == votes[1]


def test_who_has_lost_the_channel_or_the_ask_has_no_vote() -> None:
    ada = Operator(name="ada", identities={"phone": "a"})
    made = rig(
        people={"ada": ada, "bob": Operator(name="bob", identities={"phone": "b"})},
        policy=Policy(defaults=Terms(quorum=2)),
    )
    made.ask(1, wait=False)
    press(made, "a")
    state, row = made.kernel._state, made.only()
    assert len(standing(state, row, rules_of(state, row)).votes) == 1
    asker = replaced(ada, identities={"phone": "a", "local": UID})
    for other in (
        {},
        {"ada": replaced(ada, rights=frozenset({"see"}))},
        {"ada": asker},
        {"ada": replaced(ada, identities={"web": "a"})},
    ):
        people = {"bob": state.settings.people["bob"], **other}
        settings = LiveSettings(people=people, policy=state.settings.policy)
        made.do(SettingsChanged(at=made.now, settings=settings, source=repr(people)))
        assert standing(state, row, rules_of(state, row)).votes == (), other
    named = LiveSettings(
        people={"ada": ada}, policy=Policy(defaults=Terms(quorum=2, answer_by=("bob",)))
    )
    made.do(SettingsChanged(at=made.now, settings=named, source="named"))
    assert standing(state, row, rules_of(state, row)).votes == ()


def test_votes_of_the_hubs_own_user_need_no_names() -> None:
    made = rig(policy=Policy(defaults=Terms(second="machine", exclude_asker=False)))
    pair(made, "bob", "b")
    made.ask(1, wait=False)
    press(made, "grace", "web")
    assert made.only().state == "open"
    press(made, "b")
    assert made.only().outcome == "answered"


def test_a_secret_is_answered_by_one() -> None:
    capable = channel("web")
    capabilities = replaced(capable.capabilities, secrets=True)
    info = type(capable)(capable.name, capabilities, capable.lower)
    made = Rig(info, policy=Policy(defaults=Terms(quorum=2, exclude_asker=False)))
    made.ask(1, AskSpec(question="Password?", secret=True))
    assert press(made, "ada", "web", text="hunter2").code == "claimed"


# --- lock and commands ----------------------------------------------------------------------


def test_locking_twice_and_unlocking_what_is_open_changes_nothing() -> None:
    made = rig()
    made.do(LockAsked(at=made.now, lock=False, who=HERE))
    assert made.store.audit == []
    for reason in ("first", "second"):
        made.do(LockAsked(at=made.now, lock=True, who=HERE, reason=reason))
    assert made.kernel.lock is not None
    assert made.kernel.lock.reason == "first"
    unlock = Commanded(key="u", who=Who(identity="grace"), name="/UNLOCK")
    refused = made.act(unlock, on="web")
    assert refused is not None
    assert refused.code == "locked"


def test_unlock_from_a_chat_is_told_where_it_is_done() -> None:
    made = rig()
    told = made.act(Commanded(key="u", who=Who(identity="grace"), name="unlock"), on="web")
    assert told is not None
    assert "upcall unlock" in told.msg


# --- differences ----------------------------------------------------------------------------


def test_what_concerns_no_right_is_one_quiet_difference() -> None:
    new = LiveSettings(policy=Policy(defaults=Terms(reminders_s=(60.0,))))
    (change,) = changes(LiveSettings(), new)
    assert not change.widens
    assert changes(LiveSettings(), LiveSettings()) == ()


def test_what_is_taken_from_a_person_widens_nothing() -> None:
    full = Operator(name="ada", identities={"phone": "a"}, roles=frozenset({"ops"}))
    less = Operator(name="ada", rights=frozenset({"see"}))
    old, new = LiveSettings(people={"ada": full}), LiveSettings(people={"ada": less})
    found = changes(old, new)
    assert [one.widens for one in found] == [False] * len(found)
    assert Change("ada has no identity on phone any more", widens=False) in found
    assert Change("ada has the role ops no more", widens=False) in found
    assert Change("ada may not approve", widens=False) in found


def test_terms_of_a_route_that_stays_are_compared() -> None:
    old = Policy(routes=(Route(terms=Terms(quorum=2, second="channel")),))
    new = Policy(routes=(Route(terms=Terms(quorum=1, second="channel")),))
    (change,) = changes(LiveSettings(policy=old), LiveSettings(policy=new))
    assert change.widens
    assert "number 1: quorum is 1, was 2" in change.words


def test_an_operator_without_anything_is_told_as_that() -> None:
    nobody = Operator(name="eve", rights=frozenset())
    old = LiveSettings(people={"ada": Operator(name="ada")})
    new = replaced(old, people={**old.people, "eve": nobody})
    (change,) = changes(old, new)
    assert change.words == "operator eve is new: no identity; may nothing"


def test_a_list_of_many_changes_is_cut_with_their_number() -> None:
    made = rig(confirm_changes=True, people={"ada": Operator(name="ada")})
    many = {f"p{n}": Operator(name=f"p{n}") for n in range(80)}
    settings = LiveSettings(people=many, confirm_changes=False)
    made.do(SettingsChanged(at=made.now, settings=settings, source="many"))
    assert made.kernel.waiting_settings is not None
    detail = made.only().spec.detail or ""
    assert detail.splitlines()[-1].startswith("and 2")


# --- what ends with a right, and what does not ----------------------------------------------


def test_an_answer_from_the_endpoint_is_no_persons_and_stays() -> None:
    made = rig()
    made.ask()
    made.wait_for()
    made.reply(answer="yes")
    assert made.only().state == "claimed"
    made.do(OperatorChanged(at=made.now, who=HERE, name="grace"))
    assert made.only().state == "claimed"


def test_an_answer_of_the_hubs_user_stays_when_another_is_revoked() -> None:
    made = rig()
    made.up()
    made.needs()
    made.down()
    press(made, "ada", "web", row=made.only())
    made.do(OperatorChanged(at=made.now, who=HERE, name="bob"))
    assert made.only().state == "claimed"
    made.do(OperatorChanged(at=made.now, who=HERE, name="ada"))
    assert made.only().state == "open"


def test_a_vote_of_the_hubs_user_needs_no_entry() -> None:
    made = rig(policy=Policy(defaults=Terms(quorum=2, exclude_asker=False)))
    made.ask(1, wait=False)
    press(made, "ada", "web")
    assert "ada on web" in made.kernel.open_asks()[0].note


def test_what_is_written_otherwise_and_means_the_same_is_kept_quietly() -> None:
    made = rig()
    same = LiveSettings(local_answers="any")
    for source in ("one", "two"):
        made.do(SettingsChanged(at=made.now, settings=same, source=source))
    assert made.store.settings["", "settings"] == "two"
    assert made.store.notices == {}


def test_a_change_made_while_no_hub_ran_replaces_one_that_waited() -> None:
    ada = Operator(name="ada", identities={"phone": "a"})
    made = rig(people={"ada": ada}, confirm_changes=True)
    evil = LiveSettings(people={"ada": ada, "eve": Operator(name="eve")})
    made.do(SettingsChanged(at=made.now, settings=evil, source="evil"))
    first = made.only()
    made.restart(confirm_changes=True)
    other = replaced(evil, redact=False)
    made.do(SettingsChanged(at=made.now, settings=other, source="other"))
    assert made.store.asks[first.ask_id].outcome == "superseded"
    assert made.only("open").spec.detail != first.spec.detail


def test_a_question_of_the_hubs_own_that_ends_otherwise_is_no_yes_and_no_no() -> None:
    ada = Operator(name="ada", identities={"phone": "a"})
    made = rig(people={"ada": ada}, confirm_changes=True)
    evil = LiveSettings(people={"ada": ada, "eve": Operator(name="eve")})
    made.do(SettingsChanged(at=made.now, settings=evil, source="evil"))
    kernel = made.kernel
    step = Step(kernel._state, made.now, b"x" * 16)
    kernel._ledger.close(step, made.only(), "cancelled", resolved_by="local")
    kernel._settings_change.after(step)
    waiting = kernel.waiting_settings
    assert waiting is not None
    assert waiting.ask_id is None
    assert ("", "refused_settings") not in kernel._state.settings_kept


def test_votes_of_what_is_over_are_not_read_again() -> None:
    made = rig(
        people={n: Operator(name=n, identities={"phone": n}) for n in ("a", "b")},
        policy=Policy(defaults=Terms(quorum=2)),
    )
    made.ask(1, wait=False)
    press(made, "a")
    press(made, "b")
    assert [row.live for row in made.store.votes.values()] == [False, False]
    made.restart()
    assert made.kernel._state.votes == {}


def test_equal_asks_that_several_people_answered_stay_answered_together() -> None:
    people = {n: Operator(name=n, identities={"phone": n}) for n in ("a", "b", "c")}
    made = rig(people=people, policy=Policy(defaults=Terms(quorum=2, merge=True)))
    made.up()
    for action in ("q1", "q2"):
        made.needs(action, merge=True)
    made.down()
    (leader,) = [row for row in made.kernel.open_rows() if row.course.merged_into is None]
    press(made, "a", row=leader)
    press(made, "b", row=leader)
    assert [row.state for row in made.kernel.open_rows()] == ["claimed", "claimed"]
    made.do(OperatorChanged(at=made.now, who=HERE, name="c"))
    assert [row.state for row in made.kernel.open_rows()] == ["claimed", "claimed"]
    made.do(OperatorChanged(at=made.now, who=HERE, name="a"))
    assert [row.state for row in made.kernel.open_rows()] == ["open", "open"]
