"use strict";
// The loss-dispersion plane: clients as marks that move from round to round.

const NEAR = 22; // pixels within which the pointer means a mark
const LABELLED = 60; // clients up to which all marks have names
const REST = 120; // milliseconds after which marks count as standing still

class Plane {
  constructor(figure, onSelect) {
    this.figure = figure;
    this.box = figure.querySelector(".canvas");
    this.note = figure.querySelector(".note");
    this.onSelect = onSelect;
    this.tip = document.createElement("div");
    this.tip.className = "tip";
    this.tip.setAttribute("aria-hidden", "true"); // the marks' own labels say the same
    this.focused = null; // the client whose values are shown
    this.fit = false; // whether the axes fit the round in view
    this.box.addEventListener("pointermove", (event) => this.point(this.nearest(event)));
    this.box.addEventListener("pointerleave", () => this.point(this.fromKeyboard()));
    this.box.addEventListener("click", (event) => {
      this.point(this.nearest(event)); // a finger comes without moving
      this.select(this.focused);
    });
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.box.addEventListener("focusin", (event) => this.point(Number(event.target.dataset.client)));
    this.box.addEventListener("focusout", () => this.point(null));
  }

  // Axes and a mark for each client of a run; the axes span all its rounds or, if asked to fit, the one in view.
  draw(run) {
    const held = this.fromKeyboard();
    this.run = run;
    const { loss, dispersion } = run.columns;
    this.marks = [];
    this.usable = loss.some((values, i) => values && dispersion[i]);
    if (!this.usable) {
      this.box.replaceChildren();
      return;
    }
    const fits = this.fit && loss[view.at] && dispersion[view.at];
    const x = { ...(fits ? wholeSpan(loss[view.at]) : span(loss)), name: "loss" };
    const y = { ...(fits ? wholeSpan(dispersion[view.at]) : span(dispersion)), name: "dispersion (logarithm)" };
    const height = Math.min(470, Math.max(300, 0.72 * this.box.clientWidth));
    const label = "Clients on the plane of loss and dispersion; arrow keys go from client to client, Enter selects";
    this.frame = frame(this.box, height, x, y, { role: "group", "aria-label": label });
    this.trail = element(this.frame.svg, "path", { class: "trail" });
    this.radius = run.clients.length > 200 ? 4 : run.clients.length > 60 ? 5.5 : 7;
    this.names = element(this.frame.svg, "g", { class: "names", "aria-hidden": "true" });
    run.clients.forEach((_, client) => this.marks.push(this.mark(client)));
    this.box.append(this.tip);
    this.marks[held]?.group.focus();
  }

  mark(client) {
    const group = element(this.frame.svg, "g", { role: "button", tabindex: -1, "data-client": client });
    const truth = this.run.truth?.[client];
    const ring = 1.3 * this.radius + 1.5;
    if (truth) element(group, "path", { class: "truth", "data-kind": truth, d: outline(truth, ring) });
    return { group, path: element(group, "path", { class: "mark" }), kind: null, x: 0, y: 0, there: false };
  }

  // Moves the marks to a round; while rounds follow each other quickly, nothing else is done.
  show(at) {
    this.at = at;
    clearTimeout(this.resting);
    if (!this.usable) {
      this.note.textContent = `${this.run.label} does not ask clients for both loss and dispersion.`;
      return;
    }
    if (this.fit) this.draw(this.run);
    const { loss, dispersion, group } = this.run.columns;
    let beyond = 0;
    this.marks.forEach((mark, client) => {
      mark.there = loss[at]?.[client] != null && dispersion[at]?.[client] != null;
      mark.group.style.display = mark.there ? "" : "none";
      if (mark.there) beyond += this.place(mark, loss[at][client], dispersion[at][client], group[at]?.[client] ?? "-");
    });
    this.say(beyond);
    this.drawTrail();
    this.names.replaceChildren();
    if (!isPlaying()) this.resting = setTimeout(() => this.settle(), REST);
    this.point(this.focused);
  }

  // Where a pair is drawn: in its place or, if that lies outside, at the edge.
  spot(loss, dispersion) {
    const { edge, width, height, toX, toY } = this.frame;
    const x = Math.min(Math.max(toX(loss), edge.left), width - edge.right);
    const y = Math.min(Math.max(toY(dispersion), edge.top), height - edge.bottom);
    return { x, y, outside: Math.abs(x - toX(loss)) > 1 || Math.abs(y - toY(dispersion)) > 1 };
  }

  place(mark, loss, dispersion, kind) {
    const { x, y, outside } = this.spot(loss, dispersion);
    Object.assign(mark, { x, y });
    mark.group.style.transform = `translate(${x.toFixed(1)}px, ${y.toFixed(1)}px)`;
    mark.group.classList.toggle("beyond", outside);
    if (kind !== mark.kind) {
      mark.path.setAttribute("d", outline(kind, this.radius));
      mark.path.setAttribute("data-kind", kind);
      mark.kind = kind;
    }
    return outside;
  }

  // What the marks alone do not tell.
  say(beyond) {
    const words = [];
    if (!this.marks.some((mark) => mark.there)) {
      words.push(`In round ${this.run.columns.round[this.at]} no client has reported loss and dispersion.`);
    }
    if (beyond) words.push(`Drawn at the edge, since they lie outside: ${beyond} of ${this.marks.length} clients.`);
    if (view.selected !== null) {
      words.push(`Line: the way of client ${this.run.clients[view.selected]}; its history is in the table of clients.`);
    }
    if (this.note.textContent !== words.join(" ")) this.note.textContent = words.join(" ");
  }

  // What only matters when the marks stand still: their words, which one the Tab key reaches, their names.
  settle() {
    if (!this.usable) return;
    this.marks.forEach(({ group }, client) => {
      const words = facts(this.run, this.at, client).map(([name, value]) => `${name} ${value}`);
      group.setAttribute("aria-label", `Client ${this.run.clients[client]}: ${words.join(", ")}`);
      group.setAttribute("aria-pressed", client === view.selected); // also what the style goes by
      group.setAttribute("tabindex", -1);
    });
    const reached = [this.fromKeyboard(), view.selected].find((client) => this.marks[client]?.there);
    this.marks[reached ?? this.inOrder("x")[0]]?.group.setAttribute("tabindex", 0);
    this.writeNames();
  }

  // Names beside marks where they hide nothing; those judged mislabeled come first, and further off with a line if there
  // is no room. Of many clients only these have names.
  writeNames() {
    const [half, off] = [this.radius + 4, this.radius + 7];
    const taken = this.marks.filter((mark) => mark.there).map(({ x, y }) => [x - half, y - half, x + half, y + half]);
    const rank = (client) => "mr-c".indexOf(this.marks[client].kind);
    const all = this.inOrder("x").sort((a, b) => rank(a) - rank(b));
    this.names.replaceChildren();
    for (const client of all.filter((own) => all.length <= LABELLED || this.marks[own].kind === "m")) {
      const { x, y } = this.marks[client];
      const name = short(this.run.clients[client]);
      const wide = 6.5 * name.length;
      const rings = this.marks[client].kind === "m" ? [off, off + 14, off + 28, off + 42] : [off];
      const spot = rings.flatMap((far) => spotsAround(x, y, wide, far)).find(([left, base]) => {
        const inside = left > this.frame.edge.left && left + wide < this.frame.width && base > 12;
        return inside && !taken.some(([a, b, c, d]) => left < c && left + wide > a && base - 10 < d && base + 1 > b);
      });
      if (!spot) continue;
      if (spot[2] > off) element(this.names, "path", { d: `M${x},${y}L${spot[0] + wide / 2},${spot[1] - 4}` });
      taken.push([spot[0], spot[1] - 10, spot[0] + wide, spot[1] + 1]);
      element(this.names, "text", { x: spot[0], y: spot[1] }, name);
    }
  }

  // Turns the axes that fit the round in view on or off.
  fitRound(fit) {
    this.fit = fit;
    this.draw(this.run);
    this.show(this.at);
  }

  // The way of the selected client up to this round.
  drawTrail() {
    const { loss, dispersion } = this.run.columns;
    const client = view.selected;
    const points = [];
    for (let i = 0; client !== null && i <= this.at; i++) {
      if (loss[i]?.[client] == null || dispersion[i]?.[client] == null) continue;
      const { x, y } = this.spot(loss[i][client], dispersion[i][client]);
      points.push(`${x.toFixed(1)},${y.toFixed(1)}`);
    }
    this.trail.setAttribute("d", points.length > 1 ? `M${points.join("L")}` : "");
  }

  nearest(event) {
    if (!this.usable) return null;
    const { left, top, width } = this.frame.svg.getBoundingClientRect();
    const zoom = this.frame.width / width;
    const [x, y] = [(event.clientX - left) * zoom, (event.clientY - top) * zoom];
    let [best, least] = [null, NEAR];
    this.marks.forEach((mark, client) => {
      const far = mark.there ? Math.hypot(mark.x - x, mark.y - y) : Infinity;
      if (far < least) [best, least] = [client, far];
    });
    return best;
  }

  fromKeyboard() {
    const own = document.activeElement?.closest?.("[data-client]");
    return own && this.box.contains(own) ? Number(own.dataset.client) : null;
  }

  // Shows the values of a client beside its mark, or nothing.
  point(client) {
    this.focused = client;
    const mark = client === null ? null : this.marks?.[client];
    this.tip.hidden = !mark?.there;
    if (this.tip.hidden) return;
    this.tip.replaceChildren();
    element(this.tip, "strong", {}, `Client ${this.run.clients[client]}`);
    const list = element(this.tip, "dl");
    for (const [name, value] of facts(this.run, this.at, client)) {
      element(list, "dt", {}, name);
      element(list, "dd", {}, value);
    }
    const right = mark.x > this.frame.width / 2;
    const below = mark.y < this.frame.height / 2;
    this.tip.style.left = right ? "" : `${mark.x + 16}px`;
    this.tip.style.right = right ? `${this.frame.width - mark.x + 16}px` : "";
    this.tip.style.top = below ? `${mark.y}px` : "";
    this.tip.style.bottom = below ? "" : `${this.frame.height - mark.y}px`;
  }

  // Clients that are on the plane, from left to right or from bottom to top.
  inOrder(axis) {
    const there = this.marks.map((_, client) => client).filter((client) => this.marks[client].there);
    return there.sort((a, b) => (axis === "x" ? 1 : -1) * (this.marks[a][axis] - this.marks[b][axis]));
  }

  key(event) {
    const client = Number(event.target.dataset.client);
    const steps = { ArrowRight: ["x", 1], ArrowLeft: ["x", -1], ArrowUp: ["y", 1], ArrowDown: ["y", -1] };
    if (event.key === "Enter" || event.key === " ") this.select(client);
    else if (event.key === "Escape") this.point(null);
    else if (event.key in steps || event.key === "Home" || event.key === "End") {
      const [axis, step] = steps[event.key] ?? ["x", 0];
      const order = this.inOrder(axis);
      const next = { Home: order[0], End: order.at(-1) }[event.key] ?? order[order.indexOf(client) + step] ?? client;
      this.marks[client].group.setAttribute("tabindex", -1);
      this.marks[next].group.setAttribute("tabindex", 0);
      this.marks[next].group.focus();
    } else return;
    event.preventDefault();
  }

  select(client) {
    if (client !== null) this.onSelect(client === view.selected ? null : client);
  }
}

// The range of a quantity over all rounds, a little widened; of far outliers only their direction is shown.
function span(columns) {
  const values = Float64Array.from(columns.flat().filter((value) => value !== null)).sort();
  const at = (share) => values[Math.round(share * (values.length - 1))];
  const reach = 1.5 * (at(0.98) - at(0.02)) || 0.5;
  const low = Math.max(values[0], at(0.02) - reach);
  const high = Math.min(values.at(-1), at(0.98) + reach);
  const margin = 0.06 * (high - low || 1);
  return { low: low - margin, high: high + margin };
}

// The range of a quantity in one round, a little widened; nobody is outside.
function wholeSpan(values) {
  const [low, high] = range(values.filter((value) => value !== null));
  const margin = 0.06 * (high - low || 1);
  return { low: low - margin, high: high + margin };
}

// Where a name of this width may begin around a mark, so far from it: beside, above and below, then at the corners.
function spotsAround(x, y, wide, far) {
  const [left, middle, right] = [x - far - wide, x - wide / 2, x + far];
  const [above, beside, below] = [y - far, y + 4, y + far + 9];
  const straight = [[right, beside], [left, beside], [middle, above], [middle, below]];
  const corners = [[right, above], [left, above], [right, below], [left, below]];
  return [...straight, ...corners].map(([start, base]) => [start, base, far]);
}

function short(name) {
  return name.length > 14 ? `${name.slice(0, 13)}…` : name;
}

// What a client is judged by in a round: an estimate with its interval and answer, or a suspicion.
function suspicionFacts(run, at, client, suspicion) {
  if (!run.estimates) return suspicion === null ? [] : [["suspicion", suspicion]];
  const interval = intervalWords(run, at, client);
  if (!interval) return [["wrong labels, estimated", "none yet"]];
  const share = number(run.columns.suspicion[at]?.[client], 2);
  const answer = ANSWERS[run.columns.answer[at]?.[client] ?? "-"];
  return [["wrong labels, estimated", `${share} (${interval})`], ["answer of this round", answer]];
}

// What is known of a client in a round, as pairs of name and value.
function facts(run, at, client) {
  const value = (name) => run.columns[name][at]?.[client] ?? null;
  const has = (name) => run.columns[name].some(Boolean);
  const line = run.threshold === null ? "" : ` (judged mislabeled from ${run.threshold} on)`;
  const or = (name, digits, missing, after = "") =>
    value(name) === null ? missing : `${number(value(name), digits)}${after}`;
  return [
    ["loss", or("loss", 3, "not reported")],
    ["dispersion", or("dispersion", 3, "not reported")],
    ...(has("group") ? [["judged", KINDS[value("group") ?? "-"]]] : []),
    ...suspicionFacts(run, at, client, has("suspicion") ? or("suspicion", 2, "none yet", line) : null),
    ...(has("weight") ? [["weight", or("weight", 2, "none in this round", " %")]] : []),
    ...(run.truth ? [["truly", KINDS[run.truth[client]]]] : []),
  ];
}
