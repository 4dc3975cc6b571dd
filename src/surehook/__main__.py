"""The command `surehook`: runs it and turns what went wrong into one line and an exit code.

Exit codes: 0 done, 1 the answer is no, 2 wrong use, 3 unreachable, 70 a bug, 130 Ctrl-C.
"""

from __future__ import annotations

import sys

import click

from surehook.cli import surehook
from surehook.errors import SurehookError

INTERRUPTED = 130


def run(arguments: list[str]) -> int:
    """Do what the arguments say; the exit code."""
    try:
        result = surehook.main(arguments, prog_name="surehook", standalone_mode=False)
    except SurehookError as error:
        complain(error)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    return result if isinstance(result, int) else 0


def complain(error: SurehookError) -> None:
    """One line on standard error; click drops the colours unless a person reads it."""
    message = click.style(error.message, fg="red", bold=True)
    click.echo(" ".join(filter(None, ["surehook:", message, error.advice])), err=True)


def main() -> None:
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
