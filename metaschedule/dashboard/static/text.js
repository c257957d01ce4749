// Elements, numbers and code as text. Nothing here or elsewhere writes HTML: whatever a database holds
// becomes text nodes.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "text") element.textContent = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

export function time(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const units = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];
  const [unit, name] = units.find(([u]) => seconds >= u) ?? units[3];
  return `${(seconds / unit).toPrecision(3)} ${name}`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 90) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

export const number = (value) => (value === null || value === undefined ? "–" : value.toLocaleString("en"));
export const percent = (share) => (share === null || share === undefined ? "–" : `${(100 * share).toFixed(0)}%`);
export const times = (ratio) => (ratio === null || ratio === undefined ? "–" : `${ratio < 100 ? ratio.toFixed(2) : number(Math.round(ratio))}×`);
export const when = (seconds) => (seconds ? h("time", { datetime: new Date(1000 * seconds).toISOString() }, date(seconds)) : "–");
export const date = (seconds) => (seconds ? new Date(1000 * seconds).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" }) : "–");
export const address = (...parts) => "#/" + parts.map(encodeURIComponent).join("/");

// Which addresses lead somewhere: all of a server's, some in a report
let isThere = () => true;
export const limitTo = (test) => { isThere = test; };
export const has = (...parts) => isThere(parts);
export const link = (label, ...parts) => (has(...parts) ? h("a", { href: address(...parts) }, label) : label);
export const go = (...parts) => { if (has(...parts)) location.hash = address(...parts).slice(1); };

export function cards(entries) {
  return h("dl", { class: "cards" }, entries.filter(Boolean).map(([label, value, kind]) =>
    h("div", {}, h("dt", {}, label), h("dd", { class: kind ?? null }, value))));
}

// rows of cells; a cell is text or an element; columns named with a leading ">" are numbers
export function table(caption, columns, rows) {
  const numeric = columns.map((c) => c.startsWith(">"));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, h("table", {},
    h("caption", { class: "sr-only" }, caption),
    columns.some(Boolean) && h("thead", {}, h("tr", {}, columns.map((c, n) =>
      h("th", { scope: "col", class: numeric[n] ? "n" : null }, c.replace(/^>/, ""))))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, n) =>
      h("td", { class: numeric[n] ? "n" : null }, cell)))))));
}

const PYTHON = /(#.*$)|("(?:[^"\\]|\\.)*")|\b(for|in|with|def|if|else|while|return|and|or|not|True|False|None)\b|\b(T\.\w+|sch\.\w+|ms\.\w+)|\b(\d[\d._e+-]*)\b/g;
const ASM = /((?:#|\/\/).*$)|^(\s+)([a-z][\w.]*)|(%?\b[xyz]mm\d+\b|%\w+|\bv\d+\.\w+\b)|(-?\b(?:0x)?\d+\b)/g;

function colour(line, language) {
  const parts = [];
  let end = 0;
  const pattern = language === "asm" ? ASM : PYTHON;
  for (const m of line.matchAll(pattern)) {
    parts.push(line.slice(end, m.index));
    end = m.index + m[0].length;
    if (language === "asm" && m[3] !== undefined) { parts.push(m[2], h("span", { class: "k" }, m[3])); continue; }
    const kind = language === "asm"
      ? (m[1] ? "c" : m[4] ? "f" : "n2")
      : (m[1] ? "c" : m[2] ? "n2" : m[3] ? "k" : m[4] ? "f" : "n2");
    parts.push(h("span", { class: kind }, m[0]));
  }
  parts.push(line.slice(end));
  return parts;
}

// Lines of code; `marks` are numbers of lines with a class of their own; `onpick(n)` makes lines buttons
export function code(label, lines, { language = "python", marks = {}, onpick = null } = {}) {
  return h("pre", { tabindex: "0", "aria-label": label, role: "region", class: onpick ? "wrapped" : null }, lines.map((line, n) => {
    const kind = marks[n] ? `l ${marks[n]}` : "l";
    if (!onpick) return h("span", { class: kind }, colour(line, language));
    const pick = () => onpick(n);
    return h("button", { type: "button", class: kind, "data-n": n, onmouseenter: pick, onfocus: pick, onclick: pick },
      colour(line, language));
  }));
}
