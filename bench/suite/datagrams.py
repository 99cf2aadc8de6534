"""What datagrams and flows of them carry over loopback, one core at each end."""
import statistics

import report
from programs import built, lines_of
from rows import pick, row

# (what, protection): Gbit/s that a core must carry with offload and without; None: nothing is asked.
DATAGRAMS = {
    ("datagrams", "checksum"): (20, None),
    ("datagrams", "authenticated"): (8, None),
    ("flow", "checksum"): (20, 2.5),
    ("flow", "authenticated"): (8, None),
}


def run(settings):
    program = built(settings, "datagrams", "datagram_bench")
    if program is None:
        return []
    rounds = [lines_of(program, "--json", str(settings.seconds)) for _ in range(settings.rounds)]
    records, lines = [], []
    for parts in zip(*rounds, strict=True):
        what, protection, offload = (parts[0][key] for key in ("what", "protection", "offload"))
        wall, core = (statistics.median(part[key] for part in parts) for key in ("Gbit_per_s", "Gbit_per_s_per_core"))
        records.append({"scenario": "datagrams", "what": what, "protection": protection, "offload": offload,
                        "Gbit_per_s": wall, "Gbit_per_s_per_core": core, "rounds": parts})
        lines.append([what, protection, "offload" if offload else "plain", f"{wall:.2f}", f"{core:.2f}"])
    report.table("datagrams over loopback, payloads of 1400 bytes; Gbit/s", ["what", "protection", "with", "measured", "per core"],
                 lines)  # fmt: skip
    return records


def rows(records, _):
    """See rows.py."""
    for (what, protection), asked in DATAGRAMS.items():
        for offload, least in zip((True, False), asked):
            if least is None:
                continue
            found = pick(records, what=what, protection=protection, offload=offload) or {}
            rate = found.get("Gbit_per_s")
            name = "a flow of datagrams" if what == "flow" else "datagrams"
            ways = "with offload" if offload else "without offload"
            yield row(f"datagrams/{what}/{protection}/{'offload' if offload else 'plain'}",
                      f"{name} over loopback, {protection}, {ways}, one core at each end", f"{least} Gbit/s", "datagrams", rate,
                      "Gbit/s", rate and rate >= least,
                      note=f"{found['Gbit_per_s_per_core']:.1f} for a whole core of the busier end" if rate else "")  # fmt: skip
