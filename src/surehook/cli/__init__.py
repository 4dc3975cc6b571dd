"""The command line, one file per command, imported only when it is used: `--help` stays fast.

A new command is a line in COMMANDS and a file beside this one that defines it with click. It gets
the `Invocation` by @click.pass_obj and raises SurehookError for whatever the user should know.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from surehook import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from click.shell_completion import CompletionItem

    from surehook.config import Config

# name → what it does, in the order in which help lists them. A command is what has its name in the
# file of its name.
COMMANDS = {
    "dev": "Run everything here and deliver a first webhook.",
    "serve": "Run all components, or some.",
    "run": "Run one component alone.",
    "publish": "Publish an event, or many.",
    "event": "What was published, and where it went.",
    "subscription": "Who gets which events: create, verify, test, change.",
    "delivery": "What became of each event.",
    "dead-letter": "What was given up; requeue it.",
    "tail": "Show deliveries as they change.",
    "listen": "Receive webhooks here, check and show them.",
    "init": "Print an environment file with new secrets.",
    "key": "API keys: create, list, revoke.",
    "migrate": "Bring the database to this program's schema.",
    "status": "Which processes run, where, and what is missing.",
    "health": "Is the process here ready? For health checks.",
    "doctor": "Prove that the database is fit; say what to do.",
    "installation": "Which installation this is; a new id for a copy.",
    "check": "Look for broken invariants on the live database.",
    "config": "Show every setting and where it came from.",
    "db": "The embedded PostgreSQL server, as its owner.",
    "bench": "Measure deliveries and CPU per delivery.",
    "completion": "Complete commands in your shell.",
}
ELSEWHERE = {"run": "serve"}  # command → the file that it is in


@dataclass(frozen=True, slots=True)
class Invocation:
    """What the options before the command said."""

    config_file: Path | None

    def config(self, flags: Mapping[str, object] | None = None) -> Config:
        """The configuration in force; `flags` are the command's own options, by key."""
        from surehook.config import load

        return load(self.config_file, flags=flags)


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """The known word that is most like the given one, as a question; nothing if none is."""
    from difflib import get_close_matches

    by_lower = {word.lower(): word for word in known}
    found = get_close_matches(given.lower(), by_lower, n=1)
    return f"Did you mean {by_lower[found[0]]}?" if found else ""


class Suggesting(click.Group):
    """Answers a command that does not exist with the one that was probably meant."""

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = arguments[0]
        known = self.list_commands(context)
        if name in known or name.startswith("-") or context.resilient_parsing:
            return super().resolve_command(context, arguments)
        said = [f"No such command {name!r}.", did_you_mean(name, known)]
        raise click.UsageError(" ".join(filter(None, said)), context)


class InOrder(Suggesting):
    """Lists its commands as they were written down, not by the alphabet."""

    def list_commands(self, _context: click.Context) -> list[str]:
        return list(self.commands)


class LazyGroup(Suggesting):
    """Knows its commands' names and summaries without importing them."""

    def list_commands(self, _context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        word = name.replace("-", "_")
        module = import_module(f"surehook.cli.{ELSEWHERE.get(word, word)}")
        command: click.Command = getattr(module, word)
        return command

    def shell_complete(self, context: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        names = [
            CompletionItem(name, help=summary)
            for name, summary in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, context, incomplete)

    def format_commands(self, _context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Webhook delivery that you run yourself: hand it an event once, every subscriber gets it.",
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The configuration file (default: surehook.toml here or in /etc/surehook).",
)
@click.version_option(__version__, message="surehook %(version)s")
@click.pass_context
def surehook(context: click.Context, config_file: Path | None) -> None:
    context.obj = Invocation(config_file)
