"""The chart renders in every way that its values offer, to objects that Kubernetes would take."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from support import helm

pytestmark = pytest.mark.long

KNOWN = "existingSecret=surehook"
MONITORED = (
    "serviceMonitor.enabled=true",
    "prometheusRule.enabled=true",
    "grafanaBoard.enabled=true",
)
WAYS: dict[str, tuple[str, ...]] = {
    "all": (KNOWN,),
    "split": (KNOWN, "mode=split"),
    "own secret": (
        "secrets.databaseUrl=postgresql://o@h/d",
        "secrets.roleSecret=0123456789abcdef",
        "secrets.encryptionKey=0123456789abcdef0123456789abcdef",
        "secrets.adminKey=0123456789abcdef01234567",
    ),
    "scaled": (KNOWN, "mode=split", "autoscaling.enabled=true", "autoscaling.oldestDueSeconds=30"),
    "monitored": (KNOWN, *MONITORED),
    "published": (KNOWN, "ingress.enabled=true", "ingress.tlsSecret=t", "ingress.className=nginx"),
    "bare": (
        KNOWN,
        "migrate.enabled=false",
        "networkPolicy.enabled=false",
        "podDisruptionBudget.enabled=false",
        "caConfigMap=ca",
        "config.SUREHOOK_RETRY_PRESET=durable",
    ),
}


@pytest.fixture(autouse=True, scope="module")
def _helm() -> None:
    if helm.helm() is None:
        pytest.skip("NOT SHOWN: that the chart renders (no helm, and no Go to build it)")


def objects(way: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(helm.rendered(*WAYS[way])) if one]


def of_kind(way: str, kind: str) -> list[dict[str, Any]]:
    return [one for one in objects(way) if one["kind"] == kind]


def test_helm_finds_nothing_wrong() -> None:
    done = helm.run("lint", "--strict", str(helm.CHART), "--set", KNOWN)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("way", WAYS)
def test_every_object_fits_the_schemas_of_kubernetes(way: str, tmp_path: Path) -> None:
    validator = helm.validator()
    if validator is None:
        pytest.skip("NOT SHOWN: that Kubernetes takes the chart (no kubernetes-validate)")
    # The operator's own kinds have no schema there.
    ours = [one for one in objects(way) if not one["apiVersion"].startswith("monitoring.")]
    (tmp_path / "objects.yaml").write_text(yaml.safe_dump_all(ours))
    done = subprocess.run(
        [validator, "--strict", "-k", helm.KUBERNETES, str(tmp_path / "objects.yaml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("way", WAYS)
def test_every_pod_is_restricted(way: str) -> None:
    pods = [
        one["spec"]["template"]["spec"]
        for one in objects(way)
        if one["kind"] in ("Deployment", "Job")
    ]
    assert pods
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"] and not pod["automountServiceAccountToken"]
        [container] = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert not [one for one in container["env"] if "secretKeyRef" in str(one)]


def test_split_runs_each_component_in_one_deployment_and_serves_the_api_from_one() -> None:
    deployments = of_kind("split", "Deployment")
    args = [one["spec"]["template"]["spec"]["containers"][0]["args"] for one in deployments]
    assert sorted(words[2].split(",")[0] for words in args) == ["api", "verifier", "worker"]
    [service] = [
        one for one in of_kind("split", "Service") if one["metadata"]["name"] == "x-surehook"
    ]
    assert service["spec"]["selector"]["app.kubernetes.io/component"] == "api"


def test_the_migration_runs_before_the_pods_and_after_its_secret() -> None:
    [job], [secret] = of_kind("own secret", "Job"), of_kind("own secret", "Secret")
    hooks = [one["metadata"]["annotations"] for one in (secret, job)]
    assert all(one["helm.sh/hook"] == "pre-install,pre-upgrade" for one in hooks)
    assert int(hooks[0]["helm.sh/hook-weight"]) < int(hooks[1]["helm.sh/hook-weight"])


def test_the_workers_grow_with_the_oldest_due_delivery() -> None:
    [scaler] = of_kind("scaled", "HorizontalPodAutoscaler")
    assert scaler["spec"]["scaleTargetRef"]["name"] == "x-surehook-worker"
    assert (
        scaler["spec"]["metrics"][1]["external"]["metric"]["name"]
        == "surehook_backlog_oldest_seconds"
    )
    worker = [
        one for one in of_kind("scaled", "Deployment") if one["metadata"]["name"].endswith("worker")
    ]
    assert "replicas" not in worker[0]["spec"]


def test_rules_and_board_are_those_of_deploy() -> None:
    [rule], [board] = of_kind("monitored", "PrometheusRule"), of_kind("monitored", "ConfigMap")
    deploy = helm.CHART.parents[1]
    assert rule["spec"] == yaml.safe_load((deploy / "prometheus" / "alerts.yml").read_text())
    shipped = (deploy / "grafana" / "boards" / "surehook.json").read_text()
    assert board["data"]["surehook.json"] == shipped


def test_without_secrets_the_chart_says_what_is_missing() -> None:
    done = helm.run("template", "x", str(helm.CHART), "--kube-version", helm.KUBERNETES)
    assert done.returncode != 0 and "surehook init" in done.stderr
