"""What happens to links between hosts: cut, cut one way, flapping, slow, resetting, damaging what they carry."""
import signal
import time

import lab

FOREVER_MS = 300_000
SILENCE_S = 2  # after so long a host that does not answer counts as failed, in these tests
# Far below the deadline of calls, far above what a loaded machine takes: an error within it was not the deadline's.
SOON_S = 60


class Links(lab.Case):
    def loop(self, place, ranks, count=20_000, time_ms=FOREVER_MS, **options):
        options.setdefault("environment", {"TALWEG_HOST_TIMEOUT": f"{SILENCE_S}s"})
        started = place.start_all(ranks, ["join", f"loop={count},{time_ms}"], **options)
        for rank in started:
            rank.expect("joined")
            rank.expect("looping")
        return started

    def peer_failed_everywhere(self, started, since, names, *words):
        """Each names one of these ranks: as failed, or as the one to whom it looks as if another one had."""
        for rank in started:
            event = self.expect_error(rank, "peer_failed", *words)
            self.assertTrue(any(f"rank {name} (" in event["text"].split(": ", 1)[1] for name in names), event)
            self.assertLess(event["ns"] - since, SOON_S * 1e9)

    def test_a_host_that_is_gone_without_a_word_is_named_by_all_others(self):
        for count in (1, 300_000):
            with self.subTest(count=count), lab.Lab(3) as place:
                started = self.loop(place, 3, count)
                since = time.monotonic_ns()
                place.hosts[1].unplug()
                self.peer_failed_everywhere([started[0], started[2]], since, [1], "has not answered for 2 s")
                # It cannot know which side of the cut it is on: whoever it names is one that it does not reach.
                self.peer_failed_everywhere([started[1]], since, [0, 2], "has not answered for 2 s")

    def test_a_link_cut_one_way_is_found_by_both_sides(self):
        for direction in ("input", "output"):
            with self.subTest(direction=direction), lab.Lab(3) as place:
                started = self.loop(place, 3)
                since = time.monotonic_ns()
                place.hosts[1].rule(direction, "meta l4proto tcp counter drop")
                self.peer_failed_everywhere([started[0], started[2]], since, [1])
                self.peer_failed_everywhere([started[1]], since, [0, 2])
                self.assertGreater(place.hosts[1].hits(), 0)

    def test_halves_that_are_cut_off_from_each_other_both_fail_and_join_anew_when_the_cut_heals(self):
        with lab.Lab(4) as place:
            again = ["join", "loop=1000,100"]
            started = place.start_all(4, ["join", f"loop=20000,{FOREVER_MS}", *again],
                                      environment={"TALWEG_HOST_TIMEOUT": f"{SILENCE_S}s"})
            for rank in started:
                rank.expect("joined")
                rank.expect("looping")
            since = time.monotonic_ns()
            halves = ([0, 1], [2, 3])
            for here in halves[0]:
                for there in halves[1]:
                    place.hosts[here].rule("output", f"ip daddr {place.hosts[there].address} counter drop")
                    place.hosts[here].rule("input", f"ip saddr {place.hosts[there].address} counter drop")
            for half, others in (halves, halves[::-1]):
                self.peer_failed_everywhere([started[r] for r in half], since, others, "all_reduce")
            for r in halves[0]:
                self.assertGreater(place.hosts[r].hits(), 0)
                place.hosts[r].heal()
            for rank in started:
                for event in ("joined", "looping", "looped"):
                    rank.expect(event)

    def test_a_cut_between_two_hosts_is_told_to_those_that_reach_both(self):
        with lab.Lab(3) as place:
            started = self.loop(place, 3)
            since = time.monotonic_ns()
            place.hosts[1].rule("output", f"ip daddr {place.hosts[2].address} counter drop")
            place.hosts[1].rule("input", f"ip saddr {place.hosts[2].address} counter drop")
            self.peer_failed_everywhere(started, since, [1, 2])
            self.assertGreater(place.hosts[1].hits(), 0)

    def test_a_link_that_flaps_costs_time_only(self):
        for times, down_s in ((4, 0.3), (3, 0.7)):
            with self.subTest(down_s=down_s), lab.Lab(3) as place:
                started = self.loop(place, 3, time_ms=5000, environment={"TALWEG_HOST_TIMEOUT": "5s"})
                for _ in range(times):
                    place.hosts[1].unplug()
                    time.sleep(down_s)
                    place.hosts[1].plug()
                    time.sleep(0.4)
                for rank in started:
                    self.assertGreater(rank.expect("looped")["calls"], 1)

    def test_a_host_that_still_answers_is_not_dead_however_long_a_connection_is_silent(self):
        """As when TCP, having lost much, asks ever less often over a network that works again."""
        with lab.Lab(3) as place:
            started = self.loop(place, 3, time_ms=3 * SILENCE_S * 1000)
            place.hosts[1].rule("input", "tcp flags & (syn | rst) == 0 counter drop")
            time.sleep(2 * SILENCE_S)
            self.assertGreater(place.hosts[1].hits(), 0)
            place.hosts[1].heal()
            for rank in started:
                self.assertGreater(rank.expect("looped")["calls"], 1)
                self.assertEqual(rank.errors, [])

    def test_a_link_that_loses_packets_costs_time_only(self):
        with lab.Lab(3) as place:
            started = self.loop(place, 3, time_ms=3000)
            place.hosts[1].rule("input", "numgen random mod 100 < 3 counter drop")
            for rank in started:
                self.assertGreater(rank.expect("looped")["calls"], 1)
            self.assertGreater(place.hosts[1].hits(), 0)

    def test_a_slow_link_slows_and_does_not_fail(self):
        with lab.Lab(3) as place:
            place.hosts[1].shape("5mbit")
            started = self.loop(place, 3, count=200_000, time_ms=3000)
            for rank in started:
                self.assertGreater(rank.expect("looped")["calls"], 0)

    def test_plans_follow_a_link_that_is_slower_than_was_said(self):
        with lab.Lab(4) as place:
            for host in place.hosts:
                host.shape("250mbit")
            place.hosts[1].shape("50mbit")
            said = place.path("cluster.yaml")
            hosts = range(4)
            said.write_text(
                "nodes:\n" + "".join(f"  - {{name: h{h}, kind: worker}}\n" for h in hosts) +
                "  - {name: sw, kind: switch}\nlinks:\n" +
                "".join(f"  - {{between: [h{h}, sw], capacity: 250Mbit/s, latency: 30us}}\n" for h in hosts))
            started = self.loop(place, 4, count=1_000_000, environment={
                "TALWEG_CLUSTER": str(said), "TALWEG_REPLAN": "1", "TALWEG_DEBUG": "INFO",
                "TALWEG_DEBUG_SUBSYS": "plan"})
            until = time.monotonic() + lab.PATIENCE_S
            for rank in started:
                while not any("the network has changed" in line for line in rank.errors):
                    self.assertLess(time.monotonic(), until, rank.errors)
                    self.assertIsNone(rank.process.poll(), rank.errors)
                    time.sleep(0.1)
            time.sleep(1)  # some calls with the new plan: their sums are checked
            for rank in started:
                self.assertIsNone(rank.process.poll(), rank.errors)

    def test_a_connection_that_is_reset_is_named_at_once(self):
        with lab.Lab(3) as place:
            started = self.loop(place, 3)
            since = time.monotonic_ns()
            place.hosts[1].rule("output", f"ip daddr {place.hosts[2].address} meta l4proto tcp counter "
                                          "reject with tcp reset")
            self.peer_failed_everywhere(started, since, [1, 2])
            self.assertGreater(place.hosts[1].hits(), 0)

    def test_a_stopped_rank_is_not_taken_for_a_host_that_is_gone(self):
        # Long enough for the kernel to probe the full receiver, and longer than a host may be silent.
        with lab.Lab(2) as place:
            started = self.loop(place, 2, count=2_000_000, time_ms=1000)
            started[1].signal(signal.SIGSTOP)
            time.sleep(3 * SILENCE_S + 1)
            started[1].signal(signal.SIGCONT)
            for rank in started:
                self.assertGreater(rank.expect("looped")["calls"], 0)

    def test_damage_on_the_way_is_never_a_result(self):
        """One bit of the bytes that TCP carries; nothing below notices, since veth leaves checksums to nobody."""
        with lab.Lab(2) as place:
            started = self.loop(place, 2, count=200_000)
            # Byte 200 of what a full packet carries: TCP's header with its time stamps is 32 bytes.
            place.hosts[1].rule("late", "meta length > 1000 meta l4proto tcp @th,1856,8 set 0xa5 counter")
            # Host 1 sends damaged data; host 0 finds them and closes the connection.
            self.expect_error(started[0], "corrupted", "all_reduce", "rank 1 (", "does not match its checksum")
            self.expect_error(started[1], "peer_failed", "all_reduce", "rank 0 (")
            self.assertGreater(place.hosts[1].hits(), 0)

    def test_a_frame_of_another_version_is_refused_by_name(self):
        """The last byte of a frame's magic number is its version; barriers are frames without payload."""
        with lab.Lab(2) as place:
            started = place.start_all(2, lambda r: ["join", "sleep=1500", "call=barrier,0,u8,sum,0"])
            for rank in started:
                rank.expect("joined")
            place.hosts[1].rule("late", "meta length > 100 meta l4proto tcp @th,280,8 set 0x39 counter")
            texts = []
            for rank in started:
                self.assertIn(rank.next()["event"], ("buffer untouched", "called"))
                if rank.events[-1]["event"] == "buffer untouched":
                    texts.append(rank.expect("error")["text"])
            self.assertIn("another version of the frame layout", " ".join(texts))
            self.assertGreater(place.hosts[1].hits(), 0)


if __name__ == "__main__":
    lab.main()
