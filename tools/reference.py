"""docs/reference/cli.md, made from the commands themselves. Reads them; writes nothing."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from surehook.cli import COMMANDS, surehook

INTRODUCTION = """# Commands

`surehook COMMAND --help` says the same at the terminal; `python -m surehook` is the same program.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | declined: understood, but not found, not delivered, a broken invariant |
| 2 | wrong use: an option, an input or the configuration; nothing was done |
| 3 | a database or a service cannot be reached |
| 70 | a bug |
| 130 | ended by Ctrl-C |

What went wrong is one line on standard error. At a terminal there are tables and colours, in a pipe
aligned text with times in UTC. `--json` prints one object, or one object per line for lists, with
the names of the [API](api.md).

Every command acts on [the system that is named, else on the one that runs](../operate/systems.md),
and says on standard error which one it is.

Commands that call the API (`publish`, `event`, `subscription`, `delivery`, `dead-letter`, `tail`)
find it by the first of these: `--url`; `SUREHOOK_URL`; `api.listen`, if that or `api.admin_key` is
configured; the API of the system that runs here; `127.0.0.1:8080`. The key is that of `--api-key`,
else `SUREHOOK_API_KEY`, else the configuration's `api.admin_key` (only for the configuration's own
API, or one on this machine), else the key that `surehook dev` keeps (only for a `dev` that runs
here). Others on a machine can see a key in its list of processes: prefer the variable. `surehook
key`, `doctor`, `check`, `migrate` and `db` open the database itself.
"""
EXPLAINED_ABOVE = ("help", "url", "api_key")


def cli_page() -> str:
    """The whole page."""
    root = click.Context(surehook, info_name="surehook", **surehook.context_settings)
    parts = [INTRODUCTION]
    for name in COMMANDS:
        command = surehook.get_command(root, name)
        assert command is not None
        parts += _sections(command, name, root)
    return "\n".join(parts)


def _sections(command: click.Command, name: str, parent: click.Context) -> Iterator[str]:
    """A command and, for a group, each of its commands."""
    context = click.Context(command, info_name=name, parent=parent)
    level = "##" if parent.parent is None else "###"
    yield f"{level} {context.command_path}\n\n{_help(command)}\n"
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            assert found is not None
            yield from _sections(found, inner, context)
        return
    yield f"```\n{_usage(command, context)}\n```\n"
    rows = list(_options(command, context))
    if rows:
        yield "\n".join(["| option | meaning |", "|---|---|", *rows]) + "\n"


def _help(command: click.Command) -> str:
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    return "\n\n".join(_paragraph(text) for text in paragraphs)


def _paragraph(text: str) -> str:
    """One that click must not wrap (\\b) keeps its lines here too."""
    if text.startswith("\b\n"):
        return f"```\n{text[2:]}\n```"
    return _escaped(text)


def _usage(command: click.Command, context: click.Context) -> str:
    return " ".join([context.command_path, *command.collect_usage_pieces(context)])


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for option in command.get_params(context):
        record = option.get_help_record(context)
        if isinstance(option, click.Option) and record and option.name not in EXPLAINED_ABOVE:
            names, meaning = record
            yield f"| `{names.replace('|', chr(92) + '|')}` | {_escaped(meaning)} |"


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;").replace("|", "\\|")
