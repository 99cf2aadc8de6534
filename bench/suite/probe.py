"""What `talweg probe` finds out about networks that are known, and how long that takes.

Each network is built by `talweg lab`; the prober is not told its rates. For pairs of hosts the rate of one flow alone
is compared, by the file that it wrote against the file that the lab was built from; for uplinks their rates. Clusters
whose hosts send slower than they receive (`asymmetric`) are drawn, and measured once each: there nothing is shared, and no pair
has a limit of its own.
"""
import json
import os
import pathlib
import random
import re
import subprocess
import tempfile

import mesh as tunnels
import report
from rows import pick, row

SECONDS = 10  # for 8 hosts
ERROR = 0.10
LATENCY = "3us"
PAIR_RATES = (100, 200, 400, 700)  # Mbit/s
SEED = 1
ASYMMETRIC_SEEDS = range(1, 21)
ASYMMETRIC_HOSTS = 8  # or more
ASYMMETRIC_ERROR = 0.05
FAST_RATES = (200, 400, 500, 800, 1000)  # Mbit/s, of a host's faster way


def node(name, kind="worker"):
    return {"name": name, "kind": kind}


def link(a, b, mbit):
    return {"between": [a, b], "capacity": f"{mbit}Mbit/s", "latency": LATENCY}


def star(rates):
    hosts = [f"h{i}" for i in range(len(rates))]
    return {"nodes": [*map(node, hosts), node("sw", "switch")],
            "links": [link(host, "sw", rate) for host, rate in zip(hosts, rates)]}


def mesh(ranks):
    draw = random.Random(SEED)
    hosts = [f"h{i}" for i in range(ranks)]
    links = [{"from": a, "to": b, "capacity": f"{draw.choice(PAIR_RATES)}Mbit/s", "latency": LATENCY}
             for a in hosts for b in hosts if a != b]
    return {"nodes": [*map(node, hosts)], "links": links}


def racks(ranks, mbit, uplink):
    """Two racks; hosts of one have numbers in a row."""
    hosts = [f"h{i}" for i in range(ranks)]
    leaf = ["leaf0" if i < ranks // 2 else "leaf1" for i in range(ranks)]
    nodes = [*map(node, hosts), node("leaf0", "switch"), node("leaf1", "switch"), node("spine", "switch")]
    return {"nodes": nodes, "links": [link(h, l, mbit) for h, l in zip(hosts, leaf)]
            + [link(l, "spine", uplink) for l in ("leaf0", "leaf1")]}


def tunnel_mesh(ranks):
    """The mesh of the scenario `mesh`: a link of its own between every two."""
    hosts = [f"h{i}" for i in range(ranks)]
    return {"nodes": [*map(node, hosts)],
            "links": [{"from": hosts[a], "to": hosts[b], "capacity": f"{rate}Mbit/s", "latency": LATENCY}
                      for (a, b), rate in tunnels.draw(0, ranks).items()]}


def asymmetric_star(ranks, seed):
    """One way of each host is up to eight times as fast as the other; mostly it is the way in."""
    draw = random.Random(seed)
    hosts = [f"h{i}" for i in range(ranks)]
    cluster = {"nodes": [*map(node, hosts), node("sw", "switch")], "links": []}
    for host in hosts:
        down = draw.choice(FAST_RATES)
        up = down / draw.choice((1, 2, 4, 8))
        if draw.randrange(8) == 0:
            up, down = down, up
        cluster["links"] += [{"from": a, "to": b, "capacity": f"{rate:g}Mbit/s", "latency": LATENCY}
                             for a, b, rate in ((host, "sw", up), ("sw", host, down))]
    return cluster


def networks(ranks):
    return {
        "tunnels 5-200M": tunnel_mesh(ranks),
        "even 1G": star([1000] * ranks),
        "uneven 1G/200M": star([1000 if i % 2 == 0 else 200 for i in range(ranks)]),
        "pairs drawn": mesh(ranks),
        "two racks 500M": racks(ranks, 500, 500 * ranks // 8),
    }


def bits(text):
    """"200 Mbit/s" and "200Mbit/s" in bit/s."""
    number, factor = re.fullmatch(r"([0-9.]+) ?([kMG]?)bit/s", text).groups()
    return float(number) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[factor]


def edges(cluster):
    for entry in cluster["links"]:
        rate = bits(entry["capacity"])
        if "between" in entry:
            a, b = entry["between"]
            yield a, b, rate
            yield b, a, rate
        else:
            yield entry["from"], entry["to"], rate


def alone(cluster):
    """The rate of one flow between every two workers: the widest path, as these networks have one each."""
    workers = [n["name"] for n in cluster["nodes"] if n.get("kind", "worker") == "worker"]
    inner = {n["name"] for n in cluster["nodes"]} - set(workers)
    onward = {}
    for a, b, rate in edges(cluster):
        onward.setdefault(a, []).append((b, rate))
    rates = {}
    for start in workers:
        widest = {start: float("inf")}
        open_nodes = [start]
        while open_nodes:
            at = open_nodes.pop()
            if at != start and at not in inner:
                continue  # hosts do not forward
            for to, rate in onward.get(at, []):
                width = min(widest[at], rate)
                if width > widest.get(to, 0):
                    widest[to] = width
                    open_nodes.append(to)
        rates.update({(start, end): widest[end] for end in workers if end != start})
    return rates


def measure(program, network):
    with tempfile.TemporaryDirectory(prefix="talweg-probe") as folder:
        path = pathlib.Path(folder) / "network.yaml"
        path.write_text(json.dumps(network))
        done = subprocess.run([program, "lab", "run", "--no-tag-output", path, "--timeout", "120s", "--", program, "probe",
                               "--json"], capture_output=True, text=True, env={**os.environ, "TALWEG_TIMEOUT": "60s"})
    if done.returncode != 0:
        return None, done.stderr.strip().splitlines()[-1:]
    return json.loads(done.stdout), None


def worst_error(truth, found):
    return max((abs(found[pair] / rate - 1), pair) for pair, rate in truth.items())


def not_there(found):
    """What was found in a star of plain ports, where nothing is shared and no pair is slower than its ports."""
    ports = [f"{host['name']}: up and down" for host in found["hosts"] if host["up_and_down"]]
    pairs = [f"{pair['from']} to {pair['to']}" for pair in found["pairs"]]
    return ports + pairs + [", ".join(uplink["hosts"]) for uplink in found["uplinks"]]


def run_asymmetric(ranks, settings):
    lines, records = [], []
    for seed in settings.seeds or ASYMMETRIC_SEEDS:
        network = asymmetric_star(ranks, seed)
        record = {"scenario": "probe", "network": "asymmetric", "ranks": ranks, "seed": seed}
        found, failed = measure(settings.build / "talweg", network)
        if found is None:
            print(f"# probe: asymmetric, seed {seed}: {failed}")
            records.append(record | {"failed": " ".join(failed)})
            continue
        error, pair = worst_error(alone(network), alone(found["cluster"]))
        wrong = not_there(found)
        lines.append([str(seed), f"{found['seconds']:.1f}", str(found["measurements"]), f"{found['traffic_bytes'] / 1e9:.2f}",
                      f"{error:.1%}", f"{pair[0]} to {pair[1]}", "; ".join(wrong) or "-", str(found["unexplained_flows"]),
                      f"{found['confidence']:.1%}"])
        records.append(record | {"worst_pair_error": error, "not_there": wrong, "seconds": found["seconds"],
                                 "traffic_bytes": found["traffic_bytes"], "true_network": network, "found": found})
    report.table(f"what the prober finds where ways differ, {ranks} hosts",
                 ["seed", "s", "trials", "GB", "worst error", "of", "found, not there", "unexplained", "stated +-"], lines)
    return records


def run(ranks, settings):
    program = settings.build / "talweg"
    if not program.exists():
        print("# probe: left out, talweg is not built")
        return []
    lines, records = [], []
    for name, network in networks(ranks).items():
        for _ in range(settings.rounds):
            found, failed = measure(program, network)
            if found is None:
                print(f"# probe: {name}: {failed}")
                records.append({"scenario": "probe", "network": name, "ranks": ranks, "failed": " ".join(failed)})
                continue
            error, pair = worst_error(alone(network), alone(found["cluster"]))
            uplinks = [round(way["bit_per_s"] / 1e6) for u in found["uplinks"] for way in (u["leaving"], u["entering"])
                       if way]
            true_uplink = next((bits(entry["capacity"]) / 1e6 for entry in network["links"]
                                if "spine" in entry.get("between", [])), None)
            lines.append([name, f"{found['seconds']:.1f}", str(found["measurements"]), f"{found['traffic_bytes'] / 1e9:.2f}",
                         f"{error:.1%}", f"{pair[0]} to {pair[1]}", str(len(found["pairs"])),
                         ",".join(map(str, uplinks)) or "-", f"{true_uplink:.0f}" if true_uplink else "-",
                         str(found["unexplained_flows"]), f"{found['confidence']:.1%}"])
            records.append({"scenario": "probe", "network": name, "ranks": ranks, "worst_pair_error": error,
                            "uplink_errors": [u / true_uplink - 1 for u in uplinks] if true_uplink else [],
                            "uplinks_right": bool(uplinks) == (true_uplink is not None), "seconds": found["seconds"],
                            "traffic_bytes": found["traffic_bytes"], "true_network": network, "found": found})
    report.table(f"what the prober finds, {ranks} hosts",
                 ["network", "s", "trials", "GB", "worst error", "of", "pairs apart", "uplinks, Mbit/s", "true",
                  "unexplained", "stated +-"], lines)
    return records + (run_asymmetric(ranks, settings) if ranks >= ASYMMETRIC_HOSTS else [])


def asymmetric_rows(records, ranks):
    """The slowest of the drawn clusters, the largest error of any, and how many things were found that are not there."""
    same = [record for record in records if (record["network"], record["ranks"]) == ("asymmetric", ranks)]
    failed = next((record["failed"] for record in same if "failed" in record), "")
    known = same if not failed else []
    seconds = max((record["seconds"] for record in known), default=None)
    error = max((100 * record["worst_pair_error"] for record in known), default=None)
    wrong = sum(len(record["not_there"]) for record in known) if known else None
    few = len(known) < len(ASYMMETRIC_SEEDS)
    doubt = f"{len(known)} of {len(ASYMMETRIC_SEEDS)} clusters" if known and few else ""
    key, what = f"probe/{ranks}/asymmetric", f"talweg probe, {ranks} hosts, {len(ASYMMETRIC_SEEDS)} asymmetric clusters drawn"
    common = {"arguments": f"probe --ranks {ranks}", "doubt": doubt, "failed": failed}
    yield row(f"{key}/groups", f"{what}: groups and limits that are not there", "none", measured=wrong, unit="found",
              met=wrong == 0, **common)
    yield row(f"{key}/error", f"{what}: largest error of a rate", f"under {100 * ASYMMETRIC_ERROR:.0f} %", measured=error, unit="%",
              met=error is not None and error < 100 * ASYMMETRIC_ERROR, **common)
    yield row(f"{key}/time", f"{what}: time of the slowest", f"under {SECONDS} s", measured=seconds, unit="s",
              met=seconds is not None and seconds < SECONDS, **common)


def rows(records, ranks):
    """See rows.py: the slowest of the rounds, and the largest error of any."""
    for n in ranks:
        if n >= ASYMMETRIC_HOSTS:
            yield from asymmetric_rows(records, n)
        for name in networks(n):
            key, what = f"probe/{n}/{name.split()[0].replace('/', '-')}", f"talweg probe, {n} hosts, {name}"
            same = [record for record in records if (record["network"], record["ranks"]) == (name, n)]
            failed = next((record["failed"] for record in same if "failed" in record), "")
            seconds = error = None
            if same and not failed:
                seconds = max(record["seconds"] for record in same)
                error = max(abs(e) for record in same for e in (record["worst_pair_error"], *record["uplink_errors"]))
            yield row(f"{key}/time", f"{what}: time", f"under {SECONDS} s", f"probe --ranks {n}", seconds, "s",
                      seconds and seconds < SECONDS, failed=failed,
                      note=f"{same[0]['traffic_bytes'] / 1e9:.2f} GB sent" if seconds else "")
            yield row(f"{key}/error", f"{what}: largest error of a rate", f"under {100 * ERROR:.0f} %", f"probe --ranks {n}",
                      None if error is None else 100 * error, "%", error is not None and error < ERROR and all(r["uplinks_right"] for r in same),
                      failed=failed)
