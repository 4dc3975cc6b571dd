"""The command `surehook`: runs it and turns what went wrong into one line and an exit code.

Exit codes: 0 done, 1 the answer is no, 2 wrong use, 3 unreachable, 70 a bug, 130 Ctrl-C.

What it needs is imported when it runs: an installation of the client alone has the command too, but
not the packages, and gets one line that says so.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from surehook.errors import SurehookError

WRONG_USE = 2
INTERRUPTED = 130


def run(arguments: list[str]) -> int:
    """Do what the arguments say; the exit code."""
    try:
        return _run(arguments)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "surehook"):
            raise
        print(
            f"surehook: The package {package} is not installed: without its extras surehook is the"
            " Python client alone. Run: pip install 'surehook[server]'",
            file=sys.stderr,
        )
        return WRONG_USE


def _run(arguments: list[str]) -> int:
    import click

    from surehook.cli import surehook
    from surehook.errors import SurehookError

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
    import click

    message = click.style(error.message, fg="red", bold=True)
    click.echo(" ".join(filter(None, ["surehook:", message, error.advice])), err=True)


def main() -> None:
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
