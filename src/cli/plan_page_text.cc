// The style and the script of the page: colours for light and dark, and what paints loads and trees.
#include "cli/plan_page.h"

namespace talweg::cli {

const char* const kPageStyle = R"css(
:root { color-scheme: light dark; --back: #ffffff; --text: #1d2433; --faint: #66707f; --rule: #dde2ea; --node: #ffffff;
  --u0: #c9d0da; --u1: #8fb9dc; --u2: #3f8fd2; --u3: #e6b422; --u4: #ee7b30; --u5: #d7263d; --bound: #9b3fd1;
  --up: #007f73; --down: #c2410c; }
@media (prefers-color-scheme: dark) { :root { --back: #14181f; --text: #e6e9ef; --faint: #9aa4b2; --rule: #2c3441; --node: #14181f;
  --u0: #3c4655; --u1: #3f6f96; --u2: #4aa3ea; --u3: #edc344; --u4: #f58a45; --u5: #f4485c; --bound: #c583f0;
  --up: #2dd4bf; --down: #fb923c; } }
body { margin: 1.5rem auto; max-width: 1100px; padding: 0 1rem; background: var(--back); color: var(--text);
  font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; } dt { color: var(--faint); } dd { margin: 0; }
svg { display: inline-block; } #network, #rates { display: block; width: 100%; height: auto; }
svg text { font: 11px system-ui, "DejaVu Sans", sans-serif; fill: var(--text); }
.labels text { paint-order: stroke; stroke: var(--back); stroke-width: 3px; }
.link { stroke: var(--u0); opacity: var(--seen, 1); } .dim .link { opacity: calc(.25 * var(--seen, 1)); } .dim .link.used { opacity: 1; }
.u1 { stroke: var(--u1); } .u2 { stroke: var(--u2); } .u3 { stroke: var(--u3); } .u4 { stroke: var(--u4); } .u5 { stroke: var(--u5); }
.priced { stroke: var(--bound); opacity: .35; stroke-linecap: round; } .dim .priced { opacity: .1; }
.node { fill: var(--node); stroke: var(--text); stroke-width: 1.6; } .inner { fill: var(--rule); }
.node.root { fill: var(--down); }
.edge { fill: none; stroke-width: 2; opacity: .45; } .edge.now { stroke-width: 3; opacity: 1; } .edge.later { opacity: 0; }
.edge.up { stroke: var(--up); } .edge.down { stroke: var(--down); stroke-dasharray: 6 3; }
.up-fill { fill: var(--up); } .down-fill { fill: var(--down); } .up-text { color: var(--up); } .down-text { color: var(--down); }
.legend, #busiest, #said { color: var(--faint); font-size: .85rem; margin: .4rem 0; } #said { min-height: 1.4em; color: var(--text); }
.entry { display: inline-block; margin-right: .9rem; white-space: nowrap; }
.controls > label, #steps { margin-right: 1rem; } #step { vertical-align: middle; width: 9rem; }
.axes line { stroke: var(--rule); } .axes text { fill: var(--faint); }
.bound-line { stroke: var(--bound); stroke-width: 2; stroke-dasharray: 8 4; }
.series { fill: none; stroke-width: 1.8; stroke: var(--c); } .point { fill: var(--c); }
.point.taken { stroke: var(--text); stroke-width: 1.6; }
.c0 { --c: #2f7fd0; } .c1 { --c: #e0822d; } .c2 { --c: #2f9e58; } .c3 { --c: #d1495b; } .c4 { --c: #8a63d2; } .c5 { --c: #9c6b4e; }
.c6 { --c: #d667b5; } .c7 { --c: #7d8590; } .c8 { --c: #a8a02a; } .c9 { --c: #1fa7b8; } .c10 { --c: #5b6ee1; } .c11 { --c: #c2185b; }
.c4, .c5, .c6, .c7 { stroke-dasharray: 7 2; } .c8, .c9, .c10, .c11 { stroke-dasharray: 2 2; } .point { stroke-dasharray: none; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .15rem .6rem; text-align: right; border-bottom: 1px solid var(--rule); white-space: nowrap; }
td.taken { font-weight: bold; } td.taken::before { content: "* "; }
)css";

const char* const kPageScript = R"js(
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
  (data.routes[from + "," + to] || []).forEach((link) => links[link].classList.add("used"));
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
)js";

}  // namespace talweg::cli
