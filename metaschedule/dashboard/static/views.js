// The views: each takes the data of its address and gives elements.
import { h, time, duration, number, percent, times, when, date, link, go, has, cards, table, code } from "./text.js";
import * as charts from "./charts.js";

const section = (title, ...content) => h("section", {}, h("h2", {}, title), ...content);
const outcomes = (counts) => Object.entries(counts).map(([kind, n]) => `${number(n)} ${kind}`).join(", ") || "none yet";
// "x86_64:znver4:avx+avx2:64x32:c2" as "x86_64 znver4, 2 cores": the features and the vectors follow from the CPU
const target = (key) => {
  const [architecture, cpu, , , cores] = key.split(":");
  return h("span", { class: "whole" },
    cores && /^c\d+$/.test(cores) ? `${architecture} ${cpu}, ${cores.slice(1)} cores` : key.split(":").filter((_, n) => n !== 2).join(" "));
};

// the share of the peak, or what is moved by a kernel that memory bounds
const speed = (k) => (k.bandwidth ? `${k.bandwidth.toPrecision(3)} GB/s` : k.gflops && k.peak ? percent(k.gflops / k.peak) : "–");

export function runs(data) {
  if (!data.calls.length && !data.programs.length) {
    return [h("h1", {}, "Nothing tuned yet"), h("p", { class: "empty" },
      "This database has no records. They appear here as soon as something is tuned into it: metaschedule tune GMM --db FILE")];
  }
  return [
    h("h1", {}, "Tuning runs"),
    section("Runs", data.calls.length ? table("Runs", ["what", "started", ">trials", "state", ">programs", "machine"], data.calls.map((c) => [
      link(c.label || c.call.slice(0, 8), c.programs === 1 ? "run" : "model", c.programs === 1 ? c.runs[0].uid : c.call),
      when(c.started), c.budget ? `${number(c.trials)} of ${number(c.budget)}` : number(c.trials),
      c.running ? h("span", { class: "live" }, "running") : c.stopped || "done", number(c.programs), target(c.target),
    ])) : h("p", { class: "dim" }, "The runs were recorded by a version that kept no runs; the programs are below.")),
    section("Programs", table("Programs", ["program", ">best", ">trials", "outcomes", "machine", ""], data.programs.map((p) => [
      p.latency === null ? p.program : link(p.program, "kernel", p.workload, p.target), time(p.latency), number(p.trials), outcomes(p.outcomes),
      target(p.target), link("space", "space", p.workload, p.target),
    ])), pager(data)),
  ];
}

function pager(data) {
  const total = Math.max(data.total_calls, data.total_programs), { offset, limit } = data;
  if (total <= limit) return null;
  return h("nav", { class: "pager", "aria-label": "Pages" },
    offset > 0 && h("a", { href: `#/?offset=${Math.max(0, offset - limit)}` }, "‹ newer"),
    h("span", {}, `${offset + 1}–${Math.min(total, offset + limit)} of ${number(total)}`),
    offset + limit < total && h("a", { href: `#/?offset=${offset + limit}` }, "older ›"));
}

export function run(data, { others }) {
  const pick = (uid) => go("kernel", data.workload, data.target, uid);
  const state = data.running ? h("span", { class: "live" }, "running") : data.stopped || "done";
  return [
    h("h1", {}, `${data.program}: tuning run`),
    cards([
      ["best", time(data.best)], ["untuned", time(data.untuned)],
      ["speedup", data.untuned && data.best ? times(data.untuned / data.best) : "–", "good"],
      ["trials", data.budget ? `${number(data.trials)} of ${number(data.budget)}` : number(data.trials)],
      ["state", state], data.left !== null && ["time left", `about ${duration(data.left)}`],
      data.gflops !== null && ["rate", `${data.gflops.toPrecision(3)} GFLOPS`], data.bandwidth ? ["moved", speed(data)] : data.gflops && data.peak && ["share of the peak", speed(data)],
      ["disturbed", data.disturbed ? `${number(data.disturbed)} of ${number(data.trials)} trials` : "no", data.disturbed ? "bad" : null],
    ]),
    h("p", {}, link("The best kernel", "kernel", data.workload, data.target, ...(data.leader ? [data.leader] : [])), " · ", link("Its space", "space", data.workload, data.target),
      data.call !== data.uid && [" · ", link("All kernels of this run", "model", data.call)]),
    h("div", { class: "columns" },
      section("Over trials", charts.course(data, "trial", pick)),
      section("Over time", charts.course(data, "elapsed", pick))),
    h("div", { class: "columns" },
      section("Phases", Object.keys(data.seconds).length ? charts.phases(data.seconds) : h("p", { class: "dim" }, "Not recorded.")),
      section("About", table("About this run", ["", ""], [
        data.label && ["label", data.label],
        ["machine", [data.machine, data.machine && ", ", target(data.target)]], ["space", data.space], ["seed", String(data.seed ?? "–")],
        ["began", when(data.started)], ["last news", when(data.updated)], ["outcomes", outcomes(data.outcomes)],
      ].filter(Boolean)), compareForm(data, (others ?? []).filter((o) => o.uid !== data.uid && has("compare", "runs", data.uid, o.uid))))),
    data.runners.length ? section("Runners", table("Runners", ["machine", "kind", "now", "program", ">trials", ">a minute", ">disturbed"], data.runners.map((r) =>
      [r.name, r.kind, data.running ? r.state : "–", r.program, number(r.trials), number(Math.round(r.rate)), r.trials ? percent(r.disturbed) : "–"]))) : null,
    section("Sketches", table("Sketches", ["sketch", "what it does"], data.sketches.map((s, n) =>
      [h("span", {}, h("span", { class: "swatch", style: `background:${charts.colourOf(n)}` }), String(n)), s || "–"]))),
    Object.keys(data.refused).length ? section("Refused", table("Refused candidates", ["reason", ">times"],
      Object.entries(data.refused).map(([why, n]) => [why, number(n)]))) : null,
  ];
}

export function model(data) {
  const pick = (k) => (k.latency === null ? go("run", k.run) : go("kernel", k.workload, k.target));
  const all = data.kernels.length, of = data.compared < all ? ` (${number(data.compared)} of ${number(all)} kernels)` : "";
  return [
    h("h1", {}, `${data.label || "Programs tuned together"}`),
    cards([
      ["kernels", number(data.kernels.length)], [`before${of}`, time(data.before)], [`after${of}`, time(data.after)],
      ["speedup", data.before && data.after ? times(data.before / data.after) : "–", "good"],
      ["state", data.running ? h("span", { class: "live" }, "running") : "done"],
    ]),
    h("div", { class: "columns" }, section("Time in the model", charts.kernels(data, pick)), section("Shares", charts.treemap(data, pick))),
    section("Kernels", table("Kernels", ["kernel", ">calls", ">untuned", ">tuned", ">in the model", ">speedup", ">left to gain", ">of the peak, or GB/s", ">trials", ""], data.kernels.map((k) => [
      k.latency === null ? k.program : link(k.program, "kernel", k.workload, k.target), number(k.weight), time(k.untuned), time(k.latency), time(k.after),
      k.untuned && k.latency ? times(k.untuned / k.latency) : "–", k.may_win === 0 ? "none" : time(k.may_win), speed(k), number(k.trials),
      link("run", "run", k.run),
    ]))),
    section("What runs in eager", data.eager.length ? table("Nodes in eager", ["node", "why", ">times"], data.eager.map(([node, why, n]) => [node, why, number(n)]))
      : h("p", { class: "dim" }, "None recorded.")),
  ];
}

export function kernel(data, { load, parts }) {
  const rest = parts.slice(1);
  const program = h("div", {}, code("Scheduled program", data.scheduled, { marks: Object.fromEntries(data.new.map((line) => [line, "new"])) }));
  const title = h("h2", {}, "Scheduled program");
  const said = h("p", { class: "note" }, "The lines that are not in the program as written are marked.");
  let steps = null, at = -1;
  const pick = async (n) => {
    steps ??= load(["steps", ...rest]);
    const found = await steps;
    if (found.error || at === n) return;
    at = n;
    let lines = data.source;
    for (let k = 0; k <= n; k += 1) lines = found[k].lines ?? lines;
    const marks = Object.fromEntries(found[n].new.map((line) => [line, "new"]));
    title.textContent = `After instruction ${n + 1}`;
    const count = found[n].new.length;
    said.textContent = count ? `${found[n].text.replace(/^[^(]* = /, "").replace(/\(.*/s, "")} made the marked ${count === 1 ? "line" : `${count} lines`}.`
      : "This instruction looks something up or draws a decision; the program is as it was.";
    program.replaceChildren(code("Program after this instruction", lines, { marks }));
    program.querySelector(".new")?.scrollIntoView({ block: "nearest" });
  };
  const assembly = h("div", {}, h("button", { type: "button", onclick: showCode }, "Show the machine code"));
  async function showCode() {
    assembly.replaceChildren(h("p", {}, "Compiling…"));
    const found = await load(["code", ...rest]);
    if (found.error) return assembly.replaceChildren(h("p", { class: "bad" }, found.error));
    const loop = found.loop, marks = {};
    if (loop) for (let n = loop.first; n <= loop.last; n += 1) marks[n] = "mark";
    const listing = code("Assembly", found.lines, { language: "asm", marks });
    assembly.replaceChildren(loop ? cards([["inner loop", `lines ${loop.first + 1}–${loop.last + 1}`], ["vector products", number(loop.products)], ["loads", number(loop.loads)],
      ["stores", number(loop.stores)], ["instructions", number(loop.instructions)], ["bound by", loop.bound]]) : h("p", {}, "There is no loop in it."), listing);
    const first = listing.querySelector(".mark");
    if (first) listing.scrollTop = first.offsetTop - 2 * first.offsetHeight;
  }
  const r = data.record;
  return [
    h("h1", {}, `${data.program}: ${time(r.latency)}`),
    cards([["outcome", r.outcome, r.outcome === "ok" ? "good" : "bad"], r.confirmed ? ["measured", "again, beside the leaders"] : ["trial", number(r.trial)], ["space", r.space], ["on", when(r.created)], ["machine", target(data.target)]]),
    r.detail ? section("What went wrong", h("pre", {}, r.detail)) : null,
    h("p", {}, link("Its space", "space", data.workload, data.target), data.runs.length ? [" · ", link("Its run", "run", r.run || data.runs[0])] : null),
    h("div", { class: "columns" },
      section("Program as written", h("p", { class: "note" }, "What to compute, as it was given."), code("Program as written", data.source)),
      section("Trace", h("p", { class: "note" }, "Point at an instruction, or move to it by keyboard, to see what it changed."), code("Trace", data.trace, { onpick: pick })),
      h("section", {}, title, said, program)),
    section("Machine code", assembly),
    h("div", { class: "columns" },
      section("Decisions of the best", Object.keys(data.decisions.columns).length ? charts.parallel(data.decisions) : h("p", { class: "dim" }, "There are no two candidates of this sketch that differ.")),
      section("The cost model", data.predictions.predicted.length ? charts.predictions(data.predictions) : h("p", { class: "dim" }, "No predictions were recorded."))),
    section("The fastest", table("The fastest records", [">latency", "confirmed", "outline", ""], data.others.map((o) => [
      link(time(o.latency), "kernel", data.workload, data.target, o.uid), o.confirmed ? "yes" : "no", o.outline,
      o.uid === r.uid ? "this one" : has("compare", "records", r.uid, o.uid) && link("compare", "compare", "records", r.uid, o.uid)]))),
  ];
}

export function space(data) {
  return [
    h("h1", {}, `${data.program}: what was searched`),
    section("Sketches", table("Sketches", ["sketch", ">size", ">drawn", "outcomes", ">best", ">median", ""], data.sketches.map((s) => [
      s.outline || "–", s.size ?? "–", number(s.drawn), outcomes(s.outcomes), time(s.best), time(s.median),
      s.record && has("kernel", data.workload, data.target, s.record.uid) && link("kernel", "kernel", data.workload, data.target, s.record.uid)]))),
    section("Decisions", h("p", { class: "dim" }, "What was drawn for each sketch, and the best latency with it."),
      data.sketches.map((s) => h("details", {}, h("summary", {}, s.outline || "–"), h("div", { class: "columns" },
        s.decisions.map((d) => section(`${d.name} (${d.distinct} ${d.distinct === 1 ? "value" : "values"})`, table(d.name, ["value", ">drawn", ">best with it"],
          d.values.map(([value, drawn, best]) => [value, number(drawn), time(best)]))))))),
    ),
    section("Refused", data.refused.length ? table("Refused candidates", ["reason", ">times"], data.refused.map(([why, n]) => [why, number(n)]))
      : h("p", { class: "dim" }, "None recorded.")),
    spacesForm(data),
  ];
}

function spacesForm(data) {
  const names = [...new Set(data.sketches.flatMap((s) => s.spaces))];
  if (names.length < 2 || !has("compare", "spaces", data.workload, data.target, ...names)) return null;
  const [first, second] = [choose("first space", names), choose("second space", names)];
  second.selectedIndex = 1;
  return section("Compare two spaces", h("form", { onsubmit: (e) => {
    e.preventDefault();
    go("compare", "spaces", data.workload, data.target, first.value, second.value);
  } }, first, second, h("button", {}, "Compare")));
}

const choose = (label, names, labels = names) => h("select", { "aria-label": label }, names.map((name, n) => h("option", { value: name }, labels[n])));

// those of the same program come first
function compareForm(run, others) {
  if (!others.length) return null;
  const ordered = [...others.filter((o) => o.program === run.program), ...others.filter((o) => o.program !== run.program)];
  const name = (o) => (o.label && o.label !== o.program ? `${o.program} (${o.label})` : o.program);
  const other = choose("the other run", ordered.map((o) => o.uid), ordered.map((o) => `${name(o)}, ${date(o.started)}`));
  return h("form", { onsubmit: (e) => { e.preventDefault(); go("compare", "runs", run.uid, other.value); } },
    h("span", {}, "Compare with"), other, h("button", {}, "Compare"));
}

export function compare(data) {
  const faster = data.faster === null ? "They cannot be compared by time."
    : data.faster < 1 ? `The first is ${times(1 / data.faster)} as fast as the second.` : `The second is ${times(data.faster)} as fast as the first.`;
  const heading = [h("h1", {}, `Two ${data.kind}`), h("p", {}, faster)];
  if (data.kind === "records") {
    return [...heading, section("Records", even(table("Records", ["", "first", "second"], ["program", "latency", "outcome", "space", "seed", "trial", "outline", "version"].map((field) =>
      [field, ...data.sides.map((s) => (field === "latency" ? time(s[field]) : String(s[field] ?? "–")))])))),
      section("Traces", twoColumns("Traces side by side", data.trace)), section("Programs", twoColumns("Programs side by side", data.scheduled))];
  }
  if (data.kind === "runs") {
    return [...heading, section("Best so far", charts.courses(data.sides, (s) => s.label || `${s.program} ${date(s.started)}`)),
      section("Runs", even(table("Runs", ["", "first", "second"], [
        ["program", ...data.sides.map((s) => s.program)], ["label", ...data.sides.map((s) => s.label || "–")], ["best", ...data.sides.map((s) => time(s.best))], ["untuned", ...data.sides.map((s) => time(s.untuned))],
        ["trials", ...data.sides.map((s) => number(s.trials))], ["space", ...data.sides.map((s) => s.space)], ["seed", ...data.sides.map((s) => String(s.seed ?? "–"))],
        ["outcomes", ...data.sides.map((s) => outcomes(s.outcomes))], ["machine", ...data.sides.map((s) => target(s.target))]])))];
  }
  return [...heading, section("Best so far", charts.courses(data.sides, (s) => s.space)),
    section("Spaces", table("Spaces", ["space", ">trials", ">best"], data.sides.map((s) => [s.space, number(s.trials), time(s.best)])))];
}

const even = (content) => h("div", { class: "even" }, content);

function twoColumns(label, rows) {
  const side = (n) => rows.map((row) => row[n] ?? "");
  const marks = Object.fromEntries(rows.map((row, n) => [n, row[2] === "=" ? null : "mark"]).filter(([, kind]) => kind));
  const [first, second] = [code(`${label}: first`, side(0), { marks }), code(`${label}: second`, side(1), { marks })];
  for (const [one, other] of [[first, second], [second, first]]) one.addEventListener("scroll", () => { other.scrollTop = one.scrollTop; });
  return h("div", { class: "columns" }, first, second);
}
