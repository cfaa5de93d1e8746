"""A database that is removed under a running hub keeps nothing, and says so."""

from pathlib import Path

from fakes.home import Home, ended, eventually


def test_a_hub_whose_database_was_removed_ends_and_says_why() -> None:
    home = Home()
    try:
        home.start_hub()
        pid = home.hub_pid()
        assert pid is not None
        Path(home.state, "hub.db").unlink()
        eventually(lambda: "last_error" in home.hub_json(), within_s=15, what="the hub's end")
        assert home.hub_json()["last_error"]["code"] == "store_gone"
        assert ended(pid, 10)
        done = home.run("ask", "Q", "-o", "a", "--no-wait")
        assert done.code == 1
        assert "removed or replaced" in done.err
        assert "Traceback" not in done.err
    finally:
        home.close()


def test_a_bad_channel_table_does_not_pass_the_check() -> None:
    home = Home()
    try:
        home.write_config("[web]\nport = 99999\n")
        done = home.run("config", "check")
        assert done.code == 1
        assert "port" in done.err
        assert "web" in done.err
    finally:
        home.close()
