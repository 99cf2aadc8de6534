#!/usr/bin/env python3
"""Measures Talweg beside its peers and says PASS or MISS where there is a target. See README.md."""
import argparse
import os
import pathlib
import signal
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench" / "suite"))

import aggregator  # noqa: E402
import all_reduce  # noqa: E402
import baselines  # noqa: E402
import bursts  # noqa: E402
import contestants  # noqa: E402
import datagrams  # noqa: E402
import density  # noqa: E402
import drawn  # noqa: E402
import fabric  # noqa: E402
import faults  # noqa: E402
import loss  # noqa: E402
import measured  # noqa: E402
import mesh  # noqa: E402
import places  # noqa: E402
import planning  # noqa: E402
import predict  # noqa: E402
import probe  # noqa: E402
import replay  # noqa: E402
import recommender  # noqa: E402
import report  # noqa: E402
import rows  # noqa: E402
import security  # noqa: E402
import seeing  # noqa: E402
import simulator  # noqa: E402
import startup  # noqa: E402
import streaming  # noqa: E402
import switching  # noqa: E402
import traces  # noqa: E402
import training  # noqa: E402
import transport  # noqa: E402
import unseen  # noqa: E402
from scenarios import RANKS, rows_of  # noqa: E402

SIZES = "4K,64K,256K,1M,4M,16M,64M"
NOT_QUICK = ("uneven", "mesh", "fabric", "recommender", "bursts", "density", "switching")
QUICK = {"ranks": {s: [n[0] if len(n) == 1 else 4] for s, n in RANKS.items() if s not in NOT_QUICK},
         "sizes": "4K,1M,16M", "rounds": 1, "seconds": 0.15}


def parse_size(text):
    unit = {"K": 10, "M": 20}.get(text[-1].upper())
    return int(text[:-1]) << unit if unit else int(text)


def parse_rates(text):
    """[least, most]."""
    least, _, most = text.partition("-")
    rates = [float(least), float(most)]
    if not 0 < rates[0] <= rates[1] < float("inf"):
        raise ValueError(text)
    return rates


def parse_arguments(words=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenarios", nargs="*", help=f"any of {', '.join(RANKS)}; default: all")
    parser.add_argument("--quick", action="store_true", help="two minutes: 4 ranks, three sizes, one round")
    parser.add_argument("--ranks", help="such as 2,4; default: as the targets ask")
    parser.add_argument("--sizes", help=f"bytes, K and M understood; default: {SIZES}")
    parser.add_argument("--rounds", type=int, help="turns of every contestant; default: 3")
    parser.add_argument("--seconds", type=float, help="of measuring, per contestant, size, mode and turn; default: 0.6")
    parser.add_argument("--mode", choices=["isolated", "stream"], default="isolated",
                        help="what tables show; both are measured, streams up to 16 MiB")
    parser.add_argument("--only", help="contestants whose label contains one of these, such as talweg,ompi")
    parser.add_argument("--seeds", help="of mesh, fabric, drawn, unseen and probe's asymmetric clusters, such as 2,3; "
                                        "default: 0 to 7, 0 to 2, 1 to 4, 31, and 1 to 20")
    parser.add_argument("--op", help="of drawn: collectives, such as all_gather,broadcast; default: all_reduce")
    parser.add_argument("--mbit", metavar="LEAST-MOST", type=parse_rates,
                        help="of drawn: rates of links in Mbit/s, such as 1000-100000; default: 5-200, or 20 times as much")
    parser.add_argument("--record", action="store_true",
                        help="keep the results in bench/results, and write docs/measured.md and README.md anew")
    parser.add_argument("--build", default=ROOT / "build", type=pathlib.Path, help="the build folder")
    parser.add_argument("--beside", metavar="BUILD", type=pathlib.Path,
                        help="another build of Talweg, measured in turn in host, net and uneven")
    parser.add_argument("--json", type=pathlib.Path, help="folder for the JSON files; default: BUILD/bench")
    settings = parser.parse_args(words)
    for scenario in settings.scenarios:
        if scenario not in RANKS:
            parser.error(f"unknown scenario '{scenario}'; there are {', '.join(RANKS)}")
    plan = QUICK["ranks"] if settings.quick else RANKS
    settings.plan = {s: plan.get(s, RANKS[s]) for s in settings.scenarios or plan}
    if settings.ranks:
        settings.plan = {s: [int(n) for n in settings.ranks.split(",")] for s in settings.plan}
    settings.sizes_given = bool(settings.sizes)
    sizes = settings.sizes or (QUICK["sizes"] if settings.quick else SIZES)
    settings.sizes = [parse_size(size) for size in sizes.split(",")]
    settings.seeds = [int(seed) for seed in settings.seeds.split(",")] if settings.seeds else []
    settings.op = settings.op.split(",") if settings.op else []
    settings.rounds = settings.rounds or (QUICK["rounds"] if settings.quick else 3)
    settings.seconds = settings.seconds or (QUICK["seconds"] if settings.quick else 0.6)
    settings.only = settings.only.split(",") if settings.only else []
    if settings.record and (settings.quick or settings.only):
        parser.error("--record: what --quick and --only leave out belongs to a result")
    return settings


def find_python():
    """An interpreter that has torch: TALWEG_PYTHON, or the environment that `make` sets up."""
    for candidate in (os.environ.get("TALWEG_PYTHON"), ROOT / ".venv/bin/python"):
        if candidate and os.access(candidate, os.X_OK):
            if report.torch_version(candidate) != "absent":
                return str(candidate)
    return None


def run_scenario(scenario, ranks, runner, settings):
    if scenario in ("torch", "collectives", "ddp", "replay", "recommender"):
        if not settings.python:
            print(f"# {scenario}: left out, no Python with torch; make sets one up, or name it in TALWEG_PYTHON")
            return []
        return {"torch": training.run_torch, "collectives": training.run_collectives,
                "ddp": training.run_ddp, "replay": replay.run, "recommender": recommender.run}[scenario](ranks, settings)
    if scenario in ("security", "strangers"):
        return {"security": security.run_security, "strangers": security.run_strangers}[scenario](
            ranks, runner, settings)
    if scenario == "faults":
        return faults.run(ranks, runner, settings)
    if scenario in ("datagrams", "traces"):
        return {"datagrams": datagrams.run, "traces": traces.run}[scenario](settings)
    if scenario == "loss":
        return loss.run(runner, settings)
    if scenario == "bursts":
        return bursts.run(runner, settings)
    if scenario == "baselines":
        return baselines.run(settings)
    if scenario == "sim":
        return simulator.run(settings)
    if scenario == "seeing":
        return seeing.run(ranks, runner, settings)
    if scenario == "fabric":
        return fabric.run(ranks, settings)
    if scenario == "mesh":
        return mesh.run(ranks, runner, settings)
    if scenario == "predict":
        return predict.run(ranks, runner, settings)
    if scenario == "drawn":
        return drawn.run(ranks, settings)
    if scenario == "unseen":
        return unseen.run(ranks, runner, settings)
    if scenario == "probe":
        return probe.run(ranks, settings)
    if scenario == "plan":
        return planning.run(settings)
    if scenario == "aggregator":
        return aggregator.run(ranks, settings)
    if scenario == "transport":
        return transport.run(ranks, runner, settings)
    if scenario == "streaming":
        return streaming.run(ranks, runner, settings)
    if scenario == "density":
        return density.run(ranks, settings)
    if scenario == "switching":
        return switching.run(ranks, settings)
    if scenario == "startup":
        return startup.run(ranks, runner, settings)
    return all_reduce.run(scenario, ranks, runner, settings)


def main():
    settings = parse_arguments()
    if os.geteuid() != 0:
        raise SystemExit("bench: needs root, to make network namespaces and shape their links")
    # So that namespaces are removed however the bench ends.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda got, _: sys.exit(128 + got))
    if settings.beside and not (settings.beside / "bench/talweg_bench").exists():
        raise SystemExit(f"bench: there is no {settings.beside}/bench/talweg_bench; build it there with TALWEG_BENCH=ON")
    places.remove_stale()
    settings.python = find_python()
    runner = contestants.Runner(settings.build / "bench", settings.beside and settings.beside / "bench")
    known = report.facts(settings.python)
    report.print_facts(known)
    if settings.record and known["talweg"].endswith("-dirty"):
        raise SystemExit("bench: --record: commit first, so that results name the commit that was measured")
    for scenario, counts in settings.plan.items():
        records = [record for ranks in counts for record in run_scenario(scenario, ranks, runner, settings)]
        if not records:
            continue
        made = rows_of(scenario, records)
        report.write_json(settings.json or settings.build / "bench", scenario, known, records, made)
        rows.show(made)
        if settings.record:
            measured.record(scenario, made, known)
            measured.write()


if __name__ == "__main__":
    main()
