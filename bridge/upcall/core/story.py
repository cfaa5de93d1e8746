"""The story of an ask in words: which events the audit knows, and how each is told.

An event is added here when it is added anywhere. A line without words of its own is still
told, by its name and facts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from upcall.core.render import duration_words
from upcall.model.text import one_line

Facts: TypeAlias = Mapping[str, Any]

_CHANNELS: Final = {"web": "inbox", "terminal": "watch"}
_NO_LONGER: Final = "(not kept any more)"


@dataclass(frozen=True, slots=True)
class About:
    """What the tables still know of what a line is about; none of it is in the line.

    Attributes:
        program: what asked, with what the hub knows of it.
        place: where it works, such as a repository.
        question: what was asked.
        answer: what this very line says was chosen, masked.
    """

    program: str | None = None
    place: str | None = None
    question: str | None = None
    answer: str | None = None


def words(event: str, facts: Facts, about: About | None = None) -> str:
    """Return one line of the audit as a person reads it; escaped, without its time."""
    told = WORDS.get(event)
    if told is None:
        return _plain(event, facts)
    return told(facts, about or About())


def _plain(event: str, facts: Facts) -> str:
    said = ", ".join(f"{name} {value}" for name, value in facts.items() if value is not None)
    name = event.replace("_", " ")
    return one_line(f"{name}: {said}" if said else name, 500)


def _text(facts: Facts, name: str, limit: int = 200) -> str:
    value = facts.get(name)
    return "" if value is None else one_line(str(value), limit)


def _number(facts: Facts, name: str, default: int = 0) -> float:
    value = facts.get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else default


def _row(facts: Facts, name: str) -> str:
    return f"row {_number(facts, name):.0f}"


def _channel(facts: Facts, name: str = "channel") -> str:
    value = _text(facts, name, 60)
    return _CHANNELS.get(value, value) or "?"


def _behind(words_: str) -> str:
    return f" ({words_})" if words_ else ""


def _quoted(facts: Facts, about: About) -> str:
    """Return what was chosen; of what is not kept any more, what the line itself says."""
    if about.answer:
        escaped = one_line(about.answer, 300).replace('"', '\\"')
        return f'"{escaped}"'
    choice, count = _text(facts, "choice", 60), int(_number(facts, "words"))
    if facts.get("secret"):
        return "a secret"
    parts = [f"option {choice}"] if choice else []
    if count:
        parts.append(f"{count} characters of text")
    return f"{' and '.join(parts)} {_NO_LONGER}" if parts else "it"


def _who(facts: Facts) -> str:
    name, detail = _text(facts, "operator", 80), _text(facts, "detail")
    if not name:
        return "another program on this computer, person unknown,"
    return f"user {name} on this computer{_behind(detail)}" if detail else name


def _where(facts: Facts) -> str:
    # A local program is told by what the kernel says of it; "in terminal" would add nothing.
    if facts.get("detail") or not facts.get("operator"):
        return ""
    return f" in {_channel(facts)}"


def _of_program(text: str, limit: int) -> str:
    """Return what a program says, in quotes that it cannot close itself."""
    inner = one_line(text, limit).replace("“", '"').replace("”", '"')
    return f"“{inner}”"


def _raised(facts: Facts, about: About) -> str:
    by = f" by {_of_program(about.program, 80)}" if about.program else ""
    pid = int(_number(facts, "pid"))
    at = f" (pid {pid})" if pid else ""
    place = f" in {_of_program(about.place, 80)}" if about.place else ""
    what = f": {_of_program(about.question, 300)}" if about.question else ""
    kind = "permission asked" if facts.get("ask_class") == "permission" else "raised"
    return f"{kind}{by}{at}{place}{what}"


def _shown(facts: Facts, _: About) -> str:
    attempt = int(_number(facts, "attempt", 1))
    again = f" (attempt {attempt}; it may stand there twice)" if attempt > 1 else ""
    if facts.get("unseen"):
        return f"listed in {_channel(facts)}, where nobody looked{again}"
    return f"shown in {_channel(facts)}{again}"


def _sent(facts: Facts, _: About) -> str:
    attempt = int(_number(facts, "attempt", 1))
    return "sent to the program" + (f" again (attempt {attempt})" if attempt > 1 else "")


def _claimed(facts: Facts, about: About) -> str:
    did = "declined" if facts.get("declined") else f"answered {_quoted(facts, about)}"
    return f"{_who(facts)} {did}{_where(facts)}"


def _closed(facts: Facts, about: About) -> str:
    by_client = facts.get("resolved_by") == "client"
    kept = facts.get("kept")
    match facts.get("outcome"):
        case "answered" | "declined" if by_client and kept:
            return "kept until the program collects it"
        case "answered" if by_client and facts.get("operator"):
            return "the program took it"
        case "answered":
            return f"{_who(facts)} answered {_quoted(facts, about)}{_where(facts)}"
        case "declined" if by_client and facts.get("operator"):
            return "the program took the decline"
        case "declined":
            return f"{_who(facts)} declined{_where(facts)}"
        case "timed_out" if facts.get("default"):
            own = _quoted(facts, about)
            return f"timed out; the program's own default {own} was used, nobody chose it"
        case "timed_out":
            return "timed out: nobody answered, and nobody said no"
        case "cancelled":
            return "the program withdrew its question"
        case "unreachable":
            return "the program that asked was gone"
        case "superseded":
            return "the program stopped waiting for this"
        case other:
            return f"ended: {one_line(str(other), 40)}"


def _delivery(facts: Facts) -> str:
    kind = _text(facts, "kind", 20)
    names = {
        "post": "the card",
        "edit": "a change of the card",
        "reply": "the answer",
        "message": "a message",
        "hold": "stopping the clock",
    }
    return names.get(kind, kind or "a delivery")


def _target(facts: Facts) -> str:
    to_session = facts.get("kind") in {"reply", "message", "hold"}
    return "the program" if to_session else _channel(facts, "target")


def _uncertain(facts: Facts, _: About) -> str:
    error = _behind(_text(facts, "error"))
    return f"uncertain whether {_delivery(facts)} arrived in {_target(facts)}{error}"


def _delayed(facts: Facts, _: About) -> str:
    wait_s = _number(facts, "wait_s")
    again = f"; again in {duration_words(wait_s)}" if wait_s > 0 else ""
    error = _behind(_text(facts, "error"))
    return f"{_delivery(facts)} could not be sent to {_target(facts)}{error}{again}"


def _dead(facts: Facts, _: About) -> str:
    error = _text(facts, "error")
    return f"gave up: {_delivery(facts)} to {_target(facts)} was not delivered{_behind(error)}"


def _card_closed(facts: Facts, _: About) -> str:
    return f"card closed: {_channel(facts)}"


def _refused(facts: Facts, _: About) -> str:
    count = int(_number(facts, "count", 1))
    by = _text(facts, "detail") or "an unknown program"
    many = f" ({count} so far)" if count > 1 else ""
    return f"an answer was not believed, from {by}{_behind(_text(facts, 'code', 40))}{many}"


def _reopened(facts: Facts, _: About) -> str:
    return f"the program did not take it{_behind(_text(facts, 'reason', 60))}; open again"


def _rejected(facts: Facts, _: About) -> str:
    return f"the program refused the reply{_behind(_text(facts, 'reason', 60))}"


def _prolonged(facts: Facts, _: About) -> str:
    more = duration_words(_number(facts, "seconds"))
    return f"nobody could have seen it: {more} from now"


def _forgotten(_: Facts, __: About) -> str:
    return "the text was forgotten; this story stays"


def _message(facts: Facts, _: About) -> str:
    return f"{_text(facts, 'operator', 80) or 'somebody'} wrote to the session"


def _restored(facts: Facts, _: About) -> str:
    return (
        f"the database was replaced by a backup that ended at {_row(facts, 'from_lines')}; "
        f"the replaced one had come to {_row(facts, 'replaced_lines')}"
    )


def _begun_anew(facts: Facts, _: About) -> str:
    return (
        "a new database was begun where one had been whose audit had come to "
        f"{_row(facts, 'lines')}"
    )


def _ended_before(facts: Facts, _: About) -> str:
    return f"had ended before the restore: {_text(facts, 'outcome', 40)}"


def _cut(facts: Facts, _: About) -> str:
    return f"older rows, to {_row(facts, 'lines')}, were removed for their age"


def _trimmed(facts: Facts, _: About) -> str:
    days = int(_number(facts, "days"))
    unit = "day" if days == 1 else "days"
    return f"lines up to {_row(facts, 'lines')} were removed, as older than {days} {unit}"


def _root(what: str) -> Callable[[Facts, About], str]:
    return lambda facts, _: f"project folder {what}: {_text(facts, 'path', 300)}"


def _said(text: str) -> Callable[[Facts, About], str]:
    return lambda _, __: text


def _reminded(facts: Facts, _: About) -> str:
    where = _text(facts, "channels")
    return f"reminded{f' in {where}' if where else ''}"


def _held_back(facts: Facts, _: About) -> str:
    why = _text(facts, "why", 40)
    reason = "somebody is at the computer" if why == "presence" else why
    return f"held back from other places{f': {reason}' if reason else ''}"


def _redaction(facts: Facts, _: About) -> str:
    by = _text(facts, "by", 80)
    state = "on again" if facts.get("on") is True else "off for a while"
    return f"masking of credentials is {state} in a conversation{f', by {by}' if by else ''}"


def _letter(what: str) -> Callable[[Facts, About], str]:
    return lambda facts, _: f"what was given up for {_channel(facts, 'target')} {what}"


def _escalated(facts: Facts, _: About) -> str:
    more = [_text(facts, "people"), _text(facts, "channels")]
    return f"also asked: {', '.join(one for one in more if one) or 'more people'}"


def _voted(facts: Facts, about: About) -> str:
    what = "for a decline" if facts.get("declined") else f"for {_quoted(facts, about)}"
    return f"{_who(facts)} voted {what}{_where(facts)}"


def _of_person(text: str) -> Callable[[Facts, About], str]:
    def told(facts: Facts, _: About) -> str:
        by = _text(facts, "by", 120)
        person = _text(facts, "operator", 80) or "somebody"
        return f"{text.format(person)}{f' by {by}' if by else ''}"

    return told


def _locked(facts: Facts, _: About) -> str:
    reason = _text(facts, "reason")
    return f"the hub was locked by {_who(facts)}{f': {reason}' if reason else ''}"


def _unlocked(facts: Facts, _: About) -> str:
    return f"the hub was unlocked by {_who(facts)}"


def _added(facts: Facts, _: About) -> str:
    identity = _text(facts, "identity", 100)
    as_whom = f" as {identity} in {_channel(facts)}" if identity else ""
    return f"{_of_person('{} was let in as an operator')(facts, About())}{as_whom}"


def _denied(facts: Facts, _: About) -> str:
    who = _text(facts, "operator", 80) or _text(facts, "identity", 100) or "somebody"
    count = int(_number(facts, "count", 1))
    many = f", {count} so far" if count > 1 else ""
    code = _text(facts, "code", 40)
    return f"refused to {who} in {_channel(facts)}{_behind(f'{code}{many}')}"


def _with(text: str, name: str, start: str = ": ") -> Callable[[Facts, About], str]:
    def told(facts: Facts, _: About) -> str:
        more = _text(facts, name, 400)
        return f"{text}{start}{more}" if more else text

    return told


def _in_channel(text: str) -> Callable[[Facts, About], str]:
    return lambda facts, _: f"{text} {_channel(facts)}"


WORDS: Final[Mapping[str, Callable[[Facts, About], str]]] = {
    # An ask, from raised to closed.
    "raised": _raised,
    "shown": _shown,
    "claimed": _claimed,
    "sent": _sent,
    "closed": _closed,
    "card_closed": _card_closed,
    "asks_itself": _said("its program asks by itself now, as it had not reached the hub"),
    # What came between.
    "refused": _refused,
    "reopened": _reopened,
    "reply_rejected": _rejected,
    "held": _said("the clock was stopped"),
    "resumed": _said("the clock runs again"),
    "prolonged": _prolonged,
    "handed_over": _said("handed over: its answer is kept until it is collected"),
    "asked_again": _said("asked again after the restore: the program still waits"),
    "uncertain": _uncertain,
    "reminded": _reminded,
    "escalated": _escalated,
    "held_back": _held_back,
    "moved": _in_channel("taken back, and shown elsewhere, before it was posted in"),
    "card_found": _in_channel("a card that may not have arrived was found in"),
    "merged": _with("shown together with an equal question", "into"),
    "opened": _in_channel("what the card does not show was opened in"),
    "voted": _voted,
    "vote_withdrawn": _of_person("{} took their vote back"),
    "vote_dropped": _of_person("the vote of {} does not count any more"),
    "taken_back": _of_person("the answer of {} was taken back before the program had it"),
    "delivery_delayed": _delayed,
    "delivery_dead": _dead,
    "forgotten": _forgotten,
    # What is about no ask.
    "message": _message,
    "verbosity": _with("people chose how much of the session's work is shown", "level"),
    "text_held": _in_channel("words to the session wait for a yes in"),
    "delivery_retry": _letter("is tried again, as a person asked"),
    "delivery_drop": _letter("was dropped by a person"),
    "redaction": _redaction,
    "foreign_press": _in_channel("a button that is none of ours was pressed in"),
    "thread_gone": _in_channel("the conversation was removed in"),
    "denied": _denied,
    "asks_muted": _in_channel("a flood of questions is not told any more; said in"),
    "asks_stopped": _in_channel("a flood of questions is not taken any more; said in"),
    "asks_shown": _in_channel("a flood of questions is shown after all; said in"),
    "locked": _locked,
    "unlocked": _unlocked,
    "operator_added": _added,
    "operator_waits": _of_person("{} waits to be let in as an operator"),
    "operator_rejected": _of_person("{} was not let in as an operator"),
    "operator_revoked": _of_person("all rights of {} were taken"),
    "operator_restored": _of_person("the rights of {} were given back"),
    "settings_changed": _with("the configuration was changed", "changes"),
    "settings_wait": _with("a change of the configuration waits for a yes", "changes"),
    "settings_refused": _with("a changed configuration cannot be used", "error"),
    "settings_rejected": _said("a change of the configuration was turned down"),
    "root_added": _root("added"),
    "root_removed": _root("removed"),
    "restored": _restored,
    "begun_anew": _begun_anew,
    "ended_before_restore": _ended_before,
    "audit_cut": _cut,
    "audit_trimmed": _trimmed,
}
"""Every event with words of its own."""
