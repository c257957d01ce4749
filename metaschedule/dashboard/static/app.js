// Addresses, loading, live news and the theme.
import { h, limitTo } from "./text.js";
import { keepPlots, redraw } from "./charts.js";
import * as views from "./views.js";

const main = document.getElementById("main"), state = document.getElementById("state"), news = document.getElementById("news");
const embedded = document.getElementById("report-data");
const report = embedded ? JSON.parse(embedded.textContent) : null; // a file instead of a server: see report.py
const pathOf = (parts) => parts.map(encodeURIComponent).join("/");
if (report) limitTo((parts) => pathOf(parts) in report);
let current = 0, shown = "", list = null; // of runs, to compare with: not asked for again while a view is live

// ["run", "UID"] to the data at /api/run/UID, or to {error}
async function load(parts, query = "") {
  const path = pathOf(parts);
  if (report) return report[path] ?? { error: "This is not part of the report. The dashboard has it: metaschedule dashboard FILE" };
  try {
    const answer = await fetch(`api/${path}${query}`);
    return await answer.json();
  } catch {
    return { error: "The server does not answer. Is `metaschedule dashboard` still running? This page tries again.", retry: true };
  }
}

function where() {
  const [path, query] = (location.hash.replace(/^#\/?/, "")).split("?");
  const parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  return { parts: parts.length ? parts : ["runs"], query: query ? `?${query}` : "" };
}

async function show({ keep = false } = {}) {
  const turn = ++current, { parts, query } = where(), address = location.hash;
  const view = views[parts[0]];
  if (!view || parts[0] === "default") return place([h("h1", {}, "There is nothing here"), h("p", {}, h("a", { href: "#/" }, "To the runs"))]);
  if (!keep) list = null;
  const [data, runs] = await Promise.all([load(parts, query), parts[0] === "run" ? list ?? load(["runs"]) : null]);
  if (turn !== current) return;
  if (data.error) {
    place([h("h1", {}, "Cannot be shown"), h("p", { class: "bad", role: "alert" }, data.error)]);
    if (data.retry) setTimeout(() => turn === current && show({ keep: true }), 2000);
    return;
  }
  list = runs;
  const others = (list?.calls ?? []).flatMap((c) => c.runs.map((r) => ({ ...r, label: c.label, started: c.started })));
  const scroll = keep ? window.scrollY : 0;
  const again = keep && shown === address;
  keepPlots(again ? main.querySelectorAll(".plot") : []);
  place(view(data, { load, parts, others }), again);
  crumbs(parts, data);
  document.title = `${main.querySelector("h1")?.textContent ?? ""} – metaschedule`;
  if (keep) window.scrollTo(0, scroll);
  else if (shown !== address) { window.scrollTo(0, 0); if (shown) main.focus({ preventScroll: true }); }
  shown = address;
}

// What is as it was stays in its place, where the browser need not lay it out again
function place(elements, keep = false) {
  const fresh = elements.flat(Infinity).filter(Boolean), old = [...main.children];
  if (!keep || fresh.length !== old.length) return main.replaceChildren(...fresh);
  fresh.forEach((node, n) => { if (!node.isEqualNode(old[n])) old[n].replaceWith(node); });
}

function crumbs(parts, data) {
  const trail = [h("a", { href: "#/" }, "Runs")];
  if (parts[0] !== "runs") trail.push(h("a", { href: location.hash, "aria-current": "page" }, `${parts[0]} ${data.program ?? data.label ?? ""}`));
  document.getElementById("crumbs").replaceChildren(...trail);
}

// News of a live run: the view is asked for again, as often as a dot is to be on the page within a second of its
// trial, and no more, since it takes time from what is being tuned on this machine. Kernels and comparisons stay.
const SOON = 300, BETWEEN = 800; // milliseconds from news to the view, at least; between two views
let waiting = null, refreshed = 0;
function refresh() {
  if (waiting || !["runs", "run", "model", "space"].includes(where().parts[0])) return;
  waiting = setTimeout(async () => { waiting = null; refreshed = performance.now(); await show({ keep: true }); news.textContent = main.querySelector(".cards")?.textContent ?? ""; }, Math.max(SOON, refreshed + BETWEEN - performance.now()));
}

function listen() {
  const source = new EventSource("events");
  const tell = (text, bad) => { state.textContent = text; state.className = bad ? "bad" : ""; };
  let lost = false;
  source.addEventListener("open", () => { tell("live", false); if (lost) { lost = false; show({ keep: true }); } });
  source.addEventListener("news", () => { tell("live", false); refresh(); });
  source.addEventListener("trouble", (event) => { tell(JSON.parse(event.data).error, true); });
  source.addEventListener("error", () => { lost = true; tell("connection lost, trying again", true); });
}

const button = document.getElementById("theme");
function theme(name) {
  document.documentElement.dataset.theme = name;
  button.textContent = name === "dark" ? "Light" : "Dark";
  redraw();
}
function stored() { try { return localStorage.getItem("theme"); } catch { return null; } }
button.addEventListener("click", () => {
  const name = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  try { localStorage.setItem("theme", name); } catch { /* a file in a strict browser */ }
  theme(name);
});
theme(stored() ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));

addEventListener("hashchange", () => show());
if (report) state.textContent = "report";
else listen();
if (document.readyState === "complete") show();
else addEventListener("load", () => show());
