"""How fast the packet simulator is, and whether it says what another simulator said of the same networks."""
import json
import statistics
import subprocess

import report
from rows import pick, row

# Scenario: least link-hops per CPU second, most memory in MB (None: no target), and the last flow's completion time in
# ms that htsim gave once, which is kept here and not run again (NDP, one core: LS16 of 16 hosts, 4 leaves, 4 spines at 10 Gbit/s; packets sprayed). Where the name
# ends in -ndp, flows are pulled by their receivers as NDP's are. Elsewhere they have windows; the switches of all-to-all
# trim and put acknowledgements first.
TARGETS = {
    "ls16-permutation-30MB": (8e6, None, 26.33),
    "ls16-all-to-all-1MB": (None, None, 13.26),
    "ls16-all-to-all-4MB": (None, None, 52.93),
    "ls16-incast-10MB": (None, None, 126.3),
    "ls16-permutation-30MB-ndp": (None, None, 26.33),
    "ls16-all-to-all-1MB-ndp": (None, None, 13.26),
    "ls16-all-to-all-4MB-ndp": (None, None, 52.93),
    "ls16-incast-10MB-ndp": (None, None, 126.3),
    "fat-tree-1024-permutation-2MB": (4e6, 150, None),
    "fat-tree-1024-permutation-2MB-ndp": (4.5e6, 150, None),  # ten times the 0.45 M/s that htsim's NDP reached
    "fat-tree-8192-permutation-2MB": (3e6, 1500, None),
}
NS3 = "ls16-permutation-30MB"  # what ns3_bench, too, simulates, by UDP
NEAR = 0.05  # of htsim's completion times, for the same transport
# Asked for on the same machine, in turn with htsim, which this bench does not run.
AGAINST_HTSIM = ("random permutations", "shuffles", "incasts", "flows of mixed sizes")
FASTER = 10
WITHOUT_HTSIM = "htsim was not run: all that is known of it are numbers from elsewhere"


def measure(program, scenario):
    done = subprocess.run([program, scenario], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"bench: {program} {scenario}: {done.stderr.strip() or 'not all flows ended'}")
    return json.loads(done.stdout)


def run(settings):
    program = settings.build / "bench" / "sim_bench"
    if not program.exists():
        print("# sim: left out, sim_bench is not built")
        return []
    peer = settings.build / "bench" / "ns3_bench"
    lines, records = [], []
    for scenario, (_, _, htsim_ms) in TARGETS.items():
        rounds, peer_rounds = [], []
        for _ in range(settings.rounds):
            rounds.append(measure(program, scenario))
            if scenario == NS3 and peer.exists():
                peer_rounds.append(measure(peer, scenario))
        hops = statistics.median(r["link_hops_per_s"] for r in rounds)
        peak = max(r["peak_memory_MB"] for r in rounds)
        last_ms = rounds[0]["last_finish_ms"]
        lines.append([scenario, f"{hops / 1e6:.1f}", f"{peak:.0f}", f"{last_ms:.3f}",
                      f"{last_ms / htsim_ms - 1:+.1%}" if htsim_ms else "-"])
        records.append({"scenario": "sim", "name": scenario, "link_hops_per_s": hops, "peak_memory_MB": peak,
                        "last_finish_ms": last_ms, "htsim_last_finish_ms": htsim_ms, "rounds": rounds})
        if peer_rounds:
            slow = statistics.median(r["link_hops_per_s"] for r in peer_rounds)
            lines.append([f"ns-3, UDP: {scenario}", f"{slow / 1e6:.2f}", f"{max(r['peak_memory_MB'] for r in peer_rounds):.0f}",
                          f"{peer_rounds[0]['last_finish_ms']:.3f}", "-"])
            records.append({"scenario": "sim", "name": scenario, "simulator": "ns-3", "link_hops_per_s": slow,
                            "rounds": peer_rounds})
    report.table("packet simulator, one core",
                 ["scenario", "M link-hops/s", "peak MB", "last flow, ms", "against htsim"], lines)
    return records


def rows(records, _):
    """See rows.py."""
    for scenario, (speed, memory, htsim_ms) in TARGETS.items():
        record = next((r for r in records if r["name"] == scenario and "simulator" not in r), {})
        peer = pick(records, name=scenario, simulator="ns-3")
        hops, peak, last_ms = (record.get(key) for key in ("link_hops_per_s", "peak_memory_MB", "last_finish_ms"))
        yield row(f"sim/{scenario}/speed", f"packet simulator, {scenario}: speed on one core", f"{speed / 1e6:g} M/s" if speed else "",
                  "sim", hops and hops / 1e6, "M link-hops/s", speed and hops and hops >= speed,
                  peer=("ns-3, UDP", peer["link_hops_per_s"] / 1e6) if peer else None)
        yield row(f"sim/{scenario}/memory", f"packet simulator, {scenario}: memory", f"at most {memory} MB" if memory else "", "sim",
                  peak, "MB", memory and peak and peak <= memory)
        if htsim_ms:
            same = scenario.endswith("-ndp")
            yield row(f"sim/{scenario}/completion", f"packet simulator, {scenario}: when the last flow ends",
                      f"within {NEAR:.0%} of htsim" if same else "", "sim", last_ms, "ms simulated",
                      same and last_ms and abs(last_ms / htsim_ms - 1) <= NEAR, peer=("htsim, NDP", htsim_ms),
                      note=f"{last_ms / htsim_ms - 1:+.1%} against htsim" if last_ms else "")
    for pattern in AGAINST_HTSIM:
        yield row(f"sim/htsim/{pattern.replace(' ', '-')}", f"packet simulator beside htsim, NDP, {pattern} that neither was set on, "
                  "32 to 1024 hosts: last flow and median", f"within {NEAR:.0%} of htsim", "sim",
                  note=f"{WITHOUT_HTSIM}, of when the last flow ends in four matrices of 16 hosts")
    yield row("sim/htsim/speed", "packet simulator in turn with htsim, NDP, one core of one machine: speed over htsim's", f"{FASTER}x",
              "sim", unit="x", note=WITHOUT_HTSIM)
