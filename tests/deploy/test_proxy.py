"""The proxy's configuration fits what the service promises, and where it is installed the proxy takes it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import get_args

import pytest

from app.api.fields import WaitSec
from app.api.stream import QUIET_SEC
from tests.deploy.environments import DEPLOY, ROOT, is_probe

CONFIG = DEPLOY / "haproxy" / "haproxy.cfg"
SAID = CONFIG.read_text()
SERVERS = re.findall(r'server \w+ "\$\{(\w+)\}"', SAID)


def seconds(name: str) -> int:
    [value] = re.findall(rf"^ +timeout {name} (\d+)s", SAID, re.MULTILINE)
    return int(value)


def test_it_asks_for_health_where_the_service_says_it() -> None:
    [path] = re.findall(r"http-check send meth GET uri (\S+)", SAID)
    assert path == "/health/ready"
    assert is_probe(path)


def test_it_waits_longer_than_a_claim_and_a_silent_stream() -> None:
    for side in ("client", "server"):
        assert seconds(side) > get_args(WaitSec)[1].le + 10
        assert seconds(side) > 2 * QUIET_SEC


def test_it_bounds_who_is_slow() -> None:
    assert seconds("http-request") <= 10
    assert "option http-buffer-request" in SAID


def test_its_own_errors_are_json() -> None:
    for status in ("400", "408", "502", "503", "504"):
        [line] = re.findall(rf"^ +http-error status {status} (.*)$", SAID, re.MULTILINE)
        assert "content-type application/json" in line
        assert ("Retry-After 1" in line) == (status >= "500")


@pytest.mark.skipif(
    shutil.which("haproxy") is None, reason="haproxy is not installed: its configuration is read, but not tried"
)
def test_haproxy_takes_it() -> None:
    environ = {**os.environ, **{name: f"127.0.0.1:{port}" for port, name in enumerate(SERVERS, 8081)}}
    checked = subprocess.run(
        ["haproxy", "-c", "-f", str(CONFIG)], env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert checked.returncode == 0, checked.stderr
    assert "[WARNING]" not in checked.stderr


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed: what docs/ say to it is not tried")
def test_nginx_takes_what_the_page_says(tmp_path: Path) -> None:
    [said] = re.findall(r"```nginx\n(.*?)```", (ROOT / "docs" / "deployment.md").read_text(), re.DOTALL)
    said = re.sub(r"\blisten 443 ssl;", "listen 127.0.0.1:18443;", said)  # a certificate is the reader's own
    config = tmp_path / "nginx.conf"
    config.write_text(f"pid {tmp_path}/pid;\nerror_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n{said}\n}}\n")
    checked = subprocess.run(
        ["nginx", "-t", "-c", str(config)], capture_output=True, text=True, timeout=60, check=False
    )
    assert checked.returncode == 0, checked.stderr
    assert "[warn]" not in checked.stderr
