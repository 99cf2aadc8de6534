"""What happens to processes: killed, stopped, slow, late, restarted, aborted."""
import random
import signal
import time

import lab

FOREVER_MS = 300_000
# Far below the deadline of calls, far above what a loaded machine takes: what ends within it did not wait for that.
SOON_S = 60


class Processes(lab.Case):
    def loop(self, place, ranks, count=20_000, then=(), **options):
        started = place.start_all(ranks, ["join", f"loop={count},{FOREVER_MS}", *then], **options)
        for rank in started:
            rank.expect("joined")
            rank.expect("looping")
        return started

    def kill_one(self, hosts, ranks, seed):
        rng = random.Random(seed)
        victim = rng.randrange(ranks)
        with lab.Lab(hosts) as place:
            again = ["join", "loop=50000,100", "leave", "resources"]
            loop = f"loop={rng.choice([1, 5_000, 300_000])},{FOREVER_MS}"
            started = place.start_all(ranks, [*again, "join", loop, "leave", "resources"])
            before = [self.round_trip(rank) for rank in started]
            for rank in started:
                rank.expect("joined")
                rank.expect("looping")
            time.sleep(rng.random() * 0.2)
            killed = started[victim].kill()
            for rank in started:
                if rank.rank == victim:
                    continue
                event = self.expect_error(rank, "peer_failed", f"rank {victim} (", "all_reduce",
                                          f"pid {started[victim].process.pid}")
                self.assert_soon(event, killed)
                rank.expect("left")
                self.assertEqual(self.resources(rank), before[rank.rank])

    def test_a_killed_rank_is_named_by_all_others_on_its_host(self):
        for seed in range(3):
            with self.subTest(seed=seed):
                self.kill_one(1, 4, seed)

    def test_a_killed_rank_is_named_by_all_others_on_other_hosts(self):
        for seed in range(3):
            with self.subTest(seed=seed):
                self.kill_one(4, 4, seed)

    def test_a_killed_rank_is_named_where_hosts_have_several_ranks(self):
        self.kill_one(2, 4, 0)

    def test_a_killed_rank_whose_child_lives_on_is_named_at_once(self):
        for hosts in (1, 2):
            with self.subTest(hosts=hosts), lab.Lab(hosts) as place:
                steps = ["join", f"child={2 * SOON_S * 1000}", f"loop=1000,{FOREVER_MS}"]
                started = place.start_all(4, lambda r: steps if r == 2 else [steps[0], steps[2]])
                for rank in started:
                    rank.expect("joined")
                    rank.expect("looping")
                killed = started[2].kill()
                for rank in (started[0], started[1], started[3]):
                    self.assert_soon(self.expect_error(rank, "peer_failed", "rank 2 ("), killed)

    def test_a_rank_that_dies_at_a_named_point_is_named_by_all_others(self):
        points = {"after joining": [], "between calls": ["call=all_reduce,1000,f32,sum,0"], "in a call": ["start=300000"],
                  "after a call that nobody waited for": ["start=1", "sleep=200"]}
        for hosts in (1, 3):
            for point, before in points.items():
                with self.subTest(hosts=hosts, point=point), lab.Lab(hosts) as place:
                    last = f"loop=20000,{FOREVER_MS}"
                    steps = ["join", "resources", *before, last, "leave", "mark=alive"]
                    started = place.start_all(3, lambda r: ["join", "resources", *before, "die"] if r == 1 else steps)
                    for rank in started:
                        rank.expect("joined")
                        rank.expect("resources")
                    self.assertEqual(started[1].process.wait(lab.PATIENCE_S), -signal.SIGKILL)
                    died = time.monotonic_ns()
                    for rank in (started[0], started[2]):
                        errors = []
                        while not errors or errors[-1]["step"] != last:
                            event = rank.next()
                            if event["event"] == "error":
                                errors.append(event)
                            else:  # what it sent last may be lost with it, as a reset throws away what is not read
                                self.assertIn(event["event"], ("called", "looping", "buffer untouched", "buffer written"))
                        for event in errors:
                            self.assertEqual(event["code"], "peer_failed", event)
                            self.assertIn("rank 1 (", event["text"])
                        self.assert_soon(errors[0], died)
                        rank.expect("left")
                        rank.expect("alive")

    def test_a_stopped_rank_goes_on_where_it_was(self):
        for hosts in (1, 3):
            with self.subTest(hosts=hosts), lab.Lab(hosts) as place:
                started = place.start_all(3, ["join", "loop=100000,4000"])
                for rank in started:
                    rank.expect("joined")
                    rank.expect("looping")
                started[1].signal(signal.SIGSTOP)
                time.sleep(3)
                started[1].signal(signal.SIGCONT)
                for rank in started:
                    self.assertGreater(rank.expect("looped")["calls"], 1)

    def test_a_rank_that_gets_a_twentieth_of_a_core_slows_the_others_and_fails_nobody(self):
        for hosts in (1, 3):
            with self.subTest(hosts=hosts), lab.Lab(hosts) as place:
                started = place.start_all(3, ["join", "loop=20000,2000"], environment={"TALWEG_HOST_TIMEOUT": "1s"})
                for rank in started:
                    rank.expect("joined")
                    rank.expect("looping")
                with lab.slowed(started[1]):
                    worked, begun = lab.processor_seconds(started[1]), time.monotonic()
                    for rank in started:
                        self.assertGreater(rank.expect("looped")["calls"], 0)
                    worked, took = lab.processor_seconds(started[1]) - worked, time.monotonic() - begun
                    self.assertLess(worked / took, 0.1)
                    self.assertEqual(started[1].process.wait(lab.PATIENCE_S), 0)

    def test_signals_in_every_system_call_change_no_result(self):
        for hosts in (1, 3):
            with self.subTest(hosts=hosts), lab.Lab(hosts) as place:
                steps = ["alarms=500", "join", "loop=1,500", "loop=100000,500", *lab.EVERY_KIND,
                         "start=200000", "finish", "leave", "join", "loop=1000,200", "alarms=0"]
                for rank in place.start_all(3, steps):
                    for event in ("joined", "looping", "looped", "looping", "looped", *["called"] * len(lab.EVERY_KIND),
                                  "finished", "left", "joined", "looping", "looped"):
                        rank.expect(event)
                    self.assertGreater(rank.expect("alarmed")["times"], 100)

    def test_a_rank_that_stays_stopped_is_named_at_the_deadline(self):
        for hosts in (1, 3):
            with self.subTest(hosts=hosts), lab.Lab(hosts) as place:
                # Nobody leaves before the other has met its own deadline: they may be in calls that follow each other.
                started = self.loop(place, 3, then=["sleep=5000"], timeout_ms=3000)
                started[1].signal(signal.SIGSTOP)
                for rank in (started[0], started[2]):
                    # Whoever is past its deadline first tells the other.
                    event = rank.expect("error")
                    self.assertEqual(event["code"], "timeout", event)
                    self.assertIn("rank 1 (", event["text"])
                    self.assertIn("phase ", event["text"])

    def test_a_rank_that_calls_late_is_waited_for(self):
        with lab.Lab(2) as place:
            steps = ["join", "call=all_reduce,1000,f32,sum,0"]
            late = ["join", "sleep=2000", steps[1]]
            for rank in place.start_all(2, lambda r: late if r == 1 else steps):
                rank.expect("joined")
                rank.expect("called")

    def test_a_rank_that_starts_late_is_waited_for(self):
        with lab.Lab(2) as place:
            first = place.start(0, 2, ["join", "call=barrier,0,f32,sum,0"])
            time.sleep(2)
            second = place.start(1, 2, ["join", "call=barrier,0,f32,sum,0"])
            for rank in (first, second):
                rank.expect("joined")
                rank.expect("called")

    def test_a_rank_that_was_restarted_is_not_taken_for_the_one_that_died(self):
        for hosts in (1, 3):
            with self.subTest(hosts=hosts), lab.Lab(hosts) as place:
                started = self.loop(place, 3)
                started[1].kill()
                for rank in (started[0], started[2]):
                    self.expect_error(rank, "peer_failed", "rank 1 (")
                again = place.start(1, 3, ["join"], timeout_ms=3000)
                event = again.expect("error")
                self.assertIn(event["code"], ("peer_failed", "timeout"), event)
                self.assertIn("rank 0", event["text"])

    def test_after_an_abort_the_same_processes_form_a_new_group_and_nothing_is_left_of_the_old(self):
        for hosts in (1, 3):
            with self.subTest(hosts=hosts), lab.Lab(hosts) as place:
                again = ["join", "loop=50000,200", "leave", "resources"]

                def steps(rank):
                    broken = ["join", "abort=enough", "leave"] if rank == 0 else ["join", "loop=50000,20000", "leave"]
                    return again + broken * 3 + again

                started = place.start_all(3, steps)
                for rank in started:
                    before = self.round_trip(rank)
                    for _ in range(3):
                        rank.expect("joined")
                        if rank.rank > 0:
                            event = rank.next()
                            if event["event"] == "looping":
                                event = rank.next()
                            self.assertEqual(event["code"], "aborted", event)
                            self.assertIn("rank 0 (", event["text"])
                            self.assertIn("enough", event["text"])
                        self.assertLess(rank.expect("left")["ms"], SOON_S * 1000)
                    self.assertEqual(self.round_trip(rank), before)

    def round_trip(self, rank):
        """Descriptors and threads after a group was formed, used and left."""
        rank.expect("joined")
        rank.expect("looping")
        self.assertGreater(rank.expect("looped")["calls"], 0)
        rank.expect("left")
        return self.resources(rank)

    @staticmethod
    def resources(rank):
        event = rank.expect("resources")
        return event["fds"], event["threads"]

    def test_survivors_form_a_new_group_when_the_dead_rank_comes_back(self):
        for hosts in (1, 3):
            with self.subTest(hosts=hosts), lab.Lab(hosts) as place:
                again = ["join", "loop=10000,100"]
                started = place.start_all(3, ["join", f"loop=10000,{FOREVER_MS}", *again])
                for rank in started:
                    rank.expect("joined")
                    rank.expect("looping")
                started[2].kill()
                for rank in started[:2]:
                    self.expect_error(rank, "peer_failed", "rank 2 (")
                # The name of a group's second meeting is what the program says; here it counts its joins.
                back = place.start(2, 3, ["skip", *again])
                for rank in (*started[:2], back):
                    rank.expect("joined")
                    rank.expect("looping")
                    rank.expect("looped")

    def test_a_call_that_nobody_waits_for_is_driven_all_the_same(self):
        with lab.Lab(2) as place:
            # After a call, and a while, nobody is on the look-out any more.
            begin = ["join", "call=barrier,0,u8,sum,0", "sleep=400", "start=200000"]
            steps = [*begin, "sleep=3000", "mark=awake", "finish"]
            sleeper, other = place.start_all(2, lambda r: steps if r == 0 else [*begin, "finish"])
            for rank in (sleeper, other):
                rank.expect("joined")
                rank.expect("called")
            finished = other.expect("finished")["ns"]
            self.assertLess(finished, sleeper.expect("awake")["ns"])
            sleeper.expect("finished")


if __name__ == "__main__":
    lab.main()
