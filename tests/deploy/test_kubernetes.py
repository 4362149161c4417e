"""The manifests fit the image, the service's settings and each other."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest

from app.cli import main
from app.settings import Settings
from tests.deploy.environments import (
    DEPLOY,
    IMAGE_ENTRYPOINT,
    IMAGE_ENVIRONMENT,
    IMAGE_PORT,
    IMAGE_USER,
    POSTGRES_URL,
    ROOT,
    documents,
    is_probe,
    settings_of,
)

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
MANIFESTS = {
    manifest["kind"]: manifest for file in (DEPLOY / "kubernetes").glob("*.yaml") for manifest in documents(str(file))
}
POD_IP = "10.1.2.3"
PODS = {kind: MANIFESTS[kind]["spec"]["template"] for kind in ("Deployment", "Job")}


def container(kind: str) -> dict[str, Any]:
    [only] = PODS[kind]["spec"]["containers"]
    assert isinstance(only, dict)
    return only


def settings(kind: str) -> Settings:
    said = dict(IMAGE_ENVIRONMENT)
    for each in container(kind)["env"]:
        value = each["value"] if "value" in each else looked_up(each["valueFrom"])
        said[each["name"]] = re.sub(r"\$\((\w+)\)", lambda name: said[name[1]], value)  # those before it alone
    return settings_of(said)


def looked_up(source: dict[str, Any]) -> str:
    match source:
        case {"secretKeyRef": {"name": "fairlane-database", "key": "url"}}:
            return POSTGRES_URL
        case {"fieldRef": {"fieldPath": "status.podIP"}}:
            return POD_IP
    raise LookupError(source)


@pytest.mark.parametrize("kind", PODS)
def test_a_pod_runs_the_image_of_this_version_as_its_user(kind: str) -> None:
    assert container(kind)["image"] == f"fairlane:{VERSION}"
    context = PODS[kind]["spec"]["securityContext"]
    assert f"{context['runAsUser']}:{context['runAsGroup']}" == IMAGE_USER
    assert context["runAsNonRoot"] is True
    assert container(kind)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_server_asks_for_keys_where_the_whole_cluster_reaches_it() -> None:
    found = settings("Deployment")
    assert (found.host, found.keys) == ("0.0.0.0", "required")  # noqa: S104 - a pod's own
    assert found.database_url == POSTGRES_URL
    assert "args" not in container("Deployment")
    assert str(found.port) == IMAGE_PORT
    assert container("Deployment")["ports"] == [{"name": "http", "containerPort": found.port}]


@pytest.mark.parametrize("name", ["startupProbe", "livenessProbe", "readinessProbe"])
def test_a_probe_asks_what_is_answered_without_a_key(name: str) -> None:
    probe = container("Deployment")[name]
    assert probe["httpGet"]["port"] == "http"
    assert is_probe(probe["httpGet"]["path"])
    assert ("/health/ready" in probe["httpGet"]["path"]) == (name == "readinessProbe")
    assert probe["timeoutSeconds"] >= 3  # as long as a request waits for a silent database


def test_a_pod_has_time_to_end() -> None:
    [_, pause] = container("Deployment")["lifecycle"]["preStop"]["exec"]["command"]
    grace = PODS["Deployment"]["spec"]["terminationGracePeriodSeconds"]
    assert grace >= int(pause) + settings("Deployment").shutdown_grace_sec + 10
    ready = container("Deployment")["readinessProbe"]
    assert int(pause) > ready["periodSeconds"] * ready["failureThreshold"]


def test_the_service_leads_to_the_servers_and_not_to_the_migration() -> None:
    selector = MANIFESTS["Service"]["spec"]["selector"].items()
    assert selector <= PODS["Deployment"]["metadata"]["labels"].items()
    assert not selector <= PODS["Job"]["metadata"]["labels"].items()
    assert MANIFESTS["Deployment"]["spec"]["selector"]["matchLabels"] == PODS["Deployment"]["metadata"]["labels"]
    assert [port["targetPort"] for port in MANIFESTS["Service"]["spec"]["ports"]] == ["http"]


def test_the_job_migrates() -> None:
    assert IMAGE_ENTRYPOINT == '["fairlane"]'
    group, command = container("Job")["args"]
    assert command in main.commands[group].commands  # type: ignore[attr-defined] # it is a group
    assert settings("Job").database_url == POSTGRES_URL


def test_a_replica_says_where_the_others_reach_it() -> None:
    assert settings("Deployment").shown()["FAIRLANE_ADVERTISE"] == f"{POD_IP}:{IMAGE_PORT}"


def test_there_is_always_a_replica_that_serves() -> None:
    spec = MANIFESTS["Deployment"]["spec"]
    assert spec["replicas"] >= 2
    assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    budget = MANIFESTS["PodDisruptionBudget"]["spec"]
    assert budget["maxUnavailable"] < spec["replicas"]
    assert budget["selector"] == spec["selector"]
