"""The numbers in docs/simulation.md against what the program says: simulation_test.py BUILD_FOLDER SOURCE_FOLDER

Time is virtual and plans are computed, so that each number holds to the last digit that the page has of it."""

import json
import pathlib
import re
import shlex
import subprocess
import sys
import unittest

SOURCE = pathlib.Path(sys.argv.pop(2))
BUILD = pathlib.Path(sys.argv.pop(1))
PAGE = (SOURCE / "docs" / "simulation.md").read_text(encoding="utf-8")
SENTENCES = " ".join(PAGE.split())
LIKE = shlex.split(re.search(r'^LIKE="(.*)"$', PAGE, re.MULTILINE)[1])
FLOWS = ["permutation:size=30MB,shift=4", "shuffle:size=1MB", "shuffle:size=4MB", "incast:size=10MB"]  # the table's columns
EVEN = "examples/clusters/even4.yaml"
RACK = "examples/clusters/rack8.topo"
UNITS = {"us": 1, "ms": 1e3}


def talweg(*words):
    done = subprocess.run([BUILD.resolve() / "talweg", *words, "--json", "-"], cwd=SOURCE, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def planned(*words):
    """us that what is taken is predicted to need."""
    line = talweg("plan", *words)["sizes"][0]
    return next(c["predicted_us"] for c in line["candidates"] if c["algorithm"] == line["taken"])


def simulated(*words):
    """us of a call."""
    return talweg("simulate", *words)["results"][0]["out_of_place"]["time_us"]


def flows(*words):
    """us that each flow took."""
    return [flow["took_us"] for flow in talweg("simulate", *words)["flows"]]


def table_below(text):
    """Cells of the first table below this text, without the header's two lines."""
    lines = PAGE[PAGE.index(text):].split("\n|", 1)[1].split("\n\n")[0].split("\n|")[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


class Numbers(unittest.TestCase):
    def check(self, us, text, unit=None):
        """That `text` is these microseconds: "13.6 ms"; without a unit of its own, in `unit`."""
        value, unit = (text, unit) if unit else text.split()
        self.assertEqual(f"{us / UNITS[unit]:.{len(value.partition('.')[2])}f}", value)

    def sentence(self, pattern):
        """The numbers in the page where it says this; each # is one with its unit."""
        match = re.search(re.escape(pattern).replace(r"\#", r"([\d.]+ [um]s)"), SENTENCES)
        self.assertIsNotNone(match, pattern)
        return match.groups()

    def test_of_flows_as_htsim_was_run(self):
        shown = re.findall(r"^talweg simulate \$LIKE --flows (\S+) --transport (\w+)$", PAGE, re.MULTILINE)
        made = {}
        for first, *cells in table_below("The last flow ends"):
            transport = re.match(r"`--transport (\w+)`", first)
            if not transport:
                continue  # htsim's own
            self.assertEqual(len(cells), len(FLOWS))
            for pattern, cell in zip(FLOWS, cells):
                with self.subTest(transport=transport[1], flows=pattern):
                    made[pattern, transport[1]] = flows(*LIKE, "--flows", pattern, "--transport", transport[1])
                    self.check(max(made[pattern, transport[1]]), cell, "ms")
        self.assertGreater(len(shown), 3)
        self.assertLessEqual(set(shown), set(made))
        first = self.sentence("the first flow to end: after # with `dctcp`, after # with `ndp`")
        for transport, text in zip(("dctcp", "ndp"), first):
            self.check(min(made[FLOWS[3], transport]), text)

    def test_of_what_is_planned_and_simulated(self):
        cells = table_below(f"On `{EVEN}`")
        self.assertEqual(len(cells), 4)
        for what, plan, simulation in cells:
            with self.subTest(what):
                op, size = what.split(", ")
                call = [EVEN, "--op", op, "--bytes", size.replace(" ", "")]
                self.check(planned(*call), plan)
                self.check(simulated(*call), simulation)

    def test_of_what_processors_cost(self):
        call = [EVEN, "--bytes", "64K"]
        texts = self.sentence("takes #, # with `--processors tcp`, and # with `-n 20` besides")
        for options, text in zip(([], ["--processors", "tcp"], ["--processors", "tcp", "-n", "20"]), texts):
            self.check(simulated(*call, *options), text)
        call = [RACK, "--bytes", "64K"]
        plan, free, tcp = self.sentence("(100 Gbit/s) # are planned, # simulated, and # with `--processors tcp`")
        self.check(planned(*call), plan)
        self.check(simulated(*call), free)
        self.check(simulated(*call, "--processors", "tcp"), tcp)

    def test_of_marks(self):
        call = shlex.split(re.search(r"`talweg simulate (--topology star:hosts=8,rate=10G \S+ \S+ --algo chain)`", SENTENCES)[1])
        marked, without = self.sentence("--algo chain` takes #, and # with `--mark 0`")
        self.check(simulated(*call), marked)
        self.check(simulated(*call, "--mark", "0"), without)


if __name__ == "__main__":
    unittest.main()
