"""`surehook doctor`: one line per finding; exit 0 if the database is fit, 1 if it is not."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict

import click

from surehook.cli import Invocation
from surehook.cli.database import on_database
from surehook.cli.output import waiting, wrapped
from surehook.config import without_password
from surehook.errors import Declined
from surehook.process.doctor import examine
from surehook.store import engine_of
from surehook.store.findings import Finding, Level
from surehook.store.logins import Login

_MARKS = {
    Level.GOOD: ("ok", "green"),
    Level.NOTE: ("note", "yellow"),
    Level.WRONG: ("WRONG", "red"),
}


@click.command(help="Prove that the database is fit for surehook; exit 1 if it is not.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
@click.pass_obj
def doctor(invocation: Invocation, as_json: bool) -> None:
    with (
        on_database(invocation) as (config, access),
        engine_of(access.url).losing(Login("doctor", access.url)),
        waiting("examining the database"),
    ):
        findings = asyncio.run(examine(config, access))
    fit = all(finding.level is not Level.WRONG for finding in findings)
    if as_json:
        shown = [asdict(finding) for finding in findings]
        where = without_password(access.url)
        click.echo(json.dumps({"fit": fit, "database": where, "findings": shown}))
    else:
        for finding in findings:
            click.echo(_line(finding))
    if not fit:
        sys.exit(Declined.exit_code)


def _line(finding: Finding) -> str:
    word, colour = _MARKS[finding.level]
    text = " ".join(filter(None, [finding.says, finding.advice]))
    return f"{click.style(f'{word:<5}', fg=colour)}  {wrapped(f'{finding.subject}: {text}', 7)}"
