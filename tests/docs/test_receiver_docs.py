"""The documents' own examples: what a reader copies works."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from surehook.delivery.challenge import answer_proves, challenge_body, new_challenge, new_code
from surehook.delivery.signature import new_shared_secret, signed_headers
from surehook.receive import challenge_response

DOCS = Path(__file__).parents[2] / "docs"


def block(page: str, language: str) -> str:
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.search(rf"```{language}\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return found[1]


def run_node(code: str, given: Mapping[str, object]) -> str:
    node = shutil.which("node")
    if node is None:
        pytest.skip("NOT SHOWN: the JavaScript examples (no node)")
    result = subprocess.run(
        [node, "-e", code, json.dumps(given)], capture_output=True, text=True, check=True
    )
    return result.stdout.strip()


@pytest.mark.parametrize("changed", [False, True])
def test_the_javascript_example_tells_genuine_from_changed(changed: bool) -> None:
    secret, body = new_shared_secret(), b'{"a":"\xc3\xbc"}'
    headers = dict(signed_headers([secret], "msg_1_2", int(time.time()), body, "a.b"))
    given = {"headers": headers, "secret": secret.reveal(), "body": body.decode() + " " * changed}
    code = block("signatures.md", "javascript") + (
        "const given = JSON.parse(process.argv[1]);"
        "console.log(isGenuine(given.headers, Buffer.from(given.body), given.secret));"
    )
    assert run_node(code, given) == ("false" if changed else "true")


def test_the_javascript_example_answers_the_challenge() -> None:
    secret, challenge = new_shared_secret().reveal(), new_challenge()
    given = {
        "headers": {"webhook-id": "vrf_1_x"},
        "secret": secret,
        "body": challenge_body(challenge, new_code()).decode(),
    }
    code = block("verification.md", "javascript") + (
        "const given = JSON.parse(process.argv[1]);"
        "console.log(answerChallenge(given.headers, given.body, given.secret));"
    )
    assert answer_proves(run_node(code, given).encode(), challenge, [secret])


def test_the_known_value_of_the_page_is_right() -> None:
    response = challenge_response("A" * 43, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    assert f"`{response}`" in (DOCS / "verification.md").read_text(encoding="utf-8")
