"""Where we run, and which browser can be opened from there."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from upcall.cli import browser, doctor_system, programs, surroundings
from upcall_discovery import filesystem

WSL_KERNEL = "Linux version 6.6.87.2-microsoft-standard-WSL2 (root@x) (gcc) #1 SMP\n"
URL = "http://127.0.0.1:8737/"


@pytest.fixture
def version(tmp_path: Path) -> Path:
    path = tmp_path / "version"
    path.write_text("Linux version 6.1.0-18-amd64 (debian-kernel@lists.debian.org)\n")
    return path


def program(folder: Path, name: str) -> str:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("#!/bin/sh\n")
    (folder / name).chmod(0o755)
    return str(folder / name)


# --- WSL -------------------------------------------------------------------------------------


def test_wsl_is_known_by_its_variable_or_its_kernel(version: Path) -> None:
    assert surroundings.wsl({}, str(version)) is None
    assert surroundings.wsl({"WSL_DISTRO_NAME": "Ubuntu"}, str(version)) == "Ubuntu"
    version.write_text(WSL_KERNEL)
    assert surroundings.wsl({}, str(version)) == ""  # as under sudo and cron
    version.write_text("Linux version 4.4.0-19041-Microsoft")
    assert surroundings.wsl({}, str(version)) == ""
    assert surroundings.wsl({}, str(version.parent / "missing")) is None


@pytest.mark.parametrize("by", ["variable", "kernel"])
def test_wsl_opens_the_browser_of_windows(version: Path, tmp_path: Path, by: str) -> None:
    environ: dict[str, str] = {"PATH": f".:{tmp_path / 'bin'}"}
    if by == "variable":
        environ["WSL_DISTRO_NAME"] = "Ubuntu"
    else:
        version.write_text(WSL_KERNEL)

    def found() -> list[str] | None:
        return browser.browser_command(environ, "linux", version_file=str(version))

    assert found() is None
    shell = program(tmp_path / "bin", "powershell.exe")
    command = found()
    assert command == [shell, "-NoProfile", "-NonInteractive", "-Command"]
    assert browser.with_address(command, URL)[-1] == f"Start-Process '{URL}'"
    view = program(tmp_path / "bin", "wslview")
    assert found() == [view]
    assert browser.with_address([view], URL) == [view, URL]
    environ["SSH_CONNECTION"] = "a b c d"
    assert found() is None


def test_a_program_of_windows_in_the_working_folder_is_never_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("wslview", "powershell.exe"):
        program(tmp_path, name)
    monkeypatch.chdir(tmp_path)
    for path in ("", ".", ":", "bin:.", "./"):
        environ = {"WSL_DISTRO_NAME": "Ubuntu", "PATH": path}
        assert browser.browser_command(environ, "linux") is None
        assert programs.find("wslview", environ) is None
        assert programs.find("./wslview", environ) is None


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8737/#login=SECRET",
        "http://127.0.0.1:8737/?code=x",
        "http://127.0.0.1:8737/'; Remove-Item x; '",
        "file:///etc/passwd",
        "http://127.0.0.1:8737/\n",
    ],
)
def test_nothing_but_a_plain_address_is_handed_to_a_program(url: str) -> None:
    for command in (["/w/wslview"], ["/w/powershell.exe", "-Command"], ["/usr/bin/open"]):
        with pytest.raises(ValueError, match="plain address"):
            browser.with_address(command, url)


@pytest.mark.parametrize(
    ("kind", "path", "on_drive"),
    [
        ("9p", "/mnt/c/work", True),
        ("drvfs", "/mnt/d", True),
        ("virtiofs", "/mnt/c", True),
        ("ext4", "/home/sam", False),
        ("ext4", "/mnt/data", False),
        ("virtiofs", "/home/sam", False),
    ],
)
def test_a_drive_of_windows_is_known_in_wsl_only(
    monkeypatch: pytest.MonkeyPatch, kind: str, path: str, on_drive: bool
) -> None:
    monkeypatch.setattr(filesystem, "type_at", lambda path: kind)
    environ = {"WSL_DISTRO_NAME": "Ubuntu"}
    assert surroundings.on_windows_drive(path, environ) is on_drive
    monkeypatch.setattr(surroundings, "wsl", lambda environ: None)
    assert surroundings.on_windows_drive(path, environ) is False


def test_a_state_folder_on_a_windows_drive_is_refused_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = (
        b"1 1 8:1 / / rw - ext4 /dev/sda rw\n"
        b"2 1 0:5 / /mnt/c rw - 9p drvfs rw,aname=drvfs;path=C:\\\n"
        b"3 1 0:6 / /mnt/d rw - drvfs D: rw\n"
        b"4 1 0:7 / /srv rw - nfs4 host:/ rw\n"
    )
    mounts = filesystem.parse_mountinfo(table)
    monkeypatch.setattr(filesystem, "_mounts", lambda: mounts)
    for path, words in (
        ("/mnt/c/x/upcall", "is on a Windows drive (9p), whose file locks cannot be trusted"),
        ("/mnt/d/upcall", "is on a Windows drive (drvfs), whose file locks cannot be trusted"),
        ("/srv/upcall", "is on a network file system (nfs4)"),
    ):
        kind = filesystem.network_type(path)
        assert kind is not None
        assert filesystem.where_not_local(path, kind) == words
    assert filesystem.network_type("/home/sam") is None
    assert filesystem.where_not_local("/srv/x", "9p") == "is on a network file system (9p)"


def test_doctor_tells_what_is_special_in_wsl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WSL_DISTRO_NAME", "Ubuntu\x1b[2J")
    monkeypatch.setattr(filesystem, "type_at", lambda path: "9p")
    found = {finding.code: finding for finding in doctor_system.windows()}
    assert "questions stop" in found["wsl"].msg
    assert found["on_windows_drive"].level == "error"
    monkeypatch.delenv("WSL_DISTRO_NAME")
    monkeypatch.setattr(surroundings, "wsl", lambda environ: None)
    assert list(doctor_system.windows()) == []


# --- containers, SSH, screens ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "files", "is_one"),
    [
        ({}, [], False),
        ({"container": "podman"}, [], True),
        ({"REMOTE_CONTAINERS": "true"}, [], True),
        ({"CODESPACES": "true"}, [], True),
        ({}, [".dockerenv"], True),
        ({}, ["run/.containerenv"], True),
    ],
)
def test_containers(
    tmp_path: Path, environ: Mapping[str, str], files: list[str], is_one: bool
) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert surroundings.is_container(environ, str(tmp_path)) is is_one


@pytest.mark.parametrize("name", sorted(browser.TEXT_BROWSERS))
def test_a_browser_of_the_terminal_is_never_opened(tmp_path: Path, name: str) -> None:
    program(tmp_path, name)
    environ = {"PATH": str(tmp_path), "DISPLAY": ":0", "BROWSER": name}
    assert browser.browser_command(environ, "linux") is None
    environ["BROWSER"] = str(tmp_path / name)
    assert browser.browser_command(environ, "linux") is None


def test_the_forward_line_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "box")
    for url in ("http://127.0.0.1:8737/", "http://127.0.0.1:8737/#login=SECRET"):
        assert browser.forward_line(url, {"USER": "sam"}) == (
            "no browser here. From your computer: ssh -N -L 8737:127.0.0.1:8737 sam@box, "
            "then open http://127.0.0.1:8737 - or answer here: upcall watch"
        )
    hint = browser.container_line("http://127.0.0.1:8737/", {"container": "podman"})
    assert hint is not None
    assert "port 8737" in hint
    over_ssh = {"container": "podman", "SSH_TTY": "/dev/pts/0"}
    assert browser.container_line(URL, over_ssh) is None
