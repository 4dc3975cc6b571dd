"""The structure as a test: who imports whom, contracts that cannot lie, links that lead on."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.old_program import NoHistory, unpack_previous
from support.sql_rights import analyse
from surehook.model import statements
from surehook.model.roles import BY_LOGIN, ROLES, TABLES, TABLES_ON, Verb
from surehook.store.contract import Store
from tools import generate

REPOSITORY = Path(__file__).parents[1]
PACKAGE = REPOSITORY / "src" / "surehook"
SOURCES = sorted(PACKAGE.rglob("*.py"))
TESTS = sorted((REPOSITORY / "tests").rglob("test_*.py"))
# Which of our folders and top-level modules each may import, beside itself: it points one way.
# The order is that of the layers, from what imports nothing to what imports nearly everything.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "receive": set(),  # what receivers copy or import: nothing of ours
    "model": {"errors"},
    "outbox": {"model"},  # what applications embed stays light: no store, no delivery
    "client": {"errors", "model"},
    "receiver": {"errors", "receive"},
    "testing": {"receiver"},
    "pytest_plugin": {"testing"},
    "embedded": {"errors"},
    "observe": {"errors"},
    "config": {"errors", "model"},
    "delivery": {"errors", "model", "receive"},
    "store": {"errors", "model", "config", "observe"},
    "pipeline": {"errors", "model", "observe", "delivery", "store", "receive"},
    "actions": {"errors", "model", "observe", "delivery", "store"},
}
MAY_IMPORT["api"] = {"errors", "model", "observe", "delivery", "store", "actions", "pipeline"}
MAY_IMPORT["process"] = {*MAY_IMPORT} - {"testing", "pytest_plugin", "outbox"}
MAY_IMPORT["bench"] = {*MAY_IMPORT}
MAY_IMPORT["cli"] = {*MAY_IMPORT} - {"testing", "pytest_plugin", "outbox"}
MAY_IMPORT["__main__"] = {"cli", "errors"}
# What an installation without extras is for.
LIGHT = {"", "client", "outbox", "receive", "testing", "receiver", "model", "errors"}
LIGHT |= {"pytest_plugin"}
FUNCTION_LINES_MAX = 70
LINE_LENGTH_MAX = 100
VAGUE = {"util", "utils", "helper", "helpers", "common", "manager", "misc"}


def name_of(path: Path) -> str:
    """store/postgres/router.py → surehook.store.postgres.router"""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> Iterator[str]:
    """The modules of ours that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("surehook."))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("surehook"):
            assert node.level == 0, f"{path.name} imports relatively"
            for alias in node.names:
                module = f"{node.module}.{alias.name}"
                is_module = (PACKAGE.parent / Path(*module.split("."))).with_suffix(".py").exists()
                is_package = (PACKAGE.parent / Path(*module.split("."))).is_dir()
                yield module if is_module or is_package else str(node.module)


def part_of(module: str) -> str:
    """surehook.store.logins → store; surehook itself holds the version only."""
    return module.split(".")[1] if "." in module else ""


def ids(paths: list[Path]) -> list[str]:
    return [path.relative_to(REPOSITORY).as_posix() for path in paths]


def repository_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode != 0:  # an unpacked archive: look everywhere but in what tools made
        files = REPOSITORY.rglob("*")
        return [file for file in files if file.is_file() and "/." not in file.as_posix()]
    return [
        REPOSITORY / line for line in listed.stdout.splitlines() if (REPOSITORY / line).exists()
    ]


ELAPSED = re.compile(r"(monotonic|perf_counter|\btime)\(\) - \w+\)? <")


@pytest.mark.parametrize("path", TESTS, ids=ids(TESTS))
def test_no_test_asks_how_long_something_took(path: Path) -> None:
    """On a busy machine it takes longer: support/waiting.py compares with the loop's own timers."""
    text = path.read_text(encoding="utf-8")
    wrong = [line.strip() for line in text.splitlines() if ELAPSED.search(line)]
    assert not wrong


WAITING = re.compile(
    r"\btimeout=[1-9]\d|\basyncio\.timeout\([1-9]|\.(wait|join)\([1-9][\d.]*\)"
    r"|\bwait_for\(.*, [1-9][\d.]*\)"
)


@pytest.mark.parametrize("path", TESTS, ids=ids(TESTS))
def test_no_test_says_how_long_another_process_may_take(path: Path) -> None:
    """Whatever the number, some machine needs longer: waits for others have support's PATIENCE."""
    text = path.read_text(encoding="utf-8")
    wrong = [line.strip() for line in text.splitlines() if WAITING.search(line)]
    assert not wrong


# ── Imports ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", SOURCES, ids=ids(SOURCES))
def test_imports_point_one_way(path: Path) -> None:
    own = part_of(name_of(path))
    if not own:
        return  # the front door: it imports what is asked for, when it is
    allowed = MAY_IMPORT[own]
    wrong = {part_of(module) for module in imports_of(path)} - allowed - {own, ""}
    assert not wrong, f"{own} may not import {', '.join(sorted(wrong))}"


COMPONENT_FILES = sorted(
    path for folder in ("pipeline", "actions") for path in (PACKAGE / folder).glob("*.py")
)


def contracts() -> dict[str, str]:
    """The docstrings of the components: files of the pipeline that name their role."""
    found = {}
    for path in COMPONENT_FILES:
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        if re.search(r"^Role\s", docstring, re.MULTILINE):
            found[path.stem] = docstring
    return found


def test_no_component_imports_another() -> None:
    components = {name_of(path) for path in COMPONENT_FILES if path.stem in contracts()}
    for path in COMPONENT_FILES:
        if path.stem in contracts():
            others = components & set(imports_of(path)) - {name_of(path)}
            assert not others, f"{path.stem} imports {', '.join(others)}"


ENGINES = [path.parent.name for path in (PACKAGE / "store").glob("*/database.py")]


def test_the_store_of_a_login_knows_no_other_store() -> None:
    components = {path.stem for path in (PACKAGE / "store" / "postgres").glob("*.sql")}
    assert components and "postgres" in ENGINES
    homes = ["surehook.store", *(f"surehook.store.{engine}" for engine in ENGINES)]
    for path in (PACKAGE / "store").glob("**/*.py"):
        own = {f"{home}.{path.stem}" for home in homes}
        others = {f"{home}.{name}" for home in homes for name in components} - own
        others &= set(imports_of(path))
        assert not others, f"{path.name} imports {', '.join(others)}"


def test_every_store_is_implemented_on_every_engine() -> None:
    """In the file of its contract's name, under its name and the engine's: `store_of` finds it."""
    found = 0
    for path in (PACKAGE / "store").glob("*.py"):
        contracts = vars(importlib.import_module(name_of(path))).values()
        for contract in [one for one in contracts if inspect.isabstract(one)]:
            if not issubclass(contract, Store) or contract.__module__ != name_of(path):
                continue
            for engine in ENGINES:
                module = importlib.import_module(f"surehook.store.{engine}.{path.stem}")
                kind = getattr(module, f"{engine.capitalize()}{contract.__name__}")
                assert issubclass(kind, contract)
                assert not inspect.isabstract(kind), f"{kind} lacks {kind.__abstractmethods__}"
                found += 1
    assert found


def test_only_the_files_of_an_engine_know_it() -> None:
    """Above the store nobody imports an engine; the embedded server and benchmarks are of one."""
    folders = {f"surehook.store.{engine}" for engine in ENGINES}
    for path in SOURCES:
        name = name_of(path)
        if name.startswith(("surehook.store", "surehook.embedded", "surehook.bench")):
            continue
        known = [one for one in imports_of(path) if ".".join(one.split(".")[:3]) in folders]
        assert not known, f"{name} imports {', '.join(known)}"


# ── Contracts ─────────────────────────────────────────────────────────────────────────────────


def clause(docstring: str, word: str) -> str:
    """What follows `word` at the start of a line, its continuation lines included."""
    match = re.search(rf"^{word}\s+(.*(?:\n {{2,}}\S.*)*)", docstring, re.MULTILINE)
    assert match, f"the docstring has no line {word}"
    return " ".join(match[1].split())


def tables_in(text: str) -> set[str]:
    return {word for word in re.findall(r"\w+", text) if word in TABLES}


def writes_in(text: str) -> set[tuple[Verb, str]]:
    """INSERT events, UPDATE jobs (…), router_cursor: a table without a verb means both."""
    found = set()
    for item in re.sub(r"\([^)]*\)", "", text).split(","):
        verbs = [verb for verb in (Verb.INSERT, Verb.UPDATE) if verb in item]
        for table in tables_in(item):
            found |= {(verb, table) for verb in verbs or (Verb.INSERT, Verb.UPDATE)}
    return found


every_contract = pytest.mark.parametrize("name", contracts())
# A file beside a component may work under its role: a contract, but no login or SQL of its own.
COMPONENTS = [name for name in contracts() if name in BY_LOGIN]
every_component = pytest.mark.parametrize("component", COMPONENTS)


@every_contract
def test_a_contract_promises_no_more_than_its_role_may(name: str) -> None:
    contract = contracts()[name]
    role = next(role for role in ROLES if role.name == clause(contract, "Role"))
    assert clause(contract, "Never")
    for table in tables_in(clause(contract, "Reads")):
        assert role.columns(Verb.SELECT, table), f"{role.name} may not read {table}"
    for verb, table in writes_in(clause(contract, "Writes")):
        assert role.columns(verb, table), f"{role.name} may not {verb} {table}"


@every_component
def test_a_contract_names_the_role_of_its_component(component: str) -> None:
    assert clause(contracts()[component], "Role") == BY_LOGIN[component].name


@every_component
def test_a_contract_names_exactly_the_writes_of_its_role(component: str) -> None:
    role = BY_LOGIN[component]
    granted = {
        (verb, table)
        for verb in (Verb.INSERT, Verb.UPDATE)
        for table in TABLES
        if role.columns(verb, table)
    }
    assert writes_in(clause(contracts()[component], "Writes")) == granted


@every_component
def test_a_contract_names_exactly_the_tables_that_its_statements_read(component: str) -> None:
    """What a component writes it may read too: that need not be said twice."""
    contract = contracts()[component]
    read, written = set(), {table for _, table in writes_in(clause(contract, "Writes"))}
    for statement in statements.load("postgres", component).values():
        found = analyse(statement.numbered())
        read |= {need.table for need in found.needs if need.verb is Verb.SELECT}
    assert tables_in(clause(contract, "Reads")) - written == read - written


def test_every_component_with_a_contract_has_its_sql_file_and_back() -> None:
    folder = PACKAGE / "store" / "postgres"
    for component in COMPONENTS:
        assert (folder / f"{component}.sql").exists()
    for path in folder.glob("*.sql"):
        assert path.stem in {role.login for role in ROLES}


# ── Clocks ────────────────────────────────────────────────────────────────────────────────────

# The database's clock is the only one that decides. Who may look at this machine's, and why.
MAY_ASK_THE_TIME = {
    "observe/log.py": "when a line was written",
    "embedded/directory.py": "when a line was written",
    "embedded/upgrade.py": "the name of a directory that is put aside",
    "receiver/certificates.py": "from when to when a certificate is valid",
    "receive.py": "a receiver's own: how old a delivery is",
    "testing.py": "a receiver's own: signs what it then receives",
    "receiver/listen.py": "a receiver's own: when a delivery came",
    "cli/output.py": "whether a time is of today, for whoever reads it",
    "cli/arguments.py": "'2h' ago, as a person says it",
    "store/doctor.py": "how far the two clocks are apart",
}
WALL_CLOCK = {
    "time": {"time", "time_ns", "gmtime", "localtime", "ctime", "asctime"},
    "datetime": {"now", "utcnow", "today"},
    "date": {"today"},
}


def asks_the_time(path: Path) -> bool:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            owner = node.value
            name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
            names = {node.attr}
        elif isinstance(node, ast.ImportFrom):
            name, names = node.module or "", {alias.name for alias in node.names}
        else:
            continue
        if names & WALL_CLOCK.get(name, set()):
            return True
    return False


def test_only_listed_files_look_at_the_clock_of_this_machine() -> None:
    asking = {str(path.relative_to(PACKAGE)) for path in SOURCES if asks_the_time(path)}
    assert asking == set(MAY_ASK_THE_TIME)


# ── Files ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", SOURCES, ids=ids(SOURCES))
def test_a_source_file_opens_with_a_docstring_and_stays_readable(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), "it does not say what it is for"
    assert path.stem not in VAGUE, "its name says nothing"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            assert lines <= FUNCTION_LINES_MAX, f"{node.name} has {lines} lines"


# Folders of tests that belong to no folder of the package.
OTHER_TESTS = {"support", "scenarios", "docs", "tools", "protocol", "faults", "deploy"}


def test_a_folder_of_tests_mirrors_a_folder_of_the_package() -> None:
    folders = {path.parent.relative_to(REPOSITORY / "tests").parts[:1] for path in TESTS}
    mirrored = {folder[0] for folder in folders if folder} - OTHER_TESTS
    assert not [name for name in mirrored if not (PACKAGE / name).is_dir()]


NAMED = [*SOURCES, *TESTS]


@pytest.mark.parametrize("path", NAMED, ids=ids(NAMED))
def test_no_name_has_a_genitive(path: Path) -> None:
    """the_key_of_the_api, not the_api_s_key: a lone letter makes a reader stumble."""
    defined = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    tree = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    names = [node.name for node in tree if isinstance(node, defined)]
    assert not [name for name in names if re.search(r"[a-z]_s(_|$)", name)]


def test_hand_written_sql_fits_the_line() -> None:
    for path in PACKAGE.rglob("*.sql"):
        if "generated" in path.parts:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            assert len(line) <= LINE_LENGTH_MAX, f"{path.name}:{number}"


@pytest.mark.parametrize("engine", ENGINES)
def test_a_migration_stays_as_it_is_once_another_follows(engine: str, tmp_path: Path) -> None:
    """To the letter of a comment: a database remembers its checksum and refuses another."""
    try:
        unpack_previous(engine, tmp_path)
    except NoHistory as reason:
        pytest.skip(f"The previous program cannot be had from git: {reason}")
    folder = PACKAGE / "store" / engine / "migrations"
    before = sorted((tmp_path / folder.relative_to(REPOSITORY)).glob("*.sql"))
    assert before
    changed = [
        file.name
        for file in before
        if not (folder / file.name).exists()
        or (folder / file.name).read_bytes() != file.read_bytes()
    ]
    assert changed == []


@pytest.mark.parametrize("engine", ENGINES)
def test_migrations_are_numbered_without_gap_or_repetition(engine: str) -> None:
    """Two changes that were made side by side may both have taken the next number."""
    names = sorted(path.name for path in (PACKAGE / "store" / engine / "migrations").glob("*.sql"))
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1)), names


def test_generated_files_are_fresh() -> None:
    assert generate.main(["--check"]) == 0


# Written so that this file does not contain what it looks for.
TRACES = re.compile(
    "|".join(
        [
            r"/(?:root|work)" + r"/\w",
            r"/tmp" + r"/wt",
            r"--(?:extra-)?index" + r"-url\s+http",
            r"https?://\S+/" + r"simple\b",
            r"--find" + r"-links\s+\S*/",
        ]
    )
)


def test_no_file_tells_of_the_machine_it_was_written_on() -> None:
    for path in repository_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found = TRACES.search(text)
        assert found is None, f"{path.relative_to(REPOSITORY)}: {found and found[0]}"


def test_what_the_tree_ignores_is_not_part_of_it() -> None:
    """Packages that a tool installed, say: a commit of everything once took them along."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--ignored", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert listed.stdout.splitlines()[:3] == []


# ── Pages ─────────────────────────────────────────────────────────────────────────────────────

PAGES = [path for path in repository_files() if path.suffix == ".md"]


def headings(page: Path) -> set[str]:
    """The anchors of a page, as the usual forges make them."""
    titles = re.findall(r"^#+\s+(.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=ids(PAGES))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor and target.suffix == ".md":
            assert anchor in headings(target), f"{page.name}: {link}"


def test_the_readme_leads_to_every_page() -> None:
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    for page in PAGES:
        name = page.relative_to(REPOSITORY).as_posix()
        if name.startswith("docs/") and not name.startswith("docs/decisions/"):
            assert f"]({name})" in text, name


def test_every_dependency_is_justified() -> None:
    import tomllib

    page = (REPOSITORY / "docs" / "dependencies.md").read_text(encoding="utf-8")
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = list(project["project"]["dependencies"])
    for extra in project["project"]["optional-dependencies"].values():
        wanted += [line for line in extra if not line.startswith("surehook[")]
    wanted += (REPOSITORY / "requirements-dev.in").read_text(encoding="utf-8").splitlines()
    for line in wanted:
        name = re.match(r"[\w-]+", line)
        if name:
            assert f"| `{name[0]}` |" in page, f"docs/dependencies.md does not explain {name[0]}"


def test_what_applications_import_needs_no_extra() -> None:
    """Wherever in these modules: an import that waits would fail later, with the same package."""
    import sys
    import tomllib

    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    declared = {re.split(r"[^\w-]", line)[0] for line in project["project"]["dependencies"]}
    optional = {("receive", "cryptography"), ("pytest_plugin", "pytest")}
    optional |= {("outbox", "django"), ("outbox", "sqlalchemy")}
    for path in SOURCES:
        part = part_of(name_of(path))
        if part not in LIGHT:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for package in {name.partition(".")[0] for name in names} - {"surehook"}:
                known = package in sys.stdlib_module_names or package in declared
                assert known or (part, package) in optional, f"{path.name} imports {package}"


def test_the_contract_names_every_table_and_column() -> None:
    text = (REPOSITORY / "docs" / "contract.md").read_text(encoding="utf-8")
    text = text.partition("## Tables")[2].partition("## Differences")[0]
    every = [named for tables in TABLES_ON.values() for named in tables.items()]
    for table, columns in every:
        part = re.search(rf"(?ms)^(### {table}\b.*?)^#|^\| {table} \|[^|\n]*\|", text)
        assert part, f"the contract does not mention {table}"
        missing = [column for column in columns if not re.search(rf"\b{column}\b", part[0])]
        assert not missing, f"the contract does not say what {table}.{missing[0]} is for"


DECISIONS = sorted((REPOSITORY / "docs" / "decisions").glob("0*.md"))
SECTIONS = ["Context", "Choice", "Rejected", "Consequence"]


def test_decisions_are_numbered_without_gap_or_repetition() -> None:
    names = [path.name for path in DECISIONS]
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1)), names


@pytest.mark.parametrize("path", DECISIONS, ids=ids(DECISIONS))
def test_a_decision_keeps_to_the_form_of_all(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    title = re.match(r"# (\d+)\. \S", text)
    assert title and int(title[1]) == int(path.name[:4]), "its heading is not `# 12. Title`"
    opened = re.findall(r"^\*\*(\w+)\.\*\*", text, re.MULTILINE)
    assert [word for word in opened if word in SECTIONS] == SECTIONS
    prose = [line for line in text.splitlines() if not line.startswith("|")]
    assert not [line for line in prose if len(line) > LINE_LENGTH_MAX]


def test_the_list_of_decisions_names_each_by_its_title() -> None:
    page = (REPOSITORY / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")
    for path in DECISIONS:
        number, title = path.read_text(encoding="utf-8").splitlines()[0][2:].split(". ", 1)
        assert f"{number}. [{title}]({path.name})" in page
