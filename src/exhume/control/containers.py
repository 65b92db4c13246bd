"""Docker Engine operations for a fix and its rollback: a container's restart policy, stop and start.

Podman serves the same API; versions that can't change a restart policy refuse, and the error says so.
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

# How long the engine may take in addition to the stop timeout that the container gets.
_STOP_PATIENCE_S = 15.0
_START_PATIENCE_S = 30.0
_TRY_AGAIN_S = 0.3
# A container that crash-loops alternates between running and down; how long to wait for it to settle.
_BETWEEN_RUNS_S = 15.0
_LOOK_AGAIN_S = 0.05
_NOTHING_TO_DO = 304
_CONTAINER_ID = re.compile(r"[0-9a-f]{12,64}")


def is_container_id(text: str) -> bool:
    return _CONTAINER_ID.fullmatch(text) is not None


def check_container_id(text: str) -> str:
    """Validate a container id and return it. Raises UsageError."""
    if not is_container_id(text):
        raise UsageError(f"{text!r} is not a container id")
    return text


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """no, always, unless-stopped or on-failure; on-failure at most `max_retries` times (0: no limit)."""

    name: str
    max_retries: int = 0

    def __str__(self) -> str:
        """In the form that `docker update --restart` takes."""
        return f"{self.name}:{self.max_retries}" if self.max_retries else self.name


@dataclass(frozen=True, slots=True)
class DockerControl:
    """Control of one engine through its socket. Containers are given by id or name. All failures are EngineError."""

    socket: Path

    def fingerprint(self, container: str) -> dict[str, str]:
        """The values a plan was based on, by name: they change when the container is changed, but not when it merely
        starts or stops."""
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
        """Whether the engine removes the container when it exits, with everything written outside of named volumes."""
        return bool((self._inspect(container).get("HostConfig") or {}).get("AutoRemove"))

    def runs(self, container: str) -> bool:
        """Whether the container runs, or is about to be restarted."""
        inspect = self._inspect(container)
        state = inspect.get("State") or {}
        # Podman's status of a container that exited and has not been cleaned up yet.
        between = state.get("Status") == "stopped" and _policy(inspect).name != "no"
        return bool(state.get("Running") or state.get("Restarting") or between)

    def is_paused(self, container: str) -> bool:
        """Whether the container's processes are frozen."""
        return bool((self._inspect(container).get("State") or {}).get("Paused"))

    def published(self, container: str) -> tuple[int, ...]:
        """The node's TCP ports that are forwarded to the container."""
        return published_ports(self._inspect(container))

    def pause(self, container: str) -> None:
        """Freeze the container's processes."""
        self._order(container_path(container, "pause"), wait_s=_START_PATIENCE_S)

    def update_restart_policy(self, container: str, policy: str, max_retries: int = 0) -> None:
        """Change the restart policy, which takes effect when the container exits next; a running one keeps running."""
        wanted = RestartPolicy(policy, max_retries if policy == "on-failure" else 0)
        body = {"RestartPolicy": {"Name": wanted.name, "MaximumRetryCount": wanted.max_retries}}
        try:
            path = container_path(container, "update")
            # Docker fails on a container that it believes to be running and that has just exited.
            again_where_it_fails(lambda: self._order(path, body, wait_s=_START_PATIENCE_S), _TRY_AGAIN_S)
        except EngineError as error:
            why = f"the restart policy of {container} was not changed: {error}"
            if error.status == 404:
                why += "; this engine may be too old to change it (create the container again with another policy)"
            raise EngineError(why, error.status) from None
        # An engine that doesn't know the field ignores it silently.
        now = self.restart_policy(container)
        if now != wanted:
            raise EngineError(
                f"the restart policy of {container} is still {now.name}: this engine can't change it; "
                "create the container again with another policy"
            )

    def stop(self, container: str, timeout: int = 10) -> bool:
        """Stop the container, and kill it after `timeout` seconds. False if it had already exited."""
        path, wait_s = container_path(container, "stop"), timeout + _STOP_PATIENCE_S
        give_up = time.monotonic() + _BETWEEN_RUNS_S
        while True:
            # Podman may fail on a container that is just between two runs,
            did = again_where_it_fails(lambda: self._order(path, wait_s=wait_s, t=timeout), _TRY_AGAIN_S)
            if did != _NOTHING_TO_DO:
                return True
            # or have nothing to stop and start the next run all the same.
            if not self.runs(container) or time.monotonic() > give_up:
                return False
            time.sleep(_LOOK_AGAIN_S)

    def start(self, container: str) -> bool:
        """Start the container; False if it runs already."""
        return self._order(container_path(container, "start"), wait_s=_START_PATIENCE_S) != _NOTHING_TO_DO

    def _order(self, path: str, body: Any = None, *, wait_s: float = 0.0, **query: str | int) -> int:
        """POST a request that may take `wait_s`; return its status (304: there was nothing to do)."""
        engine = Engine(self.socket)
        return engine.exchange("POST", path, query, body, engine.timeout_s + wait_s)[0]

    def _inspect(self, container: str) -> dict[str, Any]:
        inspect = Engine(self.socket).get(container_path(container, "json"))
        if not isinstance(inspect, dict):
            raise EngineError(f"{self.socket} reports nothing of container {container}")
        return inspect


def _policy(inspect: dict[str, Any]) -> RestartPolicy:
    policy = (inspect.get("HostConfig") or {}).get("RestartPolicy") or {}
    # The name is empty if no policy was ever set.
    return RestartPolicy(policy.get("Name") or "no", int(policy.get("MaximumRetryCount") or 0))


def _digest(value: Any) -> str:
    return "sha256:" + hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
