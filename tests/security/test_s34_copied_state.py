"""A copy of the state folder is another hub's: by it nobody acts on the original one."""

import json
import os
import shutil
from collections.abc import Iterator

import pytest

from fakes.home import Home, eventually


@pytest.fixture
def home() -> Iterator[Home]:
    with Home() as made:
        made.start_hub()
        yield made


def copied(home: Home, *, linked: bool = False) -> dict[str, str]:
    """Copy the state, as `cp -a` or `cp -al` would; return the environment that uses it."""
    place = f"{home.path}/s2"
    os.mkdir(place, 0o700)
    folder = f"{place}/upcall"
    shutil.copytree(
        home.state, folder, ignore=lambda _, names: [n for n in names if n.endswith(".sock")]
    )
    if linked:
        for name in ("ask.sock", "control.sock"):
            os.link(f"{home.state}/{name}", f"{folder}/{name}")
    return {"XDG_STATE_HOME": place}


@pytest.mark.parametrize("linked", [False, True])
def test_commands_do_not_act_on_the_original_hub(home: Home, linked: bool) -> None:
    ask_id = home.hand_over("Keep me?", "-o", "yes", "-o", "no")
    assert home.run("answer", ask_id, "yes", terminal=True).code == 0
    still_open = home.hand_over("And me?", "-o", "yes", "-o", "no")
    pid = home.hub_pid()
    env = copied(home, linked=linked)
    more = [] if linked else [("ask", "Who hears?", "--no-wait"), ("hub", "status")]
    for command in (("hub", "stop"), ("forget", "--before", "0s", "--yes"), *more):
        done = home.run(*command, env=env)
        assert "Traceback" not in done.err, done
        assert str(pid) not in done.out, done
    if not linked:
        home.run("uninstall", "--yes", env=env)
    assert home.hub_pid() == pid
    assert home.ask_state(ask_id)["question"] == "Keep me?"
    assert home.ask_state(still_open)["state"] == "open"
    with home.line("control") as line:
        listed = line.ok("asks", state="all")["asks"]
    assert {ask["id"] for ask in listed} == {ask_id, still_open}


def test_another_name_of_the_same_folder_is_no_copy(home: Home) -> None:
    alias = f"{home.path}/alias"
    os.symlink(home.state_home, alias)
    done = home.run("hub", "status", "--json", env={"XDG_STATE_HOME": alias})
    assert done.code == 0, done


def test_a_session_publishes_to_the_hub_of_its_own_state_only(home: Home) -> None:
    env = copied(home)
    elsewhere = f"{home.path}/r2"
    os.mkdir(elsewhere, 0o700)
    source = (
        "import asyncio, upcall\n"
        "async def main():\n"
        "    async with upcall.Session('copy', hub=False) as session:\n"
        "        await session.ask('Here?', ['yes'])\n"
        "asyncio.run(main())\n"
    )
    argv = [*home.upcall[:1], "-P", "-c", source]
    home.start_program(argv, env={**env, "XDG_RUNTIME_DIR": elsewhere})
    folder = f"{elsewhere}/upcall/sessions"
    found = eventually(lambda: os.path.isdir(folder) and os.listdir(folder))
    assert found


def test_the_hub_tells_its_folder_to_its_own_user(home: Home) -> None:
    for which in ("ask", "control"):
        with home.line(which) as line:
            assert line.hello["hub"]["state_dir"] == home.state
    assert json.loads(home.run("hub", "start", "--json").out)["hub"]["state_dir"] == home.state
