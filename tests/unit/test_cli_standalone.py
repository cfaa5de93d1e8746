"""A question that a hub may have had before it is asked without one."""

import time
from typing import Any

import pytest

from upcall.cli import asking
from upcall.cli.asking import NoHub, raise_ask
from upcall.cli.signals import EndingSignals
from upcall.cli.standalone import ask_alone
from upcall.line import LineError

ASK = {
    "id": "a0123456789ab",
    "question": "Deploy?",
    "options": ["yes", "no"],
    "multi": False,
    "free_text": False,
    "class": "question",
    "timeout_s": 1.5,
}


class Gone:
    """A hub that takes the question and is gone."""

    def request(self, op: str, **fields: Any) -> dict[str, Any]:
        raise LineError("hub_gone", "the hub is gone")

    def close(self) -> None:
        pass


def none_starts(*args: Any, **options: Any) -> Gone:
    raise LineError("hub_start", "cannot start a hub")


@pytest.mark.parametrize(
    ("hub", "was_sent"), [(lambda *_, **__: Gone(), True), (none_starts, False)]
)
def test_it_is_known_whether_a_hub_may_have_the_question(
    monkeypatch: pytest.MonkeyPatch, hub: Any, was_sent: bool
) -> None:
    monkeypatch.setattr(asking, "ensure_hub", hub)
    with pytest.raises(NoHub) as lost:
        raise_ask(ASK, {}, wait=True, timeout_s=0.0)
    assert (lost.value.sent_s is not None) is was_sent


def test_what_timed_out_where_a_hub_may_have_had_it_is_not_asked_again() -> None:
    with EndingSignals() as signals:
        began_s = time.monotonic() - 10
        result, told = ask_alone(
            ASK, {}, prompt=None, quiet=True, signals=signals, began_s=began_s
        )
    assert (result["outcome"], result["answer"], told) == ("timed_out", None, False)
    assert result["waited_s"] >= 10
