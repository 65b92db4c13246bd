"""What a container's own health check said, as the engine reports it."""

from exhume.collect.containers.docker_services import health_lines


def reported(status: str, *outputs: str) -> dict:
    log = [{"ExitCode": 7, "Output": output} for output in outputs]
    return {"State": {"Status": "running", "Health": {"Status": status, "FailingStreak": 9, "Log": log}}}


def test_the_last_check_of_one_that_is_unhealthy_is_reported_in_a_line():
    (line,) = health_lines(reported("unhealthy", "well", "curl: (7)\n connection\x1b refused\n"))
    assert line.startswith("health check ended with code 7 (9 times in a row), and printed: curl: (7) connection")
    assert "\n" not in line and len(*health_lines(reported("unhealthy", "x" * 10_000))) <= 400


def test_nothing_is_reported_others():
    assert health_lines(reported("healthy", "fine")) == health_lines(reported("unhealthy")) == ()
    assert health_lines({"State": {"Status": "running"}}) == health_lines({}) == ()
