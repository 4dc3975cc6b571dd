"""deploy/grafana/boards/surehook.json: the Grafana board, made of what it says. Writes nothing.

One story from top to bottom: are deliveries flowing, what waits, why does it fail, how is the
machine. Figures of the whole system are the same on every process with the API: `max`, never `sum`.
"""

from __future__ import annotations

import json
from typing import Any

Panel = dict[str, Any]

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH, HEIGHT = 24, 8


def mine(metric: str, labels: str = "") -> str:
    """Of the chosen processes."""
    return f'{metric}{{instance=~"$instance"{labels and ","}{labels}}}'


def rate(metric: str, labels: str = "") -> str:
    return f"rate({mine(metric, labels)}[$__rate_interval])"


def share(metric: str, label: str, value: str) -> list[tuple[str, str]]:
    """What part of all has this label."""
    part = rate(metric, f"{label}={json.dumps(value)}")
    return [(f"sum({part}) / sum({rate(metric)})", value)]


def facts(*names: str) -> list[tuple[str, str]]:
    return [
        (f"sum({rate('surehook_facts_total', f'fact={json.dumps(name)}')})", name) for name in names
    ]


def quantiles(metric: str) -> list[tuple[str, str]]:
    buckets = f"sum by (le) ({rate(metric + '_bucket')})"
    return [
        (f"histogram_quantile({share}, {buckets})", f"p{share * 100:g}")
        for share in (0.5, 0.95, 0.99)
    ]


# Row, then its panels: title, unit, queries with their legends, what it shows.
ROWS: dict[str, list[tuple[str, str, list[tuple[str, str]], str]]] = {
    "Are deliveries flowing?": [
        (
            "Events and deliveries",
            "ops",
            facts("event.accepted", "saga.created", "saga.completed"),
            "Events taken, deliveries made of them, deliveries completed; per second.",
        ),
        (
            "Attempts that succeed",
            "percentunit",
            share("surehook_attempts_total", "result", "delivered"),
            "The share of attempts that were delivered.",
        ),
        (
            "From event to delivery",
            "s",
            quantiles("surehook_delivery_latency_seconds"),
            "Retries included.",
        ),
        (
            "One attempt",
            "s",
            quantiles("surehook_attempt_seconds"),
            "From its lease to its end: mostly the endpoints' own time.",
        ),
    ],
    "What waits?": [
        (
            "How much waits",
            "short",
            [("max by (stage, state) (surehook_backlog)", "{{stage}} {{state}}")],
            "Counted up to 50,000 per state.",
        ),
        (
            "How long the oldest has waited",
            "s",
            [("max by (stage, state) (surehook_backlog_oldest_seconds)", "{{stage}} {{state}}")],
            "events unrouted: the router's lag. deliveries Pending: due, and not attempted yet.",
        ),
        (
            "Room in the workers",
            "short",
            [(f"sum by (state) ({mine('surehook_worker_requests')})", "{{state}}")],
            "Requests under way, and the most that there can be.",
        ),
        (
            "Age of the last step",
            "s",
            [
                (
                    f"max by (component) ({mine('surehook_component_step_age_seconds')})",
                    "{{component}}",
                )
            ],
            "One that grows is stuck.",
        ),
    ],
    "Why does it fail?": [
        (
            "Attempts by result",
            "ops",
            [(f"sum by (result) ({rate('surehook_attempts_total')})", "{{result}}")],
            "The codes are explained in docs/reference/errors.md.",
        ),
        (
            "Retries, dead letters, lost leases",
            "ops",
            facts(
                "saga.retrying",
                "saga.dead_lettered",
                "dead_letter.requeued",
                "lease.expired",
                "result.refused",
            ),
            "Per second.",
        ),
        (
            "Open dead letters",
            "short",
            [('max(surehook_backlog{stage="dead_letters",state="open"})', "open")],
            "Given up and not requeued, among the newest 10,000.",
        ),
        (
            "The API's answers",
            "ops",
            [(f"sum by (status) ({rate('surehook_api_requests_total')})", "{{status}}")],
            "By status, per second.",
        ),
    ],
    "How is the machine?": [
        (
            "Processes by version",
            "short",
            [(f"count by (version) ({mine('surehook_process_info')})", "{{version}}")],
            "Several versions for long: an upgrade was not finished.",
        ),
        (
            "Components",
            "short",
            [("max by (component) (surehook_components_running)", "{{component}}")],
            "How many processes run each, in the whole system.",
        ),
        (
            "Lateness of the event loop",
            "s",
            [(mine("surehook_loop_lag_seconds"), "{{instance}}")],
            "Much more than 0.1 s: too little CPU.",
        ),
        (
            "Connections to the database",
            "short",
            [
                (
                    f"sum by (login, state) ({mine('surehook_database_connections')})",
                    "{{login}} {{state}}",
                )
            ],
            "",
        ),
        (
            "Size of the database",
            "bytes",
            [("max(surehook_database_bytes)", "bytes")],
            "Indexes included.",
        ),
        (
            "Connections kept for the next delivery",
            "percentunit",
            share("surehook_delivery_connections_total", "how", "reused"),
            "A new connection costs ten times as much as a request.",
        ),
        (
            "Bytes of requests held",
            "bytes",
            [(f"sum by (instance) ({mine('surehook_requests_bytes')})", "{{instance}}")],
            "",
        ),
        (
            "Errors of surehook's own",
            "ops",
            facts("request.failed", "component.failed", "database.lost", "registry.lost"),
            "Anything but 0 belongs into the log.",
        ),
    ],
}


def board() -> str:
    panels: list[Panel] = []
    top = 0
    for title, listed in ROWS.items():
        panels.append(_row(title, top, len(panels) + 1))
        top += 1
        for place, (name, unit, queries, shows) in enumerate(listed):
            left = place % 4 * (WIDTH // 4)
            at = {"h": HEIGHT, "w": WIDTH // 4, "x": left, "y": top + place // 4 * HEIGHT}
            panels.append(_panel(name, unit, queries, shows, at, len(panels) + 1))
        top += (len(listed) + 3) // 4 * HEIGHT
    return json.dumps(_frame(panels), indent=2, ensure_ascii=False) + "\n"


def _row(title: str, top: int, number: int) -> Panel:
    at = {"h": 1, "w": WIDTH, "x": 0, "y": top}
    return {"id": number, "type": "row", "title": title, "gridPos": at, "panels": []}


def _panel(
    title: str,
    unit: str,
    queries: list[tuple[str, str]],
    shows: str,
    at: dict[str, int],
    number: int,
) -> Panel:
    return {
        "id": number,
        "type": "timeseries",
        "title": title,
        "description": shows,
        "datasource": SOURCE,
        "gridPos": at,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": SOURCE,
                "expr": expression,
                "legendFormat": legend,
            }
            for place, (expression, legend) in enumerate(queries)
        ],
    }


def _frame(panels: list[Panel]) -> Panel:
    started = f"changes(sum({mine('surehook_info')})[1m:]) > 0"
    return {
        "title": "surehook",
        "uid": "surehook",
        "tags": ["surehook"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "",
        "templating": {
            "list": [
                {
                    "name": "datasource",
                    "type": "datasource",
                    "query": "prometheus",
                    "label": "Source",
                },
                {
                    "name": "instance",
                    "type": "query",
                    "datasource": SOURCE,
                    "label": "Process",
                    "query": "label_values(surehook_info, instance)",
                    "refresh": 2,
                    "multi": True,
                    "includeAll": True,
                    "allValue": ".*",
                    "current": {"text": "All", "value": "$__all"},
                },
            ]
        },
        "annotations": {
            "list": [
                {
                    "name": "Processes started or ended",
                    "datasource": SOURCE,
                    "enable": True,
                    "expr": started,
                    "iconColor": "blue",
                    "titleFormat": "processes changed",
                },
            ]
        },
        "panels": panels,
    }
