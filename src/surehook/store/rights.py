"""What a role may really do compared with what roles.py says, in words. Pure."""

from __future__ import annotations

from surehook.model.roles import Role

Right = tuple[str, str, str]  # verb, table, column; "*" for the whole table


def expected(role: Role) -> set[Right]:
    """What roles.py says."""
    rights = {
        (str(grant.verb), grant.table, column) for grant in role.grants for column in grant.columns
    }
    return rights | {("DELETE", table, "*") for table in role.may_delete}


def difference(role: Role, rights: set[Right], beside: set[Right]) -> str:
    """In words: what is missing and what is too much; empty if it is exactly right. `beside` is
    what the engine needs for the role's tables to be used."""
    lacks = [f"{verb} {what}" for verb, what, _ in sorted(beside - rights)]
    missing, extra = expected(role) - rights, rights - expected(role) - beside
    words = [f"lacks {', '.join(lacks)}"] if lacks else []
    words += [f"lacks {_listed(missing)}"] if missing else []
    words += [f"may also {_listed(extra)}"] if extra else []
    return " and ".join(words)


def _listed(rights: set[Right]) -> str:
    shown = [
        f"{verb} {table}" + (f".{column}" if column != "*" else "")
        for verb, table, column in sorted(rights)[:3]
    ]
    more = f" and {len(rights) - 3} more" if len(rights) > 3 else ""
    return ", ".join(shown) + more
