"""What a permission ask may be: options only, so that nothing but a choice lets things run."""

import pytest

from upcall import ask
from upcall.core.asks import check_ask
from upcall.model.ask import AskSpec
from upcall.model.errors import InvalidAsk


def test_a_permission_takes_no_words() -> None:
    with pytest.raises(InvalidAsk, match="free_text"):
        check_ask(AskSpec("Deploy?", ("Yes", "No"), free_text=True, ask_class="permission"))


def test_a_permission_needs_options() -> None:
    with pytest.raises(InvalidAsk, match="options"):
        check_ask(AskSpec("Deploy?", (), free_text=True, ask_class="permission"))


def test_a_permission_with_options_is_fine() -> None:
    spec = AskSpec("Deploy?", ("Yes", "No"), free_text=False, ask_class="permission")
    assert check_ask(spec) is spec


@pytest.mark.parametrize("timeout_s", [0.05, float("nan"), 1e12, -1.0])
def test_the_blocking_call_names_a_time_out_that_cannot_be(timeout_s: float) -> None:
    with pytest.raises(InvalidAsk, match="timeout_s"):
        ask("Deploy?", ["Yes", "No"], timeout_s=timeout_s)


def test_a_default_needs_a_time_out() -> None:
    with pytest.raises(InvalidAsk, match="default"):
        ask("Deploy?", ["Yes", "No"], default="No")
