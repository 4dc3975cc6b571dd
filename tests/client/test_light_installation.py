"""`pip install surehook` without extras: a wheel of this tree in its own virtual environment.

The environment holds the wheel, what the wheel requires (copied from here: no network is needed),
and what a test adds as the application's own: a database driver, pytest, click.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
import venv
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from support import Configure
from support.api import ADMIN_KEY, FLAGS
from support.pipeline import running
from surehook.store.logins import DatabaseAccess

REPOSITORY = Path(__file__).parents[2]
APPLICATION = """
import json, ssl, sys, urllib.request
import psycopg  # the application's own
import surehook
from surehook import outbox, receive, testing

url, key, database = sys.argv[1:]
with surehook.Client(url, key) as client:
    published = client.publish("order.paid", {"order": 17}, external_id="order-17-paid")
    again = client.publish("order.paid", {"order": 17}, external_id="order-17-paid")
with psycopg.connect(database) as connection:
    outbox.publish(connection, "order.shipped", {"order": 17})
body = b'{"order": 17}'
headers = testing.signed_headers("whsec_" + "A" * 43 + "=", body, event_type="order.paid")
message = receive.verify(headers, body, "whsec_" + "A" * 43 + "=")
with testing.Receiver() as receiver:
    headers = testing.signed_headers(receiver.secret, body)
    request = urllib.request.Request(receiver.url, body, headers)
    trust = ssl.create_default_context(cafile=str(receiver.ca_file))
    status = urllib.request.urlopen(request, context=trust).status
    [arrival] = receiver.wait_for(1)
try:
    receive.verify(headers, body, "whpk_" + "A" * 43 + "=")
except ImportError as error:
    public_key = str(error)
print(json.dumps({
    "same": published.id == again.id and again.duplicate,
    "verified": message.event_type,
    "received": [status, arrival.json()],
    "public_key": public_key,
    "packages": sorted({name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names),
}))
"""
FIXTURE_TEST = """
def test_it(surehook_receiver):
    assert surehook_receiver.url.startswith("https://127.0.0.1:")
"""


class Environment:
    """A virtual environment with our wheel and nothing that the wheel does not ask for."""

    def __init__(self, directory: Path, wheel: Path) -> None:
        self.directory = directory
        venv.create(directory, with_pip=False)
        self.python = directory / "bin" / "python"
        found = run(self.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
        self._packages = Path(found.stdout.strip())
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", self.python)
        run(*pip, "install", "--quiet", "--no-index", "--no-deps", wheel)
        [installed] = distributions(name="surehook", path=[str(self._packages)])
        self.required = sorted(needed(installed))
        self.add(*self.required)
        run(*pip, "check")

    def add(self, *names: str) -> None:
        """Copy installed distributions and what they need."""
        for name in names:
            one = distribution(name)
            for file in one.files or ():
                goal = self._packages / file
                if ".." not in file.parts and not goal.exists():
                    goal.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(Path(str(one.locate_file(file))), goal)
            self.add(*needed(one))


def needed(one: Distribution) -> list[str]:
    """What it requires here, without extras."""
    wanted = [Requirement(line) for line in one.requires or ()]
    return [each.name for each in wanted if not each.marker or each.marker.evaluate({"extra": ""})]


def run(*command: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, cwd="/", check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    build = ("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index")
    run(sys.executable, "-m", "pip", *build, "--wheel-dir", directory, REPOSITORY)
    [built] = directory.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Environment:
    return Environment(tmp_path_factory.mktemp("light") / "venv", wheel)


async def test_client_outbox_receive_and_testing_work_without_the_packages_of_the_server(
    environment: Environment, configure: Configure, access: DatabaseAccess, owner: Any
) -> None:
    environment.add("psycopg", "psycopg-binary")
    async with running(configure(FLAGS), access, ("api",)) as system:
        assert system.api is not None
        process = await asyncio.create_subprocess_exec(
            *(environment.python, "-W", "error", "-c", APPLICATION),
            *(f"http://{system.api.address}", ADMIN_KEY, access.url),
            cwd="/",
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
    assert process.returncode == 0
    found = json.loads(output)
    packages = set(found.pop("packages"))
    assert found == {
        "same": True,
        "verified": "order.paid",
        "received": [200, {"order": 17}],
        "public_key": "checking a whpk_ key needs the package cryptography:"
        " pip install cryptography",
    }
    assert environment.required == ["httptools", "msgspec"]
    assert {"httptools", "msgspec", "psycopg", "surehook"} <= packages
    assert not packages & {"asyncpg", "asyncmy", "click", "cryptography", "rich", "uvicorn"}
    types = [row[0] for row in await owner.fetch("SELECT event_type FROM events ORDER BY id")]
    assert types == ["order.paid", "order.shipped"]


def test_the_pytest_fixture_needs_no_extra(environment: Environment, tmp_path: Path) -> None:
    environment.add("pytest")
    test = tmp_path / "test_it.py"
    test.write_text(FIXTURE_TEST)
    done = run(environment.python, "-m", "pytest", "-p", "no:cacheprovider", test)
    assert "1 passed" in done.stdout


def test_the_command_says_what_to_install(environment: Environment) -> None:
    command = environment.directory / "bin" / "surehook"
    for words in ((command,), (environment.python, "-m", "surehook", "serve")):
        done = run(*words, code=2)
        assert done.stdout == ""
        [line] = done.stderr.splitlines()
        assert line.startswith("surehook: The package click is not installed")
        assert line.endswith("Run: pip install 'surehook[server]'")
    environment.add("click")  # the application's own
    [line] = run(command, "doctor", code=2).stderr.splitlines()
    assert re.match("surehook: The package .* is not installed", line)
