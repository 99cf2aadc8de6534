"""What happens to links between hosts: cut, cut one way, flapping, slow, resetting, damaging what they carry."""
import signal
import statistics
import time

import lab

FOREVER_MS = 300_000
SILENCE_S = 2  # after so long a host that does not answer counts as failed, in these tests


class Links(lab.Case):
    def loop(self, place, ranks, count=20_000, time_ms=FOREVER_MS, then=(), **options):
        options.setdefault("environment", {"TALWEG_HOST_TIMEOUT": f"{SILENCE_S}s"})
        started = place.start_all(ranks, ["join", f"loop={count},{time_ms}", *then], **options)
        for rank in started:
            rank.expect("joined")
            rank.expect("looping")
        return started

    def loop_until(self, place, seen, disturb, time_ms=2000):
        """Loops and makes every kind of call while `disturb` is in force, and again while nothing has been `seen` of it:
        a busy machine sends little."""
        deadline = time.monotonic() + 300
        undisturbed = True
        while True:
            started = self.loop(place, 3, time_ms=time_ms, then=lab.EVERY_KIND)
            if undisturbed:
                disturb()
            undisturbed = False
            for rank in started:
                self.assertGreater(rank.expect("looped")["calls"], 1)
                for _ in lab.EVERY_KIND:
                    rank.expect("called")
            if seen():
                return
            self.assertLess(time.monotonic(), deadline, "nothing has been disturbed")

    def peer_failed_everywhere(self, started, since, names, *words, after_s=SILENCE_S):
        """Each names one of these ranks, soon: as failed, or as the one to whom it looks as if another one had."""
        for rank in started:
            event = self.expect_error(rank, "peer_failed", *words)
            self.assertTrue(any(f"rank {name} (" in event["text"].split(": ", 1)[1] for name in names), event)
            self.assert_soon(event, since, after_s)

    def test_a_host_that_is_gone_without_a_word_is_named_by_all_others(self):
        for count in (1, 3_000_000):
            with self.subTest(count=count), lab.Lab(3) as place:
                if count > 1:
                    place.hosts[1].shape("100mbit")  # so that something is always on its way
                started = self.loop(place, 3, count)
                since = time.monotonic_ns()
                place.hosts[1].unplug()
                # Rank 1 cannot know which side of the cut it is on: whoever it names is one that it does not reach.
                for told, names in (([started[0], started[2]], [1]), ([started[1]], [0, 2])):
                    self.peer_failed_everywhere(told, since, names, "has not answered for 2 s")

    def test_a_link_cut_one_way_is_found_by_both_sides(self):
        for direction in ("input", "output"):
            with self.subTest(direction=direction), lab.Lab(3) as place:
                started = self.loop(place, 3)
                since = time.monotonic_ns()
                place.hosts[1].rule(direction, "meta l4proto tcp counter drop")
                for told, names in (([started[0], started[2]], [1]), ([started[1]], [0, 2])):
                    self.peer_failed_everywhere(told, since, names)
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
        # The last in time with the kernel, which looks for addresses and repeats much of what it asks every second.
        for times, down_s, up_s in ((4, 0.3, 0.4), (3, 0.7, 0.4), (6, 0.7, 0.3)):
            with self.subTest(times=times, down_s=down_s), lab.Lab(3) as place:
                started = self.loop(place, 3, time_ms=7000, environment={"TALWEG_HOST_TIMEOUT": "5s"})
                for _ in range(times):
                    place.hosts[1].unplug()
                    time.sleep(down_s)
                    place.hosts[1].plug()
                    time.sleep(up_s)
                for rank in started:
                    self.assertGreater(rank.expect("looped")["calls"], 1)

    def test_a_silent_host_is_asked_again_and_again_but_not_over_a_link_of_ones_own_that_is_down(self):
        with lab.Lab(2) as place:
            started = self.loop(place, 2, time_ms=5000, environment={"TALWEG_HOST_TIMEOUT": "5s"})
            for host in place.hosts:
                host.rule("output", "tcp flags & (syn | ack) == syn counter")
            place.hosts[1].unplug()
            time.sleep(3)
            asked = [host.hits() for host in place.hosts]
            place.hosts[1].plug()
            self.assertGreater(asked[0], 3)
            self.assertEqual(asked[1], 0)
            for rank in started:
                self.assertGreater(rank.expect("looped")["calls"], 1)

    def test_a_host_that_takes_no_new_connections_is_heard_over_those_that_it_has(self):
        with lab.Lab(2) as place:
            started = self.loop(place, 2, count=1, time_ms=1000)
            started[1].signal(signal.SIGSTOP)
            place.hosts[1].rule("input", "tcp flags & (syn | ack) == syn counter drop")
            time.sleep(3 * SILENCE_S)
            self.assertGreater(place.hosts[1].hits(), 0)
            started[1].signal(signal.SIGCONT)
            for rank in started:
                self.assertGreater(rank.expect("looped")["calls"], 0)

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
        for one_in in (1000, 100, 10):
            with self.subTest(one_in=one_in), lab.Lab(3) as place:
                host = place.hosts[1]
                self.loop_until(place, lambda: host.hits() > 0,
                                lambda: host.rule("input", f"numgen random mod {one_in} < 1 counter drop"), time_ms=3000)

    def test_packets_that_come_twice_change_no_result(self):
        with lab.Lab(3) as place:
            def double():
                for other in (place.hosts[0], place.hosts[2]):
                    place.hosts[1].rule("output", f"ip daddr {other.address} numgen random mod 5 < 1 counter "
                                                  f"dup to {other.address} device eth0")

            self.loop_until(place, lambda: place.hosts[1].hits() > 0, double)

    def test_packets_that_overtake_others_change_no_result(self):
        with lab.Lab(3) as place:
            def queued():
                return sum(host.queued_out_of_order() for host in place.hosts)

            before = queued()
            self.loop_until(place, lambda: place.hosts[1].hits() > 0 and queued() > before,
                            lambda: place.hosts[1].overtake(one_in=10))

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
            started = place.start_all(4, ["join", "follow=1000000,4,200000"], environment={
                "TALWEG_CLUSTER": str(said), "TALWEG_REPLAN": "1", "TALWEG_DEBUG": "INFO",
                "TALWEG_DEBUG_SUBSYS": "plan"})
            for rank in started:
                rank.expect("joined")
                rank.expect("looping")
            all_followed = [rank.expect("followed") for rank in started]
            for rank, followed in zip(started, all_followed):
                self.assertTrue(any("the network has changed" in line for line in rank.errors), rank.errors)
                self.assertEqual(followed["changes"], all_followed[0]["changes"])
                self.assertEqual(followed["plan"], all_followed[0]["plan"])
            # What was said lets all four be alike: each sends 3/2 of the vector. Over the slow link, which sets the
            # time, it need be sent but once.
            sent, changes = all_followed[1]["sent"], all_followed[1]["changes"]
            self.assertGreater(len(changes), 0, all_followed[1])
            self.assertGreater(changes[0], 0)
            before, after = sent[1:changes[0]], sent[changes[0]:]
            self.assertGreater(len(after), 3, all_followed[1])
            self.assertLess(statistics.median(after), 0.75 * statistics.median(before), all_followed[1])

    def test_a_connection_that_is_reset_is_named_at_once(self):
        with lab.Lab(3) as place:
            started = self.loop(place, 3)
            since = time.monotonic_ns()
            place.hosts[1].rule("output", f"ip daddr {place.hosts[2].address} meta l4proto tcp counter "
                                          "reject with tcp reset")
            self.peer_failed_everywhere(started, since, [1, 2], after_s=0)
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

    def test_without_checksums_sums_are_right_and_damage_is_not_found(self):
        """That the setting is obeyed shows only where something is damaged."""
        with lab.Lab(2) as place:
            unchecked = {"TALWEG_CHECKSUM": "0"}
            for rank in place.start_all(2, ["join", "loop=200000,200", "loop=1,100"], environment=unchecked):
                for event in ("joined", "looping", "looped", "looping", "looped"):
                    rank.expect(event)
            place.meeting += "2"
            started = self.loop(place, 2, count=200_000, environment=unchecked)
            place.hosts[1].rule("late", "meta length > 1000 meta l4proto tcp @th,1856,8 set 0xa5 counter")
            started[0].expect("wrong value")
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
