"""What a surface may show: rows and messages, with credentials masked unless people agreed.

The rows themselves stay as they are: what a program is told, and what an answer is compared
with, is never masked. Everything that is drawn comes through here first, whole, so that no
cut falls into a credential before it is seen.
"""

from collections.abc import Callable
from datetime import datetime
from typing import TypeAlias, overload

import msgspec

from upcall.core.redact import mask, mask_after, masked, whole_words
from upcall.core.rules import Facts
from upcall.core.state import HubState
from upcall.model.ask import AskClass, AskResult, AskSpec, Selection
from upcall.model.document import (
    Block,
    Button,
    Choices,
    Code,
    Fields,
    File,
    Heading,
    Message,
    Paragraph,
    Quote,
    Span,
)
from upcall.model.platform import Receipt
from upcall.model.policy import Policy
from upcall.model.rows import AskRow, ClaimRow, SessionRow
from upcall.model.struct import replaced
from upcall.model.text import one_line

Mask: TypeAlias = Callable[[str], str]
"""Returns a text as it may be shown."""


def as_is(text: str) -> str:
    """Return *text*."""
    return text


def is_redacted(
    state: HubState, session: SessionRow | None, kind: AskClass | None = None
) -> bool:
    """Tell whether credentials are masked in what *session* says, and in its asks of *kind*.

    What people chose for the conversation comes first, then what a route or `[policy]` says,
    then `[redaction]`. Where routes differ between kinds, what is no ask is masked.
    """
    if session is not None:
        chosen = state.redactions.get(session.conversation)
        if chosen is not None:
            return chosen.redact
    policy = state.settings.policy
    if not _speaks_of_it(policy):
        return state.settings.redact
    kinds: tuple[AskClass, ...] = ("question", "permission") if kind is None else (kind,)
    return any(_says(state, policy, session, one) for one in kinds)


def _speaks_of_it(policy: Policy) -> bool:
    return policy.defaults.redact is not None or any(
        route.terms.redact is not None for route in policy.routes
    )


def _says(state: HubState, policy: Policy, session: SessionRow | None, kind: AskClass) -> bool:
    facts = Facts(kind=kind)
    if session is not None:
        facts = Facts(
            kind=kind,
            repo=session.repo,
            host=session.machine,
            title=session.title,
            tags=session.tags,
        )
    rules = state.rules.of(policy, facts)
    return rules.redact if "redact" in rules.sources else state.settings.redact


def mask_for(state: HubState, session: SessionRow | None, kind: AskClass | None = None) -> Mask:
    """Return what makes texts of *session* fit to be shown."""
    return state.masks.of if is_redacted(state, session, kind) else as_is


def mask_of(state: HubState, row: AskRow) -> Mask:
    """Return what makes texts of an ask fit to be shown."""
    return mask_for(state, state.session(row.session_id), row.spec.ask_class)


def mask_in(state: HubState, conversation: str) -> Mask:
    """Return what makes the hub's own words in a conversation fit to be shown."""
    chosen = state.redactions.get(conversation)
    redact = state.settings.redact if chosen is None else chosen.redact
    return state.masks.of if redact else as_is


def redaction_header(
    state: HubState, session: SessionRow | None
) -> tuple[tuple[str, str], ...]:
    """Return what a card's header says while people have credentials shown as they are."""
    chosen = None if session is None else state.redactions.get(session.conversation)
    if chosen is None or chosen.redact:
        return ()
    until = ""
    if chosen.until_ms is not None and state.settings.zone is not None:
        then = datetime.fromtimestamp(chosen.until_ms / 1000, state.settings.zone)
        until = f" until {then:%d %b %H:%M}"
    return (("redaction", f"off{until}, by {one_line(chosen.by, 80)}"),)


def stream_text(
    state: HubState, session: SessionRow, before: str, text: str, *, goes_on: bool
) -> str:
    """Return what a session says as it may be shown.

    Args:
        state: the hub's.
        session: who says it.
        before: what it said before, if this is no new version of that.
        text: what it says now.
        goes_on: the rest is still to come, so the last word may be half a credential.
    """
    if not is_redacted(state, session):
        return text
    shown = mask_after(before, text)
    return whole_words(shown) if goes_on else shown


# --- Rows ------------------------------------------------------------------------------------


def shown_spec(
    state: HubState, row: AskRow, session: SessionRow | None = None
) -> tuple[AskSpec, int]:
    """Return what is shown of an ask, and how many characters of what will run that hides."""
    session = state.session(row.session_id) or session
    if not is_redacted(state, session, row.spec.ask_class):
        return row.spec, 0
    known = state.masked_specs.get(row.ask_id)
    if known is not None and known[0] is row.spec:
        return known[1], known[2]
    spec, shown = row.spec, state.masks.of
    question, of_question = masked(spec.question)
    detail, of_detail = (None, 0) if spec.detail is None else masked(spec.detail)
    found = replaced(
        spec,
        question=question,
        detail=detail,
        options=tuple(map(shown, spec.options)),
        option_details=(
            None if spec.option_details is None else tuple(map(mask, spec.option_details))
        ),
        default=None if spec.default is None else mask(spec.default),
    )
    hidden = of_question + of_detail
    if spec.ask_class == "permission":
        # Whichever of them says what runs: a person has to see it all.
        hidden += sum(masked(one)[1] for one in (*spec.options, *(spec.option_details or ())))
    if row.ask_id in state.asks:
        state.masked_specs[row.ask_id] = (spec, found, hidden)
    return found, hidden


def shown_ask(state: HubState, row: AskRow, session: SessionRow | None = None) -> AskRow:
    """Return *row* as it is shown."""
    spec, _ = shown_spec(state, row, session)
    shown = mask_for(state, state.session(row.session_id) or session, row.spec.ask_class)
    if shown is as_is:
        return row
    return replaced(
        row, spec=spec, answer=shown_selection(row.answer, shown), note=shown(row.note)
    )


def shown_selection(selection: Selection | None, shown: Mask) -> Selection | None:
    """Return what was chosen as it is shown."""
    if selection is None:
        return None
    return replaced(
        selection,
        labels=tuple(map(shown, selection.labels)),
        text=None if selection.text is None else shown(selection.text),
    )


@overload
def shown_claim(claim: ClaimRow, shown: Mask) -> ClaimRow: ...


@overload
def shown_claim(claim: None, shown: Mask) -> None: ...


def shown_claim(claim: ClaimRow | None, shown: Mask) -> ClaimRow | None:
    """Return an answer on its way as it is shown."""
    if claim is None or shown is as_is:
        return claim
    return replaced(
        claim,
        selection=shown_selection(claim.selection, shown),
        origin=None if claim.origin is None else shown(claim.origin),
    )


def shown_session(row: SessionRow, shown: Mask) -> SessionRow:
    """Return what a session says of itself as it is shown."""
    if shown is as_is:
        return row

    def text(value: str | None) -> str | None:
        return None if value is None else shown(value)

    return replaced(
        row,
        conversation=shown(row.conversation),
        title=text(row.title),
        repo=text(row.repo),
        branch=text(row.branch),
        machine=text(row.machine),
        cwd=text(row.cwd),
        program=text(row.program),
        record_path=text(row.record_path),
        tags=tuple(map(shown, row.tags)),
    )


def shown_result(result: AskResult, shown: Mask) -> AskResult:
    """Return how an ask ended as people are shown it; its program is told it as it is."""
    if shown is as_is:
        return result
    return replaced(
        result,
        answer=shown_selection(result.answer, shown),
        reason=None if result.reason is None else shown(result.reason),
    )


def shown_receipt(receipt: Receipt, shown: Mask) -> Receipt:
    """Return what a person is told of an act."""
    if shown is as_is:
        return receipt
    return msgspec.structs.replace(
        receipt,
        msg=shown(receipt.msg),
        result=None if receipt.result is None else shown_result(receipt.result, shown),
    )


# --- Messages --------------------------------------------------------------------------------


def shown_message(message: Message, shown: Mask) -> Message:
    """Return *message* with what is left in it masked, before a platform's limits cut it."""
    if shown is as_is:
        return message
    return replaced(
        message,
        blocks=tuple(_block(block, shown) for block in message.blocks),
        plain=shown(message.plain),
        state_line=shown(message.state_line),
        choices=None if message.choices is None else _choices(message.choices, shown),
    )


def _block(block: Block, shown: Mask) -> Block:
    match block:
        case Heading() | Code() | Quote():
            return replaced(block, text=shown(block.text))
        case Paragraph(spans):
            return Paragraph(tuple(_span(span, shown) for span in spans))
        case Fields(rows):
            return Fields(tuple((name, shown(value)) for name, value in rows))
        case File():
            return replaced(block, name=shown(block.name))


def _span(span: Span, shown: Mask) -> Span:
    href = None if span.href is None else shown(span.href)
    return replaced(span, text=shown(span.text), href=href)


def _choices(choices: Choices, shown: Mask) -> Choices:
    return replaced(choices, buttons=tuple(_button(one, shown) for one in choices.buttons))


def _button(button: Button, shown: Mask) -> Button:
    return replaced(button, label=shown(button.label), detail=shown(button.detail))
