"""People, votes and clocks: any history of them keeps one outcome, and each vote honest.

Beside the machine of test_kernel.py, which has one person and the default policy.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fakes.chat import channel_info
from fakes.kernel_rig import YES_NO, Rig, ask_id, asker, channel
from upcall.core.operators import rules_of
from upcall.core.standing import standing
from upcall.model.effects import ToWaiter
from upcall.model.events import CancelAsked, OperatorChanged, PersonActed, SleepComing, Slept
from upcall.model.platform import Answered, Who
from upcall.model.policy import Escalation, Match, Operator, Policy, Route, Terms
from upcall.model.refusals import is_refusal
from upcall.model.rows import AskRow
from upcall.model.struct import replaced

NAMES = ("ada", "bob", "cyd")
PEOPLE = {
    name: Operator(name=name, identities={"web": name, "chat": name, "spare": name})
    for name in NAMES
}
POLICY = Policy(
    routes=(
        Route(
            match=Match(kind="permission"),
            terms=Terms(quorum=2, veto=True, exclude_asker=False),
        ),
    ),
    defaults=Terms(
        channels=("chat",),
        fallback=("spare",),
        escalate=(Escalation(after_s=30.0, channels=("spare",)),),
        reminders_s=(60.0, 600.0),
        merge=True,
        deadline_s=3600.0,
    ),
)
PERMIT = replaced(YES_NO, ask_class="permission")
HOUR_MS = 3_600_000
numbers = st.integers(1, 4)
people = st.sampled_from(NAMES)
places = st.sampled_from(["web", "chat", "spare"])
choices = st.sampled_from(["yes", "no", "decline"])


class Histories(RuleBasedStateMachine):
    """Any history, and what has to hold at each point of it."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig(
            channel("web"),
            channel_info("chat", threads=True, catches_up=False, repeat="none"),
            channel_info("spare", threads=False, catches_up=False, repeat="by_key"),
            people=PEOPLE,
            policy=POLICY,
            local_answers="any",
        )
        for name in ("web", "chat", "spare"):
            self.rig.hears(name)
        self.rebooted = False
        self.revoked: set[str] = set()
        self.ended: dict[str, tuple[Any, ...]] = {}
        self.claimed: dict[str, tuple[str, ...] | None] = {}

    # --- what happens ------------------------------------------------------------------------

    @rule(number=numbers, permission=st.booleans(), merge=st.booleans())
    def raises(self, number: int, permission: bool, merge: bool) -> None:
        spec = PERMIT if permission else replaced(YES_NO, merge=merge)
        found = self.forgotten(number)
        self.rig.ask(number, spec, who=asker(100 + number % 2), found=found)

    @precondition(lambda self: self.rig.store.asks)
    @rule(number=numbers, person=people, on=places, choice=choices)
    def votes(self, number: int, person: str, on: str, choice: str) -> None:
        row = self.rig.row(number)
        if row is not None:
            self.rig.act(self.answer(row, person, on, choice, f"{person}{choice}"), on=on)

    @precondition(lambda self: self.rig.store.asks)
    @rule(number=numbers, first=people, second=people, on=places, one=choices, other=choices)
    def two_act_at_once(
        self, number: int, first: str, second: str, on: str, one: str, other: str
    ) -> None:
        row = self.rig.row(number)
        if row is None:
            return
        acts = [self.answer(row, first, on, one, "a"), self.answer(row, second, on, other, "b")]
        self.rig.together(
            *(
                PersonActed(at=self.rig.now, channel=on, inbound=act, receipt_id=9_000 + index)
                for index, act in enumerate(acts)
            )
        )

    @rule(number=numbers, first=people, second=people, choice=choices, merge=st.booleans())
    def a_permission_is_voted_for(
        self, number: int, first: str, second: str, choice: str, merge: bool
    ) -> None:
        """What chance alone would seldom put together."""
        self.raises(number, True, merge)
        for person, on in ((first, "chat"), (second, "spare")):
            row = self.rig.row(number)
            if row is not None and row.state == "open":
                self.rig.act(self.answer(row, person, on, choice, person), on=on)
        self.rig.wait(1.0)

    @rule(person=people, back=st.booleans())
    def rights_change(self, person: str, back: bool) -> None:
        root = Who(identity="0", name="root", local=True)
        self.rig.do(OperatorChanged(at=self.rig.now, who=root, name=person, back=back))
        (self.revoked.discard if back else self.revoked.add)(person)

    @rule(number=numbers)
    def took(self, number: int) -> None:
        if self.rig.row(number) is not None:
            self.rig.took(number, found=self.forgotten(number))

    @rule(number=numbers)
    def cancels(self, number: int) -> None:
        self.rig.do(
            CancelAsked(
                at=self.rig.now,
                waiter=self.rig.waiter(),
                ask_id=ask_id(number),
                found=self.forgotten(number),
            )
        )

    @rule(name=st.sampled_from(["web", "chat", "spare"]), hearing=st.booleans())
    def hears(self, name: str, hearing: bool) -> None:
        self.rig.hears(name, hearing=hearing)

    @rule(how=st.sampled_from(["arrive", "arrive", "not_sent", "uncertain", "throttled"]))
    def carries(self, how: str) -> None:
        for name in ("chat", "spare", "web"):
            for row in self.rig.sending(name)[:2]:
                if how == "arrive":
                    self.rig.arrive(row)
                elif how == "throttled":
                    self.rig.fail(row, how, retry_after_s=20.0)
                else:
                    self.rig.fail(row, how)

    @rule(seconds=st.sampled_from([0.0, 1.0, 40.0, 700.0, 4000.0]))
    def time_passes(self, seconds: float) -> None:
        self.rig.wait(seconds)

    @rule(by_ms=st.sampled_from([HOUR_MS, -HOUR_MS, 5_000, 500]))
    def the_clock_is_set(self, by_ms: int) -> None:
        self.rig.wall_ms += by_ms
        self.rig.hears("web")

    @rule(told=st.booleans())
    def it_sleeps(self, told: bool) -> None:
        if told:
            self.rig.do(SleepComing(at=self.rig.now, coming=True))
        since_ms = self.rig.wall_ms
        self.rig.boot_s += 600.0
        self.rig.wall_ms += 600_000
        self.rig.do(Slept(at=self.rig.now, since_ms=since_ms))

    @rule(reboot=st.booleans())
    def crashes(self, reboot: bool) -> None:
        self.rebooted = self.rebooted or reboot
        boot = "boot-2" if self.rig.settings.boot_id == "boot-1" else "boot-1"
        self.rig.restart(boot_id=boot if reboot else None)

    def forgotten(self, number: int) -> AskRow | None:
        """Return an ask that only the store still knows, as the hub would look it up."""
        if self.rig.kernel.find(ask_id(number)) is not None:
            return None
        return self.rig.store.asks.get(ask_id(number))

    def answer(self, row: AskRow, person: str, on: str, choice: str, key: str) -> Answered:
        act: dict[str, Any] = {"decline": True}
        if choice != "decline":
            act = {"indices": (("yes", "no").index(choice),)}
        return Answered(
            key=f"{key}:{row.ask_id}:{on}:{len(self.rig.store.inbound)}",
            ask=row.ask_id,
            revision=row.revision,
            who=Who(identity=person, name=person),
            **act,
        )

    # --- what holds --------------------------------------------------------------------------

    @invariant()
    def an_outcome_stays(self) -> None:
        for row in self.rig.store.asks.values():
            if row.state != "closed":
                assert row.ask_id not in self.ended, "a closed ask is open again"
                continue
            ended = (row.outcome, row.answer, row.answered_by)
            assert self.ended.setdefault(row.ask_id, ended) == ended

    @invariant()
    def an_asker_is_told_one_answer_and_no_other(self) -> None:
        for release in self.rig.releases:
            if not isinstance(release, ToWaiter) or release.event != "answer":
                continue
            told = release.fields["result"]
            labels = tuple((told.get("answer") or {}).get("labels") or ())
            assert self.claimed.setdefault(told["id"], labels) == labels or not labels

    @invariant()
    def who_has_no_rights_has_no_vote(self) -> None:
        state = self.rig.kernel._state
        for row in state.asks.values():
            votes = standing(state, row, rules_of(state, row)).votes
            assert not {vote.person for vote in votes} & self.revoked

    @invariant()
    def a_permission_is_given_by_two(self) -> None:
        for claim in self.rig.store.claims.values():
            row = self.rig.store.asks[claim.ask_id]
            if row.spec.ask_class != "permission" or claim.selection is None or not claim.live:
                continue
            if all(map(is_refusal, claim.selection.labels)):
                continue
            agree = {
                vote.person
                for vote in self.rig.store.votes.values()
                if vote.ask_id == row.ask_id and vote.selection == claim.selection
            }
            assert len(agree) >= 2, (claim, agree)

    @invariant()
    def no_gate_is_closed_for_longer_than_was_asked(self) -> None:
        state = self.rig.kernel._state
        for due_s in state.gate_due.values():
            # Of a gate from before a reboot nothing is known but the wall clock.
            assert due_s - self.rig.boot_s <= 20.0 + 1e-6 or self.rebooted

    @invariant()
    def memory_is_what_the_store_says(self) -> None:
        state = self.rig.kernel._state
        opened = {
            row.ask_id: row for row in self.rig.store.asks.values() if row.state != "closed"
        }
        assert state.asks == opened


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
