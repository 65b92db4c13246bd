"""Where metrics are served, and who may scrape them, by the settings."""

from argparse import Namespace

import pytest

from exhume.cli.args import Parser
from exhume.cli.commands.record import add_options
from exhume.cli.metrics import MetricsOptions, metrics_options
from exhume.model.errors import UsageError

TOKEN = "0123456789abcdef"


def parsed(*argv: str) -> Namespace:
    parser = Parser(prog="exhume record")
    add_options(parser)
    return parser.parse_args(argv)


def test_no_metrics_unless_an_address_is_given() -> None:
    assert metrics_options(parsed()) is None
    # Bare exhume has no options of its own.
    assert metrics_options(Namespace(command=None)) is None


def test_loopback_needs_no_token() -> None:
    for address, host in (("127.0.0.1:9739", "127.0.0.1"), ("[::1]:9739", "::1"), ("localhost:9739", "localhost")):
        assert metrics_options(parsed("--metrics", address)) == MetricsOptions(host, 9739, None)


@pytest.mark.parametrize("address", ["0.0.0.0:9739", "[::]:9739", "10.1.2.3:9739", "node-17:9739"])
def test_elsewhere_a_token_is_required_or_refused_explicitly(address: str) -> None:
    with pytest.raises(UsageError, match="EXHUME_METRICS_TOKEN"):
        metrics_options(parsed("--metrics", address))
    with_token = metrics_options(parsed("--metrics", address, "--metrics-token", TOKEN))
    assert with_token is not None
    assert with_token.token == TOKEN
    without = metrics_options(parsed("--metrics", address, "--metrics-token", "none"))
    assert without is not None
    assert without.token is None


@pytest.mark.parametrize(
    "argv", [("--metrics", "9739"), ("--metrics", "localhost:70000"), ("--metrics-token", "short")]
)
def test_bad_values_are_refused(argv: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        metrics_options(parsed(*argv))


def test_bare_exhume_takes_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXHUME_METRICS", "127.0.0.1:0")
    assert metrics_options(Namespace(command=None)) == MetricsOptions("127.0.0.1", 0, None)
