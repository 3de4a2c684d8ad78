"use strict";
// One row after another: first the random sample, then the list. The server keeps every decision.

const at = (id) => document.getElementById(id);
const FEW = 10; // classes up to which each has a digit of its own
const PARTS = { sample: "Random sample", list: "List of suspects" };
const review = { items: [], classes: [], at: -1, skipped: new Set(), seen: [], busy: false };

const shown = () => review.items[review.at];
const isOpen = (item) => !item.reviewed && !review.skipped.has(item.row);

async function ask(path, decision) {
  const options = { cache: "no-store" };
  if (decision) {
    options.method = "POST";
    options.headers = { "Content-Type": "application/json" };
    options.body = JSON.stringify(decision);
  }
  const answer = await fetch(path, options);
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

function complain(text) {
  at("trouble").textContent = text;
  at("trouble").hidden = !text;
}

// Other tabs and spreadsheets may have decided meanwhile: what the server says holds.
function take(reviewed) {
  for (const item of review.items) item.reviewed = reviewed[item.row] ?? "";
}

async function decide(label) {
  if (review.busy || review.at < 0) return;
  review.busy = true;
  try {
    take((await ask("decide", { row: shown().row, label })).reviewed);
    review.skipped.delete(shown().row);
    complain("");
    if (label) forward();
    else draw();
  } catch (error) {
    complain(`This was not saved: ${error.message}. Is the server still running? Then try again.`);
  } finally {
    review.busy = false;
  }
}

function skip() {
  if (review.at < 0) return;
  if (!shown().reviewed) review.skipped.add(shown().row);
  forward();
}

// To the next that is neither read nor skipped, from here on and then from the beginning.
function forward() {
  const after = review.items.findIndex((item, index) => index > review.at && isOpen(item));
  if (review.at >= 0) review.seen.push(review.at);
  goTo(after >= 0 ? after : review.items.findIndex(isOpen));
}

function back() {
  if (review.busy) return;
  const before = review.seen.pop() ?? (review.at < 0 ? review.items.length : review.at) - 1;
  if (before >= 0) goTo(before);
}

function readSkipped() {
  review.skipped.clear();
  goTo(review.items.findIndex(isOpen));
}

function goTo(index) {
  review.at = index;
  at("type").value = "";
  reveal(false);
  draw();
  (index < 0 ? at("end") : at("item")).focus({ preventScroll: true });
  scrollTo(0, 0);
}

function draw() {
  drawProgress();
  at("item").hidden = review.at < 0;
  at("end").hidden = review.at >= 0;
  if (review.at < 0) drawEnd();
  else drawItem(shown());
}

function drawProgress() {
  const part = review.at < 0 ? null : shown().part;
  const own = review.items.filter((item) => part === null || item.part === part);
  const read = own.filter((item) => item.reviewed).length;
  at("where").textContent = `${part ? PARTS[part] : "All"}: ${read} of ${own.length} read, ${own.length - read} left`;
  at("done").max = own.length || 1;
  at("done").value = read;
  const rest = review.items.filter((item) => item.part === "list" && !item.reviewed).length;
  const after = part === "sample" && rest ? `then the list of suspects, ${rest} left` : "";
  const skipped = review.skipped.size ? `${review.skipped.size} skipped` : "";
  at("left").textContent = [after, skipped].filter(Boolean).join("; ");
}

function drawItem(item) {
  const image = at("image");
  image.hidden = !item.image;
  if (item.image) image.src = `images/${item.row}.png`;
  else image.removeAttribute("src");
  image.alt = `Row ${item.row}, given as ${item.given}`;
  at("path").textContent = item.path ? `${item.path} (row ${item.row})` : `row ${item.row}`;
  drawColumns(item);
  at("given").textContent = item.given;
  at("keep").querySelector("span").textContent = `Yes, keep ${item.given}`;
  at("keep").setAttribute("aria-pressed", item.reviewed === item.given);
  at("undo").hidden = !item.reviewed;
  at("back").disabled = !review.seen.length && review.at === 0;
  at("model").hidden = item.part === "sample"; // whoever reads the sample must not be led
  drawClasses(item);
}

function drawColumns(item) {
  at("columns").hidden = item.image || !item.columns.length;
  at("columns").replaceChildren(
    ...item.columns.flatMap(([name, value]) => {
      const [term, said] = [document.createElement("dt"), document.createElement("dd")];
      term.textContent = name;
      said.textContent = value;
      return [term, said];
    }),
  );
}

function drawEnd() {
  const of = (part) => review.items.filter((item) => item.part === part);
  const words = (part) => {
    const read = of(part).filter((item) => item.reviewed);
    const changed = read.filter((item) => item.reviewed !== item.given).length;
    return `${PARTS[part]}: ${read.length} of ${of(part).length} read, ${changed} changed.`;
  };
  const left = review.items.filter((item) => !item.reviewed).length;
  const open = of("sample").some((item) => !item.reviewed);
  const warning = open ? " The estimate is safest if nothing of the sample stays unread." : "";
  const said = ["sample", "list"].filter((part) => of(part).length).map(words);
  at("sum").textContent = review.items.length ? said.join(" ") + warning : "This site has nothing to read.";
  at("end-head").textContent = left ? "Nothing is left but what was skipped" : "Nothing is left to read";
  at("again").hidden = !left;
  at("last").hidden = !review.items.length;
}

function reveal(open) {
  at("reveal").setAttribute("aria-expanded", open);
  const item = shown();
  const told = open && item?.likely !== undefined;
  const score = told ? `score ${item.score.toFixed(2)}, p-value ${item.p_value.toPrecision(2)}` : "";
  at("hint").textContent = told ? `Likely ${item.likely} (${score}). It may be wrong.` : "";
}

async function refresh() {
  if (review.busy) return;
  const state = await ask("state");
  take(Object.fromEntries(state.items.map((item) => [item.row, item.reviewed])));
  draw();
}

async function start() {
  try {
    const { items, classes } = await ask("state");
    Object.assign(review, { items, classes });
    listen();
    goTo(items.findIndex(isOpen));
    addEventListener("focus", () => refresh().catch((error) => complain(error.message)));
  } catch (error) {
    complain(`The rows cannot be read: ${error.message}`);
  }
}
