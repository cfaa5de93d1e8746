"""Which processes count as the program that asked, so that none of them answers itself.

The asking process is often only a messenger: a program runs a hook, in whatever language, and
that runs `upcall confirm`. So what started it counts as well, up to where a person begins: a
shell that somebody types into, what gives a session its terminal, a service manager. Those
are where everything of that person starts; they never count.

All of this is what the kernel says when the ask is raised. A program that takes pains (a
service manager, a terminal of its own) gets around it.
"""

import os
import re
from typing import Final, Literal, TypeAlias

from upcall_discovery import liveness, paths
from upcall_discovery.liveness import ProcessIdentity

_MAX_CHAIN: Final = 64


def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


_ShellUse: TypeAlias = Literal["command", "script", "input", "person"]

_SHELLS: Final = _names("sh bash rbash dash ash zsh ksh mksh lksh yash fish busybox tcsh csh")
# Where programs of many kinds start, a person's terminals among them.
_STARTERS: Final = _names(
    "systemd init launchd cron crond atd anacron runit runsv runsvdir s6-svscan s6-supervise"
    " supervisord dinit shepherd openrc tini dumb-init catatonit containerd-shim conmon sshd"
    " sshd-session dropbear login agetty getty tmux screen zellij dtach abduco mosh-server"
    " gnome-shell plasmashell kwin_wayland kwin_x11 sway i3 hyprland openbox xfwm4 xinit"
    " gnome-session-binary sudo su doas"
)
# What gives a session its terminal. Only that makes them no part: they also run agents.
_TERMINALS: Final = _names(
    "xterm uxterm rxvt urxvt st konsole yakuake gnome-terminal-server gnome-terminal ptyxis"
    " ptyxis-agent kgx xfce4-terminal mate-terminal lxterminal terminator tilix guake foot"
    " footclient kitty alacritty wezterm-gui wezterm ghostty contour terminal iterm2 code"
    " codium cursor electron ttyd emacs vim nvim"
)
# What a person types to get a shell.
_IN_BETWEEN: Final = _names("sudo su doas login env")
# Where root installs programs: as root, every file is the asking program's to make.
_SYSTEM_FOLDERS: Final = (
    "/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/", "/opt/", "/nix/store/", "/snap/",
    "/System/", "/Applications/", "/Library/", "/run/current-system/",
)  # fmt: skip
_VERSION: Final = re.compile(r"[-.0-9]+$")
# Options of shells whose value is the next argument.
_WITH_VALUE: Final = frozenset({"--rcfile", "--init-file", "--init-command"})


def asking_chain(pid: int, state_dir: str) -> tuple[ProcessIdentity, ...]:
    """Return the processes that count as the one that asked: itself, then what started it.

    Args:
        pid: the asking process.
        state_dir: this hub's state folder; what starts programs with another one (the runner
            of a build, a test) is not the program that asked.

    Returns:
        Nearest first; empty if there is no such process.
    """
    own = liveness.identify(pid) if pid else None
    if own is None:
        return ()
    uid = liveness.uid_of(pid)
    chain, counted = [own], 1
    here = pid
    while len(chain) < _MAX_CHAIN:
        above = liveness.parent_of(here)
        identity = liveness.identify(above) if above is not None and above > 1 else None
        if above is None or identity is None or liveness.uid_of(above) != uid:
            break
        if _begins_a_person(above, here):
            break
        chain.append(identity)
        if not _has_other_home(above, state_dir):
            # What is between it and the asker counts whatever its own state folder is: a
            # program may give it any.
            counted = len(chain)
        here = above
    return tuple(chain[:counted])


def is_cut_off(pid: int, line: list[ProcessIdentity]) -> bool:
    """Tell whether a process has a terminal only because it has outlived what started it.

    Whoever types a command descends from the first process of that terminal. A program that
    was left behind, to be nobody's child, does not.

    Args:
        pid: the process.
        line: the process and its ancestors.
    """
    leader = liveness.session_leader_of(pid)
    # A leader outside of the hub's own pid namespace has the number 0.
    return bool(leader) and all(process.pid != leader for process in line)


def _begins_a_person(above: int, here: int) -> bool:
    """Tell whether *above*, which started *here*, starts whatever a person wants."""
    name = _name_of(above)
    if name in _SHELLS:
        return _is_a_persons(above)
    if name in _STARTERS or (name in _TERMINALS and _leads_terminal(here)):
        return _is_of_the_system(above)
    return False


def _is_a_persons(shell: int) -> bool:
    """Tell whether somebody types into a shell that no program of theirs has put in between.

    Such a shell is the first process of its terminal, or was started from one that is. What
    an agent starts on its own terminal is the agent's, whatever startup files say: a shell
    takes commands from many places.
    """
    for _ in range(_MAX_CHAIN):
        if _shell_use(shell) != "person":
            return False
        if liveness.session_leader_of(shell) == shell:
            return True
        above = liveness.parent_of(shell)
        while above is not None and _name_of(above) in _IN_BETWEEN and _is_of_the_system(above):
            above = liveness.parent_of(above)
        if above is None or _name_of(above) not in _SHELLS:
            return False
        shell = above
    return False


def _is_of_the_system(pid: int) -> bool:
    """Tell whether a program's file is none that the asking program could have made itself.

    Its name alone is anybody's choice.
    """
    path = liveness.program_file_of(pid)
    if not path:
        # Not to be seen: it belongs to somebody else, or is part of the kernel.
        return True
    if os.getuid() == 0:
        return path.startswith(_SYSTEM_FOLDERS)
    try:
        return os.stat(path).st_uid == 0
    except OSError:
        return False


def _name_of(pid: int) -> str:
    # By its file: its short name is the process' own choice.
    name = os.path.basename(liveness.program_file_of(pid)) or liveness.program_of(pid)
    return _VERSION.sub("", name).lower()


def _leads_terminal(pid: int) -> bool:
    return liveness.session_leader_of(pid) == pid and liveness.controlling_tty(pid) is not None


def _shell_use(pid: int) -> _ShellUse:
    """Return what a shell runs: a string, a file, what comes in, or what a person types."""
    words = liveness.arguments_of(pid)
    rest = iter(words[1:])
    if words and os.path.basename(words[0]) == "busybox":
        next(rest, None)
    for word in rest:
        if word in _WITH_VALUE:
            next(rest, None)
        elif word in {"-", "--"}:
            if next(rest, None) is not None:
                return "script"
        elif word.startswith("--"):
            if word.split("=", 1)[0] in {"--command", "--c"}:
                return "command"
        elif word[:1] in {"-", "+"} and len(word) > 1:
            if word[0] == "-" and "c" in word:
                return "command"
            if word[-1] in "oO":
                next(rest, None)
        else:
            return "script"
    if liveness.controlling_tty(pid) is not None and liveness.reads_terminal(pid):
        return "person"
    return "input"


def _has_other_home(pid: int, state_dir: str) -> bool:
    environment = liveness.environment_of(pid)
    if not environment:
        return False
    there = paths.state_dir_in(environment)
    return there is not None and os.path.realpath(there) != os.path.realpath(state_dir)
