// Timelines: hover or arrow keys read a segment, click or Enter shows pictures of that time.
function unpacked(flat, start) {
  const runs = [];
  for (let i = 0, time = Math.round(start * 100); i < flat.length; i += 4) {
    time += flat[i + 1];
    runs.push({ label: flat[i], begin: time / 100, until: (time + flat[i + 2]) / 100, score: flat[i + 3] });
    time += flat[i + 2];
  }
  return runs;
}
const runAt = (runs, time) => runs.findIndex((r) => time >= r.begin && time < r.until);
const highlights = new Set();
const repaints = new Set();
const visible = new IntersectionObserver((entries) => entries.forEach((entry) => {
  entry.target.seen = entry.isIntersecting;
  if (entry.isIntersecting && !entry.target.painted) { entry.target.painted = true; entry.target.repaint(); }
}), { rootMargin: "400px" });
redraws.push(() => repaints.forEach((node) => { node.painted = node.seen; if (node.seen) node.repaint(); }));
prints.push(() => repaints.forEach((node) => { node.painted = true; node.repaint(); }));

function drawTrack(canvas, runs, take, marked) {
  paint(canvas, (context, width, height) => {
    const X = (time) => (time - take.start) / (take.end - take.start) * width;
    context.font = "600 11px system-ui, sans-serif";
    context.textAlign = "center";
    context.textBaseline = "middle";
    runs.forEach((run, place) => {
      const x = X(run.begin), w = Math.max(X(run.until) - x, 0.6);
      const wanted = highlights.size ? highlights.has(run.label) : !take.focus || take.focus.includes(run.label);
      context.globalAlpha = wanted ? 1 : 0.16;
      context.fillStyle = fill(context, run.label);
      context.fillRect(x, 0, w, height);
      context.fillStyle = color("--sheet");
      if (w > 4) context.fillRect(x + w - 0.7, 0, 0.7, height);
      const text = String(run.label);
      if (run.label >= 0 && w > 8 + 7 * text.length) {  // the number tells classes apart without colour
        context.fillStyle = "rgba(255,255,255,.88)";
        context.fillRect(x + w / 2 - 3.6 * text.length - 2, height / 2 - 7, 7.2 * text.length + 4, 14);
        context.fillStyle = "#1a1a1a";
        context.fillText(text, x + w / 2, height / 2 + 0.5);
      }
      if (place === marked) {
        context.globalAlpha = 1;
        context.strokeStyle = color("--ink");
        context.lineWidth = 2.5;
        context.strokeRect(x + 1.2, 1.2, Math.max(w - 2.4, 1), height - 2.4);
      }
    });
    context.globalAlpha = 1;
  });
}

function drawAxis(canvas, take) {
  paint(canvas, (context, width) => {
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = color("--soft");
    const steps = [5, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600], span = take.end - take.start;
    const step = steps.find((s) => span / s * 52 < width) || 7200;
    for (let time = Math.ceil(take.start / step) * step; time <= take.end; time += step) {
      const x = (time - take.start) / span * width;
      context.fillRect(x, 0, 1, 4);
      context.textAlign = x < 14 ? "left" : x > width - 14 ? "right" : "center";
      context.fillText(clock(time, 0), x, 15);
    }
  });
}

function pictures(take, run, box) {
  box.replaceChildren();
  if (!take.frames) {
    box.append(el("p", { class: "readout", text: "No pictures of this take in the page." }));
    return;
  }
  const { times, size, columns, src } = take.frames, middle = (run.begin + run.until) / 2;
  let chosen = times.map((t, i) => i).filter((i) => times[i] >= run.begin && times[i] < run.until);
  if (!chosen.length) {
    const order = times.map((t, i) => i).sort((a, b) => Math.abs(times[a] - middle) - Math.abs(times[b] - middle));
    chosen = order.slice(0, 2).sort((a, b) => a - b);
  }
  for (const place of chosen.slice(0, 8)) {
    const time = times[place], away = time < run.begin ? time - run.begin : time >= run.until ? time - run.until : 0;
    const text = clock(time) + (away ? ` (${Math.abs(away).toFixed(1)} s ${away < 0 ? "before" : "after"})` : "");
    const picture = el("div", { class: "picture", role: "img", "aria-label": `Frame at ${text}` });
    const wide = Math.min(columns, times.length);
    picture.style.cssText = `width:${size[0]}px;height:${size[1]}px;background-position:-${place % wide * size[0]}px -${Math.floor(place / wide) * size[1]}px`;
    picture.style.backgroundImage = `url("${src}")`;
    box.append(el("figure", {}, picture, el("figcaption", { text })));
  }
}

function trackRow(take, track, truth, readout, frames) {
  const runs = unpacked(track.runs, take.start), canvas = el("canvas", {
    tabindex: 0, role: "application",
    "aria-label": `${track.name}: ${runs.length} segments. Arrow keys move between segments, Enter shows pictures.`,
  });
  let marked = -1;
  const describe = (run) => {
    const score = run.score < 0 ? "" : `, score ${(run.score / 100).toFixed(2)}`;
    const at = truth[runAt(truth, (run.begin + run.until) / 2)];
    const true_ = run.score < 0 || !at ? "" : at.label === run.label ? ", right" : `; truth there: ${className(at.label)}`;
    return `${track.name}: ${className(run.label)}, ${clock(run.begin)} to ${clock(run.until)}${score}${true_}`;
  };
  const mark = (place) => {
    if (place === marked) return;
    marked = place;
    canvas.repaint();
    readout.textContent = place < 0 ? "" : describe(runs[place]);
  };
  const open = () => { if (marked >= 0) { readout.textContent = describe(runs[marked]); pictures(take, runs[marked], frames); } };
  const point = (event) => {
    const box = canvas.getBoundingClientRect();
    return runAt(runs, take.start + (event.clientX - box.left) / box.width * (take.end - take.start));
  };
  canvas.repaint = () => drawTrack(canvas, runs, take, marked);
  canvas.addEventListener("mousemove", (event) => {
    mark(point(event));
    if (marked >= 0) showTip(describe(runs[marked]), event.clientX, event.clientY); else hideTip();
  });
  canvas.addEventListener("mouseleave", () => { hideTip(); if (document.activeElement !== canvas) mark(-1); });
  canvas.addEventListener("click", (event) => { mark(point(event)); open(); });
  canvas.addEventListener("focus", () => { if (marked < 0 && runs.length && canvas.matches(":focus-visible")) mark(0); });
  canvas.addEventListener("keydown", (event) => {
    const moves = { ArrowRight: marked + 1, ArrowLeft: marked - 1, Home: 0, End: runs.length - 1 };
    if (event.key in moves) mark(Math.max(0, Math.min(runs.length - 1, moves[event.key])));
    else if (event.key === "Enter" || event.key === " ") open();
    else return;
    event.preventDefault();
  });
  repaints.add(canvas);
  visible.observe(canvas);
  const name = track.acc === undefined ? track.name : `${track.name}  ${track.acc.toFixed(0)} %`;
  return el("div", { class: "track" }, el("span", { text: name }), canvas);
}

function takeCard(take) {
  const readout = el("p", { class: "readout" }), frames = el("div", { class: "frames" });
  const truth = unpacked(take.tracks[0].runs, take.start), axis = el("canvas", { "aria-hidden": "true" });
  axis.repaint = () => drawAxis(axis, take);
  repaints.add(axis);
  visible.observe(axis);
  const about = [take.why, `${signed(take.gain)} points of acc`, `group ${take.group}`, clock(take.end - take.start, 0)].join(" · ");
  return el("article", { class: "take" },
    el("h4", { text: take.id }), el("p", { class: "about", text: about }),
    ...take.tracks.map((track) => trackRow(take, track, truth, readout, frames)),
    el("div", { class: "track axis" }, el("span"), axis), readout, frames);
}

function legend(labels, changed) {
  const list = el("ul", { class: "legend" }), rows = [];
  for (const label of labels) {
    const patch = el("canvas", { "aria-hidden": "true" });
    patch.width = 60; patch.height = 32;
    const context = patch.getContext("2d");
    context.scale(2, 2);
    context.fillStyle = fill(context, label);
    context.fillRect(0, 0, 30, 16);
    const press = el("button", { type: "button", "aria-pressed": "false" }, patch, el("span", { text: label < 0 ? "unknown" : `${label} ${DATA.classes.names[label]}` }));
    press.addEventListener("click", () => {
      highlights.has(label) ? highlights.delete(label) : highlights.add(label);
      press.setAttribute("aria-pressed", String(highlights.has(label)));
      changed();
    });
    const row = el("li", {}, press);
    rows.push([row, className(label).toLowerCase()]);
    list.append(row);
  }
  const search = el("input", { type: "search", placeholder: "find a class", "aria-label": "Find a class" });
  search.addEventListener("input", () => rows.forEach(([row, name]) => { row.hidden = !name.includes(search.value.toLowerCase()); }));
  const clear = el("button", { type: "button", text: "Show all classes" });
  clear.addEventListener("click", () => {
    highlights.clear();
    list.querySelectorAll("button").forEach((b) => b.setAttribute("aria-pressed", "false"));
    changed();
  });
  const body = el("details", {}, el("summary", { text: `Legend: ${labels.length} classes (click one to highlight it)` }), el("div", { class: "controls" }, search, clear), list);
  body.open = labels.length <= 40;
  return body;
}

WIDGETS.timelines = (box, data) => {
  const STEP = 8, list = el("div"), more = el("button", { type: "button", class: "more" });
  const used = new Set(data.takes.flatMap((take) => take.tracks.flatMap((track) => track.runs.filter((_, i) => i % 4 === 0))));
  const repaint = () => repaints.forEach((node) => { node.painted = node.seen; if (node.seen) node.repaint(); });
  let shown = STEP, order = "chosen", query = "";
  const orders = {
    chosen: () => 0, best: (a, b) => b.gain - a.gain, worst: (a, b) => a.gain - b.gain,
    name: (a, b) => a.id < b.id ? -1 : 1, long: (a, b) => (b.end - b.start) - (a.end - a.start),
  };
  const fillList = () => {
    list.querySelectorAll("canvas").forEach((canvas) => { repaints.delete(canvas); visible.unobserve(canvas); });
    const found = data.takes.filter((take) => take.id.toLowerCase().includes(query)).sort(orders[order]);
    list.replaceChildren(...found.slice(0, shown).map(takeCard));
    if (!found.length) list.append(el("p", { text: "No take has that in its name." }));
    more.hidden = found.length <= shown;
    const left = found.length - Math.min(shown, found.length);
    more.textContent = `Show more (${left} left)`;
    more.dataset.printed = `${left} more takes are in the page itself.`;
  };
  const search = el("input", { type: "search", placeholder: "find a take", "aria-label": "Find a take" });
  search.addEventListener("input", () => { query = search.value.toLowerCase(); shown = STEP; fillList(); });
  more.addEventListener("click", () => { shown += 3 * STEP; fillList(); });
  const names = [["chosen", "best, median, worst, then between"], ["best", "largest gain"], ["worst", "largest loss"], ["name", "name"], ["long", "longest"]];
  box.append(legend([...used].sort((a, b) => a - b), repaint));
  if (data.takes.length > 1) box.append(el("div", { class: "controls" }, search, choice("order", names, (value) => { order = value; fillList(); })));
  box.append(list, more);
  fillList();
};

// One take alone, below the confusable pair.
WIDGETS.take = (box, take) => box.append(takeCard(take));
