"""/docs: the OpenAPI document as one page, with no script and nothing from elsewhere.

Reads   the OpenAPI document        Writes  nothing
"""

from __future__ import annotations

from html import escape
from typing import Any

import msgspec

from surehook.api.openapi import document

Json = dict[str, Any]

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --accent: #0a7a5c; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem }
h2 { margin-top: 2.5rem; text-transform: capitalize; border-bottom: 1px solid var(--line) }
details { border: 1px solid var(--line); border-radius: 6px; margin: .5rem 0; padding: .4rem .8rem }
summary { cursor: pointer }
summary b { display: inline-block; min-width: 4.5rem; color: var(--accent) }
code, pre { font: 13px/1.45 ui-monospace, monospace }
pre { background: var(--soft); padding: .7rem; border-radius: 6px; overflow-x: auto }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 }
td, th { border-bottom: 1px solid var(--line); padding: .25rem .5rem; text-align: left }
td { vertical-align: top }
"""


def page() -> str:
    described = document()
    info = described["info"]
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>{escape(info['title'])} API</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(info['title'])} API <small>{escape(info['version'])}</small></h1>",
        f"<p>{escape(info['description'])} The same for programs: "
        "<a href='/openapi.json'>openapi.json</a>. "
        "Send <code>Authorization: Bearer shk_…</code> with every request.</p>",
    ]
    for tag in described["tags"]:
        parts.append(f"<h2 id='{escape(tag['name'])}'>{escape(tag['name'])}</h2>")
        for path, methods in described["paths"].items():
            for method, operation in methods.items():
                if tag["name"] in operation["tags"]:
                    parts.append(_operation(method, path, _resolved(operation, described)))
    parts.append("<h2>schemas</h2>")
    for name, schema in sorted(described["components"]["schemas"].items()):
        parts.append(_schema(name, schema))
    return "".join([*parts, "</body></html>"])


def _resolved(operation: Json, described: Json) -> Json:
    """The operation with its problems in full."""
    known = described["components"]["responses"]
    responses = {
        status: known[answer["$ref"].rpartition("/")[2]] if "$ref" in answer else answer
        for status, answer in operation["responses"].items()
    }
    return {**operation, "responses": responses}


def _operation(method: str, path: str, operation: Json) -> str:
    parts = [
        f"<details><summary><b>{method.upper()}</b> <code>{escape(path)}</code> — "
        f"{escape(operation['summary'])}</summary>",
        f"<p>{escape(operation.get('description', ''))}</p>",
    ]
    if "parameters" in operation:
        rows = "".join(
            f"<tr><td><code>{escape(item['name'])}</code></td><td>{item['in']}</td>"
            f"<td>{_kind(item['schema'])}</td><td>{escape(item.get('description', ''))}</td></tr>"
            for item in operation["parameters"]
        )
        parts.append(f"<table><tr><th>parameter<th>in<th>type<th></tr>{rows}</table>")
    if "requestBody" in operation:
        content = operation["requestBody"]["content"]["application/json"]
        parts.append(f"<p>Body: {_kind(content['schema'])}</p>")
        for example in content.get("examples", {}).values():
            parts.append(f"<pre>{escape(_pretty(example['value']))}</pre>")
    rows = "".join(
        f"<tr><td>{status}</td><td>{escape(answer['description'])}</td><td>{_content(answer)}</td>"
        "</tr>"
        for status, answer in operation["responses"].items()
    )
    parts.append(f"<table><tr><th>answer<th>meaning<th>body</tr>{rows}</table></details>")
    return "".join(parts)


def _content(answer: Json) -> str:
    return ", ".join(
        f"{_kind(content['schema'])} <small>{escape(kind)}</small>"
        for kind, content in answer["content"].items()
    )


def _schema(name: str, schema: Json) -> str:
    required = set(schema.get("required", ()))
    rows = "".join(
        f"<tr><td><code>{escape(field)}</code></td>"
        f"<td>{_kind(kind)}{'' if field in required else ' <small>optional</small>'}</td>"
        f"<td>{escape(kind.get('description', ''))}</td></tr>"
        for field, kind in schema.get("properties", {}).items()
    )
    values = ", ".join(f"<code>{escape(str(value))}</code>" for value in schema.get("enum", ()))
    return (
        f"<details id='schema-{escape(name)}'><summary><code>{escape(name)}</code></summary>"
        f"<p>{escape(schema.get('description', ''))} {values}</p><table>{rows}</table></details>"
    )


def _kind(schema: Json) -> str:
    """A type in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"<a href='#schema-{escape(name)}'>{escape(name)}</a>"
    if "anyOf" in schema:
        return " | ".join(_kind(kind) for kind in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    if "enum" in schema:
        return " | ".join(f"<code>{escape(str(value))}</code>" for value in schema["enum"])
    words = str(schema.get("format") or schema.get("type") or "any JSON")
    limits = [
        f"{sign} {schema[key]}"
        for key, sign in (
            ("minimum", "≥"),
            ("exclusiveMinimum", "&gt;"),
            ("maximum", "≤"),
            ("maxLength", "at most"),
            ("pattern", ""),
        )
        if key in schema and schema[key] != 2**63 - 1
    ]
    return escape(words) + (f" <small>{', '.join(map(str, limits))}</small>" if limits else "")


def _pretty(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
