"""Pages of the documentation that are made from the program's own tables.

Reads   components, roles, routes, metrics, facts, error codes     Writes  nothing itself
"""

from __future__ import annotations

from collections.abc import Iterator

from surehook.api import problems
from surehook.api.app import ROUTES
from surehook.api.routes import Route
from surehook.model.error_codes import ErrorCode
from surehook.model.resources.shared import TIME_EXAMPLE
from surehook.model.roles import BY_LOGIN, ROLES, Verb
from surehook.observe.facts import FACTS
from surehook.observe.metrics import METRICS
from surehook.process.components import COMPONENTS, Component

NOTE = "Written by `make generate` from {source}; do not edit."
# Of the components' tables, those through which they hand each other work.
MEETING_POINTS = {
    "subscriptions": "subscriptions",
    "events": "events",
    "webhook_delivery_sagas": "deliveries (sagas)",
    "webhook_delivery_jobs": "attempts (jobs)",
    "dead_letters": "dead_letters",
}
# Two logins are not a component's; what else has no component of its name is the API's, which also
# answers calls of these two.
NOBODYS = ("outbox", "registry")
ALSO_THE_APIS = ("verifier", "deadletters")


def page_note(source: str) -> str:
    return f"<!-- {NOTE.format(source=source)} -->\n"


# ── Components ────────────────────────────────────────────────────────────────────────


def components_page() -> str:
    """docs/reference/components.md."""
    rows = "\n".join(
        f"| `{component.name}` | {component.does} | {_words(_logins(component))} "
        f"| {_words(_written(component))} |"
        for component in COMPONENTS.values()
    )
    return (
        page_note("process/components.py and roles.py") + "# Components\n\n"
        "`surehook serve` runs all of them in one process, `--components` some, `surehook run "
        "NAME` one. They meet only in the database: any mix on any number of machines works "
        "together, and what each may write is what its [database role](../roles.md) may. Every "
        "process also keeps its own rows in `processes`, for [`surehook "
        "status`](../operate/processes.md).\n\n"
        "| component | does | logins | writes |\n|---|---|---|---|\n"
        f"{rows}\n\n"
        "```mermaid\nflowchart LR\n" + "\n".join(_picture()) + "\n```\n\n"
        "Rounded: what runs. Cylinders: tables. Solid arrows are writes, dotted ones reads;\n"
        "what a component writes it reads as well.\n"
    )


def _picture() -> Iterator[str]:
    for table, shown in MEETING_POINTS.items():
        yield f'    {table}[("{shown}")]'
    for component in COMPONENTS.values():
        yield f"    {component.name}([{component.name}])"
        written = _written(component)
        for table in MEETING_POINTS:
            if table in written:
                yield f"    {component.name} --> {table}"
            elif component.name != "api" and BY_LOGIN[component.login].columns(Verb.SELECT, table):
                yield f"    {table} -.-> {component.name}"


def _logins(component: Component) -> list[str]:
    if component.name != "api":
        return [component.login]
    nameless = [role.login for role in ROLES if role.login not in COMPONENTS]
    return [login for login in nameless if login not in NOBODYS] + list(ALSO_THE_APIS)


def _written(component: Component) -> list[str]:
    """The tables that it may insert into or update, under all of its logins."""
    grants = [grant for login in _logins(component) for grant in BY_LOGIN[login].grants]
    return list(dict.fromkeys(grant.table for grant in grants if grant.verb is not Verb.SELECT))


def _words(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


# ── The API ────────────────────────────────────────────────────────────────────────


def api_page() -> str:
    """docs/reference/api.md."""
    parts = [
        "# HTTP API\n\n"
        "JSON over HTTP/1.1 at `api.listen`. `GET /openapi.json` has every detail, `GET /docs` "
        "shows it without anything from elsewhere. Send `Authorization: Bearer <key>`; a key has "
        "scopes (`ingest`, `read`, `operator`, `admin` = all) and may be bound to a tenant, whose "
        "things are then all that it sees and writes.\n\n"
        f"Times are UTC with microseconds (`{TIME_EXAMPLE}`), ids are integers. Lists are "
        "`{items, next}`: pass `next` as `cursor` until it is null; a page may be short and still "
        "have a next one. Every answer carries `x-request-id`. Errors are `application/"
        "problem+json`; `field` names what is wrong.",
        "## Routes\n\n| route | scope | does | answers |\n|---|---|---|---|\n"
        + "\n".join(_route(route) for route in ROUTES),
        "## Problems\n\n| status | type | meaning |\n|---|---|---|\n"
        + "\n".join(
            f"| {kind.status} | `/problems/{kind.slug}` | {kind.title} |" for kind in problems.KINDS
        ),
    ]
    return page_note("api/") + "\n\n".join(parts) + "\n"


def _route(route: Route) -> str:
    statuses = [*route.answers, *(404,) * route.has_id, *(kind.status for kind in route.problems)]
    answers = ", ".join(str(status) for status in dict.fromkeys(statuses))
    scope = route.scope or "—"
    return f"| `{route.method} {route.path}` | {scope} | {route.summary} | {answers} |"


# ── Metrics and facts ────────────────────────────────────────────────────────────────────────


def metrics_page() -> str:
    """docs/reference/metrics.md."""
    rows = "\n".join(
        f"| `{name}` | {kind} | {', '.join(labels) or '—'} | {meaning} |"
        for name, (kind, labels, meaning) in METRICS.items()
    )
    facts = "\n".join(f"| `{name}` | {level.name.lower()} |" for name, level in FACTS.items())
    return (
        page_note("observe/metrics.py") + "# Metrics\n\n"
        "`GET /metrics` of any process, in Prometheus' text form; [where it is served]"
        "(../operate/processes.md). "
        "Counters are of the process that is asked. The figures of the whole system "
        "(`surehook_backlog…`, `surehook_components_running`) are counted at most every 5 seconds, "
        "however many processes there are and however often they are asked; every process that "
        "runs the component `api` shows the same. "
        "[What to add up and what not](../operate/processes.md#prometheus).\n\n"
        "| metric | kind | labels | meaning |\n|---|---|---|---|\n"
        f"{rows}\n\n"
        "## Facts\n\n"
        "The values of the label `fact`, and the level at which the log writes them.\n\n"
        f"| fact | level |\n|---|---|\n{facts}\n"
    )


# ── Error codes ────────────────────────────────────────────────────────────────────────


def errors_page() -> str:
    """docs/reference/errors.md."""
    head = (
        page_note("model/error_codes.py") + "# Error codes\n\n"
        "Every failed attempt carries one of these codes, in the job's `error_code`, and the last"
        " one in the\nsaga's `final_error_code` and its dead letter. The list is closed. A"
        " *permanent* error is dead-lettered at\nonce; all others are tried again until the"
        " policy's attempts are used up. The HTTP status, where one was\nreceived, stands beside"
        " the code in `response_status`. Success is a completely read 2xx answer that came after"
        " the whole\nrequest was written, and nothing else: an endpoint that answers before it has"
        " read the body of a large event\nhas not accepted it.\n"
        "\nOf each attempt two texts are kept: `response_excerpt`, the beginning of what the"
        " endpoint answered, and\n`failure_detail`, what went wrong in surehook's own words, such"
        " as `127.0.0.1: Connection refused` or\n`certificate: self-signed certificate`."
        " `surehook delivery show` and `surehook dead-letter show` print\nboth, with what to do.\n"
        "\n"
        "| code | permanent | cause | what to do |\n"
        "|---|---|---|---|\n"
    )
    rows = (
        f"| `{code}` | {'yes' if code.permanent else 'no'} | {code.cause} | {code.advice} |\n"
        for code in ErrorCode
    )
    return head + "".join(rows)
