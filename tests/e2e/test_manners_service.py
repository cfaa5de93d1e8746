"""`upcall service`: the hub at login by the system's manager, or in words what to do."""

import json
import os
import plistlib
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fakes.managers import UNIT, calls, stand_ins
from upcall.cli import service, surroundings, units
from upcall.cli.errors import Failure
from upcall.cli.managers import Launchd
from upcall.line.interpreter import hub_command

if TYPE_CHECKING:
    from conftest import Home


def unit_of(home: "Home") -> Path:
    return Path(home.env["XDG_CONFIG_HOME"]) / "systemd" / "user" / UNIT


def tools(home: "Home") -> Path:
    return home.root / "bin"


def with_systemd(home: "Home", *, linger: bool = True, is_reachable: bool = True) -> None:
    home.env["PATH"] = stand_ins(tools(home), linger=linger, is_reachable=is_reachable)


def status_of(home: "Home") -> dict[str, object]:
    found: dict[str, object] = json.loads(home.run("hub", "status", "--json").stdout)
    return found


# --- a whole life ----------------------------------------------------------------------------


def test_a_service_is_installed_restarted_and_uninstalled_and_keeps_questions(
    home: "Home",
) -> None:
    with_systemd(home, linger=False)
    ask_id = home.run("ask", "Kept?", "-o", "yes", "--no-wait", "-q").stdout.strip()
    before = home.hub()
    assert before is not None

    done = home.run("service", "install")
    assert done.returncode == 0, done.stderr
    assert f"installed: {unit_of(home)}" in done.stdout
    assert "its open questions are kept" in done.stdout
    assert "the hub runs under systemd" in done.stdout
    assert "the service ends when you log out. To keep it:" in done.stdout
    assert "loginctl enable-linger" in done.stdout
    assert unit_of(home).stat().st_mode & 0o077 == 0

    status = status_of(home)
    assert status["service"] is True  # so that it never ends for idleness
    assert status["open_asks"] == 1
    assert status["pid"] != before.pid
    done = home.run("service", "status")
    assert (done.returncode, done.stderr) == (0, "")
    assert "running under systemd" in done.stdout

    # The service's own process begins anew: the manager does not lose it.
    done = home.run("hub", "restart")
    assert done.returncode == 0, done.stderr
    assert "restarted; 1 open question is kept" in done.stdout
    after = status_of(home)
    assert (after["pid"], after["service"]) == (status["pid"], True)
    assert after["started_ms"] != status["started_ms"]

    # What is told after --no-wait knows of the service.
    assert "reboot" not in home.run("ask", "And now?", "-o", "yes", "--no-wait").stderr

    done = home.run("service", "uninstall")
    assert done.returncode == 0, done.stderr
    assert not unit_of(home).exists()
    assert not list(unit_of(home).parent.glob("*/*"))
    assert home.run("service", "status").returncode == 1
    assert home.hub() is None
    asked = json.loads(home.run("asks", "--json").stdout)["asks"]
    assert ask_id in [ask["id"] for ask in asked]
    assert "disable --now" in "\n".join(calls(tools(home)))


def test_a_dry_run_changes_nothing(home: "Home") -> None:
    with_systemd(home)
    done = home.run("service", "install", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "would write" in done.stdout
    assert "NoNewPrivileges=yes" in done.stdout
    assert not unit_of(home).exists()
    assert not [call for call in calls(tools(home)) if "show" not in call]
    assert home.run("service", "uninstall", "--dry-run").stdout == "not installed\n"


def test_a_start_that_fails_leaves_nothing_and_its_words_are_harmless(home: "Home") -> None:
    with_systemd(home)
    (tools(home) / "fail-restart").touch()
    done = home.run("service", "install")
    assert done.returncode == 1
    assert f"systemctl --user restart {UNIT} failed" in done.stderr
    assert "\\x1b[31munit failed" in done.stderr
    assert "\x1b" not in done.stderr
    assert not unit_of(home).exists()


# --- what is there already -------------------------------------------------------------------


def test_a_unit_changed_by_hand_is_left_alone_without_force(home: "Home") -> None:
    with_systemd(home)
    assert home.run("service", "install").returncode == 0
    changed = unit_of(home).read_text() + "Nice=5\n"
    unit_of(home).write_text(changed)
    for words in (["install"], ["uninstall"]):
        done = home.run("service", *words)
        assert done.returncode == 1
        assert "was changed by hand" in done.stderr
        assert "--force" in done.stderr
        assert unit_of(home).read_text() == changed
    assert "changed by hand" in home.run("service", "status").stdout
    assert home.run("service", "uninstall", "--force").returncode == 0
    assert not unit_of(home).exists()


def test_a_unit_of_an_older_version_is_replaced(home: "Home") -> None:
    with_systemd(home)
    unit_of(home).parent.mkdir(parents=True, mode=0o700)
    unit_of(home).write_text(units.systemd_unit(["/old/python", "-m", "upcall"], {}))
    assert "upcall service install" in home.run("service", "status").stdout
    assert home.run("service", "install").returncode == 0
    assert "/old/python" not in unit_of(home).read_text()


def test_a_symlink_in_its_place_is_never_written_through(home: "Home") -> None:
    with_systemd(home)
    target = home.root / "precious"
    target.write_text("precious")
    unit_of(home).parent.mkdir(parents=True, mode=0o700)
    unit_of(home).symlink_to(target)
    for words in (["install", "--force"], ["uninstall", "--force"]):
        done = home.run("service", *words)
        assert done.returncode == 1
        assert "is a symlink" in done.stderr
    assert unit_of(home).is_symlink()
    assert target.read_text() == "precious"


# --- where there is no manager ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"WSL_DISTRO_NAME": "Ubuntu"}, ["/etc/wsl.conf", "systemd=true", "wsl.exe -d Ubuntu"]),
        ({"container": "podman"}, ["In a container", "-m upcall hub run"]),
    ],
    ids=["wsl", "container"],
)
def test_without_systemd_it_says_what_to_do_and_writes_nothing(
    home: "Home", env: dict[str, str], words: list[str]
) -> None:
    with_systemd(home, is_reachable=False)
    done = home.run("service", "install", env=env)
    assert done.returncode == 1
    assert done.stderr.startswith("upcall: no systemd runs for you here; nothing was written\n")
    for word in words:
        assert word in done.stderr
    assert not unit_of(home).exists()


def test_on_a_plain_machine_it_names_the_line_for_cron(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surroundings, "wsl", lambda environ: None)
    monkeypatch.setattr(surroundings, "is_container", lambda environ: False)
    line = service.without_manager("systemd", {})[-1].strip()
    assert line == f"@reboot {shlex.join(hub_command(detached=True))}"


# --- the texts -------------------------------------------------------------------------------


def test_the_unit_has_no_secret_and_only_absolute_places(home: "Home") -> None:
    with_systemd(home)
    env = {"TOKEN": "s3cr3t", "HTTPS_PROXY": "http://u:s3cr3t@proxy", "PYTHONPATH": "/evil"}
    done = home.run("service", "install", "--dry-run", env=env)
    assert "s3cr3t" not in done.stdout
    assert "/evil" not in done.stdout
    (command,) = [line for line in done.stdout.splitlines() if "ExecStart=" in line]
    words = shlex.split(command.strip().removeprefix("ExecStart="))
    assert words[0] == sys.executable
    assert words[1] in {"-I", "-P"}
    assert words[2:] == ["-m", "upcall", "hub", "run"]
    assert f'Environment="XDG_STATE_HOME={home.env["XDG_STATE_HOME"]}"' in done.stdout
    for line in (
        "UMask=0077",
        "NoNewPrivileges=yes",
        "Restart=on-failure",
        "StartLimitBurst=5",
    ):
        assert line in done.stdout


def test_a_path_is_one_word_for_systemd_or_refused() -> None:
    text = units.systemd_unit(['/opt/a b/100%"x/python', "-I"], {})
    assert 'ExecStart="/opt/a b/100%%\\"x/python" "-I"' in text
    for bad in ("python", "/opt/$HOME/python", "/opt/a\nExecStart=/bin/sh/python"):
        with pytest.raises(units.UnusableProgram):
            units.systemd_unit([bad], {})
        with pytest.raises(units.UnusableProgram):
            units.launchd_agent([bad], {})
    with pytest.raises(units.UnusableProgram):
        units.systemd_unit(["/p"], {"XDG_STATE_HOME": '/a\n[Service]\nExecStart="/bin/sh"'})


@pytest.mark.parametrize("make", [units.systemd_unit, units.launchd_agent])
def test_a_unit_knows_whether_it_was_touched(make: object) -> None:
    assert callable(make)
    text = make(["/p/python", "-I"], {"XDG_STATE_HOME": "/s"})
    assert units.is_untouched(text)
    assert not units.is_untouched(text.replace("/p/python", "/q/python"))
    assert not units.is_untouched(text + "\n")
    assert not units.is_untouched("[Service]\n")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_itself_finds_nothing_wrong_with_the_unit(home: "Home") -> None:
    path = home.root / UNIT
    path.write_text(units.systemd_unit(hub_command(detached=False), {"XDG_STATE_HOME": "/s p"}))
    done = subprocess.run(
        ["systemd-analyze", "--user", "verify", str(path)],
        env={**home.env, "SYSTEMD_LOG_LEVEL": "warning"},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


# --- macOS -----------------------------------------------------------------------------------


def test_an_agent_of_launchd_is_bootstrapped_and_removed(
    home: "Home", monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in home.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", stand_ins(tools(home)))
    manager = Launchd(os.environ)
    path = Path(manager.unit_path)
    assert path == Path(home.env["HOME"]) / "Library" / "LaunchAgents" / "upcall.hub.plist"
    assert service.install(manager, os.environ, dry_run=False, force=False) == 0
    assert "the hub runs under launchd" in capsys.readouterr().out
    agent = plistlib.loads(path.read_bytes())
    assert agent["KeepAlive"] == {"SuccessfulExit": False}
    assert agent["Umask"] == 0o077
    assert agent["ProgramArguments"][0] == sys.executable
    assert service.state_of(manager)["running"]
    assert service.status(manager, as_json=True) == 0
    assert service.uninstall(manager, dry_run=False, force=False) == 0
    assert not path.exists()
    assert any("bootout" in call for call in calls(tools(home)))
    path.write_text("<plist/>")
    with pytest.raises(Failure, match="changed by hand, or is not ours"):
        service.uninstall(manager, dry_run=False, force=False)
