"""Callback URLs: what is accepted, how it reads afterwards, what is refused."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surehook.delivery.url import MAX_URL_LENGTH, UrlRefused, parse_callback_url

ACCEPTED = {
    "https://example.com": ("example.com", 443, "/", "example.com"),
    "https://example.com/": ("example.com", 443, "/", "example.com"),
    "HTTPS://Example.COM/Path": ("example.com", 443, "/Path", "example.com"),
    "https://example.com:443/": ("example.com", 443, "/", "example.com"),
    "https://example.com:8443/a/b?c=d&e=%20f": (
        "example.com",
        8443,
        "/a/b?c=d&e=%20f",
        "example.com:8443",
    ),
    "https://example.com?x=1": ("example.com", 443, "/?x=1", "example.com"),
    "https://a-b.example.co.uk/~x/(y);z=1,2/@me:here": (
        "a-b.example.co.uk",
        443,
        "/~x/(y);z=1,2/@me:here",
        "a-b.example.co.uk",
    ),
    "https://localhost:9000/hook": ("localhost", 9000, "/hook", "localhost:9000"),
    "https://93.184.216.34/": ("93.184.216.34", 443, "/", "93.184.216.34"),
    "https://127.0.0.1/": ("127.0.0.1", 443, "/", "127.0.0.1"),
    "https://[2606:2800:220:1:0:0:0:1]:8443/x": (
        "2606:2800:220:1::1",
        8443,
        "/x",
        "[2606:2800:220:1::1]:8443",
    ),
    "https://[::ffff:127.0.0.1]/": ("::ffff:7f00:1", 443, "/", "[::ffff:7f00:1]"),
    "https://bücher.example/": ("xn--bcher-kva.example", 443, "/", "xn--bcher-kva.example"),
    "https://BÜCHER.example/": ("xn--bcher-kva.example", 443, "/", "xn--bcher-kva.example"),
    "https://xn--bcher-kva.example/": (
        "xn--bcher-kva.example",
        443,
        "/",
        "xn--bcher-kva.example",
    ),
    "https://例え.テスト/": ("xn--r8jz45g.xn--zckzah", 443, "/", "xn--r8jz45g.xn--zckzah"),
    "https://1.example.com/": ("1.example.com", 443, "/", "1.example.com"),
    "https://example.com//double": ("example.com", 443, "//double", "example.com"),
    "https://example.com/../../etc": ("example.com", 443, "/../../etc", "example.com"),
}

REFUSED = [
    "",
    "https",
    "https:",
    "https:/",
    "https://",
    "https:///path",
    "https:example.com",
    "https:/example.com",
    "https:\\\\example.com",
    "http://example.com",
    "ftp://example.com",
    "file:///etc/passwd",
    "gopher://example.com",
    "javascript:alert(1)",
    "//example.com",
    "example.com",
    " https://example.com",
    "https://example.com ",
    "\thttps://example.com",
    "https://exa mple.com",
    "https://exa\tmple.com",
    "https://exa\nmple.com",
    "https://example.com/\r\nX-Injected: 1",
    "https://example.com/\x00",
    "https://example.com\x00.evil.test/",
    "https://example.com/a b",
    "https://example.com/a\\b",
    "https://example.com\\@evil.test/",
    "https://evil.test\\.example.com/",
    "https://user@example.com/",
    "https://user:pw@example.com/",
    "https://example.com@127.0.0.1/",
    "https://example.com:443@127.0.0.1/",
    "https://@example.com/",
    "https://example.com%40127.0.0.1/",
    "https://example.com#@127.0.0.1/",
    "https://example.com/#fragment",
    "https://example.com#",
    "https://example.com?x#y",
    "https://example.com:/",
    "https://example.com:0/",
    "https://example.com:00443/",
    "https://example.com:0443/",
    "https://example.com:65536/",
    "https://example.com:99999/",
    "https://example.com:-1/",
    "https://example.com:+443/",
    "https://example.com:44 3/",
    "https://example.com:443:443/",
    "https://example.com:https/",
    "https://example.com:४४३/",
    "https://.example.com/",
    "https://example..com/",
    "https://example.com./",
    "https://./",
    "https://-example.com/",
    "https://example-.com/",
    "https://exa_mple.com/",
    "https://exa%6Dple.com/",
    "https://%65xample.com/",
    "https://example.com%2f/",
    "https://exa*mple.com/",
    "https://exa'mple.com/",
    "https://exa|mple.com/",
    "https://{example}.com/",
    "https://" + "a" * 64 + ".com/",
    "https://" + ".".join(["a" * 60] * 5) + "/",
    "https://2130706433/",
    "https://0x7f000001/",
    "https://0X7F000001/",
    "https://0x7f.1/",
    "https://0x7f.0.0.1/",
    "https://0x/",
    "https://017700000001/",
    "https://0177.0.0.1/",
    "https://127.1/",
    "https://127.0.1/",
    "https://0/",
    "https://00/",
    "https://127.0.0.01/",
    "https://127.0.0.1./",
    "https://127.0.0.256/",
    "https://127.0.0.0.1/",
    "https://127.0.0.0x1/",
    "https://1.2.3/",
    "https://999999999999/",
    "https://example.1/",
    "https://①②⑦.⓪.⓪.①/",
    "https://１２７.０.０.１/",
    "https://127。0。0。1/",
    "https://127．0．0．1/",
    "https://example。com/",
    "https://ｅｘａｍｐｌｅ.com/",
    "https://exa\u00admple.com/",
    "https://exa\u200bmple.com/",
    "https://exa\u202emple.com/",
    "https://exam\u2215ple.com/",
    "https://ℂ.com/",
    "https://xn--/",
    "https://xn--a/",
    "https://xn--127-.com/",
    "https://[::1/",
    "https://::1/",
    "https://[]/",
    "https://[::1]x/",
    "https://[::1]:/",
    "https://[::1%25eth0]/",
    "https://[::1%eth0]/",
    "https://[fe80::1%25lo]/",
    "https://[127.0.0.1]/",
    "https://[::g]/",
    "https://[v1.x]/",
    "https://[::1].example.com/",
    "https://[[::1]]/",
    "https://2001:db8::1/",
    "https://example.com/é",
    "https://example.com/?q=ü",
    "https://example.com/%",
    "https://example.com/%2",
    "https://example.com/%zz",
    'https://example.com/"',
    "https://example.com/<",
    "https://example.com/`",
    "https://example.com/{}",
    "https://example.com/|",
    "https://example.com/^",
    "https://example.com/[x]",
    "https://example.com/" + "a" * MAX_URL_LENGTH,
    "https://" + "ü." * 120 + "example/",
]


@pytest.mark.parametrize("text", ACCEPTED)
def test_a_valid_url_is_taken_apart(text: str) -> None:
    url = parse_callback_url(text)
    assert (url.host, url.port, url.target, url.authority) == ACCEPTED[text]


@pytest.mark.parametrize("text", ACCEPTED)
def test_the_normal_form_reads_as_itself(text: str) -> None:
    url = parse_callback_url(text)
    assert parse_callback_url(str(url)) == url


@pytest.mark.parametrize("text", REFUSED)
def test_a_doubtful_url_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(UrlRefused) as refusal:
        parse_callback_url(text)
    assert refusal.value.message.endswith(".")


def test_an_address_literal_is_recognised() -> None:
    assert parse_callback_url("https://10.0.0.1/").address == ip_address("10.0.0.1")
    assert parse_callback_url("https://[::1]/").address == ip_address("::1")
    assert parse_callback_url("https://example.com/").address is None


def test_a_url_of_exactly_the_limit_is_accepted() -> None:
    text = "https://example.com/".ljust(MAX_URL_LENGTH, "a")
    assert str(parse_callback_url(text)) == text


@given(st.text(max_size=80))
def test_whatever_is_accepted_has_a_harmless_request_line(tail: str) -> None:
    try:
        url = parse_callback_url(f"https://{tail}")
    except UrlRefused:
        return
    sent = url.authority + url.target
    assert sent.isascii() and sent.isprintable() and " " not in sent and "\\" not in sent
    assert "@" not in url.authority and url.target.startswith("/")
