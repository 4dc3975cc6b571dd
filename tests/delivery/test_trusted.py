"""Which URLs a list of trusted origins covers: host and port, and nothing that resembles them."""

from __future__ import annotations

import pytest

from surehook.delivery.trusted import TrustedOrigins
from surehook.errors import ConfigError

TRUSTED = TrustedOrigins(
    (
        "https://hooks.example.com",
        "https://HOOKS.example.org:8443",
        "https://*.apps.example.net",
        "https://*.example.edu:444",
        "https://10.0.0.7",
        "https://[2001:db8::0:1]:9",
    )
)


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.example.com",
        "https://hooks.example.com/any/path?and=query",
        "https://hooks.example.com:443/",
        "https://Hooks.Example.COM/x",
        "https://hooks.example.org:8443/x",
        "https://a.apps.example.net/x",
        "https://a.b.c.apps.example.net/x",
        "https://x.example.edu:444",
        "https://10.0.0.7/x",
        "https://[2001:db8::1]:9/x",
    ],
)
def test_a_url_of_a_listed_origin_is_covered(url: str) -> None:
    assert TRUSTED.cover(url)


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.example.com:8443/",
        "https://hooks.example.org/",
        "https://x.hooks.example.com/",
        "https://example.com/",
        "https://hooks.example.com.evil.test/",
        "https://evil.test/https://hooks.example.com",
        "https://hooks.example.com@evil.test/",
        "https://evil.test#hooks.example.com",
        "https://evil.test\\@hooks.example.com/",
        "https://hooks.example.com./",
        "http://hooks.example.com/",
        "https://apps.example.net/",
        "https://evilapps.example.net/",
        "https://a.apps.example.net:444/",
        "https://x.example.edu/",
        "https://10.0.0.8/",
        "https://010.0.0.7/",
        "https://167772167/",
        "",
    ],
)
def test_what_only_looks_like_one_is_not(url: str) -> None:
    assert not TRUSTED.cover(url)
    assert not TrustedOrigins().cover(url)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("https://*.com", "covers too much"),
        ("https://*.localhost", "covers too much"),
        ("https://*.10.0.0.7", "covers too much"),
        ("https://127.1", "127.1"),
        ("https://a..example", "a..example"),
        ("https://a.example:99999", "a.example:99999"),
    ],
)
def test_an_entry_that_cannot_be_meant_is_refused_in_one_line(entry: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        TrustedOrigins([entry])
    assert said in refused.value.message and entry in refused.value.message
    assert "\n" not in refused.value.message
