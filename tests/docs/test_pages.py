"""Pages for those who carry on name only what there is: files, statements, messages, metrics."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from surehook.model.roles import ROLES, TABLES, Verb
from surehook.observe.facts import FACTS
from surehook.process.components import COMPONENTS

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "src" / "surehook"
DOCS = REPOSITORY / "docs"
# What is told apart by a write: the protocol's own tables.
PROTOCOL = ("events", "webhook_delivery_sagas", "webhook_delivery_jobs", "dead_letters")


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def quoted(text: str) -> list[str]:
    """What stands in backticks, outside of code blocks."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


# ── Names ─────────────────────────────────────────────────────────────────────────────────────

NAMED = re.compile(r"((?:[\w.]+/)*[\w.]+\.(?:py|sql|toml|md))(?::([\w.]+))?")
# Stand for any name.
EXAMPLES = re.compile(r"(^|/)x\.(py|sql)$|test_x\.py$|^file\.(py|sql)$")


def names_in(name: str) -> list[tuple[str, str]]:
    found = (NAMED.fullmatch(text) for text in quoted(page(name)))
    return sorted({(one[1], one[2] or "") for one in found if one})


def defined_in(path: Path) -> set[str]:
    """Classes, functions and constants, methods with their class; in SQL the statements."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".sql":
        return set(re.findall(r"^-- name: (\w+)", text, re.MULTILINE))
    found = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef):
            inside = [
                one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
            ]
            found |= {node.name, *(f"{node.name}.{one.name}" for one in inside)}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


@pytest.mark.parametrize("name", ["architecture.md", "glossary.md"])
def test_every_file_and_name_on_the_page_exists(name: str) -> None:
    assert names_in(name)
    for file, symbol in names_in(name):
        if EXAMPLES.search(file):
            continue
        paths = [home / file for home in (PACKAGE, REPOSITORY, DOCS) if (home / file).exists()]
        assert paths, f"{name} names {file}"
        assert not symbol or symbol in defined_in(paths[0]), f"{name} names {file}:{symbol}"


# ── The picture ───────────────────────────────────────────────────────────────────────────────


def arrows() -> set[tuple[str, str]]:
    """From whom to whom in the picture of the pipeline, reads left out."""
    picture = re.search(r"```mermaid\n(.*?)```", page("architecture.md"), re.DOTALL)
    assert picture
    return set(re.findall(r"^\s*(\w+) -->(?:\|[^|]*\|)? (\w+)$", picture[1], re.MULTILINE))


# A node of the picture → the table or the login that it stands for.
TABLE_OF = {"sagas": "webhook_delivery_sagas", "jobs": "webhook_delivery_jobs"}
TABLE_OF |= {"deadletters_table": "dead_letters"}
LOGIN_OF = {"subscriptionsapi": "subscriptions", "requeue": "deadletters", "application": "outbox"}


def test_the_picture_has_every_component() -> None:
    drawn = {node for pair in arrows() for node in pair} | {"api"}
    assert set(COMPONENTS) <= drawn


def test_the_picture_draws_every_write_into_the_tables_of_the_protocol_and_no_other() -> None:
    drawn = {
        (LOGIN_OF.get(source, source), TABLE_OF.get(target, target))
        for source, target in arrows()
        if TABLE_OF.get(target, target) in TABLES
    }
    granted = {
        (role.login, table)
        for role in ROLES
        for table in PROTOCOL
        if role.columns(Verb.INSERT, table) or role.columns(Verb.UPDATE, table)
    }
    assert {pair for pair in drawn if pair[1] in PROTOCOL} == granted


# ── Troubleshooting ───────────────────────────────────────────────────────────────────────────


@cache
def texts() -> str:
    """Every text of the program."""
    found = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join(found)


def test_every_message_that_the_page_explains_is_one_of_ours() -> None:
    messages = [
        text
        for text in quoted(page("troubleshooting.md"))
        if len(text.split()) >= 4 and not re.match(r"surehook |SELECT |curl |openssl ", text)
    ]
    assert len(messages) > 15
    for message in messages:
        for piece in re.split(r"…", message):
            words = piece.strip(" .,:;()")
            assert len(words) < 8 or words in texts(), message


def test_every_metric_and_fact_on_the_page_is_one_of_ours() -> None:
    text = page("troubleshooting.md")
    metrics = page("reference/metrics.md")
    for metric in set(re.findall(r"\bsurehook_\w+", text)):
        assert f"`{metric}`" in metrics, metric
    facts = text.partition("## Log lines")[2].partition("\n## ")[0]
    for fact in re.findall(r"`(\w+\.\w+)`", re.sub(r"`worker\.\w+`", "", facts)):
        assert fact in FACTS, fact


def test_every_command_on_the_page_is_one_of_ours() -> None:
    commands = page("reference/cli.md")
    for words in re.findall(r"`surehook ((?:[a-z-]+ ?)+)", page("troubleshooting.md")):
        ways = [" ".join(words.split()[:count]) for count in (1, 2)]  # more is an argument
        assert any(f"\nsurehook {way} [" in commands for way in ways), words
