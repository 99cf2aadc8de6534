const runs = data.runs;
const characters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNO";
const level = new Map([...characters].map((character, i) => [character, i / 50]));
let run = null, uses = [], timer = null;  // uses: by link, of each step

// What a link's time is painted by: its use in each step.
function decoded(text) { return Float32Array.from(text, (character) => level.get(character)); }
const events_of = (one) => [...one.ends.map(([time, text]) => [time, text, "end"]),
  ...one.changes.map(([time, what, how]) => [time, how + ": " + what, how])];
const event_legend = (one) => [...(one.ends.length > 0 ? [["end of a call or iteration", "end", "event"]] : []),
  ...["failed", "repaired"].filter((how) => one.changes.some((change) => change[2] === how)).map((how) => [how, how, "event"])];

// Links that are down at a time.
function down_at(time) {
  const down = new Set();
  for (const [at, , how, gone] of run.changes)
    if (at <= time) for (const link of gone) if (how === "failed") down.add(link); else down.delete(link);
  return down;
}

// Of the whole run at 0; else of that step.
function paint_network() {
  const step = Number(find("time").value);
  const begin = (step - 1) * run.use_step, busy = step === 0 ? run.mean : uses.map((use) => use[step - 1]);
  const down = step === 0 ? new Set() : down_at(begin + run.use_step / 2);
  if (links.length > 0) {
    paint_links(busy, busy.reduce((a, b) => Math.max(a, b), 0), (link) => down.has(link) ? " failed" : "");
    find("busiest").textContent = busiest_text(busy, link_names);
  }
  find("said").textContent = step === 0 ? "the whole run, mean" :
    "step " + step + " of " + uses[0].length + ": " + texts.time(begin) + " to " + texts.time(Math.min(begin + run.use_step, run.duration));
  move_cursors(step === 0 ? null : begin + run.use_step / 2);
}

function stop() { clearInterval(timer); timer = null; find("play").textContent = "play"; }
function play() {
  if (timer !== null) return stop();
  find("play").textContent = "stop";
  timer = setInterval(() => {
    const slider = find("time");
    slider.value = (Number(slider.value) + 1) % (Number(slider.max) + 1);
    paint_network();
  }, 120);
}

// Rows of the same height with a name at their left, above an axis of time.
function rows_of_time(holder, names, row, begin, end, label, paint) {
  show(holder, () => {
    const top = 4, bottom = top + names.length * row, height = bottom + 24;
    const [svg, width] = frame(holder, height, label);
    const room = Math.min(names.reduce((most, name) => Math.max(most, name.length), 0) * 6.8 + 8, 0.3 * width);
    const axis = { kind: "time", least: begin, most: end }, scale = scale_of(axis, [], room, width - 12);
    x_axis(svg, axis, scale, bottom, top, width);
    const every = Math.ceil(12 / row);
    names.forEach((name, i) => {
      if (i % every > 0) return;
      const text = add(svg, "text", { x: room - 6, y: top + i * row + row / 2, dy: ".35em", "text-anchor": "end" }, shortened(name, Math.floor((room - 8) / 6.8 + 0.01)));
      add(text, "title", {}, name);
    });
    paint(svg, scale, (i) => top + i * row);
    add_events(svg, events_of(run), scale, top, bottom);
    add_cursor(svg, scale, top, bottom);
  });
}

// Equal neighbours become one box.
function boxes(text, visit) {
  for (let i = 0; i < text.length;) {
    let end = i + 1;
    while (end < text.length && text[end] === text[i]) end += 1;
    visit(text[i], i, end);
    i = end;
  }
}

function paint_heat(holder, rows, class_name, label) {
  const height = 14;
  rows_of_time(holder, rows.map((row) => row[0]), height, 0, run.duration, label, (svg, scale, y) => {
    rows.forEach(([name, text], i) => boxes(text, (character, first, end) => {
      if (character === "0") return;
      const from = scale.at(first * run.step), to = scale.at(Math.min(end * run.step, run.duration));
      const box = add(svg, "rect", { class: class_name, x: from.toFixed(1), y: y(i), width: Math.max(0.5, to - from).toFixed(1), height: height - 1,
        "fill-opacity": level.get(character).toFixed(2) });
      add(box, "title", {}, name + ": " + percent(level.get(character)));
    }));
  });
}

// A row for each rank: above what it sends, below what it receives; or what it does. Across them the critical path.
function paint_lanes() {
  const holder = find("lanes"), lanes = run.lanes;
  if (!part("lanes-part", lanes !== undefined && lanes !== null && lanes.rows.length > 0)) return;
  find("lanes-said").textContent = lanes.said;
  const { begin, end, rows, path } = lanes, height = rows.length <= 16 ? 22 : rows.length <= 40 ? 16 : 11;
  rows_of_time(holder, rows.map((row) => row[0]), height, begin, end, "what ranks did over time", (svg, scale, y) => {
    rows.forEach(([, from, to, ...texts_of], i) => {
      add(svg, "rect", { class: "lane", x: scale.at(from), y: y(i) + 1, width: Math.max(1, scale.at(to) - scale.at(from)), height: height - 2 });
      const half = (height - 4) / texts_of.length;
      texts_of.forEach((text, lane) => boxes(text, (digit, first, last) => {
        if (digit === "0") return;
        const at = (step) => scale.at(begin + (end - begin) * step / text.length);
        add(svg, "rect", { class: "s" + parseInt(digit, 16), x: at(first).toFixed(1), width: Math.max(0.5, at(last) - at(first)).toFixed(1),
          y: y(i) + 2 + lane * half, height: half });
      }));
    });
    const middle = (row) => y(row) + height / 2;
    path.forEach(([from, to, sent, received], i) => {
      const before = i > 0 ? path[i - 1][3] : rows[from]?.[1] ?? sent;
      if (from >= 0 && sent > before)
        add(svg, "line", { class: "critical waits", x1: scale.at(before), x2: scale.at(sent), y1: middle(from), y2: middle(from) });
      if (from >= 0 && to >= 0)
        add(svg, "line", { class: "critical", x1: scale.at(sent), x2: scale.at(received), y1: middle(from), y2: middle(to) });
    });
  });
  const calls = rows[0].length > 4;
  legend(find("lanes-legend"), [...(calls ?
    [["up (summing)", "s1", "box"], ["down (result)", "s2", "box"], ["both", "s3", "box"]] :
    [["computes", "s4", "box"], ["in a collective", "s8", "box"]]),
    ...(path.length === 0 ? [] : calls ? [["critical path: on the way", "critical", "path"], ["waiting", "critical waits", "path"]] :
      [["critical path: slanted where another rank began a collective last", "critical", "path"]]), ...event_legend(run)]);
  if (calls) add_html(find("lanes-legend"), "p", "legend", "Each row: above what the rank sends, below what it receives, until it has arrived.");
}

function paint_flows() {
  if (!part("flows-part", run.flows !== undefined)) return;
  const { completion, by_size } = run.flows;
  chart(find("completion"), {
    x: { title: "completion time of a flow", kind: "time", log: true }, y: { title: "flows that took no longer", kind: "part", least: 0, most: 1 },
    series: [{ name: "flows", style: "c0", bare: true, points: completion }],
  });
  const of_sizes = (name, style, column) => ({ name, style, points: by_size.map((size) => [size[0], size[column],
    texts.bytes(size[0]) + ", " + size[1] + " flows: " + name + " " + texts.number(size[column])]) });
  chart(find("slowdown"), {
    x: { title: "size of a flow", kind: "bytes", log: true }, y: { title: "slowdown", kind: "number", log: true, least: 1 },
    series: [of_sizes("median", "c0", 2), of_sizes("p99", "c3", 3)],
  });
  legend(find("slowdown-legend"), [["median", "c0"], ["p99", "c3"]]);
  add_html(find("slowdown-legend"), "p", "legend", "Slowdown: the time that a flow took over the time that it would take alone, at the rate of the narrowest link of its route.");
}

function paint_tiers() {
  if (!part("tiers-part", run.tiers.length > 0 && run.tiers[0][1].length > 0)) return;
  const middle = (i) => (i + 0.5) * run.step, x = { title: "time", kind: "time", least: 0, most: run.duration };
  const of = (column) => run.tiers.map((tier, i) => ({ name: tier[0], style: "c" + i % 12, bare: true,
    points: tier[column].map((value, step) => [Math.min(middle(step), run.duration), value]) }));
  chart(find("tier-use"), { x, y: { title: "mean use of links", kind: "part", least: 0 }, series: of(1), events: events_of(run), cursor: true });
  chart(find("tier-queue"), { x, y: { title: "deepest queue", kind: "bytes", least: 0 }, series: of(2), events: events_of(run), cursor: true });
  legend(find("tier-legend"), [...run.tiers.map((tier, i) => [tier[0], "c" + i % 12]), ...event_legend(run)]);
}

function choose(index) {
  stop();
  run = runs[index];
  uses = (run.use || []).map(decoded);
  find("time").value = 0;
  find("time").max = uses.length > 0 ? uses[0].length : 0;
  find("time").disabled = find("play").disabled = uses.length === 0;
  for (const id of ["lanes-legend", "slowdown-legend", "tier-legend"]) find(id).replaceChildren();
  looked_at = null;
  paint_cards(find("cards"), run.cards);
  paint_lanes();
  paint_flows();
  paint_tiers();
  if (part("use-part", run.busiest.length > 0)) paint_heat(find("use"), run.busiest, "heat", "use of links over time");
  find("queues-said").textContent = "Bytes that wait in front of a link or are being sent. Darkest: " + texts.bytes(run.queues.most) + ".";
  if (part("queues-part", run.queues.rows.length > 0)) paint_heat(find("queues"), run.queues.rows, "heat queue", "queues over time");
  paint_network();
  for (const row of find("table").rows) row.className = Number(row.dataset.run) === index ? "taken" : "";
}

// All runs of collectives, side by side.
function compare() {
  const calls = runs.map((one) => one.call).filter((call) => call !== undefined);
  part("table-part", calls.length > 1);
  if (calls.length <= 1) { part("sizes-part", false); return; }
  const table = find("table"), head = add_html(table, "tr"), unit = time_unit(calls.flatMap((call) => [call.time, call.planned]));
  for (const name of ["size", "algorithm", "time, " + unit[1], "busbw, GB/s", "of bound", "planned, " + unit[1], "planned / time"]) add_html(head, "th", "", name);
  runs.forEach((one, i) => {
    if (one.call === undefined) return;
    const { bytes, algorithm, time, busbw, bound, planned } = one.call, row = add_html(table, "tr");
    row.dataset.run = i;
    for (const text of [texts.bytes(bytes), algorithm, time_in(unit, time), busbw > 0 ? texts.number(busbw) : "-",
      bound === null ? "-" : percent(bound / time), time_in(unit, planned), (planned / time).toFixed(2)]) add_html(row, "td", "", text);
  });
  const names = [...new Set(calls.map((call) => call.algorithm))], sizes = new Set(calls.map((call) => call.bytes));
  if (!part("sizes-part", sizes.size > 1)) return;
  const of = (value) => names.map((name, i) => ({ name, style: "c" + i % 12,
    points: calls.filter((call) => call.algorithm === name).map((call) => [call.bytes, call[value]]) }));
  const bounds = [...new Map(calls.filter((call) => call.bound !== null).map((call) => [call.bytes, call.bound]))];
  chart(find("sizes"), {
    x: { title: "size of the vector", kind: "bytes", log: true }, y: { title: "time of a call", kind: "time", log: true },
    series: [{ name: "bound", style: "bound", bare: true, points: bounds },
      ...of("planned").map((line) => ({ ...line, style: line.style + " planned", bare: true })), ...of("time")],
  });
  legend(find("sizes-legend"), [...names.map((name, i) => [name, "c" + i % 12]), ["planned", "c7 planned"],
    ...(bounds.length > 0 ? [["bound", "bound"]] : [])]);
}

runs.forEach((one, i) => find("run").add(new Option(one.title, i)));
part("runs-line", runs.length > 1);
compare();
find("run").onchange = () => choose(Number(find("run").value));
find("time").oninput = () => { stop(); paint_network(); };
find("play").onclick = play;
title_links((link) => {
  const step = Number(find("time").value);
  return "busy " + percent(step === 0 ? run.mean[link] : uses[link][step - 1]);
});
// First what took least of the largest size.
const largest = runs.reduce((best, one, i) => {
  if (one.call === undefined || runs[best].call === undefined) return best;
  const { bytes, time } = one.call, other = runs[best].call;
  return bytes > other.bytes || (bytes === other.bytes && time < other.time) ? i : best;
}, 0);
find("run").value = largest;
choose(largest);
