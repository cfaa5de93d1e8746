"""The documents: their code parses, their links lead somewhere, and they keep to themselves."""

import importlib
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec
import pytest

from architecture.tree import ROOT, documents, texts
from upcall.cli import COMMANDS
from upcall.cli.errors import Usage
from upcall.config import parse
from upcall.model.frames import Unknown, decode

_FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_URL: Final = re.compile(r"\b(?:https?|wss?)://[\w\[{][^\s\"'`<>)\]}\\]*")
_HOSTS: Final = re.compile(
    r"127\.0\.0\.1|localhost|\[::1\]?|[\w.-]*\bexample(?:\.(?:com|org|net))?|[\w.-]+\.(?:test|invalid)"
    r"|json-schema\.org|www\.w3\.org|www\.apache\.org"
)


@dataclass(frozen=True)
class Block:
    """One fenced block of a document."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(*languages: str) -> list[Block]:
    found = []
    for page in documents():
        text = page.read_text(encoding="utf-8")
        for match in _FENCE.finditer(text):
            if match.group(1) in languages:
                line = text.count("\n", 0, match.start()) + 1
                found.append(Block(page, line, match.group(1), match.group(2)))
    return found


def test_every_block_says_what_it_is() -> None:
    known = {"sh", "python", "toml", "json", ""}
    for page in documents():
        languages = {m.group(1) for m in _FENCE.finditer(page.read_text(encoding="utf-8"))}
        assert languages <= known, page.name


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_python_in_documents_compiles_and_imports_what_is_there(block: Block) -> None:
    compile(block.text, str(block), "exec")
    for line in block.text.splitlines():
        if line.startswith(("import ", "from ")):
            exec(compile(line, str(block), "exec"), {})


@pytest.mark.parametrize("block", blocks("sh"), ids=str)
def test_commands_in_documents_parse(block: Block) -> None:
    for words in _commands(block.text):
        if not words or words[0].startswith("--"):
            continue
        assert words[0] in COMMANDS, f"{block}: there is no upcall {words[0]}"
        try:
            importlib.import_module(f"upcall.cli.{words[0]}").parser().read(words[1:])
        except Usage as error:
            pytest.fail(f"{block}: upcall {shlex.join(words)}: {error}")


def test_there_are_commands_to_parse() -> None:
    found = {words[0] for block in blocks("sh") for words in _commands(block.text) if words}
    assert {"ask", "confirm", "notify", "wait", "answer", "inbox", "hub", "roots"} <= found


def test_make_targets_in_documents_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for block in blocks("sh"):
        for target in re.findall(r"^make ([a-z-]+)", block.text, re.MULTILINE):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{block}: make {target}"


@pytest.mark.parametrize("block", blocks("toml"), ids=str)
def test_configuration_in_documents_is_valid(block: Block) -> None:
    tomllib.loads(block.text)
    parse(block.text.encode(), str(block))


@pytest.mark.parametrize("block", blocks("json"), ids=str)
def test_json_in_documents_is_json_and_frames_are_frames(block: Block) -> None:
    for document in _documents_in(block.text):
        if isinstance(document, dict) and "type" in document:
            assert not isinstance(decode(json.dumps(document)), Unknown), document
        msgspec.json.encode(document)


@pytest.mark.parametrize("page", documents(), ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in _LINK.findall(page.read_text(encoding="utf-8")):
        if urlsplit(target).scheme:
            continue
        name, _, anchor = target.partition("#")
        there = (page.parent / name).resolve() if name else page
        assert there.is_file(), f"{page.name}: {target}"
        assert not anchor or anchor in _anchors(there), f"{page.name}: {target}"


@pytest.mark.parametrize("page", documents(), ids=lambda page: page.name)
def test_a_line_holds_one_sentence(page: Path) -> None:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    for line in text.splitlines():
        if line.startswith(("|", "- ", "*", "#", ">", "|")):
            continue
        ends = re.findall(r"[a-z)`][.!?] (?=[A-Z`])", line)
        assert not ends, f"{page.name}: {line}"


def test_every_page_is_reached_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert f"(docs/{page.name})" in readme, page.name


def test_every_key_of_the_configuration_is_described() -> None:
    from upcall.config import HubConfig, RedactionConfig
    from upcall.policy_config import PolicyConfig
    from upcall_adapters.web.config import WebConfig

    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    kinds: dict[str, type[msgspec.Struct]] = {
        "hub": HubConfig, "policy": PolicyConfig, "redaction": RedactionConfig, "web": WebConfig
    }  # fmt: skip
    for table, kind in kinds.items():
        for field in msgspec.structs.fields(kind):
            assert f"`{table}.{field.encode_name}`" in page, field.encode_name


def test_every_frame_and_request_is_described() -> None:
    from upcall.hub.requests import ASKING, CONTROLLING
    from upcall.model.frames import TYPES

    page = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
    for name in (*TYPES, *ASKING, *CONTROLLING):
        assert f"`{name}`" in page, name


def test_every_dependency_is_explained() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    wanted = [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]
    names = {re.split(r"[\[<>=;! ]", one)[0] for one in wanted}
    assert {name for name in names if f"`{name}`" not in page} == set()
    shown = set(re.findall(r"^\| `([a-z0-9-]+)` \|", page, re.MULTILINE))
    outside = {"hatchling", "uv", "hypothesis", "pyte", "shtab", "import-linter"}
    assert shown - outside - names == set()


def test_the_boundary_is_stated_in_its_own_words() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    assert (
        "upcall trusts the operating-system user it runs as. A program that runs as you can do "
        "what you can. upcall makes such a program's answers visible and refuses the obvious "
        "ones; to stop it, run the agent in a sandbox or under another user and give it only "
        "the ask socket."
    ) in page


def test_no_address_leads_out_of_the_tree() -> None:
    """Loopback, names kept for examples, and standards' own names; nobody else's address."""
    strangers = [
        f"{path.relative_to(ROOT)}: {url}"
        for path in texts()
        if "tests" not in path.relative_to(ROOT).parts
        and not path.is_relative_to(ROOT / "adapters" / "upcall_adapters" / "_kit")
        for url in _URL.findall(path.read_text(encoding="utf-8", errors="replace"))
        if not _is_own(url)
    ]
    assert strangers == []


def test_nobodys_own_folder_is_named() -> None:
    homes = re.compile(r"(?<![\w.~$}*/-])/(?:root|Users|home)/(?!\*)\w+")
    found = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in texts()
        if "tests" not in path.relative_to(ROOT).parts
        for match in homes.finditer(path.read_text(encoding="utf-8", errors="replace"))
    ]
    assert found == []


def _is_own(url: str) -> bool:
    host = re.sub(r"^\w+://(?:[^@/]*@)?", "", url)
    name = re.split(r"[/?#]|:(?=[^\]]*$)", host)[0]
    # A format string, or a placeholder in words.
    return (
        "{" in url or not name or name.isupper() or bool(_HOSTS.fullmatch(name.rstrip(".,;")))
    )


def _commands(text: str) -> Iterator[list[str]]:
    """Yield the arguments of every `upcall` in a block of shell."""
    for line in text.replace("\\\n", " ").splitlines():
        for part in _simple_commands(line):
            sets = sum(1 for _ in takewhile(lambda word: re.fullmatch(r"\w+=.*", word), part))
            if part[sets:] and part[sets] == "upcall":
                yield part[sets + 1 :]


def _simple_commands(line: str) -> Iterator[list[str]]:
    inner = re.sub(r"\b\w+=\$\((.*?)\)", r"\1", line)
    lexer = shlex.shlex(inner, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    part: list[str] = []
    skip = False
    for word in lexer:
        if set(word) <= set("|&;"):
            yield part
            part = []
        elif set(word) <= set("<>"):
            skip = True
        elif skip:
            skip = False
        else:
            part.append(word)
    yield part


def _documents_in(text: str) -> Iterator[object]:
    decoder = json.JSONDecoder()
    at = 0
    while at < len(text.rstrip()):
        while text[at].isspace():
            at += 1
        document, at = decoder.raw_decode(text, at)
        yield document


def _anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
