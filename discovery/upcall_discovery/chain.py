"""The way to a folder, walked so that nobody else can have decided where it leads.

Each step is opened relative to the one before it and checked on its descriptor: it belongs
to us or to root, and nobody else can rename or replace what is in it. A folder with the
sticky bit, such as /tmp, may be open to all, since there nobody can replace what is ours.
Symlinks on the way are followed where they are ours or root's: `~/.local` may lie on
another disk.
"""

import errno
import os
import stat

from upcall_discovery.paths import DIRECTORY_FLAGS, PathProblem, foreign_folder, shown

_MAX_LINKS = 40
# A folder on the way need not be readable, only passable; O_PATH is Linux'.
_STEP_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# What systems say of a symlink that is not to be followed.
_LINK_ERRORS = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EMLINK})
_ACCESS_LIST = "system.posix_acl_access"
_ALL_UIDS = 2**32 - 1


def open_chain(path: str, *, make: bool = False, private: bool = True) -> int:
    """Open a folder by a way that only we and root can change; return its descriptor.

    Args:
        path: the folder.
        make: make it and its missing parents (0700), within folders that were checked.
        private: it must be no symlink, and the rest of it is the caller's to check. Otherwise
            it is as any folder on the way: perhaps root's, perhaps by a symlink of ours.

    Raises:
        PathProblem: `folder_foreign`, `folder_loose` or `folder_symlink`; it names the part
            of the way that is wrong, and the fix.
        FileNotFoundError: there is none.
        OSError: it cannot be opened or made.
    """
    walk = _Walk(os.path.join(os.getcwd(), path) if not os.path.isabs(path) else path)
    try:
        return walk.to_the_end(make=make, private=private)
    finally:
        walk.close()


class _Walk:
    """One walk from the root folder to *path*."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._rest = _parts(path, given=True)
        self._links = 0
        self._walked = "/"
        self._here = os.open("/", _STEP_FLAGS)

    def close(self) -> None:
        os.close(self._here)

    def to_the_end(self, *, make: bool, private: bool) -> int:
        while self._rest:
            self._check()
            name, given = self._rest.pop()
            follow = not private or bool(self._rest)
            fd = self._open(name, make=make and given, follow=follow)
            if fd >= 0:
                os.close(self._here)
                self._here = fd
                self._walked = os.path.normpath(os.path.join(self._walked, name))
        if not private:
            self._check()
        # The walk's own descriptor cannot be read from.
        try:
            return os.open(".", DIRECTORY_FLAGS, dir_fd=self._here)
        except OSError as error:
            # What another user has closed to us is told as theirs, not as a missing right.
            owner = os.fstat(self._here).st_uid
            if owner != os.geteuid() and (private or not _is_trusted(owner)):
                raise foreign_folder(self._walked, owner, self._path) from error
            raise OSError(error.errno, error.strerror, self._walked) from error

    def _open(self, name: str, *, make: bool, follow: bool) -> int:
        """Return a descriptor one step further, -1 where a symlink turned the way."""
        if make:
            try:
                os.mkdir(name, 0o700, dir_fd=self._here)
            except FileExistsError:
                # Also when another process of ours was quicker.
                pass
            except OSError as error:
                if not self._is_there(name):
                    raise self._named(error, name) from error
        try:
            return os.open(name, _STEP_FLAGS, dir_fd=self._here)
        except OSError as error:
            if error.errno not in _LINK_ERRORS:
                raise self._named(error, name) from error
        where = os.path.join(self._walked, name)
        try:
            found = os.stat(name, dir_fd=self._here, follow_symlinks=False)
        except OSError as error:
            raise self._named(error, name) from error
        if not stat.S_ISLNK(found.st_mode) and self._rest:
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), where)
        if not stat.S_ISLNK(found.st_mode) or not follow:
            raise PathProblem(
                "folder_symlink",
                f"{shown(where)} is a symlink or no folder",
                f"remove {shown(where)}; it has to be a real folder",
            )
        if not _is_trusted(found.st_uid):
            raise foreign_folder(where, found.st_uid, self._path)
        self._links += 1
        if self._links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), self._path)
        self._turn(os.readlink(name, dir_fd=self._here))
        return -1

    def _turn(self, target: str) -> None:
        if target.startswith("/"):
            os.close(self._here)
            self._here, self._walked = os.open("/", _STEP_FLAGS), "/"
        # What a link promises is never made: its disk may just not be there today.
        self._rest += _parts(target, given=False)

    def _check(self) -> None:
        found = os.fstat(self._here)
        if not _is_trusted(found.st_uid):
            raise foreign_folder(self._walked, found.st_uid, self._path)
        mode = found.st_mode
        if mode & stat.S_ISVTX:
            return
        if mode & 0o002:
            raise self._loose(mode, "other users", "o-w")
        if mode & 0o020 and not _is_ours_alone(found.st_gid, self._here):
            raise self._loose(
                mode, f"everybody in the group {_group_name(found.st_gid)}", "g-w"
            )

    def _loose(self, mode: int, who: str, fix: str) -> PathProblem:
        where, wanted = shown(self._walked), shown(self._path)
        on_the_way = f", on the way to {wanted}," if where != wanted else ""
        return PathProblem(
            "folder_loose",
            f"{where}{on_the_way} can be changed by {who} (mode {mode & 0o7777:04o})",
            f"chmod {fix} {where}",
        )

    def _is_there(self, name: str) -> bool:
        # A folder that we may not write to, such as /, says so before it says "exists".
        try:
            os.stat(name, dir_fd=self._here, follow_symlinks=False)
        except OSError:
            return False
        return True

    def _named(self, error: OSError, name: str) -> OSError:
        where = os.path.join(self._walked, name)
        return OSError(error.errno, error.strerror, where)


def _parts(path: str, *, given: bool) -> list[tuple[str, bool]]:
    """Return the parts of a path, the next one last."""
    return [(part, given) for part in reversed(path.split("/")) if part not in {"", "."}]


def _is_trusted(uid: int) -> bool:
    return uid in {0, os.geteuid()} or _stands_for_root(uid)


def _stands_for_root(uid: int) -> bool:
    """Tell whether *uid* is what a user namespace without a root of its own shows for root.

    In such a sandbox every folder of the system has the owner "nobody", since no real one
    has a number there.
    """
    if uid == os.geteuid():
        return False
    try:
        with open("/proc/sys/kernel/overflowuid", "rb") as file:
            if int(file.read(16)) != uid:
                return False
        with open("/proc/self/uid_map", "rb") as file:
            numbers = file.read(4096).split()
    except (OSError, ValueError):
        return False
    return numbers[2:3] != [str(_ALL_UIDS).encode()] or len(numbers) != 3


def _is_ours_alone(gid: int, fd: int) -> bool:
    """Tell whether only we and root can write by this group; often it has nobody else."""
    return not _has_access_list(fd) and (gid == 0 or _has_no_other_member(gid))


def _has_access_list(fd: int) -> bool:
    # With one, the group's bits say what anybody named in it may do at most.
    if not hasattr(os, "getxattr"):
        return False
    try:
        os.getxattr(f"/proc/self/fd/{fd}", _ACCESS_LIST)
    except OSError:
        return False
    return True


def _has_no_other_member(gid: int) -> bool:
    # Only wanted where a folder is open to its group: with umask 002, each user's own one.
    import grp
    import pwd

    us = os.geteuid()
    try:
        group = grp.getgrgid(gid)
    except KeyError:
        return gid == os.getegid()
    accounts = pwd.getpwall()
    uids = {account.pw_uid for account in accounts if account.pw_gid == gid}
    named = {account.pw_name: account.pw_uid for account in accounts}
    for name in group.gr_mem:
        uid = named.get(name)
        if uid is None:
            try:
                uid = pwd.getpwnam(name).pw_uid
            except KeyError:
                continue
        uids.add(uid)
    if not uids <= {0, us}:
        return False
    if us in named.values():
        return True
    # We are known to a directory that lists nobody, so that others of the group may be as
    # well; but one that is called like us is a private one by convention.
    try:
        return pwd.getpwuid(us).pw_name == group.gr_name
    except KeyError:
        return gid == os.getegid()


def _group_name(gid: int) -> str:
    import grp

    try:
        return shown(grp.getgrgid(gid).gr_name)
    except KeyError:
        return str(gid)
