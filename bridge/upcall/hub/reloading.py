"""Takes the configuration up while the hub runs, as soon as its file changes.

What does not parse, or is not ours, changes nothing: the last good one stays in force, and
status and operators hear of it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from upcall.clock import Clock
from upcall.config import Config, changed_tables, load
from upcall.core.kernel import Kernel
from upcall.core.ledger import plain
from upcall.hub.plugins import check_channels
from upcall.hub.settings import (
    file_mark,
    is_live,
    kept_of,
    live_of,
    source_of,
    with_taken_up,
)
from upcall.model.errors import ConfigInvalid
from upcall.model.events import Event, Moment, SettingsChanged, SettingsRefused
from upcall.model.platform import SeamLog
from upcall.model.text import one_line
from upcall.model.views import Problem

LOOK_EVERY_S: Final = 2.0


class Reloading:
    """The configuration of a running hub.

    Args:
        config: what the hub started with.
        refused: why the file could not be used then, if it could not.
        mark: of the file, from before it was read.
        kernel: decides what is taken up.
        submit: queues an event for it.
        moment: returns now.
        settled: returns when everything queued so far is committed.
        changed: tells that views show something else.
        clock: time.
        log: where failures go.
    """

    def __init__(
        self,
        config: Config,
        *,
        refused: Problem | None,
        mark: tuple[int, ...] | None,
        kernel: Kernel,
        submit: Callable[[Event], None],
        moment: Callable[[], Moment],
        settled: Callable[[], Awaitable[None]],
        changed: Callable[[], None],
        clock: Clock,
        log: SeamLog,
    ) -> None:
        self._started = config
        self._taken = config
        self._refused = refused
        self._mark = mark
        self._kernel = kernel
        self._submit = submit
        self._moment = moment
        self._settled = settled
        self._changed = changed
        self._clock = clock
        self._log = log
        self._one_at_a_time = asyncio.Lock()

    def begin(self) -> None:
        """Tell the kernel what the file says, which may have changed while no hub ran."""
        if self._refused is not None:
            self._submit(SettingsRefused(at=self._moment(), msg=self._refused.msg))
        else:
            self._take_up(self._started)

    def problems(self) -> list[Problem]:
        """Return what is not as it should be with the configuration."""
        found = [] if self._refused is None else [self._refused]
        waiting = self._kernel.waiting_settings
        if waiting is not None and waiting.ask_id is not None:
            found.append(
                Problem(
                    "config_waits",
                    "the configuration was changed; a former operator has to agree "
                    f"({waiting.ask_id}); until then the former stays in force",
                    f"upcall answer {waiting.ask_id} '#1'",
                )
            )
        elif waiting is not None:
            found.append(
                Problem(
                    "config_rejected",
                    "the configuration was changed and nobody agreed; the former stays in "
                    "force",
                    "put the file back as it was, or change it again",
                )
            )
        return found

    async def reload(self) -> dict[str, Any]:
        """Read the file; say what of it was taken up, and what only a restart takes up.

        Raises:
            ConfigInvalid: the file cannot be used; the message names file, line and key.
        """
        async with self._one_at_a_time:
            return await self._reload()

    async def watch(self) -> None:
        """Take the file up whenever it changes."""
        while True:
            await self._clock.sleep(LOOK_EVERY_S)
            if await asyncio.to_thread(file_mark) == self._mark:
                continue
            try:
                told = await self.reload()
            except ConfigInvalid as exc:
                self._log.warning("config_invalid", error=exc.msg)
            else:
                self._log.info("config_reloaded", changed=",".join(told["changed"]))

    async def _reload(self) -> dict[str, Any]:
        self._mark = await asyncio.to_thread(file_mark)
        try:
            config = await asyncio.to_thread(load)
        except ConfigInvalid as exc:
            raise self._refuse(exc.msg, exc.code, exc.recover) from exc
        except OSError as exc:
            msg = f"the configuration cannot be read: {exc.strerror}"
            raise self._refuse(msg, "config_invalid", None) from exc
        except (ValueError, RecursionError) as exc:
            # Whatever somebody writes into the file, the hub goes on as before.
            msg = f"the configuration cannot be used: {one_line(str(exc), 200)}"
            raise self._refuse(msg, "config_invalid", None) from exc
        changed = changed_tables(with_taken_up(self._started, self._taken), config)
        self._refused = None
        self._taken = config
        self._take_up(config)
        await self._settled()
        self._changed()
        problems = await asyncio.to_thread(check_channels, config)
        waiting = self._kernel.waiting_settings
        later = [name for name in changed if not self._is_in_force(name, config)]
        return {
            "changed": changed,
            "restart_needed": bool(later),
            "restart_tables": later,
            "waits_for": None if waiting is None else waiting.ask_id,
            "rejected": waiting is not None and waiting.ask_id is None,
            "problems": [plain(problem) for problem in problems],
        }

    def _is_in_force(self, table: str, config: Config) -> bool:
        if table == "hub":
            return with_taken_up(self._started, config).hub == config.hub
        return is_live(table)

    def _take_up(self, config: Config) -> None:
        self._submit(
            SettingsChanged(
                at=self._moment(),
                settings=live_of(kept_of(config)),
                source=source_of(config),
            )
        )

    def _refuse(self, why: str, code: str, recover: str | None) -> ConfigInvalid:
        msg = f"{why}; the former configuration stays in force"
        if self._refused is None or self._refused.msg != msg:
            self._submit(SettingsRefused(at=self._moment(), msg=msg))
        self._refused = Problem(code, msg, recover)
        self._changed()
        return ConfigInvalid(msg, code=code, recover=recover)
