"""The command `surehook`: runs it and turns what went wrong into one line and an exit code.

Exit codes: 0 done, 1 declined, 2 wrong use, 3 unreachable, 70 a bug, 130 Ctrl-C.

What it needs is imported when it runs: an installation of the client alone has the command too, but
not the packages, and gets one line that says so.
"""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from surehook.errors import SurehookError

WRONG_USE = 2
INTERRUPTED = 130
MESSAGE_MAX = 2000


def run(arguments: list[str]) -> int:
    """Do what the arguments say; the exit code."""
    _print_anything()
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
        error.message = one_line(error.message)  # type: ignore[misc]  # final for types only
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    return result if isinstance(result, int) else 0


def complain(error: SurehookError) -> None:
    """One line on standard error; click drops the colours unless a person reads it."""
    import click

    from surehook.cli.output import wrapped

    name, message = "surehook: ", one_line(error.message)
    said = wrapped(f"{name}{message} {one_line(error.advice)}".rstrip(), 0, sys.stderr)
    end = len(name) + len(message)  # wrapping puts a line's end where a space was
    shown = click.style(said[len(name) : end], fg="red", bold=True)
    click.echo(said[: len(name)] + shown + said[end:], err=True)


def one_line(text: str) -> str:
    """What it quotes can neither break the line nor command the terminal, nor fill it."""
    if not text.isprintable():
        text = "".join(
            c if c.isprintable() else c.encode("unicode_escape").decode() for c in text.strip()
        )
    return text if len(text) <= MESSAGE_MAX else f"{text[:MESSAGE_MAX]}…"


def _print_anything() -> None:
    """A character that the terminal's encoding lacks is shown as its number, not as a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def main() -> None:
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
