const nodes = [...document.querySelectorAll("#nodes .node")];
const plans = data.plans || [];
let timer = null;

function plan() { return plans[find("plan").value]; }
function tree() { const choice = find("one-tree").value; return choice === "" ? null : plan().trees[choice]; }
function last_step(edges) { return edges.reduce((most, edge) => Math.max(most, edge[2]), 0); }

function paint_loads() {
  paint_links(plan().busy, plan().busy.reduce((a, b) => Math.max(a, b), 0));
  find("busiest").textContent = busiest_text(plan().busy.concat(plan().group_busy), link_names.concat(data.groups));
}

function list_trees() {
  const select = find("one-tree");
  select.replaceChildren(new Option("all: loads (" + plan().tree_count + " trees)", ""));
  plan().trees.forEach((tree, i) => select.add(new Option(
    i + ": root " + data.nodes[tree.root][0] + ", " + percent(tree.part) + " = " + tree.bytes, i)));
  const more = plan().tree_count - plan().trees.length;
  if (more > 0) select.add(Object.assign(new Option("and " + more + " more, not in this page"), { disabled: true }));
}

// Around a circle bent toward the centre, in tiers upward, so that edges stay apart; up and down each to its side.
function path_of(from, to, side) {
  const [, ax, ay] = data.nodes[from], [, bx, by] = data.nodes[to];
  const length = Math.hypot(bx - ax, by - ay) || 1, ox = -(by - ay) / length, oy = (bx - ax) / length;
  const cx = (ax + bx) / 2 * (data.round ? 0.6 : 1) + ox * side;
  const cy = (data.round ? (ay + by) / 2 * 0.6 : Math.min(ay, by) - 30 - 0.3 * Math.abs(bx - ax)) + oy * side;
  const clear = (x, y) => { const away = Math.hypot(cx - x, cy - y) || 1; return [x + (cx - x) / away * 10, y + (cy - y) / away * 10]; };
  const [sx, sy] = clear(ax, ay), [ex, ey] = clear(bx, by);
  return `M${sx} ${sy}Q${cx} ${cy} ${ex} ${ey}`;
}

function add_edge(layer, [from, to], way, when, now) {
  const state = now === 0 || when < now ? "" : when === now ? " now" : " later";
  add(layer, "path", { class: "edge " + way + state, d: path_of(from, to, 9), "marker-end": "url(#" + way + "-head)" });
  if (state === " later" || (now !== 0 && when !== now)) return;
  // All equally good ways; of links that are always loaded alike, one stands for all.
  (data.routes[from + "," + to] || []).flatMap((link) => data.alike[link] || [link])
    .forEach((link) => links[link].classList.add("used"));
}

function paint_tree() {
  const shown = tree(), layer = find("tree"), slider = find("step");
  layer.replaceChildren();
  links.forEach((link) => link.classList.remove("used"));
  nodes.forEach((node) => node.classList.remove("root"));
  find("network").classList.toggle("dim", shown !== null);
  find("steps").style.visibility = shown === null ? "hidden" : "visible";
  if (shown === null) {
    find("said").textContent = plan().name + ": predicted " + plan().time + (plan().taken ? ", " + data.taken_text : "");
    return;
  }
  const up = last_step(shown.up), down = last_step(shown.down), now = Number(slider.value);
  slider.max = up + down;
  shown.up.forEach((edge) => add_edge(layer, edge, "up", edge[2], now));
  shown.down.forEach((edge) => add_edge(layer, edge, "down", up + edge[2], now));
  nodes[shown.root].classList.add("root");
  const what = now === 0 ? "all " + (up + down) + " steps" :
    now <= up ? "step " + now + " of " + (up + down) + ": up" : "step " + now + " of " + (up + down) + ": down";
  find("said").textContent = "Root " + data.nodes[shown.root][0] + " has " + percent(shown.part) + " of the vector (" + shown.bytes +
    ") in chunks of " + shown.chunk + "; " + what;
}

function stop() { clearInterval(timer); timer = null; find("play").textContent = "play"; }
function step_by(n) {
  const slider = find("step"), count = Number(slider.max) + 1;
  slider.value = (Number(slider.value) + n + count) % count;
  paint_tree();
}

if (plans.length > 0) {
  plans.forEach((plan, i) => find("plan").add(new Option(plan.name + (plan.taken ? " (taken), " : ", ") + plan.time, i)));
  find("plan").onchange = () => { stop(); list_trees(); find("step").value = 0; paint_loads(); paint_tree(); };
  find("one-tree").onchange = () => { stop(); find("step").value = 0; paint_tree(); };
  find("step").oninput = () => { stop(); paint_tree(); };
  find("back").onclick = () => { stop(); step_by(-1); };
  find("next").onclick = () => { stop(); step_by(1); };
  find("play").onclick = () => {
    if (timer !== null) return stop();
    find("play").textContent = "stop";
    timer = setInterval(() => step_by(1), 900);
  };
  title_links((link) => "carries " + plan().bytes[link] + ", busy " + percent(plan().busy[link]));
  // plan.html#plan=ring&tree=0&step=2 opens there.
  const wanted = new URLSearchParams(location.hash.slice(1));
  const index = plans.findIndex((plan) => plan.name === wanted.get("plan"));
  find("plan").value = Math.max(0, index);
  find("plan").onchange();
  if (wanted.has("tree") && plan().trees[wanted.get("tree")]) {
    find("one-tree").value = wanted.get("tree");
    paint_tree();
    find("step").value = wanted.get("step") || 0;
    paint_tree();
  }
}
const bound = find("show-bound");
if (bound) {
  bound.onchange = () => { find("bound-links").style.display = bound.checked ? "" : "none"; };
  bound.checked = find("bound-links").childElementCount <= 1000;
  bound.onchange();
}

if (find("times")) {
  const { planners, sizes, times, rates, taken, bound_times } = data.curves;
  const curves_of = (values, text_of) => planners.map((name, i) => ({
    name, style: "c" + i % 12,
    points: sizes.map((size, row) => [size, values[i][row], name + ", " + texts.bytes(size) + ": " + text_of(values[i][row]) +
      (taken[row] === i ? ", " + data.taken_text : ""), taken[row] === i]),
  }));
  const x = { title: "size of the vector", kind: "bytes", log: true };
  const limit = (values) => values.some((value) => value !== null) ?
    [{ name: "bound", style: "bound", bare: true, points: sizes.map((size, row) => [size, values[row]]) }] : [];
  // time * rate is the same of every planner.
  const bound_rates = bound_times.map((time, row) => {
    const one = times.findIndex((of_planner) => of_planner[row] !== null);
    return time === null || one < 0 ? null : times[one][row] * rates[one][row] / time;
  });
  chart(find("times"), {
    x, y: { title: "predicted time", kind: "time", log: true },
    series: [...limit(bound_times), ...curves_of(times, (time) => time === null ? "-" : texts.time(time))],
  });
  chart(find("rates"), {
    x, y: { title: "algbw, GB/s", kind: "number", least: 0 },
    series: [...limit(bound_rates), ...curves_of(rates, (rate) => rate === null ? "-" : texts.number(rate) + " GB/s")],
  });
  legend(find("curves-legend"), [...planners.map((name, i) => [name, "c" + i % 12]),
    ...(bound_times.some((time) => time !== null) ? [["bound", "bound"]] : []), ["a ringed point: " + data.taken_text, "point c0 taken", "point"]]);
}
