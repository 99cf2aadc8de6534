"""Verdicts on datagrams beside TCP, on bursts of losses, and on what is predicted of networks that nothing was set on."""

import pathlib
import sys
import unittest

TREE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TREE / "bench" / "suite"))
import bursts  # noqa: E402
import rows  # noqa: E402
import scenarios  # noqa: E402
import transport  # noqa: E402
import unseen  # noqa: E402

M = 1 << 20


def one(scenario, records, key):
    return rows.pick(scenarios.rows_of(scenario, records), key=key)


class Transport(unittest.TestCase):
    def record(self, network, ranks, size, tcp, udp, **more):
        times = {name: time for name, time in (("tcp", tcp), ("udp", udp)) if time}
        return {"network": network, "seed": 0, "ranks": ranks, "bytes": size, "ms": times, "errors": {}, "limit_ms": 10} | more

    def all_sizes(self, tcp=10, udp=9):
        return [self.record("net", 4, size, tcp, udp) for size in transport.SIZES]

    def test_is_judged_by_its_worst_size(self):
        records = self.all_sizes()
        records[2]["ms"]["udp"] = 10.4
        made = one("transport", records, "transport/4/net")
        self.assertEqual((made["verdict"], made["note"]), ("PASS", "at 1 MiB"))
        self.assertAlmostEqual(made["measured"], 1.04)
        records[3]["ms"]["udp"] = 10.6
        made = one("transport", records, "transport/4/net")
        self.assertEqual((made["verdict"], made["note"]), ("MISS", "at 16 MiB"))
        self.assertEqual(one("transport", records, "transport/8/net")["verdict"], "not measured")
        # What was measured of a few sizes says nothing of the worst.
        self.assertEqual(one("transport", self.all_sizes()[1:], "transport/4/net")["verdict"], "not measured")

    def test_a_size_that_failed_is_a_miss_however_quick_the_others_are(self):
        records = self.all_sizes()
        records[3] |= {"ms": {"tcp": 100}, "errors": {"udp": "no result in 150 s"}}
        made = one("transport", records, "transport/4/net")
        self.assertEqual((made["verdict"], made["note"]), ("MISS", "16 MiB: no result in 150 s"))
        # TCP's failure shows nothing about datagrams.
        records[3] |= {"ms": {"udp": 5}, "errors": {"tcp": "no result"}}
        self.assertEqual(one("transport", records, "transport/4/net")["verdict"], "not measured")

    def test_the_choice_is_judged_by_the_quicker_of_both(self):
        def records(*autos):
            times = zip(transport.SIZES, (10, 10, 10, 12, 12), (12, 12, 12, 10, 10), autos)
            return [self.record("net", 4, size, tcp, udp) | {"ms": {"tcp": tcp, "udp": udp, "auto": auto}} for size, tcp, udp, auto in times]

        key = "transport/4/net/auto/quicker"
        made = one("transport", records(10, 10, 10, 10, 10.4), key)
        self.assertEqual((made["verdict"], made["note"]), ("PASS", "at 64 MiB: tcp 12.0, udp 10.0, auto 10.4 ms"))
        slow = records(10, 10, 10, 11.9, 10)  # no slower than TCP
        self.assertEqual(one("transport", slow, key)["verdict"], "MISS")
        self.assertEqual(one("transport", slow, "transport/4/net/auto")["verdict"], "PASS")
        self.assertEqual(one("transport", slow[1:], key)["verdict"], "not measured")
        slow = records(10, 10, 10, 10, 10)
        slow[4] |= {"ms": {"tcp": 12, "auto": 10}, "errors": {"udp": "no result"}}
        self.assertEqual(one("transport", slow, key)["verdict"], "no verdict: udp failed")
        slow[4] |= {"ms": {"tcp": 12, "udp": 10}, "errors": {"auto": "no result"}}
        self.assertEqual(one("transport", slow, key)["verdict"], "MISS")

    def test_part_of_the_bound_is_that_of_datagrams(self):
        records = [self.record("mesh", 8, 16 * M, 10.1, 10.5, seed=3)]
        self.assertEqual(one("transport", records, "transport/mesh/3")["verdict"], "PASS")
        self.assertEqual(one("transport", records, "transport/mesh/2")["verdict"], "not measured")
        records[0]["ms"]["udp"] = 11
        self.assertEqual(one("transport", records, "transport/mesh/3")["verdict"], "MISS")
        records = [self.record("net", 8, 16 * M, 10, 10.3)]
        self.assertEqual(one("transport", records, "transport/wire")["verdict"], "MISS")

    def test_scatter_is_against_gloo_and_tcp(self):
        times = {"scatter gloo": 8, "scatter tcp": 8, "scatter udp": 8.3, "all_to_all gloo": 9, "all_to_all tcp": 9, "all_to_all udp": 7}
        record = {"network": "PyTorch", "ranks": 8, "bytes": M, "ms": times, "errors": {}, "limit_ms": None}
        self.assertEqual(one("transport", [record], "transport/scatter")["verdict"], "PASS")
        self.assertEqual(one("transport", [record], "transport/scatter/gloo")["verdict"], "MISS")
        self.assertEqual(one("transport", [record], "transport/all_to_all")["verdict"], "PASS")


class Bursts(unittest.TestCase):
    def records(self, bounded, reliable, without=10, late_ms=0.2, unread=0):
        """Records of 1 MiB; the times of calls, and of the bounded ones without losses."""
        relay = {"late_ms": late_ms, "unread": unread}
        calls = [(bursts.BOUNDED, True, bounded), ("talweg over tcp", True, reliable), (bursts.BOUNDED, False, without)]
        return [bursts.record_of(M, name, lossy, [{"calls_ms": [time] * 30, "wrong": 0}] * 3 if time else [{"error": "no result"}])
                | {"relay": relay} for name, lossy, time in calls]

    def verdicts(self, *arguments, **more):
        return [one("bursts", self.records(*arguments, **more), f"bursts/{M}/{which}")["verdict"] for which in ("reliable", "lossless")]

    def test_are_judged_by_the_slow_calls_of_all_rounds(self):
        self.assertEqual(self.verdicts(11, 22), ["PASS", "PASS"])
        self.assertEqual(self.verdicts(11.5, 22), ["MISS", "MISS"])
        record = bursts.record_of(M, bursts.BOUNDED, True, [{"calls_ms": list(range(k, k + 50)), "wrong": 0} for k in (1, 51)])
        self.assertEqual((record["calls"], record["p50_ms"], record["p99_ms"]), (100, 50.5, 99))
        record = bursts.record_of(M, bursts.BOUNDED, True, [{"calls_ms": [10] * 29 + [60], "wrong": 0}])
        self.assertEqual(record["p99_ms"], 60, "of few calls it is the slowest")
        self.assertEqual(one("bursts", self.records(11, 22), f"bursts/{4 * M}/reliable")["verdict"], "not measured")

    def test_show_nothing_where_a_peer_failed_or_the_relay_was_late(self):
        self.assertEqual(self.verdicts(11, 0), ["no verdict: peer talweg over tcp failed", "PASS"])
        self.assertEqual(self.verdicts(0, 22), ["MISS", "MISS"])
        self.assertEqual(self.verdicts(11, 22, late_ms=1.5), ["no verdict: the relay was 1.5 ms late"] * 2)
        self.assertEqual(self.verdicts(11, 22, unread=3), ["no verdict: the relay did not read 3 packets in time"] * 2)
        self.assertEqual(self.verdicts(11.5, 22, late_ms=1.5), ["MISS", "MISS"])


class Unseen(unittest.TestCase):
    def records(self, lab_ms=10.0, slow_ms=10.0):
        """Of every network and size; above 1 MiB nothing is measured. One is off the others."""
        made = []
        for kind in unseen.KINDS:
            for workers in unseen.WORKERS:
                for size in unseen.SIZES:
                    made.append({"scenario": "unseen", "kind": kind, "seed": unseen.SEED, "ranks": workers, "bytes": size,
                                 "planner": "ring", "predicted_ms": 10.0, "simulated_ms": None, "measured_ms": None})
                    if size <= M:
                        last = (kind, workers, size) == (unseen.KINDS[-1], unseen.WORKERS[-1], M)
                        made[-1] |= {"simulated_ms": 10.0, "measured_ms": slow_ms if last else lab_ms}
                        made[-1] |= unseen.predict.errors_of(made[-1])
        return made

    def test_medians_and_the_worst_are_held_to_what_is_asked(self):
        self.assertEqual(one("unseen", self.records(), "unseen/model")["verdict"], "PASS")
        self.assertEqual(one("unseen", self.records(lab_ms=11), "unseen/model")["verdict"], "MISS")
        made = one("unseen", self.records(slow_ms=14), "unseen/model")
        self.assertEqual(made["verdict"], "MISS")
        self.assertIn("24 of 48 pairs (12 of 64 KiB, 12 of 1 MiB;", made["note"])
        self.assertIn("worst -29% (mesh 31 of 32, ring, 1 MiB)", made["note"])
        self.assertEqual(one("unseen", self.records(slow_ms=14), "unseen/model-simulator")["verdict"], "PASS")

    def test_a_part_of_a_run_fills_no_row_and_one_without_a_time_fails(self):
        for part in (self.records()[:-1], [r for r in self.records() if r["ranks"] == 4], [r for r in self.records() if r["bytes"] < M]):
            self.assertEqual(one("unseen", part, "unseen/model")["verdict"], "not measured")
        records = self.records()
        for key in ("error", "simulation_error", "error_of_simulation"):
            del records[0][key]
        made = one("unseen", records, "unseen/simulator")
        self.assertEqual((made["verdict"], made["note"]), ("MISS", "1 gave no time"))


if __name__ == "__main__":
    unittest.main()
