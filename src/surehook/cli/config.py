"""`surehook config`: every setting, its value and where it came from. Never shows a secret."""

from __future__ import annotations

import json
from textwrap import wrap

import click

from surehook.cli import Invocation
from surehook.cli.output import at_terminal, safe, table
from surehook.config import FROM_FILE, Config, without_password
from surehook.config.parsers import toml_value
from surehook.config.settings import LOGINS, SETTINGS


@click.command(help="Show every setting, its value and where it came from; never a secret.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
@click.option("--default", "only_default", is_flag=True, help="Print the default file, commented.")
@click.pass_obj
def config(invocation: Invocation, as_json: bool, only_default: bool) -> None:
    if only_default:
        click.echo(default_file(), nl=False)
        return
    rows = _rows(invocation.config())
    if as_json:
        shown = {key: {"value": value, "source": source} for key, value, source in rows}
        click.echo(json.dumps(shown, ensure_ascii=False))
        return
    if at_terminal():
        table(("setting", "value", "from"), rows)
        return
    key_width, value_width = (max(len(row[column]) for row in rows) for column in (0, 1))
    for key, value, source in rows:
        value, source = safe(value), safe(source)
        line = f"{key:<{key_width}}  {value:<{min(value_width, 40)}}  "
        click.echo(line + source)


def _rows(settings: Config) -> list[tuple[str, str, str]]:
    rows = [(key, origin.shown(), origin.source) for key, origin in settings.origins.items()]
    rows += [
        (f"database.urls.{login}", without_password(url), "login URL")
        for login, url in settings.login_urls.items()
    ]
    return rows


def default_file() -> str:
    """config.default.toml: every setting with its meaning, variable and default."""
    lines = [
        "# Every setting of surehook with its default. Copy what you change into surehook.toml",
        "# (looked for here, then in /etc/surehook; or name it with --config or SUREHOOK_CONFIG).",
        "# The environment wins over the file, flags win over both. A variable …_FILE names a file",
        "# that holds the secret.",
        "# Durations: seconds, or 500ms, 30s, 5m, 1h, 2d.",
        "# Written by `make generate` from config/settings.py; do not edit.",
    ]
    section = ""
    for setting in SETTINGS:
        where, _, name = setting.key.partition(".")
        if where != section:
            lines += ["", f"[{where}]"]
            section = where
        names = [setting.variable, *([setting.variable + FROM_FILE] if setting.secret else [])]
        lines += ["", *(f"# {line}" for line in wrap(setting.meaning, 96)), f"# {', '.join(names)}"]
        if setting.default is None:
            lines.append(f"#{name} = {setting.example}")
        else:
            lines.append(f"{name} = {toml_value(setting.default)}")
    lines += [
        "",
        "# One URL per login, for set-ups where passwords are not derived (SUREHOOK_",
        "# DATABASE_URL_ROUTER and so on).",
        "#[database.urls]",
        *(f'#{login} = "postgresql://…"' for login in LOGINS),
    ]
    return "\n".join(lines) + "\n"
