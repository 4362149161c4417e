"""The manifests fit the image, the service's settings and each other."""

from __future__ import annotations

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
PODS = {kind: MANIFESTS[kind]["spec"]["template"] for kind in ("Deployment", "Job")}


def container(kind: str) -> dict[str, Any]:
    [only] = PODS[kind]["spec"]["containers"]
    assert isinstance(only, dict)
    return only


def settings(kind: str) -> Settings:
    secret = {"secretKeyRef": {"name": "fairlane-database", "key": "url"}}
    said = dict(IMAGE_ENVIRONMENT)
    for each in container(kind)["env"]:
        said[each["name"]] = each.get("value", POSTGRES_URL)
        assert "value" in each or each["valueFrom"] == secret
    return settings_of(said)


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


def test_as_many_servers_as_may_work_on_one_database() -> None:
    assert MANIFESTS["Deployment"]["spec"]["replicas"] == 1
    assert MANIFESTS["Deployment"]["spec"]["strategy"] == {"type": "Recreate"}
