"""Opens files in speedscope, in a browser: with the package, the browser and files as arguments it prints what the page
shows of each and what it complained about, as JSON. A program of its own: two of Playwright can't be in a process."""

import base64
import json
import sys
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright
from tests.system.browser.conftest import ARGUMENTS


def opened(browser: Browser, package: Path, file: Path) -> dict[str, object]:
    """As speedscope's own command does it: a script next to the page hands over the file."""
    script = file.with_suffix(".js")
    encoded = base64.b64encode(file.read_bytes()).decode()
    script.write_text(f"speedscope.loadFileFromBase64({json.dumps(file.name)}, {json.dumps(encoded)})")
    page = browser.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", lambda dialog: (problems.append(dialog.message), dialog.dismiss()))
    page.goto(f"file://{package}/dist/release/index.html#localProfilePath={script}")
    page.wait_for_function("document.querySelector('canvas') && document.body.innerText.includes('Time Order')")
    page.wait_for_timeout(300)
    text = page.inner_text("body")
    page.close()
    return {"text": text, "problems": problems}


if __name__ == "__main__":
    place, chromium, *files = sys.argv[1:]
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        print(json.dumps([opened(launched, Path(place), Path(file)) for file in files]))
        launched.close()
