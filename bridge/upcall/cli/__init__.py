"""The `upcall` command: picks the subcommand and imports only that.

stdout carries the answer or the one JSON document, people read stderr, and scripts read the
exit code. Nothing here ever shows a traceback.
"""

# Only what is part of the interpreter itself, which no folder can shadow: what comes after
# `_forget_the_working_folder` may be imported as usual.
import errno
import os
import sys

from upcall.cli import exits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = {
    "ask": "ask a question, print the answer",
    "confirm": "ask for permission: exit 0 means yes, and nothing else does",
    "notify": "tell something; nobody has to answer",
    "wait": "collect the answer of a question that was handed over",
    "answer": "answer a question from here",
    "asks": "list questions",
    "sessions": "list programs that can ask",
    "log": "what happened, question by question; --verify checks it",
    "watch": "see everything live and answer in this terminal",
    "inbox": "open the inbox in a browser, or manage its logins",
    "status": "how the hub is, what it hears, and what waits",
    "outbox": "messages that did not arrive: list, retry, drop",
    "hub": "run, start, stop, back up, or look at the hub",
    "forget": "erase texts that the hub keeps",
    "service": "start the hub at login",
    "roots": "project folders whose sessions the hub reads",
    "operators": "who may answer: list, add, revoke, restore",
    "lock": "take no answer from anywhere but here, at once",
    "unlock": "end that",
    "redact": "mask credentials in a conversation, or show them for a while",
    "verbosity": "how much of a session's work is shown in its threads",
    "policy": "what would happen to a question, and which rule says so",
    "config": "the configuration: path, check, schema",
    "doctor": "check everything; each finding with its remedy",
    "demo": "see it work: three questions and a page to answer them",
    "completion": "print a shell's completion script",
    "uninstall": "remove what upcall has left on this computer",
}


def usage() -> str:
    """Return the text of `upcall --help`."""
    lines = [
        "usage: upcall [COMMAND] [OPTION]...",
        "",
        "Any running program can ask its people a question and get the answer back.",
        "Without a command: how things stand.",
        "",
        "commands:",
        *(f"  {name:<11} {what}" for name, what in COMMANDS.items()),
        "",
        "`upcall COMMAND --help` shows options, an example and exit codes.",
        "",
        "example:",
        '  upcall confirm "Deploy to production?" && ./deploy',
        "",
        "options:",
        "  -h, --help  this text",
        "  --version   the version",
        "  --json      alone, or with a command whose help names it: exactly one JSON",
        "              document on stdout",
    ]
    return "\n".join(lines)


def main(argv: "Sequence[str] | None" = None) -> int:
    """Run one command and return its exit code."""
    if argv is None:
        _forget_the_working_folder()
    words = list(sys.argv[1:] if argv is None else argv)
    as_json = "--json" in words[: words.index("--") if "--" in words else len(words)]
    try:
        code = _run(words)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except SystemExit as stop:  # argparse has printed help
        return stop.code if isinstance(stop.code, int) else exits.FAILURE
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except BrokenPipeError:
        _abandon_stdout()
        return exits.FAILURE
    except Exception as err:  # noqa: BLE001 - the process's edge: words, never a traceback
        from upcall.cli.errors import report

        if isinstance(err, OSError) and err.errno == errno.ENOSPC:
            _abandon_stdout()
            print(
                f"upcall: what was printed could not be written: {err.strerror}",
                file=sys.stderr,
            )
            return exits.FAILURE
        return report(err, as_json=as_json)


def _abandon_stdout() -> None:
    # Python would complain again while it flushes at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _forget_the_working_folder() -> None:
    """Import nothing from where we stand, though PYTHONPATH may name it.

    Such a variable is often set for a project, and its folder may hold a `json.py`. Only what
    lies in the working folder is left out; if this very program comes from there, nothing is.
    """
    named = os.environ.get("PYTHONPATH")
    if not named or sys.flags.ignore_environment:
        return
    try:
        here = os.path.realpath(os.getcwd())
    except OSError:  # it was removed; nothing can be in it
        return
    folders = {os.path.realpath(os.path.join(here, one)) for one in named.split(os.pathsep)}
    inside = {one for one in folders if one == here or one.startswith(here.rstrip("/") + "/")}
    if os.path.realpath(os.path.join(os.path.dirname(__file__), "..", "..")) not in inside:
        sys.path[:] = [one for one in sys.path if os.path.realpath(one) not in inside]


def _run(words: list[str]) -> int:
    from upcall.cli import screen

    name = words[0] if words else ""
    if name in {"-h", "--help", "help"}:
        if name == "help" and len(words) > 1 and words[1] in COMMANDS:
            return _run([words[1], "--help"])
        screen.out(usage())
        return exits.OK
    if name == "--version":
        import upcall

        screen.out(f"upcall {upcall.__version__}")
        return exits.OK
    if name in {"", "--json"}:
        if len(words) > 1 and words[1] in COMMANDS:
            # Before the command it means the same; but behind `--` nothing is an option.
            end = words.index("--") if "--" in words else len(words)
            return _run([*words[1:end], "--json", *words[end:]])
        if len(words) > 1:
            from upcall.cli.errors import Usage

            raise Usage(f"{words[1]!r} does not belong here", "see: upcall --help")
        from upcall.cli.overview import run

        return run(words)
    if name not in COMMANDS:
        from upcall.cli.args import short
        from upcall.cli.errors import Usage, nearest

        name = short(name)
        kind = "option" if name.startswith("-") else "command"
        hint = nearest(name, COMMANDS)
        raise Usage(f"there is no {kind} {name!r}{hint}", "see: upcall --help")
    from importlib import import_module

    code: int = import_module(f"upcall.cli.{name}").run(words[1:])
    return code
