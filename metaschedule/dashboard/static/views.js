// The views: each takes the data of its address and gives elements.
import { h, time, duration, number, percent, times, when, link, address, cards, table, code } from "./text.js";
import * as charts from "./charts.js";

const section = (title, ...content) => h("section", {}, h("h2", {}, title), ...content);
const outcomes = (counts) => Object.entries(counts).map(([kind, n]) => `${number(n)} ${kind}`).join(", ") || "none yet";
// "x86_64:znver4:avx+avx2:64x32:c2" as "x86_64 znver4, 2 cores": the features and the vectors follow from the CPU
const target = (key) => {
  const [architecture, cpu, , , cores] = key.split(":");
  return cores && /^c\d+$/.test(cores) ? `${architecture} ${cpu}, ${cores.slice(1)} cores` : key.split(":").filter((_, n) => n !== 2).join(" ");
};

export function runs(data) {
  if (!data.calls.length && !data.programs.length) {
    return [h("h1", {}, "Nothing tuned yet"), h("p", { class: "empty" },
      "This database has no records. They appear here as soon as something is tuned into it: metaschedule tune GMM --db FILE")];
  }
  return [
    h("h1", {}, "Tuning runs"),
    section("Runs", data.calls.length ? table("Runs", ["started", "what", ">programs", ">trials", "state", "machine"], data.calls.map((c) => [
      when(c.started), link(c.label || c.call.slice(0, 8), c.programs === 1 ? "run" : "model", c.programs === 1 ? c.runs[0] : c.call),
      number(c.programs), c.budget ? `${number(c.trials)} of ${number(c.budget)}` : number(c.trials),
      c.running ? h("span", { class: "live" }, "running") : c.stopped || "done", target(c.target),
    ])) : h("p", { class: "dim" }, "The runs were recorded by a version that kept no runs; the programs are below.")),
    section("Programs", table("Programs", ["program", "machine", ">trials", "outcomes", ">best", ""], data.programs.map((p) => [
      p.latency === null ? p.program : link(p.program, "kernel", p.workload, p.target), target(p.target), number(p.trials), outcomes(p.outcomes),
      time(p.latency), link("space", "space", p.workload, p.target),
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
  const pick = (uid) => { location.hash = address("kernel", data.workload, data.target, uid).slice(1); };
  const share = data.gflops && data.peak ? data.gflops / data.peak : null;
  const state = data.running ? h("span", { class: "live" }, "running") : data.stopped || "done";
  return [
    h("h1", {}, `${data.program}: tuning run`),
    cards([
      ["best", time(data.best)], ["untuned", time(data.untuned)],
      ["speedup", data.untuned && data.best ? times(data.untuned / data.best) : "–", "good"],
      ["trials", data.budget ? `${number(data.trials)} of ${number(data.budget)}` : number(data.trials)],
      ["state", state], data.left !== null && ["time left", `about ${duration(data.left)}`],
      data.gflops !== null && ["rate", `${data.gflops.toPrecision(3)} GFLOPS`], share !== null && ["share of the peak", percent(share)],
      ["disturbed", data.disturbed ? `${number(data.disturbed)} of ${number(data.trials)} trials` : "no", data.disturbed ? "bad" : null],
    ]),
    h("p", {}, link("The best kernel", "kernel", data.workload, data.target), " · ", link("Its space", "space", data.workload, data.target),
      data.call !== data.uid && [" · ", link("All kernels of this run", "model", data.call)]),
    h("div", { class: "columns" },
      section("Over trials", charts.course(data, "trial", pick)),
      section("Over time", charts.course(data, "elapsed", pick))),
    h("div", { class: "columns" },
      section("Phases", Object.keys(data.seconds).length ? charts.phases(data.seconds) : h("p", { class: "dim" }, "Not recorded.")),
      section("About", table("About this run", ["", ""], [
        ["machine", data.machine || target(data.target)], ["space", data.space], ["seed", String(data.seed ?? "–")],
        ["began", when(data.started)], ["last news", when(data.updated)], ["outcomes", outcomes(data.outcomes)],
      ]), compareForm("runs", data.uid, (others ?? []).filter((o) => o.uid !== data.uid)))),
    section("Sketches", table("Sketches", [">number", "what it does"], data.sketches.map((s, n) => [String(n), s || "–"]))),
    Object.keys(data.refused).length ? section("Refused", table("Refused candidates", ["reason", ">times"],
      Object.entries(data.refused).map(([why, n]) => [why, number(n)]))) : null,
  ];
}

export function model(data) {
  return [
    h("h1", {}, `${data.label || "Programs tuned together"}`),
    cards([
      ["kernels", number(data.kernels.length)], ["before", time(data.before)], ["after", time(data.after)],
      ["speedup", data.before && data.after ? times(data.before / data.after) : "–", "good"],
      ["state", data.running ? h("span", { class: "live" }, "running") : "done"],
    ]),
    h("div", { class: "columns" }, section("Time in the model", charts.kernels(data)), section("Shares", charts.treemap(data))),
    section("Kernels", table("Kernels", ["kernel", ">calls", ">untuned", ">tuned", ">in the model", ">speedup", ">left to gain", ">of the peak", ">trials", ""], data.kernels.map((k) => [
      k.latency === null ? k.program : link(k.program, "kernel", k.workload, k.target), number(k.weight), time(k.untuned), time(k.latency), time(k.after),
      k.untuned && k.latency ? times(k.untuned / k.latency) : "–", time(k.may_win), k.gflops && k.peak ? percent(k.gflops / k.peak) : "–", number(k.trials),
      link("run", "run", k.run),
    ]))),
    section("What runs in eager", data.eager.length ? table("Nodes in eager", ["node", "why", ">times"], data.eager.map(([node, why, n]) => [node, why, number(n)]))
      : h("p", { class: "dim" }, "Nothing, or it was not recorded.")),
  ];
}

export function kernel(data, { load, parts }) {
  const rest = parts.slice(1);
  const program = h("div", {}, code("Scheduled program", data.scheduled));
  const title = h("h2", {}, "Scheduled program");
  const note = h("p", { class: "dim" }, "Point at an instruction, or move to it by keyboard, to see what it changed.");
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
    note.textContent = found[n].new.length ? `${found[n].text.replace(/^.* = /, "")}: ${found[n].new.length} lines are new.` : "It looks or draws, and changes nothing.";
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
    cards([["outcome", r.outcome, r.outcome === "ok" ? "good" : "bad"], ["confirmed", r.confirmed ? "yes" : "no"], ["trial", number(r.trial)], ["space", r.space], ["measured", when(r.created)], ["machine", target(data.target)]]),
    r.detail ? section("What went wrong", h("pre", {}, r.detail)) : null,
    h("p", {}, link("Its space", "space", data.workload, data.target), data.runs.length ? [" · ", link("Its run", "run", r.run || data.runs[0])] : null),
    h("div", { class: "columns" },
      section("Program as written", code("Program as written", data.source)),
      section("Trace", note, code("Trace", data.trace, { onpick: pick })),
      h("section", {}, title, program)),
    section("Machine code", assembly),
    h("div", { class: "columns" },
      section("Decisions of the best", Object.keys(data.decisions.columns).length ? charts.parallel(data.decisions) : h("p", { class: "dim" }, "There are no two candidates of this sketch that differ.")),
      section("The cost model", data.predictions.predicted.length ? charts.predictions(data.predictions) : h("p", { class: "dim" }, "No predictions were recorded."))),
    section("The fastest", table("The fastest records", [">latency", "confirmed", "outline", ""], data.others.map((o) => [
      link(time(o.latency), "kernel", data.workload, data.target, o.uid), o.confirmed ? "yes" : "no", o.outline,
      o.uid === r.uid ? "this one" : link("compare", "compare", "records", r.uid, o.uid)]))),
  ];
}

export function space(data) {
  return [
    h("h1", {}, `${data.program}: what was searched`),
    section("Sketches", table("Sketches", ["sketch", ">size", ">drawn", "outcomes", ">best", ">median", ""], data.sketches.map((s) => [
      s.outline || "–", s.size ?? "–", number(s.drawn), outcomes(s.outcomes), time(s.best), time(s.median),
      s.record ? link("kernel", "kernel", data.workload, data.target, s.record.uid) : ""]))),
    ...data.sketches.map((s, n) => h("section", {}, h("details", {}, h("summary", {}, `Decisions of sketch ${n}: ${s.outline || "–"}`),
      s.decisions.map((d) => section(`${d.name} (${d.distinct} different)`, table(d.name, ["value", ">drawn", ">best with it"],
        d.values.map(([value, drawn, best]) => [value, number(drawn), time(best)]))))))),
    section("Refused", data.refused.length ? table("Refused candidates", ["reason", ">times"], data.refused.map(([why, n]) => [why, number(n)]))
      : h("p", { class: "dim" }, "Nothing, or it was not recorded.")),
    spacesForm(data),
  ];
}

function spacesForm(data) {
  const names = [...new Set(data.sketches.flatMap((s) => s.spaces))];
  if (names.length < 2) return null;
  const [first, second] = [choose("first space", names), choose("second space", names)];
  second.selectedIndex = 1;
  return section("Compare two spaces", h("form", { onsubmit: (e) => {
    e.preventDefault();
    location.hash = address("compare", "spaces", data.workload, data.target, first.value, second.value).slice(1);
  } }, first, second, h("button", {}, "Compare")));
}

const choose = (label, names, labels = names) => h("select", { "aria-label": label }, names.map((name, n) => h("option", { value: name }, labels[n])));

function compareForm(kind, uid, others) {
  if (!others.length) return null;
  const other = choose("the other run", others.map((o) => o.uid), others.map((o) => `${o.label}, ${when(o.started)}`));
  return h("form", { onsubmit: (e) => { e.preventDefault(); location.hash = address("compare", kind, uid, other.value).slice(1); } },
    h("span", {}, "Compare with"), other, h("button", {}, "Compare"));
}

export function compare(data) {
  const faster = data.faster === null ? "They cannot be compared by time." : `The second is ${times(data.faster)} as fast as the first.`;
  const heading = [h("h1", {}, `Two ${data.kind}`), h("p", {}, faster)];
  if (data.kind === "records") {
    return [...heading, section("Records", table("Records", ["", "first", "second"], ["program", "latency", "outcome", "space", "seed", "trial", "outline", "version"].map((field) =>
      [field, ...data.sides.map((s) => (field === "latency" ? time(s[field]) : String(s[field] ?? "–")))]))),
      section("Traces", twoColumns("Traces side by side", data.trace)), section("Programs", twoColumns("Programs side by side", data.scheduled))];
  }
  if (data.kind === "runs") {
    return [...heading, section("Best so far", charts.courses(data.sides, (s) => s.label || `${s.program} ${when(s.started)}`)),
      section("Runs", table("Runs", ["", "first", "second"], [
        ["program", ...data.sides.map((s) => s.program)], ["label", ...data.sides.map((s) => s.label || "–")], ["best", ...data.sides.map((s) => time(s.best))], ["untuned", ...data.sides.map((s) => time(s.untuned))],
        ["trials", ...data.sides.map((s) => number(s.trials))], ["space", ...data.sides.map((s) => s.space)], ["seed", ...data.sides.map((s) => String(s.seed ?? "–"))],
        ["outcomes", ...data.sides.map((s) => outcomes(s.outcomes))], ["machine", ...data.sides.map((s) => target(s.target))]]))];
  }
  return [...heading, section("Best so far", charts.courses(data.sides, (s) => s.space)),
    section("Spaces", table("Spaces", ["space", ">trials", ">best"], data.sides.map((s) => [s.space, number(s.trials), time(s.best)])))];
}

function twoColumns(label, rows) {
  const side = (n) => rows.map((row) => row[n] ?? "");
  const marks = Object.fromEntries(rows.map((row, n) => [n, row[2] === "=" ? null : "mark"]).filter(([, kind]) => kind));
  return h("div", { class: "columns" }, code(`${label}: first`, side(0), { marks }), code(`${label}: second`, side(1), { marks }));
}
