// Opens a page in Firefox, opens its first incident, and prints as JSON what is shown and what the browser complains about.
//
//   node firefox.mjs FIREFOX ADDRESS PROFILE
//
// Firefox speaks WebDriver BiDi by itself; what Playwright asks of it is more than Debian's release knows.
import { spawn } from "node:child_process";

const [program, address, profile] = process.argv.slice(2);
const PATIENCE_MS = 60_000;
const STEP_MS = 100;

const args = ["--headless", "--no-remote", "--profile", profile, "--remote-debugging-port", "0"];
const firefox = spawn(program, args, { env: { ...process.env, HOME: profile }, stdio: ["ignore", "ignore", "pipe"] });
process.on("exit", () => firefox.kill());
setTimeout(() => process.exit(1), 3 * PATIENCE_MS).unref();

const endpoint = await new Promise((resolve, reject) => {
  let printed = "";
  firefox.stderr.on("data", (part) => {
    printed += part;
    const found = /WebDriver BiDi listening on (ws:\S+)/.exec(printed);
    if (found) resolve(`${found[1]}/session`);
  });
  firefox.on("exit", () => reject(new Error(printed)));
});

const socket = new WebSocket(endpoint);
await new Promise((resolve, reject) => {
  socket.onopen = resolve;
  socket.onerror = reject;
});
const waiting = new Map();
const complaints = [];
socket.onmessage = ({ data }) => {
  const { type, id, result, error, message, params } = JSON.parse(data);
  if (type === "event") complaints.push(params.text);
  else if (type === "error") waiting.get(id).reject(new Error(`${error}: ${message}`));
  else waiting.get(id).resolve(result);
};

let sent = 0;
function call(method, params) {
  return new Promise((resolve, reject) => {
    waiting.set(++sent, { resolve, reject });
    socket.send(JSON.stringify({ id: sent, method, params }));
  });
}

await call("session.new", { capabilities: {} });
await call("session.subscribe", { events: ["log.entryAdded"] });
const { context } = (await call("browsingContext.getTree", {})).contexts[0];
await call("browsingContext.setViewport", { context, viewport: { width: 1440, height: 1080 } });
await call("browsingContext.navigate", { context, url: address, wait: "complete" });

async function evaluate(expression) {
  const found = await call("script.evaluate", { expression, target: { context }, awaitPromise: true });
  if (found.type === "exception") throw new Error(found.exceptionDetails.text);
  return found.result.value;
}

async function until(expression) {
  for (let waited = 0; waited < PATIENCE_MS; waited += STEP_MS) {
    if (await evaluate(`Boolean(${expression})`)) return;
    await new Promise((resolve) => setTimeout(resolve, STEP_MS));
  }
  throw new Error(`never true: ${expression}`);
}

/** Share of a canvas that is not of its first colour. */
const painted = (canvas) => `(() => {
  const canvas = document.querySelector(${JSON.stringify(canvas)});
  const pixels = new Uint32Array(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer);
  return pixels.filter((each) => each !== pixels[0]).length / pixels.length;
})()`;

const INCIDENT = "document.querySelector('[data-testid=incident-list] button')";
await until("document.querySelector('[data-testid=heatmap]')?.dataset.drawn === 'true'");
await until(INCIDENT);
await evaluate(`${INCIDENT}.click()`);
await until("document.querySelector('.finding')");
await until("!document.querySelector('[aria-busy=true]')");
const shown = {
  sentence: await evaluate("document.querySelector('[data-testid=answer-headline] strong').textContent"),
  heat: await evaluate(painted("canvas.heat")),
  flame: await evaluate(painted("section.panels canvas")),
  wide: await evaluate("document.documentElement.scrollWidth <= innerWidth"),
  complaints,
};
console.log(JSON.stringify(shown));
await call("browser.close", {});
process.exit(0);
