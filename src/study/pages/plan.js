"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const find = (id) => document.getElementById(id);
const links = [...document.querySelectorAll("#links line")];
const nodes = [...document.querySelectorAll("#nodes .node")];
const thickness = Number(find("network").dataset.thickness);
const levels = [0, 0.25, 0.5, 0.75, 0.9];
const percent = (part) => (100 * part).toFixed(1) + " %";
let timer = null;

function level_of(busy) {
  if (busy === 0) return 0;
  let level = 1;
  while (level < levels.length && busy > levels[level]) level += 1;
  return level;
}

function plan() { return data.plans[find("plan").value]; }
function tree() { const choice = find("one-tree").value; return choice === "" ? null : plan().trees[choice]; }
function last_step(edges) { return edges.reduce((most, edge) => Math.max(most, edge[2]), 0); }

// Among very many links only the busiest stand out.
const dense = links.length > 1000;

function paint_loads() {
  const most = Math.max(...plan().busy) || 1;
  links.forEach((line, i) => {
    const busy = plan().busy[i];
    line.setAttribute("class", "link u" + level_of(busy));
    line.style.strokeWidth = (thickness * (1.2 + 4.8 * Math.min(1, busy))).toFixed(2);
    if (dense) line.style.setProperty("--seen", Math.max(0.05, (busy / most) ** 4).toFixed(3));
    line.firstElementChild.textContent = data.links[i] + "; carries " + plan().bytes[i] + ", busy " + percent(busy);
  });
  const all = plan().busy.map((busy, i) => [busy, data.links[i]]).concat(plan().group_busy.map((busy, i) => [busy, data.groups[i]]));
  all.sort((a, b) => b[0] - a[0]);
  find("busiest").textContent = "Busiest: " + all.slice(0, 5).map(([busy, what]) => what.split(":")[0] + " " + percent(busy)).join("; ");
}

function list_trees() {
  const select = find("one-tree");
  select.replaceChildren(new Option("all: loads (" + plan().tree_count + " trees)", ""));
  plan().trees.forEach((tree, i) => select.add(new Option(
    i + ": root " + data.nodes[tree.root][0] + ", " + percent(tree.part) + " = " + tree.bytes, i)));
  const more = plan().tree_count - plan().trees.length;
  if (more > 0) select.add(Object.assign(new Option("and " + more + " more, not in this page"), { disabled: true }));
}

// Bent toward the centre, so that edges around the circle stay apart; up and down each to its side.
function path_of(from, to, side) {
  const [, ax, ay] = data.nodes[from], [, bx, by] = data.nodes[to];
  const length = Math.hypot(bx - ax, by - ay) || 1, ox = -(by - ay) / length, oy = (bx - ax) / length;
  const cx = (ax + bx) / 2 * 0.6 + ox * side, cy = (ay + by) / 2 * 0.6 + oy * side;
  const clear = (x, y) => { const away = Math.hypot(cx - x, cy - y) || 1; return [x + (cx - x) / away * 10, y + (cy - y) / away * 10]; };
  const [sx, sy] = clear(ax, ay), [ex, ey] = clear(bx, by);
  return `M${sx} ${sy}Q${cx} ${cy} ${ex} ${ey}`;
}

function add_edge(layer, [from, to], way, when, now) {
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  const state = now === 0 || when < now ? "" : when === now ? " now" : " later";
  path.setAttribute("class", "edge " + way + state);
  path.setAttribute("d", path_of(from, to, 9));
  path.setAttribute("marker-end", "url(#" + way + "-head)");
  layer.append(path);
  if (state === " later" || (now !== 0 && when !== now)) return;
  // All equally good ways; of links that are always loaded alike, one stands for all.
  (data.routes[from + "," + to] || []).flatMap((link) => data.alike[link] || [link])
    .forEach((link) => links[link].classList.add("used"));
}

function paint_tree() {
  const shown = tree(), layer = find("tree"), slider = find("step");
  layer.replaceChildren();
  links.forEach((line) => line.classList.remove("used"));
  nodes.forEach((node) => node.classList.remove("root"));
  find("network").classList.toggle("dim", shown !== null);
  find("steps").style.visibility = shown === null ? "hidden" : "visible";
  if (shown === null) {
    find("said").textContent = plan().name + ": predicted " + plan().time + (plan().taken ? ", " + data.taken : "");
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

if (data.plans.length > 0) {
  data.plans.forEach((plan, i) => find("plan").add(new Option(plan.name + (plan.taken ? " (taken), " : ", ") + plan.time, i)));
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
  // plan.html#plan=ring&tree=0&step=2 opens there.
  const wanted = new URLSearchParams(location.hash.slice(1));
  const index = data.plans.findIndex((plan) => plan.name === wanted.get("plan"));
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
