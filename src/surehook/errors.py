"""Every exception that surehook raises on purpose.

    SurehookError                exit  whose turn it is
    ├── UsageError                2    the operator: a setting, a flag or an input is wrong
    │   ├── ConfigError           2    … in the configuration
    │   └── FieldRefused          2    … in a named field
    ├── Declined                  1    nobody: it was understood, and the result is negative
    │   ├── NotFound              1    … because there is no such thing
    │   └── Stale                 1    … because it was changed since
    ├── Unreachable               3    the surroundings: a database or service does not answer
    │   ├── DatabaseUnreachable   3    … the database
    │   └── EmbeddedServerError   3    … the server that we start ourselves cannot run
    └── Bug                      70    us: something that must not happen

A failed delivery is not an exception, it is a value (delivery/outcome.py). Messages are one clear
line: what is wrong, where, what to do. They never contain a secret.
"""

from __future__ import annotations


class SurehookError(Exception):
    """The root: catch this at the edge of the program, nowhere else."""

    exit_code = 70

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.message} {self.advice}".strip()


class UsageError(SurehookError):
    """A setting, a flag or an input is wrong; nothing was started or written."""

    exit_code = 2


class ConfigError(UsageError):
    """A value in the configuration is wrong."""


class FieldRefused(UsageError):
    """A value is not acceptable; `field` says which."""

    def __init__(self, field: str, message: str, advice: str = "") -> None:
        super().__init__(message, advice)
        self.field = field


class Declined(SurehookError):
    """It was understood, and the result is negative: refused, not found, not fit."""

    exit_code = 1


class NotFound(Declined):
    """There is none with this id, or it belongs to someone else."""


class Stale(Declined):
    """It was changed since it was read."""


class Unreachable(SurehookError):
    """A database or a service does not answer."""

    exit_code = 3


class DatabaseUnreachable(Unreachable):
    """The database does not answer, or does not let us in."""


class EmbeddedServerError(Unreachable):
    """The PostgreSQL server that surehook starts itself cannot run here."""


class Bug(SurehookError):
    """Something that must not happen did; please report it."""
