"""Words that people write in conversations: answered with, passed on, or asked about.

`core.texts` judges what they mean. Where nobody can tell, the hub asks the writer, and sends
nothing meanwhile; what waits for that is a row, so that a restart loses and sends nothing.
"""

import hashlib
from collections.abc import Callable
from datetime import datetime
from typing import Final, TypeAlias

from upcall.core.buttons import TEXT, HubButtons
from upcall.core.copies import may_be_lost
from upcall.core.redacting import mask_of, shown_ask
from upcall.core.render import answer_words, by_words, duration_words
from upcall.core.state import HubState, Step
from upcall.core.texts import (
    Answers,
    Late,
    Message,
    Shown,
    Unclear,
    Unfit,
    is_meant,
    judge,
    number_of,
)
from upcall.model.effects import DropText
from upcall.model.events import PersonActed
from upcall.model.ids import AskId, SessionId, short_id
from upcall.model.platform import Answered, Pressed, Receipt, Texted
from upcall.model.rows import AskRow, ButtonKind, HeldText, HubButton, InboundRow
from upcall.model.text import one_line

LATE_MS: Final = 24 * 3_600_000
"""Words that come later than this after the end of an ask are about something else."""
HELD_S: Final = 24 * 3600.0
MAX_HELD: Final = 256
TEXTS_SINCE_KEPT: Final = 4096

EDITED: Final = "A change to a message changes nothing that was sent. Write a new message."
RELAYED: Final = (
    "This came by another app or bot, so nobody knows who wrote it. Nothing was sent."
)
NO_SESSION: Final = "This session does not take messages now; nothing was sent."
FULL: Final = "Too many messages wait for a word of yours. Nothing was sent."
OVER: Final = "That question is over. Nothing was sent."
DROPPED: Final = "Dropped. Nothing was sent."
NOT_YOURS: Final = "Whoever wrote it says what it was. Nothing was sent."
NO_BUTTONS: Final = "Reply to the card itself. Nothing was sent."

Act: TypeAlias = Answered | Texted | Receipt
"""What is to be done: answer, pass on to the session, or only say something."""


class Words:
    """Hears what people write."""

    def __init__(
        self, state: HubState, buttons: HubButtons, takes_text: Callable[[SessionId], bool]
    ) -> None:
        self._state = state
        self._buttons = buttons
        self._takes_text = takes_text

    def heard(self, step: Step, event: PersonActed, text: Texted) -> Act:
        """Return what becomes of a text; whoever calls has let the person in."""
        if text.place is None:
            return text
        if text.origin == "automatic":
            return Receipt(ok=True, code="ignored")
        if text.origin == "edited":
            return self._edited(step, event, text)
        if text.origin == "relayed":
            return Receipt(ok=False, code="not_an_answer", msg=RELAYED)
        key = self._conversation(event.channel, text.place.address)
        session_id = self._session(key)
        before = self._heard_from(event.channel, text, step.at.wall_ms)
        shown = self._shown(event.channel, text.place.address)
        info = self._state.infos.get(event.channel)
        numbers = info is not None and info.capabilities.shows_numbers
        replied = self._replied(event, text)
        verdict = judge(text, shown, replied, numbers=numbers)
        if isinstance(verdict, Message) and text.origin == "typed" and text.reply_to is None:
            settled = self._settled(key, event, text, before, numbers=numbers)
            verdict = Late(settled) if settled is not None else verdict
        match verdict:
            case Answers(row, index):
                return _answer(row, text, index)
            case Unfit(row, why):
                if text.reply_to is None and session_id is not None:
                    return _passed(text, session_id)
                why = mask_of(self._state, row)(_said(why))
                return Receipt(ok=False, code="invalid_answer", msg=f"{why} Nothing was sent.")
            case Unclear(rows):
                return self._ask(step, event, text, key, session_id, rows)
            case Late(row):
                return self._ask_late(step, event, text, key, session_id, row)
            case _:
                if session_id is not None:
                    return _passed(text, session_id)
                return Receipt(ok=False, code="session_gone", msg=NO_SESSION)

    def pressed(self, button: HubButton, press: Pressed) -> Act:
        """Return what the writer of a held text wants to become of it; `done` comes next."""
        held = self._held(button)
        if held is None:
            return Receipt(ok=False, code="unknown_button", msg=OVER)
        if press.who.identity != held.identity:
            return Receipt(ok=False, code="not_permitted", msg=NOT_YOURS)
        row = self._state.asks.get(AskId(button.ask_id))
        text = Texted(
            key=press.key, who=press.who, text=held.text, session_id=held.session_id or None
        )
        match button.kind:
            case "answer" if row is not None:
                return _answer(row, text, self._number(row, button.channel, held.text))
            case "message":
                return text
            case "drop":
                return Receipt(ok=True, code="dropped", msg=DROPPED)
            case _:
                return Receipt(ok=False, code="already_answered", msg=OVER)

    def done(
        self, step: Step, button: HubButton, receipt: Receipt | None, ref: str | None
    ) -> None:
        """Say in the thread what became of a held text; no word of it is kept."""
        held = self._held(button)
        if held is None or (receipt is not None and receipt.code == "not_permitted"):
            return
        words = DROPPED
        if receipt is not None and not receipt.ok:
            words = receipt.msg or OVER
        elif button.kind == "answer":
            words = f"Given as the answer to {short_id(AskId(button.ask_id))}; see its card."
        elif button.kind == "message":
            words = "Passed to the session as a message."
        self._end(step, held, words, ref=ref)

    def _held(self, button: HubButton) -> HeldText | None:
        number = button.subject.removeprefix(TEXT)
        return self._state.texts.get(int(number)) if number.isdecimal() else None

    def due(self, step: Step, number: int) -> None:
        """Nobody said for a day what a text was: it is sent nowhere."""
        held = self._state.texts.get(number)
        if held is not None:
            self._end(step, held, "Nobody said what this was. Nothing was sent.")

    def resume(self, step: Step) -> None:
        """At start: what waits goes on to wait, and not for ever."""
        for held in self._state.texts.values():
            left_s = HELD_S - (step.at.wall_ms - held.at_ms) / 1000
            step.timer(step.at.boot_s + max(0.0, left_s), "text", str(held.id))

    # --- where and what ---------------------------------------------------------------------

    def _conversation(self, channel: str, address: str) -> str | None:
        """Return the key of the conversation whose thread this is."""
        for key, of_key in self._state.conversations.items():
            row = of_key.get(channel)
            if row is not None and row.place == address:
                return key
        return None

    def _session(self, key: str | None) -> SessionId | None:
        """Return the newest session of a conversation that takes messages now."""
        living = [] if key is None else list(self._state.living.get(key, ()))
        return next((one for one in reversed(living) if self._takes_text(one)), None)

    def _shown(self, channel: str, address: str) -> list[Shown]:
        found = []
        for row in self._state.asks.values():
            card = self._state.cards.get(row.ask_id, {}).get(channel)
            if card is None or card.place != address:
                continue
            copies = self._state.copies.get(row.ask_id, {}).get(channel, ())
            refs = frozenset((*copies, *([] if card.ref is None else [card.ref])))
            # On its way it may be there before the hub hears what it is called.
            is_coming = card.ref is None and self._state.is_posting(row.ask_id, channel)
            lost = is_coming or may_be_lost(self._state, row.ask_id, channel)
            found.append(Shown(row, refs, card.posted_ms, lost))
        return found

    def _replied(self, event: PersonActed, text: Texted) -> AskRow | None:
        """Return the closed ask whose card the text replies to, if it is of this thread."""
        if text.reply_to is None or event.found is None:
            return None
        row = self._state.find(event.found.ask_id) or event.found
        return row if row.state == "closed" else None

    def _settled(
        self,
        key: str | None,
        event: PersonActed,
        text: Texted,
        before_ms: int,
        *,
        numbers: bool,
    ) -> AskRow | None:
        """Return the ask that the text would have answered, had it not been settled already.

        That is so for the first words that a person says in a thread after an ask there ended
        otherwise than by that person there: a telephone that was out of reach sends them late.
        """
        now_ms = text.sent_ms or 0
        for row in reversed(self._state.closed.values()):
            ended_ms = row.closed_ms or 0
            session = self._state.session(row.session_id)
            if session is None or session.conversation != key or ended_ms <= before_ms:
                continue
            if now_ms and now_ms - ended_ms > LATE_MS:
                return None
            by = row.answered_by
            if by is not None and by.channel == event.channel:
                return None
            return row if is_meant(row.spec, text.text, numbers=numbers) else None
        return None

    def _heard_from(self, channel: str, text: Texted, now_ms: int) -> int:
        """Return when this person last wrote in this thread, and note that it is now."""
        since = self._state.texts_since
        address = text.place.address if text.place is not None else ""
        key = (channel, address, text.who.identity)
        before_ms = since.pop(key, 0)
        since[key] = now_ms
        while len(since) > TEXTS_SINCE_KEPT:
            del since[next(iter(since))]
        return before_ms

    def _number(self, row: AskRow, channel: str, words: str) -> int | None:
        info = self._state.infos.get(channel)
        if info is None or not info.capabilities.shows_numbers:
            return None
        return number_of(row.spec, words)

    # --- asking -----------------------------------------------------------------------------

    def _ask(
        self,
        step: Step,
        event: PersonActed,
        text: Texted,
        key: str | None,
        session_id: SessionId | None,
        rows: tuple[AskRow, ...],
    ) -> Receipt:
        buttons: list[tuple[str, ButtonKind, str]] = []
        answerable = [row for row in rows if row.spec.ask_class != "permission"][:3]
        names = " or ".join(short_id(row.ask_id) for row in rows[:3])
        for row in answerable:
            which = f" to {short_id(row.ask_id)}" if len(answerable) > 1 else ""
            buttons.append((f"Send as answer{which}", "answer", row.ask_id))
        words = f"Was that an answer to {names}? Nothing was sent."
        if not answerable:
            words += " It is answered by its own buttons, or by a reply to its card."
        return self._hold(step, event, text, key, session_id, words, buttons)

    def _ask_late(
        self,
        step: Step,
        event: PersonActed,
        text: Texted,
        key: str | None,
        session_id: SessionId | None,
        row: AskRow,
    ) -> Receipt:
        when = f"Came after the answer: {self._ended(step, row)}"
        if session_id is None:
            return Receipt(ok=False, code="already_answered", msg=f"{when}. Nothing was sent.")
        words = f"{when}; passed to the session as a message?"
        return self._hold(step, event, text, key, session_id, words, [])

    def _hold(
        self,
        step: Step,
        event: PersonActed,
        text: Texted,
        key: str | None,
        session_id: SessionId | None,
        words: str,
        buttons: list[tuple[str, ButtonKind, str]],
    ) -> Receipt:
        state, info = self._state, self._state.infos.get(event.channel)
        if key is None or info is None or not info.capabilities.buttons_per_card:
            return Receipt(ok=False, code="not_an_answer", msg=f"{_said(words)} {NO_BUTTONS}")
        if len(state.texts) >= MAX_HELD:
            return Receipt(ok=False, code="limit_reached", msg=FULL)
        if session_id is not None:
            label = "Send as message" if buttons else "Send"
            buttons.append((label, "message", ""))
        buttons.append(("Drop", "drop", ""))
        state.last_text += 1
        held = HeldText(
            id=state.last_text,
            channel=event.channel,
            place=text.place.address if text.place is not None else "",
            session_id=session_id or "",
            event_key=text.key,
            identity=text.who.identity,
            name=text.who.name,
            text=text.text,
            at_ms=step.at.wall_ms,
        )
        state.texts[held.id] = held
        step.write(held)
        self._inbound(step, event.channel, text.key, text.text)
        step.audit("text_held", None, session=session_id, channel=event.channel)
        step.timer(step.at.boot_s + HELD_S, "text", str(held.id))
        subject = f"{TEXT}{held.id}"
        self._buttons.ask(step, info, key, subject, words, buttons, rings=True)
        return Receipt(ok=True, code="asked", msg=words)

    def _end(self, step: Step, held: HeldText, said: str, *, ref: str | None = None) -> None:
        del self._state.texts[held.id]
        step.write(DropText(held.id))
        self._buttons.settle(step, f"{TEXT}{held.id}", said, ref=ref)

    def _edited(self, step: Step, event: PersonActed, text: Texted) -> Receipt:
        seen = (event.channel, f"edited:{text.ref or text.key}")
        if seen in self._state.inbound:
            return Receipt(ok=True, code="ignored")
        self._inbound(step, event.channel, seen[1], "")
        return Receipt(ok=False, code="not_an_answer", msg=EDITED)

    def _inbound(self, step: Step, channel: str, key: str, content: str) -> None:
        state = self._state
        state.last_inbound += 1
        data = content.encode("utf-8", "surrogatepass")
        step.write(
            InboundRow(
                id=state.last_inbound,
                channel=channel,
                event_key=key,
                content_key=hashlib.sha256(data).hexdigest(),
                at_ms=step.at.wall_ms,
            )
        )
        state.inbound[channel, key] = None

    def _ended(self, step: Step, row: AskRow) -> str:
        """Return who ended an ask, how and when: `ada chose No at 14:02`."""
        row = shown_ask(self._state, row)
        claim = self._state.claims.get(row.ask_id)
        at_ms = row.closed_ms or (claim.at_ms if claim is not None else step.at.wall_ms)
        zone = self._state.settings.zone
        when = f"{duration_words((step.at.wall_ms - at_ms) / 1000)} ago"
        if zone is not None:
            when = f"at {datetime.fromtimestamp(at_ms / 1000, zone):%H:%M}"
        if claim is not None:
            name = one_line(claim.operator or "somebody")
            return f"{name} answered {when}"
        by = row.answered_by
        match row.outcome:
            case "answered" if by is not None:
                name = one_line(by.name) if by.name and not by.detail else by_words(by)
                return f"{name} chose {answer_words(row)} {when}"
            case "declined" if by is not None:
                return f"{by_words(by)} declined {when}"
            case "timed_out":
                return f"nobody had answered when the time was over, {when}"
            case _:
                return f"the program stopped waiting {when}"


def _answer(row: AskRow, text: Texted, index: int | None) -> Answered:
    return Answered(
        key=text.key,
        ask=row.ask_id,
        revision=row.revision,
        who=text.who,
        indices=None if index is None else (index,),
        text=text.text if index is None else None,
        sent_ms=text.sent_ms,
    )


def _passed(text: Texted, session_id: SessionId) -> Texted:
    return Texted(key=text.key, who=text.who, text=text.text, session_id=session_id)


def _said(words: str) -> str:
    return words[:1].upper() + words[1:] + ("" if words.endswith((".", "?")) else ".")
