"""`upcall demo`: the main job, on a hub of its own that leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

from upcall.cli import args, choose, exits, screen
from upcall.cli.browser import forward_line, is_without_browser
from upcall.cli.demo_auto import AutoFailed, answer_all
from upcall.cli.errors import Failure
from upcall.cli.programs import find
from upcall.cli.prompt import Prompt
from upcall.cli.signals import EndingSignals, Interrupted
from upcall.cli.standalone import login_name, wire_answer
from upcall.clock import SystemClock
from upcall.core.asks import InvalidAnswer
from upcall.line import LineError, ensure_hub, mint_ask_id
from upcall.model.errors import NoAnswer
from upcall.session.host import Session

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from upcall.answer import Answer

ABOUT = """See the main job: a hub with its inbox, a program that asks three
questions, and you (or nobody: --auto) who answers them. Everything is in a
temporary folder; your own hub and settings are not touched."""
EPILOG = """examples:
  upcall demo
  upcall demo --auto

exit codes:
  0 all three questions were answered   1 they were not   2 usage
  130 Ctrl-C"""
AUTO_LIMIT_S = 60.0
_HUB_LIMIT_S = 20.0
_LOOK_EVERY_S = 0.2
_CONFIG = "[hub]\nidle_exit_s = 2\n"
QUESTIONS: tuple[dict[str, Any], ...] = (
    {
        "question": "All tests pass. Deploy version 1.4 to production?",
        "options": ["Deploy", "Not yet"],
        "detail": "42 files changed, 3 migrations. The last deployment took 4 minutes.",
        "multi": False,
    },
    {
        "question": "Which of these should the nightly job clean up?",
        "options": ["Old logs", "Build caches", "Stale branches"],
        "detail": None,
        "multi": True,
    },
    {
        "question": "What shall the release be called?",
        "options": [],
        "detail": None,
        "multi": False,
    },
)


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the options of `demo` to *parser*."""
    parser.add_argument(
        "--auto",
        action="store_true",
        help="answer by itself through the inbox's HTTP interface (always so without a "
        "terminal)",
    )


def parser() -> args.Parser:
    """Return the parser of `upcall demo`."""
    made = args.make_parser("demo", ABOUT, EPILOG)
    fill(made)
    return made


def run(argv: Sequence[str]) -> int:
    """Run `upcall demo`."""
    given = parser().read(argv)
    auto = given.auto or not (os.isatty(0) and os.isatty(1) and os.isatty(2))
    started_at = time.monotonic()
    with EndingSignals() as signals:
        try:
            with _own_folders() as folder:
                screen.words(f"demo: a hub of its own in {folder}; nothing of yours is touched")
                _run_in_folders(auto, signals.numbers)
        except Interrupted as signal:
            screen.err("demo ended; nothing of it is left")
            return exits.SIGNAL_BASE + signal.number
    took = screen.duration(time.monotonic() - started_at)
    how = "by itself, through the inbox" if auto else "by you"
    screen.words(f"demo: done, {len(QUESTIONS)} of {len(QUESTIONS)} answered {how}, in {took}")
    if not auto:
        screen.words(f'next: {program()} ask "Which colour?" -o red -o green')
    return exits.OK


def program() -> str:
    """Return what a person types for `upcall`, from the folder that we are in."""
    if find("upcall", os.environ):
        return "upcall"
    started = os.path.abspath(sys.argv[0])
    if os.path.basename(started) == "__main__.py":
        return f"{shlex.quote(_from_here(os.path.abspath(sys.executable)))} -m upcall"
    return shlex.quote(_from_here(started))


def _from_here(path: str) -> str:
    here = os.path.join(os.getcwd(), "")
    return path.removeprefix(here) if path.startswith(here) else path


def _run_in_folders(auto: bool, numbers: Sequence[int]) -> None:
    try:
        asyncio.run(_run(auto, numbers))
    except TimeoutError:
        raise Failure(
            f"the demo did not end within {screen.duration(AUTO_LIMIT_S)}",
            "run it again; if that does not help: upcall doctor",
            "demo_slow",
        ) from None
    except BaseExceptionGroup as group:
        raise _first(group) from None
    finally:
        _stop_hub()


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return what went wrong first; the rest of a task group only followed."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, AutoFailed):
        return Failure(str(error), "see: upcall doctor", "demo_failed")
    return error


@contextlib.contextmanager
def _own_folders() -> Iterator[str]:
    """Give this process, and the hub that it starts, a home of their own."""
    folder = tempfile.mkdtemp(prefix="upcall-demo-", dir=_short_temporary())
    former = dict(os.environ)
    places = {
        "HOME": "home",
        "XDG_STATE_HOME": "state",
        "XDG_CONFIG_HOME": "config",
        "XDG_RUNTIME_DIR": "run",
    }
    try:
        for variable, name in places.items():
            path = os.path.join(folder, name)
            os.mkdir(path, 0o700)
            os.environ[variable] = path
        os.mkdir(os.path.join(folder, "config", "upcall"), 0o700)
        where = os.path.join(folder, "config", "upcall", "config.toml")
        with open(where, "x", encoding="utf-8") as file:
            file.write(_CONFIG)
        yield folder
    finally:
        os.environ.clear()
        os.environ.update(former)
        shutil.rmtree(folder, ignore_errors=True)


def _short_temporary() -> str | None:
    """Return where a socket's path stays short enough."""
    usual = tempfile.gettempdir()
    return usual if len(usual) < 40 or not os.access("/tmp", os.W_OK) else "/tmp"  # noqa: S108


async def _run(auto: bool, numbers: Sequence[int]) -> None:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    came: list[int] = []

    def end(number: int) -> None:
        came.append(number)
        if task is not None:
            task.cancel()

    for number in numbers:
        loop.add_signal_handler(number, end, number)
    try:
        await _show(auto)
    except asyncio.CancelledError:
        if came:
            raise Interrupted(came[0]) from None
        raise


async def _show(auto: bool) -> None:
    async with asyncio.timeout(AUTO_LIMIT_S if auto else None):
        async with asyncio.timeout(_HUB_LIMIT_S):
            link = await asyncio.to_thread(_start_hub)
        screen.words("demo: the hub is up")
        async with Session("Demo", repo="demo", branch="main") as session:
            demo = _Demo(session)
            if auto:
                await demo.run_auto(link)
            else:
                _invite(link)
                await demo.run_with_people()


def _start_hub() -> str:
    """Start the hub and return a link that signs one browser in."""
    until = time.monotonic() + _HUB_LIMIT_S - 1
    with ensure_hub(socket="control") as line:
        while True:
            try:
                return str(line.request("login", action="link", timeout_s=5.0)["url"])
            except LineError as err:
                # The inbox is bound a moment after the hub's socket.
                if err.code != "web_not_running" or time.monotonic() > until:
                    raise
            time.sleep(_LOOK_EVERY_S)


def _stop_hub() -> None:
    """Stop the demo's hub and wait until it is gone; its idle exit is the safety net."""
    from upcall.cli.stopping import stop_running

    with contextlib.suppress(LineError, Failure):
        stop_running()


def _invite(link: str) -> None:
    screen.words("demo: open this link in a browser (it works once, for 5 minutes):")
    screen.words(f"      {screen.visible(link)}")
    if is_without_browser(os.environ, sys.platform):
        # This demo is no hub that `upcall watch` would find: the terminal asks by itself.
        words = forward_line(link, os.environ).partition(" - or answer here")[0]
        screen.words(f"      {words}")
    screen.words("demo: or answer right here, one question after the other")


class _Demo:
    """Three questions and their answers."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._asks = [spec | {"id": mint_ask_id()} for spec in QUESTIONS]
        self._open = {str(ask["id"]): ask for ask in self._asks}
        self._prompt: Prompt | None = None
        self._shown: str | None = None
        self._answered = 0
        self._answered_here: set[str] = set()

    async def run_auto(self, link: str) -> None:
        """Ask, and answer through the inbox's own HTTP interface."""
        async with asyncio.TaskGroup() as group:
            for ask in self._asks:
                group.create_task(self._ask(ask))
            ids = [str(ask["id"]) for ask in self._asks]
            limit_s = AUTO_LIMIT_S - 10
            await asyncio.to_thread(answer_all, link, ids, limit_s, screen.words)

    async def run_with_people(self) -> None:
        """Ask, and wait for people, here or in the browser."""
        self._prompt = Prompt.open()
        if self._prompt is not None:
            self._prompt.leaving = "to leave: Ctrl-C, which ends the demo"
        look = asyncio.create_task(self._look(), name="upcall-demo-prompt")
        try:
            async with asyncio.TaskGroup() as group:
                for ask in self._asks:
                    group.create_task(self._ask(ask))
        finally:
            look.cancel()
            await asyncio.gather(look, return_exceptions=True)
            if self._prompt is not None:
                self._prompt.clear()
                self._prompt.close()

    async def _ask(self, ask: dict[str, Any]) -> None:
        await self._session.activity(busy=True)
        try:
            answer = await self._session.ask(
                ask["question"],
                ask["options"],
                detail=ask["detail"],
                multi=ask["multi"],
                ask_id=ask["id"],
            )
        except NoAnswer as ended:
            self._tell(ask, f"{ended.code}: that is an outcome too")
        else:
            here = ask["id"] in self._answered_here
            self._tell(ask, _words(answer, f"{login_name()} on terminal" if here else None))

    def _tell(self, ask: dict[str, Any], words: str) -> None:
        self._answered += 1
        self._open.pop(str(ask["id"]), None)
        if self._prompt is not None and self._shown == ask["id"]:
            self._prompt.clear()
            self._shown = None
        if self._prompt is not None and self._shown is not None:
            # Another question is on the screen: take it off, and draw it again below.
            self._prompt.clear()
            self._shown = None
        screen.words(f"demo: {self._answered}/{len(self._asks)} {ask['question']}")
        screen.words(f"      {words}")

    async def _look(self) -> None:
        """Keep the oldest open question on this terminal."""
        prompt = self._prompt
        if prompt is None:
            return
        loop = asyncio.get_running_loop()
        loop.add_reader(prompt.fileno(), self._take_typed, prompt)
        try:
            while True:
                if self._shown is None and self._open and prompt.take_turn():
                    self._shown, ask = next(iter(self._open.items()))
                    prompt.show({"free_text": not ask["options"], **ask})
                await SystemClock().sleep(_LOOK_EVERY_S)
        finally:
            loop.remove_reader(prompt.fileno())

    def _take_typed(self, prompt: Prompt) -> None:
        if not prompt.is_foreground():
            return  # reading would stop us
        typed = prompt.read()
        ask = self._open.get(self._shown or "")
        if typed is None or ask is None:
            return
        try:
            given = choose.read({"free_text": not ask["options"], **ask}, typed)
            taken = self._session.answer(
                ask["id"],
                wire_answer(given, multi=ask["multi"]),
                channel="terminal",
                name=login_name(),
            )
        except (choose.NotAnAnswer, InvalidAnswer) as why:
            prompt.again(str(why))
        else:
            prompt.is_shown = not taken
            if taken:
                self._answered_here.add(str(ask["id"]))
            self._shown = None
            self._open.pop(str(ask["id"]), None)


def _words(answer: Answer, here: str | None) -> str:
    chosen = [*answer.labels, *([answer.text] if answer.text is not None else [])]
    said = ", ".join(screen.one_line(text, 60) for text in chosen)
    by = here or answer.answered_by
    who = f" - {screen.one_line(str(by), 60)}" if by is not None else ""
    return f'"{said}"{who}, after {screen.duration(answer.waited_s)}'
