"use strict";
// Buttons of classes, typing of class names, and the keyboard.

const hasDigits = () => review.classes.length <= FEW;

// The key of a class: its place from 1 on; where all classes are digits themselves, the very digit.
function digit(index) {
  const areDigits = review.classes.every((name) => /^\d$/.test(name));
  return areDigits ? review.classes[index] : String((index + 1) % 10);
}

// The classes but the given one: with few, each with its digit; with many, those that fit what was typed.
function drawClasses(item) {
  at("search").hidden = hasDigits();
  const typed = at("type").value.trim().toLowerCase();
  const fits = (name) => name !== item.given && name.toLowerCase().includes(typed);
  const starts = (name) => Number(!name.toLowerCase().startsWith(typed));
  const names = review.classes.filter(fits);
  if (!hasDigits() && typed) names.sort((a, b) => starts(a) - starts(b));
  at("classes").replaceChildren(...names.map((name, index) => classButton(name, item, typed && index === 0)));
}

function classButton(name, item, isFirst) {
  const button = document.createElement("button");
  button.type = "button";
  button.classList.toggle("first", Boolean(isFirst) && !hasDigits());
  button.setAttribute("aria-pressed", item.reviewed === name);
  if (hasDigits()) {
    const key = document.createElement("kbd");
    key.textContent = digit(review.classes.indexOf(name));
    button.setAttribute("aria-keyshortcuts", key.textContent);
    button.append(key, " ");
  }
  button.append(name);
  button.addEventListener("click", () => decide(name));
  return button;
}

function pressDigit(key) {
  const index = review.classes.findIndex((_, i) => digit(i) === key);
  if (hasDigits() && index >= 0) decide(review.classes[index]);
}

function toggleHint() {
  if (!at("model").hidden) reveal(at("reveal").getAttribute("aria-expanded") !== "true");
}

function startTyping() {
  if (!hasDigits()) at("type").focus();
}

const KEYS = {
  Enter: () => decide(shown().given),
  k: () => decide(shown().given),
  s: skip,
  " ": skip,
  b: back,
  ArrowLeft: back,
  m: toggleHint,
  c: startTyping,
  u: () => shown().reviewed && decide(""),
};

function press(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || review.busy) return;
  if (event.target.closest("input")) return;
  const onButton = event.target.closest("button") && (event.key === "Enter" || event.key === " ");
  if (onButton) return; // the button has it
  if (review.at < 0 && !["b", "ArrowLeft"].includes(event.key)) return;
  const act = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!act && !/^\d$/.test(event.key)) return;
  event.preventDefault();
  if (act) act();
  else pressDigit(event.key);
}

// While a class is typed, Enter takes the first that fits, the arrow goes to the buttons, Escape leaves.
function pressTyping(event) {
  const first = at("classes").querySelector("button");
  if (event.key === "Enter" && at("type").value.trim() && first) first.click();
  else if (event.key === "ArrowDown" && first) first.focus();
  else if (event.key === "Escape") {
    at("type").value = "";
    drawClasses(shown());
    at("item").focus();
  } else return;
  event.preventDefault();
}

function listen() {
  addEventListener("keydown", press);
  at("type").addEventListener("keydown", pressTyping);
  at("type").addEventListener("input", () => drawClasses(shown()));
  const clicks = { keep: KEYS.k, skip, back, undo: KEYS.u, reveal: toggleHint, again: readSkipped, last: back };
  for (const [id, act] of Object.entries(clicks)) at(id).addEventListener("click", act);
}

start();
