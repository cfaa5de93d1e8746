"""The inbox looks only at requests that were meant for it."""

import pytest

from upcall_adapters.web.guards import (
    CONTENT_SECURITY_POLICY,
    Doors,
    image_type,
    judge,
)

DOORS = Doors(8737)
HOST = ("Host", "127.0.0.1:8737")
ORIGIN = ("Origin", "http://127.0.0.1:8737")
JSON = ("Content-Type", "application/json")


def _code(
    *headers: tuple[str, str],
    method: str = "GET",
    target: str = "/",
    doors: Doors = DOORS,
    upgrade: bool = False,
) -> tuple[int, str] | None:
    refusal = judge(doors, method, target, headers, upgrade=upgrade)
    return None if refusal is None else (refusal.status, refusal.code)


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
def test_takes_every_loopback_name_with_the_right_port(name: str) -> None:
    assert _code(("Host", f"{name}:8737")) is None


@pytest.mark.parametrize(
    "host",
    [
        "evil.example:8737", "127.0.0.1", "127.0.0.1:80", "127.0.0.1:87370", "127.1:8737",
        "127.0.0.1.evil.example:8737", "0.0.0.0:8737", "localhost.:8737", "inbox.example",
    ],
)  # fmt: skip
def test_refuses_a_foreign_host(host: str) -> None:
    assert _code(("Host", host)) == (403, "foreign_host")


@pytest.mark.parametrize(
    ("headers", "target", "code"),
    [
        ((), "/", "bad_host"),
        ((("Host", ""),), "/", "bad_host"),
        ((HOST, HOST), "/", "bad_host"),
        ((HOST, ORIGIN, ORIGIN), "/", "bad_origin"),
        ((HOST,), "http://127.0.0.1:8737/", "bad_target"),
        ((("Host", "user@127.0.0.1:8737"),), "/", "bad_target"),
    ],
)
def test_refuses_what_can_be_read_in_two_ways(
    headers: tuple[tuple[str, str], ...], target: str, code: str
) -> None:
    assert _code(*headers, target=target) == (400, code)


@pytest.mark.parametrize(
    "origin",
    [
        "null", "http://127.0.0.1:8738", "https://127.0.0.1:8737", "http://localhost:8737",
        "http://127.0.0.1", "http://evil.example", "http://127.0.0.1:8737/", "",
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_refuses_every_origin_but_its_own(origin: str, method: str) -> None:
    assert _code(HOST, ("Origin", origin), JSON, method=method) == (403, "foreign_origin")


def test_what_changes_something_needs_the_origin() -> None:
    assert _code(HOST, JSON, method="POST") == (403, "origin_missing")
    assert _code(HOST, upgrade=True) == (403, "origin_missing")
    assert _code(HOST, ORIGIN, JSON, method="POST") is None
    assert _code(HOST, ORIGIN, upgrade=True) is None


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""],
)
def test_a_body_that_a_form_could_send_is_refused(content_type: str) -> None:
    headers = (HOST, ORIGIN, ("Content-Type", content_type))
    assert _code(*headers, method="POST") == (415, "not_json")


def test_a_body_without_type_is_refused() -> None:
    assert _code(HOST, ORIGIN, method="POST") == (415, "not_json")


def test_json_with_a_charset_is_taken() -> None:
    kind = ("Content-Type", "application/json; charset=utf-8")
    assert _code(HOST, ORIGIN, kind, method="POST") is None


@pytest.mark.parametrize("site", ["cross-site", "same-site", "none"])
def test_fetches_of_other_sites_are_refused(site: str) -> None:
    assert _code(HOST, ("Sec-Fetch-Site", site)) == (403, "foreign_site")
    frame = (("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "iframe"))
    assert _code(HOST, ("Sec-Fetch-Site", site), *frame) == (403, "foreign_site")


@pytest.mark.parametrize("site", ["cross-site", "none", "same-origin"])
def test_a_person_may_come_from_anywhere(site: str) -> None:
    visit = (("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document"))
    assert _code(HOST, ("Sec-Fetch-Site", site), *visit) is None


@pytest.mark.parametrize("method", ["OPTIONS", "PUT", "DELETE", "PATCH", "TRACE"])
def test_other_methods_are_refused(method: str) -> None:
    assert _code(HOST, ORIGIN, JSON, method=method) == (405, "bad_method")


def test_a_public_name_has_an_https_origin_of_its_own() -> None:
    doors = Doors(8737, "https://inbox.example")
    host = ("Host", "inbox.example")
    good = ("Origin", "https://inbox.example")
    assert _code(host, good, JSON, method="POST", doors=doors) is None
    assert _code(("Host", "inbox.example:443"), good, doors=doors) is None
    assert _code(host, ORIGIN, JSON, method="POST", doors=doors) == (403, "foreign_origin")
    plain = ("Origin", "http://inbox.example")
    assert _code(host, plain, JSON, method="POST", doors=doors) == (403, "foreign_origin")
    assert _code(HOST, good, JSON, method="POST", doors=doors) == (403, "foreign_origin")
    assert _code(("Host", "inbox.example:8080"), doors=doors) == (403, "foreign_host")


def test_the_policy_is_the_one_that_is_promised() -> None:
    assert CONTENT_SECURITY_POLICY == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'"
    )


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x89PNG\r\n\x1a\nrest", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a/*", "image/gif"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"),
        (b"RIFF\x00\x00\x00\x00WAVE", None),
        (b"<svg onload='x()'>", None),
        (b"<!doctype html>", None),
        (b"%PDF-1.7", None),
        (b"", None),
    ],
)
def test_only_proven_images_are_images(data: bytes, kind: str | None) -> None:
    assert image_type(data) == kind
