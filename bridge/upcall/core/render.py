"""Domain facts to neutral messages and plain sentences. No platform's markup here."""

from upcall.model.ask import AskResult
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
from upcall.model.rows import AskRow, ClaimRow, SessionRow, TokenRow
from upcall.model.text import one_line, visible


def answer_words(row: AskRow | AskResult) -> str:
    """Return the answer as a person reads it: labels, then words."""
    selection = row.answer
    if selection is None:
        return ""
    parts = list(selection.labels)
    if selection.text is not None:
        parts.append(selection.text)
    return one_line(", ".join(parts))


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
    by = row.answered_by
    if by is None:
        return "nobody"
    if by.name is None:
        return f"another program on this computer ({by.channel}), person unknown"
    detail = f" ({one_line(by.detail)})" if by.detail else ""
    return f"{one_line(by.name)}{detail} on {one_line(by.channel)}"


def late_words(row: AskRow, at_ms: int) -> str:
    """Return why an answer came too late: what won, by whom, where and when."""
    ago = duration_words(((at_ms - row.closed_ms) / 1000) if row.closed_ms else 0)
    by = row.answered_by
    match row.outcome:
        case "answered" if by is not None and by.name is not None:
            who = f"{one_line(by.name)} answered {_quoted(row)} on {one_line(by.channel)}"
            return f"{who} {ago} ago. Your input was not used."
        case "answered":
            return f"{who_words(row)}: {_quoted(row)}, {ago} ago. Your input was not used."
        case "declined":
            return f"{who_words(row)} declined {ago} ago. Your input was not used."
        case "timed_out":
            return f"This ask timed out {ago} ago. Your input was not used."
        case "cancelled":
            return f"The program withdrew its question {ago} ago. Your input was not used."
        case "superseded":
            return f"The program changed its question {ago} ago. Your input was not used."
        case _:
            return f"The program that asked was gone {ago} ago. Your input was not used."


def _quoted(row: AskRow) -> str:
    return f'"{answer_words(row)}"'


def state_words(row: AskRow, claim: ClaimRow | None) -> str:
    """Return the hub's one line on how an ask stands. It never claims more than happened."""
    if row.state == "open":
        return row.note or ("the clock is stopped" if row.held_s is not None else "")
    if row.state == "claimed" and claim is not None:
        who = one_line(claim.operator) if claim.operator else "another program"
        what = "declined" if claim.declined else f"chose {_chosen(claim)}"
        return f"{who} {what} on {claim.channel}; sending…"
    match row.outcome:
        case "answered":
            return f"Answered by {who_words(row)}: {answer_words(row)}; the program took it"
        case "declined":
            return f"Declined by {who_words(row)}; nothing was answered"
        case "timed_out" if row.answer is not None:
            return (
                f"Timed out; the program's own default {_quoted(row)} was used. "
                "Nobody chose it."
            )
        case "timed_out":
            return "Timed out; nobody answered"
        case "cancelled":
            return row.note or "The program withdrew its question"
        case "superseded":
            return row.note or "The program changed its question; nothing was sent"
        case _:
            return row.note or "The program stopped before it took an answer"


def _chosen(claim: ClaimRow) -> str:
    if claim.selection is None:
        return ""
    parts = [*claim.selection.labels, *([claim.selection.text] if claim.selection.text else [])]
    return one_line(f'"{", ".join(parts)}"')


def card(
    row: AskRow,
    session: SessionRow | None,
    claim: ClaimRow | None,
    tokens: tuple[TokenRow, ...],
    *,
    can_decline: bool,
) -> Message:
    """Return the card that shows *row* as it stands; live buttons only while it is open."""
    spec = row.spec
    question = visible(spec.question, newlines=True)
    blocks: list[Block] = [Fields(_origin(session)), Quote(question)]
    if spec.detail:
        blocks.append(Code(visible(spec.detail, newlines=True)))
    numbered = [f"{n}. {visible(label)}" for n, label in enumerate(spec.options, 1)]
    state_line = state_words(row, claim)
    if row.state == "open":
        choices = _choices(row, tokens, can_decline=can_decline)
    else:
        choices = None
        if numbered:
            blocks.append(Paragraph((Span("\n".join(numbered), "quiet"),)))
    origin = " · ".join(value for _, value in _origin(session))
    lines = [origin, question]
    if spec.detail:
        lines.append(visible(spec.detail, newlines=True))
    lines += [*numbered, *([state_line] if state_line else [])]
    return Message(tuple(blocks), "\n".join(lines), choices, state_line)


def _choices(row: AskRow, tokens: tuple[TokenRow, ...], *, can_decline: bool) -> Choices:
    spec = row.spec
    of_choice = {token.choice: token.token for token in tokens}
    details = spec.option_details or ("",) * len(spec.options)
    return Choices(
        buttons=tuple(
            Button(
                of_choice.get(str(index), str(index)),
                label,
                visible(details[index]) if index < len(details) else "",
                suggested=index == spec.recommended and spec.ask_class == "question",
            )
            for index, label in enumerate(spec.options)
        ),
        multi=spec.multi,
        min_selected=spec.min_selected or 0,
        max_selected=spec.max_selected or len(spec.options),
        free_text=spec.free_text,
        decline="decline" if can_decline else None,
        hold="hold" if can_decline and spec.deadline_at_ms is not None else None,
    )


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
