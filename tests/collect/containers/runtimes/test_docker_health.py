"""What a container's own health check said, as the engine tells it."""

from exhume.collect.containers.docker_services import health_lines


def told(status: str, *outputs: str) -> dict:
    log = [{"ExitCode": 7, "Output": output} for output in outputs]
    return {"State": {"Status": "running", "Health": {"Status": status, "FailingStreak": 9, "Log": log}}}


def test_the_last_check_of_one_that_is_unhealthy_is_told_in_a_line():
    (line,) = health_lines(told("unhealthy", "well", "curl: (7)\n connection\x1b refused\n"))
    assert line.startswith("health check ended with code 7 (9 times in a row), and said: curl: (7) connection")
    assert "\n" not in line and len(*health_lines(told("unhealthy", "x" * 10_000))) <= 400


def test_nothing_is_told_of_others():
    assert health_lines(told("healthy", "fine")) == health_lines(told("unhealthy")) == ()
    assert health_lines({"State": {"Status": "running"}}) == health_lines({}) == ()
