"""Who may open the page, and what a browser may do with it."""

import pytest
from starlette.testclient import TestClient
from tests.diagnose.scenes import Scene

from exhume.cli.server import ServerOptions
from exhume.model.errors import UsageError
from exhume.present.web.app import create_app
from exhume.present.web.guard import Rules

TOKEN = "correct-horse-battery-staple"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    directory = tmp_path_factory.mktemp("guarded")
    Scene(cores=1, seconds=2).write(directory / "r")
    return directory / "r"


@pytest.fixture
def guarded(small, tmp_path):
    (tmp_path / "index.html").write_text("the page")
    rules = Rules(hosts=["node-7"], token=TOKEN)
    with TestClient(
        create_app(small, rules, tmp_path), base_url="http://node-7:8420", follow_redirects=False
    ) as client:
        yield client


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "[::2]:80", "127.0.0.2"]
)
def test_other_host_names_are_refused(client, host):
    answer = client.get("/api/recording", headers={"host": host})
    assert answer.status_code == 403
    assert "exhume serve" in answer.json()["detail"]


@pytest.mark.parametrize("host", ["localhost", "localhost:8420", "127.0.0.1:1", "[::1]:8420", "LOCALHOST"])
def test_loopback_host_names_are_accepted(client, host):
    assert client.get("/api/recording", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:9999"},
        {"origin": "http://["},
    ],
)
def test_other_sites_may_not_ask(client, headers):
    assert client.get("/api/recording", headers=headers).status_code == 403


def test_the_page_itself_and_links_to_it_may(client):
    own = {"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors", "origin": "http://localhost"}
    assert client.get("/api/recording", headers=own).status_code == 200
    assert client.get("/", headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}).status_code == 200


def test_every_answer_carries_the_rules_for_the_browser(client):
    for path in ("/", "/api/recording", "/api/nothing", "/api/cores?cells=0", "/assets/app-1234.js"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
    assert "default-src" in client.get("/", headers={"host": "evil"}).headers["content-security-policy"]


@pytest.mark.parametrize("method", ["post", "put", "delete", "patch"])
def test_it_only_reads(client, method):
    answer = getattr(client, method)("/api/recording")
    assert answer.status_code == 405
    assert "reads" in answer.json()["detail"]


@pytest.mark.parametrize("path", ["/", "/api/recording", "/api/cores", "/api/nothing", "/api/cores?cells=0"])
def test_the_head_is_that_of_the_answer(client, path):
    head, answer = client.head(path), client.get(path)
    assert head.status_code == answer.status_code
    assert head.headers["content-type"] == answer.headers["content-type"]


def test_requests_without_the_token_are_refused(guarded):
    for path in ("/", "/api/recording", "/api/openapi.json", "/?token=wrong", "/api/recording?token=", "/assets/x"):
        answer = guarded.get(path)
        assert answer.status_code == 401
        assert "token" in answer.json()["detail"]
        assert "node" not in answer.json()


def test_the_token_is_shown_once_and_then_kept_in_a_cookie(guarded):
    answer = guarded.get(f"/?token={TOKEN}")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/"
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert guarded.get("/api/recording").status_code == 200
    # A bookmark of the first link does not put it back into the address bar, from where it would be shared.
    assert guarded.get(f"/?token={TOKEN}").headers["location"] == "/"


def test_the_token_leads_nowhere_else(guarded):
    assert guarded.get(f"http://node-7:8420//evil.example/x?token={TOKEN}").headers["location"] == "/evil.example/x"


def test_programs_show_it_as_a_header(guarded):
    assert guarded.get("/api/recording", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert guarded.get("/api/recording", headers={"authorization": f"Bearer {TOKEN}x"}).status_code == 401
    assert guarded.get("/api/recording", headers={"cookie": "exhume-token=;;;=\x01"}).status_code == 401


def test_loopback_needs_no_token_and_anything_else_gets_one():
    assert ServerOptions.of("127.0.0.1:0", None, (), None, None).token is None
    assert ServerOptions.of("[::1]:0", None, (), None, None).token is None
    assert ServerOptions.of("localhost:0", None, (), None, None).token is None
    open_to_all = ServerOptions.of("0.0.0.0:0", None, (), None, None)
    assert len(open_to_all.token or "") >= 32
    assert open_to_all.token in open_to_all.link(8420)
    assert open_to_all.token != ServerOptions.of("0.0.0.0:0", None, (), None, None).token


@pytest.mark.parametrize("listen", ["8420", "localhost", "localhost:http", "localhost:70000", ":8420", "a:b:c"])
def test_an_invalid_address_is_reported(listen):
    with pytest.raises(UsageError, match="HOST:PORT"):
        ServerOptions.of(listen, None, (), None, None)


def test_a_weak_token_and_half_of_tls_are_refused(tmp_path):
    with pytest.raises(UsageError, match="16"):
        ServerOptions.of("0.0.0.0:1", "short", (), None, None)
    with pytest.raises(UsageError, match="together"):
        ServerOptions.of("127.0.0.1:1", None, (), tmp_path / "cert", None)
    with pytest.raises(UsageError, match="can't be read"):
        ServerOptions.of("127.0.0.1:1", None, (), tmp_path / "cert", tmp_path / "key")
