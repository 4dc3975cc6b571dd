"""The OpenAPI document against the server: nothing undocumented, nothing broken."""

from __future__ import annotations

import asyncio
import os
import warnings
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable

from support.api import ADMIN_KEY
from support.http import Client
from support.rows import a_dead_letter, a_saga, a_subscription, an_event
from surehook.api.app import ROUTES
from surehook.api.openapi import document, problems_of

EXAMPLES = int(os.environ.get("SUREHOOK_TEST_EXAMPLES", "12"))

_bounded = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


class Explorer:
    """Asks operations with generated requests, valid and invalid ones; every answer must be as
    the document says."""

    def __init__(self, base_url: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # other people's deprecations
            import schemathesis
            from schemathesis.checks import not_a_server_error
            from schemathesis.specs.openapi import checks
        self._modes = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
        self._checks = [
            not_a_server_error,
            checks.status_code_conformance,
            checks.content_type_conformance,
            checks.response_schema_conformance,
            checks.response_headers_conformance,
        ]
        self._schema = schemathesis.openapi.from_dict(document())
        self._schema.config.update(base_url=base_url)
        self.asked = 0

    def explore(self, tag: str) -> None:
        for result in self._schema.get_all_operations():
            operation: Any = result.ok()  # type: ignore[union-attr]
            if tag in operation.definition.raw["tags"]:
                for mode in self._modes:
                    self._explore(operation, mode)

    def _explore(self, operation: Any, mode: Any) -> None:
        @given(case=operation.as_strategy(generation_mode=mode))
        @_bounded
        def ask(case: Any) -> None:
            self.asked += 1
            if isinstance((case.query or {}).get("wait"), int | float):
                case.query["wait"] = min(case.query["wait"], 0.01)  # nobody sends challenges here
            case.call_and_validate(
                checks=self._checks, headers={"Authorization": f"Bearer {ADMIN_KEY}"}
            )

        try:
            ask()
        except Unsatisfiable:  # nothing about this operation can be wrong
            assert mode is self._modes[1]


# The suite's limit (120 s) is for a test that hangs; more examples are more work, not a hang.
@pytest.mark.timeout(max(900, 6 * EXAMPLES))
@pytest.mark.parametrize("tag", sorted({route.tag for route in ROUTES}))
async def test_no_generated_request_gets_an_undocumented_answer(
    client: Client, owner: Any, tag: str
) -> None:
    await a_subscription(owner)
    await an_event(owner)
    await a_dead_letter(owner)
    await a_saga(owner)
    explorer = Explorer(f"http://{client.host}:{client.port}")
    await asyncio.to_thread(explorer.explore, tag)
    assert explorer.asked > 0


async def test_the_examples_of_the_document_work(client: Client, owner: Any) -> None:
    number = await a_subscription(owner)
    for route in ROUTES:
        if route.example is None or route.path.endswith(("/test", "/verify")):
            continue
        path = route.path.replace("{id}", str(number))
        reply = await client.ask(route.method, path, route.example)
        assert reply.status in route.answers, (route.path, reply.body)


def test_every_operation_documents_its_answers_and_its_key() -> None:
    described = document()
    for route in ROUTES:
        operation = described["paths"][route.path][route.method.lower()]
        documented = {int(status) for status in operation["responses"]}
        assert documented >= {*route.answers, *(kind.status for kind in problems_of(route))}
        assert bool(operation["security"]) == (route.scope is not None)
    assert len({o["operationId"] for m in described["paths"].values() for o in m.values()}) == len(
        ROUTES
    )
