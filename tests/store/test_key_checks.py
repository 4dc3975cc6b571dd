"""Keys are found together, by their hashes, and only those that are not revoked."""

from __future__ import annotations

from support import OpenStore
from surehook.actions.keys import Keys, hash_of
from surehook.store import store_of
from surehook.store.key_checks import KeyCheckStore
from surehook.store.keys import KeyStore


async def test_many_keys_are_found_at_once(open_store: OpenStore) -> None:
    keys = Keys(store_of(KeyStore, await open_store("keys")))
    checks = store_of(KeyCheckStore, await open_store("key_checks"))
    made = [await keys.create(f"key {n}", ["read"], None if n else "acme") for n in range(3)]
    await keys.revoke(made[2].id)
    hashes = [hash_of(str(one.key)) for one in made]
    found = await checks.find([*hashes, hash_of("nobody's")])
    assert sorted((row[1], row[3], row[4]) for row in found) == [
        ("key 0", "acme", hashes[0]),
        ("key 1", None, hashes[1]),
    ]
    assert await checks.find([hash_of("nobody's")]) == []
