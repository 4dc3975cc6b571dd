"""Secrets at rest: sealed, bound to their place, rotated, and refused in clear words."""

from __future__ import annotations

import base64

import pytest

from surehook.delivery.secrets import KEY_BYTES, Sealer, SealingError, key_id, parse_keys

OLD, NEW = bytes(range(32)), bytes(range(32, 64))
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_what_is_sealed_opens_again_and_shows_nothing() -> None:
    sealer = Sealer([NEW])
    sealed = sealer.seal(SECRET, "subscription_secrets")
    assert sealer.open(sealed, "subscription_secrets") == SECRET
    assert SECRET[6:] not in sealed and sealed.isascii()
    assert sealed != sealer.seal(SECRET, "subscription_secrets")


def test_a_sealed_text_opens_only_where_it_belongs() -> None:
    sealer = Sealer([NEW])
    with pytest.raises(SealingError, match="changed or moved"):
        sealer.open(sealer.seal(SECRET, "here"), "there")


def test_keys_rotate() -> None:
    sealed = Sealer([OLD]).seal(SECRET, "c")
    both = Sealer([NEW, OLD])
    assert both.open(sealed, "c") == SECRET
    resealed = both.seal(SECRET, "c")
    assert Sealer([NEW]).open(resealed, "c") == SECRET


def test_a_missing_key_is_refused_in_clear_words() -> None:
    sealed = Sealer([OLD]).seal(SECRET, "c")
    with pytest.raises(SealingError, match="SUREHOOK_ENCRYPTION_KEY is not set"):
        Sealer([]).seal(SECRET, "c")
    with pytest.raises(SealingError, match="SUREHOOK_ENCRYPTION_KEY is not set"):
        Sealer([]).open(sealed, "c")


def test_a_wrong_key_is_refused_by_name() -> None:
    sealed = Sealer([OLD]).seal(SECRET, "c")
    with pytest.raises(SealingError) as refusal:
        Sealer([NEW]).open(sealed, "c")
    assert key_id(OLD) in str(refusal.value) and key_id(NEW) in str(refusal.value)
    assert SECRET not in str(refusal.value) and NEW.hex() not in str(refusal.value)


def test_a_changed_text_does_not_open() -> None:
    sealer = Sealer([NEW])
    sealed = sealer.seal(SECRET, "c")
    for place in range(len(sealed)):
        other = "A" if sealed[place] != "A" else "B"
        changed = sealed[:place] + other + sealed[place + 1 :]
        if changed.rstrip("=")[:-1] == sealed.rstrip("=")[:-1]:
            continue  # the last base64 digit has bits without a meaning
        with pytest.raises(SealingError):
            sealer.open(changed, "c")
    for text in ("", "x", "a:b:c", sealed[:-4], sealed + "AAAA"):
        with pytest.raises(SealingError):
            sealer.open(text, "c")


def test_keys_are_read_as_hexadecimal_or_base64() -> None:
    setting = f" {NEW.hex()} , {base64.b64encode(OLD).decode()}, "
    assert parse_keys(setting) == (NEW, OLD)
    assert parse_keys(base64.urlsafe_b64encode(bytes([255] * 32)).decode()) == (bytes([255] * 32),)
    assert parse_keys("") == ()


@pytest.mark.parametrize("setting", ["short", "zz" * KEY_BYTES, "00" * 31, "00" * 33, "é" * 64])
def test_a_malformed_key_is_refused_without_showing_it(setting: str) -> None:
    with pytest.raises(SealingError) as refusal:
        parse_keys(setting)
    assert setting not in str(refusal.value) and "Key 1" in str(refusal.value)
