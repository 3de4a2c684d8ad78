"use strict";
// Asks the local server for new rounds as long as the run goes on.

const WAIT = 1000; // milliseconds between questions
let finished = false;

function take(fresh) {
  data.runs.forEach((run, index) => {
    const { columns, since } = fresh.runs[index];
    for (const [name, values] of Object.entries(columns)) run.columns[name].push(...values);
    run.since = since;
  });
  for (const [id, html] of Object.entries(fresh.parts)) replacePart(id, html);
}

// The server has escaped what others wrote; the page's policy forbids any script but its own.
function replacePart(id, html) {
  const made = new DOMParser().parseFromString(html, "text/html");
  at(id).replaceChildren(...made.body.children);
  for (const part of at(id).querySelectorAll("[data-run]")) part.hidden = Number(part.dataset.run) !== view.run;
}

// Each round's words are for eyes alone; that nothing more will come is also read out.
function say(text, aloud) {
  at("live").setAttribute("aria-live", aloud ? "polite" : "off");
  if (at("live").textContent !== text) at("live").textContent = text;
}

// Whether to go on asking.
async function ask() {
  const have = data.runs.map((run) => run.columns.round.length).join(",");
  const answer = await fetch(`new?key=${data.key}&have=${have}`, { cache: "no-store" });
  const fresh = await answer.json();
  say(fresh.state, fresh.done !== finished);
  finished = fresh.done;
  if (fresh.reload) reload();
  if (fresh.runs) update(fresh);
  return !fresh.reload;
}

function update(fresh) {
  const follow = view.at === lastRound();
  take(fresh);
  if (follow && !isPlaying()) view.at = lastRound();
  if (!isPlaying()) drawAll("off");
  sheet.fill(shownRun());
}

// Other runs or clients: the page is made anew, and shows the same run if it is still there.
function reload() {
  sessionStorage.setItem("shown", JSON.stringify([shownRun().label, shownRun().seed, at("method").dataset.chosen]));
  location.reload();
}

function restore() {
  const [label, seed, chosen] = JSON.parse(sessionStorage.getItem("shown") ?? "[]");
  const index = data.runs.findIndex((run) => run.label === label && run.seed === seed);
  if (!chosen || index < 0) return;
  at("method").dataset.chosen = true;
  choose(index);
  showChoice();
}

async function keepAsking() {
  try {
    while (await ask()) await new Promise((resolve) => setTimeout(resolve, WAIT));
  } catch {
    if (!finished) say("fedpca watch has stopped; this page shows what it told last.", true);
  }
}

restore();
keepAsking();
