"""Every command that does something, and what it needs. Reads the commands; writes nothing."""

from __future__ import annotations

from collections.abc import Iterator

import click

from surehook.cli import surehook

VALUES = {
    "event_type": "order.paid",
    "payload": "{}",
    "callback_url": "https://hooks.example.com/",
    "name": "shop",
    "scopes": "read",
}
EXTRA = {"dead-letter requeue": ["--all", "--yes"], "subscription update": ["--description", "x"]}


def leaves(
    command: click.Command, path: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Command]]:
    """("db psql", command) for every command that is no group."""
    if not isinstance(command, click.Group):
        yield " ".join(path), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield from leaves(inner, (*path, name))


COMMANDS = dict(leaves(surehook))


def with_arguments(name: str, arguments: bool = True) -> tuple[str, ...]:
    """The command with all that it needs, so that only a system is missing."""
    given = [*name.split(), *(EXTRA.get(name, []) if arguments else [])]
    for parameter in COMMANDS[name].params if name in COMMANDS else []:
        value = VALUES.get(parameter.name or "", "1")
        if isinstance(parameter, click.Argument):
            if arguments and (parameter.required or name == "publish"):
                given.append(value)
        elif parameter.required:
            given += [parameter.opts[0], value]
    return tuple(given)
