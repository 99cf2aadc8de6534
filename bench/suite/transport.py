"""Talweg's frames over datagrams (TALWEG_TRANSPORT=udp) and over what each link finds quicker (auto) against the same over TCP, in turn:
all-reduces on even and uneven networks and on a link of its own between every two, and PyTorch's scatter and all-to-all, beside gloo's."""
import statistics
import sys

import all_reduce
import mesh
import places
import report
import training
from all_reduce import PAYLOAD_PER_MBIT
from contestants import TALWEG
from rows import NOT_SLOWER, pick, row, size_word

TRANSPORTS = ("tcp", "udp", "auto")
OVER_TCP = {"udp": "with datagrams", "auto": "with what each link finds quicker"}  # what rows call them
MOST_OVER_TCP = MOST_OVER_QUICKER = 1.05
SIZES = [4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20]
NETWORKS = ("net", "uneven")
MESH_RANKS, MESH_SIZE, MESH_OF_BOUND = 8, 16 << 20, 0.93
WIRE_RANKS, WIRE_SIZE, OF_WIRE = 8, 16 << 20, 0.98
COLLECTIVE_RANKS, COLLECTIVE_SIZE = 8, 1 << 20
COLLECTIVES = ("scatter", "all_to_all")


def setting(transport):
    return {"TALWEG_TRANSPORT": transport}


def in_turn(measure, rounds):
    """({transport: median}, {transport: error}) of `measure(transport)`, which returns (value, error)."""
    values, errors = {transport: [] for transport in TRANSPORTS}, {}
    for _ in range(rounds):
        for transport in TRANSPORTS:
            if transport in errors:
                continue
            value, error = measure(transport)
            if error:
                errors[transport] = error
                print(f"# transport, {transport}: {error}", file=sys.stderr, flush=True)
            else:
                values[transport].append(value)
    return {transport: statistics.median(found) for transport, found in values.items() if found and transport not in errors}, errors


def all_reduces(network, seed, place, sizes, limit_ms, runner, settings):
    """Records, one for each size. limit_ms: of a size, what no schedule beats."""
    records = []
    for size in sizes:
        def once(transport, size=size):
            result = runner.measure(TALWEG, place, size, settings.seconds, setting(transport))
            error = result.get("error") or (f"{result['wrong']} wrong values" if result["wrong"] else "")
            return (None if error else result["isolated"]["median_ms"]), error

        times, errors = in_turn(once, settings.rounds)
        records.append({"scenario": "transport", "network": network, "seed": seed, "ranks": place.ranks, "bytes": size, "ms": times,
                        "errors": errors, "limit_ms": limit_ms(size)})
        print(f"# transport, {network} {seed}, {place.ranks} ranks: {'  '.join(line_of(records[-1]))}", file=sys.stderr, flush=True)
    return records


def line_of(record):
    tcp, udp, auto = (record["ms"].get(transport) for transport in TRANSPORTS)
    limit = record["limit_ms"]
    return [report.size_name(record["bytes"]), *(report.milliseconds(time) for time in (tcp, udp, auto)),
            *(report.ratio(tcp and time and time / tcp) for time in (udp, auto)), f"{limit / udp:.3f}" if limit and udp else "-"]


def collectives(place, settings):
    """{(operation, transport or "gloo"): ms}, and what went wrong."""
    found, errors = {}, {}
    for _ in range(settings.rounds):
        for who in ("gloo", *TRANSPORTS):
            backend = "gloo" if who == "gloo" else "talweg"
            result = training.measure(settings, place, "collectives", backend, str(COLLECTIVE_SIZE), str(settings.seconds),
                                      {} if who == "gloo" else setting(who))
            error = result.get("error") or (f"{result['wrong']} wrong values" if result["wrong"] else "")
            if error:
                errors[who] = error
                print(f"# transport, PyTorch's collectives, {who}: {error}", file=sys.stderr, flush=True)
                continue
            for operation in COLLECTIVES:
                found.setdefault(f"{operation} {who}", []).append(result["median_ms"][operation])
    return {what: statistics.median(times) for what, times in found.items() if what.split()[1] not in errors}, errors


def run(ranks, runner, settings):
    sizes = settings.sizes if settings.sizes_given else SIZES
    records = []
    for network in NETWORKS:
        rates = all_reduce.rates_of(network, ranks)
        with places.star(rates) as place:
            records += all_reduces(network, 0, place, sizes, lambda size, rates=rates: all_reduce.ring_limit_ms(ranks, size, min(rates)),
                                   runner, settings)
    if ranks == MESH_RANKS:
        for seed in settings.seeds or mesh.SEEDS:
            with places.mesh(mesh.draw(seed, ranks)) as place:
                bound = mesh.bound_mbit(place, MESH_SIZE, settings)
                records += all_reduces("mesh", seed, place, [MESH_SIZE], lambda size, bound=bound: 1e3 * size / (bound * PAYLOAD_PER_MBIT),
                                       runner, settings)
    if ranks == COLLECTIVE_RANKS and settings.python:
        with places.star([all_reduce.rates_of("net", ranks)[0]] * ranks) as place:
            times, errors = collectives(place, settings)
        records.append({"scenario": "transport", "network": "PyTorch", "ranks": ranks, "bytes": COLLECTIVE_SIZE, "ms": times,
                        "errors": errors, "limit_ms": None})
    report.table(f"all-reduce, float32 sum, {ranks} ranks, frames over TCP, over datagrams and over the quicker in turn; median ms of isolated calls, "
                 f"{settings.rounds} rounds; what no schedule beats (on equal and uneven links, no ring) over the time with datagrams",
                 ["network", "size", *TRANSPORTS, "udp / tcp", "auto / tcp", "limit / udp"],
                 [[f"{r['network']} {r['seed']}" if r["network"] == "mesh" else r["network"], *line_of(r)] for r in records
                  if r["network"] != "PyTorch"])
    return records


def key_of(key, who):
    return key if who == "udp" else f"{key}/{who}"


def over_tcp(key, what, arguments, same, times):
    """A row of one way's times over those of TCP: the worst of `times`, {words: (tcp, udp)}, where none is missing."""
    failed = next((f"{words}: {error}" for words, error in same.items() if error), "")
    ratios = {words: udp / tcp for words, (tcp, udp) in times.items() if tcp and udp}
    if len(ratios) < len(times):
        ratios = {}
    worst = max(ratios.items(), key=lambda item: item[1], default=None)
    return row(key, what, f"at most {MOST_OVER_TCP}x", arguments, worst and worst[1], "x", worst and worst[1] <= MOST_OVER_TCP,
               note=f"at {worst[0]}" if worst else "", failed=failed)


def rows(records, ranks):
    """See rows.py."""
    for n in ranks:
        arguments = f"transport --ranks {n}"
        for network in NETWORKS:
            same = [pick(records, network=network, ranks=n, bytes=size) or {"bytes": size, "ms": {}, "errors": {}} for size in SIZES]
            for who, words in OVER_TCP.items():
                yield over_tcp(key_of(f"transport/{n}/{network}", who), f"{all_reduce.NETWORKS[network]}, {n} ranks: time {words} over that "
                               "with TCP, the worst size", arguments,
                               {report.size_name(r["bytes"]): r["errors"].get(who, "") for r in same},
                               {report.size_name(r["bytes"]): (r["ms"].get("tcp"), r["ms"].get(who)) for r in same})
            yield over_quicker(f"transport/{n}/{network}/auto/quicker", f"{all_reduce.NETWORKS[network]}, {n} ranks", arguments,
                               {report.size_name(r["bytes"]): (r["ms"], r["errors"]) for r in same}, ", the worst size")
        if n == WIRE_RANKS:
            yield of_limit("transport/wire", f"{all_reduce.NETWORKS['net']}, {n} ranks, {report.size_name(WIRE_SIZE)}, datagrams",
                           f"{OF_WIRE} of the wire", OF_WIRE, f"{arguments} --sizes {size_word(WIRE_SIZE)}",
                           pick(records, network="net", ranks=n, bytes=WIRE_SIZE))
        if n == MESH_RANKS:
            for seed in mesh.SEEDS:
                record = pick(records, network="mesh", seed=seed, ranks=n)
                name = f"a link between every two of {n} ranks, seed {seed}, {report.size_name(MESH_SIZE)}, datagrams"
                yield of_limit(f"transport/mesh/{seed}", name, f"{MESH_OF_BOUND} of the bound", MESH_OF_BOUND, arguments, record)
            drawn = {f"seed {seed}": pick(records, network="mesh", seed=seed, ranks=n) or {"ms": {}, "errors": {}} for seed in mesh.SEEDS}
            yield over_quicker("transport/mesh/auto/quicker", f"a link between every two of {n} ranks, {report.size_name(MESH_SIZE)}", arguments,
                               {seed: (r["ms"], r["errors"]) for seed, r in drawn.items()}, ", the worst seed")
        if n == COLLECTIVE_RANKS:
            yield from collective_rows(pick(records, network="PyTorch", ranks=n) or {"ms": {}, "errors": {}}, n, arguments)


def over_quicker(key, what, arguments, found, worst=""):
    """A row of the time with what each link finds quicker over that of the quicker of the two, the worst of `found`, {words: ({transport: ms},
    {transport: error})}, where none is missing."""
    failed = next((f"{words}: {errors['auto']}" for words, (_, errors) in found.items() if errors.get("auto")), "")
    peers = sorted({who for _, errors in found.values() for who in errors if who != "auto"})
    ratios = {}
    for words, (ms, _) in found.items():
        if "auto" in ms and ("tcp" in ms or "udp" in ms):
            ratios[words] = ms["auto"] / min(ms[who] for who in ("tcp", "udp") if who in ms)
    if len(ratios) < len(found):
        ratios = {}
    most = max(ratios.items(), key=lambda item: item[1], default=None)
    ms = found[most[0]][0] if most else {}
    return row(key, f"{what}: time with what each link finds quicker over the quicker of TCP and datagrams{worst}",
               f"at most {MOST_OVER_QUICKER}x", arguments, most and most[1], "x", most and most[1] <= MOST_OVER_QUICKER,
               f"{' and '.join(peers)} failed" if peers else "",
               note=f"at {most[0]}: {', '.join(f'{who} {report.milliseconds(ms[who])}' for who in TRANSPORTS if who in ms)} ms" if most else "",
               failed=failed)


def of_limit(key, what, target, least, arguments, record):
    ours = record and record["ms"].get("udp")
    part = ours and record["limit_ms"] / ours
    tcp = record and record["ms"].get("tcp")
    return row(key, what, target, arguments, ours, met=part and part >= least, peer=("Talweg over TCP", tcp) if tcp else None,
               note=f"{part:.3f} of it" if part else "", failed=record["errors"].get("udp", "") if record else "")


def collective_rows(record, n, arguments):
    for operation in COLLECTIVES:
        gloo, *ours = (record["ms"].get(f"{operation} {who}") for who in ("gloo", *TRANSPORTS))
        times = dict(zip(TRANSPORTS, ours))
        name = f"PyTorch's {operation}, {n} ranks, 1 Gbit/s, {report.size_name(COLLECTIVE_SIZE)}"
        for who, words in OVER_TCP.items():
            yield over_tcp(key_of(f"transport/{operation}", who), f"{name}: time {words} over that with TCP", arguments,
                           {operation: record["errors"].get(who, "")}, {operation: (times["tcp"], times[who])})
        errors = {transport: error for transport, error in record["errors"].items() if transport != "gloo"}
        yield over_quicker(f"transport/{operation}/auto/quicker", name, arguments,
                           {operation: ({who: time for who, time in times.items() if time}, errors)})
        if operation == "scatter":
            yield training.over_gloo(f"transport/{operation}/gloo", f"{name}, datagrams", "not slower than gloo", 1 / NOT_SLOWER, arguments,
                                     {"gloo_ms": gloo, "talweg_ms": times["udp"]} if record["ms"] else None)
