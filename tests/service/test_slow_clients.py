"""Clients that do not take what they have asked for."""

from __future__ import annotations

import errno
import socket
import sys

import pytest

from app import main
from app.settings import read_settings
from tests.served import PATIENCE_SEC


@pytest.mark.skipif(sys.platform != "linux", reason="no other system cuts them off")
def test_a_client_that_takes_nothing_does_not_hold_its_connection_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "_STUCK_MS", 100)
    more_than_fits = bytes(64 * 1024 * 1024)
    with main._bound_socket(read_settings({"FAIRLANE_PORT": "0"})) as listener:
        listener.listen()
        with socket.create_connection(listener.getsockname()), listener.accept()[0] as accepted:
            accepted.settimeout(PATIENCE_SEC)
            with pytest.raises(TimeoutError) as cut:
                accepted.sendall(more_than_fits)
    assert cut.value.errno == errno.ETIMEDOUT
