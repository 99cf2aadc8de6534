"""How far the cost model's times are from the packet simulator's on networks that nothing was set on: stars, trees of
switches, leaf-spines and meshes of links one way, drawn from seeds, and what a group takes there by itself.

What is asked is of all_reduce and of the rates drawn by themselves; --op and --mbit ask for others besides, which have rows
of their own. All of it is virtual time: other work on the machine changes nothing."""
import json
import pathlib
import random
import statistics
import tempfile

import predict
import report
from rows import row, size_word

SEEDS = range(1, 5)
WORKERS = (3, 8, 16, 32)
OP = "all_reduce"
SIZES = (64 << 10, 1 << 20, 16 << 20, 64 << 20)
LONG = 16 << 20  # one call of so much and more: a first one is as long as others, but for little
REST = "1ms"  # then all ranks begin the timed calls together: who had ended the warm-up early would begin before others
SWITCHES = 6  # of a tree, at most
LEAVES = 8
MBIT = (5, 200)  # of links, evenly; of every other network
QUICKER = 20  # times as much
LATENCY = "10us"
# What hosts and switches are, as in predict.LAB, but that switches mark.
HOSTS = ["--processors", "tcp", "--least-rto", "200ms", "--average", "max"]


class Draw:
    """A cluster file as a dict, drawn from a kind, a seed and a number of workers; `mbit`: between which rates, evenly in
    their logarithms, in place of MBIT."""

    def __init__(self, kind, seed, workers, mbit=None):
        self.random = random.Random(f"{kind}/{seed}")
        self.both_ways_alike = self.random.random() < 0.5
        self.scale = self.random.choice((1, QUICKER))
        self.mbit = mbit
        self.workers = [f"h{i}" for i in range(workers)]
        self.switches, self.links = [], []
        KINDS[kind](self)

    def cluster(self):
        nodes = [{"name": name, "kind": "worker"} for name in self.workers]
        return {"nodes": nodes + [{"name": name, "kind": "switch"} for name in self.switches], "links": self.links}

    def rate(self):
        if self.mbit:
            least, most = self.mbit
            return least * (most / least) ** self.random.random()
        return self.scale * self.random.uniform(*MBIT)

    def link(self, start, end, rate):
        self.links.append({"from": start, "to": end, "capacity": f"{rate:.2f}Mbit/s", "latency": LATENCY})

    def join(self, one, other):
        there, back = self.rate(), self.rate()
        self.link(one, other, there)
        self.link(other, one, there if self.both_ways_alike else back)

    def star(self):
        self.switches = ["hub"]
        for worker in self.workers:
            self.join(worker, "hub")

    def tree(self):
        self.switches = [f"s{i}" for i in range(self.random.randint(2, SWITCHES))]
        for i in range(1, len(self.switches)):
            self.join(self.switches[i], self.switches[self.random.randrange(i)])
        for worker in self.workers:
            self.join(worker, self.random.choice(self.switches))

    def leaf_spine(self):
        leaves = [f"leaf{i}" for i in range(self.random.randint(2, min(LEAVES, len(self.workers))))]
        self.switches = ["spine", *leaves]
        for leaf in leaves:
            self.join(leaf, "spine")
        for i, worker in enumerate(self.workers):
            self.join(worker, leaves[i % len(leaves)])

    def mesh(self):
        """A tree of workers, and links one way between others."""
        linked = set()
        for i in range(1, len(self.workers)):
            other = self.random.randrange(i)
            self.join(self.workers[i], self.workers[other])
            linked |= {(i, other), (other, i)}
        for _ in range(3 * len(self.workers)):
            pair = tuple(self.random.randrange(len(self.workers)) for _ in range(2))
            if pair[0] != pair[1] and pair not in linked:
                linked.add(pair)
                self.link(*(self.workers[i] for i in pair), self.rate())


KINDS = {"star": Draw.star, "tree of switches": Draw.tree, "leaf-spine": Draw.leaf_spine, "mesh": Draw.mesh}


def records_of(kind, seed, workers, sizes, settings, operation=OP):
    with tempfile.TemporaryDirectory(prefix="talweg-drawn") as folder:
        cluster = pathlib.Path(folder) / "network.yaml"
        cluster.write_text(json.dumps(Draw(kind, seed, workers, settings.mbit).cluster()))
        plan = predict.talweg(settings, "plan", cluster, "--op", operation, "--bytes", ",".join(map(str, sizes)))
        for line in plan["sizes"]:
            size, planner = line["size_bytes"], line["taken"]
            predicted_us = next(c["predicted_us"] for c in line["candidates"] if c["algorithm"] == planner)
            calls = ["--warmup", 0, "--iters", 1] if size >= LONG else ["--warmup", 1, "--iters", 2, "--rest", REST]
            words = ["simulate", cluster, "--op", operation, "--bytes", size, "--algo", planner, *HOSTS, *calls]
            simulated_us = predict.talweg(settings, *words)["results"][0]["out_of_place"]["time_us"]
            yield {"scenario": "drawn", "kind": kind, "seed": seed, "ranks": workers, "bytes": size, "taken": planner,
                   "op": operation, "mbit": settings.mbit,
                   "predicted_ms": predicted_us / 1e3, "simulated_ms": simulated_us / 1e3, "error": predicted_us / simulated_us - 1}


def groups(records):
    """(key, what they have in common, their records): all, then those of each size, kind, number of workers and planner."""
    yield "all", "all", records
    for name, values in (("bytes", SIZES), ("kind", KINDS), ("ranks", WORKERS), ("taken", {r["taken"]: 0 for r in records})):
        for value in values:
            same = [record for record in records if record[name] == value]
            what = {"bytes": report.size_name, "ranks": "{} workers".format}.get(name, str)(value)
            yield f"{name}/{size_word(value) if name == 'bytes' else value}".replace(" ", "-"), what, same


def error_of(records):
    """(the median of what they are off, the record that is worst)."""
    return statistics.median(abs(r["error"]) for r in records), max(records, key=lambda r: abs(r["error"]))


def rates_words(mbit):
    return f"{mbit[0]:g} to {mbit[1]:g} Mbit/s" if mbit else ""


def run(workers, settings):
    sizes = [size for size in settings.sizes if size in SIZES]
    records = []
    for operation in settings.op or [OP]:
        made = []
        where = ", ".join(filter(None, (f"{workers} workers", operation, rates_words(settings.mbit))))
        for kind in KINDS:
            for seed in settings.seeds or SEEDS:
                made += records_of(kind, seed, workers, sizes, settings, operation)
                print(f"# drawn, {where}, {kind} {seed}: "
                      + ", ".join(f"{report.size_name(r['bytes'])} {r['error']:+.1%}" for r in made[-len(sizes):]), flush=True)
        lines = []
        for _, what, same in groups(made):
            if same:
                median, worst = error_of(same)
                lines.append([what, str(len(same)), f"{median:.1%}", f"{worst['error']:+.1%}"])
        report.table(f"predicted over simulated times of what is taken - 1, {where}", ["of", "pairs", "median", "worst"], lines)
        records += made
    return records


def summary(records):
    """(the median error in percent, whether it is as asked, a note on the worst) of a row."""
    if not records:
        return None, None, ""
    median, worst = error_of(records)
    note = f"{len(records)} pairs, worst {worst['error']:+.0%} ({worst['kind']} {worst['seed']} of {worst['ranks']}, " \
           f"{worst['taken']}, {report.size_name(worst['bytes'])})"
    return 100 * median, median <= predict.MEDIAN and abs(worst["error"]) <= predict.WORST, note


def rows(records, _):
    """See rows.py: of all pairs what is asked, then where the errors are; then what --op and --mbit asked for besides."""
    text = "what is taken on networks that nothing was set on, predicted against simulated, {}: median error"
    others = {}
    for record in records:
        operation, mbit = record.get("op", OP), record.get("mbit")
        others.setdefault((operation, tuple(mbit) if mbit else None), []).append(record)
    for key, what, same in groups(others.pop((OP, None), [])):
        asked = predict.ASKED if key == "all" else ""
        median, met, note = summary(same)
        yield row(f"drawn/{key}", text.format(what), asked, "drawn", median, "%", met, note=note)
    for (operation, mbit), same in others.items():
        rates = [f"{mbit[0]:g}-{mbit[1]:g}"] if mbit else []
        median, _, note = summary(same)
        yield row("/".join(["drawn", operation, *rates]), text.format(", ".join(filter(None, (operation, rates_words(mbit))))), "",
                  " ".join(["drawn --op", operation, *(f"--mbit {word}" for word in rates)]), median, "%", note=note)
