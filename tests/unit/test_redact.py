"""Credentials are masked; the shape of a command stays."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upcall.core.redact import mask


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("push ghp_" + "a" * 36 + " now", "push [token, 40 characters] now"),
        ("github_pat_" + "A1_" * 10, "[token, 41 characters]"),
        ("xoxb-1234567890-abc", "[token, 19 characters]"),
        ("xapp-1-A012345678", "[token, 17 characters]"),
        ("sk-ant-" + "a" * 20, "[token, 27 characters]"),
        ("glpat-" + "x" * 20, "[token, 26 characters]"),
        ("AKIA" + "A" * 16, "[key, 20 characters]"),
        ("/bot12345678:" + "a" * 35 + "/getMe", "/bot[token, 44 characters]/getMe"),
        ("/bot 12345678:" + "a" * 34 + "- end", "/bot [token, 44 characters] end"),
        (
            "eyJhbGciOi1.eyJzdWIiOi1.abcdefghi",
            "[token, 33 characters]",
        ),
        (
            "-H 'Authorization: Bearer abcdefgh12345678' https://h/x",
            "-H 'Authorization: Bearer [secret, 16 characters]' https://h/x",
        ),
        ("PASSWORD=hunter2hunter && ls", "PASSWORD=[secret, 13 characters] && ls"),
        ('{"api_key": "hunter2hunter"}', '{"api_key": "[secret, 13 characters]"}'),
        ("--api-key hunter2hunter -v", "--api-key [secret, 13 characters] -v"),
        ("x --api-key hunter2hunter -v", "x --api-key [secret, 13 characters] -v"),
        (
            "postgres://u:hunter2@db.example/x",
            "postgres://u:[password, 7 characters]@db.example/x",
        ),
    ],
)
def test_a_mask_tells_kind_and_length(text: str, masked: str) -> None:
    assert mask(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        "rm -rf /var/lib/x && curl https://example.com:8443/path?x=1",
        "password=$(cat /run/secret)",
        "the token is in the drawer",
        "a token: short",
        "skill-set and desk-top",
        "https://user@example.com/",
        "12:34:56",
    ],
)
def test_what_is_no_credential_stays(text: str) -> None:
    assert mask(text) == text


@given(st.text(max_size=200))
def test_masking_twice_is_masking_once(text: str) -> None:
    assert mask(mask(text)) == mask(text)


@pytest.mark.parametrize(
    "part",
    ["a-", "-eyJ", "eyJaaaaaaaa.", "a.", "://a:", "token ", " --a-a", "-a", "bearer ", " "],
)
def test_the_time_is_linear_whatever_the_text(part: str) -> None:
    def took(size: int) -> float:
        text = part * (size // len(part))
        best = float("inf")
        for _ in range(3):
            start = time.process_time()  # what others do on the machine does not count
            mask(text)
            best = min(best, time.process_time() - start)
        return best

    took(1000)
    # Eight times the text, and far less than the 64 times of a quadratic search.
    assert took(64_000) < 28 * took(8_000) + 0.01
