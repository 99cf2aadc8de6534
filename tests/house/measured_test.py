"""The table of targets: the committed pages are what its generator makes, every command in it is one that the bench
understands, and a verdict is PASS only where everything that is asked was measured and reached."""

import contextlib
import fnmatch
import importlib.util
import io
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

TREE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TREE / "bench" / "suite"))
specification = importlib.util.spec_from_file_location("bench", TREE / "bench" / "bench.py")
bench = importlib.util.module_from_spec(specification)
specification.loader.exec_module(bench)
import aggregator  # noqa: E402
import contestants  # noqa: E402
import density  # noqa: E402
import fabric  # noqa: E402
import learned  # noqa: E402
import measured  # noqa: E402
import places  # noqa: E402
import predict  # noqa: E402
import replay  # noqa: E402
import report  # noqa: E402
import rows  # noqa: E402
import scenarios  # noqa: E402

M = 1 << 20
FACTS = {"talweg": "abc1234", "date": "2026-01-02", "cores": 2}


def one(scenario, records, key):
    return rows.pick(scenarios.rows_of(scenario, records), key=key)


def calls(ranks, size, **times):
    """Records of all-reduces: library_algorithm=ms, or the error as a text."""
    records = []
    for name, time in times.items():
        library, algorithm = name.split("_", 1)
        failed = isinstance(time, str)
        records.append({"ranks": ranks, "bytes": size, "contestant": library, "algorithm": algorithm, "error": time if failed else "",
                        "isolated_median_ms": None if failed else time, "stream_median_ms": None})
    return records


class CommittedPages(unittest.TestCase):
    def setUp(self):
        self.results, self.reasons = measured.load()

    def test_are_what_the_generator_makes(self):
        hint = "run python3 bench/suite/measured.py"
        self.assertEqual(measured.PAGE.read_text(), measured.page(self.results, self.reasons), hint)
        readme = measured.README.read_text()
        self.assertEqual(readme, measured.readme(readme, self.results, self.reasons), hint)
        self.assertIn("(measured.md)", (TREE / "docs" / "README.md").read_text())

    def test_have_the_picture_of_what_is_kept(self):
        kept = json.loads(learned.KEPT.read_text(encoding="utf-8"))
        self.assertEqual(learned.PICTURE.read_text(encoding="utf-8"), learned.drawn(kept))

    def test_have_commands_that_the_bench_understands(self):
        commands = [row["command"] for table in measured.all_tables(self.results).values() for row in table]
        commands += re.findall(r"`(make bench [^`]+)`", measured.README.read_text())
        understood = 0
        for command in set(commands):
            if not command.startswith("make bench"):
                continue
            with self.subTest(command):
                _, _, assignment = shlex.split(command)
                name, arguments = assignment.split("=", 1)
                self.assertEqual(name, "ARGS")
                self.assertEqual(len(bench.parse_arguments(arguments.split()).plan), 1)
                understood += 1
        self.assertGreater(understood, 50)

    def test_name_every_scenario_for_readers_of_the_bench(self):
        text = (TREE / "bench" / "README.md").read_text()
        for name in scenarios.SCENARIOS:
            self.assertRegex(text, rf"(?m)^\|.*`{name}`.*\|")

    def test_have_reasons_for_rows_that_exist(self):
        keys = [row["key"] for table in measured.all_tables(self.results).values() for row in table]
        for pattern in self.reasons:
            self.assertTrue(any(fnmatch.fnmatchcase(key, pattern) for key in keys), pattern)


class Targets(unittest.TestCase):
    def test_have_keys_of_their_own(self):
        keys = [row["key"] for name in scenarios.SCENARIOS for row in scenarios.rows_of(name, [])]
        self.assertEqual(sorted(keys), sorted(set(keys)))

    def test_without_a_measurement_are_listed(self):
        page = measured.page({}, {})
        for name in scenarios.SCENARIOS:
            for row in scenarios.rows_of(name, []):
                self.assertEqual(row["verdict"], rows.NOT_MEASURED)
                self.assertEqual(row["target"] != "", f"| {row['what']} |" in page, row["key"])

    def test_that_were_changed_are_not_met_by_what_was_measured_before(self):
        fine = one("host", calls(2, 4096, talweg_auto=1.0, ompi_ring=2.0), "host/2/4K") | {"run": "then"}
        table = measured.table_of("host", {"host": {"runs": {"then": FACTS}, "rows": [fine]}})
        self.assertEqual(rows.pick(table, key="host/2/4K")["verdict"], rows.PASS)
        older = fine | {"target": "twice as quick"}
        table = measured.table_of("host", {"host": {"runs": {"then": FACTS}, "rows": [older]}})
        self.assertEqual(rows.pick(table, key="host/2/4K")["verdict"], rows.NOT_MEASURED)


class Verdicts(unittest.TestCase):
    def verdict(self, *arguments):
        return one(*arguments)["verdict"]

    def test_of_a_row(self):
        def verdict(measured_value, **more):
            return rows.row("k", "w", more.pop("target", "t"), "net", measured_value, **more)["verdict"]

        self.assertEqual(verdict(1.0, met=True), rows.PASS)
        self.assertEqual(verdict(1.0, met=False), rows.MISS)
        self.assertEqual(verdict(1.0), rows.MISS)
        self.assertEqual(verdict(None), rows.NOT_MEASURED)
        self.assertEqual(verdict(1.0, target=""), rows.NOT_ASKED)
        self.assertEqual(verdict(1.0, met=True, doubt="why"), "no verdict: why")
        self.assertEqual(verdict(1.0, met=False, doubt="why"), rows.MISS)  # whatever else might have been
        self.assertEqual(verdict(1.0, met=True, failed="it broke"), rows.MISS)

    def test_a_peer_that_failed_is_not_beaten(self):
        good = {"talweg_auto": 10.0, "gloo_ring": 11.0}
        self.assertEqual(self.verdict("net", calls(4, M, **good), "net/4/1M"), rows.PASS)
        self.assertEqual(self.verdict("net", calls(4, M, **good, ompi_ring="3 wrong values"), "net/4/1M"),
                         "no verdict: peer ompi ring failed")
        self.assertEqual(self.verdict("net", calls(4, M, **good | {"gloo_ring": 9.0}, ompi_ring="died"), "net/4/1M"), rows.MISS)
        self.assertEqual(self.verdict("net", calls(4, M, talweg_auto=10.0), "net/4/1M"), "no verdict: no peer was measured")
        self.assertEqual(self.verdict("net", calls(4, M, talweg_auto="2 wrong values", gloo_ring=9.0), "net/4/1M"), rows.MISS)

    def test_only_open_mpi_counts_where_it_alone_is_named(self):
        records = calls(4, 4096, talweg_auto=1.0, ompi_ring=1.1, gloo_ring="died")
        self.assertEqual(self.verdict("net", records, "net/4/4K"), rows.PASS)
        records = calls(4, 4096, talweg_auto=1.0, gloo_ring=9.0)
        self.assertEqual(self.verdict("net", records, "net/4/4K"), "no verdict: no peer was measured")

    def test_another_build_of_talweg_is_no_peer(self):
        records = calls(4, M, talweg_auto=10.0, beside_talweg=9.0, gloo_ring=11.0)
        self.assertEqual(self.verdict("net", records, "net/4/1M"), rows.PASS)
        row = one("net", records, "net/4/beside")
        self.assertEqual((row["verdict"], round(row["measured"], 2), row["note"]), (rows.MISS, 1.11, "at 1 MiB"))

    def test_the_wire_is_filled_or_not_whatever_peers_do(self):
        self.assertEqual(self.verdict("net", calls(8, 16 * M, talweg_auto=261.0, gloo_ring="died"), "net/8/16M"), rows.MISS)
        self.assertEqual(self.verdict("net", calls(8, 16 * M, talweg_auto=249.0, gloo_ring="died"), "net/8/16M"), rows.PASS)

    def test_uneven_links_ask_for_bound_best_peer_and_open_mpi(self):
        records = calls(8, 16 * M, talweg_auto=713.0, gloo_ring=1237.0, ompi_default=2500.0)
        self.assertEqual(self.verdict("uneven", records, "uneven/8/16M"), rows.PASS)
        self.assertEqual(self.verdict("uneven", records, "uneven/8/16M/default"), rows.PASS)
        self.assertEqual(self.verdict("uneven", calls(8, 16 * M, talweg_auto=760.0, gloo_ring=9999.0), "uneven/8/16M"), rows.MISS)
        records = calls(8, 16 * M, talweg_auto=713.0, gloo_ring=1100.0, ompi_default="died")
        self.assertEqual(self.verdict("uneven", records, "uneven/8/16M"), rows.MISS)
        self.assertEqual(self.verdict("uneven", records, "uneven/8/16M/default"), "no verdict: peer ompi default failed")

    def test_a_mesh_asks_for_both_rings(self):
        record = {"seed": 2, "ranks": 8, "bytes": 16 * M, "bound_ms": 950, "ms": {"talweg": 1000, "best ring": 4500, "rank order": 20000},
                  "errors": {}}
        self.assertEqual(self.verdict("mesh", [record], "mesh/2/8"), rows.PASS)
        self.assertEqual(self.verdict("mesh", [record], "mesh/2/8/rank-order"), rows.PASS)
        self.assertEqual(self.verdict("mesh", [record | {"bound_ms": 890}], "mesh/2/8"), rows.MISS)
        record |= {"ms": {"talweg": 1000, "best ring": None, "rank order": None}, "errors": {"best ring": "died", "rank order": "died"}}
        self.assertRegex(self.verdict("mesh", [record], "mesh/2/8"), "no verdict: peer gloo ring in")
        self.assertRegex(self.verdict("mesh", [record], "mesh/2/8/rank-order"), "no verdict: peer gloo ring in")

    def test_a_fabric_asks_for_the_bound_and_the_ring(self):
        record = {"seed": 1, "ranks": 16, "bytes": 2 * M, "bound_ms": 3700, "ms": {"default": 4000, "packed": 3950, "ring": 7000}, "errors": {}}
        self.assertEqual(self.verdict("fabric", [record], "fabric/1/16"), rows.PASS)
        self.assertEqual(one("fabric", [record], "fabric/1/16")["note"], "0.925 of the bound; packed 3950 ms")
        self.assertEqual(self.verdict("fabric", [record | {"bound_ms": 3600}], "fabric/1/16"), rows.MISS)
        slow_by = {"default": 4000, "packed": 3950, "ring": 6700}
        self.assertEqual(self.verdict("fabric", [record | {"ms": slow_by}], "fabric/1/16"), rows.MISS)
        no_ring = record | {"ms": {"default": 4000, "packed": None, "ring": None}, "errors": {"packed": "died", "ring": "died"}}
        self.assertEqual(self.verdict("fabric", [no_ring], "fabric/1/16"), "no verdict: peer ring failed")
        failed = record | {"ms": {"default": None, "packed": 3950, "ring": 7000}, "errors": {"default": "died"}}
        self.assertEqual(self.verdict("fabric", [failed], "fabric/1/16"), rows.MISS)

    def test_predictions_simulations_and_the_lab_are_held_to_each_other(self):
        def pair(predicted, simulated, time=100.0):
            record = {"scenario": "predict", "network": "unseen", "ranks": 6, "bytes": M, "planner": "ring", "predicted_ms": predicted,
                      "simulated_ms": simulated, "measured_ms": time}
            return record | ({"error": predicted / time - 1, "simulation_error": simulated / time - 1,
                              "error_of_simulation": predicted / simulated - 1} if time else {})

        def verdicts(*pairs):
            return [self.verdict("predict", list(pairs), f"predict/unseen/6/{who}") for who in ("model", "simulator", "model-simulator")]

        good = pair(105, 98)
        self.assertEqual(verdicts(good), [rows.PASS] * 3)
        self.assertEqual(verdicts(), [rows.NOT_MEASURED] * 3)
        self.assertEqual(verdicts(good, good, pair(126, 110)), [rows.MISS, rows.PASS, rows.PASS])  # by the worst
        self.assertEqual(verdicts(good, good, pair(80, 101)), [rows.PASS, rows.PASS, rows.PASS])
        self.assertEqual(verdicts(good, pair(91, 109), pair(91, 109)), [rows.MISS, rows.MISS, rows.MISS])  # by the median
        self.assertEqual(verdicts(good, pair(105, 98, None)), [rows.MISS] * 3)
        row = one("predict", [good, good, pair(126, 110)], "predict/unseen/6/model")
        self.assertEqual(row["note"], "3 pairs, worst +26% (ring, 1 MiB), at 1 MiB 5%")

    def test_other_collectives_and_rates_on_drawn_networks_have_rows_of_their_own(self):
        record = {"scenario": "drawn", "kind": "star", "seed": 1, "ranks": 8, "bytes": M, "taken": "ring", "error": -0.05}  # as they once were
        far = {"kind": "mesh", "error": 0.6}
        records = [record, record | {"op": "all_reduce", "mbit": None}, record | far | {"op": "all_gather", "mbit": None},
                   record | far | {"op": "all_reduce", "mbit": [1000, 100000]}]
        row = one("drawn", records, "drawn/all")
        self.assertEqual((row["verdict"], row["note"]), (rows.PASS, "2 pairs, worst -5% (star 1 of 8, ring, 1 MiB)"))
        self.assertEqual(self.verdict("drawn", [record | far], "drawn/all"), rows.MISS)
        row = one("drawn", records, "drawn/all_gather")
        self.assertEqual((row["verdict"], row["measured"], row["command"]), (rows.NOT_ASKED, 60, 'make bench ARGS="drawn --op all_gather"'))
        row = one("drawn", records, "drawn/all_reduce/1000-100000")
        self.assertEqual(row["command"], 'make bench ARGS="drawn --op all_reduce --mbit 1000-100000"')
        settings = bench.parse_arguments("drawn --op all_reduce,all_gather --mbit 1000-100000".split())
        self.assertEqual((settings.op, settings.mbit), (["all_reduce", "all_gather"], [1000, 100000]))
        for words in ("100-10", "0-10", "10", "a-b", "1-inf"):
            with self.subTest(words), self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
                bench.parse_arguments(["drawn", "--mbit", words])

    def test_what_a_group_takes_is_held_to_every_planner_that_was_measured(self):
        record = {"seed": 1, "ranks": 32, "bytes": 2 * M, "bound_ms": 3500, "errors": {}, "taken": "packed",
                  "predicted_ms": {"packed": 4100.0, "ring": 6800.0}, "ms": {"default": 4450, "packed": 4382, "ring": 6894}}
        row = one("fabric", [record], "fabric/1/32/chosen")
        self.assertEqual((row["verdict"], row["note"]), (rows.PASS, "packed 4382 ms; packed taken, predicted 4100 ms"))
        slow = record | {"ms": record["ms"] | {"default": 5081}}
        self.assertEqual(self.verdict("fabric", [slow], "fabric/1/32/chosen"), rows.MISS)
        self.assertAlmostEqual(one("fabric", [slow], "fabric/1/32/chosen")["measured"], 5081 / 4382)
        by_ring = record | {"ms": record["ms"] | {"ring": 4000}}
        self.assertEqual(self.verdict("fabric", [by_ring], "fabric/1/32/chosen"), rows.MISS)
        no_ring = record | {"ms": record["ms"] | {"ring": None}, "errors": {"ring": "died"}}
        self.assertEqual(self.verdict("fabric", [no_ring], "fabric/1/32/chosen"), "no verdict: peer ring failed")
        failed = record | {"ms": record["ms"] | {"default": None}, "errors": {"default": "died"}}
        self.assertEqual(self.verdict("fabric", [failed], "fabric/1/32/chosen"), rows.MISS)

    def test_what_htsim_gave_elsewhere_is_no_measurement_beside_it(self):
        record = {"scenario": "sim", "name": "ls16-incast-10MB-ndp", "link_hops_per_s": 9e9, "peak_memory_MB": 1, "last_finish_ms": 126.3}
        made = scenarios.rows_of("sim", [record])
        self.assertEqual(rows.pick(made, key="sim/ls16-incast-10MB-ndp/completion")["verdict"], rows.PASS)
        beside = [row for row in made if row["key"].startswith("sim/htsim/")]
        self.assertEqual({(row["verdict"], row["target"] != "") for row in beside}, {(rows.NOT_MEASURED, True)})
        self.assertIn("htsim was not run", measured.page({}, {}))

    def test_strangers_must_have_come(self):
        result = {"isolated": {"median_ms": 100.0}, "wrong": 0}
        record = {"ranks": 4, "bytes": M, "alone": [result], "among": [result], "strangers_per_second": [990, 1010]}
        self.assertEqual(self.verdict("strangers", [record], "strangers/4/1M"), rows.PASS)
        few = record | {"strangers_per_second": [990, 120]}
        self.assertEqual(self.verdict("strangers", [few], "strangers/4/1M"), "no verdict: only 120 strangers a second came")
        wrong = record | {"among": [result | {"wrong": 3}]}
        self.assertEqual(self.verdict("strangers", [wrong], "strangers/4/1M"), rows.MISS)

    def test_the_bound_is_asked_for_at_each_size(self):
        def network(ranks, bound_ms):
            return {"name": f"n{ranks}", "ranks": ranks, "plan_ms": 50, "bound_ms": bound_ms, "of_bound": 1, "trees": 1, "depth": 1}

        records = [network(16, 4.9), network(64, 4.9), network(63, 5.1)]
        self.assertEqual(self.verdict("plan", records, "plan/16/bound"), rows.PASS)
        row = one("plan", records, "plan/64/bound")
        self.assertEqual((row["verdict"], row["note"]), (rows.MISS, "n63"))
        self.assertEqual(self.verdict("plan", records, "plan/256/bound"), rows.NOT_MEASURED)

    def test_gloo_that_failed_in_pytorch_is_not_beaten(self):
        record = {"ranks": 4, "mode": "isolated", "gloo_ms": None, "talweg_ms": 0.3}
        self.assertEqual(self.verdict("torch", [record], "torch/4/isolated"), "no verdict: peer gloo failed")
        self.assertEqual(self.verdict("torch", [record | {"gloo_ms": 7.0}], "torch/4/isolated"), rows.PASS)
        self.assertEqual(self.verdict("torch", [record | {"gloo_ms": 5.0}], "torch/4/isolated"), rows.MISS)

    def test_steps_are_played_back_in_every_case_or_the_row_fails(self):
        where = {"ranks": 2, "backend": "talweg", "plan_of": "exact"}
        good = {"played_back_off": 0.01, "predicted_off": 0.05, "cost": 0.01, "gain": 1.2, "kept": 1.2, "gain_off": 0.02}
        cases = [where | good for _ in range(9)] + [{"ranks": 2, "backend": "talweg", "recorded_with": 2, "elsewhere_off": 0.03}] * 6
        parts = ("played_back_off/median", "played_back_off", "predicted_off", "cost", "gain_off", "gain", "kept", "elsewhere_off/median")
        for part in parts:
            self.assertEqual(self.verdict("replay", cases, f"replay/2/talweg/{part}"), rows.PASS, part)
            name = part.split("/")[0]
            first = next(i for i, case in enumerate(cases) if name in case)
            row = one("replay", [*cases[:first], cases[first] | {name: None}, *cases[first + 1:]], f"replay/2/talweg/{part}")
            self.assertEqual((row["verdict"], row["note"]),
                             (rows.MISS, f"1 of {6 if name == 'elsewhere_off' else 9} cases gave none"), part)
        own = where | good | {"plan_of": "ddp", "gain_off": 0.5}
        row = one("replay", [own] * 5 + cases[5:], "replay/2/talweg/gain_off")
        self.assertEqual((row["verdict"], row["note"], round(row["measured"], 1)),
                         (rows.PASS, "without 5 whose plan is DDP's own buckets", 2.0))
        row = one("replay", [own] * 9, "replay/2/talweg/gain_off")
        self.assertEqual(row["verdict"], rows.NOT_MEASURED)
        worst = [*cases[:8], where | good | {"gain_off": -0.2}, *cases[9:]]
        self.assertEqual(self.verdict("replay", worst, "replay/2/talweg/gain_off"), rows.MISS)
        gloo = [case | {"backend": "gloo"} for case in cases[:9]]
        self.assertEqual(self.verdict("replay", gloo, "replay/2/gloo/played_back_off"), rows.PASS)
        far = [*gloo[:8], gloo[8] | {"predicted_off": -0.69}]
        self.assertEqual(self.verdict("replay", far, "replay/2/gloo/predicted_off"), rows.MISS)
        costly = [*cases[:8], where | good | {"cost": 0.1}, *cases[9:]]
        row = one("replay", costly, "replay/2/talweg/cost/worst")
        self.assertEqual((round(row["measured"]), row["verdict"]), (10, rows.NOT_ASKED))

    def test_what_a_record_leaves_out_does_not_make_its_playing_back_right(self):
        result = {"job": {"step": 80e6}, "plain_ms": 100, "recorded_ms": 101, "planned_ms": None, "kept": None,
                  "predicted": {"replayed_us": 80e3, "plan_of": "ddp", "step_us": {"ddp": 90e3}}}
        record = replay.record_of(result)
        self.assertEqual((round(record["played_back_off"], 6), round(record["predicted_off"], 6)), (-0.2, -0.1))

    def test_a_plan_that_was_not_kept_does_not_count_against_what_is_in_place(self):
        result = {"job": {"step": 80e6}, "plain_ms": 90, "recorded_ms": 90, "planned_ms": 100, "predicted": None}
        for kept, value, verdict in ((True, 0.9, rows.MISS), (False, 1, rows.PASS)):
            record = replay.record_of(result | {"kept": kept}, ranks=2, backend="talweg")
            self.assertEqual((record["gain"], record["kept"]), (0.9, value))
            self.assertEqual(self.verdict("replay", [record], "replay/2/talweg/kept"), verdict)
            self.assertEqual(self.verdict("replay", [record], "replay/2/talweg/gain"), rows.MISS)

    def test_a_rank_that_died_makes_its_rows_misses(self):
        where = {"ranks": 2, "backend": "talweg", "plan_of": "exact"}
        cases = [where | {"cost": 0.01} for _ in range(8)]
        self.assertEqual(self.verdict("replay", [*cases, where | {"error": "died"}], "replay/2/talweg/cost"), rows.MISS)

    def test_through_an_aggregator(self):
        record = {"ranks": 4, "ms": 149.0, "link_ms": 134.2, "rounds": [{"algorithm": "a"}], "failed": ""}
        self.assertEqual(self.verdict("aggregator", [record], "aggregator/4"), rows.PASS)
        self.assertEqual(self.verdict("aggregator", [record | {"ms": 150.0}], "aggregator/4"), rows.MISS)
        self.assertEqual(self.verdict("aggregator", [record | {"ms": None, "failed": "no"}], "aggregator/4"), rows.MISS)

    def test_through_a_switch(self):
        good = {"talweg_switch": 147.0, "talweg_auto": 215.0, "gloo_ring": 216.0, "ompi_ring": 212.0}  # S/B is 140.3
        self.assertEqual(self.verdict("streaming", calls(4, 16 * M, **good), "streaming/4/16M"), rows.PASS)
        self.assertEqual(self.verdict("streaming", calls(4, 16 * M, **good), "streaming/4/16M/ring"), rows.PASS)
        slow = calls(4, 16 * M, **good | {"talweg_switch": 149.0})
        self.assertEqual(self.verdict("streaming", slow, "streaming/4/16M"), rows.MISS)
        self.assertEqual(self.verdict("streaming", slow, "streaming/4/16M/ring"), rows.MISS)
        wrong = calls(4, 16 * M, **good | {"talweg_switch": "3 wrong values"})
        self.assertEqual(self.verdict("streaming", wrong, "streaming/4/16M"), rows.MISS)
        without = calls(4, 16 * M, **good | {"ompi_ring": "died"})
        self.assertEqual(self.verdict("streaming", without, "streaming/4/16M/ring"), "no verdict: peer ompi ring failed")
        # S/B of 200 Mbit/s is 701.7.
        times = {"talweg_switch": 738.0, "gloo_ring": 1056.0}
        slow = [record | {"mbit": 200} for record in calls(4, 16 * M, **times)]
        self.assertEqual(self.verdict("streaming", slow, "streaming/4/16M/200"), rows.PASS)
        self.assertEqual(self.verdict("streaming", slow, "streaming/4/16M/200/ring"), rows.PASS)
        self.assertEqual(self.verdict("streaming", slow, "streaming/4/16M"), rows.NOT_MEASURED)
        slower = [record | {"mbit": 200} for record in calls(4, 16 * M, **times | {"talweg_switch": 740.0})]
        self.assertEqual(self.verdict("streaming", slower, "streaming/4/16M/200"), rows.MISS)
        self.assertEqual(self.verdict("streaming", slower, "streaming/4/16M/200/ring"), rows.MISS)
        trip = {"ranks": 4, "what": "round trip", "ms": 0.10}
        self.assertEqual(self.verdict("streaming", [*calls(4, 4096, talweg_switch=0.119), trip], "streaming/4/4K"), rows.PASS)
        self.assertEqual(self.verdict("streaming", [*calls(4, 4096, talweg_switch=0.121), trip], "streaming/4/4K"), rows.MISS)

    def test_through_a_switch_with_loss_and_with_two_jobs(self):
        loss = {"ranks": 8, "what": "loss", "ms": {"0": 100.0, "0.01": 101.0, "0.1": 106.0, "1": None}}
        verdicts = [self.verdict("streaming", [loss], f"streaming/8/packet-loss/{percent}") for percent in (0.01, 0.1, 1)]
        self.assertEqual(verdicts, [rows.PASS, rows.MISS, rows.MISS])
        jobs = {"ranks": 8, "what": "jobs", "ms": [300.0, 330.0]}
        self.assertEqual(self.verdict("streaming", [jobs], "streaming/8/jobs"), rows.PASS)
        self.assertEqual(self.verdict("streaming", [jobs | {"ms": [300.0, 450.0]}], "streaming/8/jobs"), rows.MISS)
        self.assertEqual(self.verdict("streaming", [jobs | {"ms": None}], "streaming/8/jobs"), rows.MISS)

    def test_of_sparse_vectors_through_a_switch(self):
        def grid(ms_of):
            return [{"ranks": ranks, "density": share, "overlap": overlap, "bound_ms": 100 * share, "ms": ms_of(share, overlap),
                     "bytes": 1000, "error": ""}
                    for ranks in density.RANKS for share, overlap in density.cells(ranks)]

        def verdicts(records):
            return [self.verdict("density", records, key) for key in ("density/2", "density/8", "density/dense")]

        good = grid(lambda share, _: 115 * share)
        self.assertEqual(verdicts(good), [rows.PASS] * 3)
        self.assertEqual(one("density", good, "density/8")["what"].split(": each of ")[1].split()[0], "22")
        self.assertEqual(verdicts(good[:-1]), [rows.PASS, rows.NOT_MEASURED, rows.NOT_MEASURED])
        slow = grid(lambda share, overlap: 119 if (share, overlap) == (0.01, "none") else 115 * share)
        self.assertEqual(verdicts(slow), [rows.MISS, rows.MISS, rows.MISS])
        within = grid(lambda share, overlap: 118 if (share, overlap) == (0.01, "none") else 115 * share)
        self.assertEqual(verdicts(within), [rows.MISS, rows.MISS, rows.PASS])
        self.assertIn("met in 23 of 24", one("density", within, "density/2")["note"])
        longer = [record | {"bytes": 4000} if record["ranks"] == 8 and record["density"] == 0.8 else record for record in good]
        self.assertAlmostEqual(max(over for over, _ in density.over_dense(longer)), 0.8)
        longer = [record | {"bytes": 4000, "ms": 475.0} if record["density"] == 0.01 else record for record in good]
        self.assertEqual(self.verdict("density", longer, "density/dense"), rows.MISS)
        wrong = [*good[:-1], good[-1] | {"ms": None, "error": "wrong values"}]
        self.assertEqual(verdicts(wrong), [rows.PASS, rows.MISS, rows.MISS])

    def test_the_blocks_of_a_sparse_vector_are_those_that_perf_draws(self):
        # Of src/base/random.h, Random(1, 0) and Random(1, 7).uniform().
        self.assertEqual([density.draw(1, stream) for stream in (0, 7)], [0.92996978156157939, 0.073057062328078293])
        for share in density.DENSITIES[1:]:
            for ranks in density.RANKS:
                expected = 1 - (1 - share) ** ranks
                self.assertAlmostEqual(density.union(share, "random", ranks, density.LONG), expected, delta=0.02)
            self.assertAlmostEqual(density.union(share, "all", 2, density.LONG), share, delta=0.02)
        self.assertEqual([density.size_of(share, "random", 8) for share in (1, 0.1, 0.02)], [density.SHORT, density.SHORT, density.LONG])
        self.assertNotIn((0.2, "none"), density.cells(8))

    def test_of_a_switch_where_it_is_hard(self):
        uneven = {"what": "uneven", "ranks": 4, "ms": 104.0, "link_ms": 100.0}
        for ms, verdict in ((104.0, rows.PASS), (106.0, rows.MISS), (None, rows.MISS)):
            self.assertEqual(self.verdict("switching", [uneven | {"ms": ms}], "switching/uneven/4"), verdict)
        core = {"what": "core", "protection": "checksums", "cores": 2, "Gbit_per_core_s": 10.1, "Gbit_per_s": 3.0}
        self.assertEqual(self.verdict("switching", [core], "switching/core/checksums"), rows.PASS)
        self.assertEqual(self.verdict("switching", [core | {"Gbit_per_core_s": 9.9}], "switching/core/checksums"), rows.MISS)
        self.assertEqual(self.verdict("switching", [core | {"cores": 1}], "switching/core/checksums"),
                         "no verdict: the ranks have no core of their own")
        self.assertEqual(self.verdict("switching", [core | {"protection": "tags"}], "switching/core/tags"), rows.NOT_ASKED)

    def test_of_a_job_that_finds_no_slots_beside_two(self):
        good = {"what": "greedy", "without_ms": [200.0, 200.0], "beside_ms": [220.0, 210.0], "link_ms": 100.0, "refused": 5, "otherwise": []}

        def verdict(**more):
            return self.verdict("switching", [good | more], "switching/greedy")

        self.assertEqual(verdict(), rows.PASS)
        self.assertEqual(verdict(beside_ms=[200.0, 223.0]), rows.MISS)
        # Who had less than half of the link without the third is held to that half.
        self.assertEqual(verdict(without_ms=[240.0, 240.0], beside_ms=[240.0, 240.0]), rows.MISS)
        self.assertEqual(verdict(otherwise=["it has summed"]), rows.MISS)
        self.assertEqual(verdict(beside_ms=[None, 200.0]), rows.MISS)
        self.assertEqual(verdict(refused=0), "no verdict: the third did not ask")


class Contestants(unittest.TestCase):
    def test_are_all_algorithms_that_peers_have(self):
        known = re.findall(r'algorithm == "(\w+)"', (TREE / "bench" / "peers" / "gloo_bench.cc").read_text())
        self.assertIn("ring_chunked", known)
        self.assertEqual(sorted(contestant.algorithm for contestant in contestants.GLOO), sorted(known))
        self.assertEqual(sorted(contestants.OPEN_MPI_ALGORITHMS.values()), list(range(7)))  # of Open MPI 4.1, and its default
        self.assertEqual([contestant.algorithm for contestant in contestants.OPEN_MPI], list(contestants.OPEN_MPI_ALGORITHMS))

    def test_are_installed_for_the_bench(self):
        packages = re.search(r"bench\) packages\+=\((.*)\)", (TREE / "tools" / "setup.sh").read_text()).group(1).split()
        self.assertLessEqual({"libgloo-dev", "libns3-dev", "libopenmpi-dev", "openmpi-bin"}, set(packages))


class Recording(unittest.TestCase):
    def setUp(self):
        self.before = [rows.row("net/a", "a", "t", "net", 1.0, met=True), rows.row("net/b", "b", "t", "net", 2.0, met=True)]

    def test_keeps_what_was_not_measured_again(self):
        old = measured.merged(None, self.before, FACTS)
        later = FACTS | {"talweg": "def5678", "date": "2026-01-03"}
        again = [rows.row("net/a", "a", "t", "net", 3.0), rows.row("net/b", "b", "t", "net")]
        new = measured.merged(old, again, later)
        self.assertEqual([(row["measured"], row["run"]) for row in new["rows"]], [(3.0, "def5678 2026-01-03"), (2.0, "abc1234 2026-01-02")])
        self.assertEqual(len(new["runs"]), 2)
        again[1] = rows.row("net/b", "b", "t", "net", 4.0)
        self.assertEqual(list(measured.merged(new, again, later)["runs"]), ["def5678 2026-01-03"])

    def test_marks_rows_of_another_commit(self):
        tables = {"net": measured.merged(None, self.before, FACTS)}
        tables["host"] = measured.merged(None, [rows.row("host/c", "c", "t", "host", 1.0)], FACTS | {"talweg": "def5678"})
        page = measured.page(tables, {"host/*": "why it is so"})
        self.assertIn("Rows are of commit abc1234", page)
        self.assertIn("| c | t | 1 ms, at commit def5678 | - | **MISS**: why it is so |", page)
        self.assertIn("| a | t | 1 ms | - | PASS |", page)

    def test_writes_one_file_for_a_scenario(self):
        with tempfile.TemporaryDirectory() as folder:
            measured.record("net", self.before, FACTS, pathlib.Path(folder))
            files, reasons = measured.load(pathlib.Path(folder))
        self.assertEqual((list(files), reasons), (["net"], {}))
        self.assertEqual(files["net"], json.loads(json.dumps(measured.merged(None, self.before, FACTS))))

    def test_touches_only_what_stands_between_the_marks_of_the_readme(self):
        text = f"before\n{measured.BEGIN}\nold\n{measured.END}\nafter\n"
        new = measured.readme(text, {}, {})
        self.assertTrue(new.startswith(f"before\n{measured.BEGIN}\nNothing is measured.\n\n| what |") and new.endswith(f"{measured.END}\nafter\n"))
        self.assertEqual(new.count("| not measured |"), len(measured.HEADLINES))
        with self.assertRaises(SystemExit):
            measured.readme("no marks", {}, {})

    def test_refuses_what_leaves_something_out(self):
        for left_out in ("--quick", "--only=talweg"):
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
                bench.parse_arguments(["net", "--record", left_out])

    def test_names_the_last_commit_that_changed_more_than_results(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(report, "ROOT", pathlib.Path(folder)):
            def change(name):
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(str(path.exists()))

            def git(*words):
                subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e@e", *words], cwd=folder, check=True, capture_output=True)

            git("init")
            for name in ("code.cc", "bench/results/net.json", "README.md"):
                change(name)
                git("add", "-A")
                git("commit", "-m", name)
                if name == "code.cc":
                    code = report.commit()
            self.assertRegex(code, "^[0-9a-f]{7,}$")
            change("docs/measured.md")
            change("bench/results/net.json")
            self.assertEqual(report.commit(), code)
            change("more.cc")
            self.assertEqual(report.commit(), code + "-dirty")


class Networks(unittest.TestCase):
    def test_are_there_on_which_no_constant_was_fitted(self):
        self.assertEqual([predict.networks(n) for n in (2, 6, 8)], [["even", "uneven"], ["unseen"], ["even", "uneven"]])
        text = places.star([300] * 6, 32).cluster_yaml()
        self.assertEqual(text.count("capacity: 300Mbit/s, latency: 3us, burst: 32KiB"), 6)
        self.assertIn("burst: 128KiB", places.star([1000] * 2).cluster_yaml())

    def test_of_racks_have_a_slow_uplink_and_what_their_rows_say(self):
        for seed in fabric.SEEDS:
            for ranks in scenarios.RANKS["fabric"]:
                links = fabric.network(seed, ranks)["links"]
                up = [link["capacity"] for link in links if link["between"][1] == "spine"]
                self.assertIn("5Mbit/s", up)  # where no uplink is narrower than a host, the ring is as good
                self.assertEqual(len(links), ranks + len(up))
                made = rows.pick(scenarios.rows_of("fabric", []), key=f"fabric/{seed}/{ranks}")
                self.assertIn("uplinks " + "/".join(rate.removesuffix("Mbit/s") for rate in up) + ",", made["what"])

    def test_with_an_aggregator_are_the_example(self):
        text = (TREE / "examples" / "clusters" / "aggregator4.yaml").read_text()
        lines = [f"between: [{', '.join(link['between'])}], capacity: 1Gbit/s, latency: {link['latency']}"
                 for link in aggregator.network(4)["links"]]
        self.assertEqual([line for line in lines if line in text], lines)
        self.assertEqual(text.count("between:"), len(lines))
        self.assertEqual({link["capacity"] for link in aggregator.network(4)["links"]}, {"1000Mbit/s"})


if __name__ == "__main__":
    unittest.main()
