const { strategies, layers, kinds } = data;
const ns = 1e-9;
const time_of = (nanoseconds) => texts.time(nanoseconds * ns);
// Times are from the beginning of the step; the one before it lies below 0.
let shown = strategies[data.best], beside = null, view = null, picked = null;  // view: [from, to]; picked: a bucket of `shown`

const pictures = () => beside === null ? [shown] : [shown, beside];
const one_step = () => [0, pictures().reduce((most, one) => Math.max(most, one.device_end), 0)];
const everything = () => pictures().reduce(([from, to], one) => [Math.min(from, one.begin), Math.max(to, one.end)], [0, 0]);
const visible = () => view || one_step();
// Those in which something happens in this step: [name, number].
const lanes = () => data.lanes.map((name, lane) => [name, lane])
  .filter(([, lane]) => pictures().some((one) => one.spans.some((span) => span[0] === lane && span[3] > 0)));
const layer_name = (i) => layers[i][0];
function names_of(indices) {
  const some = indices.slice(0, 3).map(layer_name).join(", ");
  return indices.length > 3 ? some + " and " + (indices.length - 3) + " more" : some;
}

// What a span of a strategy is, in words.
function span_text(strategy, [, kind, begin, end, item]) {
  const bucket = kinds[kind].of === "bucket" ? strategy.buckets[item] : undefined;
  const what = bucket !== undefined ? "bucket " + (item + 1) + ", " + texts.bytes(bucket.bytes) + " of " + names_of(bucket.layers) :
    kinds[kind].of === "layer" && layers[item] !== undefined ? layer_name(item) : "";
  return kinds[kind].name + (what === "" ? "" : " of " + what) + ": " + time_of(end - begin) + ", from " + time_of(begin) + " to " + time_of(end);
}

// Neighbours of one kind that are narrower than a pixel become one box.
function boxes_of(strategy, lane, scale, from, to) {
  const boxes = [], least = 1 / (scale.at(1 * ns) - scale.at(0));
  for (const span of strategy.spans) {
    const [its, kind, begin, end, item] = span;
    if (its !== lane || end < from || begin > to) continue;
    const last = boxes[boxes.length - 1];
    const narrow = end - begin < least;
    if (narrow && last !== undefined && last.narrow && last.kind === kind && begin - last.end < least && begin - last.begin < 8 * least) {
      last.end = end;
      last.count += 1;
    } else boxes.push({ kind, begin, end, item, span, narrow, count: 1 });
  }
  return boxes;
}

const kLane = 30;
function paint_lanes_of(svg, strategy, scale, top, left, right) {
  const [from, to] = visible(), inside = (at) => Math.min(right, Math.max(left, scale.at(at * ns)));
  const rows = lanes();
  rows.forEach(([name, lane], i) => {
    const y = top + i * kLane;
    add(svg, "text", { x: left - 6, y: y + kLane / 2, dy: ".35em", "text-anchor": "end" }, shortened(name, Math.floor((left - 8) / 6.4)));
    add(svg, "rect", { class: "lane", x: inside(strategy.begin), y: y + 2, width: Math.max(1, inside(strategy.end) - inside(strategy.begin)), height: kLane - 4 });
    for (const box of boxes_of(strategy, lane, scale, from, to)) {
      const x = inside(box.begin), width = Math.max(0.6, inside(box.end) - x);
      const part_of_it = picked !== null && strategy === shown && (kinds[box.kind].of === "bucket" ? box.item === picked :
        kinds[box.kind].of === "layer" && strategy.bucket_of[box.item] === picked);
      const rect = add(svg, "rect", { class: "span " + kinds[box.kind].style + (picked === null || strategy !== shown ? "" : part_of_it ? " picked" : " other"),
        x: x.toFixed(1), y: y + 4, width: width.toFixed(1), height: kLane - 8 });
      add(rect, "title", {}, box.count > 1 ? box.count + " times " + kinds[box.kind].name + ", " + time_of(box.end - box.begin) : span_text(strategy, box.span));
      if (strategy === shown && box.count === 1) rect.onclick = () => pick(box);
      const label = kinds[box.kind].of === "bucket" && box.item >= 0 ? String(box.item + 1) : kinds[box.kind].of === "layer" && layers[box.item] ? layer_name(box.item) : kinds[box.kind].name;
      if (box.count === 1 && width > label.length * 6.6 + 6)
        add(svg, "text", { class: "inner-label", x: x + width / 2, y: y + kLane / 2, dy: ".35em", "text-anchor": "middle" }, label);
    }
  });
  // The critical path: below what it goes through.
  let path = "", before = null;
  for (const i of strategy.path) {
    const [lane, , begin, end] = strategy.spans[i];
    if (end < from || begin > to) { before = null; continue; }
    const row = rows.findIndex((one) => one[1] === lane);
    if (row < 0) continue;
    const y = (top + row * kLane + kLane - 3).toFixed(1), x = inside(begin).toFixed(1);
    path += (before === null ? "M" : "L") + x + " " + y + "L" + inside(end).toFixed(1) + " " + y;
    before = end;
  }
  if (path !== "") add(svg, "path", { class: "critical", d: path });
}

function paint_timeline() {
  const holder = find("timeline");
  show(holder, () => {
    const both = pictures();
    const head = 20, each = head + lanes().length * kLane + 8, bottom = both.length * each, height = bottom + 24;
    const [svg, width] = frame(holder, height, "one step over time");
    const left = Math.min(74, 0.2 * width), right = width - 12, [from, to] = visible();
    const scale = scale_of({ kind: "time", least: from * ns, most: to * ns }, [], left, right);
    x_axis(svg, { kind: "time" }, scale, bottom, 4, width);
    both.forEach((strategy, i) => {
      add(svg, "text", { class: "lane-head", x: left, y: i * each + 14 }, strategy.name + ": " + time_of(strategy.step));
      paint_lanes_of(svg, strategy, scale, i * each + head, left, right);
    });
    if (from < 0) add_events(svg, [[0, "the step begins", "end"]], scale, 4, bottom);
    drag(svg, left, right, bottom);
  });
  find("zoomed").textContent = view === null ? "" : time_of(view[0]) + " to " + time_of(view[1]);
  find("whole").disabled = view === null;
}

// Over the lanes, from one side to the other: what lies between is what is seen then.
function drag(svg, left, right, bottom) {
  let begin = null, mark = null;
  const at = (event) => Math.min(right, Math.max(left, event.clientX - svg.getBoundingClientRect().left));
  const time_at = (x) => { const [from, to] = visible(); return from + (to - from) * (x - left) / (right - left); };
  svg.onpointerdown = (event) => { begin = at(event); };
  svg.onpointermove = (event) => {
    if (begin === null || event.buttons === 0) { begin = null; return; }
    const now = at(event);
    if (mark === null && Math.abs(now - begin) > 6) mark = add(svg, "rect", { class: "marked", y: 0, height: bottom });
    if (mark !== null) {
      mark.setAttribute("x", Math.min(begin, now));
      mark.setAttribute("width", Math.abs(now - begin));
    }
  };
  const end = (event) => {
    if (mark !== null && event.type === "pointerup") look_at(time_at(Math.min(begin, at(event))), time_at(Math.max(begin, at(event))));
    else if (mark !== null) mark.remove();
    begin = mark = null;
  };
  svg.onpointerup = svg.onpointerleave = svg.onpointercancel = end;
  svg.ondblclick = () => look_at(...one_step());
}

const kLeastView = 1000;
function look_at(from, to) {
  const [first, last] = everything(), [begin, end] = one_step();
  const length = Math.min(last - first, Math.max(kLeastView, to - from));
  const at = Math.max(first, Math.min(last - length, from));
  view = Math.abs(at - begin) < 1 && Math.abs(at + length - end) < 1 ? null : [at, at + length];
  paint_timeline();
}
function zoom(factor, step = 0) {
  const [from, to] = visible(), length = (to - from) * factor, middle = (from + to) / 2 + step * (to - from);
  look_at(middle - length / 2, middle + length / 2);
}

function pick(box) {
  const bucket = kinds[box.kind].of === "bucket" ? box.item : kinds[box.kind].of === "layer" ? shown.bucket_of[box.item] ?? null : null;
  picked = bucket === picked || bucket === null || bucket < 0 ? null : bucket;
  say_picked(box.span);
  paint_timeline();
  paint_layers();
}
function say_picked(span) {
  const bucket = picked === null ? undefined : shown.buckets[picked];
  find("said").textContent = span !== undefined ? span_text(shown, span) : bucket !== undefined ?
    "bucket " + (picked + 1) + ": " + texts.bytes(bucket.bytes) + " of " + names_of(bucket.layers) : shown.said;
}


// The columns of the table of layers: what they are called, what stands there for a layer, and as text; or what kind of time it
// is: those of a kind have one unit.
const kMostRows = 40;
const of_bucket = (column) => (i) => { const its = shown.buckets[shown.bucket_of[i]]; return its === undefined ? null : its[column]; };
const columns = [
  ["layer", (i) => i, (value) => layer_name(value)],
  ["forward", (i) => layers[i][1], "took"], ["its gap", (i) => layers[i][2] || null, "took"],
  ["backward", (i) => layers[i][3], "took"], ["its gap ", (i) => layers[i][4] || null, "took"],
  ["gradient", (i) => layers[i][5] || null, texts.bytes],
  ["bucket", (i) => shown.bucket_of[i] >= 0 ? shown.bucket_of[i] : null, (value) => String(value + 1)],
  ["ready", (i) => layers[i][5] > 0 ? shown.ready[i] ?? null : null, "at"],
  ["sent", of_bucket("sent"), "at"], ["arrived", of_bucket("arrived"), "at"],
];
const unit_of_kind = (kind) => time_unit(columns.filter(([, , its]) => its === kind)
  .flatMap(([, value_of]) => [...layers.keys()].map((i) => (value_of(i) ?? 0) * ns)));
let sorted_by = 0, upward = true, all_rows = false;

function paint_layers() {
  const table = find("layers"), of = columns[sorted_by][1];
  const order = [...layers.keys()].sort((a, b) => {
    const [x, y] = [of(a), of(b)];
    if (x === null || y === null) return (x === null) - (y === null) || a - b;
    return (upward ? x - y : y - x) || a - b;
  });
  table.replaceChildren();
  const head = add_html(table, "tr"), units = { took: unit_of_kind("took"), at: unit_of_kind("at") };
  columns.forEach(([name, , as], column) => {
    const cell = add_html(head, "th"), button = add_html(cell, "button", "sort", name.trim() + (as in units ? ", " + units[as][1] : ""));
    button.type = "button";
    if (column === sorted_by) {
      cell.setAttribute("aria-sort", upward ? "ascending" : "descending");
      button.append(upward ? " \u25b2" : " \u25bc");
    }
    button.onclick = () => {
      upward = column === sorted_by ? !upward : column === 0;
      sorted_by = column;
      paint_layers();
    };
  });
  const rows = all_rows ? order : order.slice(0, kMostRows);
  for (const i of rows) {
    const row = add_html(table, "tr", picked !== null && shown.bucket_of[i] === picked ? "taken" : "");
    columns.forEach(([, value_of, as], column) => {
      const value = value_of(i);
      add_html(row, column === 0 ? "th" : "td", "", value === null ? "" : as in units ? time_in(units[as], value * ns) : as(value));
    });
  }
  find("more-layers").hidden = rows.length === order.length;
  find("more-layers").textContent = "show all " + order.length + " layers";
}

const kBoldLetter = 7.4;  // pixels, on average
// A bar for each strategy, of what its step is made of.
const parts = [["forward", "k-forward"], ["backward", "k-backward"], ["communication that nothing hides", "k-send"], ["all else", "k-rest"]];
function paint_bars() {
  const holder = find("bars");
  show(holder, () => {
    const row = 24, top = 4, bottom = top + strategies.length * row, height = bottom + 24;
    const [svg, width] = frame(holder, height, "what the step of each strategy is made of");
    const letters = strategies.reduce((most, one) => Math.max(most, one.name.length), 0);
    const left = Math.min((letters + 2) * kBoldLetter + 8, 0.34 * width), right = width - 64;
    const scale = scale_of({ kind: "time", least: 0 }, [...strategies.map((one) => one.step * ns), (data.measured || 0) * ns], left, right);
    x_axis(svg, { kind: "time" }, scale, bottom, top, width);
    strategies.forEach((one, i) => {
      const y = top + i * row;
      const name = add(svg, "text", { x: left - 6, y: y + row / 2, dy: ".35em", "text-anchor": "end", class: i === data.best ? "best" : "" },
        shortened((i === data.best ? "* " : "") + one.name, Math.floor((left - 8) / kBoldLetter)));
      add(name, "title", {}, one.what);
      add(svg, "rect", { class: "lane", x: left, y: y + 3, width: scale.at(one.step * ns) - left, height: row - 6 });
      let at = 0;
      one.parts.forEach((part, k) => {
        if (part > 0) {
          const x = scale.at(at * ns), bar = add(svg, "rect", { class: "span " + parts[k][1], x: x.toFixed(1), y: y + 3, width: (scale.at((at + part) * ns) - x).toFixed(1), height: row - 6 });
          add(bar, "title", {}, one.name + ", " + parts[k][0] + ": " + time_of(part));
        }
        at += part;
      });
      add(svg, "text", { x: scale.at(one.step * ns) + 5, y: y + row / 2, dy: ".35em" }, time_of(one.step));
    });
    if (data.measured > 0)
      add(add(svg, "line", { class: "event measured", x1: scale.at(data.measured * ns), x2: scale.at(data.measured * ns), y1: top, y2: bottom }),
        "title", {}, "measured: " + time_of(data.measured));
  });
}

// Which strategies have a line of their own: at most so many, and of those that are nearly alike everywhere the first.
const kMostLines = 8, kAlike = 0.005;
function lines() {
  const sets = [data.over_ranks, data.over_bandwidth].filter((curves) => curves !== null), chosen = [];
  const alike = (a, b) => sets.every(({ times }) => times[a].every((time, i) => Math.abs(time - times[b][i]) <= kAlike * time));
  const order = [...new Set([data.best, ...(data.baseline === null ? [] : [data.baseline]), ...strategies.keys()])];
  for (const one of order) if (chosen.length < kMostLines && !chosen.some((other) => alike(one, other))) chosen.push(one);
  return chosen;
}

function paint_curves(id, curves, x, events) {
  if (!part(id + "-part", curves !== null)) return;
  chart(find(id), { x, y: { title: "time of a step", kind: "time", log: true }, events,
    series: [
      { name: "one rank alone", style: "bound", bare: true, points: curves.x.map((at, i) => [at, curves.floor[i] * ns]) },
      ...lines().map((s, i) => ({ name: strategies[s].name, style: "c" + i,
        points: curves.x.map((at, k) => [at, curves.times[s][k] * ns, strategies[s].name + ", " + texts[x.kind](at) + ": " + time_of(curves.times[s][k])]) }))],
  });
}

function choose() {
  shown = strategies[find("strategy").value];
  beside = find("beside").value === "" ? null : strategies[find("beside").value];
  if (beside === shown) beside = null;
  view = picked = null;
  say_picked();
  paint_timeline();
  paint_layers();
  find("timeline-legend").replaceChildren();
  legend(find("timeline-legend"), [...kinds.filter((kind, k) => pictures().some((one) => one.spans.some((span) => span[1] === k && span[3] > 0)))
    .map((kind) => [kind.name, "span " + kind.style, "box"]), ["critical path", "critical", "path"]]);
  find("layers-said").textContent = shown.name + ": when, from the beginning of the step, a layer's gradient is ready and its bucket sent and arrived.";
  for (const row of find("strategies").rows) row.classList.toggle("seen", Number(row.dataset.strategy) === strategies.indexOf(shown));
}

paint_cards(find("cards"), data.cards);
const drawn = strategies.map((one, i) => [one, i]).filter(([one]) => one.spans !== null);
for (const [one, i] of drawn) {
  find("strategy").add(new Option(one.name + ", " + time_of(one.step) + (i === data.best ? " (the best)" : ""), i));
  find("beside").add(new Option(one.name + ", " + time_of(one.step), i));
}
find("strategy").value = data.best;
find("beside").value = data.baseline !== null && data.baseline !== data.best ? data.baseline : "";
find("strategy").onchange = find("beside").onchange = choose;
find("nearer").onclick = () => zoom(0.5);
find("farther").onclick = () => zoom(2);
find("earlier").onclick = () => zoom(1, -0.5);
find("later").onclick = () => zoom(1, 0.5);
find("whole").onclick = () => look_at(...one_step());
find("both").onclick = () => look_at(...everything());
find("more-layers").onclick = () => { all_rows = true; paint_layers(); };
paint_bars();
legend(find("bars-legend"), [...parts.map(([name, style]) => [name, "span " + style, "box"]), ...(data.measured > 0 ? [["measured", "measured", "event"]] : [])]);
paint_curves("over-ranks", data.over_ranks, { title: "ranks", kind: "count", log: true }, [[data.ranks, data.ranks + " ranks", "end"]]);
paint_curves("over-bandwidth", data.over_bandwidth, { title: "bandwidth, times what it is", kind: "times", log: true }, [[1, "as it is", "end"]]);
if (data.over_ranks !== null || data.over_bandwidth !== null)
  legend(find("curves-legend"), [...lines().map((s, i) => [strategies[s].name, "c" + i]), ["one rank alone", "bound"], ["as it is", "end", "event"]]);
if (lines().length < strategies.length) add_html(find("curves-legend"), "p", "legend", "Where strategies are nearly alike, or very many, only the best of them are drawn.");
choose();
