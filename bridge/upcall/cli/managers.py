"""The service managers: systemd's for one user, and launchd.

Both are reached by their own programs; nothing here writes or removes a unit.
"""

from __future__ import annotations

import os

from upcall.cli import at_login, programs, screen, units
from upcall.cli.errors import Failure
from upcall.line.interpreter import hub_command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Protocol

    class Manager(Protocol):
        """What `upcall service` needs of a service manager."""

        name: str
        unit_path: str

        def unit_text(self) -> str:
            """Return the unit. Raises `units.UnusableProgram` and `LineError`."""
            ...

        def is_there(self) -> bool:
            """Tell whether this manager runs for us."""
            ...

        def enable(self) -> None:
            """Have the unit started at login, and start it anew now. Raises `Failure`."""
            ...

        def disable(self) -> None:
            """Stop it and have it started no more. Raises `Failure`."""
            ...

        def forget(self) -> None:
            """Notice that the unit's file is gone."""
            ...

        def is_active(self) -> bool:
            """Tell whether the hub runs under this manager now."""
            ...

        def ends_at_logout(self) -> bool:
            """Tell whether the service ends when the person logs out."""
            ...


class Systemd:
    """systemd's manager for one user.

    Attributes:
        name: what a person calls it.
        unit_path: where the unit is, whether it exists or not.
    """

    name = "systemd"

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = dict(environ)
        runtime = f"/run/user/{os.geteuid()}"
        if "XDG_RUNTIME_DIR" not in self._environ and os.path.isdir(runtime):
            # After `su` or in cron the manager is there, only nobody said where.
            self._environ["XDG_RUNTIME_DIR"] = runtime
        self._systemctl = programs.find("systemctl", environ)
        self.unit_path = at_login.unit_path("linux")

    def unit_text(self) -> str:
        """Return the unit."""
        return units.systemd_unit(hub_command(detached=False), self._environ)

    def is_there(self) -> bool:
        """Tell whether a manager runs for us and can be reached."""
        if self._systemctl is None:
            return False
        return self._ran("show", "--property=Version").code == 0

    def enable(self) -> None:
        """Have the unit started at login, and start it anew now."""
        self._do("daemon-reload")
        self._do("enable", at_login.SYSTEMD_NAME)
        self._do("restart", at_login.SYSTEMD_NAME)

    def disable(self) -> None:
        """Stop it and have it started no more."""
        if self.is_there():
            self._do("disable", "--now", at_login.SYSTEMD_NAME)
        wanted = os.path.join(
            os.path.dirname(self.unit_path), "default.target.wants", at_login.SYSTEMD_NAME
        )
        if os.path.islink(wanted) and os.path.basename(os.readlink(wanted)) == (
            at_login.SYSTEMD_NAME
        ):
            os.unlink(wanted)

    def forget(self) -> None:
        """Notice that the unit's file is gone."""
        if self.is_there():
            self._ran("daemon-reload")

    def is_active(self) -> bool:
        """Tell whether the hub runs under this manager now."""
        if self._systemctl is None:
            return False
        return self._ran("is-active", "--quiet", at_login.SYSTEMD_NAME).code == 0

    def ends_at_logout(self) -> bool:
        """Tell whether lingering is off, so that the service ends at logout."""
        user = login_name()
        loginctl = programs.find("loginctl", self._environ)
        if loginctl is not None:
            told = programs.run(
                [loginctl, "show-user", user, "--property=Linger"], self._environ
            )
            if told.code == 0 and told.out.startswith("Linger="):
                return told.out.strip() != "Linger=yes"
        return not os.path.exists(f"/var/lib/systemd/linger/{user}")

    def _ran(self, *words: str) -> programs.Ran:
        return programs.run([str(self._systemctl), "--user", *words], self._environ)

    def _do(self, *words: str) -> None:
        _check(self._ran(*words), f"systemctl --user {' '.join(words)}")


class Launchd:
    """launchd's domain of one user; attributes as of `Systemd`."""

    name = "launchd"

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = dict(environ)
        self._launchctl = programs.find("launchctl", environ)
        self._domain = f"gui/{os.geteuid()}"
        self._target = f"{self._domain}/{at_login.LAUNCHD_LABEL}"
        self.unit_path = at_login.unit_path("darwin")

    def unit_text(self) -> str:
        """Return the agent."""
        # With a log of its own: launchd would let a file for standard error grow for ever.
        return units.launchd_agent(hub_command(detached=True), self._environ)

    def is_there(self) -> bool:
        """Tell whether the person's domain can be reached (not so over SSH alone)."""
        if self._launchctl is None:
            return False
        return programs.run([self._launchctl, "print", self._domain], self._environ).code == 0

    def enable(self) -> None:
        """Have the agent started at login, and start it anew now."""
        if self.is_active():
            self._do("bootout", self._target)
        self._do("bootstrap", self._domain, self.unit_path)

    def disable(self) -> None:
        """Stop it and have it started no more."""
        if self.is_active():
            self._do("bootout", self._target)

    def forget(self) -> None:
        """Notice that the agent's file is gone: `disable` has done all."""

    def is_active(self) -> bool:
        """Tell whether launchd knows the agent."""
        if self._launchctl is None:
            return False
        return programs.run([self._launchctl, "print", self._target], self._environ).code == 0

    def ends_at_logout(self) -> bool:
        """Tell that it does: an agent lives as long as the person's session, as it should."""
        return False

    def _do(self, *words: str) -> None:
        _check(
            programs.run([str(self._launchctl), *words], self._environ),
            f"launchctl {' '.join(words)}",
        )


def _check(ran: programs.Ran, what: str) -> None:
    if ran.code != 0:
        why = screen.one_line(ran.err.strip() or f"exit {ran.code}", 300)
        raise Failure(f"{what} failed: {why}", "look at it with: " + what, "service_manager")


def login_name() -> str:
    """Return our login name, or our uid where it has none."""
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
