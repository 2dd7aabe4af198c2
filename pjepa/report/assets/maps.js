// t-SNE maps (colour by time or class, one take's path) and confusion matrices.
const VIRIDIS = ["#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725"];
function timeColor(share) {
  const dim = document.documentElement.dataset.theme === "dark" ? 0.3 : 0;  // violet would vanish there
  const ramp = VIRIDIS, place = Math.max(0, Math.min(0.9999, dim + (1 - dim) * share)) * (ramp.length - 1), i = Math.floor(place), f = place - i;
  const mix = (k) => Math.round(parseInt(ramp[i].slice(k, k + 2), 16) * (1 - f) + parseInt(ramp[i + 1].slice(k, k + 2), 16) * f);
  return `rgb(${mix(1)},${mix(3)},${mix(5)})`;
}
const SHAPES = ["", "/", ".", "-", "\\", "|", "x"];
function drawPoint(context, x, y, label, hue, radius) {
  const looks = DATA.classes.looks, form = SHAPES.indexOf(looks[label < 0 ? looks.length - 1 : label][1]);
  context.fillStyle = context.strokeStyle = hue;
  context.lineWidth = 1.6;
  context.beginPath();
  if (form <= 0) context.arc(x, y, radius, 0, 7);
  else if (form === 1) context.rect(x - radius, y - radius, 2 * radius, 2 * radius);
  else if (form === 2) { context.moveTo(x, y - radius * 1.3); context.lineTo(x + radius * 1.2, y + radius); context.lineTo(x - radius * 1.2, y + radius); }
  else if (form === 3) { context.moveTo(x, y - radius * 1.4); context.lineTo(x + radius * 1.4, y); context.lineTo(x, y + radius * 1.4); context.lineTo(x - radius * 1.4, y); }
  else if (form === 4) { context.moveTo(x, y + radius * 1.3); context.lineTo(x + radius * 1.2, y - radius); context.lineTo(x - radius * 1.2, y - radius); }
  else if (form === 5) { context.moveTo(x - radius, y); context.lineTo(x + radius, y); context.moveTo(x, y - radius); context.lineTo(x, y + radius); }
  else { context.moveTo(x - radius, y - radius); context.lineTo(x + radius, y + radius); context.moveTo(x + radius, y - radius); context.lineTo(x - radius, y + radius); }
  form >= 5 ? context.stroke() : context.fill();
}

WIDGETS.maps = (box, data) => {
  let by = data.times ? "time" : "class", path = -1;
  const row = el("div", { class: data.panels.length % 2 ? "row" : "row pairs" }), canvases = [];
  const hueOf = (i) => {
    const looks = DATA.classes.looks, label = data.labels[i];
    return by === "time" ? timeColor(data.times[i]) : looks[label < 0 ? looks.length - 1 : label][0];
  };
  const place = (panel, size) => (i) => [12 + panel.xy[2 * i] / 1000 * (size - 24), 12 + (1 - panel.xy[2 * i + 1] / 1000) * (size - 24)];
  for (const panel of data.panels) {
    const canvas = el("canvas", { role: "img", "aria-label": `t-SNE map of ${panel.name}, ${data.labels.length} points` });
    canvas.repaint = () => paint(canvas, (context, size) => {
      const at = place(panel, size);
      const mine = (i) => path < 0 || data.take[i] === path;
      data.labels.forEach((label, i) => {
        context.globalAlpha = mine(i) ? 0.9 : 0.12;
        drawPoint(context, ...at(i), by === "time" ? -1 : label, hueOf(i), path >= 0 && mine(i) ? 4.5 : 3.2);
      });
      context.globalAlpha = 1;
      if (path < 0) return;
      const steps = data.take.map((t, i) => i).filter(mine);
      context.strokeStyle = color("--ink");
      context.lineWidth = 1;
      context.beginPath();
      steps.forEach((i, k) => context[k ? "lineTo" : "moveTo"](...at(i)));
      context.stroke();
      context.fillStyle = color("--ink");
      context.font = "600 12px system-ui, sans-serif";
      for (const [i, text] of [[steps[0], "start"], [steps[steps.length - 1], "end"]]) {
        const [x, y] = at(i);
        context.textAlign = x > size - 50 ? "right" : "left";
        context.fillText(text, x + (x > size - 50 ? -7 : 7), y - 6);
      }
    });
    canvas.addEventListener("mousemove", (event) => {
      const area = canvas.getBoundingClientRect(), at = place(panel, area.width);
      let best = -1, least = 144;
      data.labels.forEach((_, i) => {
        const [x, y] = at(i), far = (x - event.clientX + area.left) ** 2 + (y - event.clientY + area.top) ** 2;
        if (far < least && (path < 0 || data.take[i] === path)) [best, least] = [i, far];
      });
      if (best < 0) { hideTip(); return; }
      const lines = [className(data.labels[best])];
      if (data.times) lines.push(`${Math.round(100 * data.times[best])} % into ${data.takes[data.take[best]]}`);
      showTip(lines.join("\n"), event.clientX, event.clientY);
    });
    canvas.addEventListener("mouseleave", hideTip);
    canvases.push(canvas);
    row.append(el("figure", { class: "square" }, el("figcaption", { text: panel.name }), canvas));
  }
  const keys_ = el("div", { class: "keys" });
  for (const label of [...new Set(data.labels)].sort((a, b) => a - b)) {
    const looks = DATA.classes.looks, mark = el("canvas", { width: 28, height: 28 });
    mark.style.cssText = "width:14px;height:14px";
    const context = mark.getContext("2d");
    context.scale(2, 2);
    drawPoint(context, 7, 7, label, looks[label < 0 ? looks.length - 1 : label][0], 4);
    keys_.append(el("span", {}, mark, className(label)));
  }
  const repaint = () => { keys_.hidden = by !== "class"; canvases.forEach((canvas) => canvas.repaint()); };
  if (data.times) {
    const takes = [["-1", "all takes"], ...data.takes.map((name, i) => [String(i), name])];
    box.append(el("div", { class: "controls" },
      choice("colour", [["time", "relative time (dark: start, yellow: end)"], ["class", "class (hue and shape)"]], (value) => { by = value; repaint(); }),
      choice("path of", takes, (value) => { path = +value; repaint(); })));
  }
  box.append(keys_, row);
  repaint();
  redraws.push(repaint);
};

// The end of a name that fits, with its number.
function cut(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  while (text && context.measureText(`…${text}`).width > width) text = text.slice(1);
  return `…${text}`;
}

WIDGETS.confusion = (box, data) => {
  const names = DATA.classes.names, size = names.length, row = el("div", { class: "row" });
  for (const panel of data.panels) {
    const counts = new Map(), totals = new Array(size).fill(0);
    for (let i = 0; i < panel.cells.length; i += 3) {
      counts.set(panel.cells[i] * size + panel.cells[i + 1], panel.cells[i + 2]);
      totals[panel.cells[i]] += panel.cells[i + 2];
    }
    const canvas = el("canvas", { role: "img", "aria-label": `Confusion matrix of ${panel.name}, rows: truth, columns: prediction` });
    const share = (t, p) => (counts.get(t * size + p) || 0) / (totals[t] || 1);
    // Classes are named along the edges where there is room: numbers above, names too at the left.
    const layout = (width) => {
      const top = (width - 20) / size < 10 ? 0 : 20, left = top && width > 440 ? 128 : top;
      return { top, left, wide: (width - left) / size, high: (width - top) / size };
    };
    const draw = () => paint(canvas, (context, width) => {
      const { top, left, wide, high } = layout(width), hue = color("--s2");
      context.font = "11px system-ui, sans-serif";
      context.textAlign = "center";
      context.textBaseline = "middle";
      context.fillStyle = color("--soft");
      const every = Math.ceil(18 / wide);
      if (top) for (let i = 0; i < size; i++) {
        if (i % every === 0) context.fillText(i, left + (i + 0.5) * wide, top / 2);
        context.textAlign = left > top ? "right" : "center";
        const name = left > top ? cut(context, `${names[i]} ${i}`, left - 8) : i;
        context.fillText(name, left > top ? left - 6 : left / 2, top + (i + 0.5) * high);
        context.textAlign = "center";
      }
      for (let t = 0; t < size; t++) for (let p = 0; p < size; p++) {
        const value = share(t, p);
        if (!value) continue;
        context.globalAlpha = 0.08 + 0.92 * value;
        context.fillStyle = t === p ? hue : color("--s1");
        context.fillRect(left + p * wide, top + t * high, Math.max(wide - 0.5, 0.6), Math.max(high - 0.5, 0.6));
      }
      context.globalAlpha = 1;
    });
    canvas.addEventListener("mousemove", (event) => {
      const area = canvas.getBoundingClientRect(), { top, left, wide, high } = layout(area.width);
      const p = Math.floor((event.clientX - area.left - left) / wide), t = Math.floor((event.clientY - area.top - top) / high);
      if (t < 0 || p < 0 || t >= size || p >= size) { hideTip(); return; }
      showTip(`truth: ${className(t)}\nprediction: ${className(p)}\n${(100 * share(t, p)).toFixed(1)} % of ${totals[t]} tokens`, event.clientX, event.clientY);
    });
    canvas.addEventListener("mouseleave", hideTip);
    row.append(el("figure", { class: "square" }, el("figcaption", { text: `${panel.name}: rows truth, columns prediction; blue right, orange wrong` }), canvas));
    redraws.push(draw);
    canvas.repaint = draw;
  }
  box.append(row);
  row.querySelectorAll("canvas").forEach((canvas) => canvas.repaint());
};
