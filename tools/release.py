"""`make release`: what is published, built twice and tried as a stranger would.

Reads   the last commit, requirements.lock
Writes  dist/: the wheel, the sdist, sbom.cdx.json, SHA256SUMS

1. Wheel and sdist are built from the last commit in two directories, and must be the same bytes.
2. In a new virtual environment the wheel alone is the light client: no package of the server.
3. In another one, with the locked packages, `surehook dev` delivers a webhook and ends well.
4. The bill of materials (CycloneDX) names every locked package with its hashes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[1]
DIST = REPOSITORY / "dist"
LOCK = REPOSITORY / "requirements.lock"
DEV_SECONDS = 120
_LOCKED = re.compile(r"^([\w.-]+)==([^\s;\\]+)((?:.*\\\n\s+--hash=\S+)+)", re.MULTILINE)
# What only servers install: in the light client each must be missing.
SERVER_ONLY = ("asyncpg", "asyncmy", "click", "cryptography", "pycares", "prometheus_client")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="surehook-release-") as name:
        work = Path(name)
        wheel, sdist = built_twice(work)
        print(f"same bytes twice: {wheel.name}, {sdist.name}")
        print(f"light client: {light_client(work / 'light', wheel)}")
        print(f"server: {server(work / 'server', wheel)}")
        publish(wheel, sdist)
    for file in sorted(DIST.iterdir()):
        print(f"dist/{file.name}  {file.stat().st_size:,} bytes")
    return 0


# ── Build ─────────────────────────────────────────────────────────────────────────────────────


def built_twice(work: Path) -> tuple[Path, Path]:
    first, second = (build(work / f"build{number}") for number in (1, 2))
    for one, other in zip(first, second, strict=True):
        if one.read_bytes() != other.read_bytes():
            raise SystemExit(f"{one.name} differs from build to build.")
    return first


def build(directory: Path) -> tuple[Path, Path]:
    """Of the last commit, without what lies about in the working tree."""
    source = directory / "source"
    source.mkdir(parents=True)
    packed = directory / "source.tar"
    run("git", "archive", "--output", str(packed), "HEAD", cwd=REPOSITORY)
    with tarfile.open(packed) as archive:
        archive.extractall(source, filter="data")
    run(sys.executable, "-m", "hatchling", "build", "-d", str(directory / "dist"), cwd=source)
    [wheel] = (directory / "dist").glob("*.whl")
    [sdist] = (directory / "dist").glob("*.tar.gz")
    return wheel, sdist


# ── Try ───────────────────────────────────────────────────────────────────────────────────────


def light_client(home: Path, wheel: Path) -> str:
    """An application's installation: two packages, and an import that costs little."""
    pip = environment(home)
    run(*pip, "install", "--quiet", str(wheel))
    probe = (
        "import time; began = time.perf_counter(); import surehook; surehook.Client;"
        "import surehook.outbox, surehook.receive, surehook.testing;"
        "print(round((time.perf_counter() - began) * 1000))"
    )
    milliseconds = run(str(home / "bin" / "python"), "-c", probe).strip()
    for package in SERVER_ONLY:
        found = subprocess.run(
            [home / "bin" / "python", "-c", f"import {package}"], capture_output=True, check=False
        )
        if found.returncode == 0:
            raise SystemExit(f"The client alone brings {package}.")
    said = subprocess.run(
        [home / "bin" / "surehook"], capture_output=True, text=True, check=False
    ).stderr
    if "surehook[server]" not in said:
        raise SystemExit(f"The command without its packages says: {said}")
    listed = json.loads(run(*pip, "list", "--format=json"))
    return f"{len(listed) - 2} packages, imported in {milliseconds} ms"


def server(home: Path, wheel: Path) -> str:
    """The locked packages, and a first webhook from `surehook dev`."""
    pip = environment(home)
    run(*pip, "install", "--quiet", "--require-hashes", "--no-deps", "-r", str(LOCK))
    run(*pip, "install", "--quiet", "--no-deps", str(wheel))
    run(*pip, "check")
    version = run(str(home / "bin" / "surehook"), "--version").strip()
    return f"{version}; a first webhook after {first_webhook(home):.1f} s"


def first_webhook(home: Path) -> float:
    data = Path(tempfile.mkdtemp(prefix="surehook-release-data-"))
    data.chmod(0o755)  # as root its server runs as another user
    env = {name: value for name, value in os.environ.items() if "SUREHOOK" not in name}
    env |= {"XDG_STATE_HOME": str(data / "state"), "PYTHONUNBUFFERED": "1"}
    env |= {"SUREHOOK_LISTEN": "127.0.0.1:0"}
    began = time.monotonic()
    command = [str(home / "bin" / "surehook"), "dev", "--data-dir", str(data / "data")]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    try:
        signal.alarm(DEV_SECONDS)  # ends us, and the line below with us, if nothing comes
        assert process.stdout is not None
        said = next((line for line in process.stdout if "delivered" in line.lower()), None)
        if said is None:
            raise SystemExit("`surehook dev` delivered nothing.")
        took = time.monotonic() - began
        process.send_signal(signal.SIGINT)
        process.communicate()
        signal.alarm(0)
        if process.returncode not in (0, 130):
            raise SystemExit(f"`surehook dev` ended with {process.returncode}.")
        return took
    finally:
        process.kill()
        shutil.rmtree(data, ignore_errors=True)


def environment(home: Path) -> tuple[str, ...]:
    venv.create(home, with_pip=True)
    return (str(home / "bin" / "python"), "-m", "pip", "--disable-pip-version-check")


def run(*command: str, cwd: Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


# ── Write down ────────────────────────────────────────────────────────────────────────────────


def publish(wheel: Path, sdist: Path) -> None:
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    for file in (wheel, sdist):
        shutil.copy(file, DIST)
    version = wheel.name.split("-")[1]
    bill = json.dumps(bill_of_materials(LOCK.read_text(encoding="utf-8"), version), indent=2)
    (DIST / "sbom.cdx.json").write_text(bill + "\n", encoding="utf-8")
    files = sorted(DIST.iterdir())
    sums = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (DIST / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")


def bill_of_materials(lock: str, version: str) -> dict[str, Any]:
    """CycloneDX 1.6. Without time and serial number: the same lock gives the same bytes."""
    own = f"pkg:pypi/surehook@{version}"
    components = list(locked(lock))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "surehook",
                "version": version,
                "purl": own,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": components,
        "dependencies": [{"ref": own, "dependsOn": [one["bom-ref"] for one in components]}],
    }


def locked(lock: str) -> Iterator[dict[str, Any]]:
    """Each package of the lock; of its files any may be installed, so all hashes are named."""
    for name, version, rest in _LOCKED.findall(lock):
        purl = f"pkg:pypi/{name.lower()}@{version}"
        hashes = re.findall(r"--hash=sha256:([0-9a-f]{64})", rest)
        yield {
            "type": "library",
            "bom-ref": purl,
            "name": name,
            "version": version,
            "purl": purl,
            "properties": [{"name": "surehook:sha256", "value": one} for one in sorted(hashes)],
        }


if __name__ == "__main__":
    sys.exit(main())
