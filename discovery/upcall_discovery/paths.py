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
_OPEN_FLAGS = os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY

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


def home() -> str:
    """Return the person's home folder, from the password database where $HOME is not set."""
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
    return os.path.join(base or _state_base(home()), "upcall")


def state_dir_in(environ: dict[str, str]) -> str | None:
    """Return the state folder of a process with this environment, None if it names none."""
    base, at_home = environ.get("XDG_STATE_HOME", ""), environ.get("HOME", "")
    if not os.path.isabs(base):
        if not os.path.isabs(at_home):
            return None
        base = _state_base(at_home)
    return os.path.join(base, "upcall")


def _state_base(at_home: str) -> str:
    if sys.platform == "darwin":
        return os.path.join(at_home, "Library", "Application Support")
    return os.path.join(at_home, ".local", "state")


def config_dir() -> str:
    """Return the folder of the configuration file; it is not created."""
    return os.path.join(_xdg("XDG_CONFIG_HOME") or os.path.join(home(), ".config"), "upcall")


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


def is_own_socket(state: str, path: str) -> bool:
    """Tell whether *path*, as a hub.json has it, is a socket's place of this state folder.

    A state folder that was copied holds the hub.json of the one that it was copied from.
    """
    folder, name = os.path.split(path)
    try:
        if name in {"ask.sock", "control.sock"} and os.path.samefile(folder, state):
            return True
    except (OSError, ValueError):
        return False
    if folder != _temporary():
        return False
    return any(
        path in short_socket_paths(one)
        for one in dict.fromkeys((state, os.path.realpath(state)))
    )


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
        raise foreign_folder(path, found.st_uid)
    if found.st_mode & 0o077:
        raise PathProblem(
            "folder_not_private",
            f"{shown(path)} is open to other users (mode {found.st_mode & 0o777:04o})",
            f"chmod 700 {shown(path)}",
        )


def foreign_folder(where: str, uid: int, wanted: str = "") -> PathProblem:
    """Return the problem of a folder that is another user's.

    Args:
        where: the folder.
        uid: whose it is.
        wanted: the folder to which it is on the way.
    """
    on_the_way = f", on the way to {shown(wanted)}," if wanted not in {"", where} else ""
    return PathProblem(
        "folder_foreign",
        f"{shown(where)}{on_the_way} belongs to user {uid}, not to {os.geteuid()}",
        _why_foreign(where)
        or f"find out who made {shown(where)}, and remove it or set another place",
    )


def _why_foreign(where: str) -> str | None:
    """Return what to do where the environment is another user's, as `sudo -u` leaves it."""
    for variable in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "HOME"):
        base = os.environ.get(variable, "")
        if not os.path.isabs(base) or not f"{where}/".startswith(f"{base.rstrip('/')}/"):
            continue
        try:
            owner = os.stat(base).st_uid
        except OSError:
            continue
        if owner not in {0, os.geteuid()}:
            # A login shell sets all of them.
            return (
                f"{variable} names a folder of user {owner}: unset it, or use `sudo -i -u USER`"
            )
    return None


def open_private_dir(path: str, *, parents: bool = True) -> int:
    """Open a folder that must be ours alone, and return its descriptor.

    Args:
        path: the folder.
        parents: nobody but us and root may be able to change the way to it either; without,
            its parents may be what they are, as beside a project.

    Raises:
        PathProblem: it is a symlink or no folder, someone else's, or open to others, or
            somebody else could put another folder in its place.
        FileNotFoundError: there is none.
    """
    if parents:
        fd = _open_chain(path)
    else:
        try:
            fd = os.open(path, DIRECTORY_FLAGS)
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


def _open_chain(path: str, *, make: bool = False, private: bool = True) -> int:
    # Imported when it is needed: much of what is here is asked for by `--help` too.
    from upcall_discovery.chain import open_chain

    return open_chain(path, make=make, private=private)


def ensure_private_dir(path: str, *, parents: bool = True) -> None:
    """Make *path* a folder that is ours alone (0700), its missing parents too.

    What exists is verified and never changed.

    Args:
        path: the folder.
        parents: as in `open_private_dir`; without, its parents have to be there.

    Raises:
        PathProblem: what is there is not ours alone; it names the path and the fix.
        OSError: it cannot be made.
    """
    path = os.path.abspath(path)
    if parents:
        fd = _open_chain(path, make=True)
        try:
            check_private_dir(fd, path)
        finally:
            os.close(fd)
        return
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        # Perhaps made by another process of ours, at this moment.
        fd = open_private_dir(path, parents=False)
    else:
        fd = open_private_dir(path, parents=False)
    os.close(fd)


def is_network_filesystem(path: str) -> str | None:
    """Return the type of the network file system that holds *path*, None for a local one.

    *path* need not exist; its nearest existing parent counts.
    """
    from upcall_discovery.filesystem import network_type

    return network_type(path)


# ---------------------------------------------------------------------------------------
# Files


def open_private_file(
    name: str, *, dir_fd: int | None, path: str, forbidden: int = 0o077
) -> int:
    """Open a file for reading that must be ours alone, and return its descriptor.

    Args:
        name: the file, relative to *dir_fd* if that is given.
        dir_fd: the opened folder.
        path: how to call the file in words.
        forbidden: bits of its mode that it must not have.

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
        _check_private_file(os.fstat(fd), words, forbidden)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _check_private_file(found: os.stat_result, words: str, forbidden: int = 0o077) -> None:
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
    if found.st_mode & forbidden:
        private = bool(forbidden & 0o044)
        raise PathProblem(
            "file_not_private",
            f"{words} {'is open to' if private else 'can be written by'} other users "
            f"(mode {found.st_mode & 0o777:04o})",
            f"chmod {'600' if private else 'go-w'} {words}",
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


def open_settled_file(path: str, *, forbidden: int = 0o022) -> int:
    """Open a file of ours that others may read, and return its descriptor.

    Args:
        path: the file.
        forbidden: bits of its mode that it must not have; by default, that others write.

    Raises:
        PathProblem: it is not ours, not regular, a link, or has more than one name, or
            somebody else could change it or put another one in its place.
        FileNotFoundError: there is none.
    """
    folder, name = os.path.split(os.path.abspath(path))
    directory = _open_chain(folder, private=False)
    try:
        return open_private_file(name, dir_fd=directory, path=path, forbidden=forbidden)
    finally:
        os.close(directory)


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


def open_own_file(name: str, *, dir_fd: int, path: str, append: bool = False) -> int:
    """Open a file for writing that must be ours alone; it is made (0600) if it is missing.

    Nothing that is there is cut off or changed but its mode, which becomes 0600.

    Args:
        name: the file, relative to *dir_fd*.
        dir_fd: the opened folder, which is ours alone.
        path: how to call the file in words.
        append: whatever is written goes to the end.

    Raises:
        PathProblem: as `open_private_file`.
        OSError: it cannot be made.
    """
    flags = _OPEN_FLAGS | (os.O_WRONLY | os.O_APPEND if append else os.O_RDWR)
    words = shown(path)
    try:
        fd = os.open(name, flags, 0o600, dir_fd=dir_fd)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise PathProblem(
                "file_symlink", f"{words} is a symlink", f"remove {words}"
            ) from error
        if error.errno in {errno.ENXIO, errno.EOPNOTSUPP, errno.EISDIR}:
            raise PathProblem(
                "file_not_regular", f"{words} is no regular file", f"remove {words}"
            ) from error
        raise OSError(error.errno, error.strerror, path) from error
    try:
        _check_private_file(os.fstat(fd), words, 0)
        os.fchmod(fd, 0o600)
    except BaseException:
        os.close(fd)
        raise
    return fd


def read_private_file(path: str, limit_bytes: int) -> bytes:
    """Return the bytes of a file that must be ours alone, and not larger than the limit.

    Raises:
        PathProblem: it is not ours alone, not regular, or too large, or somebody else could
            put another one in its place.
        FileNotFoundError: there is none.
    """
    folder, name = os.path.split(os.path.abspath(path))
    fd = _open_chain(folder, private=False)
    try:
        return read_at(name, limit_bytes, dir_fd=fd, path=path)[0]
    finally:
        os.close(fd)


def write_private_file(path: str, data: bytes, *, sync: bool) -> None:
    """Write a file (0600) by a temporary one in the same folder and a rename.

    Raises:
        PathProblem: somebody else could put another file in its place.
        OSError: it could not be written, and names it; the former file stays.
    """
    folder, name = os.path.split(os.path.abspath(path))
    # Whatever file has the name now is replaced, so that only the way matters.
    fd = _open_chain(folder, private=False)
    try:
        write_at(name, data, dir_fd=fd, sync=sync)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error
    finally:
        os.close(fd)
