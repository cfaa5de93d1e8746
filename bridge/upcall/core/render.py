"""Domain facts to neutral messages and plain sentences. No platform's markup here."""

from collections.abc import Callable
from datetime import datetime, tzinfo
from typing import Final

from upcall.core.places import Plan
from upcall.model.ask import WITHHELD, AnsweredBy, AskResult, Selection
from upcall.model.document import (
    Block,
    Button,
    Choices,
    Code,
    Fields,
    Message,
    Paragraph,
    Quote,
    Span,
)
from upcall.model.policy import ROLE, Rules
from upcall.model.refusals import is_refusal
from upcall.model.rows import AskRow, ClaimRow, SessionRow, TokenRow
from upcall.model.shown import label_notes, label_shown, must_be_numbered
from upcall.model.struct import replaced
from upcall.model.text import one_line, visible

CHANGED: Final = (
    "The program changed its question after this card was posted. Nothing was sent. "
    "New question below."
)
LOCAL: Final = "local:"
AGENT_SAYS: Final = "the agent says"
LOST_WORDS: Final = "The answer was lost when the hub stopped; please answer again."
_REFUSED: Final = "Refused: "


def claimed_by(claim: ClaimRow) -> AnsweredBy:
    """Return who made *claim*, with what the kernel said of a local program."""
    origin = claim.origin or ""
    detail = origin.removeprefix(LOCAL) if origin.startswith(LOCAL) else ""
    return AnsweredBy(claim.operator, claim.channel, detail)


def refused_note(note: str, detail: str, count: int) -> str:
    """Return what a card says once *count* answers were not believed, with what it said."""
    kept = note.partition(_REFUSED)[0].rstrip(". ")
    by = one_line(detail, 200) or "an unknown program"
    told = f"an answer from {by}" if count == 1 else f"{count} answers, the last from {by}"
    return f"{kept}. {_REFUSED}{told}." if kept else f"{_REFUSED}{told}."


def answer_words(row: AskRow | AskResult) -> str:
    """Return the answer as a person reads it: labels, then words."""
    return selection_words(row.answer)


def selection_words(
    selection: Selection | None, shown: Callable[[str], str] | None = None
) -> str:
    """Return what was chosen as a person reads it: labels, then words.

    *shown* masks it before it is cut to a line.
    """
    if selection is None:
        return ""
    if selection.secret is True:
        return WITHHELD
    parts = list(selection.labels)
    if selection.text is not None:
        parts.append(selection.text)
    words = ", ".join(parts)
    return one_line(words if shown is None else shown(words))


def duration_words(seconds: float) -> str:
    """Return a duration as people say it: `8 s`, `2 min 10 s`, `1 h 5 min`, `3 d 2 h`."""
    whole = int(seconds)
    if whole < 1:
        return f"{max(seconds, 0.0):.1f} s"
    for size, unit, rest, rest_unit in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            tail = whole % size // rest
            return f"{whole // size} {unit}" + (f" {tail} {rest_unit}" if tail else "")
    return f"{whole} s"


def who_words(row: AskRow) -> str:
    """Return who answered and where, in words."""
    return "nobody" if row.answered_by is None else by_words(row.answered_by)


def by_words(by: AnsweredBy) -> str:
    """Return who answered and where; of a program on this computer, what the kernel says."""
    if by.name is None:
        return f"another program on this computer ({one_line(by.channel)}), person unknown"
    if by.detail:
        return f"user {one_line(by.name)} on this computer ({one_line(by.detail)})"
    return f"{one_line(by.name)} on {one_line(by.channel)}"


def _did_words(by: AnsweredBy, what: str) -> str:
    # A person is named before the deed, and the place after it.
    if by.name is None or by.detail:
        return f"{by_words(by)} {what}"
    return f"{one_line(by.name)} {what} on {one_line(by.channel)}"


def late_words(row: AskRow, at_ms: int) -> str:
    """Return why an answer came too late: what won, by whom, where and when."""
    ago = _ago(row.closed_ms, at_ms)
    by = row.answered_by
    match row.outcome:
        case "answered" if by is not None and by.name is not None:
            did = _did_words(by, f"answered {_quoted(row.answer)}")
            return f"{did} {ago}. Your input was not used."
        case "answered":
            return f"{who_words(row)}: {_quoted(row.answer)}, {ago}. Your input was not used."
        case "declined":
            return f"{who_words(row)} declined {ago}. Your input was not used."
        case "timed_out":
            return f"This ask timed out {ago}. Your input was not used."
        case "cancelled":
            return f"The program withdrew its question {ago}. Your input was not used."
        case "superseded" if row.note == CHANGED:
            return CHANGED
        case "superseded":
            return f"The program stopped waiting for this {ago}. Your input was not used."
        case _:
            return (
                row.note or f"The program that asked was gone {ago}. Your input was not used."
            )


def late_code(row: AskRow) -> str:
    """Return the code that goes with `late_words`."""
    if row.outcome == "superseded":
        return "stale_card"
    return "unreachable" if row.outcome == "unreachable" else "already_answered"


def claimed_words(claim: ClaimRow, at_ms: int) -> str:
    """Return why an answer came too late for another one that is on its way."""
    what = "declined" if claim.declined else f"answered {_quoted(claim.selection)}"
    did = _did_words(claimed_by(claim), what)
    ago = _ago(claim.at_ms, at_ms)
    # A person's name keeps its own first letter.
    said = did if claim.operator is not None else did[:1].upper() + did[1:]
    return f"{said} {ago}. Your input was not used."


def gone_words(row: AskRow, at_ms: int, zone: tzinfo | None) -> str:
    """Return what it means for *row*, as it stands, that its program is gone."""
    if row.state != "claimed":
        return "The program that asked has ended. Nothing was answered."
    when = f" ({datetime.fromtimestamp(at_ms / 1000, zone):%H:%M})" if zone is not None else ""
    return (
        f"The program stopped before it took the answer{when}. Nothing was run by this answer."
    )


def gone_unknown_words(at_ms: int, zone: tzinfo | None) -> str:
    """Return what it means that a program is gone which may have taken the answer."""
    when = f" ({datetime.fromtimestamp(at_ms / 1000, zone):%H:%M})" if zone is not None else ""
    return (
        f"The program ended{when}, and did not say whether it took the answer, which was on "
        "its way to it."
    )


def _ago(then_ms: int | None, at_ms: int) -> str:
    return f"{duration_words((at_ms - (then_ms or at_ms)) / 1000)} ago"


def _quoted(selection: Selection | None) -> str:
    if selection is None:  # forgotten, or too old
        return "(the text is not kept any more)"
    return f'"{selection_words(selection)}"'


def state_words(row: AskRow, claim: ClaimRow | None) -> str:
    """Return the hub's one line on how an ask stands. It never claims more than happened."""
    if row.state == "open":
        return row.note or ("the clock is stopped" if row.held_s is not None else "")
    if claim is not None:
        what = "declined" if claim.declined else f"chose {_quoted(claim.selection)}"
        return f"{_did_words(claimed_by(claim), what)}; sending…"
    match row.outcome:
        case "answered":
            end = "kept for the program" if row.handed_over else "the program took it"
            return f"Answered by {who_words(row)}: {answer_words(row)}; {end}"
        case "declined":
            return f"Declined by {who_words(row)}; nothing was answered"
        case "timed_out":
            within = f"no answer within {_waited(row)}"
            if row.note:
                return f"{within}. {row.note}"
            if row.answer is None:
                return f"{within} (timed out; nobody said no)"
            default = _quoted(row.answer)
            return f"{within}; the program's own default {default} was used. Nobody chose it."
        case "cancelled":
            return "The program withdrew its question"
        case _:
            return row.note or "The program does not wait for this any more"


def course_words(row: AskRow, rules: Rules, equal: int) -> list[str]:
    """Return what time has brought to an open ask, as its card says it, in sentences.

    Args:
        row: the ask.
        rules: what holds for it.
        equal: for how many equal asks its card stands.
    """
    course, words = row.course, []
    if equal > 1:
        words.append(f"Asked {equal} times; one answer is for all of them")
    if course.held_s is not None and (rules.reminders_s or course.stage < len(rules.escalate)):
        words.append("Nobody is reminded, and nobody else asked, while it is stopped")
    if course.stage:
        people = ", ".join(one_line(name.removeprefix(ROLE), 40) for name in course.people)
        channels = ", ".join(one_line(name, 40) for name in course.channels)
        parts = [f"also asked {people}" if people else "", f"in {channels}" if channels else ""]
        said = " ".join(part for part in parts if part) or "asked again"
        if not people:
            said = f"also shown {said}"
        words.append(f"Nobody answered in time: {said}")
    return words


def later_words(plan: Plan, zone: tzinfo | None) -> str:
    """Return why, and until when, some channels do not show an ask yet."""
    if plan.why == "presence":
        return "somebody is at this computer"
    if plan.until_ms is None or zone is None:
        return "quiet hours"
    return f"quiet hours until {datetime.fromtimestamp(plan.until_ms / 1000, zone):%H:%M}"


def _waited(row: AskRow) -> str:
    end_ms = row.deadline_ms or row.closed_ms or row.raised_ms
    return duration_words(max(0, end_ms - row.raised_ms) / 1000)


def card(
    row: AskRow,
    session: SessionRow | None,
    claim: ClaimRow | None,
    tokens: tuple[TokenRow, ...],
    *,
    can_decline: bool,
    has_votes: bool = False,
    state_line: str | None = None,
    hidden_chars: int = 0,
    opened: bool = False,
    header: tuple[tuple[str, str], ...] = (),
) -> Message:
    """Return the card that shows *row* as it stands; live buttons only while it is open.

    Of a permission what will run comes first, whole; what the agent says of it comes after.

    Args:
        row: the ask, its texts as they may be shown.
        session: whose it is, as it may be shown.
        claim: an answer that is on its way.
        tokens: of the card's buttons.
        can_decline: its program understands a decline.
        has_votes: there are votes that can be taken back.
        state_line: the hub's words on how it stands; without one, what `state_words` says.
        hidden_chars: how many characters of what will run are masked.
        opened: all of it was shown where the card stands.
        header: the hub's own facts about the conversation.
    """
    spec = row.spec
    question = visible(spec.question, newlines=True)
    detail = visible(spec.detail, newlines=True) if spec.detail else ""
    origin = Fields((*header, *_origin(session)))
    blocks: list[Block]
    if spec.ask_class == "permission":
        blocks = [Code(detail or question)]
        if detail:
            blocks += [Paragraph((Span(AGENT_SAYS, "quiet"),)), Quote(question)]
        blocks.append(origin)
    else:
        blocks = [origin, Quote(question)]
        if detail:
            blocks.append(Code(detail))
    numbered = [
        f"{n}. {label_shown(label)}{f' ({note})' if note else ''}"
        for n, (label, note) in enumerate(
            zip(spec.options, label_notes(spec.options), strict=True), 1
        )
    ]
    if state_line is None:
        state_line = state_words(row, claim)
    burst = burst_words(row)
    if burst:
        blocks.append(Paragraph((Span(burst, "bold"),)))
    if row.state == "open":
        choices = _choices(row, tokens, hidden_chars, can_decline=can_decline, opened=opened)
        if has_votes:
            choices = replaced(choices, withdraw=_token(tokens, "withdraw"))
    else:
        choices = None
        if numbered:
            blocks.append(Paragraph((Span("\n".join(numbered), "quiet"),)))
    facts = " · ".join(
        [*(f"{name}: {value}" for name, value in header), *(v for _, v in _origin(session))]
    )
    if spec.ask_class == "permission":
        lines = [detail, f"{AGENT_SAYS}:", question, facts] if detail else [question, facts]
    else:
        lines = [facts, question, *([detail] if detail else [])]
    lines += [*([burst] if burst else []), *numbered, *([state_line] if state_line else [])]
    return Message(
        tuple(blocks), "\n".join(lines), choices, state_line, rings=row.state == "open"
    )


def reminder(
    row: AskRow, session: SessionRow | None, machine: str, at_ms: int, question: str
) -> Message:
    """Return the message that reminds of *row*; what rings says at once where and what.

    Args:
        row: an open ask whose card stands in the same conversation.
        session: whose it is.
        machine: what this machine is called.
        at_ms: now.
        question: the question as it may be shown.
    """
    where = one_line(machine, 24)
    if session is not None and session.repo:
        where += f" · {one_line(session.repo, 32)}"
    headline = f"{where}: {one_line(question, 300)}"
    waited = duration_words(max(0, at_ms - row.raised_ms) / 1000)
    words = f"Still open after {waited}. Answer on its card."
    return Message(
        (Paragraph((Span(headline, "bold"),)), Paragraph((Span(words, "quiet"),))),
        plain=f"{headline}\n{words}",
        rings=True,
    )


def _choices(
    row: AskRow,
    tokens: tuple[TokenRow, ...],
    hidden_chars: int,
    *,
    can_decline: bool,
    opened: bool,
) -> Choices:
    spec = row.spec
    of_choice = {token.choice: token.token for token in tokens}
    details = spec.option_details or ("",) * len(spec.options)
    numbered = must_be_numbered(spec.options)
    has_clock = row.deadline_ms is not None or row.held_s is not None
    buttons = []
    for index, label in enumerate(spec.options):
        words = label_shown(label)
        if index in numbered:
            words = f"{index + 1}. {words}"
        choice, opens = str(index), None
        if spec.ask_class == "permission" and not is_refusal(label):
            if opened:
                choice, words = f"confirm:{index}", f"Confirm: {words}"
            else:
                opens = of_choice.get(f"open:{index}", f"open:{index}")
        buttons.append(
            Button(
                of_choice.get(choice, choice),
                words,
                visible(details[index], newlines=True),
                suggested=index == spec.recommended and spec.ask_class == "question",
                opens=opens,
            )
        )
    return Choices(
        buttons=tuple(buttons),
        multi=spec.multi,
        min_selected=1 if spec.min_selected is None else spec.min_selected,
        max_selected=spec.max_selected or len(spec.options),
        free_text=spec.free_text,
        decline=of_choice.get("decline", "decline") if can_decline else None,
        hold=of_choice.get("hold", "hold") if can_decline and has_clock else None,
        hold_all=of_choice.get("hold_all", "hold_all") if row.course.burst else None,
        hidden_chars=hidden_chars,
    )


def _token(tokens: tuple[TokenRow, ...], choice: str) -> str:
    return next((token.token for token in tokens if token.choice == choice), choice)


def burst_words(row: AskRow) -> str:
    """Return what a card says of how many permissions were asked for: nothing at ease.

    Who answers the fourteenth within five minutes may not read it any more.
    """
    count = row.course.burst
    if not count or row.state != "open":
        return ""
    ends = {1: "st", 2: "nd", 3: "rd"}
    end = "th" if count % 100 in {11, 12, 13} else ends.get(count % 10, "th")
    return f"{count}{end} approval in 5 minutes"


def _origin(session: SessionRow | None) -> tuple[tuple[str, str], ...]:
    if session is None:
        return ()
    facts = (
        ("machine", session.machine),
        ("repo", session.repo),
        ("branch", session.branch),
        ("title", session.title),
        ("program", session.program),
    )
    return tuple((name, one_line(value)) for name, value in facts if value)
