"""A question on a terminal: the program's words behind a bar, its labels as the hub marks them.

What stands behind a bar is the program's; whatever has none is ours.
"""

from __future__ import annotations

from upcall.cli import choose, screen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

BAR = "| "
_NOTE = "! "


def quoted(text: str, columns: int) -> list[str]:
    """Return words of the program, escaped, wrapped, each line behind a bar."""
    from upcall.cli.cells import wrap

    room = max(10, columns - len(BAR))
    return [f"{BAR}{line}" for line in wrap(screen.visible(text, newlines=True), room)]


def asked(ask: dict[str, Any], columns: int) -> list[str]:
    """Return what is asked. Of a permission what will run is first, then what is said of it."""
    question, detail = str(ask.get("question", "")), ask.get("detail")
    if not detail:
        return quoted(question, columns)
    if ask.get("class") == "permission":
        return [*quoted(str(detail), columns), "the agent says:", *quoted(question, columns)]
    return [*quoted(question, columns), *quoted(f"\n{detail}", columns)]


def hidden_words(count: int) -> str:
    """Return how much of what will run is not shown."""
    return f"{count:,} character{'' if count == 1 else 's'} not shown"


def options(
    ask: dict[str, Any], columns: int, *, with_details: bool, hidden: int = 0
) -> list[str]:
    """Return the choices, numbered, with what the hub has to say on each.

    *hidden* is how many characters of what will run cannot be seen here.
    """
    from upcall.cli.cells import wrap

    labels = [str(label) for label in ask.get("options") or []]
    shown = ask.get("labels_shown") or []
    notes = ask.get("label_notes") or []
    details = ask.get("option_details") or []
    lines = []
    for index, label in enumerate(labels):
        drawn = str(shown[index]) if index < len(shown) else label
        text = screen.visible(drawn)
        if ask.get("recommended") == index and ask.get("class") != "permission":
            text += "  (suggested by the program)"
        if hidden and index in (ask.get("allows") or []):
            text += f" … {hidden_words(hidden)}"
        first, *rest = wrap(text, max(10, columns - 8))
        lines.append(f"  {choose.number_of(index, labels):>3} {first}")
        # Behind a bar, or a long label could draw a note of ours below itself.
        lines += [f"      {BAR}{line}" for line in rest]
        if index < len(notes) and notes[index]:
            lines += _noted(str(notes[index]), columns)
        if with_details and index < len(details) and details[index]:
            lines += [f"      {line}" for line in quoted(str(details[index]), columns - 6)]
    return lines


def warnings(ask: dict[str, Any], columns: int) -> list[str]:
    """Return what a person should know about characters that deceive."""
    found = []
    for text in ask.get("warnings") or []:
        found += _noted(str(text), columns)
    return found


def _noted(text: str, columns: int) -> list[str]:
    from upcall.cli.cells import wrap

    return [f"      {_NOTE}{line}" for line in wrap(screen.visible(text), max(10, columns - 8))]
