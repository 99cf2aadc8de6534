"use strict";
// What all pages' scripts stand on: elements of SVG, numbers with units, axes with round ticks, charts.
const find = (id) => document.getElementById(id);
const data = JSON.parse(find("data").textContent);
const percent = (part) => (100 * part).toFixed(1) + " %";

// Attributes that are undefined are left out.
function add(parent, name, attributes = {}, text = undefined) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) if (value !== undefined) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}
function add_html(parent, name, class_name = "", text = "") {
  const element = Object.assign(document.createElement(name), { className: class_name, textContent: text });
  parent.append(element);
  return element;
}
// Whether this part of the page is seen.
function part(id, shown) { find(id).hidden = !shown; return shown; }
function paint_cards(holder, cards) {
  holder.replaceChildren();
  for (const { name, value, note } of cards) {
    const card = add_html(holder, "div", "card");
    add_html(card, "div", "name", name);
    add_html(card, "div", "value", value);
    add_html(card, "div", "note", note);
  }
}

// Three digits and the largest unit of which there is one.
function scaled(value, units) {
  const [factor, name] = units.find((unit) => Math.abs(value) >= 0.9995 * unit[0]) || units[units.length - 1];
  return Number((value / factor).toPrecision(3)) + " " + name;
}
const time_units = [[1, "s"], [1e-3, "ms"], [1e-6, "us"], [1e-9, "ns"]];
const texts = {
  number: (value) => String(Number(value.toPrecision(3))),
  part: (value) => Number((100 * value).toPrecision(3)) + " %",
  time: (value) => value === 0 ? "0" : scaled(value, time_units),
  count: (value) => String(Number(value.toPrecision(6))),
  times: (value) => texts.number(value) + " x",
  bytes: (value) => value === 0 ? "0" : scaled(value, [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]]),
};
// The unit in which times stand under each other, by their median; and a time in it.
function time_unit(times) {
  const sorted = times.map(Math.abs).filter((time) => time > 0).sort((a, b) => a - b), middle = sorted[sorted.length >> 1] ?? 1;
  return time_units.find(([factor]) => middle >= 0.9995 * factor) || time_units[time_units.length - 1];
}
const time_in = ([factor], time) => texts.number(time / factor);
function shortened(text, letters) { return text.length <= letters ? text : text.slice(0, Math.max(1, letters - 1)) + "\u2026"; }

// Ticks at 1, 2 or 5 times a power of ten; on logarithmic axes of what is doubled, and of bytes always, at powers of two.
const doubled = ["bytes", "count", "times"];
function linear_ticks(kind, least, most, count) {
  const rough = (most - least) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = kind === "bytes" ? Math.max(1, 2 ** Math.ceil(Math.log2(rough))) :
    power * ([1, 2, 5].find((factor) => factor * power >= rough * (1 - 1e-9)) || 10);
  const ticks = [];
  for (let i = Math.ceil(least / step - 1e-9); i * step <= most + 1e-9 * step; i += 1) ticks.push(i * step);
  return ticks;
}
function log_ticks(kind, least, most, count) {
  const base = doubled.includes(kind) ? 2 : 10, log = (value) => Math.log(value) / Math.log(base);
  const first = Math.floor(log(least) + 1e-9), last = Math.ceil(log(most) - 1e-9);
  const every = Math.max(1, Math.ceil((last - first) / count));
  const factors = base === 10 && every === 1 && 3 * (last - first) <= count ? [1, 2, 5] : [1];
  const ticks = [];
  for (let i = first; i <= last; i += every) for (const factor of factors) ticks.push(factor * base ** i);
  const inside = ticks.filter((tick) => tick >= least * (1 - 1e-9) && tick <= most * (1 + 1e-9));
  return inside.length > 1 ? inside : linear_ticks(kind, least, most, count);
}

// From values to pixels. axis: {title, kind: of `texts`, log, least, most}; what it does not say, the values do.
function scale_of(axis, values, begin, end) {
  const fit = values.filter((value) => Number.isFinite(value) && (!axis.log || value > 0));
  // No spread: Math.max(...) takes no 100,000 arguments.
  let least = axis.least ?? fit.reduce((a, b) => Math.min(a, b), Infinity), most = axis.most ?? fit.reduce((a, b) => Math.max(a, b), -Infinity);
  if (!(least <= most)) [least, most] = axis.log ? [1, 10] : [0, 1];
  if (axis.log && axis.least === undefined) least /= 1.15;
  if (axis.most === undefined) most = axis.log ? most * 1.15 : most + 0.05 * (most - Math.min(0, least));
  if (most <= least) most = axis.log ? 2 * least : least + (Math.abs(least) || 1);
  const turn = axis.log ? Math.log : (value) => value, low = turn(least), high = turn(most);
  const count = Math.max(2, Math.abs(end - begin) / (begin < end ? 85 : 48));
  return {
    at: (value) => begin + (turn(value) - low) / (high - low) * (end - begin),
    ticks: (axis.log ? log_ticks : linear_ticks)(axis.kind, least, most, count),
  };
}

// What is drawn again when the window has another width.
const paintings = new Map();
function show(holder, paint) {
  paintings.set(holder, paint);
  holder.replaceChildren();
  paint(holder);
}
let painted_width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === painted_width) return;
  painted_width = innerWidth;
  for (const [holder, paint] of paintings) {
    holder.replaceChildren();
    paint(holder);
  }
});

function frame(holder, height, label) {
  const width = Math.max(240, holder.clientWidth);
  return [add(holder, "svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }), width];
}

// A line of ticks below a picture; those at the ends stay inside it.
function x_axis(svg, axis, scale, bottom, top, width) {
  const group = add(svg, "g", { class: "axes" });
  for (const tick of scale.ticks) {
    const x = scale.at(tick), anchor = x > width - 28 ? "end" : x < 28 ? "start" : "middle";
    add(group, "line", { x1: x, x2: x, y1: top, y2: bottom });
    add(group, "text", { x, y: bottom + 16, "text-anchor": anchor }, texts[axis.kind](tick));
  }
  return group;
}

// Vertical lines at times of a run: [time, text, class].
function add_events(svg, events, scale, top, bottom) {
  for (const [time, text, what] of events)
    add(add(svg, "line", { class: "event " + what, x1: scale.at(time), x2: scale.at(time), y1: top, y2: bottom }), "title", {}, text);
}

// A line at the time that is looked at.
let looked_at = null;
function place_cursor(line) {
  line.setAttribute("visibility", looked_at === null ? "hidden" : "visible");
  if (looked_at !== null) for (const end of ["x1", "x2"]) line.setAttribute(end, line.place(looked_at));
}
function add_cursor(svg, scale, top, bottom) {
  const line = add(svg, "line", { class: "cursor", y1: top, y2: bottom });
  line.place = scale.at;
  place_cursor(line);
}
function move_cursors(time) {
  looked_at = time;
  document.querySelectorAll(".cursor").forEach(place_cursor);
}

// series: {name, style, points: [[x, y, text, stands_out]], bare}; lines between the points, and unless `bare` the points
// themselves where they are few. cursor: a vertical line that move_cursors() moves.
function chart(holder, { x, y, series, events = [], cursor = false }) {
  show(holder, () => {
    const height = 300, left = 68, right = 12, top = 12, bottom = height - 42;
    const [svg, width] = frame(holder, height, y.title + " against " + x.title);
    const points = series.flatMap((one) => one.points);
    const across = scale_of(x, points.map((point) => point[0]), left, width - right);
    const up = scale_of(y, points.map((point) => point[1]), bottom, top);
    const group = x_axis(svg, x, across, bottom, top, width);
    for (const tick of up.ticks) {
      const level = up.at(tick);
      add(group, "line", { x1: left, x2: width - right, y1: level, y2: level });
      add(group, "text", { x: left - 6, y: level, dy: ".35em", "text-anchor": "end" }, texts[y.kind](tick));
    }
    add(group, "text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, x.title + (x.log ? " (logarithmic)" : ""));
    add(group, "text", { transform: `translate(11 ${(top + bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, y.title + (y.log ? " (logarithmic)" : ""));
    add_events(svg, events, across, top, bottom);
    for (const one of series) {
      let path = "", open = false;
      for (const [at, value] of one.points) {
        const fits = Number.isFinite(value) && (!y.log || value > 0);
        if (fits) path += (open ? "L" : "M") + across.at(at).toFixed(1) + " " + up.at(value).toFixed(1);
        open = fits;
      }
      if (path !== "") add(svg, "path", { class: "series " + one.style, d: path });
    }
    for (const one of series) {
      if (one.bare || one.points.length > 64) continue;
      for (const [at, value, text, taken] of one.points)
        if (Number.isFinite(value) && (!y.log || value > 0))
          add(add(svg, "circle", { class: "point " + one.style + (taken ? " taken" : ""), cx: across.at(at), cy: up.at(value), r: taken ? 5 : 3 }),
            "title", {}, text || one.name + ": " + texts[y.kind](value));
    }
    if (cursor) add_cursor(svg, across, top, bottom);
  });
}

function legend(holder, entries) {
  const line = add_html(holder, "p", "legend");
  for (const [name, style, shape = "line"] of entries) {
    const entry = add_html(line, "span", "entry");
    const svg = add(entry, "svg", { width: 26, height: 10 });
    if (shape === "line") add(svg, "path", { class: "series " + style, d: "M1 5L25 5" });
    else if (shape === "event") add(svg, "line", { class: "event " + style, x1: 13, x2: 13, y1: 0, y2: 10 });
    else if (shape === "path") add(svg, "path", { class: style, d: "M1 5L25 5" });
    else if (shape === "point") add(svg, "circle", { class: style, cx: 13, cy: 5, r: 4 });
    else add(svg, "rect", { class: style, x: 4, y: 0, width: 18, height: 10 });
    entry.append(" " + name);
  }
}

// Links on the picture of the network.
const links = [...document.querySelectorAll("#links path")];
const link_names = links.map((link) => link.firstElementChild.textContent);
const dense = links.length > 1000;  // among very many links only the busiest stand out
const levels = [0, 0.25, 0.5, 0.75, 0.9];
function level_of(busy) {
  if (busy === 0) return 0;
  let level = 1;
  while (level < levels.length && busy > levels[level]) level += 1;
  return level;
}
// busy: by link. most: the highest that any can be, if links are many.
function paint_links(busy, most, class_of = () => "") {
  const thickness = Number(find("network").dataset.thickness);
  links.forEach((link, i) => {
    link.setAttribute("class", "link u" + level_of(busy[i]) + class_of(i));
    link.style.strokeWidth = (thickness * (1.2 + 4.8 * Math.min(1, busy[i]))).toFixed(2);
    if (dense) link.style.setProperty("--seen", Math.max(0.05, (busy[i] / (most || 1)) ** 4).toFixed(3));
  });
}
// "a -> b" of a link whose title is "a -> b: 10 Gbit/s, 1 us".
const ends_of = (name) => name.split(": ")[0];
function busiest_text(busy, names) {
  const all = [...busy].map((part, i) => [part, names[i]]).sort((a, b) => b[0] - a[0]).slice(0, 5);
  return "Busiest: " + all.map(([part, name]) => ends_of(name) + " " + percent(part)).join("; ");
}
// Titles are there when a pointer is.
function title_links(text_of) {
  for (const link of links) link.onpointerenter = () => {
    const i = links.indexOf(link);
    link.firstElementChild.textContent = link_names[i] + "; " + text_of(i);
  };
}
