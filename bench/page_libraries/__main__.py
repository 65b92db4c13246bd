"""The page's drawings compared with those of the libraries that could have made them, in a real browser.

    python -m bench.page_libraries

Needs Node with npm, Chromium, and a built page (make web). The libraries are fetched by npm into build/; the program
itself never has them. What came out of a run, and what was decided, is in docs/page-libraries.md.
"""

import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "page-libraries"
DRAWINGS = Path(__file__).with_name("drawings.ts")
LIBRARIES = {"d3-flame-graph": "5.0.0", "flame-chart-js": "3.3.0", "uplot": "1.6.32", "echarts": "6.1.0"}
TOOLS = {"d3-selection": "3.0.0", "esbuild": "0.28.2"}
# What is needed of each to do the page's work.
ENTRIES = {
    "d3-flame-graph": 'import f from "d3-flame-graph"; import { select } from "d3-selection"; window.x = [f, select];',
    "flame-chart-js": 'import { FlameChart } from "flame-chart-js"; window.x = FlameChart;',
    "uPlot": 'import U from "uplot"; window.x = U;',
    "ECharts, heatmap, lines and zoom": 'import * as e from "echarts/core";'
    'import { HeatmapChart, LineChart } from "echarts/charts";'
    'import { GridComponent, VisualMapComponent, DataZoomComponent, TooltipComponent } from "echarts/components";'
    'import { CanvasRenderer } from "echarts/renderers"; e.use([HeatmapChart, LineChart, GridComponent,'
    "VisualMapComponent, DataZoomComponent, TooltipComponent, CanvasRenderer]); window.x = e;",
    "ECharts, whole": 'import * as e from "echarts"; window.x = e;',
    "flame graph by hand": 'import * as a from "@page/panels/flame/draw";'
    'import * as b from "@page/panels/flame/layout"; import * as c from "@page/panels/flame/model";'
    "window.x = [a, b, c];",
    "heatmap by hand": 'import * as a from "@page/timeline/heat"; import * as b from "@page/timeline/heatdraw";'
    "window.x = [a, b];",
}
SIGNALS = ROOT / "web/node_modules/@preact/signals"
FRAMES = 20_000
CORES, CELLS = 96, 1300
RUNS = 2


def main() -> int:
    for command in ("npm", "chromium"):
        if shutil.which(command) is None:
            print(f"page_libraries: {command} is missing", file=sys.stderr)
            return 2
    _fetch()
    print("| what | minified | packed |\n|---|---|---|")
    for name, entry in ENTRIES.items():
        # Signals are there in any case: the page is made with them.
        script = _bundled(entry, "--minify", "--external:@preact/signals")
        print(f"| {name} | {len(script) / 1000:.0f} kB | {len(gzip.compress(script, 9)) / 1000:.0f} kB |")
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        script = _bundled(DRAWINGS.read_text(), f"--alias:@preact/signals={SIGNALS}")
        _show(f"{FRAMES:,} frames", browser, script, f"flames({FRAMES})")
        _show(f"{CORES} x {CELLS:,} cells", browser, script, f"heatmaps({CORES}, {CELLS})")
        browser.close()
    return 0


def _fetch() -> None:
    WORK.mkdir(parents=True, exist_ok=True)
    wanted = json.dumps({"private": True, "dependencies": LIBRARIES | TOOLS})
    package = WORK / "package.json"
    if not (WORK / "node_modules").is_dir() or package.read_text() != wanted:
        package.write_text(wanted)
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--silent"], cwd=WORK, check=True)


def _bundled(entry: str, *args: str) -> bytes:
    """One script; the page's own sources come from web/, the libraries from where they were fetched."""
    command = [WORK / "node_modules/.bin/esbuild", "--bundle", "--format=iife", "--loader=ts", "--loader:.css=empty"]
    aliases = [f"--alias:@page={ROOT / 'web/src'}"]
    path = {"NODE_PATH": str(WORK / "node_modules")}
    done = subprocess.run(
        [*map(str, command), *aliases, *args],
        input=entry.encode(),
        stdout=subprocess.PIPE,
        cwd=DRAWINGS.parent,
        env={**os.environ, **path},
        check=True,
    )
    return done.stdout


def _show(title: str, browser: Browser, script: bytes, call: str) -> None:
    runs: list[dict[str, dict[str, Any]]] = []
    for _ in range(RUNS):
        page = browser.new_page(viewport={"width": 1440, "height": 1000})
        page.set_content("<!doctype html><div id=host></div>")
        page.add_script_tag(content=script.decode())
        runs.append(page.evaluate(f"window.{call}"))
        page.close()
    print(f"\n| {title} | first picture | redraw |\n|---|---|---|")
    for name in runs[0]:
        first, again = (" and ".join(f"{run[name][which]:.0f}" for run in runs) for which in ("first", "again"))
        print(f"| {name} | {first} ms | {again} ms |")


if __name__ == "__main__":
    sys.exit(main())
