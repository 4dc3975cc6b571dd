"""The OpenAPI 3.1 document, made from the routes and their shapes.

Reads   the table of routes     Writes  nothing
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from surehook import __version__
from surehook.api import problems
from surehook.api.app import ROUTES
from surehook.api.problems import BY_STATUS, Kind
from surehook.api.routes import Route
from surehook.model.resources.shared import BIGGEST_ID, ProblemBody

Json = dict[str, Any]

_REF = "#/components/schemas/{name}"
_REQUEST_ID = {
    "x-request-id": {
        "description": "The request's id: the one that was sent, or a new one",
        "schema": {"type": "string"},
    }
}
_RETRY_AFTER = {
    "retry-after": {"description": "Seconds to wait", "schema": {"type": "integer"}},
}


def document() -> Json:
    """The whole description."""
    schemas, components = _schemas()
    paths: dict[str, Json] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "surehook",
            "version": __version__,
            "description": "Webhook delivery: hand over an event once, every subscriber gets it.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": tag} for tag in dict.fromkeys(route.tag for route in ROUTES)],
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": {kind.slug: _problem(kind, schemas) for kind in problems.KINDS},
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key: shk_… (`surehook key create`, POST /v1/keys)",
                }
            },
        },
    }


def _schemas() -> tuple[dict[object, Json], Json]:
    """A reference for each shape, and what they refer to."""
    shapes: dict[object, None] = {ProblemBody: None}
    for route in ROUTES:
        for shape in (route.body, *route.answers.values()):
            if shape is not None and not isinstance(shape, str):
                shapes[shape] = None
    references, components = msgspec.json.schema_components(list(shapes), ref_template=_REF)
    return dict(zip(shapes, references, strict=True)), _without_titles(components)


def _without_titles(value: Any) -> Any:
    """msgspec names each schema a second time inside of it."""
    if isinstance(value, dict):
        return {
            key: _without_titles(item)
            for key, item in value.items()
            if key != "title" or not isinstance(item, str)
        }
    if isinstance(value, list):
        return [_without_titles(item) for item in value]
    return value


# ── One route ─────────────────────────────────────────────────────────────────────────────────


def _operation(route: Route, schemas: dict[object, Json]) -> Json:
    operation: Json = {
        "operationId": route.handler.__name__,
        "summary": route.summary,
        "tags": [route.tag],
        "responses": _responses(route, schemas),
        "security": [],
    }
    if route.scope is not None:
        operation["security"] = [{"key": []}]
        operation["description"] = f"Needs a key with the scope `{route.scope}`."
    parameters = list(_parameters(route))
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        content: Json = {"schema": schemas[route.body]}
        if route.example is not None:
            content["examples"] = {"example": {"value": route.example}}
        operation["requestBody"] = {
            "required": route.body_required,
            "content": {"application/json": content},
        }
    return operation


def _parameters(route: Route) -> Iterable[Json]:
    if route.has_id:
        yield {
            "name": "id",
            "in": "path",
            "required": True,
            "schema": {"type": "integer", "minimum": 1, "maximum": BIGGEST_ID},
            "example": 1,
        }
    if route.idempotent:
        yield {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "description": "The same key again gives the first answer's thing",
            "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
        }
    if route.conditional:
        yield {
            "name": "If-Match",
            "in": "header",
            "required": False,
            "description": "The ETag of the answer that the change is made from: refused with 412 "
            "if it was changed since",
            "schema": {"type": "string", "pattern": '^"[0-9]{1,18}"$'},
            "example": '"3"',
        }
    if route.query is not None:
        _, components = msgspec.json.schema_components([route.query], ref_template=_REF)
        properties = components[route.query.__name__]["properties"]
        for name, schema in properties.items():
            yield _query_parameter(name, schema, components)


def _query_parameter(name: str, schema: Json, components: Json) -> Json:
    """A query has no null: what may be absent is just not required."""
    schema = dict(_without_titles(schema))
    schema.pop("default", None) if schema.get("default") is None else None
    kinds = [kind for kind in schema.pop("anyOf", []) if kind != {"type": "null"}]
    if kinds:
        schema = {**schema, **kinds[0]}
    reference = schema.pop("$ref", None)
    if reference:
        schema = {**schema, **_without_titles(components[reference.rpartition("/")[2]])}
    parameter: Json = {"name": name, "in": "query", "required": False}
    description = schema.pop("description", None)
    if description:
        parameter["description"] = description
    return {**parameter, "schema": schema}


def _responses(route: Route, schemas: dict[object, Json]) -> Json:
    responses: Json = {}
    for status, shape in route.answers.items():
        content: Json = {"application/json": {"schema": schemas.get(shape, {})}}
        if isinstance(shape, str):
            content = {shape: {"schema": {"type": "object" if "json" in shape else "string"}}}
        responses[str(status)] = {
            "description": _DONE.get(status, "Done"),
            "headers": _REQUEST_ID,
            "content": content,
        }
    for kind in problems_of(route):
        reference = {"$ref": f"#/components/responses/{kind.slug}"}
        responses.setdefault(str(kind.status), reference)
    return responses


def _problem(kind: Kind, schemas: dict[object, Json]) -> Json:
    return {
        "description": kind.title,
        "headers": {**_REQUEST_ID, **(_RETRY_AFTER if kind.status in (429, 503) else {})},
        "content": {
            "application/problem+json": {
                "schema": schemas[ProblemBody],
                "examples": {kind.slug: {"value": _example(kind)}},
            }
        },
    }


_DONE = {200: "Done", 201: "Created", 202: "Accepted", 503: "Not ready"}


def _example(kind: Kind) -> Json:
    field = "payload" if kind is problems.INVALID else None
    problem = problems.Problem(kind, "What exactly is wrong.", field)
    example: Json = msgspec.to_builtins(problem.body("3f9c1e07-2a"))
    return example


def problems_of(route: Route) -> list[Kind]:
    """Every refusal that a route may answer with."""
    kinds = {problems.UNAVAILABLE, problems.BAD_REQUEST, problems.NO_METHOD, *route.problems}
    kinds |= {problems.TIMED_OUT, problems.HEADERS_TOO_LARGE}
    if route.scope is not None:
        kinds |= {problems.NO_KEY, problems.FORBIDDEN, problems.TOO_MANY}
    if route.query is not None or route.path.startswith("/v1/"):
        kinds.add(problems.INVALID)
    if route.body is not None:
        kinds.add(problems.TOO_LARGE)
    if route.has_id:
        kinds.add(problems.NOT_FOUND)
    return [BY_STATUS[status] for status in sorted({kind.status for kind in kinds})]
