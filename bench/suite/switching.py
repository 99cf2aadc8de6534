"""A switch where it is hard for it: ranks on links that differ, one core, and a third job that there is no room for.

- Ranks on uneven links: every vector passes the slowest link once each way, S/B of that link.
- One core: the real switch with its sockets has a core to itself, its workers have the other one; loopback in a namespace of its own, of
  packets of 1500 bytes, handed over many at a time. What is summed is held against the time of its core that the switch takes, so that
  waiting for workers, who have no more than one core, does not count.
- A greedy job: a switch whose slots suffice for two jobs; a third asks for its own again and again while the two sum."""
import concurrent.futures
import os
import re
import statistics
import time

import places
import report
import switch_perf
from all_reduce import PAYLOAD_PER_MBIT
from rows import pick, row

SIZE = 16 << 20
MBIT, SLOW_MBIT = 1000, 200  # of even ranks and of odd ones
OF_LINK = 0.95  # of S/B of the slow link
UNEVEN_CALLS, UNEVEN_RANKS = 3, (4, 8)

PACKET_ELEMENTS = 344  # floats in a packet of 1500 bytes
CORE_RANKS, CORE_CALLS = 4, 20
CORE_GBIT = {"checksums": 10, "tags": None}  # by what protects datagrams; None: nothing is asked

SHARED_MBIT, SHARED_SIZE, SHARED_RANKS, SHARED_CALLS = 100, 2560 << 10, 4, 10
KEPT = 0.9  # of a job's share
NO_ROOM = re.compile(r"the switch is busy: .*it needs (\d+) bytes of slots")


def out_of_place_ms(found):
    """None for an error, which is said."""
    if found.get("error"):
        print(f"# switching: {found['error']}", flush=True)
        return None
    return found["results"][0]["out_of_place"]["p50_us"] / 1e3


def uneven(program, ranks, settings):
    """A record: the median round."""
    rates = [MBIT if rank % 2 == 0 else SLOW_MBIT for rank in range(ranks)]
    with places.star(rates) as place, places.workspace() as folder, switch_perf.at_the_bridge(program, place, folder) as switch:
        times = [out_of_place_ms(switch_perf.perf(switch, place, SIZE, "-n", UNEVEN_CALLS)) for _ in range(settings.rounds)]
    return {"scenario": "switching", "what": "uneven", "ranks": ranks, "rounds": times,
            "ms": None if None in times else statistics.median(times), "link_ms": 1e3 * SIZE / (SLOW_MBIT * PAYLOAD_PER_MBIT)}


def one_core(program, protection, settings):
    """A record: Gbit/s of contributions summed in a second of the switch's core, and by the clock; medians of rounds."""
    rounds = []
    with places.one_host(CORE_RANKS) as place, places.workspace() as folder:
        places.sh("ip", "-n", place.names[0], "link", "set", "lo", "mtu", "1500")
        cores = sorted(os.sched_getaffinity(0))
        own, others = (["taskset", "-c", str(core)] for core in (cores[0], cores[-1]))
        with switch_perf.Switch(program, [*place.prefix(0), *own], "127.0.0.1", folder if protection == "tags" else None) as switch:
            for _ in range(settings.rounds):
                before = switch.processor_seconds()
                found = switch_perf.perf(switch, place, SIZE, "-n", CORE_CALLS, "--switch-block", PACKET_ELEMENTS, pin=others)
                took = switch.processor_seconds() - before
                ms = out_of_place_ms(found)
                bits = 8 * SIZE * CORE_RANKS
                # Two sides, of each as many calls as are timed, one before and one that is checked.
                rounds.append(ms and {"Gbit_per_core_s": 2 * (CORE_CALLS + 2) * bits / took / 1e9, "Gbit_per_s": bits / ms / 1e6})
    rates = {} if None in rounds else {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}
    return {"scenario": "switching", "what": "core", "ranks": CORE_RANKS, "protection": protection, "cores": len(cores), "rounds": rounds, **rates}


def bytes_of_a_job(program, place, folder):
    """Of slots, as a switch says that has next to none."""
    with switch_perf.at_the_bridge(program, place, folder, "--memory", "16K") as switch:
        said = switch_perf.perf(switch, place, SHARED_SIZE, "-n", 1).get("error", "nothing")
    found = NO_ROOM.search(said)
    if not found:
        raise SystemExit(f"bench: a switch without slots was to say how many bytes a job needs; it said: {said}")
    return int(found[1])


def shared(switch, place, greedy):
    """(the ms of each of two jobs, how often a third was refused meanwhile, what else became of the third)."""
    before, refused, other = switch.jobs_opened(), 0, []

    def job(name):
        return switch_perf.perf(switch, place, SHARED_SIZE, "--switch-job", name, "-n", SHARED_CALLS)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        two = [pool.submit(job, name) for name in ("one", "two")]
        while greedy and not any(running.done() for running in two):
            if switch.jobs_opened() < before + 2:
                time.sleep(0.05)
                continue
            found = switch_perf.perf(switch, place, SHARED_SIZE, "--switch-job", "greedy", "-n", 1)
            if any(running.done() for running in two):
                break  # there may have been room for it
            if NO_ROOM.search(found.get("error", "")):
                refused += 1
            else:
                other.append(found.get("error", "it has summed"))
        times = [out_of_place_ms(running.result()) for running in two]
    return times, refused, other


def greedy_job(program, settings):
    """A record: of each of the two jobs, in turn without a third and with it, medians of rounds."""
    times, refused, other = {False: [], True: []}, 0, []
    with places.star([SHARED_MBIT] * SHARED_RANKS) as place, places.workspace() as folder:
        memory = 2 * bytes_of_a_job(program, place, folder)
        with switch_perf.at_the_bridge(program, place, folder, "--memory", memory) as switch:
            for _ in range(settings.rounds):
                for greedy, found in times.items():
                    of_two, often, otherwise = shared(switch, place, greedy)
                    found.append(of_two)
                    refused += often
                    other += otherwise
    without, beside = ([None if None in of_job else statistics.median(of_job) for of_job in zip(*times[greedy])] for greedy in (False, True))
    return {"scenario": "switching", "what": "greedy", "ranks": SHARED_RANKS, "memory": memory, "without_ms": without, "beside_ms": beside,
            "refused": refused, "otherwise": other, "link_ms": 1e3 * SHARED_SIZE / (SHARED_MBIT * PAYLOAD_PER_MBIT)}


def run(ranks, settings):
    program = settings.build / "talweg"
    if not program.exists():
        print("# switching: left out, talweg is not built")
        return []
    records = []
    if ranks in UNEVEN_RANKS:
        records.append(uneven(program, ranks, settings))
    if ranks == CORE_RANKS:
        records += [one_core(program, protection, settings) for protection in CORE_GBIT]
    if ranks == SHARED_RANKS:
        records.append(greedy_job(program, settings))
    return records


def rows(records, _):
    """See rows.py."""
    for n in UNEVEN_RANKS:
        record = pick(records, what="uneven", ranks=n)
        ms = record and record["ms"]
        part = record["link_ms"] / ms if ms else None
        yield row(f"switching/uneven/{n}", f"by a switch, {n} ranks, {MBIT} and odd ones {SLOW_MBIT} Mbit/s, {report.size_name(SIZE)}",
                  f"{OF_LINK} of S/B of the slow link", f"switching --ranks {n}", ms, met=part and part >= OF_LINK,
                  note=f"{part:.3f} of S/B" if part else "", failed="no sum, or a wrong one" if record and not ms else "")
    for protection, least in CORE_GBIT.items():
        yield core_row(protection, least, pick(records, what="core", protection=protection))
    yield greedy_row(pick(records, what="greedy"))


def core_row(protection, least, record):
    rate = record and record.get("Gbit_per_core_s")
    return row(f"switching/core/{protection}", f"a switch on one core, {CORE_RANKS} ranks on another, loopback, packets of 1.4 KB with {protection}: "
               "contributions summed in a second of its core's time", f"at least {least} Gbit/s" if least else "", f"switching --ranks {CORE_RANKS}",
               rate, "Gbit/s", rate and least and rate >= least, "the ranks have no core of their own" if record and record["cores"] < 2 else "",
               failed="no sum, or a wrong one" if record and not rate else "",
               note=f"{record['Gbit_per_s']:.1f} by the clock, where {CORE_RANKS} ranks share a core" if rate else "")


def greedy_row(record):
    key = ("switching/greedy", f"two jobs of a rank each on {SHARED_RANKS} hosts, {SHARED_MBIT} Mbit/s, and a third that asks for slots that "
           "are not there: the part of its share that the slower one keeps", f"at least {KEPT}, and the third is refused",
           f"switching --ranks {SHARED_RANKS}")
    if record is None:
        return row(*key)
    if None in (*record["without_ms"], *record["beside_ms"]):
        return row(*key, failed="no sum, or a wrong one")
    if record["otherwise"]:
        return row(*key, failed=f"the third was not refused for its slots: {record['otherwise'][0]}")
    # Its share is half of the link, or what it had of it without a third, whichever is more.
    share = 2 * record["link_ms"]
    kept = min(min(share, without) / beside for without, beside in zip(record["without_ms"], record["beside_ms"], strict=True))
    note = f"{' and '.join(map(report.milliseconds, record['beside_ms']))} ms, without the third " \
           f"{' and '.join(map(report.milliseconds, record['without_ms']))}, half of the link {report.milliseconds(share)}; " \
           f"refused {record['refused']} times"
    return row(*key, kept, "", kept >= KEPT, "" if record["refused"] else "the third did not ask", note=note)
