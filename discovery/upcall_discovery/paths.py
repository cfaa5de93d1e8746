"""Where things live, and private files and folders, by `os` alone.

Every check is made on an opened descriptor, never on a name that could be swapped
afterwards. Light commands import this module, so at import it takes in nothing but `os`,
`stat` and `sys`.
"""

import errno
import os
import stat
import sys

MAX_SOCKET_PATH_BYTES = 100
DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A FIFO in place of a file must not block the opener, nor a terminal become ours.
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

# Printable by Unicode's word, yet shown as nothing.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")


class PathProblem(Exception):
    """A folder or file cannot be used as it is.

    Attributes:
        code: stable name, such as `folder_not_private`.
        msg: what is wrong, naming the path.
        recover: what to do about it, or None.
    """

    def __init__(self, code: str, msg: str, recover: str | None = None) -> None:
        super().__init__(msg)
        self.code = code
        self.msg = msg
        self.recover = recover


def shown(text: str) -> str:
    """Return *text* with everything that a terminal would not show as such escaped."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char if char.isprintable() and char not in _BLANK and not _selects(char) else _hex(char)
        for char in text
    )


def _selects(char: str) -> bool:
    return (
        "\ufe00" <= char <= "\ufe0f"
        or "\u180b" <= char <= "\u180f"
        or "\U000e0100" <= char <= "\U000e01ef"
    )


def _hex(char: str) -> str:
    point = ord(char)
    if point < 0x100:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


# ---------------------------------------------------------------------------------------
# Places


def _home() -> str:
    home = os.environ.get("HOME", "")
    if os.path.isabs(home):
        return home
    import pwd

    return pwd.getpwuid(os.getuid()).pw_dir


def _xdg(variable: str) -> str | None:
    # The base directory specification says that a relative value is to be ignored.
    value = os.environ.get(variable, "")
    return value if os.path.isabs(value) else None


def state_dir() -> str:
    """Return the folder for what outlives a reboot; it is not created."""
    base = _xdg("XDG_STATE_HOME")
    if base is None:
        if sys.platform == "darwin":
            base = os.path.join(_home(), "Library", "Application Support")
        else:
            base = os.path.join(_home(), ".local", "state")
    return os.path.join(base, "upcall")


def config_dir() -> str:
    """Return the folder of the configuration file; it is not created."""
    return os.path.join(_xdg("XDG_CONFIG_HOME") or os.path.join(_home(), ".config"), "upcall")


def _temporary() -> str:
    # Not $TMPDIR: every program of this user has to arrive at the same place.
    return f"/tmp/upcall-{os.geteuid()}"  # noqa: S108 - verified by ensure_private_dir


def _is_private_base(path: str) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return (
        stat.S_ISDIR(found.st_mode)
        and found.st_uid == os.geteuid()
        and stat.S_IMODE(found.st_mode) & 0o777 == 0o700
    )


def runtime_candidates() -> list[str]:
    """Return the places for what dies with the machine, best first; none is created."""
    if sys.platform == "darwin":
        return [os.path.join(state_dir(), "run")]
    bases = [_xdg("XDG_RUNTIME_DIR"), f"/run/user/{os.geteuid()}"]
    places = [os.path.join(base, "upcall") for base in bases if base and _is_private_base(base)]
    return list(dict.fromkeys([*places, _temporary()]))


def runtime_dir(create: bool = True) -> str:
    """Return the first runtime folder that can be used, verified on an opened descriptor.

    Args:
        create: make it (mode 0700) if it is missing; without, only an existing one counts.

    Raises:
        PathProblem: none can be used. It says why of the last place, or has the code
            `no_runtime` when there simply is none yet.
    """
    problem = PathProblem(
        "no_runtime",
        "no runtime folder exists yet",
        "start a session or the hub: either makes one",
    )
    for place in runtime_candidates():
        try:
            if create:
                ensure_private_dir(place)
            else:
                os.close(open_private_dir(place))
        except PathProblem as found:
            problem = found
        except FileNotFoundError:
            continue
        except OSError as error:
            problem = PathProblem(
                "no_runtime",
                f"{shown(place)} cannot be used: {error.strerror}",
                "set XDG_RUNTIME_DIR to a folder of yours with mode 0700",
            )
        else:
            return place
    raise problem


def sessions_dir(runtime: str) -> str:
    """Return the folder of the records in a runtime folder."""
    return os.path.join(runtime, "sessions")


def socket_paths(state: str) -> tuple[str, str]:
    """Return the paths of the hub's two sockets: the asking one and the controlling one.

    A path that the kernel could find too long is replaced by `short_socket_paths`.
    """
    ask, control = os.path.join(state, "ask.sock"), os.path.join(state, "control.sock")
    if len(os.fsencode(control)) > MAX_SOCKET_PATH_BYTES:
        return short_socket_paths(state)
    return ask, control


def short_socket_paths(state: str) -> tuple[str, str]:
    """Return the sockets' paths for a state folder that is too deep or can't hold sockets.

    Their folder is not created; whoever binds there calls `ensure_private_dir` on it.
    """
    import hashlib

    name = hashlib.sha256(os.fsencode(state)).hexdigest()[:16]
    base = os.path.join(_temporary(), name)
    return f"{base}.ask", f"{base}.control"


def hub_json(state: str) -> str:
    """Return the path of the file in which a hub says how it is reached."""
    return os.path.join(state, "hub.json")


def hub_lock(state: str) -> str:
    """Return the path of the lock that a hub holds; also used within a runtime folder."""
    return os.path.join(state, "hub.lock")


def start_lock(state: str) -> str:
    """Return the path of the lock that is held while a hub is started."""
    return os.path.join(state, "start.lock")


def hub_log(state: str) -> str:
    """Return the path of a detached hub's log."""
    return os.path.join(state, "hub.log")


def db_path(state: str) -> str:
    """Return the path of the hub's database."""
    return os.path.join(state, "hub.db")


# ---------------------------------------------------------------------------------------
# Folders


def check_private_dir(fd: int, path: str) -> None:
    """Raise `PathProblem` unless the opened folder is ours alone; *path* is for the words."""
    found = os.fstat(fd)
    if found.st_uid != os.geteuid():
        raise PathProblem(
            "folder_foreign",
            f"{shown(path)} belongs to user {found.st_uid}, not to {os.geteuid()}",
            f"find out who made {shown(path)}, and remove it or set another place",
        )
    if found.st_mode & 0o077:
        raise PathProblem(
            "folder_not_private",
            f"{shown(path)} is open to other users (mode {found.st_mode & 0o777:04o})",
            f"chmod 700 {shown(path)}",
        )


def open_private_dir(path: str, *, dir_fd: int | None = None) -> int:
    """Open a folder that must be ours alone, and return its descriptor.

    Raises:
        PathProblem: it is a symlink or no folder, someone else's, or open to others.
        FileNotFoundError: there is none.
    """
    try:
        fd = os.open(path, DIRECTORY_FLAGS, dir_fd=dir_fd)
    except OSError as error:
        if error.errno not in {errno.ELOOP, errno.ENOTDIR}:
            raise
        raise PathProblem(
            "folder_symlink",
            f"{shown(path)} is a symlink or no folder",
            f"remove {shown(path)}; it has to be a real folder",
        ) from error
    try:
        check_private_dir(fd, path)
    except BaseException:
        os.close(fd)
        raise
    return fd


def ensure_private_dir(path: str) -> None:
    """Make *path* a folder that is ours alone (0700), its missing parents too.

    What exists is verified and never changed: parents may be what they are.

    Raises:
        PathProblem: what is there is not ours alone; it names the path and the fix.
        OSError: it cannot be made.
    """
    path = os.path.abspath(path)
    missing = []
    here = path
    while not os.path.lexists(here):
        missing.append(here)
        here = os.path.dirname(here)
    for folder in reversed(missing):
        # Another process of ours may be making the same folder at this moment.
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            continue
    os.close(open_private_dir(path))


def is_network_filesystem(path: str) -> str | None:
    """Return the type of the network file system that holds *path*, None for a local one.

    *path* need not exist; its nearest existing parent counts.
    """
    from upcall_discovery.filesystem import network_type

    return network_type(path)


# ---------------------------------------------------------------------------------------
# Files


def open_private_file(name: str, *, dir_fd: int | None, path: str) -> int:
    """Open a file for reading that must be ours alone, and return its descriptor.

    Args:
        name: the file, relative to *dir_fd* if that is given.
        dir_fd: the opened folder.
        path: how to call the file in words.

    Raises:
        PathProblem: codes `file_symlink`, `file_not_regular`, `file_foreign`, `file_linked`,
            `file_not_private`.
        FileNotFoundError: there is none.
    """
    words = shown(path)
    try:
        fd = os.open(name, READ_FLAGS, dir_fd=dir_fd)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise PathProblem(
                "file_symlink", f"{words} is a symlink", f"remove {words}"
            ) from error
        if error.errno in {errno.ENXIO, errno.EOPNOTSUPP}:
            raise PathProblem(
                "file_not_regular", f"{words} is no regular file", f"remove {words}"
            ) from error
        raise
    try:
        _check_private_file(os.fstat(fd), words)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _check_private_file(found: os.stat_result, words: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise PathProblem("file_not_regular", f"{words} is no regular file", f"remove {words}")
    if found.st_uid != os.geteuid():
        raise PathProblem(
            "file_foreign",
            f"{words} belongs to user {found.st_uid}, not to {os.geteuid()}",
            f"remove {words}",
        )
    if found.st_nlink != 1:
        raise PathProblem(
            "file_linked", f"{words} has {found.st_nlink} hard links", f"remove {words}"
        )
    if found.st_mode & 0o077:
        raise PathProblem(
            "file_not_private",
            f"{words} is open to other users (mode {found.st_mode & 0o777:04o})",
            f"chmod 600 {words}",
        )


def read_at(
    name: str, limit_bytes: int, *, dir_fd: int | None, path: str
) -> tuple[bytes, os.stat_result]:
    """Return a private file's bytes and its status; arguments as in `open_private_file`.

    Raises:
        PathProblem: as there, or `file_too_large`.
        FileNotFoundError: there is none.
    """
    fd = open_private_file(name, dir_fd=dir_fd, path=path)
    try:
        data = bytearray()
        while len(data) <= limit_bytes:
            piece = os.read(fd, limit_bytes + 1 - len(data))
            if not piece:
                return bytes(data), os.fstat(fd)
            data += piece
    finally:
        os.close(fd)
    raise PathProblem("file_too_large", f"{shown(path)} is larger than {limit_bytes} bytes")


def write_at(name: str, data: bytes, *, dir_fd: int, sync: bool) -> os.stat_result:
    """Put a file (0600) into an opened folder so that no reader ever sees half of it.

    Args:
        name: the file within the folder; what has that name is replaced.
        data: all of its content.
        dir_fd: the opened folder.
        sync: make it outlive a power cut, at the price of two fsync.

    Returns:
        The status of the new file.

    Raises:
        OSError: it could not be written; nothing is left behind and the old file stays.
    """
    temporary = f".{name}.{os.getpid()}.{os.urandom(4).hex()}.tmp"
    fd = os.open(temporary, _CREATE_FLAGS, 0o600, dir_fd=dir_fd)
    try:
        os.fchmod(fd, 0o600)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]
        if sync:
            os.fsync(fd)
        os.rename(temporary, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
        found = os.fstat(fd)
    except BaseException:
        _discard(temporary, dir_fd)
        raise
    finally:
        os.close(fd)
    if sync:
        os.fsync(dir_fd)
    return found


def _discard(name: str, dir_fd: int) -> None:
    try:
        os.unlink(name, dir_fd=dir_fd)
    except OSError:
        # Renamed already, or the folder takes no change: the first error is the one to tell.
        return


def read_private_file(path: str, limit_bytes: int) -> bytes:
    """Return the bytes of a file that must be ours alone, and not larger than the limit.

    Raises:
        PathProblem: it is not ours alone, not regular, or too large.
        FileNotFoundError: there is none.
    """
    return read_at(path, limit_bytes, dir_fd=None, path=path)[0]


def write_private_file(path: str, data: bytes, *, sync: bool) -> None:
    """Write a file (0600) by a temporary one in the same folder and a rename.

    Raises:
        OSError: it could not be written; the former file stays.
    """
    folder, name = os.path.split(os.path.abspath(path))
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        write_at(name, data, dir_fd=fd, sync=sync)
    finally:
        os.close(fd)
