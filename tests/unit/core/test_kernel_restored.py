"""Asks of a restored backup: shown again only if their programs still wait."""

from typing import Any

from fakes.kernel_rig import YES_NO, Rig
from upcall.model.ids import Revision
from upcall.model.limits import RESTORED_WAIT_S
from upcall.model.platform import Answered, Receipt, Who
from upcall.model.rows import (
    RESTORED_AGAIN,
    RESTORED_ASKING,
    AskRow,
    bare_revision,
    in_epoch,
)
from upcall.model.struct import replaced

BOSS = Who(identity="ada", name="ada")


def restored(rig: Rig) -> AskRow:
    """Let the rig's one ask be what a restore makes of it, and start its hub again."""
    row = rig.only()
    row = replaced(row, revision=in_epoch(row.revision, 2), note=RESTORED_ASKING, state="open")
    rig.store.asks[row.ask_id] = row
    rig.store.cards.clear()
    rig.store.deliveries.clear()
    rig.restart()
    rig.hears("web", audience=1)
    return row


def press(rig: Rig, row: AskRow, revision: str | None, key: str = "k") -> Receipt:
    act = Answered(key=key, ask=row.ask_id, revision=revision, who=BOSS, indices=(0,))
    receipt = rig.act(act)
    assert receipt is not None
    return receipt


def hosted(**fields: Any) -> tuple[Rig, AskRow]:
    rig = Rig()
    rig.ask(1, **fields)
    return rig, restored(rig)


def test_a_revision_of_an_epoch_is_another_one_of_the_same_question() -> None:
    first = Revision("ab12")
    assert in_epoch(first, 2) != first
    assert in_epoch(in_epoch(first, 2), 3) == "ab12.3"
    assert bare_revision(in_epoch(first, 2)) == first == bare_revision(first)


def test_a_hosted_ask_waits_for_its_asker_and_is_then_asked_anew() -> None:
    rig, row = hosted()
    assert rig.sending("web") == []
    assert press(rig, row, row.revision).code == "restoring"
    rig.ask(1)
    again = rig.only()
    assert again.note == RESTORED_AGAIN
    assert rig.sending("web")
    assert press(rig, row, bare_revision(row.revision)).code == "stale_card"
    assert press(rig, row, again.revision, "new").ok


def test_an_asker_that_does_not_come_waits_for_nothing() -> None:
    rig, _ = hosted()
    rig.wait(RESTORED_WAIT_S - 1)
    assert rig.only().state == "open"
    rig.wait(2)
    assert rig.only().outcome == "unreachable"
    assert rig.sending("web") == []


def test_a_keyed_ask_whose_asker_is_gone_is_for_a_person_to_answer() -> None:
    rig, _ = hosted(key="k")
    rig.wait(RESTORED_WAIT_S + 1)
    assert rig.only().handed_over
    assert rig.only().note == RESTORED_AGAIN
    assert rig.sending("web")


def test_a_handed_over_ask_is_asked_again_at_once() -> None:
    rig, row = hosted(wait=False)
    assert rig.only().note == RESTORED_AGAIN
    assert press(rig, row, bare_revision(row.revision)).code == "stale_card"
    assert press(rig, row, rig.only().revision, "new").ok
    assert rig.row(1) is not None


def test_a_session_says_which_of_its_asks_still_wait() -> None:
    for presents in (True, False):
        rig = Rig()
        rig.up()
        rig.needs("q1")
        row = restored(rig)
        rig.up(sync=False)
        assert press(rig, row, row.revision).code == "restoring"
        assert rig.sending("web") == []
        if presents:
            rig.needs("q1")
        rig.sync()
        if presents:
            assert rig.only("open").note == RESTORED_AGAIN
            assert rig.only("open").revision == row.revision
            assert rig.sending("web")
        else:
            assert rig.only().outcome == "superseded"
            assert rig.sending("web") == []


def test_a_refused_answer_does_not_make_a_restored_permission_answerable() -> None:
    rig, _ = hosted(spec=replaced(YES_NO, ask_class="permission"))
    who = Who("1000", "ada", pid=100, pid_start="s100", local=True)
    assert rig.error(rig.took(local=True, indices=(0,), who=who)) == "self_answer"
    assert rig.only().note == RESTORED_ASKING
    assert len(rig.store.notices) == 1
