"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const heat = document.getElementById("heat"), curve = document.getElementById("curve"), tip = document.getElementById("tip");
  if (!heat) return;
  const bytes = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const values = bytes(data.values), states = bytes(data.states), UNRECORDED = 255;
  const LEFT = 46, RIGHT = 12, TOP = 16, AXIS = 20, CURVE = 130;
  const rowHeight = Math.max(4, Math.min(20, Math.floor(480 / data.rows.length)));
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const two = (number) => String(number).padStart(2, "0");
  const clock = (second) => {
    const day = (((data.since + data.offset + Math.floor(second)) % 86400) + 86400) % 86400;
    return `${two(Math.floor(day / 3600))}:${two(Math.floor(day / 60) % 60)}:${two(day % 60)}`;
  };
  const length = data.cells * data.cell;

  function prepare(canvas, height) {
    const width = canvas.parentElement.clientWidth, ratio = window.devicePixelRatio || 1;
    canvas.width = width * ratio; canvas.height = height * ratio; canvas.style.height = `${height}px`;
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.font = "11px system-ui, sans-serif";
    const x = (second) => LEFT + (second / length) * (width - LEFT - RIGHT);
    return { context, width, x };
  }

  function axis({ context, width, x }, y) {
    const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800];
    const step = steps.find((nice) => nice * ((width - LEFT - RIGHT) / length) >= 74) || 3600;
    context.fillStyle = colour("--quiet"); context.strokeStyle = colour("--line"); context.textAlign = "center";
    for (let second = Math.ceil((data.since + data.offset) / step) * step - data.since - data.offset; second < length; second += step) {
      if (x(second) > width - 30 || x(second) < LEFT + 20) continue;
      context.beginPath(); context.moveTo(x(second), y); context.lineTo(x(second), y + 4); context.stroke();
      context.fillText(clock(second), x(second), y + 15);
    }
  }

  // What the findings are about is framed, what it is compared with is framed with dashes.
  function frames({ context, x }, top, bottom, tint) {
    for (const [span, name, dash] of [[data.baseline, "--accent", [4, 3]], [data.focus, "--ink", []]]) {
      if (!span) continue;
      const [from, to] = [x(Math.max(0, span[0])), x(Math.min(length, span[1]))];
      context.globalAlpha = tint; context.fillStyle = colour(name); context.fillRect(from, top, Math.max(2, to - from), bottom - top);
      context.globalAlpha = 1; context.strokeStyle = colour(name); context.lineWidth = 1.5; context.setLineDash(dash);
      context.strokeRect(from, top, Math.max(2, to - from), bottom - top);
      context.setLineDash([]); context.lineWidth = 1;
    }
  }

  function drawCurve() {
    const stage = prepare(curve, CURVE + AXIS), { context, width, x } = stage, bottom = CURVE - 4;
    const y = (permille) => bottom - (permille / 1000) * (bottom - TOP - 6);
    context.strokeStyle = colour("--line"); context.fillStyle = colour("--quiet"); context.textAlign = "right";
    for (const share of [0, 500, 1000]) {
      context.beginPath(); context.moveTo(LEFT, y(share)); context.lineTo(width - RIGHT, y(share)); context.stroke();
      context.fillText(`${share / 10}%`, LEFT - 6, y(share) + 4);
    }
    frames(stage, TOP, bottom, 0.1);
    context.fillStyle = colour("--bad");
    const cell = Math.max(1, x(data.cell) - x(0));
    data.curve.forEach((permille, index) => {
      const from = x(index * data.cell);
      if (permille < 0) { context.fillStyle = colour("--gap"); context.fillRect(from, y(40), cell + 0.5, bottom - y(40)); context.fillStyle = colour("--bad"); }
      else context.fillRect(from, y(permille), cell + 0.5, bottom - y(permille));
    });
    for (const mark of data.marks) {
      context.fillStyle = colour(mark.severity === "critical" || mark.severity === "error" ? "--ink" : "--quiet");
      const at = x(mark.at);
      context.beginPath(); context.moveTo(at, 2); context.lineTo(at + 5, 8); context.lineTo(at, 14); context.lineTo(at - 5, 8); context.fill();
    }
    axis(stage, bottom);
  }

  function drawHeat() {
    const rows = data.rows.length, stage = prepare(heat, rows * rowHeight + AXIS + 2), { context, width, x } = stage;
    const ground = channels(colour("--cell")), gap = colour("--gap"), hues = data.hues.map(channels);
    const cell = x(data.cell) - x(0);
    for (let row = 0; row < rows; row += 1) {
      for (let column = 0; column < data.cells; column += 1) {
        const value = values[row * data.cells + column];
        if (value === UNRECORDED) context.fillStyle = gap;
        else {
          const share = Math.min(1, (value * data.step) / 1000), amount = share < 0.02 ? 0 : Math.pow(share, 0.8);
          const hue = hues[states[row * data.cells + column]] || ground;
          context.fillStyle = `rgb(${ground.map((from, i) => Math.round(from + (hue[i] - from) * amount)).join(",")})`;
        }
        context.fillRect(x(column * data.cell), row * rowHeight, cell + 0.5, rowHeight - (rowHeight > 6 ? 1 : 0));
      }
    }
    const culprit = (row) => data.cpusOfRows[row].some((cpu) => data.culprits.includes(cpu));
    const every = Math.max(1, Math.ceil(16 / rowHeight));
    const kept = [...data.rows.keys()].filter(culprit);
    context.textAlign = "right";
    data.rows.forEach((label, row) => {
      const bad = culprit(row);
      if (!bad && (row % every || kept.some((other) => Math.abs(other - row) < every))) return;
      context.font = `${bad ? "700 " : ""}11px system-ui, sans-serif`;
      context.fillStyle = colour(bad ? "--ink" : "--quiet");
      context.fillText(bad ? `▸ ${label}` : label, LEFT - 6, row * rowHeight + rowHeight / 2 + 4);
    });
    context.font = "11px system-ui, sans-serif";
    frames(stage, 0, rows * rowHeight, 0);
    axis(stage, rows * rowHeight);
  }

  function show(event, text) {
    tip.textContent = text; tip.hidden = !text;
    tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8)}px`;
  }
  function column(canvas, event) {
    const box = canvas.getBoundingClientRect();
    return Math.floor(((event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT)) * data.cells);
  }
  heat.addEventListener("mousemove", (event) => {
    const at = column(heat, event), row = Math.floor((event.clientY - heat.getBoundingClientRect().top) / rowHeight);
    if (at < 0 || at >= data.cells || row < 0 || row >= data.rows.length) return show(event, "");
    const value = values[row * data.cells + at], when = clock(at * data.cell);
    const said = value === UNRECORDED ? "not recorded" : `${(value * data.step) / 10}% busy, mostly ${data.stateNames[states[row * data.cells + at]]}`;
    return show(event, `core ${data.rows[row]} at ${when}\n${said}`);
  });
  curve.addEventListener("mousemove", (event) => {
    const at = column(curve, event);
    if (at < 0 || at >= data.cells) return show(event, "");
    const share = data.curve[at], near = data.marks.filter((mark) => Math.abs(mark.at / data.cell - at - 0.5) < 1.5).slice(0, 5);
    const said = share < 0 ? "not recorded" : `${share / 10}% of core ${data.curveCpu[at]} in the kernel`;
    return show(event, [`${clock(at * data.cell)}: ${said}`, ...near.map((mark) => `◆ ${mark.text}`)].join("\n"));
  });
  for (const canvas of [heat, curve]) canvas.addEventListener("mouseleave", () => { tip.hidden = true; });
  const draw = () => { drawCurve(); drawHeat(); };
  addEventListener("resize", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
})();
