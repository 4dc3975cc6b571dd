"""What an application pays for importing us."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"asyncpg", "click", "rich", "cryptography", "uvloop", "pycares", "surehook.store"}


def modules_after(statement: str) -> set[str]:
    program = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import surehook",
        "from surehook import Client, AsyncClient",
        "import surehook; surehook.Client('http://localhost', 'shk_x').close()",
        "from surehook import outbox",
        "from surehook import receive",
        "import surehook.pytest_plugin",
        "import surehook; surehook.outbox.publish",
    ],
)
def test_importing_brings_nothing_heavy(statement: str) -> None:
    assert not modules_after(statement) & HEAVY


def test_the_client_without_https_imports_no_ssl() -> None:
    assert "ssl" not in modules_after("from surehook import Client")


def test_importing_the_package_alone_brings_none_of_its_modules() -> None:
    modules = modules_after("import surehook")
    assert {name for name in modules if name.startswith("surehook")} == {"surehook"}


def test_an_unknown_name_is_an_attribute_error() -> None:
    import surehook

    with pytest.raises(AttributeError, match="nothing_like_it"):
        surehook.nothing_like_it  # noqa: B018
