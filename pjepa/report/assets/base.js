"use strict";
// What every widget uses: elements, colours, the tip, redrawing. Names are data: they only ever
// become text (`textContent`), never HTML.
const DATA = JSON.parse(document.getElementById("data").textContent);
const WIDGETS = {};
const redraws = [];
const prints = [];  // what else to draw before printing
let READY_AT = null;  // milliseconds after the navigation began

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") node.textContent = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

function shape(tag, attributes = {}, text = null) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== null) node.textContent = text;
  return node;
}

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const signed = (value, digits = 1) => (value > 0 ? "+" : value < 0 ? "−" : "±") + Math.abs(value).toFixed(digits);

function clock(seconds, digits = 1) {
  const whole = Math.floor(seconds / 60), rest = (seconds - 60 * whole).toFixed(digits);
  const minutes = whole % 60, hours = Math.floor(whole / 60);
  const padded = (seconds - 60 * whole < 10 ? "0" : "") + rest;
  return hours ? `${hours}:${String(minutes).padStart(2, "0")}:${padded}` : `${minutes}:${padded}`;
}

function className(label) {
  return label < 0 ? "unknown" : `${DATA.classes.names[label]} (${label})`;
}

// The tip follows the pointer; it is also a live region, so a screen reader hears it.
const tip = document.getElementById("tip");
function showTip(text, x, y) {
  tip.textContent = text;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - box.width - 4))}px`;
  tip.style.top = `${y + 18 + box.height > innerHeight ? y - box.height - 10 : y + 18}px`;
}
function hideTip() { tip.hidden = true; }
addEventListener("scroll", hideTip, { passive: true });
addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });

// A canvas in device pixels; draw(context, width, height) works in CSS pixels.
function paint(canvas, draw) {
  const ratio = devicePixelRatio || 1, box = canvas.getBoundingClientRect();
  if (!box.width || !box.height) return;
  canvas.width = Math.round(box.width * ratio);
  canvas.height = Math.round(box.height * ratio);
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  draw(context, box.width, box.height);
}

// The look of a class: hue, pattern and ink (pjepa/report/figures.py), as a canvas fill.
const fills = new Map();
function fill(context, label) {
  if (!fills.has(label)) {
    const looks = DATA.classes.looks, [hue, pattern, ink] = looks[label < 0 ? looks.length - 1 : label];
    fills.set(label, pattern ? context.createPattern(tile(hue, pattern, ink), "repeat") : hue);
  }
  return fills.get(label);
}
function tile(hue, pattern, ink) {
  const size = 8, square = document.createElement("canvas"), lines = {
    "/": [[0, 8, 8, 0], [-4, 4, 4, -4], [4, 12, 12, 4]], "\\": [[0, 0, 8, 8], [-4, 4, 4, 12], [4, -4, 12, 4]],
    "-": [[0, 2, 8, 2], [0, 6, 8, 6]], "|": [[2, 0, 2, 8], [6, 0, 6, 8]],
    x: [[0, 0, 8, 8], [0, 8, 8, 0]], ".": [],
  }[pattern];
  square.width = square.height = size;
  const context = square.getContext("2d");
  context.fillStyle = hue;
  context.fillRect(0, 0, size, size);
  context.strokeStyle = context.fillStyle = ink;
  context.globalAlpha = 0.55;
  for (const [x0, y0, x1, y1] of lines) {
    context.beginPath();
    context.moveTo(x0, y0);
    context.lineTo(x1, y1);
    context.stroke();
  }
  if (pattern === ".") for (const [x, y] of [[2, 2], [6, 6]]) {
    context.beginPath();
    context.arc(x, y, 1.4, 0, 7);
    context.fill();
  }
  return square;
}

function choice(name, options, change) {
  const select = el("select", { onchange: () => change(select.value) });
  for (const [value, text] of options) select.append(el("option", { value, text }));
  return el("label", {}, name, select);
}

const button = document.getElementById("theme");
function setTheme(name, remember) {
  document.documentElement.dataset.theme = name;
  button.textContent = name === "dark" ? "Light" : "Dark";
  button.setAttribute("aria-label", `Switch to the ${button.textContent.toLowerCase()} theme`);
  if (remember) try { localStorage.setItem("pjepa-theme", name); } catch { /* not from disk, perhaps */ }
  redraws.forEach((redraw) => redraw());
}
const system = matchMedia("(prefers-color-scheme: dark)");
const stored = () => { try { return localStorage.getItem("pjepa-theme"); } catch { return null; } };
setTheme(stored() || (system.matches ? "dark" : "light"), false);
system.addEventListener("change", () => { if (!stored()) setTheme(system.matches ? "dark" : "light", false); });
button.addEventListener("click", () => {
  setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark", true);
});
// Paper is light, as wide as A4 between its margins, and shows what a click would open.
let before = null;
function startPrint() {
  if (before) return;
  const closed = [...document.querySelectorAll("details:not([open])")];
  before = { theme: document.documentElement.dataset.theme, closed };
  closed.forEach((details) => { details.open = true; });
  document.documentElement.classList.add("printing");
  setTheme("light", false);
  prints.forEach((draw) => draw());
}
function endPrint() {
  if (!before) return;
  const { theme, closed } = before;
  before = null;
  closed.forEach((details) => { details.open = false; });
  document.documentElement.classList.remove("printing");
  setTheme(theme, false);
}
addEventListener("beforeprint", startPrint);
addEventListener("afterprint", endPrint);
matchMedia("print").addEventListener("change", (query) => (query.matches ? startPrint : endPrint)());
let width = innerWidth, waiting = 0;
addEventListener("resize", () => {
  if (innerWidth === width) return;
  width = innerWidth;
  clearTimeout(waiting);
  waiting = setTimeout(() => redraws.forEach((redraw) => redraw()), 80);
});
addEventListener("DOMContentLoaded", () => {
  for (const box of document.querySelectorAll("[data-widget]")) {
    WIDGETS[box.dataset.widget](box, DATA[box.dataset.key]);
  }
  READY_AT = performance.now();
  document.documentElement.dataset.ready = "yes";
});
