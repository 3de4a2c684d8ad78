"use strict";
// Lines over the rounds: weights, accuracy, and one client's history.

const CHART = 210; // pixels of height
const SMALL = 110;

// Lines over rounds. Series are {name, kind, values, even, band}; `even` is a level drawn as a dotted line, `band` has
// the lower and the upper end of an interval in each round.
// Rounds without a value are passed over. Returns a function that moves the cursor to a round.
function lineChart(figure, rounds, series, y, height, label) {
  const key = figure.querySelector(".key");
  key?.replaceChildren();
  const x = { low: rounds[0], high: Math.max(rounds.at(-1), rounds[0] + 1), name: key ? "round" : "" };
  const asked = { role: "img", "aria-label": label };
  const { svg, edge, toX, toY } = frame(figure.querySelector(".canvas"), height, x, y, asked);
  const outputs = series.map(({ name, kind, values, even, band }) => {
    const place = (value, i) => (value === null ? [] : [`${toX(rounds[i])},${toY(value)}`]);
    if (band) {
      const around = [...band[0].flatMap(place), ...band[1].flatMap(place).reverse()];
      element(svg, "path", { class: "band", "data-kind": kind, d: around.length ? `M${around.join("L")}Z` : "" });
    }
    if (even !== undefined) {
      element(svg, "path", { class: "even", "data-kind": kind, d: `M${edge.left},${toY(even)}H${toX(x.high)}` });
    }
    const points = values.flatMap(place);
    element(svg, "path", { class: "line", "data-kind": kind, d: points.length ? `M${points.join("L")}` : "" });
    if (points.length === 1) element(svg, "path", { class: "dot", "data-kind": kind, d: `M${points[0]}h0` });
    const sample = (small) => element(small, "path", { class: "line", "data-kind": kind, d: "M-12,0H12" });
    return key && keyEntry(key, name, sample);
  });
  const cursor = element(svg, "path", { class: "cursor" });
  return (at) => {
    cursor.setAttribute("d", `M${toX(rounds[at])},${edge.top}V${height - edge.bottom}`);
    series.forEach(({ values }, i) => {
      outputs[i].textContent = values[at] === null ? "–" : `${number(values[at], 1)} %`;
    });
  };
}

function withoutChart(figure, reason) {
  figure.querySelector("p").textContent = reason;
  for (const part of figure.querySelectorAll(".key, .canvas")) part.replaceChildren();
  return () => {};
}

// The runs that may be compared with one, so that their charts have the same axes.
function comparable(run) {
  return data.runs.filter((other) => other.scenario === run.scenario);
}

function range(values) {
  return values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
}

function drawWeights(figure, run) {
  const { round, shares } = run.columns;
  figure.hidden = !shares.some(Boolean); // rules such as medians give clients no weights
  if (figure.hidden) return () => {};
  const kinds = [..."crmb-"].filter((kind) => shares.some((own) => own?.[kind] !== undefined));
  const series = kinds.map((kind) => ({
    name: KINDS[kind],
    kind,
    values: shares.map((own) => own && (own[kind] ?? 0)),
    ...imageShare(run, kind),
  }));
  const how = run.truth ? "of the clients that truly are" : "of the clients judged";
  const dotted = series.some((line) => line.even !== undefined) ? " Dotted: their share of the images." : "";
  figure.querySelector("p").textContent = `Percent, ${how} of each kind, all together.${dotted}`;
  const all = comparable(run).flatMap((other) => other.columns.shares.flatMap((own) => Object.values(own ?? {})));
  const y = { low: 0, high: Math.min(100, 1.08 * range(all)[1]) };
  return lineChart(figure, round, series, y, CHART, `Weights over the rounds: ${endings(series)}`);
}

// What share of all images the clients of a true kind hold.
function imageShare(run, kind) {
  if (!run.truth || !run.sizes) return {};
  const total = run.sizes.reduce((a, b) => a + b, 0);
  return { even: (100 * run.sizes.reduce((sum, size, i) => sum + (run.truth[i] === kind ? size : 0), 0)) / total };
}

function drawAccuracy(figure, run) {
  const { round, worst, average } = run.columns;
  const metric = run.metric[0].toUpperCase() + run.metric.slice(1);
  figure.querySelector("h3").textContent = `${metric} on the test images`;
  if (worst.every((value) => value === null)) return withoutChart(figure, "No round has been tested.");
  const single = worst.every((value, i) => value === average[i]); // one test group
  const explained = `Percent. Worst: of the test groups, the one of lowest ${run.metric} in the round.`;
  figure.querySelector("p").textContent = single ? "Percent." : explained;
  const series = [
    { name: single ? run.metric : "worst group", kind: "worst", values: worst },
    ...(single ? [] : [{ name: "average of groups", kind: "average", values: average }]),
  ];
  const all = comparable(run).flatMap(({ columns }) => [...columns.worst, ...columns.average]);
  const [low, high] = range(all.filter((value) => value !== null));
  const y = { low: Math.max(0, low - 3), high: Math.min(100, high + 3) };
  return lineChart(figure, round, series, y, CHART, `${metric} over the rounds: ${endings(series)}`);
}

function endings(series) {
  const last = (values) => values.findLast((value) => value !== null);
  return series.map(({ name, values }) => `${name} ${number(last(values), 1)} % at last`).join(", ");
}

// One quantity of one client over the rounds; nothing if it never had a value.
function drawHistory(parent, run, client, name, title) {
  const over = (column) => run.columns[column].map((values) => values?.[client] ?? null);
  const isKnown = (value) => value !== null;
  const values = over(name);
  const band = name === "suspicion" ? [over("suspicion_low"), over("suspicion_high")] : [[], []];
  const known = values.filter(isKnown);
  if (!known.length) return;
  const figure = element(parent, "figure");
  element(figure, "figcaption", {}, title);
  element(figure, "div", { class: "canvas" });
  const even = name === "suspicion" && run.threshold !== null ? { even: run.threshold } : {};
  const [low, high] = range([0, even.even ?? 0.001, ...known, ...band.flat().filter(isKnown)]);
  const interval = name === "suspicion" && intervalWords(run, run.columns.round.length - 1, client);
  const ending = `${number(known.at(-1), 2)} at last${interval ? ` (${interval})` : ""}`;
  const label = `${title} over the rounds: ${number(known[0], 2)} at first, ${ending}`;
  const y = { low, high: low + 1.1 * (high - low), about: 2 };
  lineChart(figure, run.columns.round, [{ name, kind: "", values, band, ...even }], y, SMALL, label);
}
