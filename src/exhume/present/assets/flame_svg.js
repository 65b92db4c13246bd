"use strict";
(() => {
  const LEFT = 10, INNER = 1180, CHARACTER = 6.65, SLACK = 1e-9;
  const byId = (id) => document.getElementById(id);
  const group = byId("frames"), matched = byId("matched"), details = byId("details");
  const frames = [...group.children].map((g) => {
    const [title, rect, text] = g.children;
    const [name, figures] = title.textContent.split("\n");
    return { g, rect, text, name, figures, x: +g.dataset.x, w: +g.dataset.w, y: +rect.getAttribute("y") };
  });
  let from = 0, span = 1;

  function draw(focus) {
    const top = focus ? focus.y : -1;
    for (const frame of frames) {
      const left = (frame.x - from) / span, width = frame.w / span;
      const above = frame.y < top && frame.x <= from + SLACK && frame.x + frame.w >= from + span - SLACK;
      const inside = left + width > SLACK && left < 1 - SLACK && (frame.y >= top || above);
      frame.g.classList.toggle("away", !inside);
      frame.g.classList.toggle("above", above);
      if (!inside) continue;
      const start = Math.max(left, 0), end = Math.min(left + width, 1);
      const x = LEFT + start * INNER, shown = (end - start) * INNER;
      frame.rect.setAttribute("x", x.toFixed(2));
      frame.rect.setAttribute("width", shown.toFixed(2));
      frame.text.setAttribute("x", (x + 3).toFixed(2));
      const room = Math.floor((shown - 6) / CHARACTER);
      frame.text.textContent = room < 3 ? "" : frame.name.length <= room ? frame.name : frame.name.slice(0, room - 1) + "…";
    }
  }

  function zoom(frame) {
    from = frame.x;
    span = frame.w;
    draw(frame);
  }

  function reset() {
    from = 0;
    span = 1;
    byId("search").value = "";
    search("");
    draw(null);
  }

  // A frame inside another match is not counted again: what is shown is the share of the whole that any match covers.
  function search(term) {
    let pattern = null;
    byId("search").classList.remove("bad");
    if (term) {
      try {
        pattern = new RegExp(term, "i");
      } catch {
        byId("search").classList.add("bad");
        matched.textContent = "not a regular expression";
        return;
      }
    }
    group.classList.toggle("searching", pattern !== null);
    const covered = [];
    for (const frame of frames) {
      const hit = pattern !== null && pattern.test(frame.name);
      frame.g.classList.toggle("match", hit);
      if (hit) covered.push([frame.x, frame.x + frame.w]);
    }
    covered.sort((a, b) => a[0] - b[0]);
    let total = 0, reach = 0;
    for (const [start, end] of covered) {
      total += Math.max(0, end - Math.max(start, reach));
      reach = Math.max(reach, end);
    }
    matched.textContent = pattern === null ? "" : `${covered.length} ${covered.length === 1 ? "frame" : "frames"}, ${(total * 100).toFixed(2)}%`;
  }

  const owner = new Map(frames.map((frame) => [frame.g, frame]));
  const frameOf = (event) => owner.get(event.target.closest && event.target.closest(".f"));
  group.addEventListener("click", (event) => { const frame = frameOf(event); if (frame) zoom(frame); });
  group.addEventListener("mouseover", (event) => { const frame = frameOf(event); details.textContent = frame ? `${frame.name} · ${frame.figures}` : ""; });
  group.addEventListener("mouseout", () => { details.textContent = ""; });
  byId("search").addEventListener("input", (event) => search(event.target.value));
  byId("reset").addEventListener("click", reset);
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") reset();
    if ((event.key === "/" || (event.key === "f" && (event.ctrlKey || event.metaKey))) && event.target.id !== "search") {
      event.preventDefault();
      byId("search").focus();
    }
  });
  byId("controls").setAttribute("visibility", "visible");
})();
