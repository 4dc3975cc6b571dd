"""`surehook completion`: a script for the shell. Reads nothing; writes standard output."""

from __future__ import annotations

import click

HELP = """Print the script that completes surehook's commands and options in your shell.

\b
bash   echo 'eval "$(surehook completion bash)"' >> ~/.bashrc
zsh    echo 'eval "$(surehook completion zsh)"' >> ~/.zshrc
fish   surehook completion fish > ~/.config/fish/completions/surehook.fish
"""


@click.command(help=HELP)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    from click.shell_completion import ShellComplete, get_completion_class

    from surehook.cli import surehook

    kind = get_completion_class(shell)
    assert kind is not None
    # The base class's source(): bash's own would start a bash to look at its version.
    script = ShellComplete.source(kind(surehook, {}, "surehook", "_SUREHOOK_COMPLETE"))
    click.echo(script)
