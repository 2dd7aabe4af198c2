// Lines with bands, dots with intervals, bars of differences.
const SERIES = { raw: "--s0", pjepa: "--s1", history: "--s2", pjepa_segment: "--s5", segment_mean: "--s3", smooth: "--s6", time: "--s7", random: "--s4" };
const DASHES = ["", "6 3", "2 3", "8 3 2 3"];
function seriesLook(name, place, names) {
  const known = names.every((other) => other in SERIES);
  if (names.length === 1) return { stroke: "--s1", dash: "" };
  return { stroke: known ? SERIES[name] : `--s${place % 8}`, dash: known ? "" : DASHES[Math.floor(place / 8) % 4] };
}

function tickStep(low, high, count) {
  const raw = (high - low || 1) / count, power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
}
function ticks(low, high, count) {
  const step = tickStep(low, high, count), found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step / 1e6; value += step) found.push(+value.toPrecision(10));
  return found;
}
// The first and the last tick enclose the data.
function enclosing(low, high, count) {
  const step = tickStep(low, high, count), clean = (value) => +value.toPrecision(10);
  return [clean(Math.floor(low / step + 1e-9) * step), clean(Math.ceil(high / step - 1e-9) * step)];
}
const short = (value) => Math.abs(value) >= 1000 || (value && Math.abs(value) < 0.001) ? value.toExponential(0) : String(+value.toPrecision(3));

function linesChart(data, hidden = new Set(), W = 560, H = 300) {
  const left = 52, right = 16, top = 12, bottom = data.categories ? 46 : 40;
  const shown = data.series.filter((s) => !hidden.has(s.name));
  const xs = data.series.flatMap((s) => s.x), ys = shown.flatMap((s) => [...s.y, ...(s.low || []), ...(s.high || [])]);
  const [x0, x1] = data.diagonal ? [0, 1] : [Math.min(...xs), Math.max(...xs) || 1];
  let y0 = Math.min(...ys, ...(data.diagonal || data.categories || data.zero ? [0] : [])), y1 = Math.max(...ys, ...(data.diagonal ? [1] : []));
  if (!(y1 > y0)) y1 = y0 + 1;
  [y0, y1] = enclosing(y0, y1, 5);
  const inset = data.categories ? 44 : 0;
  const X = (x) => left + inset + (x1 > x0 ? (x - x0) / (x1 - x0) : 0.5) * (W - left - right - 2 * inset);
  const Y = (y) => top + (1 - (y - y0) / (y1 - y0)) * (H - top - bottom);
  const root = shape("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": data.title || `${data.labels.y} over ${data.labels.x}` });
  for (const y of ticks(y0, y1, 5)) {
    root.append(shape("line", { x1: left, x2: W - right, y1: Y(y), y2: Y(y), stroke: "var(--line)" }));
    root.append(shape("text", { x: left - 7, y: Y(y) + 4, "text-anchor": "end" }, short(y)));
  }
  const places = data.categories ? data.categories.map((_, i) => i) : xs.length && new Set(xs).size < 7 ? [...new Set(xs)] : ticks(x0, x1, 6);
  const lower = (x) => data.categories && W < 500 && x % 2 ? 12 : 0;  // long names take turns
  for (const x of places) root.append(shape("text", { x: X(x), y: H - bottom + 15 + lower(x), "text-anchor": "middle" }, data.categories ? data.categories[x] : short(x)));
  root.append(shape("text", { x: (left + W - right) / 2, y: H - 4, "text-anchor": "middle" }, data.labels.x));
  root.append(shape("text", { x: 0, y: 0, transform: `translate(12 ${(top + H - bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, data.labels.y));
  if (data.diagonal) root.append(shape("line", { x1: X(x0), y1: Y(x0), x2: X(x1), y2: Y(x1), stroke: "var(--soft)", "stroke-dasharray": "2 4" }));
  const names = data.series.map((s) => s.name);
  for (const s of shown) {
    const look = seriesLook(s.name, names.indexOf(s.name), names);
    if (s.low) {
      const points = [...s.x.map((x, i) => [x, s.high[i]]), ...s.x.map((x, i) => [x, s.low[i]]).reverse()];
      root.append(shape("polygon", { points: points.map(([x, y]) => `${X(x)},${Y(y)}`).join(" "), fill: `var(${look.stroke})`, opacity: 0.14 }));
    }
    root.append(shape("polyline", { points: s.x.map((x, i) => `${X(x)},${Y(s.y[i])}`).join(" "), fill: "none", stroke: `var(${look.stroke})`, "stroke-width": 2, "stroke-dasharray": s.flat ? "5 4" : look.dash, "stroke-linejoin": "round" }));
    if (s.x.length < 12 && !s.flat) s.x.forEach((x, i) => root.append(shape("circle", { cx: X(x), cy: Y(s.y[i]), r: 3.2, fill: `var(${look.stroke})` })));
  }
  root.addEventListener("mousemove", (event) => {
    const box = root.getBoundingClientRect(), at = (event.clientX - box.left) / box.width * W;
    const near = (s) => s.x.reduce((best, x, i) => Math.abs(X(x) - at) < Math.abs(X(s.x[best]) - at) ? i : best, 0);
    if (!shown.length) return;
    const first = near(shown[0]), place = data.categories ? data.categories[first] : `${data.labels.x} ${short(shown[0].x[first])}`;
    showTip([place, ...shown.map((s) => `${s.name}: ${short(s.y[near(s)])}`)].join("\n"), event.clientX, event.clientY);
  });
  root.addEventListener("mouseleave", hideTip);
  return root;
}

function keys(data, hidden, redraw) {
  const names = data.series.map((s) => s.name), row = el("div", { class: "keys" });
  names.forEach((name, place) => {
    const look = seriesLook(name, place, names), mark = el("i");
    mark.style.borderTop = `3px ${data.series[place].flat ? "dashed" : "solid"} var(${look.stroke})`;
    const toggle = el("button", { type: "button", "aria-pressed": String(!hidden.has(name)) }, mark, el("span", { text: name }));
    toggle.addEventListener("click", () => { hidden.has(name) ? hidden.delete(name) : hidden.add(name); redraw(); });
    row.append(toggle);
  });
  return row;
}

// Charts are drawn at the width they get, so that text keeps its size on a telephone.
const room = (box, most) => Math.max(300, Math.min(most, box.clientWidth || most));

WIDGETS.lines = (box, data) => {
  const hidden = new Set(data.hidden || []), figure = el("figure");
  const redraw = () => figure.replaceChildren(keys(data, hidden, redraw), linesChart(data, hidden, room(box, 640)));
  figure.style.maxWidth = "640px";
  box.append(figure);
  redraw();
  redraws.push(redraw);
};

WIDGETS.curves = (box, charts) => {
  const drawn = [];
  const row = el("div", { class: "row small" });
  for (const data of charts) {
    const figure = el("figure"), hidden = new Set(), several = data.series.length > 1;
    const redraw = () => figure.replaceChildren(
      el("figcaption", { text: data.title }), ...(several ? [keys(data, hidden, redraw)] : []), linesChart(data, hidden, Math.max(260, figure.clientWidth), 210));
    row.append(figure);
    drawn.push(redraw);
  }
  box.append(row);  // figures have a width from here on
  drawn.forEach((redraw) => redraw());
  redraws.push(...drawn);
};

// Scores of one probe with 95 % intervals; colours are those of the kinds of representation.
const KINDS = { raw: "--s0", "P-JEPA": "--s1", "control with annotated boundaries": "--s2", "control without annotated boundaries": "--s6" };
WIDGETS.scores = (box, data) => {
  const figure = el("figure"), redraw = () => figure.replaceChildren(...scoresChart(data, room(box, 760)));
  figure.style.maxWidth = "760px";
  box.append(figure);
  redraw();
  redraws.push(redraw);
};

function scoresChart(data, W) {
  const H = 30 * data.rows.length + 64, left = 110, right = 40;
  const high = Math.max(...data.rows.map((r) => r[4] ?? r[2]), ...data.lines.map((l) => l[1]));
  const [, end] = enclosing(0, high, 6), X = (value) => left + value / end * (W - left - right);
  const root = shape("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": "Accuracy of every representation with 95 % intervals" });
  for (const x of ticks(0, end, 6)) {
    root.append(shape("line", { x1: X(x), x2: X(x), y1: 26, y2: H - 34, stroke: "var(--line)" }));
    root.append(shape("text", { x: X(x), y: H - 18, "text-anchor": "middle" }, String(x)));
  }
  root.append(shape("text", { x: (left + W - right) / 2, y: H - 2, "text-anchor": "middle" }, "frame accuracy without background, %"));
  data.lines.forEach(([name, value], place) => {
    root.append(shape("line", { x1: X(value), x2: X(value), y1: 20, y2: H - 34, stroke: "var(--ink)", "stroke-dasharray": "5 4" }));
    root.append(shape("text", { x: X(value), y: W < 500 ? 10 + 12 * place : 12, "text-anchor": place ? "end" : "middle" }, `${W < 500 ? "" : "ceiling: "}${name} ${value.toFixed(1)}`));
  });
  data.rows.forEach(([name, kind, value, low, top], place) => {
    const y = 42 + 30 * place, stroke = `var(${KINDS[kind]})`;
    root.append(shape("text", { x: left - 10, y: y + 4, "text-anchor": "end" }, name));
    if (low !== undefined) root.append(shape("line", { x1: X(low), x2: X(top), y1: y, y2: y, stroke, "stroke-width": 4, opacity: 0.7, "stroke-linecap": "round" }));
    root.append(shape("circle", { cx: X(value), cy: y, r: 6, fill: stroke }));
    root.append(shape("text", { x: X(top ?? value) + 8, y: y + 4, class: "value" }, value.toFixed(1)));
    const hit = shape("rect", { x: 0, y: y - 14, width: W, height: 28, fill: "transparent" });
    hit.addEventListener("mousemove", (event) => showTip(`${name}: ${value.toFixed(1)} %${low === undefined ? "" : ` (${low.toFixed(1)} to ${top.toFixed(1)})`}\n${kind}`, event.clientX, event.clientY));
    hit.addEventListener("mouseleave", hideTip);
    root.append(hit);
  });
  const legend = el("div", { class: "keys" });
  for (const [kind, name] of Object.entries(KINDS)) if (data.rows.some((r) => r[1] === kind)) {
    const mark = el("i");
    mark.style.borderTop = `3px solid var(${name})`;
    legend.append(el("span", {}, mark, kind));
  }
  return [legend, root];
}

// Differences per class or take: the largest gains and losses first, all on demand.
WIDGETS.gains = (box, data) => {
  const FEW = 8, ends = data.rows.flatMap((r) => r.gain);
  const [least, most] = enclosing(Math.min(0, ...ends), Math.max(1, ...ends), 8);
  const at = (value) => 100 * (value - least) / (most - least);
  const bars = (rows) => {
    const grid = el("div", { class: "bars" });
    for (const r of rows) {
      const [mean, low, high] = r.gain, text = r.name === undefined ? className(r.label) : r.name;
      const note = `${text}\n${data.names[0]} ${r.values[0].toFixed(1)} %, ${data.names[1]} ${r.values[1].toFixed(1)} %` + (low === undefined ? "" : `\n95 %: ${signed(low)} to ${signed(high)}`) + (r.note ? `\n${r.note}` : "");
      const zero = el("u"), bar = el("b"), line = el("div", { class: "bar" }, zero, bar);
      zero.style.left = `${at(0)}%`;
      bar.style.cssText = `left:${at(Math.min(0, mean))}%;width:${at(Math.abs(mean)) - at(0)}%;background:var(${mean < 0 ? "--bad" : "--good"})`;
      if (low !== undefined) {
        const range = el("i");
        range.style.cssText = `left:${at(low)}%;width:${at(high) - at(low)}%`;
        line.append(range);
      }
      const cells = [el("div", { class: "name", text, title: text }), line, el("div", { text: signed(mean) })];
      for (const cell of cells) {
        cell.addEventListener("mousemove", (event) => showTip(note, event.clientX, event.clientY));
        cell.addEventListener("mouseleave", hideTip);
      }
      grid.append(...cells);
    }
    return grid;
  };
  if (data.rows.length <= 2 * FEW + 4) { box.append(bars(data.rows)); return; }
  const part = (title, rows) => el("div", {}, el("h4", { text: title }), bars(rows));
  const all = el("details", {}, el("summary", { text: `All ${data.rows.length}` }), bars(data.rows));
  box.append(el("div", { class: "beside" }, part("Most gained, or lost least", data.rows.slice(0, FEW)), part("Most lost, or gained least", data.rows.slice(-FEW))), all);
};
