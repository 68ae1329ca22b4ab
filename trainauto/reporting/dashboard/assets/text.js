"use strict";
// Elements and numbers as text. Nothing on the page is made from markup: names and reasons come from outside.

/** Make an element. Attributes: "class", "on..." listeners, all others as they are; null and false are left out. */
function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

/** Text of a person or a file, kept apart from the direction of what stands around it. */
function said(text, tag = "bdi", attributes = {}) {
  const element = el(tag, { dir: "auto", ...attributes });
  element.textContent = text;
  return element;
}

/** Write text only where it changed: screen readers and selections are left alone otherwise. */
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Link to a file beside the page; null for whatever could lead elsewhere. Every part is encoded, so that "#", "?" and
 * "javascript:" in a file's name stay parts of its name. */
function fileLink(path) {
  const parts = path.split("/");
  if (!path || parts.some((part) => part === "" || part === "." || part === ".." || part.includes("\\"))) return null;
  return parts.map(encodeURIComponent).join("/");
}

const UNITS = {
  bytes: [[2 ** 50, "PiB"], [2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]],
  seconds: [[7200, "h", 3600], [120, "min", 60], [0.9995, "s", 1], [1e-3, "ms"], [1e-6, "µs"]],
};
const SHORT = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

/** Divisor and suffix that suit a value of a unit: [1073741824, " GiB"]. Plain numbers are shortened from `shortFrom`. */
function unitOf(value, unit, shortFrom = 1e5) {
  const size = Math.abs(value);
  if (unit in UNITS) {
    const row = UNITS[unit].find(([least]) => size >= least) || UNITS[unit].at(-1);
    return [row[2] || row[0], " " + row[1]];
  }
  const end = unit === "percent" ? " %" : unit === "rate" ? " /s" : "";
  const row = size >= shortFrom ? SHORT.find(([least]) => size >= least) : null;
  return row ? [row[0], row[1] + end] : [1, end];
}

/** A value as people read it, four digits: 11.4 GiB, 183 ms, 31.02, 2.1e-5. "percent" counts from 0 to 100. */
function formatValue(value, unit) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value === 0) return unit === "percent" ? "0 %" : "0";
  const [divisor, suffix] = unitOf(value, unit);
  const scaled = value / divisor;
  const size = Math.abs(scaled);
  if (size < 1e-3) return trimmed(scaled.toExponential(2)) + suffix;
  const decimals = Number.isInteger(scaled) ? 0 : Math.max(0, (unit in UNITS ? 2 : 3) - Math.floor(Math.log10(size)));
  return grouped(trimmed(scaled.toFixed(Math.min(decimals, 6)))) + suffix;
}

/** What curves go over: "step", or "sample" where runs are compared whose steps are not worth the same. */
let xName = "step";

/** A step, whole: 1,000,000. */
function formatStep(step) {
  return grouped(String(step));
}

/** Labels of an axis: one suffix and one number of decimals for all of them, or exponents where decimals would be many
 * zeros: 6e-5. Values that get no label are null; none but 0 reads 0, and no two read the same. */
function axisLabels(values, unit) {
  const shown = values.filter((value) => value !== null);
  const largest = Math.max(...shown.map(Math.abs), 0);
  const [divisor, suffix] = unitOf(largest, unit, 1e4);
  const apart = Math.min(...shown.slice(1).map((value, index) => Math.abs(value - shown[index]) / divisor)) || 1;
  const least = Math.max(0, Math.ceil(-Math.log10(shown.length > 1 ? apart : largest / divisor || 1) - 1e-9));
  const decimals = shown.every((value) => isNear(value / divisor, least)) ? least : least + 1;
  const isTiny = decimals > 3 && largest / divisor < 0.01;
  const write = (value) => (isTiny ? withExponent(value, decimals) : grouped(value.toFixed(decimals)));
  return values.map((value) => (value === null ? "" : value === 0 ? "0" : write(value / divisor) + suffix));
}

/** A small number to so many decimals, written with its exponent: 0.00125 to five is 1.25e-3. */
function withExponent(value, decimals) {
  return trimmed(value.toExponential(Math.max(0, decimals + Math.floor(Math.log10(Math.abs(value)) + 1e-9))));
}

function isNear(value, decimals) {
  return Math.abs(Number(value.toFixed(decimals)) - value) < 10 ** -decimals / 20;
}

/** Without zeros at the end of a fraction: "1.50" becomes "1.5", "2.10e-5" becomes "2.1e-5". */
function trimmed(text) {
  const [mantissa, exponent] = text.split("e");
  const short = mantissa.includes(".") ? mantissa.replace(/\.?0+$/, "") : mantissa;
  return exponent === undefined ? short : `${short}e${exponent}`;
}

function grouped(text) {
  const [whole, fraction] = text.split(".");
  const thousands = whole.replace(/\B(?=(\d{3})+$)/g, ",");
  return fraction === undefined ? thousands : `${thousands}.${fraction}`;
}

/** Seconds since 1970 as local date and time: 2026-03-09 14:05:00. */
function formatTime(seconds) {
  const date = new Date(seconds * 1000);
  const two = (number) => String(number).padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

const KINDS = {
  plan: "Plan", oom: "Out of memory", rate: "Rate", resume: "Resume", rollback: "Rollback",
  end: "End", stop: "Stop", fail: "Failure", note: "Note",
};

/** Kind of an event; what this page does not know is a note. */
function knownKind(kind) {
  return Object.hasOwn(KINDS, kind) ? kind : "note";
}

/** Word for a kind of event, with its colour and flag. */
function kindBadge(kind) {
  return el("b", { class: `kind ${knownKind(kind)}` }, KINDS[knownKind(kind)]);
}
