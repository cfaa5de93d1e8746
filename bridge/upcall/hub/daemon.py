"""The daemon: starts everything in order in one task group, and stops it in reverse."""

import asyncio
import contextlib
import gc
import logging
import os
import resource
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import structlog

from upcall.clock import LocalZone, SystemClock, boot_id
from upcall.config import Config, load, parse
from upcall.core.in_force import KEPT_SETTINGS, OWN, with_live
from upcall.core.kernel import Kernel
from upcall.core.redact import mask
from upcall.core.state import ChannelInfo, KernelSettings
from upcall.hub import hub_json
from upcall.hub.hub import Hub
from upcall.hub.lock import HubLock, SameHubRuns
from upcall.hub.peer import login_name
from upcall.hub.plugins import Loaded, load_channels, safe_lower
from upcall.hub.room import how_to_make_room, is_full
from upcall.hub.settings import file_mark, kept_of, live_of, read_source
from upcall.hub.store.db import Guard, Store
from upcall.hub.store.epoch import machine_id
from upcall.hub.upgrade import Handover
from upcall.log import leaving_scrubbed, open_log
from upcall.model.errors import ConfigInvalid, HubError, UpcallError
from upcall.model.network import Outward, read_proxy
from upcall.model.text import one_line
from upcall.model.views import Problem
from upcall.scrub import Scrubber
from upcall.secrets import SecretSources, taken_from_environment
from upcall_discovery import liveness, paths
from upcall_discovery.filesystem import where_not_local

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_RUNS_ALREADY: Final = 75  # as sysexits.h has it: try again later
SWITCH_S: Final = 0.0002


def main(detached: bool, given: dict[str, str] | None = None) -> int:
    """Run the hub until it is told to stop or has had nothing to do for long.

    Args:
        detached: started on demand: log to the state folder instead of standard error.
        given: variables with secrets that were handed over beside the environment.

    Returns:
        The process' exit code.
    """
    os.umask(0o077)
    _dump_no_core()
    scrubber = Scrubber()
    handover = Handover(detached=detached, secrets=given or {})
    with leaving_scrubbed(scrubber):
        code = _run(detached, handover, scrubber)
    return handover.go_on() if handover.is_wanted else code


def _run(detached: bool, handover: Handover, scrubber: Scrubber) -> int:
    # The store's thread needs the interpreter for a moment at each row; with Python's own
    # 5 ms it would wait so long for a busy loop that a burst of asks took five times as long.
    sys.setswitchinterval(SWITCH_S)
    stream = None if detached else sys.stderr
    try:
        state = _state_folder()
        runtime = paths.runtime_dir()
        lock = HubLock.acquire(state, runtime)
    except SameHubRuns as exc:
        # No failure: whoever wants a hub waits for that one.
        return EXIT_RUNS_ALREADY if detached else _failed(exc, stream)
    except (UpcallError, paths.PathProblem) as exc:
        if not _another_hub_is_known():
            _write_failure(paths.state_dir(), exc)
        return _failed(exc, stream)
    except OSError as exc:
        return _failed(_unwritable(exc), stream)
    try:
        return _locked(detached, handover, scrubber, state, runtime, lock)
    except (UpcallError, paths.PathProblem) as exc:
        exc.msg = scrubber.hide(exc.msg)
        _write_failure(state, exc)
        return _failed(exc, stream)
    except (Exception, BaseExceptionGroup) as exc:
        # Nobody sees a detached hub's traceback: it goes to its log, and the next client
        # is told what happened instead of starting it again and again.
        logging.getLogger("upcall").exception("hub_crashed")
        failure = HubError(
            f"the hub failed: {one_line(scrubber.hide(repr(exc)), 300)}",
            code="internal",
            recover=f"see {paths.hub_log(state)}",
        )
        _write_failure(state, failure)
        return _failed(failure, stream)
    finally:
        lock.release()


def _locked(
    detached: bool,
    handover: Handover,
    scrubber: Scrubber,
    state: str,
    runtime: str,
    lock: HubLock,
) -> int:
    log_path = paths.hub_log(state) if detached else None
    open_log(log_path, "info", scrubber)
    # From before the file is read: what changes meanwhile is seen.
    mark = file_mark()
    config, problems = _configuration()
    refused = problems[0] if problems else None
    problems = []
    named = [config.network.proxy, *(one.options for one in config.channels.values())]
    values = handover.secrets
    values |= taken_from_environment(named)
    # Before anybody's code is loaded that could log them.
    for value in values.values():
        scrubber.add(value)
    sources = SecretSources(values)
    log = open_log(log_path, config.hub.log_level, scrubber)
    network, network_problems = _network(config, sources)
    if network.proxy is not None:
        scrubber.add_login(network.proxy)
    loaded, channel_problems = load_channels(config, sources)
    problems += [*network_problems, *channel_problems]
    for one in loaded:
        for secret in one.secrets.values():
            scrubber.add(secret.reveal())
    masking = _Masking()
    store = Store.open(
        paths.db_path(state),
        mask=masking,
        guard=Guard(machine_id()),
    )
    if store.migrated_from is not None:
        log.warning("store_migrated", backup=store.migrated_from, go_back="upcall hub restore")
    try:
        return _serve(
            config,
            problems,
            loaded,
            store,
            state,
            runtime,
            lock,
            log,
            scrubber,
            network,
            handover,
            masking,
            mark,
            refused,
        )
    finally:
        store.close_now()


class _Masking:
    """Masks what is kept while the configuration wants that, as it stands at each row."""

    def __init__(self) -> None:
        self.is_wanted: Callable[[], bool] = lambda: True

    def __call__(self, text: str) -> str:
        return mask(text) if self.is_wanted() else text


def _serve(
    config: Config,
    problems: Sequence[Problem],
    loaded: list[Loaded],
    store: Store,
    state: str,
    runtime: str,
    lock: HubLock,
    log: structlog.typing.FilteringBoundLogger,
    scrubber: Scrubber,
    network: Outward,
    handover: Handover,
    masking: "_Masking",
    mark: tuple[int, ...] | None,
    refused: Problem | None,
) -> int:
    _raise_descriptor_limit()
    snapshot = store.snapshot()
    settings = kernel_settings(config, loaded, log)
    # What was in force last stays so until the kernel has seen what is different; and if the
    # file cannot be used, nobody gets a right by that.
    kept = read_source(snapshot.settings.get((OWN, KEPT_SETTINGS)))
    if kept is not None:
        settings = with_live(settings, live_of(kept))
    kernel = Kernel.load(settings, snapshot)
    masking.is_wanted = lambda: kernel.redacts
    hub = Hub(
        kernel=kernel,
        store=store,
        clock=SystemClock(),
        random=secrets.token_bytes,
        state_dir=state,
        runtime_dir=runtime,
        config=config,
        problems=list(problems),
        loaded=loaded,
        lock=lock,
        log=log,
        scrubber=scrubber,
        network=network,
        handover=handover,
        config_mark=mark,
        config_refused=refused,
    )
    try:
        asyncio.run(_until_stopped(hub))
    except BaseExceptionGroup as group:
        ours, others = group.split((UpcallError, paths.PathProblem))
        if others is not None or ours is None:
            raise
        failure: Any = ours
        while isinstance(failure, BaseExceptionGroup):
            failure = failure.exceptions[0]
        log.error("hub_failed", code=failure.code, error=failure.msg)
        raise failure from None
    log.info("hub_stopped", reason=hub.stop_reason)
    return EXIT_OK


async def _until_stopped(hub: Hub) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        name = signal.Signals(number).name
        loop.add_signal_handler(number, hub.ask_to_stop, f"signal {name}")
    gc.collect()
    gc.freeze()
    await hub.run()


def kernel_settings(
    config: Config,
    loaded: Sequence[Loaded],
    log: structlog.typing.FilteringBoundLogger,
) -> KernelSettings:
    """Return what configuration and machine give the kernel."""
    settings = KernelSettings(
        operator=login_name(os.getuid()) or str(os.getuid()),
        machine=config.hub.machine_name or socket.gethostname(),
        boot_id=boot_id(),
        channels=tuple(
            ChannelInfo(one.name, one.spec.capabilities, safe_lower(one.spec, log))
            for one in loaded
        ),
        uid=str(os.getuid()),
        zone=LocalZone(),
        tell_degraded=config.hub.tell_degraded,
        limits=config.limits,
    )
    return with_live(settings, live_of(kept_of(config)))


def _state_folder() -> str:
    state = paths.state_dir()
    paths.ensure_private_dir(state)
    network = paths.is_network_filesystem(state)
    if network is not None:
        raise HubError(
            f"the state folder {state} {where_not_local(state, network)}",
            code="state_not_local",
            recover="set XDG_STATE_HOME to a folder on a local disk",
        )
    return state


def _configuration() -> tuple[Config, list[Problem]]:
    """Return the configuration, or the embedded default and what is wrong with the file."""
    try:
        return load(), []
    except ConfigInvalid as exc:
        return parse(b"", "built-in"), [Problem(exc.code, exc.msg, exc.recover)]
    except OSError as exc:
        msg = f"the configuration cannot be read: {exc.strerror}"
        return parse(b"", "built-in"), [Problem("config_invalid", msg)]


def _network(config: Config, sources: SecretSources) -> tuple[Outward, list[Problem]]:
    """Return the way out. A proxy that cannot be read is no leave to go around it."""
    setting = config.network.proxy
    if setting is None:
        return Outward(), []
    try:
        if isinstance(setting, dict):
            setting = sources.read("network.proxy", setting).reveal()
        return Outward(read_proxy(setting)), []
    except ConfigInvalid as exc:
        words = f"{exc.msg}; nothing goes out to other computers"
        return Outward(trouble=words), [Problem(exc.code, words, exc.recover)]


def _dump_no_core() -> None:
    """A core file would hold every secret of the process."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _raise_descriptor_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # macOS calls its hard limit infinite and yet takes no more than OPEN_MAX.
    for wanted in (hard, min(hard, 10240) if hard > 0 else 10240):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return


def _write_failure(state: str, exc: Any) -> None:
    now_ms = SystemClock().wall_ms()
    own = liveness.identify(os.getpid())
    ask, control = paths.socket_paths(state)
    failed = hub_json.HubFile(
        pid=os.getpid(),
        pid_start=own.start if own else "",
        version="",
        ask_sock=ask,
        control_sock=control,
        runtime_dir="",
        web_url=None,
        started_ms=now_ms,
        protocol=1,
        ended_ms=now_ms,
        last_error=hub_json.LastError(
            exc.code,
            one_line(exc.msg, 500),
            one_line(exc.recover, 500) if exc.recover else None,
        ),
    )
    # The disk may be what failed; the exit code and the log still say so.
    with contextlib.suppress(OSError, paths.PathProblem):
        hub_json.write(state, failed)


def _unwritable(error: OSError) -> HubError:
    where = error.filename or paths.state_dir()
    return HubError(
        f"{one_line(os.fsdecode(where), 300)}: {error.strerror}",
        code="state_unwritable",
        recover=how_to_make_room(error) if is_full(error) else "make it writable for you",
    )


def _another_hub_is_known() -> bool:
    """Tell whether hub.json is a living hub's, which is not ours to overwrite."""
    known = hub_json.read(paths.state_dir())
    if known is None or known.ended_ms is not None:
        return False
    return liveness.is_alive(liveness.ProcessIdentity(known.pid, known.pid_start))


def _failed(exc: Any, stream: Any) -> int:
    if stream is not None:
        print(f"upcall hub: {one_line(exc.msg, 500)} [{exc.code}]", file=stream)
        if exc.recover:
            print(f"  {one_line(exc.recover, 500)}", file=stream)
    return EXIT_FAILED
