"""`upcall policy explain`: what would happen to a sample question, and why."""

from __future__ import annotations

import os
import time

from upcall.cli import args, exits, screen
from upcall.cli.errors import Usage
from upcall.line import HubLine, LineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import Any

    from upcall.config import Config

ABOUT = """Say what would happen to a question that was asked now: which rule says
so, where it is shown and when, and who may answer. A running hub is asked for
the rules in force; without one, and with FILE, the configuration file is read."""
EPILOG = """examples:
  upcall policy explain --repo shop --class permission --timeout 10m
  upcall policy explain --file new.toml --tag nightly

exit codes:
  0 said   1 the configuration is not valid   2 usage"""

_WITHIN_S = 5.0
_NAMES = {"web": "inbox", "terminal": "watch"}


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the options of `policy` to *parser*."""
    add = parser.add_argument
    add("action", metavar="ACTION", choices=("explain",), help="explain: say what would happen")
    add("--repo", metavar="NAME", help="the repository that it comes from")
    add("--host", metavar="NAME", help="the computer (default: this one)")
    add("--title", metavar="TEXT", help="the session's title")
    add("--tag", metavar="TAG", action="append", default=[], dest="tags",
        help="a tag of the session; repeat it for more")  # fmt: skip
    add("--class", choices=("question", "permission"), default="question", dest="kind",
        help="what kind it is (default: question)")  # fmt: skip
    add("--timeout", metavar="TIME", help="its time limit, such as 10m")
    add("--file", metavar="FILE", help="explain this configuration file instead")
    add("--json", action="store_true", help="print one JSON document")


def parser() -> args.Parser:
    """Return the parser of `upcall policy`."""
    made = args.make_parser("policy", ABOUT, EPILOG)
    fill(made)
    return made


def run(argv: Sequence[str]) -> int:
    """Run `upcall policy`."""
    given = parser().read(argv)
    sample: dict[str, Any] = {"class": given.kind}
    for name in ("repo", "host", "title"):
        value = getattr(given, name)
        if value is not None:
            sample[name] = args.name(value, f"--{name}")
    if given.tags:
        sample["tags"] = [args.name(tag, "--tag") for tag in given.tags]
    if given.timeout is not None:
        sample["timeout_s"] = args.seconds(given.timeout, "--timeout")
    told = None if given.file is not None else _from_hub(sample)
    source = "the hub's rules in force"
    if told is None:
        told, source = _from_file(given.file, sample)
    if given.json:
        screen.document({"source": source, **told})
        return exits.OK
    screen.err(source)
    for text in lines(told):
        screen.out(text)
    return exits.OK


def _from_hub(sample: dict[str, Any]) -> dict[str, Any] | None:
    """Return what a running hub says; None if there is none, and none is started."""
    try:
        with HubLine.connect("control", timeout_s=_WITHIN_S) as line:
            told = line.request("explain", timeout_s=_WITHIN_S, **sample)
    except LineError:
        return None
    return {name: value for name, value in told.items() if name not in {"id", "ok"}}


def _from_file(file: str | None, sample: dict[str, Any]) -> tuple[dict[str, Any], str]:
    from upcall.config import default_path, load

    path = default_path() if file is None else args.usable(file, "--file")
    exists = os.path.exists(path)
    if file is not None and not exists:
        raise Usage(f"--file: there is no {file!r}")
    config = load(path if exists else None)
    source = path if exists else "no configuration; every default"
    return of_config(config, sample), source


def of_config(config: Config, sample: dict[str, Any]) -> dict[str, Any]:
    """Return what would happen to *sample* under a configuration, without a hub."""
    import getpass
    import socket

    from upcall.clock import LocalZone
    from upcall.config import EMBEDDED
    from upcall.core.explain import Ground, explain
    from upcall.core.rules import Facts
    from upcall.model.policy import Operator
    from upcall.policy_config import operators_of, policy_of

    people = operators_of(config.operators)
    uid = str(os.getuid())
    own = [name for name, one in people.items() if one.identities.get("local") == uid]
    if not people:
        try:
            own = [getpass.getuser()]
        except (OSError, KeyError):
            own = [uid]
        people = {own[0]: Operator(name=own[0])}
    facts = Facts(
        kind=sample.get("class", "question"),
        repo=sample.get("repo"),
        host=sample.get("host") or config.hub.machine_name or socket.gethostname(),
        title=sample.get("title"),
        tags=tuple(sample.get("tags", ())),
    )
    ground = Ground(
        policy=policy_of(config.policy, config.routes),
        people=people,
        channels={
            name: one.adapter in EMBEDDED
            for name, one in config.channels.items()
            if one.enabled
        },
        zone=LocalZone(),
        wall_ms=time.time_ns() // 1_000_000,
        owner=own[0] if own else "",
    )
    return explain(ground, facts, sample.get("timeout_s"))


# --- In words --------------------------------------------------------------------------------


def lines(told: dict[str, Any]) -> list[str]:
    """Return an explanation as a person reads it."""
    found = [f"{_sample(told['ask'])}:", "", "shown:"]
    found += [f"  {text}" for text in shown_lines(told)]
    found += ["", f"answered by: {answer_words(told)}", "", "rules:"]
    rows: list[tuple[str, ...]] = [
        (f"  {one['key']}", value_words(one["value"]), str(one["from"]))
        for one in told["rules"]
    ]
    return [screen.visible(text) for text in [*found, *screen.table(rows)]]


def shown_lines(told: dict[str, Any]) -> list[str]:
    """Return where a question is shown and when, a line for each time."""
    away = {one["name"]: one.get("reason") for one in told["channels"] if one["hears"] is False}
    found = []
    for one in told["shown"]:
        where = ", ".join(_channel(name, away) for name in one["channels"])
        people = ", ".join(one["people"])
        match one["what"]:
            case "shown":
                words = f"in {where}" if where else "nowhere yet"
            case "delayed":
                words = f"{where}: {one['note']}"
            case "fallback":
                words = f"in {where} instead, {one['note']}"
            case "escalated":
                parts = [
                    f"also asks {people}" if people else "",
                    f"also in {where}" if where else "",
                ]
                words = "; ".join(part for part in parts if part)
            case "reminded":
                words = f"a reminder in {where}"
            case _:
                words = "the time limit: it ends without an answer"
        if one["what"] == "shown" and one["note"]:
            words += f" ({one['note']})"
        found.append(f"{one['when']}: {words}")
    return found


def answer_words(told: dict[str, Any]) -> str:
    """Return who may answer, and what it takes, in words."""
    answer = told["answer"]
    names = ", ".join(person["name"] for person in answer["people"]) or "nobody"
    needed = int(answer["needed"])
    words = names if needed < 2 else f"{needed} of {names}"
    if needed >= 2 and answer["veto"]:
        words += "; one refusal ends it"
    if answer["exclude_asker"]:
        words += "; not whoever asks"
    if answer["second"]:
        words += f"; with a second {answer['second']}"
    if not answer["enough"]:
        words += f" - NOT ENOUGH: {len(answer['people'])} of {needed} may {answer['right']}"
    return words


def value_words(value: Any) -> str:
    """Return a rule's value in words."""
    match value:
        case None:
            return "-"
        case True | False:
            return "yes" if value else "no"
        case float():
            return screen.duration(value)
        case int():
            return str(value)
        case [*items]:
            return ", ".join(_item(one) for one in items) or "none"
        case dict():
            return _item(value)
        case _:
            return str(value)


def _item(value: Any) -> str:
    match value:
        case float() | int():
            return screen.duration(float(value))
        case {"never": True}:
            return "none"
        case {"from_min": int(start), "to_min": int(end)}:
            zone = value.get("zone_name") or "this computer's clock"
            return f"{start // 60:02}:{start % 60:02}-{end // 60:02}:{end % 60:02} {zone}"
        case {"after_s": after_s}:
            more = [*(value.get("people") or ()), *(value.get("channels") or ())]
            return f"{screen.duration(float(after_s))}: {' '.join(more)}"
        case _:
            return str(value)


def _channel(name: str, away: dict[str, Any]) -> str:
    called = _NAMES.get(name, name)
    return f"{called} (not hearing: {away[name]})" if name in away else called


def _sample(ask: dict[str, Any]) -> str:
    facts = [f"{name} {ask[name]}" for name in ("repo", "host", "title") if ask.get(name)]
    facts += [f"tag {tag}" for tag in ask.get("tags") or ()]
    if ask.get("timeout_s"):
        facts.append(f"time limit {screen.duration(float(ask['timeout_s']))}")
    what = "a permission" if ask["class"] == "permission" else "a question"
    return f"{what} ({', '.join(facts)})" if facts else what
