"""docker-compose.yml fits the image and the service's settings."""

from __future__ import annotations

import re

import yaml  # type: ignore[import-untyped]

from tests.deploy.environments import DEPLOY, IMAGE_PORT, IMAGE_PROBED, ROOT, is_probe, settings_of

HAPROXY = (DEPLOY / "haproxy" / "haproxy.cfg").read_text()
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
PROXY = COMPOSE["services"]["proxy"]
SERVERS = {name: service for name, service in COMPOSE["services"].items() if "build" in service}


def test_a_server_takes_what_it_is_told() -> None:
    assert SERVERS
    for service in SERVERS.values():
        said = {name: re.sub(r"\$\{\w+:\?[^}]*\}", "secret", value) for name, value in service["environment"].items()}
        found = settings_of(said)
        assert found.database_url == "postgresql://fairlane:secret@postgres/fairlane"
        assert int(service["stop_grace_period"].removesuffix("s")) >= found.shutdown_grace_sec + 10


def test_the_others_reach_a_replica_by_its_name() -> None:
    for name, service in SERVERS.items():
        assert service["environment"]["FAIRLANE_ADVERTISE"] == f"{name}:{IMAGE_PORT}"


def test_the_proxy_stands_before_all_replicas() -> None:
    assert list(PROXY["environment"]) == re.findall(r'server \w+ "\$\{(\w+)\}"', HAPROXY)
    assert list(PROXY["environment"].values()) == [f"{name}:{IMAGE_PORT}" for name in SERVERS]
    assert PROXY["volumes"][0].split(":")[0] == "./deploy/haproxy/haproxy.cfg"
    assert "bind :8080" in HAPROXY


def test_only_the_first_server_is_there_without_a_profile() -> None:
    assert [name for name in SERVERS if "profiles" not in SERVERS[name]] == ["fairlane"]
    for service in COMPOSE["services"].values():
        assert service.get("profiles", ["replicas"]) == ["replicas"]


def test_what_asks_for_no_keys_is_published_to_this_machine_alone() -> None:
    for service in COMPOSE["services"].values():
        for port in service.get("ports", []):
            address, _, inside = port.split(":")
            assert (address, inside) == ("127.0.0.1", IMAGE_PORT)


def test_the_image_is_asked_for_its_health_where_it_says_it() -> None:
    assert [is_probe(path) for path in IMAGE_PROBED] == [True]


def test_everybody_who_is_waited_for_is_there() -> None:
    for service in COMPOSE["services"].values():
        for name, how in service.get("depends_on", {}).items():
            assert name in COMPOSE["services"]
            assert how["condition"] != "service_healthy" or "healthcheck" in COMPOSE["services"][name]
