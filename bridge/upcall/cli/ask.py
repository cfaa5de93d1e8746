"""`upcall ask`: ask a question and print the answer."""

from __future__ import annotations

from upcall.cli import args, exits, quick, screen
from upcall.cli.choose import fold
from upcall.cli.errors import Usage
from upcall.line import mint_ask_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import Any

    from upcall.cli.asking import Asking
    from upcall.cli.prompt import Prompt
    from upcall.cli.signals import EndingSignals

ABOUT = """Ask a question and print the answer: one label a line, or the words.

The question shows wherever people are: the inbox (`upcall inbox`), `upcall
watch`, and this terminal. The first answer wins. With -o the ask is closed:
only these labels are answers."""
EPILOG = """examples:
  colour=$(upcall ask "Colour?" -o red -o green --timeout 10m --default red)
  upcall ask "What shall the release be called?"
  token=$(upcall ask "Token for the deploy?" --secret)
  id=$(upcall ask "Ship it?" -o yes -o no --no-wait); upcall wait "$id"

exit codes:
  0 answered, or timed out with a default   1 failure   2 usage
  3 ended without an answer (declined, cancelled, ...)   4 timed out
  130 Ctrl-C, 143 terminated: the question is cancelled

WARNING: 0 means "answered", also with "no": `upcall ask ... -o yes -o no &&
deploy` deploys on "no". What you want then is `upcall confirm`. Never `eval`
an answer."""

# The same bounds as upcall.model.limits, which would cost its imports; a test compares them.
MAX_QUESTION_CHARS = 8192
MAX_DETAIL_BYTES = 256 * 1024
MAX_DETAIL_JSON_BYTES = 768 * 1024
MAX_OPTIONS = 100
MAX_LABEL_CHARS = 200
MAX_TAGS = 16
MAX_TAG_CHARS = 64
MIN_DEADLINE_S = 0.1
MAX_DEADLINE_S = 365 * 86400.0


# What runs another program in its own place, and is not who asks.
_WRAPPERS = frozenset(
    b"timeout env nice nohup setsid stdbuf ionice chrt taskset time flock sudo doas".split()
)
_MAX_WRAPPERS = 8


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the options of `ask` to *parser*."""
    add = parser.add_argument
    add("question", metavar="QUESTION", help="what to ask; 1 to 8192 characters")
    add("-o", "--option", metavar="LABEL", action="append", default=[], dest="options",
        help="a possible answer; repeat it for more")  # fmt: skip
    add("--multi", action="store_true", help="several options may be chosen")
    add("--free-text", action="store_true", default=None, dest="free_text",
        help="take words besides the options")  # fmt: skip
    add("--no-free-text", action="store_false", dest="free_text",
        help="only the options (the default with -o)")  # fmt: skip
    add("--recommend", metavar="LABEL", help="the option that you suggest; nothing is preset")
    add("--default", metavar="LABEL", help="what a time-out answers; needs --timeout")
    add("--permission", action="store_true",
        help="asks for permission: no default, and never answered by casual words")  # fmt: skip
    add("--secret", action="store_true",
        help="words that are shown and kept nowhere; typed here or in the inbox")  # fmt: skip
    add("--merge", action="store_true",
        help="equal open questions are one card, if the policy says so")  # fmt: skip
    add_shared(parser)
    add("--no-wait", action="store_true",
        help="hand it to the hub and print its id; see `upcall wait`")  # fmt: skip


def add_shared(parser: argparse.ArgumentParser) -> None:
    """Add the options that `ask` and `confirm` share."""
    add = parser.add_argument
    add("--detail", metavar="TEXT", help="longer text below the question; - reads stdin")
    add("--timeout", metavar="TIME", help="end after this time, such as 90s, 10m, 1h30m")
    add("--title", metavar="TEXT", help="what the asking program is called")
    add("--session", metavar="NAME",
        help="asks with one name share a conversation (or $UPCALL_SESSION)")  # fmt: skip
    add("--tag", metavar="TAG", action="append", default=[], dest="tags",
        help="what routes can tell it by; repeat it for more (or $UPCALL_TAGS)")  # fmt: skip
    add("--key", metavar="NAME", help="running again finds the same question and its answer")
    add("--unseen", choices=("wait", "fail"), default="wait",
        help="if nobody can see it: wait (default), or fail after 60 s")  # fmt: skip
    add("--no-terminal", action="store_true", help="do not ask on this terminal")
    add("-q", "--quiet", action="store_true", help="nothing on stderr but errors")
    add("--json", action="store_true", help="print one JSON document instead of the answer")


def parser() -> args.Parser:
    """Return the parser of `upcall ask`."""
    made = args.make_parser("ask", ABOUT, EPILOG)
    fill(made)
    return made


def run(argv: Sequence[str]) -> int:
    """Run `upcall ask`."""
    given = quick.read(argv) or parser().read(argv)
    ask = spec_of(given)
    if given.no_wait:
        return _hand_over(given, ask)
    return ask_and_show(given, ask)


def ask_and_show(given: argparse.Namespace, ask: dict[str, Any]) -> int:
    """Ask, wait, write the answer, and return the exit code of `ask`."""
    # Imported after the arguments were read: `--help` needs none of it.
    from upcall.cli import results
    from upcall.cli.signals import EndingSignals, Interrupted

    with EndingSignals() as signals:
        try:
            asked, result, here = wait_for_end(given, ask, signals)
            if ask.get("secret"):
                result["secret"] = True
            if asked is not None:
                asked.before_words()
            code = results.show(result, as_json=given.json, quiet=given.quiet, here=here)
            if asked is not None:
                asked.after_words()
                # Only now is the answer ours: had we died before, the card would say so.
                asked.took()
                asked.close()
        except Interrupted as signal:
            if not given.quiet:
                screen.err(f"question {ask['id']} is cancelled")
            return exits.SIGNAL_BASE + signal.number
    return code


def wait_for_end(
    given: argparse.Namespace, ask: dict[str, Any], signals: EndingSignals
) -> tuple[Asking | None, dict[str, Any], bool]:
    """Ask, and wait.

    Returns:
        Who has to confirm the result (None without a hub), the result, and whether this
        terminal has told it already.
    """
    from upcall.cli.asking import Asking, NoHub

    session = asker(given)
    asked = Asking(
        ask,
        session,
        quiet=given.quiet,
        unseen_fails=given.unseen == "fail",
        prompt=None if given.no_terminal else _prompt(),
    )
    try:
        result = asked.run(signals)
    except NoHub as lost:
        screen.err(f"upcall: {screen.visible(lost.error.msg)}")
        if lost.error.recover:
            screen.err(f"        {screen.visible(lost.error.recover)}")
        sent_s = lost.sent_s
    else:
        return asked, result, asked.answered_here
    from upcall.cli.standalone import ask_alone

    prompt = None if given.no_terminal else _prompt()
    alone, here = ask_alone(
        ask, session, prompt=prompt, quiet=given.quiet, signals=signals, began_s=sent_s
    )
    return None, alone, here


def _prompt() -> Prompt | None:
    import os

    if not os.isatty(2):
        return None
    from upcall.cli.prompt import Prompt

    return Prompt.open()


def _hand_over(given: argparse.Namespace, ask: dict[str, Any]) -> int:
    from upcall.cli import results
    from upcall.cli.asking import NoHub, raise_ask

    try:
        line, answer = raise_ask(ask, asker(given), wait=False)
    except NoHub as lost:
        raise lost.error from lost
    line.close()
    state = answer.get("ask") or {"id": ask["id"]}
    result = results.of_ask(state)
    if given.json:
        screen.document(results.document(result))
    else:
        screen.out(str(state["id"]))
    if not given.quiet and result["outcome"] == "open":
        from upcall.cli import at_login, where

        screen.err(where.asked(state, answer.get("channels") or [], here=False))
        screen.err(f"kept; collect it with: upcall wait {state['id']}")
        if not at_login.is_installed():
            screen.err(f"kept; but {at_login.AFTER_REBOOT_GLUED}")
    return exits.OK


# --- what was given --------------------------------------------------------------------------


def asker(given: argparse.Namespace) -> dict[str, Any]:
    """Return who asks, as the hub is told."""
    import os

    name = given.session if given.session is not None else os.environ.get("UPCALL_SESSION")
    try:
        cwd = os.getcwd()
    except OSError:
        cwd = ""
    found: dict[str, Any] = {
        "program": _program(),
        "cwd": cwd.encode("utf-8", "replace").decode(),
    }
    if name:
        found["name"] = args.name(name, "--session" if given.session else "UPCALL_SESSION")
    if given.title:
        found["title"] = args.usable(given.title, "--title")
    tags = given.tags or os.environ.get("UPCALL_TAGS", "").replace(",", " ").split()
    if tags:
        _at_most(len(tags), MAX_TAGS, "--tag" if given.tags else "UPCALL_TAGS", "tags")
        found["tags"] = [_tag(tag, "--tag" if given.tags else "UPCALL_TAGS") for tag in tags]
    return found


def _tag(text: str, what: str) -> str:
    args.name(text, what, MAX_TAG_CHARS)
    # Blanks and commas part the tags of the variable.
    if not text.isprintable() or "," in text or text != "".join(text.split()):
        raise Usage(f"{what}: {text!r} is no tag; one word without commas", code="invalid_ask")
    return text


def _program() -> str:
    """Return what the program is called that ran us: its script, if it is an interpreter."""
    import os

    pid, words, name = os.getppid(), [b""], b""
    for _ in range(_MAX_WRAPPERS):
        words = _command_of(pid)
        if not words:
            return ""
        name = os.path.basename(words[0]).lstrip(b"-")
        if name not in _WRAPPERS:
            break
        pid = _parent_of(pid)
    shells = (b"sh", b"bash", b"dash", b"zsh", b"ksh", b"python", b"perl", b"ruby", b"node")
    if len(words) > 1 and name.startswith(shells) and not words[1].startswith(b"-"):
        script = os.path.basename(words[1])
        # `bash /dev/fd/3` runs a script without a name.
        is_named = not script.isdigit() and not words[1].startswith((b"/dev/fd/", b"/proc/"))
        name = script if is_named else name
    return name.decode("utf-8", "replace")


def _command_of(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return [word for word in file.read(4096).split(b"\0") if word]
    except OSError:
        return []


def _parent_of(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name, in parentheses, may hold anything; the parent is the second after it.
            return int(file.read(4096).rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def spec_of(given: argparse.Namespace) -> dict[str, Any]:
    """Return the ask as the hub is told, checked as far as that needs no hub.

    Raises:
        Usage: something cannot be used; the message names it.
    """
    question = args.usable(given.question, "QUESTION")
    if not question.strip():
        raise Usage("QUESTION is empty", code="invalid_ask")
    _at_most(len(question), MAX_QUESTION_CHARS, "QUESTION", "characters")
    options = [_label(label) for label in given.options]
    _at_most(len(options), MAX_OPTIONS, "-o", "options")
    _differ(options)
    if given.secret:
        _check_secret(given, options)
    if given.multi and not options:
        raise Usage("--multi needs options", "give them with -o LABEL")
    free_text = not options if given.free_text is None else given.free_text
    if not options and not free_text:
        raise Usage("--no-free-text needs options", "give them with -o LABEL")
    ask: dict[str, Any] = {
        "id": mint_ask_id(),
        "question": question,
        "options": options,
        "multi": given.multi,
        "free_text": free_text,
        "class": "permission" if given.permission else "question",
    }
    if given.secret:
        ask["secret"] = True
    if given.merge:
        ask["merge"] = True
    if given.permission:
        _check_permission(given, options, free_text)
    if given.recommend is not None:
        ask["recommended"] = _one_of(given.recommend, options, "--recommend")
    if given.timeout is not None:
        ask["timeout_s"] = timeout_of(given.timeout)
    if given.default is not None:
        if given.timeout is None:
            raise Usage("--default needs --timeout", "without one it would never be used")
        ask["default"] = (
            args.usable(given.default, "--default")
            if free_text
            else _one_of(given.default, options, "--default")
        )
    if given.key is not None:
        ask["key"] = args.name(given.key, "--key")
    if given.detail is not None:
        ask["detail"] = detail_of(given.detail)
    return ask


def _check_secret(given: argparse.Namespace, options: list[str]) -> None:
    why = {
        "-o": bool(options),
        "--multi": given.multi,
        "--permission": given.permission,
        "--no-free-text": given.free_text is False,
        "--recommend": given.recommend is not None,
        "--default": given.default is not None,
        "--key": given.key is not None,
        "--no-wait": given.no_wait,
    }
    for name, is_given in why.items():
        if is_given:
            kept = name in {"--key", "--no-wait"}
            raise Usage(
                f"--secret does not go with {name}",
                "a secret is kept nowhere: who asks for it has to wait"
                if kept
                else "a secret is words that a person types",
                "invalid_ask",
            )


def timeout_of(text: str) -> float:
    """Return `--timeout` in seconds, within what an ask may have."""
    found = args.seconds(text, "--timeout")
    if not MIN_DEADLINE_S <= found <= MAX_DEADLINE_S:
        raise Usage(
            f"--timeout: {args.short(text)!r} is not between 100ms and 365d", code="invalid_ask"
        )
    return found


def detail_of(text: str) -> str:
    """Return `--detail`, read from stdin if it is `-`."""
    import json

    if text == "-":
        text = args.stdin_text("--detail", MAX_DETAIL_BYTES)
    args.usable(text, "--detail")
    _at_most(len(text.encode()), MAX_DETAIL_BYTES, "--detail", "bytes")
    # Before the line to the hub is found too long, which names no field.
    in_json = len(json.dumps(text, ensure_ascii=False).encode()) - 2
    _at_most(in_json, MAX_DETAIL_JSON_BYTES, "--detail", "bytes in JSON, with its controls")
    return text


def _at_most(count: int, limit: int, what: str, unit: str) -> None:
    if count > limit:
        raise Usage(f"{what} has {count} {unit}; the limit is {limit}", code="invalid_ask")


def _label(label: str) -> str:
    args.usable(label, "-o")
    if not label.strip():
        raise Usage("-o: a label is empty", code="invalid_ask")
    if len(label.splitlines()) > 1 or label.endswith(("\n", "\r")):
        raise Usage(f"-o: a label may not contain a line break: {label!r}", code="invalid_ask")
    if len(label) > MAX_LABEL_CHARS:
        raise Usage(
            f"-o: {label[:20]!r}... has {len(label)} characters; the limit is "
            f"{MAX_LABEL_CHARS}",
            code="invalid_ask",
        )
    return label


def _differ(options: list[str]) -> None:
    seen: dict[str, str] = {}
    for label in options:
        other = seen.setdefault(fold(label), label)
        # Of labels beyond ASCII the hub says which characters it is that differ.
        if other is not label and label.isascii() and other.isascii():
            raise Usage(
                f"-o: {other!r} and {label!r} are the same label",
                "labels are compared without regard to case and outer blanks",
                "ambiguous_labels",
            )


def _one_of(label: str, options: list[str], what: str) -> str:
    args.usable(label, what)
    for found in (
        [option for option in options if option == label],
        [option for option in options if fold(option) == fold(label)],
    ):
        if found:
            return found[0]
    listed = ", ".join(repr(option) for option in options[:8])
    more = ", ..." if len(options) > 8 else ""
    raise Usage(
        f"{what}: {args.short(label)!r} is no option",
        f"the options are {listed}{more}" if options else "there are none; give them with -o",
        "invalid_ask",
    )


def _check_permission(given: argparse.Namespace, options: list[str], free_text: bool) -> None:
    if given.default is not None:
        raise Usage("--permission takes no --default: silence is never a yes")
    if not options or free_text:
        raise Usage("--permission needs options (-o) and takes no words")
