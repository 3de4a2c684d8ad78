"use strict";
// The page's state, its controls, and what follows from them.

const LENGTH = 12000; // milliseconds that a run is played in, unless it is very short or long
const data = JSON.parse(document.getElementById("data").textContent);
const view = { run: 0, at: 0, selected: null, timer: null };
const at = (id) => document.getElementById(id);
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const plane = new Plane(at("plane"), select);
const sheet = new Sheet(at("clients"), select);
let cursors = [];

const shownRun = () => data.runs[view.run];
const isPlaying = () => view.timer !== null;

const lastRound = () => shownRun().columns.round.length - 1;

// Shows another run at its last round; a selected client stays so if it takes part there too.
function choose(index) {
  pause();
  const name = shownRun().clients[view.selected];
  view.run = index;
  view.at = lastRound();
  view.selected = name !== undefined && shownRun().clients[view.selected] === name ? view.selected : null;
  for (const part of document.querySelectorAll("[data-run]")) part.hidden = Number(part.dataset.run) !== index;
  drawAll();
  sheet.fill(shownRun());
}

function drawAll(aloud = "polite") {
  const run = shownRun();
  at("truth").hidden = !run.truth;
  drawKey(run);
  plane.draw(run);
  at("fit").hidden = !plane.usable;
  cursors = [drawWeights(at("weights"), run), drawAccuracy(at("accuracy"), run)];
  show(aloud);
}

// Moves everything to the round in view; `aloud` is how eagerly a screen reader says which.
function show(aloud = "polite") {
  const { round, group } = shownRun().columns;
  const slider = at("round");
  slider.max = round.length;
  slider.value = view.at + 1;
  const text = `Round ${round[view.at]} of ${shownRun().planned}`;
  slider.setAttribute("aria-valuetext", text);
  at("at").setAttribute("aria-live", isPlaying() ? "off" : aloud);
  at("at").textContent = group[view.at] ? `${text}: ${counts(group[view.at])}` : text;
  plane.show(view.at);
  for (const move of cursors) move(view.at);
}

function counts(letters) {
  const of = (letter) => [...letters].filter((own) => own === letter).length;
  const words = (letter, i) => `${of(letter)} ${i === 0 ? "judged " : ""}${KINDS[letter]}`;
  return [..."mrc"].filter(of).map(words).join(", ");
}

function drawKey(run) {
  const list = at("plane").querySelector(".key");
  list.replaceChildren();
  const used = new Set(run.columns.group.flatMap((letters) => [...(letters ?? "")]));
  for (const kind of used.has("-") || !used.size ? "crm-" : "crm") {
    const sample = (small) => element(small, "path", { class: "mark", "data-kind": kind, d: outline(kind, 6) });
    keyEntry(list, kind === "-" ? KINDS[kind] : `judged ${KINDS[kind]}`, sample);
  }
}

function select(client) {
  view.selected = client;
  sheet.place();
  plane.show(view.at);
}

function goTo(index) {
  view.at = Math.min(Math.max(index, 0), lastRound());
  show();
}

function fitRound(fit) {
  at("fit").setAttribute("aria-pressed", fit);
  at("axes").textContent = fit ? "The axes fit the round shown." : "The axes are the same in all rounds.";
  plane.fitRound(fit);
}

function play() {
  const first = Math.max(0, shownRun().columns.loss.findIndex(Boolean)); // before it there is nothing on the plane
  const pace = Math.min(600, Math.max(calm.matches ? 300 : 60, LENGTH / (lastRound() - first + 1)));
  if (view.at >= lastRound()) view.at = first - 1;
  at("play").textContent = "Pause";
  at("plane").style.setProperty("--pace", `${pace}ms`);
  at("plane").classList.toggle("gliding", pace >= 2 * REST);
  const step = () => {
    view.timer = setTimeout(step, pace);
    if (view.at >= lastRound()) pause();
    else goTo(view.at + 1);
  };
  step();
}

function pause() {
  if (!isPlaying()) return;
  clearTimeout(view.timer);
  view.timer = null;
  at("play").textContent = "Play";
  at("plane").classList.remove("gliding");
  show();
}

const methodOf = (run) => `${run.scenario} ${run.label}`;

function fillChoice() {
  for (const [scenario, words] of data.scenarios.entries()) {
    const among = data.scenarios.length > 1 ? element(at("method"), "optgroup", { label: words }) : at("method");
    const own = data.runs.filter((run) => run.scenario === scenario);
    const methods = new Map(own.map((run) => [methodOf(run), run.label]));
    for (const [value, label] of methods) element(among, "option", { value }, label);
  }
  at("choose").hidden = data.runs.length < 2;
}

function fillSeeds() {
  at("seed").replaceChildren();
  data.runs.forEach((run, value) => {
    if (methodOf(run) === at("method").value) element(at("seed"), "option", { value }, String(run.seed));
  });
}

function showChoice() {
  at("method").value = methodOf(shownRun());
  fillSeeds();
  at("seed").value = view.run;
}

function start() {
  for (const id of ["rounds", "clients"]) at(id).hidden = false;
  fillChoice();
  choose(data.first);
  showChoice();
  at("method").addEventListener("change", fillSeeds);
  at("choose").addEventListener("change", () => {
    at("method").dataset.chosen = true;
    choose(Number(at("seed").value));
  });
  at("round").addEventListener("input", (event) => {
    const wanted = Number(event.target.value) - 1;
    pause();
    goTo(wanted);
  });
  at("play").addEventListener("click", () => (isPlaying() ? pause() : play()));
  at("truth").querySelector("input").addEventListener("input", (event) => {
    at("plane").classList.toggle("without-truth", !event.target.checked);
  });
  at("fit").addEventListener("click", () => fitRound(!plane.fit));
  addEventListener("beforeprint", () => {
    pause();
    plane.settle(); // paper has no pointer: the names must stand there
  });
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return; // a phone's address bar comes and goes
    width = innerWidth;
    drawAll();
    sheet.place();
  });
}

start();
