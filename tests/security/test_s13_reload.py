"""S13: the configuration changed under the hub's feet: told, and never a right by accident."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.chat import ChatHome, FakeChat
from fakes.chat_parts.install import config_of, install
from fakes.home import eventually
from fakes.installation import Installation
from fakes.kernel_rig import Rig, channel
from upcall.core.announce import HUB_SESSION
from upcall.core.door import NOT_YET
from upcall.core.own_asks import AGREE, PAIR, TAKE_UP
from upcall.core.policy import NOT_OPERATOR
from upcall.model.effects import SaveSetting
from upcall.model.events import OperatorChanged, RootChanged, SettingsChanged, SettingsRefused
from upcall.model.platform import Receipt, Who
from upcall.model.policy import RIGHTS, Match, Operator, Policy, Route, Terms
from upcall.model.rows import AskRow, PairingRow
from upcall.model.settings import LiveSettings
from upcall.model.struct import replaced

ADA = Operator(name="ada", identities={"phone": "ada", "desk": "ada"})
EVE = Operator(name="eve", identities={"phone": "eve"})
OLD = LiveSettings(people={"ada": ADA})
HERE = Who(identity="1000", name="root", local=True)


def rig(**live: Any) -> Rig:
    settings = replaced(OLD, **live)
    made = Rig(
        channel("phone", own_user=False, buttons=9),
        channel("desk", own_user=False, buttons=9),
        uid="1000",
    )
    change(made, settings)
    made.arrive_all()
    fresh(made)
    return made


def fresh(made: Rig) -> None:
    """Forget what was told so far: what is in force at first is no news."""
    made.store.audit.clear()
    for number, row in made.store.notices.items():
        made.store.notices[number] = replaced(row, kind="info")


def change(made: Rig, settings: LiveSettings, source: str | None = None) -> None:
    source = source or repr(settings)
    made.do(SettingsChanged(at=made.now, settings=settings, source=source))


def press(made: Rig, who: str, on: str = "phone", **fields: Any) -> Receipt:
    receipt = made.answer(on=on, who=Who(identity=who, name=who), **fields)
    assert receipt is not None
    return receipt


def told(made: Rig) -> list[str]:
    return [row.text for row in made.store.notices.values() if row.kind == "security"]


def changed(made: Rig) -> list[str]:
    lines = [line for line in made.store.audit if line.event == "settings_changed"]
    return [str(line.facts["changes"]) for line in lines]


def own_ask(made: Rig, question: str = TAKE_UP) -> AskRow:
    (row,) = [
        row
        for row in made.store.asks.values()
        if row.session_id == HUB_SESSION
        and row.state != "closed"
        and row.spec.question == question
    ]
    return row


TWO = Terms(quorum=2, veto=True)
WIDER = [
    (OLD, replaced(OLD, people={"ada": ADA, "eve": EVE}), "operator eve is new: phone eve"),
    (
        OLD,
        replaced(OLD, people={"ada": replaced(ADA, identities={**ADA.identities, "x": "7"})}),
        "ada is 7 on x",
    ),
    (
        OLD,
        replaced(
            OLD, people={"ada": replaced(ADA, identities={"phone": "mal", "desk": "ada"})}
        ),
        "ada is mal on phone, was ada",
    ),
    (
        OLD,
        replaced(OLD, people={"ada": replaced(ADA, rights=frozenset(RIGHTS))}),
        "ada may control",
    ),
    (
        replaced(OLD, people={"ada": replaced(ADA, rights_on={"desk": frozenset()})}),
        OLD,
        "ada may approve on desk",
    ),
    (
        OLD,
        replaced(OLD, people={"ada": replaced(ADA, roles=frozenset({"ops"}))}),
        "ada has the role ops",
    ),
    (OLD, replaced(OLD, people={}), "the user whose hub this is counts as operator"),
    (
        replaced(OLD, policy=Policy(defaults=TWO)),
        replaced(OLD, policy=Policy(defaults=Terms(veto=True))),
        "quorum is not set, was 2",
    ),
    (
        replaced(OLD, policy=Policy(defaults=TWO)),
        replaced(OLD, policy=Policy(defaults=Terms(quorum=2))),
        "veto is not set, was true",
    ),
    (
        OLD,
        replaced(OLD, policy=Policy(defaults=Terms(exclude_asker=False))),
        "exclude_asker is false",
    ),
    (
        replaced(OLD, policy=Policy(defaults=Terms(second="machine"))),
        OLD,
        "second is not set, was machine",
    ),
    (
        replaced(OLD, policy=Policy(defaults=Terms(answer_by=("ada",)))),
        replaced(OLD, policy=Policy(defaults=Terms(answer_by=("ada", "role:ops")))),
        "answer_by is ada, role:ops, was ada",
    ),
    (
        replaced(OLD, policy=Policy(routes=(Route(match=Match(repo="a"), terms=TWO),))),
        replaced(OLD, policy=Policy(routes=(Route(match=Match(repo="b"), terms=TWO),))),
        "which asks the routes with rules on answers are for",
    ),
    (
        OLD,
        replaced(OLD, policy=Policy(routes=(Route(terms=Terms(redact=False)),))),
        "which asks the routes with rules on answers are for",
    ),
    (OLD, replaced(OLD, redact=False), "redaction is off"),
    (OLD, replaced(OLD, local_answers="any"), "local_answers is any, was tty"),
    (OLD, replaced(OLD, allow_direct_clients=True), "allow_direct_clients is on"),
    (OLD, replaced(OLD, adapters={"irc": "ircish"}), "channel irc is served by an adapter of"),
]
NARROWER = [
    (replaced(OLD, people={"ada": ADA, "eve": EVE}), OLD, "operator eve is gone"),
    (OLD, replaced(OLD, policy=Policy(defaults=TWO)), "quorum is 2"),
    (replaced(OLD, redact=False), OLD, "redaction is on"),
    (OLD, replaced(OLD, local_answers="off"), "local_answers is off"),
]


@pytest.mark.parametrize(("old", "new", "words"), WIDER, ids=lambda one: str(one)[:40])
def test_whatever_widens_a_right_is_told_on_every_channel_and_audited(
    old: LiveSettings, new: LiveSettings, words: str
) -> None:
    made = rig(**{name: getattr(old, name) for name in old.__struct_fields__})
    change(made, new)
    (line,) = changed(made)
    assert words in line
    (notice,) = told(made)
    assert words.lower() in notice.lower()
    assert {row.target for row in made.sending()} == {"phone", "desk"}


@pytest.mark.parametrize(("old", "new", "words"), NARROWER, ids=lambda one: str(one)[:40])
def test_what_narrows_is_in_the_audit_and_disturbs_nobody(
    old: LiveSettings, new: LiveSettings, words: str
) -> None:
    made = rig(**{name: getattr(old, name) for name in old.__struct_fields__})
    change(made, new)
    assert words in changed(made)[0]
    assert told(made) == []


def test_a_new_operator_counts_only_when_the_others_were_told() -> None:
    made = rig()
    made.ask(wait=False)
    made.arrive_all()
    change(made, replaced(OLD, people={"ada": ADA, "eve": EVE}))
    early = press(made, "eve")
    assert (early.code, early.msg) == ("not_permitted", NOT_YET)
    (phone, desk) = [row for row in made.sending() if row.effect.startswith("notice:")]
    made.arrive(phone)
    assert press(made, "eve").msg == NOT_YET
    made.arrive(desk)
    assert press(made, "eve").ok


def test_a_channel_that_hears_nothing_does_not_lock_a_new_operator_out() -> None:
    made = rig()
    made.ask(wait=False)
    made.arrive_all()
    made.hears("desk", hearing=False)
    change(made, replaced(OLD, people={"ada": ADA, "eve": EVE}))
    (phone,) = [row for row in made.sending("phone") if row.effect.startswith("notice:")]
    assert press(made, "eve").msg == NOT_YET
    made.arrive(phone)
    assert press(made, "eve").ok


def test_a_new_operator_waits_over_a_restart_too() -> None:
    made = rig()
    made.ask(wait=False)
    made.arrive_all()
    new = {"ada": ADA, "eve": EVE}
    change(made, replaced(OLD, people=new))
    made.restart(people=new)
    change(made, replaced(OLD, people=new))
    assert press(made, "eve").msg == NOT_YET
    made.arrive_all()
    assert press(made, "eve").ok
    made.restart(people=new)
    made.ask(2, wait=False)
    assert press(made, "eve", row=2).ok


def test_the_former_operators_need_not_wait_for_the_news() -> None:
    made = rig()
    made.ask(wait=False)
    made.arrive_all()
    change(made, replaced(OLD, people={"ada": ADA, "eve": EVE}))
    assert press(made, "ada").ok


def test_a_file_that_cannot_be_used_changes_nothing_and_is_told() -> None:
    made = rig()
    made.ask(wait=False)
    made.do(SettingsRefused(at=made.now, msg="config.toml:3: unknown key 'x\x1b[2J'"))
    assert "cannot be used" in told(made)[0]
    assert "\x1b" not in told(made)[0]
    assert press(made, "eve").code == "stranger"
    assert press(made, "ada").ok


def test_a_new_root_is_told() -> None:
    made = rig()
    made.do(RootChanged(at=made.now, waiter=0, path="/src/shop", gone=False))
    assert "/src/shop" in told(made)[0]
    assert {row.target for row in made.sending()} == {"phone", "desk"}


def test_what_was_changed_while_no_hub_ran_is_told_at_the_start() -> None:
    made = rig()
    made.restart(people={"ada": ADA})
    change(made, replaced(OLD, people={"ada": ADA, "eve": EVE}))
    assert "Operator eve is new" in told(made)[0]


def test_the_same_file_again_is_no_news() -> None:
    made = rig()
    commits = made.store.commits
    change(made, OLD, repr(OLD))
    assert told(made) == []
    assert made.store.commits == commits


# --- only with the yes of a former operator -------------------------------------------------


ASKED = replaced(OLD, confirm_changes=True)
EVIL = LiveSettings(people={"ada": ADA, "eve": EVE})


def asked() -> Rig:
    made = rig(confirm_changes=True)
    change(made, EVIL)
    made.arrive_all()
    return made


def test_a_change_that_widens_waits_for_a_former_operator() -> None:
    made = asked()
    made.ask(wait=False)
    row = own_ask(made)
    assert row.spec.ask_class == "permission"
    assert "+ operator eve is new" in (row.spec.detail or "")
    assert "confirm_changes is off" in (row.spec.detail or "")
    assert press(made, "eve").code == "stranger"
    assert press(made, "eve", row=row).code == "stranger"
    assert made.kernel.waiting_settings is not None
    assert press(made, "ada", row=row).ok
    made.arrive_all()
    assert made.kernel.waiting_settings is None
    assert "Operator eve is new" in told(made)[-1]
    assert press(made, "eve").ok


@pytest.mark.parametrize("how", [{"indices": (1,)}, {"decline": True}])
def test_a_change_that_is_refused_is_not_in_force_and_not_asked_again(
    how: dict[str, Any],
) -> None:
    made = asked()
    assert press(made, "ada", row=own_ask(made), **how).ok
    change(made, EVIL)
    made.restart(people={"ada": ADA}, confirm_changes=True)
    change(made, EVIL)
    made.ask(wait=False)
    assert press(made, "eve").code == "stranger"
    rows = [row for row in made.store.asks.values() if row.session_id == HUB_SESSION]
    assert [row.state for row in rows] == ["closed"]
    waiting = made.kernel.waiting_settings
    assert waiting is not None
    assert waiting.ask_id is None


def test_a_restart_does_not_bring_a_change_in_force() -> None:
    made = asked()
    row = own_ask(made)
    made.restart(people={"ada": ADA}, confirm_changes=True)
    # Before the file is read again a yes finds nothing that it could be for.
    change(made, EVIL)
    assert own_ask(made).ask_id == row.ask_id
    made.ask(wait=False)
    assert press(made, "eve").code == "stranger"
    assert press(made, "ada", row=own_ask(made)).ok
    made.arrive_all()
    assert press(made, "eve").ok


def test_another_file_is_another_question_and_the_former_one_is_over() -> None:
    made = asked()
    first = own_ask(made)
    change(made, replaced(EVIL, redact=False))
    second = own_ask(made)
    assert second.ask_id != first.ask_id
    late = press(made, "ada", row=first)
    assert not late.ok
    change(made, ASKED, repr(ASKED))
    assert made.kernel.waiting_settings is None
    assert made.store.asks[second.ask_id].state == "closed"


def test_what_narrows_needs_no_yes() -> None:
    made = rig(confirm_changes=True)
    change(made, replaced(ASKED, policy=Policy(defaults=TWO)))
    assert made.kernel.waiting_settings is None
    assert "quorum is 2" in changed(made)[0]


def test_the_quorum_in_force_holds_for_its_own_change() -> None:
    bob = Operator(name="bob", identities={"phone": "bob"})
    two = Policy(defaults=Terms(quorum=2, exclude_asker=False))
    made = rig(confirm_changes=True, people={"ada": ADA, "bob": bob}, policy=two)
    change(made, EVIL)
    press(made, "ada", row=own_ask(made))
    press(made, "ada", on="desk", row=own_ask(made))
    assert made.kernel.waiting_settings is not None
    press(made, "bob", row=own_ask(made))
    assert made.kernel.waiting_settings is None


def test_a_person_who_is_added_waits_too() -> None:
    made = rig(confirm_changes=True)
    pairing = PairingRow(name="eve", channel="phone", identity="eve")
    made.do(OperatorChanged(at=made.now, who=HERE, pairing=pairing))
    made.arrive_all()
    made.restart(people={"ada": ADA}, confirm_changes=True)
    made.ask(wait=False)
    assert press(made, "eve").code == "stranger"
    row = own_ask(made, PAIR)
    assert row.spec.options == AGREE
    assert press(made, "ada", row=row).ok
    made.arrive_all()
    assert press(made, "eve").ok


def test_a_person_who_was_not_let_in_is_forgotten() -> None:
    made = rig(confirm_changes=True)
    pairing = PairingRow(name="eve", channel="phone", identity="eve")
    made.do(OperatorChanged(at=made.now, who=HERE, pairing=pairing))
    assert press(made, "ada", row=own_ask(made, PAIR), indices=(1,)).ok
    assert made.store.pairings == {}


def test_what_was_in_force_is_kept_with_the_change_in_one_commit() -> None:
    made = rig()
    decision = made.do(SettingsChanged(at=made.now, settings=EVIL, source="evil"))
    kept = [one for one in decision.writes if isinstance(one, SaveSetting)]
    assert SaveSetting("", "settings", "evil") in kept


# --- a real hub and its file ----------------------------------------------------------------


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    with tempfile.TemporaryDirectory(prefix="ui", dir="/tmp") as folder:
        made = Installation(folder)
        install(made)
        install(made, "otherchat")
        yield made


class Stage:
    """A hub with two chats, and its configuration file."""

    def __init__(self, installation: Installation, chats: tuple[FakeChat, FakeChat]) -> None:
        self.one, self.two = chats
        self.home = ChatHome(self.one, installation=installation, operators=())
        self.people: dict[str, str] = {"ada": "", "bob": ""}

    def text(self, more: str = "") -> str:
        people = "".join(
            f"[operators.{name}]\n"
            f'identities = {{ fakechat = "{name}", otherchat = "{name}" }}\n{lines}\n'
            for name, lines in self.people.items()
        )
        chats = config_of(self.one) + config_of(self.two, "otherchat")
        return f"{more}\n{chats}\n{people}"

    def write(self, more: str = "") -> Path:
        return Path(self.home.write_config(self.text(more)))

    def degraded(self) -> dict[str, str]:
        with self.home.line("control") as line:
            return {one["code"]: one["msg"] for one in line.ok("status")["degraded"]}


@pytest.fixture
def stage(installation: Installation) -> Iterator[Stage]:
    with FakeChat() as one, FakeChat() as two:
        made = Stage(installation, (one, two))
        try:
            yield made
        finally:
            made.home.close()


def test_an_edit_of_the_file_is_told_on_both_chats_before_the_new_one_counts(
    stage: Stage,
) -> None:
    stage.write()
    stage.home.start_chat_hub()
    stage.home.hand_over("Deploy?", "-o", "yes", "-o", "no")
    card = stage.one.card("Deploy?")
    assert stage.one.receipt(stage.one.press(card, "yes", who="eve"))["code"] == "stranger"
    stage.people["eve"] = ""
    stage.write()
    told = [chat.card("Operator eve is new") for chat in (stage.one, stage.two)]
    assert all("may see, answer, approve, steer" in one.text for one in told)
    eventually(lambda: stage.one.receipt(stage.one.press(card, "yes", who="eve"))["ok"])
    # In force already; nothing more to take up.
    assert stage.home.run("hub", "reload").out == "nothing has changed\n"


BROKEN = [
    ("[operators.ada\n", "not TOML"),
    ('[operators.ada]\nrights = ["everything"]\n', "operators.ada"),
    ("[policy]\nquorum = 0\n", "quorum"),
    ('[policy]\nanswer_by = ["nobody"]\n', "nobody"),
    ("[operators.mal]\nidentities = { fakechat = 'eve' }\nright = []\n", "operators.mal"),
]


def test_a_file_that_cannot_be_used_widens_no_right(stage: Stage) -> None:
    path = stage.write()
    running = stage.home.start_chat_hub()
    ask = stage.home.hand_over("Deploy?", "-o", "yes", "-o", "no")
    card = stage.one.card("Deploy?")
    stage.people["eve"] = ""

    def is_refused(words: str) -> None:
        with stage.home.line("control") as line:
            assert line.refused("reload") == "config_invalid"
        assert words in stage.degraded()["config_invalid"]
        assert "stays in force" in stage.degraded()["config_invalid"]
        refused = stage.one.receipt(stage.one.press(card, "yes", who="eve"))
        assert refused["code"] == "stranger"

    for text, words in BROKEN:
        stage.home.write_config(text)
        is_refused(words)
    for chat in (stage.one, stage.two):
        chat.card("cannot be used")
    stage.write()
    path.chmod(0o660)
    is_refused("config.toml")
    path.unlink()
    Path(f"{path}.real").write_text(stage.text(), encoding="utf-8")
    Path(f"{path}.real").chmod(0o600)
    path.symlink_to(f"{path}.real")
    is_refused("config.toml")
    assert stage.home.run("hub", "reload").code == 1
    # Whoever runs a command hears of it.
    for args in (("asks",), ("notify", "x"), ("ask", "Now?", "--no-wait"), ("operators",)):
        said = stage.home.run(*args)
        assert (said.code, "config.toml" in said.err) == (0, True), said
        assert "config.toml" not in said.out
    # Not even by a restart: then nobody but those of before counts, and not the hub's user,
    # who is an operator where none is named.
    running.kill()
    running = stage.home.start("hub", "run")
    eventually(lambda: stage.home.hub_pid() == running.pid, what="the next hub")
    assert "config_invalid" in stage.degraded()
    own = stage.home.run("answer", ask, "yes")
    assert (own.code, NOT_OPERATOR in own.err) == (1, True), own


def test_a_good_file_after_a_broken_one_is_taken_up(stage: Stage) -> None:
    stage.write()
    stage.home.start_chat_hub()
    stage.home.write_config("[policy\n")
    eventually(lambda: "config_invalid" in stage.degraded(), what="it is looked at by itself")
    stage.people["eve"] = ""
    stage.write()
    stage.two.card("Operator eve is new")
    eventually(lambda: "config_invalid" not in stage.degraded())


def test_confirm_changes_holds_over_an_edit_while_no_hub_runs(stage: Stage) -> None:
    stage.write("[security]\nconfirm_changes = true\n")
    running = stage.home.start_chat_hub()
    stage.home.hand_over("Deploy?", "-o", "yes", "-o", "no")
    card = stage.one.card("Deploy?")
    running.kill()
    stage.people["eve"] = ""
    stage.write()
    stage.home.start_chat_hub()
    question = stage.two.card(TAKE_UP)
    assert "confirm_changes is off" in question.text
    assert stage.one.receipt(stage.one.press(card, "yes", who="eve"))["code"] == "stranger"
    assert "config_waits" in stage.degraded()
    assert stage.two.receipt(stage.two.press(question, AGREE[0], who="bob"))["ok"]
    stage.one.card("Operator eve is new")
    eventually(lambda: stage.one.receipt(stage.one.press(card, "yes", who="eve"))["ok"])
    assert "config_waits" not in stage.degraded()
