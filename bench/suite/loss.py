"""Sums of which a part may be lost, where links lose packets in bursts: how much the slowest calls lose by it. Simulated."""
import csv
import statistics
import subprocess

import report
from rows import pick, row

RANKS, MBIT = 8, 1000
SIZES = (256 << 10, 1 << 20, 4 << 20)
CALLS = 100
SEEDS = (21, 22, 23)
P = 0.01
# Of each link 0.5 %, so 1 % of a path's packets: eight full ones at a time.
BURSTS = "0.0006,100us"
RELIABLE = [(algorithm, transport) for transport in ("dctcp", "ndp") for algorithm in ("ring", "halving_doubling", "sharded_star", "packed")]
BETTER, NEAR = 2, 1.1


def simulated(settings, algorithm, transport, size, bursts, seed):
    """Milliseconds of CALLS calls: their median and 99th percentile."""
    command = [settings.build / "talweg", "simulate", "--topology", f"star:hosts={RANKS},rate={MBIT}M", "--algo", algorithm,
               "-b", str(size), "-n", str(CALLS), "-w", "5", "--transport", transport, "--seed", str(seed), "--csv", "-"]
    if algorithm == "bounded":
        command += ["--may-lose", str(P)]
    if bursts:
        command += ["--burst-loss", BURSTS]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"bench: {' '.join(map(str, command))}: {done.stderr.strip()}")
    line = next(csv.DictReader(done.stdout.splitlines()))
    return {"p50_ms": float(line["p50_us"]) / 1e3, "p99_ms": float(line["p99_us"]) / 1e3}


def run(settings):
    records, lines = [], []
    for size in SIZES:
        for algorithm, transport in [("bounded", "dctcp"), *RELIABLE]:
            for bursts in (False, True):
                rounds = [simulated(settings, algorithm, transport, size, bursts, seed) for seed in SEEDS]
                record = {"scenario": "loss", "ranks": RANKS, "bytes": size, "algorithm": algorithm, "transport": transport,
                          "bursts": bursts, "rounds": rounds} | {
                              which: statistics.median(r[which] for r in rounds) for which in ("p50_ms", "p99_ms")}
                records.append(record)
                lines.append([report.size_name(size), f"{algorithm} {'' if algorithm == 'bounded' else transport}".strip(),
                              "bursts" if bursts else "none", report.milliseconds(record["p50_ms"]), report.milliseconds(record["p99_ms"])])
    report.table(f"{RANKS} ranks of {MBIT} Mbit/s, simulated, 1 % of a path's packets lost in bursts or none; ms, medians of {len(SEEDS)} seeds",
                 ["size", "sent by", "lost", "p50", "p99"], lines)
    return records


def rows(records, _):
    """See rows.py."""
    for size in SIZES:
        what = f"{RANKS} ranks, simulated, 1 % lost in bursts, {report.size_name(size)}: slowest of 100 calls"
        key = f"loss/{size}"
        ours = pick(records, bytes=size, algorithm="bounded", bursts=True)
        without = pick(records, bytes=size, algorithm="bounded", bursts=False)
        peers = {f"{r['algorithm']}, {r['transport']}": r["p99_ms"]
                 for r in records if r["bytes"] == size and r["bursts"] and r["algorithm"] != "bounded"}
        quiet = {r["algorithm"]: r["p99_ms"] for r in records if r["bytes"] == size and not r["bursts"]}
        best = min(peers.items(), key=lambda item: item[1], default=None)
        ratio = best[1] / ours["p99_ms"] if ours and best else None
        yield row(f"{key}/reliable", f"{what}, reliable over bounded loss ({P:.0%})", f"{BETTER}x", "loss", ratio, "x",
                  ratio and ratio >= BETTER, peer=None,
                  note=f"{ours['p99_ms']:.1f} ms; best {best[0]} {best[1]:.1f} ms" if ratio else "")
        same = ours["p99_ms"] / without["p99_ms"] if ours and without else None
        yield row(f"{key}/lossless", f"{what}, bounded loss ({P:.0%}) over the same without losses", f"at most {NEAR}x", "loss", same, "x",
                  same and same <= NEAR,
                  note=f"{without['p99_ms']:.1f} ms without; the quickest without losses takes {min(quiet.values()):.1f} ms" if same else "")
    yield row("loss/lab", f"{RANKS} ranks in the lab, 1 % lost in bursts: slowest of 100 calls, reliable over bounded loss", f"{BETTER}x", "loss",
              unit="x", note="only simulated so far")
