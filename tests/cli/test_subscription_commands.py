"""`surehook subscription …`: from creation to a verified, tested endpoint."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support import Configure
from support.commands import SENDING, Command, commands
from support.receiver import Answer, ReceivedRequest, Receiver
from support.rows import a_subscription, an_event
from surehook import receive
from surehook.delivery.signature import new_shared_secret
from surehook.model.error_codes import ErrorCode
from surehook.store.logins import DatabaseAccess

with_verifier = pytest.mark.parametrize("components", [("verifier",)], ids=["verifier"])
SECRET = new_shared_secret().reveal()
URL = "https://shop.example/hook"


def proves(secret: str) -> Callable[[ReceivedRequest], Answer]:
    def answer(request: ReceivedRequest) -> Answer:
        message = receive.verify(request.headers, request.body, secret)
        return Answer(body=receive.answer_challenge(message) or b"")

    return answer


async def test_a_subscription_is_created_shown_changed_and_switched(command: Command) -> None:
    made = await command(
        *("subscription", "create", "order.paid", URL, "--tenant", "acme", "--max-attempts", "3"),
        *("--base-delay-seconds", "0.5", "--custom-header", "X-Shop: 4711", "--inactive"),
    )
    facts = made.facts()
    assert made.code == 0 and re.fullmatch(r"whsec_[A-Za-z0-9+/=]+", facts["secret"])
    assert (facts["active"], facts["verified"], facts["max_attempts"]) == ("no", "no", "3")
    assert facts["custom_header_names"] == "X-Shop" and "4711" not in made.out
    assert "surehook subscription verify" in made.err

    shown = await command("subscription", "show", facts["id"])
    assert shown.facts()["tenant"] == "acme" and "whsec_" not in shown.out
    changed = await command(
        *("subscription", "update", facts["id"], "--max-attempts", "7", "--description", "Shop"),
        *("--clear", "base_delay_seconds", "--clear", "custom_headers", "--json"),
    )
    fields = changed.json()
    assert (fields["max_attempts"], fields["description"]) == (7, "Shop")
    assert fields["base_delay_seconds"] is None and fields["custom_header_names"] is None
    assert "secret" not in fields

    enabled = await command("subscription", "enable", facts["id"])
    assert enabled.out == f"subscription {facts['id']} is enabled\n"
    assert "Nothing is delivered before" in enabled.err
    disabled = await command("subscription", "disable", facts["id"], "--json")
    assert disabled.json()["active"] is False


async def test_what_disabling_ends_and_enabling_does_not_bring_back_is_said(
    command: Command, owner: Any
) -> None:
    number = str(await a_subscription(owner))
    disabled = await command("subscription", "disable", number)
    await an_event(owner)
    assert "no event that is published from now on, not even after it is enabled" in disabled.err
    assert "What waited to be delivered or retried becomes dead letters." in disabled.err
    enabled = await command("subscription", "enable", number)
    assert "what was published while it was disabled is not delivered" in enabled.err
    assert "1 event of order.paid, from " in enabled.err
    assert "surehook event list --event-type order.paid --created-from " in enabled.err
    requeue = f"--subscription-id {number} --error-code SUBSCRIPTION_INACTIVE"
    assert f"`surehook dead-letter requeue {requeue}` delivers what was waiting" in enabled.err
    help_of_disable = (await command("subscription", "disable", "--help")).out
    assert "this is not a pause" in help_of_disable and "dead letters" in help_of_disable


async def test_json_of_a_new_subscription_holds_its_secret(command: Command) -> None:
    arguments = ("subscription", "create", "order.paid", URL, "--json")
    made = (await command(*arguments, "--secret", "-", stdin=SECRET.encode() + b"\n")).json()
    assert made["secret"] == SECRET and made["active"] is True and "public_key" not in made
    asymmetric = (await command(*arguments, "--signature", "v1a")).json()
    assert asymmetric["public_key"].startswith("whpk_")


async def test_subscriptions_are_listed_by_filter(command: Command, owner: Any) -> None:
    first = await a_subscription(owner, event_type="a", active=False)
    second = await a_subscription(owner, event_type="b", tenant="acme", verified=False)
    listed = (await command("subscription", "list")).rows()
    assert [row[0] for row in listed] == [str(second), str(first)]
    assert listed[0][3:6] == ["acme", "yes", "no"]
    for option, wanted in (
        ("--active", second),
        ("--inactive", first),
        ("--verified", first),
        ("--unverified", second),
    ):
        found = (await command("subscription", "list", option, "--json")).lines()
        assert [one["id"] for one in found] == [wanted]


async def test_a_rotated_secret_is_shown_once(command: Command, owner: Any) -> None:
    number = str(await a_subscription(owner))
    done = await command("subscription", "rotate-secret", number, "--overlap-seconds", "60")
    assert done.facts()["secret"].startswith("whsec_") and "not shown again" in done.err
    given = await command(
        "subscription", "rotate-secret", number, "--secret", "-", "--json", stdin=SECRET.encode()
    )
    assert given.json()["secret"] == SECRET and given.json()["old_secrets_expire_at"]


async def test_a_rotated_key_pair_shows_its_public_key_and_leaves_the_secret_alone(
    command: Command, owner: Any
) -> None:
    made = await command("subscription", "create", "order.paid", URL, "--signature", "v1,v1a")
    number = made.facts()["id"]
    done = await command("subscription", "rotate-secret", number, "--signature", "v1a")
    assert done.code == 0 and done.out.startswith(
        f"subscription {number} signs with a new key pair"
    )
    assert done.facts()["public_key"].startswith("whpk_") and "secret" not in done.facts()
    assert done.facts()["public_key"] != made.facts()["public_key"]
    assert "public key" in done.err and "not shown again" not in done.err
    live = await owner.fetch(
        "SELECT scheme, count(*) FROM subscription_secrets WHERE expires_at IS NULL GROUP BY scheme"
    )
    assert sorted(map(tuple, live)) == [("v1", 1), ("v1a", 1)]
    refused = await command(
        *("subscription", "rotate-secret", number, "--signature", "v1a", "--secret", SECRET)
    )
    assert refused.code == 2 and "made by the server" in refused.err


WRONG = (
    (["create", "order paid", URL], "event_type"),
    (["create", "order.paid", "http://shop.example"], "callback_url"),
    (["create", "order.paid", URL, "--custom-header", "nonsense"], "looks like"),
    (["create", "order.paid", URL, "--max-attempts", "0"], "max_attempts"),
    (["create", "order.paid", URL, "--secret", "-"], "no secret on standard input"),
    (["create", "order.paid"], "CALLBACK_URL"),
    (["update", "1"], "nothing to change"),
    (["update", "1", "--max-attempts", "2", "--clear", "max_attempts"], "given and cleared"),
    (["verify", "1", "--code", "X", "--wait", "1"], "--wait waits for a challenge"),
    (["verify", "1", "--wait", "31"], "--wait"),
    (["verify", "{id}", "--code", "7QXM-2KPA-9DTR"], "code"),
    (["test", "{id}", "{"], "not JSON"),
)


async def test_wrong_input_is_exit_2_and_names_what_is_wrong(command: Command, owner: Any) -> None:
    number = str(await a_subscription(owner, verified=False))
    for arguments, said in WRONG:
        given = [argument.replace("{id}", number) for argument in arguments]
        done = await command("subscription", *given)
        assert (done.code, done.out) == (2, ""), (given, done)
        assert said in done.err and "Traceback" not in done.err
    assert await owner.fetchval("SELECT count(*) FROM subscriptions") == 1


# ── Endpoints ─────────────────────────────────────────────────────────────────────────────────


@with_verifier
async def test_an_endpoint_that_proves_itself_is_verified_while_one_waits(
    command: Command, owner: Any
) -> None:
    async with Receiver() as receiver:
        receiver.answer_with("/good", proves(SECRET))
        receiver.script("/bad", Answer(status=410, body=b"gone"))
        good, bad = [
            str(await a_subscription(owner, callback_url=url, verified=False, secret=SECRET))
            for url in (f"{receiver.url}/good", f"{receiver.url}/bad")
        ]
        done = await command("subscription", "verify", good, "--wait", "20")
        assert (done.code, done.out) == (0, f"subscription {good} is verified\n"), done.err
        failed = await command("subscription", "verify", bad, "--wait", "20", "--json")
        assert failed.code == 1 and failed.json()["verified_at"] is None
        assert f"Subscription {bad} is not verified: " in failed.err

        code = json.loads(next(r.body for r in receiver.requests if r.path == "/bad"))["code"]
        confirmed = await command("subscription", "verify", bad, "--code", code)
        assert (confirmed.code, confirmed.out) == (0, f"subscription {bad} is verified\n")

        tested = await command("subscription", "test", good, '{"n":  1}')
        assert tested.code == 0 and tested.out.startswith("delivered: 200 after ")
        assert receiver.requests[-1].body == b'{"n":  1}'
        refused = await command("subscription", "test", bad, "--json")
        assert refused.code == 1 and "The endpoint did not take it" in refused.err
        assert (refused.json()["delivered"], refused.json()["response_status"]) == (False, 410)


@with_verifier
async def test_a_staged_url_is_named_where_it_is_tested_or_fails_to_prove_itself(
    command: Command, owner: Any
) -> None:
    async with Receiver() as receiver:
        receiver.script("/new", Answer(status=410), Answer(status=204))
        number = str(await a_subscription(owner, callback_url=URL, secret=SECRET))
        new = f"{receiver.url}/new"
        assert (await command("subscription", "update", number, "--callback-url", new)).code == 0
        failed = await command("subscription", "verify", number, "--wait", "20")
        assert failed.code == 1 and f"The new URL {new} is not verified yet: " in failed.err
        assert f"The old one is still used: {URL}" in failed.err
        tested = await command("subscription", "test", number)
        assert tested.code == 0 and tested.facts()["callback_url"] == new


async def test_a_test_that_could_not_be_sent_says_so_and_why(command: Command, owner: Any) -> None:
    number = await a_subscription(owner, callback_url="https://127.0.0.1:1/hook")
    refused = await command("subscription", "test", str(number))
    assert refused.code == 1 and "Nothing was sent: CONNECT_FAILED, 127.0.0.1: " in refused.err
    assert ErrorCode.CONNECT_FAILED.advice in refused.err
    await owner.execute("UPDATE subscription_secrets SET sealed = 'nonsense'")
    unsealed = await command("subscription", "test", str(number))
    assert unsealed.code == 1 and "Nothing was sent: SECRET_UNAVAILABLE, " in unsealed.err


async def test_of_a_trusted_origin_it_is_said_that_it_is_verified_without_a_command(
    configure: Configure, access: DatabaseAccess, tmp_path: Path
) -> None:
    """No verifier runs: what is under way stays so."""
    trusted = {**SENDING, "verification.trusted": ["https://own.example"]}
    async with commands(configure(trusted), access, home=str(tmp_path)) as command:
        made = await command("subscription", "create", "order.paid", "https://own.example/hook")
        number = made.facts()["id"]
        enabled = await command("subscription", "enable", number)
        for done in (made, enabled):
            assert "It is being verified" in done.err and "verification.trusted" in done.err
            assert "subscription verify" not in done.err
        moved = await command("subscription", "update", number, "--callback-url", URL)
        assert "being verified" not in moved.err
        other = await command("subscription", "create", "order.paid", URL)
        assert "Nothing is delivered before `surehook subscription verify 2`.\n" in other.err
        assert "being verified" not in other.err


async def test_a_new_url_of_a_trusted_origin_needs_no_command_either(
    configure: Configure, access: DatabaseAccess, owner: Any, tmp_path: Path
) -> None:
    trusted = {**SENDING, "verification.trusted": ["https://own.example"]}
    number = str(await a_subscription(owner, callback_url=URL))
    async with commands(configure(trusted), access, home=str(tmp_path)) as command:
        update = ("subscription", "update", number, "--callback-url")
        own = await command(*update, "https://own.example/hook")
        assert own.err == "The new URL is being verified; the old one is used until then.\n"
        foreign = await command(*update, "https://other.example/hook")
        assert (
            foreign.err == f"The new URL is used after `surehook subscription verify {number}`.\n"
        )


async def test_without_waiting_a_challenge_is_only_announced(command: Command, owner: Any) -> None:
    number = str(await a_subscription(owner, callback_url=URL, verified=False))
    done = await command("subscription", "verify", number)
    assert (done.code, done.out) == (0, f"the verification of {URL} has begun\n")
    assert f"surehook subscription show {number}" in done.err
    shown = await command("subscription", "show", number)
    assert "Newest verification" in shown.out
    assert (await command("subscription", "verify", "99")).code == 1
