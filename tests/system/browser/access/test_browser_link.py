"""A shared link is followed from another site: a chat, a ticket."""

import http.server
import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect
from tests.system.browser.conftest import drawn, serving, visiting

pytestmark = pytest.mark.xdist_group("browser_access")

TOKEN = "correct-horse-battery-staple"


@pytest.fixture
def ticket(written) -> Iterator[tuple[str, str]]:
    """(a page of another site with a link in it, where the link leads to without its token)."""
    with serving(written[0], "--token", TOKEN) as printed:
        # Names differ, so browsers take them for two sites.
        link = printed.replace("localhost", "127.0.0.1")
        home = link.partition("?")[0]

        class Page(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("content-type", "text/html")
                self.end_headers()
                links = f'<link rel="icon" href="data:,"><a href="{link}#tab=events">first</a>'
                self.wfile.write(f'{links}<a href="{home}#tab=processes">again</a>'.encode())

            def log_message(self, *args: object) -> None:
                pass

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as other:
            threading.Thread(target=other.serve_forever, daemon=True).start()
            yield f"http://localhost:{other.server_port}/", home
            other.shutdown()


def test_a_link_in_a_ticket_opens_the_view(browser, ticket):
    elsewhere, home = ticket
    with visiting(browser) as visit:
        page = visit.new_page()
        for text, tab in (("first", "Events"), ("again", "Processes")):
            page.goto(elsewhere)
            page.get_by_text(text).click()
            page.wait_for_url(f"{home}*")
            drawn(page)
            assert TOKEN not in page.url
            expect(page.get_by_role("tab", name=tab)).to_have_attribute("aria-selected", "true")


def test_without_the_token_the_link_opens_nothing(browser, ticket):
    elsewhere, _ = ticket
    with visiting(browser) as visit:
        page = visit.new_page()
        page.goto(elsewhere)
        page.get_by_text("again").click()
        page.get_by_text("a token is needed").wait_for()
