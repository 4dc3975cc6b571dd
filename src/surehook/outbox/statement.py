"""What the outbox inserts: its statement in each dialect, the values, and what a repetition is.

Reads   store/<dialect>/outbox.sql       Writes  nothing

MySQL's drivers write values into the statement's text, in whatever character set and SQL mode the
caller's connection has. So there texts travel as hexadecimal digits, which are the same in all of
them and need no escaping, and the server turns them back into the bytes they were.
"""

from __future__ import annotations

import random
import re
from functools import cache
from importlib.resources import files
from typing import Literal

from surehook.model import payload as payloads
from surehook.model import rules

Dialect = Literal["postgres", "mysql"]
Style = Literal["format", "numeric", "named"]
Values = tuple[str, str, str, str | None, int]

# The statement's parameters, in their order.
PARAMETERS = ("event_type", "payload", "tenant", "external_id", "hash")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)\b")
_QUOTE = {"postgres": '"', "mysql": "`"}
_DUPLICATE_ENTRY = 1062
_KEY = "uniq_event_external_id"


def values_of(event_type: str, payload: object, tenant: str, external_id: str | None) -> Values:
    """ValueError for an event that may not be stored."""
    rules.check_names(event_type, tenant, external_id)
    encoded = payloads.encode(payload)
    rules.check_size(encoded)
    return event_type, encoded.decode(), tenant, external_id, _hash_of(tenant, external_id)


def _hash_of(tenant: str, external_id: str | None) -> int:
    """What decides the bucket; without a key any will do."""
    return random.getrandbits(32) if external_id is None else rules.key_hash(tenant, external_id)


def has_key_beyond_ascii(values: Values) -> bool:
    _, _, tenant, external_id, _ = values
    return external_id is not None and not (tenant.isascii() and external_id.isascii())


def in_dialect(dialect: Dialect, values: Values) -> Values:
    """The values as the dialect's statement takes them."""
    if dialect == "postgres":
        return values
    event_type, payload, tenant, external_id, hashed = values
    key = None if external_id is None else _digits(external_id)
    return event_type, _digits(payload), _digits(tenant), key, hashed


def _digits(text: str) -> str:
    return text.encode().hex()


def _statements(dialect: Dialect) -> dict[str, str]:
    """By name; store/statements.py would bring more along than an application has use for."""
    resource = files("surehook").joinpath("store", dialect, "outbox.sql")
    found = re.split(r"^-- name: (\w+) .*$", resource.read_text(encoding="utf-8"), flags=re.M)
    return {
        name: re.sub(r"^--.*$", "", text, flags=re.M).strip().removesuffix(";")
        for name, text in zip(found[1::2], found[2::2], strict=True)
    }


@cache
def text_of(dialect: Dialect, style: Style, schema: str | None) -> str:
    """A statement of outbox.sql with the driver's own placeholders."""
    known = _statements(dialect)
    text = known["insert_event"]
    if schema is not None:
        text = known.get("insert_event_into", text)
        quote = _QUOTE[dialect]
        quoted = quote + schema.replace(quote, quote * 2) + quote
        text = text.replace("INTO events", f"INTO {quoted}.events")
        text = text.replace("surehook_bucket(", f"{quoted}.surehook_bucket(")
    if style == "format":
        return _PARAMETER.sub("%s", text.replace("%", "%%"))
    if style == "numeric":
        return _PARAMETER.sub(lambda found: f"${PARAMETERS.index(found[1]) + 1}", text)
    return text


def is_repetition(error: Exception) -> bool:
    """Whether MySQL refused the row because its key is taken, and for nothing else.

    There only the one statement is undone then, and the caller's transaction goes on. INSERT IGNORE
    would hide other errors too, ON DUPLICATE KEY needs a right to update. The message may be in the
    server's language, but its last quoted word is always the name of the key.
    """
    raised = getattr(error, "orig", None) or error  # SQLAlchemy wraps the driver's
    details = [getattr(raised, name, None) for name in ("errno", "msg")]
    if None in details:
        details = list(raised.args[:2])
    if len(details) < 2 or details[0] != _DUPLICATE_ENTRY:
        return False
    key = str(details[1]).rsplit("'", 2)[-2:][0]
    return key.rpartition(".")[2] == _KEY  # MySQL puts the table before it
