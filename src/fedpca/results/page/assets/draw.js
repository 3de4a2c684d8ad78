"use strict";
// Elements, scales, axes and keys: what all drawings share.

const SVG = "http://www.w3.org/2000/svg";
const ANSWERS = { m: "mislabeled", "?": "cannot tell", n: "not mislabeled", "-": "–" };
const KINDS = { c: "common", r: "rare", m: "mislabeled", b: "rare and mislabeled", "-": "not judged" };

function element(parent, tag, attributes = {}, text = null) {
  const inside = tag === "svg" || parent.namespaceURI === SVG;
  const made = inside ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== null) made.textContent = text;
  parent.append(made);
  return made;
}

// The outline of a kind's mark, about r in radius: circle, square, triangle, diamond.
function outline(kind, r) {
  const ring = (s) => `M${-s},0a${s},${s} 0 1,0 ${2 * s},0a${s},${s} 0 1,0 ${-2 * s},0Z`;
  return {
    c: ring(r),
    r: `M${-0.9 * r},${-0.9 * r}h${1.8 * r}v${1.8 * r}h${-1.8 * r}Z`,
    m: `M0,${-1.25 * r}L${1.15 * r},${0.8 * r}H${-1.15 * r}Z`,
    b: `M0,${-1.3 * r}L${1.3 * r},0L0,${1.3 * r}L${-1.3 * r},0Z`,
    "-": ring(0.7 * r),
  }[kind];
}

function scale(low, high, from, to) {
  return (value) => from + ((value - low) / (high - low || 1)) * (to - from);
}

// Round numbers between low and high, about so many.
function ticks(low, high, about) {
  const rough = (high - low || 1) / about;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= 0.7 * rough);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const first = Math.ceil(low / step - 1e-9);
  const count = Math.floor(high / step + 1e-9) - first + 1;
  return Array.from({ length: Math.max(0, count) }, (_, i) => ({
    value: (first + i) * step,
    text: number((first + i) * step, digits),
  }));
}

function number(value, digits) {
  if (value === null || value === undefined) return "–";
  return value.toFixed(digits).replace(/^-(?=.*[1-9])/, "−").replace(/^-/, "");
}

// What the number that clients are judged by is called in a run.
function suspicionName(run) {
  return run.estimates ? "Wrong labels, estimated" : "Suspicion";
}

// The 95 % interval of a client's estimate in a round, as 0.22 to 0.47; empty if there is none.
function intervalWords(run, at, client) {
  const [low, high] = ["suspicion_low", "suspicion_high"].map((name) => run.columns[name][at]?.[client] ?? null);
  return low === null ? "" : `${number(low, 2)} to ${number(high, 2)}`;
}

// An empty chart as wide as its box, with axes; x and y are {low, high, name, about}.
function frame(box, height, x, y, label) {
  box.replaceChildren();
  const width = Math.max(200, box.clientWidth);
  const edge = { left: 52, right: 12, top: 10, bottom: x.name ? 40 : 24 };
  const svg = element(box, "svg", { width, height, viewBox: `0 0 ${width} ${height}`, ...label });
  const toX = scale(x.low, x.high, edge.left, width - edge.right);
  const toY = scale(y.low, y.high, height - edge.bottom, edge.top);
  const axes = element(svg, "g", { class: "axes", "aria-hidden": "true" });
  for (const tick of ticks(y.low, y.high, y.about ?? height / 55)) {
    const at = toY(tick.value);
    element(axes, "line", { x1: edge.left, x2: width - edge.right, y1: at, y2: at });
    element(axes, "text", { x: edge.left - 8, y: at + 4, class: "end" }, tick.text);
  }
  for (const tick of ticks(x.low, x.high, Math.max(3, width / 90))) {
    const at = toX(tick.value);
    element(axes, "line", { x1: at, x2: at, y1: height - edge.bottom, y2: height - edge.bottom + 5 });
    element(axes, "text", { x: at, y: height - edge.bottom + 18, class: "middle" }, tick.text);
  }
  element(axes, "path", { class: "base", d: `M${edge.left},${height - edge.bottom}H${width - edge.right}` });
  if (x.name) {
    const middle = (edge.left + width - edge.right) / 2;
    element(axes, "text", { x: middle, y: height - 5, class: "middle name" }, x.name);
  }
  if (y.name) {
    const middle = (edge.top + height - edge.bottom) / 2;
    element(axes, "text", { transform: `translate(13 ${middle}) rotate(-90)`, class: "middle name" }, y.name);
  }
  return { svg, width, height, edge, toX, toY };
}

// A key entry with the mark or the line that stands for it; returns where its value is written.
function keyEntry(list, name, draw) {
  const entry = element(list, "li");
  draw(element(entry, "svg", { width: 26, height: 16, viewBox: "-13 -8 26 16", "aria-hidden": "true" }));
  element(entry, "span", {}, name);
  return element(entry, "output");
}
