"""What is read out of the scripts is what they make: nothing more and nothing less."""

from __future__ import annotations

import pytest

from support.connections import engine_connection
from surehook.store.mysql import migrate, shape

pytestmark = pytest.mark.only_on("mysql", reason="PostgreSQL compares two schemas")


@pytest.mark.parametrize("buckets", [1, 4])
async def test_the_scripts_are_read_as_the_server_reads_them(
    database_url: str, buckets: int
) -> None:
    async with engine_connection(database_url) as connection:
        made = migrate.expected_parts(buckets, connection.server)
        found = await shape.parts(connection)
    assert found == made.parts
