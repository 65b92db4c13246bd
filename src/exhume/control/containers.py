"""Orders to a Docker Engine, for a fix and for its rollback: a container's restart policy, stop, start.

Podman answers the same API; versions that can't change a restart policy refuse, and the error says so.
"""

import hashlib
import json
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exhume.collect.containers.docker import Engine, EngineError, again_where_it_fails, container_path
from exhume.collect.containers.docker_services import published_ports
from exhume.model.errors import UsageError

# What the engine needs on top of the grace that it gives the container.
_STOP_PATIENCE_S = 15.0
_START_PATIENCE_S = 30.0
_TRY_AGAIN_S = 0.3
# One that is started again and again is down for a moment, and up for another.
_BETWEEN_RUNS_S = 15.0
_LOOK_AGAIN_S = 0.05
_NOTHING_TO_DO = 304
_CONTAINER_ID = re.compile(r"[0-9a-f]{12,64}")


def is_container_id(text: str) -> bool:
    return _CONTAINER_ID.fullmatch(text) is not None


def check_container_id(text: str) -> str:
    """The id, when it is one. Raises UsageError."""
    if not is_container_id(text):
        raise UsageError(f"{text!r} is not a container id")
    return text


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """no, always, unless-stopped or on-failure; the latter at most `max_retries` times (0: without end)."""

    name: str
    max_retries: int = 0

    def __str__(self) -> str:
        """As `docker update --restart` takes it."""
        return f"{self.name}:{self.max_retries}" if self.max_retries else self.name


@dataclass(frozen=True, slots=True)
class DockerControl:
    """One engine, by its socket. Containers go by id or name. Whatever goes wrong is an EngineError."""

    socket: Path

    def fingerprint(self, container: str) -> dict[str, str]:
        """What a plan was made from, by name: it changes when the container was changed, and not while the
        container merely goes up and down."""
        inspect = self._inspect(container)
        host = {key: value for key, value in (inspect.get("HostConfig") or {}).items() if key != "RestartPolicy"}
        return {
            "id": str(inspect.get("Id", "")),
            "name": str(inspect.get("Name", "")).lstrip("/"),
            "image": str(inspect.get("Image", "")),
            "created": str(inspect.get("Created", "")),
            "restart policy": str(_policy(inspect)),
            "configuration": _digest(inspect.get("Config")),
            "host configuration": _digest(host),
        }

    def restart_policy(self, container: str) -> RestartPolicy:
        return _policy(self._inspect(container))

    def goes_when_stopped(self, container: str) -> bool:
        """Whether the engine removes it as soon as it ends, with all that it wrote outside of named volumes."""
        return bool((self._inspect(container).get("HostConfig") or {}).get("AutoRemove"))

    def runs(self, container: str) -> bool:
        """Whether it runs, or is going to be started again."""
        inspect = self._inspect(container)
        state = inspect.get("State") or {}
        # Podman's status of a container that ended and is not cleaned up yet.
        between = state.get("Status") == "stopped" and _policy(inspect).name != "no"
        return bool(state.get("Running") or state.get("Restarting") or between)

    def is_paused(self, container: str) -> bool:
        """Whether its processes are held still."""
        return bool((self._inspect(container).get("State") or {}).get("Paused"))

    def published(self, container: str) -> tuple[int, ...]:
        """The node's TCP ports that lead into it."""
        return published_ports(self._inspect(container))

    def pause(self, container: str) -> None:
        """Hold its processes still."""
        self._order(container_path(container, "pause"), wait_s=_START_PATIENCE_S)

    def update_restart_policy(self, container: str, policy: str, max_retries: int = 0) -> None:
        """Takes effect at its next end; what runs, runs on."""
        wanted = RestartPolicy(policy, max_retries if policy == "on-failure" else 0)
        body = {"RestartPolicy": {"Name": wanted.name, "MaximumRetryCount": wanted.max_retries}}
        try:
            path = container_path(container, "update")
            # Docker fails on a container that it believes to run and that has just ended.
            again_where_it_fails(lambda: self._order(path, body, wait_s=_START_PATIENCE_S), _TRY_AGAIN_S)
        except EngineError as error:
            why = f"the restart policy of {container} was not changed: {error}"
            if error.status == 404:
                why += "; this engine may be too old to change it (create the container again with another policy)"
            raise EngineError(why, error.status) from None
        # An engine that doesn't know the field passes over it in silence.
        now = self.restart_policy(container)
        if now != wanted:
            raise EngineError(
                f"the restart policy of {container} is still {now.name}: this engine can't change it; "
                "create the container again with another policy"
            )

    def stop(self, container: str, timeout: int = 10) -> bool:
        """Ask it to end, and kill it after `timeout` seconds. False where it had ended already."""
        path, wait_s = container_path(container, "stop"), timeout + _STOP_PATIENCE_S
        give_up = time.monotonic() + _BETWEEN_RUNS_S
        while True:
            # Podman may fail on a container that is just between two runs,
            did = again_where_it_fails(lambda: self._order(path, wait_s=wait_s, t=timeout), _TRY_AGAIN_S)
            if did != _NOTHING_TO_DO:
                return True
            # or has nothing to stop, and starts the next run all the same.
            if not self.runs(container) or time.monotonic() > give_up:
                return False
            time.sleep(_LOOK_AGAIN_S)

    def start(self, container: str) -> bool:
        """False where it runs already."""
        return self._order(container_path(container, "start"), wait_s=_START_PATIENCE_S) != _NOTHING_TO_DO

    def _order(self, path: str, body: Any = None, *, wait_s: float = 0.0, **query: str | int) -> int:
        """POST an order that may take `wait_s`; return its status (304: there was nothing to do)."""
        engine = Engine(self.socket)
        return engine.exchange("POST", path, query, body, engine.timeout_s + wait_s)[0]

    def _inspect(self, container: str) -> dict[str, Any]:
        inspect = Engine(self.socket).get(container_path(container, "json"))
        if not isinstance(inspect, dict):
            raise EngineError(f"{self.socket} reports nothing of container {container}")
        return inspect


def _policy(inspect: dict[str, Any]) -> RestartPolicy:
    policy = (inspect.get("HostConfig") or {}).get("RestartPolicy") or {}
    # No policy is an empty name where it was never set.
    return RestartPolicy(policy.get("Name") or "no", int(policy.get("MaximumRetryCount") or 0))


def _digest(value: Any) -> str:
    return "sha256:" + hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
