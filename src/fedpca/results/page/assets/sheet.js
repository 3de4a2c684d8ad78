"use strict";
// The table of clients: sorted, filtered, with the history of the selected one.

const collator = new Intl.Collator("en", { numeric: true });
const SHORT = 14; // letters of a name that stays in one line
const HISTORIES = [
  ["loss", "Loss"],
  ["dispersion", "Dispersion"],
  ["suspicion", null], // its name depends on the run
  ["weight", "Weight, %"],
];

// The table's columns for a run: head, value to sort by, and text to show; `mark` draws a kind before the text, `bar`
// the value as a bar, `after` follows it in small letters. What the run does not have for anybody is left out.
function sheetColumns(run) {
  const last = run.columns.round.length - 1;
  const known = ({ value, after }) => run.clients.some((_, client) => value(client) !== null || after?.(client));
  const of = (name) => (client) => run.columns[name][last]?.[client] ?? null;
  const numeric = (head, value, digits) => ({
    head,
    value,
    text: (client) => number(value(client), digits),
    isNumber: true,
  });
  const kind = (head, letter, mark) => ({
    head,
    value: (client) => "mbrc-".indexOf(letter(client)),
    text: (client) => KINDS[letter(client)],
    letter,
    mark,
  });
  const interval = (client) => intervalWords(run, last, client).replace(" to ", "–");
  const columns = [
    { head: "Client", value: (client) => run.clients[client], text: (client) => run.clients[client] },
    { ...numeric(suspicionName(run), of("suspicion"), 2), bar: true, after: interval },
    ...(judges(run) ? [kind("Judged", (client) => of("group")(client) ?? "-", "mark")] : []),
    ...(run.columns.answer.some(Boolean) ? [answers(of("answer"))] : []),
    numeric("Since round", (client) => run.since[client], 0),
    numeric("Weight, %", of("weight"), 2),
    numeric("Loss", of("loss"), 3),
    numeric("Dispersion", of("dispersion"), 3),
    ...(run.sizes ? [numeric("Images", (client) => run.sizes[client], 0)] : []),
    ...(run.wrong ? [numeric("Wrong labels", (client) => run.wrong[client], 0)] : []),
    ...(run.truth ? [kind("Truly", (client) => run.truth[client], "truth")] : []),
  ];
  return columns.filter(known);
}

// What the last round alone says of each client, those who may be mislabeled first.
function answers(of) {
  const letter = (client) => of(client) ?? "-";
  return {
    head: "Last answer",
    value: (client) => Object.keys(ANSWERS).indexOf(letter(client)),
    text: (client) => ANSWERS[letter(client)],
  };
}

// Whether the run has judged anybody so far.
function judges(run) {
  return run.columns.group.some(Boolean);
}

// A share from 0 to 1 as a bar, with a line at the threshold and a whisker from low to high where there are such.
function drawBar(cell, share, threshold, kind, [low, high]) {
  const [wide, tall] = [72, 14];
  const box = { width: wide, height: tall, viewBox: `0 0 ${wide} ${tall}`, preserveAspectRatio: "none" };
  const svg = element(cell, "svg", { class: "share", ...box, "aria-hidden": "true" });
  const bar = { x: 0, y: 3, height: tall - 6 };
  element(svg, "rect", { class: "track", ...bar, width: wide });
  element(svg, "rect", { class: "fill", "data-kind": kind, ...bar, width: wide * Math.min(1, Math.max(0, share)) });
  const look = low === null ? "threshold" : "threshold dashed";
  if (threshold !== null) element(svg, "path", { class: look, d: `M${wide * threshold},0V${tall}` });
  if (low === null) return;
  const [from, to] = [low, high].map((end) => Math.min(wide - 1, Math.max(1, wide * end)));
  element(svg, "path", { class: "interval", d: `M${from},4V10M${from},7H${to}M${to},4V10` });
}

class Sheet {
  constructor(section, onSelect) {
    this.table = section.querySelector("#sheet");
    this.head = this.table.tHead.rows[0];
    this.body = this.table.tBodies[0];
    this.name = section.querySelector("#name");
    this.group = section.querySelector("#group");
    this.count = section.querySelector("#count");
    this.note = section.querySelector("#sheet-note");
    this.onSelect = onSelect;
    this.by = { head: "Judged", down: false };
    this.isChosen = false; // whether the order is the reader's
    for (const letter of "mrc-") element(this.group, "option", { value: letter }, KINDS[letter]);
    section.querySelector("form").addEventListener("submit", (event) => event.preventDefault());
    this.name.addEventListener("input", () => this.filter());
    this.group.addEventListener("change", () => this.filter());
  }

  // Rows for a run's clients as of its last round; the keyboard stays where it was.
  fill(run) {
    const held = document.activeElement;
    const inHead = [...this.head.cells].indexOf(held.closest("th"));
    const inBody = held.closest("#sheet tbody tr")?.dataset.client;
    this.run = run;
    this.columns = sheetColumns(run);
    if (!this.isChosen || !this.columns.some(({ head }) => head === this.by.head)) {
      this.by = { head: judges(run) ? "Judged" : "Client", down: false };
    }
    this.group.parentElement.hidden = !judges(run);
    if (!judges(run)) this.group.value = "";
    this.head.replaceChildren();
    for (const { head, isNumber } of this.columns) {
      const cell = element(this.head, "th", { scope: "col", ...(isNumber && { class: "number" }) });
      element(cell, "button", { type: "button" }, head).addEventListener("click", () => this.sortBy(head));
    }
    this.rows = run.clients.map((_, client) => this.row(client));
    this.note.textContent = this.words();
    this.sort();
    this.filter();
    if (inHead >= 0) this.head.cells[inHead]?.firstChild.focus();
    if (inBody !== undefined) this.rows[inBody]?.querySelector("button").focus();
  }

  words() {
    const { columns, label, threshold } = this.run;
    const judged = judges(this.run) ? " and how it is judged" : "";
    const last = `After round ${columns.round.at(-1)}: what each client reported last${judged}.`;
    if (!judged) return `${last} ${this.run.asks ? "Nobody is judged yet" : `${label} judges nobody`}.`;
    const began = columns.round[columns.group.findIndex(Boolean)];
    const since = `${last} Judging began in round ${began}${began > 1 ? ", after the warm-up" : ""}.`;
    if (this.run.estimates) return `${since} ${this.estimateWords()}`;
    if (threshold === null) return `${since} ${label} has no threshold on suspicion.`;
    if (!columns.suspicion.some(Boolean)) return `${since} The run does not record suspicion.`;
    return `${since} From a suspicion of ${threshold} on, the line in the bars, a client is judged mislabeled.`;
  }

  estimateWords() {
    const { columns, rule } = this.run;
    const drawn = "The bar is the estimated share of wrong labels, at least, its whisker the 95 % interval";
    const line = this.run.threshold === null ? "" : `, the dashed line ${this.run.threshold}`;
    const untold = columns.answer.at(-1)?.includes("?");
    return `${drawn}${line}. ${rule}${untold ? " Whoever cannot be told is trained like a common client." : ""}`;
  }

  row(client) {
    const row = document.createElement("tr");
    row.dataset.client = client;
    const text = this.run.clients[client];
    const name = element(row, "th", { scope: "row", ...(text.length <= SHORT && { class: "short" }) });
    const button = element(name, "button", { type: "button" }, text);
    button.addEventListener("click", () => this.onSelect(client === view.selected ? null : client));
    for (const { text, value, isNumber, letter, mark, bar, after } of this.columns.slice(1)) {
      const cell = element(row, "td", isNumber ? { class: "number" } : {});
      if (mark) {
        const small = element(cell, "svg", { width: 16, height: 14, viewBox: "-8 -7 16 14", "aria-hidden": "true" });
        element(small, "path", { class: mark, "data-kind": letter(client), d: outline(letter(client), 5) });
      }
      const interval = after?.(client);
      if (bar && (value(client) !== null || interval)) this.drawShare(cell, client, value(client) ?? 0);
      cell.append(text(client));
      if (interval) element(cell, "small", {}, ` (${interval})`);
    }
    return row;
  }

  drawShare(cell, client, share) {
    const of = (name) => this.run.columns[name].at(-1)?.[client] ?? null;
    drawBar(cell, share, this.run.threshold, of("group") ?? "-", [of("suspicion_low"), of("suspicion_high")]);
  }

  sortBy(head) {
    this.isChosen = true;
    this.by = { head, down: this.by.head === head && !this.by.down };
    this.sort();
    this.place();
  }

  // Missing values come last whichever way the others are sorted; equal ones in the order of names.
  sort() {
    const { value } = this.columns.find(({ head }) => head === this.by.head);
    const sign = this.by.down ? -1 : 1;
    const compare = (a, b) => (typeof a === "string" ? collator.compare(a, b) : a - b);
    const order = this.rows.map((row) => Number(row.dataset.client)).sort((a, b) => {
      const [one, two] = [value(a), value(b)];
      if (one === null || two === null) return (one === null) - (two === null) || a - b;
      return sign * compare(one, two) || collator.compare(this.run.clients[a], this.run.clients[b]);
    });
    const byClient = new Map(this.rows.map((row) => [Number(row.dataset.client), row]));
    this.body.replaceChildren(...order.map((client) => byClient.get(client)));
    for (const cell of this.head.cells) {
      const way = this.by.down ? "descending" : "ascending";
      cell.setAttribute("aria-sort", cell.textContent === this.by.head ? way : "none");
    }
  }

  filter() {
    const part = this.name.value.trim().toLowerCase();
    const last = this.run.columns.group.at(-1);
    let shown = 0;
    for (const row of this.rows) {
      const client = Number(row.dataset.client);
      const fits = this.run.clients[client].toLowerCase().includes(part);
      row.hidden = !fits || (this.group.value !== "" && (last?.[client] ?? "-") !== this.group.value);
      shown += !row.hidden;
    }
    this.count.textContent = `${shown} of ${this.rows.length} shown`;
    this.place();
  }

  // Opens the history of the selected client below its row, and closes any other.
  place() {
    this.body.querySelector(".history")?.remove();
    for (const row of this.rows) {
      const open = Number(row.dataset.client) === view.selected;
      row.classList.toggle("selected", open);
      row.querySelector("button").setAttribute("aria-expanded", open);
      if (open && !row.hidden) this.openHistory(row);
    }
  }

  openHistory(row) {
    const client = Number(row.dataset.client);
    const opened = document.createElement("tr");
    opened.className = "history";
    row.after(opened);
    const cell = element(opened, "td", { colspan: this.columns.length });
    const inside = element(cell, "div");
    element(inside, "p", {}, `Client ${this.run.clients[client]}, ${judgedOver(this.run, client)}.`);
    for (const [name, title] of HISTORIES) {
      drawHistory(inside, this.run, client, name, title ?? suspicionName(this.run));
    }
  }
}

// How a client was judged from round to round, in words: stretches of equal judgement.
function judgedOver(run, client) {
  const { round, group } = run.columns;
  const stretches = [];
  round.forEach((number, i) => {
    const kind = group[i]?.[client] ?? "-";
    if (stretches.at(-1)?.kind === kind) stretches.at(-1).end = number;
    else stretches.push({ kind, start: number, end: number });
  });
  const rounds = (start, end) => (start === end ? `round ${start}` : `rounds ${start} to ${end}`);
  const words = ({ kind, start, end }) => `${kind === "-" ? "" : "judged "}${KINDS[kind]} in ${rounds(start, end)}`;
  const shown = stretches.slice(-6).map(words).join(", ");
  return stretches.length > 6 ? `judgement changed ${stretches.length - 1} times, at last: ${shown}` : shown;
}
