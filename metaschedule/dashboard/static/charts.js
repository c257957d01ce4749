// Plots. Each is a figure with a caption and the same numbers as a table, for those who cannot see it.
import { h, table, time, number, percent } from "./text.js";

const PALETTE = ["#3b6fb6", "#d98032", "#3f8f5f", "#8d6bb8", "#b8504b", "#2f97a5", "#a07a2c", "#c2649a", "#6b7785", "#5f8f1f"];
const HEIGHT = 320; // pixels
const SPREAD = 1.5; // times what most candidates take: where the scale of latencies ends
const SMALL = 0.1; // of a model's time: a tile that has room for a number only
const live = new Set(); // plots of the page

let colours = {}; // of the theme; to ask for them makes the browser compute all styles
const css = (name) => (colours[name] ??= getComputedStyle(document.documentElement).getPropertyValue(name).trim());

function layout(extra = {}) {
  const axis = { gridcolor: css("--line"), zerolinecolor: css("--line"), automargin: true, exponentformat: "none", separatethousands: true };
  const { xaxis = {}, yaxis = {}, ...rest } = extra;
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: css("--text"), family: "system-ui, sans-serif", size: 12 },
    margin: { l: 56, r: 12, t: 10, b: 42 }, height: HEIGHT, hovermode: "closest",
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
    xaxis: { ...axis, ...xaxis }, yaxis: { ...axis, ...yaxis }, ...rest,
  };
}

// A logarithmic axis over these values. Where they span less than some octaves Plotly's own marks are even;
// over more it writes bare digits between the powers of ten, which nobody can read.
function logarithmic(title, values) {
  const known = values.filter((v) => v > 0), low = Math.min(...known), high = Math.max(...known);
  const axis = { title: { text: title }, type: "log" };
  if (!(high > 6 * low)) return axis;
  const steps = high > 1000 * low ? [1] : [1, 2, 5], marks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    marks.push(...steps.map((step) => Number(`${step}e${power}`)));
  }
  return { ...axis, tickvals: marks, ticktext: marks.map(number) };
}

// Drawing takes time from what is being tuned on this machine. So a plot is drawn while it is in view and when what
// it shows has changed; where a view is shown again because there is news, its plots are kept.
let kept = new Map();
export const keepPlots = (found) => { kept = new Map([...found].map((plot) => [plot.dataset.label, plot])); };
const inView = new IntersectionObserver((entries) => entries.forEach(({ target, isIntersecting }) => {
  target.inView = isIntersecting;
  target.draw();
}));
addEventListener("beforeprint", () => live.forEach((plot) => { plot.inView = true; plot.draw(); }));

// `make` gives [traces, layout]; it is called again when the theme changes. `rest` is the time between two drawings
// in milliseconds, of a plot that shows what another one does
export function figure(label, caption, make, data, { onclick = null, rest = 0, legend = null } = {}) {
  const known = kept.get(label), plot = known ?? h("div", { class: "plot", role: "img", "data-label": label });
  plot.setAttribute("aria-label", `${label}. ${caption}`);
  plot.style.minHeight = `${make()[1].height ?? HEIGHT}px`;
  plot.pick = onclick;
  plot.draw = () => {
    if (!plot.isConnected) { live.delete(plot); inView.unobserve(plot); }
    if (!plot.isConnected || !plot.inView) return;
    const wait = (plot.drawn ?? -rest) + rest - performance.now();
    if (wait > 0) { clearTimeout(plot.timer); plot.timer = setTimeout(() => plot.draw(), wait); return; }
    const [traces, extra] = make(), whole = layout(extra), said = JSON.stringify([traces, whole]);
    if (plot.said === said) return;
    [plot.said, plot.drawn] = [said, performance.now()];
    Plotly.react(plot, traces, whole, { displayModeBar: false, responsive: true });
    plot.removeAllListeners("plotly_click");
    plot.on("plotly_click", (event) => plot.pick?.(event.points[0]));
  };
  live.add(plot);
  if (known) requestAnimationFrame(() => plot.draw());
  else inView.observe(plot);
  const more = data ? h("details", {}, h("summary", {}, "The same as a table"), table(label, ...data)) : null;
  return h("figure", {}, h("figcaption", {}, caption), plot, legend, more);
}

export function redraw() { colours = {}; for (const plot of [...live]) { plot.drawn = undefined; plot.draw(); } }

// Trials as dots over `by` ("trial" or "elapsed"), the best so far as a line; failed ones hollow, at the top
export function course(run, by, onpick) {
  const p = run.points, ok = p.latency.map((l) => l !== null);
  const us = (l) => (l === null ? null : 1e6 * l);
  const label = by === "trial" ? "trial" : "seconds";
  const known = p.latency.filter((l) => l !== null).map(us).sort((a, b) => a - b);
  const slowest = known.at(-1) ?? 1e-3;
  // a few candidates that are a thousand times slower would press all others to the ground
  const most = SPREAD * Math.max(known[Math.floor(0.9 * known.length)] ?? 0, 1e6 * run.untuned);
  const top = slowest > SPREAD * most ? most : slowest;
  const make = () => {
    const good = p.uid.map((_, n) => n).filter((n) => ok[n]);
    const dots = [{
      mode: "markers", x: good.map((n) => p[by][n]), y: good.map((n) => Math.min(top, us(p.latency[n]))), customdata: good.map((n) => p.uid[n]),
      text: good.map((n) => `trial ${p.trial[n]}: ${time(p.latency[n])}${p.disturbed[n] >= 1 ? ", disturbed" : ""}`), hoverinfo: "text",
      marker: { color: good.map((n) => colourOf(p.sketch[n])), size: 7, opacity: 0.8, symbol: good.map((n) => (us(p.latency[n]) > top ? "triangle-up" : "circle")) },
    }];
    const failed = p.uid.map((_, n) => n).filter((n) => !ok[n]);
    if (failed.length) dots.push({
      mode: "markers", x: failed.map((n) => p[by][n]), y: failed.map(() => 1.15 * top),
      customdata: failed.map((n) => p.uid[n]), hoverinfo: "text",
      text: failed.map((n) => `trial ${p.trial[n]}: ${p.outcome[n]}. ${p.detail[n]}`),
      marker: { color: css("--bad"), size: 8, symbol: "circle-open" },
    });
    dots.forEach((d) => { d.type = "scatter"; }); // not "scattergl": the thinned plot is light, and WebGL may be missing
    const line = {
      mode: "lines", x: run.course[by], y: run.course.latency.map(us),
      line: { shape: "hv", color: css("--text"), width: 2 }, hoverinfo: "skip",
    };
    return [[...dots, line], {
      showlegend: false, margin: { l: 72, r: 12, t: 10, b: 42 }, // Plotly's own legend and margins take half of the time to draw
      xaxis: { title: { text: label }, rangemode: by === "trial" ? "normal" : "tozero", automargin: false },
      yaxis: { ...logarithmic("µs", [...known.map((l) => Math.min(top, l)), us(run.untuned)]), automargin: false },
      shapes: run.untuned ? [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: us(run.untuned), y1: us(run.untuned), line: { dash: "dot", color: css("--dim") } }] : [],
    }];
  };
  const failures = p.latency.filter((l) => l === null).length;
  const caption = `Every candidate is a dot, coloured by its sketch; ${failures ? `the ${number(failures)} hollow ones failed` : "none failed"}. The line is the best so far`
    + (run.untuned ? ", the dotted one is the untuned kernel." : ".") + (slowest > top ? " Triangles are slower than the scale reaches." : "") + (run.thinned ? " Thinned: not all dots are drawn." : "");
  const rows = run.course.latency.map((l, n) => [number(run.course.trial[n]), run.course.elapsed[n].toFixed(1), time(l)]);
  const sketches = [...new Set(p.sketch.filter((_, n) => ok[n]))].sort((a, b) => a - b);
  return figure(`Latency over ${by === "trial" ? "trials" : "time"}`, caption, make, [[">trial", ">seconds", ">best so far"], rows], {
    onclick: onpick && ((point) => onpick(point.customdata)), rest: by === "trial" ? 0 : 10000,
    legend: key(sketches.map((n) => [colourOf(n), `sketch ${n}`])),
  });
}

// What colours mean, below a plot
const key = (entries) => h("p", { class: "key" }, entries.map(([colour, said]) =>
  h("span", {}, h("span", { class: "swatch", style: `background:${colour}` }), said)));

export const colourOf = (sketch) => PALETTE[sketch % PALETTE.length];

export function phases(seconds) {
  const names = Object.keys(seconds);
  const make = () => [names.map((name, n) => ({
    name, type: "bar", orientation: "h", x: [seconds[name]], y: [""], marker: { color: PALETTE[n % PALETTE.length] },
    text: [`${name}: ${seconds[name].toFixed(1)} s`], hoverinfo: "text", textposition: "none",
  })), { barmode: "stack", height: 150, margin: { l: 12, r: 12, t: 6, b: 40 }, xaxis: { title: { text: "seconds" } }, yaxis: { visible: false }, legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", traceorder: "normal" } }];
  return figure("Where time went", "Seconds in each phase.", make, [["phase", ">seconds"], names.map((n) => [n, seconds[n].toFixed(1)])]);
}

export function kernels(model, onpick) {
  const rows = model.kernels.filter((k) => k.after !== null).slice(0, 40);
  const title = (k, n) => `${n + 1} ${k.program.length > 28 ? `${k.program.slice(0, 27)}…` : k.program}`; // a phone has room for no more
  const make = () => [[
    { name: "untuned", type: "bar", orientation: "h", y: rows.map(title), x: rows.map((k) => 1e6 * (k.before ?? 0)), marker: { color: css("--faint") } },
    { name: "tuned", type: "bar", orientation: "h", y: rows.map(title), x: rows.map((k) => 1e6 * k.after), marker: { color: css("--plot") } },
  ], { height: 110 + 34 * rows.length, barmode: "group", yaxis: { autorange: "reversed", ticksuffix: " ", tickfont: { size: 11 } }, xaxis: { title: { text: "µs in the model" } }, margin: { l: 60, r: 12, t: 6, b: 40 } }];
  return figure("Kernels by time in the model", "What each kernel takes in the model, before and after tuning.", make,
    [["kernel", ">before", ">after"], rows.map((k) => [k.program, time(k.before), time(k.after)])], { onclick: (point) => onpick(rows[point.pointNumber]) });
}

// What a tile's colour says: whether its kernel has come near the peak, has not, or is bound by memory
const HOPES = [["#2f7a4d", "nothing left to gain"], ["#a8560f", "something left to gain"], [PALETTE[0], "bound by memory, or not known"]];
const hope = (kernel) => (kernel.may_win === null ? 2 : kernel.may_win > 0 ? 1 : 0);

// a name in lines of some 14 letters, broken where its words end
const fold = (name) => name.replace(/(.{10,}?)_/g, "$1_<br>");

export function treemap(model, onpick) {
  const rows = model.kernels.filter((k) => k.after);
  const all = rows.reduce((sum, k) => sum + k.after, 0);
  const title = (k, n) => (k.after < SMALL * all ? String(n + 1) : `${n + 1} ${fold(k.program)}<br>${time(k.after)}`);
  const make = () => [[{
    type: "treemap", ids: rows.map((k) => k.run), labels: rows.map(title), parents: rows.map(() => ""), values: rows.map((k) => 1e6 * k.after),
    textinfo: "label", textfont: { color: "#ffffff" }, hovertext: rows.map((k) => `${k.program}: ${time(k.after)}, ${percent(k.after / all)}; ${HOPES[hope(k)][1]}`), hoverinfo: "text",
    marker: { colors: rows.map((k) => HOPES[hope(k)][0]), line: { width: 2, color: css("--card") } },
  }], { height: 300, margin: { l: 0, r: 0, t: 0, b: 0 }, uniformtext: { minsize: 9, mode: "hide" } }];
  return figure("The model's time", "Areas are the time that each kernel takes in the model now; numbers as in the bars.", make, null, {
    onclick: (point) => onpick(rows[point.pointNumber]), legend: key(HOPES.filter((_, n) => rows.some((k) => hope(k) === n))),
  });
}

// Parallel coordinates: every column has its own scale. Drawn as plain lines, because Plotly's own parallel
// coordinates need WebGL and compile code at run time, which the page's security policy forbids.
export function parallel(decisions) {
  const names = Object.keys(decisions.columns);
  const columns = [...names.map((name) => decisions.columns[name]), decisions.latency.map((l) => 1e6 * l)];
  const labels = [...names, "µs"];
  const spans = columns.map((values) => [Math.min(...values), Math.max(...values)]);
  const at = (n, value) => (spans[n][1] > spans[n][0] ? (value - spans[n][0]) / (spans[n][1] - spans[n][0]) : 0.5);
  const make = () => [decisions.uids.map((_, row) => ({
    name: time(decisions.latency[row]), mode: "lines+markers", type: "scatter", x: labels, y: columns.map((values, n) => at(n, values[row])),
    line: { color: row === 0 ? css("--accent") : css("--plot"), width: row === 0 ? 3 : 1.2 }, opacity: row === 0 ? 1 : 0.55,
    text: columns.map((values, n) => `${labels[n]}: ${n < names.length ? values[row] : `${values[row].toPrecision(3)} µs`}`), hoverinfo: "text",
  })), {
    height: 380, showlegend: false, margin: { l: 20, r: 20, t: 26, b: 120 },
    xaxis: { tickangle: -40, showgrid: true }, yaxis: { visible: false, range: [-0.12, 1.12] },
    annotations: spans.flatMap(([low, high], n) => [[low, -0.07], [high, 1.07]].map(([value, y]) => ({ x: labels[n], y, text: number(Number(value.toPrecision(3))), showarrow: false, font: { size: 9, color: css("--dim") } }))),
  }];
  const rows = decisions.uids.map((_, r) => [time(decisions.latency[r]), ...names.map((n) => number(decisions.columns[n][r]))]);
  return figure("Decisions of the best", "Each line is one of the fastest candidates of this sketch, the fastest is bold; axes are decisions in which they differ.", make,
    [[">latency", ...names.map((n) => `>${n}`)], rows]);
}

export function predictions(p) {
  const ends = [Math.min(...p.predicted, ...p.measured), Math.max(...p.predicted, ...p.measured)].map((v) => 1e6 * v);
  const make = () => [[{
    type: "scatter", mode: "markers", x: p.predicted.map((v) => 1e6 * v), y: p.measured.map((v) => 1e6 * v), marker: { color: css("--plot"), size: 6, opacity: 0.7 }, hoverinfo: "x+y",
  }, {
    type: "scatter", mode: "lines", x: ends, y: ends, line: { dash: "dot", width: 1, color: css("--dim") }, hoverinfo: "skip",
  }], {
    xaxis: logarithmic("predicted µs", p.predicted.map((v) => 1e6 * v)), yaxis: logarithmic("measured µs", p.measured.map((v) => 1e6 * v)), showlegend: false,
  }];
  const said = p.correlation === null ? "" : ` Rank correlation ${p.correlation.toFixed(2)}: ${p.correlation > 0.8 ? "the model orders candidates well" : p.correlation > 0.4 ? "the model helps" : "the model is little better than chance"}.`;
  return figure("Predicted against measured", `What the cost model said before the trial, and what came out; on the dotted line they agree.${said}`, make,
    [[">predicted", ">measured"], p.predicted.slice(0, 50).map((v, n) => [time(v), time(p.measured[n])])]);
}

export function courses(sides, name) {
  const make = () => [sides.map((side, n) => ({
    name: name(side), mode: "lines+markers", x: side.course.trial, y: side.course.latency.map((l) => 1e6 * l), line: { shape: "hv", color: PALETTE[n] },
  })), { xaxis: { title: { text: "trial" } }, yaxis: logarithmic("µs", sides.flatMap((side) => side.course.latency.map((l) => 1e6 * l))) }];
  return figure("Best so far", "The best latency over trials, of both.", make,
    [["", ">trial", ">best"], sides.flatMap((side) => side.course.latency.map((l, n) => [name(side), number(side.course.trial[n]), time(l)]))]);
}
