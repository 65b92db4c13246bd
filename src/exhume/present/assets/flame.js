"use strict";
(() => {
  const ROW = 19, FONT = "11px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace", TABLE = 200;
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId("data").textContent);
  const { names, modules, colours } = data;
  const { label, parent, weight, samples, state, base, baseSamples } = data.nodes;
  const count = label.length, total = weight[0], baseTotal = base ? base[0] : 0;
  const share = (node) => (total ? weight[node] / total : 0);
  const baseShare = (node) => (baseTotal ? base[node] / baseTotal : 0);
  const sides = data.differential ? (total > 0) + (baseTotal > 0) : 1;

  // Layout: nodes come level by level, siblings in order, so one pass places them all.
  const x = new Float64Array(count), width = new Float64Array(count), cursor = new Float64Array(count), depth = new Uint16Array(count);
  const levels = [];
  for (let node = 0; node < count; node++) {
    width[node] = data.differential ? (share(node) + baseShare(node)) / (sides || 1) : share(node);
    if (node) {
      const above = parent[node];
      depth[node] = depth[above] + 1;
      x[node] = x[above] + cursor[above];
      cursor[above] += width[node];
    }
    (levels[depth[node]] ??= []).push(node);
  }

  const canvas = byId("flame"), context = canvas.getContext("2d"), stage = byId("stage");
  let focus = 0, hovered = -1, selected = 0, pattern = null, matches = null, waiting = false;

  const mixed = (from, to, amount) => {
    const part = (colour, at) => parseInt(colour.slice(at, at + 2), 16);
    const mix = (at) => Math.round(part(from, at) + (part(to, at) - part(from, at)) * amount);
    return `rgb(${mix(1)},${mix(3)},${mix(5)})`;
  };
  let largest = 1e-9;
  if (base) for (let node = 0; node < count; node++) largest = Math.max(largest, Math.abs(share(node) - baseShare(node)));
  const fills = new Array(count);
  const shades = new Map();
  for (let node = 0; node < count; node++) {
    if (base) {
      const delta = share(node) - baseShare(node);
      fills[node] = mixed(colours.unchanged, delta > 0 ? colours.grew : colours.shrank, Math.sqrt(Math.abs(delta) / largest));
    } else {
      const variant = (label[node] * 31 + 7) % 7, key = state[node] * 8 + variant;
      if (!shades.has(key)) shades.set(key, mixed(colours[data.states[state[node]] || "ground"], "#ffffff", 0.18 + variant * 0.055));
      fills[node] = shades.get(key);
    }
  }

  function resize() {
    const ratio = devicePixelRatio || 1, wide = stage.clientWidth, high = Math.max(levels.length * ROW + 4, stage.clientHeight - 2);
    canvas.style.width = `${wide}px`;
    canvas.style.height = `${high}px`;
    canvas.width = Math.round(wide * ratio);
    canvas.height = Math.round(high * ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    redraw();
  }

  const isAncestor = (node, of) => {
    for (let at = of; ; at = parent[at]) {
      if (at === node) return true;
      if (at === 0) return false;
    }
  };

  // The first node of a level whose right edge lies beyond a place.
  function firstBeyond(level, place) {
    let low = 0, high = level.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (x[level[middle]] + width[level[middle]] <= place) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  const screenX = (node) => ((x[node] - x[focus]) / width[focus]) * stage.clientWidth;

  function draw() {
    waiting = false;
    const wide = stage.clientWidth, style = getComputedStyle(document.documentElement);
    const page = style.getPropertyValue("--page"), mark = style.getPropertyValue("--mark");
    context.clearRect(0, 0, wide, canvas.height);
    if (data.empty) return;
    context.font = FONT;
    context.textBaseline = "middle";
    const advance = context.measureText("M").width, end = x[focus] + width[focus];
    for (let row = 0; row < levels.length; row++) {
      const level = levels[row], y = row * ROW + 2;
      for (let index = firstBeyond(level, x[focus] + width[focus] * 1e-9); index < level.length; index++) {
        const node = level[index];
        if (x[node] >= end - width[focus] * 1e-9) break;
        const left = Math.max(0, screenX(node)), right = Math.min(wide, screenX(node) + (width[node] / width[focus]) * wide);
        if (right - left < 0.35) continue;
        const above = depth[node] < depth[focus];
        context.globalAlpha = (above ? 0.5 : 1) * (matches && !matches[node] ? 0.25 : 1);
        context.fillStyle = fills[node];
        const gap = right - left > 3 ? 1 : 0;
        context.fillRect(left, y, right - left - gap, ROW - 1);
        context.globalAlpha = above ? 0.6 : matches && !matches[node] ? 0.45 : 1;
        if (node === selected || node === hovered || (matches && matches[node] && right - left > 2)) {
          context.strokeStyle = mark;
          context.lineWidth = node === selected ? 2 : 1;
          context.strokeRect(left + 0.5, y + 0.5, Math.max(right - left - gap - 1, 0.5), ROW - 2);
        }
        const room = Math.floor((right - left - 8) / advance);
        if (room >= 3) {
          const name = names[label[node]];
          context.fillStyle = matches && !matches[node] ? style.getPropertyValue("--ink") : "#101216";
          context.fillText(name.length <= room ? name : name.slice(0, room - 1) + "…", left + 4, y + ROW / 2);
        }
      }
    }
    context.globalAlpha = 1;
    context.strokeStyle = page;
  }

  function redraw() {
    if (!waiting) {
      waiting = true;
      requestAnimationFrame(draw);
    }
  }

  const percent = (value) => `${(value * 100).toFixed(2)}%`;
  const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value * 100).toFixed(2)}`;
  const cpu = (us) => (us < 1e4 ? `${us.toLocaleString()} us` : us < 1e7 ? `${Math.round(us / 1e3).toLocaleString()} ms` : `${(us / 1e6).toFixed(1)} s`);

  function figures(node) {
    const said = [`${percent(share(node))} · ${samples[node].toLocaleString()} samples · ${cpu(weight[node])} CPU`];
    if (base) said.push(`baseline ${percent(baseShare(node))} · ${baseSamples[node].toLocaleString()} samples · ${signed(share(node) - baseShare(node))} points`);
    return said;
  }

  function tell(node) {
    byId("details").textContent = node < 0 || data.empty ? "" : [names[label[node]], modules[label[node]], ...figures(node)].filter(Boolean).join(" · ");
  }

  function tip(event, node) {
    const box = byId("tip");
    box.hidden = node < 0;
    if (node < 0) return;
    const line = (tag, said) => Object.assign(document.createElement(tag), { textContent: said });
    box.replaceChildren(line("b", names[label[node]]), ...[modules[label[node]], ...figures(node)].filter(Boolean).map((said) => line("span", said)));
    const { width: wide, height: high } = box.getBoundingClientRect();
    box.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - wide - 8))}px`;
    box.style.top = `${event.clientY + 18 + high > innerHeight ? event.clientY - high - 10 : event.clientY + 18}px`;
  }

  function nodeAt(event) {
    const box = canvas.getBoundingClientRect(), row = Math.floor((event.clientY - box.top - 2) / ROW);
    const place = x[focus] + ((event.clientX - box.left) / stage.clientWidth) * width[focus];
    const level = levels[row];
    if (!level || data.empty) return -1;
    const node = level[firstBeyond(level, place)];
    return node !== undefined && x[node] <= place ? node : -1;
  }

  function select(node) {
    selected = node;
    tell(node);
    const y = depth[node] * ROW;
    if (y < stage.scrollTop) stage.scrollTop = y;
    else if (y + ROW * 2 > stage.scrollTop + stage.clientHeight) stage.scrollTop = y + ROW * 2 - stage.clientHeight;
    redraw();
  }

  function zoom(node) {
    focus = node;
    select(node);
  }

  function search(term) {
    byId("search").classList.remove("bad");
    pattern = null;
    matches = null;
    byId("matched").textContent = "";
    if (term) {
      try {
        pattern = new RegExp(term, "i");
      } catch {
        byId("search").classList.add("bad");
        byId("matched").textContent = "not a regular expression";
        redraw();
        return;
      }
      const hit = names.map((name) => pattern.test(name));
      // What lies inside another match is not counted again.
      const covered = new Uint8Array(count);
      let found = 0, current = 0, before = 0;
      matches = new Uint8Array(count);
      for (let node = 0; node < count; node++) {
        matches[node] = hit[label[node]] ? 1 : 0;
        found += matches[node];
        covered[node] = matches[node] | (node ? covered[parent[node]] : 0);
        if (matches[node] && !(node && covered[parent[node]])) {
          current += share(node);
          before += base ? baseShare(node) : 0;
        }
      }
      byId("matched").textContent = `${found.toLocaleString()} ${found === 1 ? "frame" : "frames"}, ${percent(current)}` + (base ? ` against ${percent(before)}, ${signed(current - before)} points` : "");
    }
    redraw();
  }

  function reset() {
    byId("search").value = "";
    search("");
    zoom(0);
  }

  // Functions by what they weigh, each stack counted once however often it passes through them.
  function functions() {
    const own = Float64Array.from(weight), ownBase = base ? Float64Array.from(base) : null;
    const sums = names.map(() => [0, 0, 0, 0, -1]);
    for (let node = count - 1; node > 0; node--) {
      own[parent[node]] -= weight[node];
      if (base) ownBase[parent[node]] -= base[node];
    }
    const outermost = (node) => {
      for (let at = parent[node]; at; at = parent[at]) if (label[at] === label[node]) return false;
      return true;
    };
    for (let node = 1; node < count; node++) {
      if (!state[node]) continue;
      const sum = sums[label[node]];
      sum[0] += own[node];
      if (base) sum[1] += ownBase[node];
      if (outermost(node)) {
        sum[2] += weight[node];
        if (base) sum[3] += base[node];
      }
      if (sum[4] < 0 || weight[node] > weight[sum[4]]) sum[4] = node;
    }
    const part = (value, whole) => (whole ? value / whole : 0);
    return sums.map((sum, index) => ({
      index, node: sum[4], own: part(sum[0], total), all: part(sum[2], total),
      delta: part(sum[2], total) - part(sum[3], baseTotal), ownDelta: part(sum[0], total) - part(sum[1], baseTotal),
    })).filter((entry) => entry.node >= 0);
  }

  const changed = (delta) => (delta ? (delta > 0 ? colours.grew : colours.shrank) : colours.unchanged);

  function table() {
    const entries = functions();
    const key = base ? (entry) => Math.abs(entry.ownDelta) : (entry) => entry.own;
    const second = base ? (entry) => Math.abs(entry.delta) : (entry) => entry.all;
    entries.sort((a, b) => key(b) - key(a) || second(b) - second(a));
    byId("tableTitle").textContent = base ? "What changed most" : "Where the time went";
    byId("firstFigure").textContent = base ? "Δ self" : "self";
    byId("secondFigure").textContent = base ? "Δ total" : "total";
    byId("functions").replaceChildren(...entries.slice(0, TABLE).map((entry) => {
      const row = document.createElement("tr"), cell = (said) => Object.assign(document.createElement("td"), { textContent: said });
      const name = cell(names[entry.index]), dot = document.createElement("i");
      dot.style.background = base ? changed(entry.ownDelta || entry.delta) : colours[data.states[state[entry.node]]];
      name.prepend(dot);
      name.title = [names[entry.index], modules[entry.index]].filter(Boolean).join(" · ");
      row.append(name, cell(base ? signed(entry.ownDelta) : percent(entry.own)), cell(base ? signed(entry.delta) : percent(entry.all)));
      row.tabIndex = 0;
      const show = () => {
        byId("search").value = `^${names[entry.index].replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}$`;
        search(byId("search").value);
        select(entry.node);
      };
      row.addEventListener("click", show);
      row.addEventListener("keydown", (event) => { if (event.key === "Enter") show(); });
      return row;
    }));
  }

  function legend() {
    const entries = base ? [["grew", colours.grew], ["shrank", colours.shrank]] : Object.entries(data.meanings).map(([name, meaning]) => [`${name}: ${meaning}`, colours[name]]);
    byId("legend").replaceChildren(...entries.map(([said, colour]) => {
      const entry = document.createElement("span"), dot = document.createElement("i");
      dot.style.background = colour;
      entry.append(dot, said);
      return entry;
    }));
  }

  function step(key) {
    const level = levels[depth[selected]], at = level.indexOf(selected);
    if (key === "ArrowUp" && selected) return parent[selected];
    if (key === "ArrowDown") {
      const below = (levels[depth[selected] + 1] || []).filter((node) => parent[node] === selected);
      return below.length ? below[0] : selected;
    }
    if (key === "ArrowLeft" && at > 0) return level[at - 1];
    if (key === "ArrowRight" && at + 1 < level.length) return level[at + 1];
    return selected;
  }

  canvas.addEventListener("click", (event) => { const node = nodeAt(event); if (node >= 0) zoom(node); });
  canvas.addEventListener("mousemove", (event) => {
    const node = nodeAt(event);
    if (node !== hovered) { hovered = node; redraw(); }
    tell(node < 0 ? selected : node);
    tip(event, node);
  });
  canvas.addEventListener("mouseleave", (event) => { hovered = -1; tip(event, -1); tell(selected); redraw(); });
  canvas.addEventListener("keydown", (event) => {
    if (data.empty) return;
    if (event.key.startsWith("Arrow")) {
      event.preventDefault();
      const node = step(event.key);
      if (node === 0 || !(isAncestor(focus, node) || isAncestor(node, focus))) focus = 0;
      select(node);
    } else if (event.key === "Enter") zoom(selected);
  });
  byId("search").addEventListener("input", (event) => search(event.target.value));
  byId("reset").addEventListener("click", reset);
  const theme = () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    redraw();
  };
  byId("theme").addEventListener("click", theme);
  addEventListener("keydown", (event) => {
    const typing = event.target.id === "search";
    if (event.key === "Escape") reset();
    else if (!typing && (event.key === "/" || (event.key === "f" && (event.ctrlKey || event.metaKey)))) {
      event.preventDefault();
      byId("search").focus();
    } else if (!typing && event.key === "t" && !event.ctrlKey && !event.metaKey) theme();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  addEventListener("resize", resize);

  byId("title").textContent = data.title;
  byId("subtitle").textContent = data.subtitle;
  byId("nothing").hidden = !data.empty;
  byId("notes").textContent = [...data.blindSpots, ...(data.leftOut ? [`${data.leftOut.toLocaleString()} frames too thin to keep`] : [])].join(" · ");
  legend();
  table();
  tell(0);
  resize();
})();
