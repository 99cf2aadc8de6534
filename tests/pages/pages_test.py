"""The pages of talweg plan, talweg predict and talweg simulate in a browser, as people see them: on a desk and on a phone, light and dark.

No script fails, nothing is asked of any network, nothing is wider than the window or cut off, what is written can be read,
no column mixes units of time, and what can be moved moves. That each of these would be noticed is shown on pages into which it is put.
"""
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import browser

PROGRAM = os.environ["TALWEG_PROGRAM"]
CLUSTERS = pathlib.Path(os.environ["TALWEG_CLUSTERS"])
SKIPPED = 77  # as CMakeLists.txt says
DESK, PHONE = 1280, 390  # pixels
LEAST_CONTRAST = 4.5  # of text, as WCAG 2.1 wants it at level AA

# What is wrong with a page that is open, as far as it can be measured.
MEASURE = """((least_contrast) => {
  const found = [], root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) found.push(`it is ${root.scrollWidth} pixels wide, the window ${root.clientWidth}`);
  const texts = [...document.querySelectorAll("svg text")].filter((text) => text.getBoundingClientRect().width > 0);
  for (const text of texts) {
    const box = text.getBoundingClientRect(), all = text.ownerSVGElement.getBoundingClientRect();
    if (box.left < all.left - 1 || box.right > all.right + 1 || box.top < all.top - 1 || box.bottom > all.bottom + 1)
      found.push("cut off: " + text.firstChild.data);
  }
  for (const chart of document.querySelectorAll(".chart"))
    if (chart.offsetParent !== null && chart.querySelector(".series, .point, .heat, .lane") === null) found.push("empty: " + chart.id);
  const light = (colour) => colour.match(/[0-9.]+/g).slice(0, 3).map((part) => part / 255)
    .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (element) => { for (; element; element = element.parentElement) {
    const colour = getComputedStyle(element).backgroundColor;
    if (colour !== "rgba(0, 0, 0, 0)") return colour;
  } return "rgb(255, 255, 255)"; };
  const written = [...document.querySelectorAll("p, dt, dd, th, td, h1, h2, .card div, .entry, pre")].filter((one) => one.textContent.trim() !== "");
  for (const [elements, property] of [[written, "color"], [texts, "fill"]])
    for (const one of elements) {
      const [a, b] = [light(getComputedStyle(one)[property]), light(behind(one))], contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      if (contrast < least_contrast) { found.push(`contrast ${contrast.toFixed(1)}: ${one.textContent.slice(0, 40)}`); break; }
    }
  for (const table of document.querySelectorAll("table")) {
    const units = new Map();  // of each column, of its times
    for (const row of table.rows)
      for (const [column, cell] of [...row.cells].entries()) {
        const unit = cell.textContent.match(/^[+-]?[0-9.e+-]+ (ns|us|ms|s|min|h)$/);
        if (unit !== null) units.set(column, (units.get(column) || new Set()).add(unit[1]));
      }
    for (const [column, its] of units) if (its.size > 1) found.push(`${[...its].join(" and ")} in one column: ${table.id}, ${column + 1}`);
  }
  return { found, brightness: light(getComputedStyle(document.body).backgroundColor),
    scrolled: [...document.querySelectorAll(".scroll")].filter((box) => box.scrollWidth > box.clientWidth)
      .map((box) => box.firstElementChild.id || box.firstElementChild.tagName) };
})""" + f"({LEAST_CONTRAST})"

# Everything that can be chosen is, one after the other. How much of it there was.
TRY_ALL = """(() => {
  let tried = 0;
  const say = (element, event) => { element.dispatchEvent(new Event(event)); tried += 1; };
  const slide = (slider) => { for (let i = 0; i <= Number(slider.max); i += Math.max(1, Math.floor(slider.max / 20))) { slider.value = i; say(slider, "input"); } };
  const find = (id) => document.getElementById(id);
  for (const choice of [find("plan"), find("run")].filter((one) => one !== null))
    for (let i = 0; i < choice.options.length; i += 1) {
      choice.selectedIndex = i;
      say(choice, "change");
      const trees = find("one-tree");
      if (trees !== null) for (const tree of [0, 1].filter((one) => one < trees.options.length)) {
        trees.selectedIndex = tree;
        say(trees, "change");
        slide(find("step"));
      }
      if (find("time") !== null) slide(find("time"));
    }
  for (const link of [...document.querySelectorAll("#links path")].slice(0, 5)) link.dispatchEvent(new Event("pointerenter"));
  const strategies = find("strategy");
  if (strategies !== null)
    for (const choice of [find("beside"), strategies])
      for (let i = 0; i < choice.options.length; i += 1) {
        choice.selectedIndex = i;
        say(choice, "change");
        for (const id of ["nearer", "nearer", "later", "farther", "earlier", "both", "whole"]) { find(id).click(); tried += 1; }
        for (const span of [...document.querySelectorAll("#timeline .span")].slice(0, 5)) say(span, "click");
      }
  for (const column of [...document.querySelectorAll(".sort")].keys()) for (const turn of [0, 1]) { document.querySelectorAll(".sort")[column].click(); tried += 1; }
  const bound = find("show-bound");
  if (bound !== null) { bound.checked = !bound.checked; say(bound, "change"); }
  return tried;
})()"""

# What a picture of the network looks like at the middle of the run, and over all of it.
SLIDE = """(() => {
  const slider = document.getElementById("time"), links = [...document.querySelectorAll("#links path")];
  const look = (value) => {
    slider.value = value;
    slider.dispatchEvent(new Event("input"));
    return { said: document.getElementById("said").textContent, links: links.map((link) => link.getAttribute("class") + link.style.strokeWidth).join(),
      cursors: [...document.querySelectorAll(".cursor")].filter((line) => line.getAttribute("visibility") === "visible").length,
      failed: document.querySelectorAll(".link.failed").length };
  };
  const whole = look(0), steps = [...Array(Number(slider.max)).keys()].map((i) => look(i + 1));
  return { most: Number(slider.max), whole, pictures: new Set(steps.map((step) => step.links)).size, texts: new Set(steps.map((step) => step.said)).size,
    cursors: Math.min(...steps.map((step) => step.cursors)), failed: Math.max(...steps.map((step) => step.failed)) };
})()"""

# What becomes of a page of a training step where something is chosen on it: its zoom, its buckets, its table.
STEP = """(() => {
  const find = (id) => document.getElementById(id), rows = () => [...find("layers").rows].slice(1);
  const shown = () => ({ zoomed: find("zoomed").textContent, spans: document.querySelectorAll("#timeline .span").length,
    said: find("said").textContent, picked: rows().filter((row) => row.classList.contains("taken")).map((row) => row.cells[0].textContent) });
  const seen = { at_first: shown(), strategies: find("strategy").options.length, critical: document.querySelectorAll("#timeline .critical").length };
  find("nearer").click();
  seen.nearer = shown();
  find("whole").click();
  const svg = document.querySelector("#timeline svg"), box = svg.getBoundingClientRect();
  const drag = (what, part) => svg.dispatchEvent(new PointerEvent(what, { clientX: box.left + part * box.width, clientY: box.top + 40, buttons: 1 }));
  for (const [what, part] of [["pointerdown", 0.5], ["pointermove", 0.6], ["pointermove", 0.7], ["pointerup", 0.7]]) drag(what, part);
  seen.dragged = shown();
  find("whole").click();
  [...document.querySelectorAll("#timeline .k-send")][0].dispatchEvent(new Event("click"));
  seen.bucket = shown();
  const sorted = (name) => { [...document.querySelectorAll(".sort")].find((one) => one.textContent.startsWith(name)).click(); return rows().map((row) => row.cells[0].textContent); };
  seen.by_gradient = sorted("gradient");
  seen.by_gradient_upward = sorted("gradient");
  return seen;
})()"""


def star(names):
    """A star with these hosts, as a file of a network."""
    return json.dumps({
        "nodes": [{"name": name, "kind": "worker"} for name in names] + [{"name": "sw", "kind": "switch"}],
        "links": [{"between": [name, "sw"], "capacity": "1Gbit/s", "latency": "30us"} for name in names]})


def leaf_spine(leaves, hosts, spines):
    names = [f"h{i}" for i in range(leaves * hosts)]
    inner = [f"leaf{i}" for i in range(leaves)] + [f"spine{i}" for i in range(spines)]
    links = [(name, f"leaf{i // hosts}") for i, name in enumerate(names)]
    links += [(f"leaf{leaf}", f"spine{spine}") for leaf in range(leaves) for spine in range(spines)]
    return json.dumps({
        "nodes": [{"name": name, "kind": "worker"} for name in names] + [{"name": name, "kind": "switch"} for name in inner],
        "links": [{"between": ends, "capacity": "10Gbit/s", "latency": "1us"} for ends in links]})


def ring(n):
    nodes = [{"name": f"h{i}", "kind": "worker"} for i in range(n)] + [{"name": f"s{i}", "kind": "switch"} for i in range(n)]
    links = [(f"h{i}", f"s{i}") for i in range(n)] + [(f"s{i}", f"s{(i + 1) % n}") for i in range(n)]
    return json.dumps({"nodes": nodes, "links": [{"between": ends, "capacity": "1Gbit/s"} for ends in links]})


FILES = {
    "two.yaml": star(["a", "b"]),
    "thirty_two.yaml": leaf_spine(8, 4, 4),
    "ring.yaml": ring(6),
    "odd.yaml": star(["<script>alert(1)</script>", "</script><img/src=x/onerror=alert(2)>", "\"'&amp;<b>", "x" * 70,
                      "\u202egnp.exe", "\\u003cb\\u003e", "\u65e5\u672c", "a:b"]),
    "flows.cm": "Nodes 16\nConnections 240\n" + "".join(
        f"{i % 16}->{(i + 1 + i // 16) % 16} id {i + 1} start {i * 1000000} size {[1500, 20000, 300000][i % 3]}\n" for i in range(240)),
    "work.yaml": """
groups:
  - {name: "<i>job</i>", ranks: [h0, h1, h2, h3], repeat: 4, steps: [{compute: 200us}, {op: all_reduce, bytes: 256KiB, algo: ring}]}
flows: [{from: h4, to: h1, bytes: 1MB, start: 100us}]
changes: [{at: 300us, fail: leaf0->spine0}, {at: 600us, repair: leaf0->spine0}]
""",
}
FILES["odd_job.yaml"] = json.dumps({"name": "<i>job</i>", "origin": "estimated", "batch": 8, "layers": [
    {"name": name, "forward": "1ms", "forward_gap": "200us", "backward": "2ms", "gradient": "1MB"}
    for name in ("<script>alert(1)</script>", "</script><img/src=x/onerror=alert(2)>", "\"'&amp;<b>", "x" * 70)]})
FILES["one_layer.yaml"] = json.dumps({"name": "one", "origin": "estimated", "layers": [{"name": "only", "forward": "1ms", "backward": "2ms", "gradient": "1MB"}]})
FILES["recorded.yaml"] = json.dumps({"name": "recorded", "origin": "measured", "ranks": 2, "step": "20ms", "overhead": "1ms",
    "layers": [{"name": name, "forward": "1ms", "backward": "2ms", "gradient": "4MB"} for name in ("a", "b")],
    "exchanges": [{"op": "broadcast", "bytes": "64B", "time": "2ms", "wait": "1ms"},
                  {"op": "all_reduce", "layers": ["b", "a"], "bytes": "8000000B", "time": "6ms", "wait": "2ms"}]})
FILES["deep.yaml"] = json.dumps({"name": "deep", "origin": "measured", "step": "95ms", "ranks": 4, "input": "1ms", "copy": "200us", "layers": [
    {"name": f"layer{i // 10}.{i % 10}.conv", "forward": "80us", "backward": "160us", "backward_gap": "20us" if i % 3 else "0us",
     "gradient": f"{(i * 7919) % 400000 + 4000}B"} for i in range(300)]})
VGG = str(CLUSTERS.parent / "jobs" / "vgg16.yaml")
TEN = str(CLUSTERS / "uneven4.yaml")
# By the name of the page. Paths are relative to the folder that holds the files above.
PAGES = {
    "plan-ten-planners": ["plan", TEN],
    "plan-two-hosts": ["plan", "two.yaml", "--bytes", "4K,1M"],
    "plan-32-hosts": ["plan", "thirty_two.yaml", "--bytes", "64K,16M"],
    "plan-ring": ["plan", "ring.yaml", "--bytes", "4K..1M"],
    "plan-odd-names": ["plan", "odd.yaml", "--bytes", "64K,1M", "--op", "broadcast"],
    "plan-barrier": ["plan", TEN, "--op", "barrier"],
    "predict-vgg": ["predict", VGG, "--rate", "10Gbit/s", "-n", "2,8", "--strategy", "wfbp,ddp,exact,bytescheduler,dear,naive"],
    "predict-all": ["predict", "deep.yaml", "--cluster", TEN],
    "predict-odd-names": ["predict", "odd_job.yaml", "--alpha-beta", "100us,1ns/B", "-n", "4", "--strategy", "ddp,dear,fsdp"],
    "predict-recorded": ["predict", "recorded.yaml"],
    "predict-one-layer": ["predict", "one_layer.yaml", "--alpha-beta", "0us,0ns/B", "-n", "2", "--strategy", "wfbp"],
    "simulate-all-algorithms": ["simulate", TEN, "--algo", "all", "-b", "64K,1M", "-n", "2"],
    "simulate-two-hosts": ["simulate", "two.yaml", "-b", "64K"],
    "simulate-32-hosts-and-a-failure": ["simulate", "thirty_two.yaml", "-b", "1M", "--fail", "leaf0->spine1@200us..900us"],
    "simulate-matrix": ["simulate", "--topology", "fat-tree:hosts=16", "--cm", "flows.cm"],
    "simulate-workload": ["simulate", "--topology", "leaf-spine:leaves=2,hosts=4,spines=2", "--workload", "work.yaml"],
    "simulate-fluid": ["simulate", "--topology", "leaf-spine:leaves=2,hosts=4,spines=2", "--flows", "shuffle:size=4MB", "--fluid"],
    "simulate-fluid-calls": ["simulate", TEN, "-b", "1M", "--fluid"],
    "simulate-incast-ndp": ["simulate", "--topology", "star:hosts=9", "--flows", "incast:size=200KB", "--transport", "ndp"],
    "simulate-paced": ["simulate", TEN, "-b", "1M", "--pacing"],
    "simulate-all-to-all": ["simulate", "thirty_two.yaml", "--op", "all_to_all", "-b", "64K,256K", "-n", "1"],
    "simulate-odd-names": ["simulate", "odd.yaml", "-b", "64K"],
    "simulate-128-hosts": ["simulate", "--topology", "fat-tree:hosts=128", "-b", "64K", "-n", "1", "--algo", "halving_doubling"],
}
# What is put before the end of a page, and what is then to be said of it; and whether it is in the dark.
DEFECTS = {
    "script": ("<script>there_is_no_such_function();</script>", "there_is_no_such_function", False),
    "console": ("<script>console.error('all is lost');</script>", "console: all is lost", False),
    "rejected": ("<script>Promise.reject(new Error('nobody listens'));</script>", "nobody listens", False),
    "dialog": ("<script>alert('hello');</script>", "a dialog: hello", False),
    "network": ("<img src='http://127.0.0.1:1/x.png'/>", "it asks for http://127.0.0.1:1/x.png", False),
    "wide": ("<div style='width: 3000px'>x</div>", "pixels wide, the window", False),
    "cut": ("<svg width='20' height='20'><text x='0' y='12'>far too long</text></svg>", "cut off: far too long", False),
    "empty": ("<div class='chart' id='hole'>x</div>", "empty: hole", False),
    "faint": ("<p style='color: #bbb; background: #fff'>hardly to be read</p>", "contrast", False),
    "units": ("<table id='times'><tr><th>time</th></tr><tr><td>1.5 ms</td></tr><tr><td>20 us</td></tr></table>", "ms and us in one column: times, 1", False),
    "white": ("<style>:root { --back: #fff !important; --text: #000 !important; --card: #fff !important; }</style>", "it is not dark", True),
}


def problems(page, dark):
    measured = page.evaluate(MEASURE)
    found = list(page.complaints())
    if measured is None:
        return found
    found += measured["found"]
    if dark and measured["brightness"] > 0.1:
        found.append("it is not dark")
    if not dark and measured["brightness"] < 0.8:
        found.append("it is not light")
    return found


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        for name, text in FILES.items():
            cls.path(name).write_text(text, encoding="utf-8")
        for name, arguments in PAGES.items():
            done = subprocess.run([PROGRAM, *arguments, "--html", cls.path(name + ".html")], cwd=cls.folder.name,
                                  capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise RuntimeError(f"talweg {' '.join(arguments)}: {done.stderr}")
        cls.browser = cls.enterClassContext(browser.Browser(browser.find_browser()))

    @classmethod
    def path(cls, name):
        return pathlib.Path(cls.folder.name) / name

    def opened(self, name, width=DESK, dark=False):
        return contextlib.closing(self.browser.open(self.path(name + ".html"), width, dark))

    def test_nothing_is_wrong_with_them_on_a_desk_and_on_a_phone_light_and_dark(self):
        for name in PAGES:
            for width, dark in ((DESK, False), (PHONE, True)):
                with self.opened(name, width, dark) as page:
                    with self.subTest(page=name, width=width, dark=dark):
                        self.assertEqual(problems(page, dark), [])
                    other = DESK + PHONE - width
                    page.show_at(other, not dark)
                    with self.subTest(page=name, width=other, dark=not dark, turned_from=width):
                        self.assertEqual(problems(page, not dark), [])

    def test_whatever_is_chosen_nothing_goes_wrong(self):
        for name in PAGES:
            with self.subTest(page=name), self.opened(name, PHONE) as page:
                self.assertGreater(page.evaluate(TRY_ALL), 1)
                self.assertEqual(problems(page, False), [])

    def test_on_a_desk_ten_planners_need_no_scrolling(self):
        with self.opened("plan-ten-planners") as page:
            self.assertEqual(page.evaluate("document.querySelectorAll('#predicted tr:first-child th').length"), 13)
            self.assertEqual(page.evaluate(MEASURE)["scrolled"], [])

    def test_the_slider_goes_through_time(self):
        for name, failed in (("simulate-32-hosts-and-a-failure", 1), ("simulate-matrix", 0), ("simulate-workload", 1)):
            with self.subTest(page=name), self.opened(name) as page:
                seen = page.evaluate(SLIDE)
                self.assertGreater(seen["most"], 20)
                self.assertEqual(seen["texts"], seen["most"])
                self.assertGreater(seen["pictures"], 5)
                self.assertEqual(seen["whole"]["cursors"], 0)
                self.assertGreaterEqual(seen["cursors"], 3)
                self.assertEqual(seen["failed"], failed)

    def test_it_plays(self):
        with self.opened("simulate-32-hosts-and-a-failure") as page:
            moved = page.evaluate("""(async () => {
          const said = document.getElementById("said"), before = said.textContent;
          document.getElementById("play").click();
          for (let i = 0; i < 200 && said.textContent === before; i += 1) await new Promise((resolve) => setTimeout(resolve, 50));
          document.getElementById("play").click();
          return said.textContent !== before;
        })()""")
            self.assertTrue(moved)
            self.assertEqual(page.evaluate("document.getElementById('play').textContent"), "play")

    def test_a_step_is_looked_at_closer_and_a_bucket_picked(self):
        for width in (DESK, PHONE):
            with self.subTest(width=width), self.opened("predict-vgg", width) as page:
                # PyTorch's own buckets, of which the second takes nearly all.
                page.evaluate("find('strategy').selectedIndex = [...find('strategy').options].findIndex((one) => one.text.startsWith('ddp'));"
                              "find('strategy').onchange()")
                seen = page.evaluate(STEP)
                self.assertEqual(seen["strategies"], 6)
                self.assertGreaterEqual(seen["critical"], 1)
                self.assertEqual(seen["at_first"]["zoomed"], "")
                self.assertEqual(seen["at_first"]["picked"], [])
                self.assertIn(" to ", seen["nearer"]["zoomed"])
                self.assertIn(" to ", seen["dragged"]["zoomed"])
                self.assertNotEqual(seen["nearer"]["zoomed"], seen["dragged"]["zoomed"])
                self.assertLess(seen["dragged"]["spans"], seen["at_first"]["spans"])
                self.assertEqual(seen["bucket"]["picked"], ["fc8"])
                self.assertIn("bucket 1, ", seen["bucket"]["said"])
                self.assertEqual(seen["by_gradient"][0], "fc6")
                self.assertEqual(seen["by_gradient"][-1], "conv1_1")
                self.assertEqual([seen["by_gradient_upward"][i] for i in (0, 1, -2, -1)], ["conv1_1", "conv1_2", "fc7", "fc6"])

    def test_buckets_are_numbered_and_what_carries_no_gradients_is_not(self):
        with self.opened("predict-recorded") as page:
            labels = page.evaluate("[...document.querySelectorAll('#timeline .inner-label')].map((one) => one.textContent)")
            self.assertIn("1", labels)
            self.assertNotIn("0", labels)
            legend = page.evaluate("document.getElementById('timeline-legend').textContent")
            self.assertIn("waiting for late ranks", legend)

    def test_names_of_layers_are_shown_as_they_are_written(self):
        with self.opened("predict-odd-names") as page:
            self.assertEqual(page.evaluate("document.querySelectorAll('img, b, i').length"), 0)
            names = page.evaluate("[...document.getElementById('layers').rows].map((row) => row.cells[0].textContent)")
            self.assertIn("</script><img/src=x/onerror=alert(2)>", names)

    def test_names_are_shown_as_they_are_written(self):
        for name in ("plan-odd-names", "simulate-odd-names"):
            with self.subTest(page=name), self.opened(name) as page:
                self.assertEqual(page.evaluate("document.querySelectorAll('img, b, i').length"), 0)
                titles = page.evaluate("[...document.querySelectorAll('#nodes title')].map((title) => title.textContent)")
                self.assertIn("</script><img/src=x/onerror=alert(2)>, rank 1", titles)
                self.assertIn("\\u202egnp.exe, rank 4", titles)

    def test_what_goes_wrong_is_noticed(self):
        for name, (defect, said, dark) in DEFECTS.items():
            text = self.path("plan-two-hosts.html").read_text(encoding="utf-8")
            self.path(name + ".html").write_text(text.replace("</body>", defect + "</body>"), encoding="utf-8")
            with self.subTest(defect=name), self.opened(name, dark=dark) as page:
                self.assertIn(said, "\n".join(problems(page, dark)))


if __name__ == "__main__":
    if browser.find_browser() is None:
        print("skipped: there is no chromium-headless-shell, chromium or google-chrome")
        sys.exit(SKIPPED)
    unittest.main()
