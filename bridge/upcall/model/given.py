"""What a program gave to `ask` in Python, looked at by type before anything is done with it.

A type checker finds these mistakes; many scripts run without one. Imports nothing that
takes time, since every script that asks pays for it.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# Of each field the types that it may have, and how a person calls them.
_TEXT = ((str,), "text")
_WHOLE = ((int,), "a whole number")
_SWITCH = ((bool,), "True or False")
_FIELDS: "Mapping[str, tuple[tuple[type, ...], str]]" = {
    "question": _TEXT,
    "detail": _TEXT,
    "default": _TEXT,
    "title": _TEXT,
    "session": _TEXT,
    "key": _TEXT,
    "ask_id": _TEXT,
    "recommended": ((str, int), "a label or its place"),
    "min_selected": _WHOLE,
    "max_selected": _WHOLE,
    "timeout_s": ((int, float), "a number of seconds"),
    "multi": _SWITCH,
    "free_text": _SWITCH,
    "permission": _SWITCH,
    "secret": _SWITCH,
    "merge": _SWITCH,
}
_NEEDED = frozenset({"question", "multi", "permission", "secret", "merge"})
_ORDERLESS = (set, frozenset, dict)


def check_given(fields: "Mapping[str, object]") -> None:
    """Refuse a field of a wrong type.

    Args:
        fields: what was given for each argument of `ask` but the lists of labels.

    Raises:
        InvalidAsk: the message names the field, what it takes and what was given.
    """
    for field, value in fields.items():
        kinds, words = _FIELDS[field]
        if value is None and field not in _NEEDED:
            continue
        # True is an int for Python, and no number for anybody else.
        is_switch = isinstance(value, bool)
        if not isinstance(value, kinds) or (is_switch and bool not in kinds):
            raise _refused(f"{field}: is {_kind(value)}; {words} is wanted")


def checked_labels(field: str, given: object) -> tuple[str, ...]:
    """Return *given* as labels in their order.

    Args:
        field: `options` or `option_details`, for the message.
        given: what was given for it: a list, a tuple or what else yields texts in order.

    Raises:
        InvalidAsk: it is one text, has no order, or holds something else than texts.
    """
    if isinstance(given, str):
        raise _refused(f"{field}: is one text; give a list of labels")
    if isinstance(given, (bytes, bytearray, *_ORDERLESS)) or not hasattr(given, "__iter__"):
        raise _refused(f"{field}: is {_kind(given)}; a list of labels is wanted")
    labels = tuple(given)
    for number, label in enumerate(labels, 1):
        if not isinstance(label, str):
            place = f"option {number}" if field == "options" else f"{field} {number}"
            raise _refused(f"{place}: is {_kind(label)}; text is wanted")
    return labels


def _kind(value: object) -> str:
    return "None" if value is None else f"of type {type(value).__name__}"


def _refused(msg: str) -> Exception:
    from upcall.model.errors import InvalidAsk

    return InvalidAsk(msg, recover="Give the field a value of that type.")
