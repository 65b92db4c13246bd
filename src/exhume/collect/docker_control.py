"""Orders to a Docker Engine, for a fix and for its rollback: a container's restart policy, stop, start.

Podman answers the same API; versions that can't change a restart policy refuse, and the error says so.
"""

import hashlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exhume.collect.containers.docker import Engine, EngineError, again_where_it_fails, container_path
from exhume.collect.containers.docker_services import published_ports

# What the engine needs on top of the grace that it gives the container.
_STOP_PATIENCE_S = 15.0
_START_PATIENCE_S = 30.0
_TRY_AGAIN_S = 0.3
# One that is started again and again is down for a moment, and up for another.
_BETWEEN_RUNS_S = 15.0
_LOOK_AGAIN_S = 0.05
_NOTHING_TO_DO = 304


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """no, always, unless-stopped or on-failure; the latter at most `max_retries` times (0: without end)."""

    name: str
    max_retries: int = 0


@dataclass(frozen=True, slots=True)
class DockerControl:
    """One engine, by its socket. Containers go by id or name. Whatever goes wrong is an EngineError."""

    socket: Path

    def fingerprint(self, container: str) -> dict[str, str]:
        """What a plan was made from, by name: it changes when somebody changed the container, and not while the
        container merely goes up and down."""
        told = self._inspect(container)
        policy = _policy(told)
        host = {key: value for key, value in (told.get("HostConfig") or {}).items() if key != "RestartPolicy"}
        return {
            "id": str(told.get("Id", "")),
            "name": str(told.get("Name", "")).lstrip("/"),
            "image": str(told.get("Image", "")),
            "created": str(told.get("Created", "")),
            "restart policy": f"{policy.name}:{policy.max_retries}" if policy.max_retries else policy.name,
            "configuration": _digest(told.get("Config")),
            "host configuration": _digest(host),
        }

    def restart_policy(self, container: str) -> RestartPolicy:
        return _policy(self._inspect(container))

    def goes_when_stopped(self, container: str) -> bool:
        """Whether the engine removes it as soon as it ends, with all that it wrote outside of named volumes."""
        return bool((self._inspect(container).get("HostConfig") or {}).get("AutoRemove"))

    def runs(self, container: str) -> bool:
        """Whether it runs, or is going to be started again."""
        told = self._inspect(container)
        state = told.get("State") or {}
        # Podman's word for an end that it has yet to deal with.
        between = state.get("Status") == "stopped" and _policy(told).name != "no"
        return bool(state.get("Running") or state.get("Restarting") or between)

    def is_paused(self, container: str) -> bool:
        """Whether its processes are held still."""
        return bool((self._inspect(container).get("State") or {}).get("Paused"))

    def published(self, container: str) -> tuple[int, ...]:
        """The node's TCP ports that lead into it."""
        return published_ports(self._inspect(container))

    def pause(self, container: str) -> None:
        """Hold its processes still."""
        self._engine.order(container_path(container, "pause"), wait_s=_START_PATIENCE_S)

    def update_restart_policy(self, container: str, policy: str, max_retries: int = 0) -> None:
        """Takes effect at its next end; what runs, runs on."""
        wanted = RestartPolicy(policy, max_retries if policy == "on-failure" else 0)
        body = {"RestartPolicy": {"Name": wanted.name, "MaximumRetryCount": wanted.max_retries}}
        try:
            path = container_path(container, "update")
            # Docker fails on a container that it believes to run and that has just ended.
            again_where_it_fails(lambda: self._engine.order(path, body, wait_s=_START_PATIENCE_S), _TRY_AGAIN_S)
        except EngineError as error:
            why = f"the restart policy of {container} was not changed: {error}"
            if error.status == 404:
                why += "; this engine may be too old to change it (make the container anew with another policy)"
            raise EngineError(why, error.status) from None
        # An engine that doesn't know the field passes over it in silence.
        now = self.restart_policy(container)
        if now != wanted:
            raise EngineError(
                f"the restart policy of {container} is still {now.name}: this engine can't change it; "
                "make the container anew with another policy"
            )

    def stop(self, container: str, timeout: int = 10) -> bool:
        """Ask it to end, and kill it after `timeout` seconds. False where it had ended already."""
        path, wait_s = container_path(container, "stop"), timeout + _STOP_PATIENCE_S
        give_up = time.monotonic() + _BETWEEN_RUNS_S
        while True:
            # Podman may fail on a container that is just between two runs,
            did = again_where_it_fails(lambda: self._engine.order(path, wait_s=wait_s, t=timeout), _TRY_AGAIN_S)
            if did != _NOTHING_TO_DO:
                return True
            # or has nothing to stop, and starts the next run all the same.
            if not self.runs(container) or time.monotonic() > give_up:
                return False
            time.sleep(_LOOK_AGAIN_S)

    def start(self, container: str) -> bool:
        """False where it runs already."""
        return self._engine.order(container_path(container, "start"), wait_s=_START_PATIENCE_S) != _NOTHING_TO_DO

    @property
    def _engine(self) -> Engine:
        return Engine(self.socket)

    def _inspect(self, container: str) -> dict[str, Any]:
        told = self._engine.get(container_path(container, "json"))
        if not isinstance(told, dict):
            raise EngineError(f"{self.socket} told nothing of container {container}")
        return told


def _policy(told: dict[str, Any]) -> RestartPolicy:
    policy = (told.get("HostConfig") or {}).get("RestartPolicy") or {}
    # No policy is an empty name where it was never set.
    return RestartPolicy(policy.get("Name") or "no", int(policy.get("MaximumRetryCount") or 0))


def _digest(value: Any) -> str:
    return "sha256:" + hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
