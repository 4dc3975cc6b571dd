"""The table of components: each entry agrees with its loop, its login and what is said about it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support import Configure
from surehook.model.roles import BY_LOGIN
from surehook.process.assembly import Assembly
from surehook.process.components import COMPONENTS
from surehook.store.logins import DatabaseAccess
from tools.pages import components_page

every_component = pytest.mark.parametrize("name", COMPONENTS)


@every_component
def test_a_component_has_a_login_and_says_what_it_does(name: str) -> None:
    component = COMPONENTS[name]
    assert component.name == name and component.login in BY_LOGIN
    assert component.does and not component.does.endswith(".")


@every_component
async def test_a_component_is_made_with_the_name_that_it_has_in_the_table(
    name: str, configure: Configure, access: DatabaseAccess
) -> None:
    parts = Assembly(configure({"api.listen": "127.0.0.1:0"}), access)
    try:
        await parts.open([name])
        (service,) = parts.services
        assert service.component.name == name
        service.stop()
        await service.run()
    finally:
        await parts.close()


async def test_components_of_one_process_share_a_pool_per_login(
    configure: Configure, access: DatabaseAccess
) -> None:
    parts = Assembly(configure(), access)
    try:
        await parts.open(["router", "cleaner"])
        assert await parts.database("router") is parts.databases["router"]
        assert set(parts.databases) == {"router", "cleaner"}
    finally:
        await parts.close()


def rows() -> Iterator[list[str]]:
    for line in components_page().splitlines():
        if line.startswith("| `"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def test_the_page_names_every_component_and_every_login_but_those_of_no_component() -> None:
    shown: dict[str, Any] = {
        row[0].strip("`"): row[2].replace("`", "").split(", ") for row in rows()
    }
    assert list(shown) == list(COMPONENTS)
    named = {login for logins in shown.values() for login in logins}
    assert set(BY_LOGIN) - named == {"outbox", "registry"}


def test_the_page_says_what_each_component_writes() -> None:
    written = {row[0].strip("`"): row[3] for row in rows()}
    assert written["worker"] == "`webhook_delivery_jobs`"
    assert "`dead_letters`" in written["deadletters"]
