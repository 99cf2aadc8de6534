"""What happens to ranks whose frames travel in datagrams: killed, stopped, unplugged, UDP blocked, strangers at their ports."""
import os
import pathlib
import re
import signal
import time

import lab

FOREVER_MS = 300_000
SILENCE_S = 2  # after so long a host that does not answer counts as failed, in these tests


class Datagrams(lab.Case):
    def loop(self, place, ranks, then=(), **options):
        environment = {"TALWEG_TRANSPORT": "udp", "TALWEG_HOST_TIMEOUT": f"{SILENCE_S}s"}
        started = place.start_all(ranks, ["join", f"loop=20000,{FOREVER_MS}", *then], environment=environment, **options)
        for rank in started:
            rank.expect("joined")
            rank.expect("looping")
        return started

    def test_a_killed_rank_is_named_by_all_others(self):
        with lab.Lab(3) as place:
            started = self.loop(place, 3, then=["leave"])
            killed = started[1].kill()
            for rank in (started[0], started[2]):
                self.assert_soon(self.expect_error(rank, "peer_failed", "rank 1 ("), killed)
                rank.expect("left")

    def test_a_stopped_rank_is_named_at_the_deadline_and_holds_nobody_who_leaves(self):
        with lab.Lab(3) as place:
            started = self.loop(place, 3, then=["sleep=1000", "leave"], timeout_ms=3000)
            started[1].signal(signal.SIGSTOP)
            for rank in (started[0], started[2]):
                self.assertIn("rank 1 (", rank.expect("error")["text"])
            for rank in (started[0], started[2]):
                rank.expect("left")

    def all_right(self, place, ranks, then, count=20000):
        """What ranks warn of that call until `then` has returned, get all values right and leave."""
        end = f"{place.folder.name}/end"
        started = place.start_all(ranks, ["join", f"loop={count},{FOREVER_MS},{end}", *lab.EVERY_KIND, "leave"],
                                  environment={"TALWEG_TRANSPORT": "udp"})
        for rank in started:
            rank.expect("joined")
            rank.expect("looping")
        then(started)
        pathlib.Path(end).touch()
        for rank in started:
            for event in ("looped", *["called"] * len(lab.EVERY_KIND), "left"):
                rank.expect(event)
        return [self.warnings(rank) for rank in started]

    @staticmethod
    def wait_for_datagrams(*hosts):
        """Until many have met the hosts' rules."""
        lab.wait_until(lambda: all(host.hits() > 100 for host in hosts), "datagrams")

    @staticmethod
    def warnings(rank):
        rank.process.wait()
        rank.readers[1].join()
        return rank.warnings

    NOT_BY_UDP = [[1], [0, 2], [1]]  # ranks that each of three has, where rank 1 is blocked

    @staticmethod
    def said_silent(lines):
        """Ranks to which datagrams bring no answer, as lines say: one, or several where they were found out one by one."""
        said = [re.search(r"TALWEG_TRANSPORT=udp: datagrams to ranks? ([\d, ]+) bring no answer: is UDP blocked on the way\? "
                          "calls go on over TCP", line) for line in lines]
        assert all(said), lines
        return sorted(int(rank) for match in said for rank in match[1].split(", "))

    def wait_for_tcp(self, started):
        """Until all have said so of rank 1."""
        lab.wait_until(lambda: [self.said_silent(rank.warnings) for rank in started] == self.NOT_BY_UDP, "what ranks say")

    def test_where_udp_is_blocked_calls_go_over_tcp_and_one_line_says_so(self):
        with lab.Lab(3) as place:
            place.hosts[1].rule("input", "meta l4proto udp counter drop")  # it can send, and gets no answers
            lines = self.all_right(place, 3, self.wait_for_tcp)
            self.assertEqual([self.said_silent(of_rank) for of_rank in lines], self.NOT_BY_UDP)
            self.assertGreater(place.hosts[1].hits(), 0)

    def test_where_udp_is_blocked_later_calls_go_on_over_tcp_and_one_line_says_so(self):
        with lab.Lab(3) as place:
            def block(started):
                time.sleep(0.5)
                place.hosts[1].rule("input", "meta l4proto udp counter drop")
                self.wait_for_tcp(started)
            lines = self.all_right(place, 3, block)
            self.assertEqual([self.said_silent(of_rank) for of_rank in lines], self.NOT_BY_UDP)
            self.assertGreater(place.hosts[1].hits(), 0)

    def test_where_udp_was_blocked_for_a_while_frames_go_in_datagrams_again(self):
        with lab.Lab(3) as place:
            def block(_):
                time.sleep(0.5)
                place.hosts[1].rule("input", "meta l4proto udp counter drop")
                place.hosts[1].rule("output", "meta l4proto udp counter drop")
                time.sleep(1)
                self.assertGreater(place.hosts[1].hits(), 0)
                place.hosts[1].heal()
                time.sleep(3)
                for host, other in ((0, 1), (1, 0)):
                    place.hosts[host].rule("output", f"ip daddr {place.hosts[other].address} meta l4proto udp meta length > 1000 counter")
                self.wait_for_datagrams(*place.hosts[:2])
            for lines in self.all_right(place, 3, block):
                self.assertEqual([line for line in lines if "bring no answer" not in line], [])

    def lose_large(self, place, after_s):
        """Datagrams that fill a packet are lost on their way to rank 1, without a word: smaller ones are sent then."""
        for host in place.hosts:
            host.run("ip", "link", "set", "eth0", "gso_max_segs", "1")  # so that rules see what is on the wire

        def lose():
            place.hosts[1].rule("input", "meta l4proto udp meta length > 1490 counter drop")

        def then(started):
            if after_s > 0:
                time.sleep(after_s)
                lose()
            lab.wait_until(lambda: started[0].warnings and started[2].warnings, "a line of ranks 0 and 2")
            place.hosts[0].rule("output", f"ip daddr {place.hosts[1].address} meta l4proto udp meta length > 1000 counter")
            self.wait_for_datagrams(place.hosts[0])
        if after_s == 0:
            lose()
        lines = self.all_right(place, 3, then)
        self.assertEqual([len(of_rank) for of_rank in lines], [1, 0, 1], lines)
        for rank in (0, 2):
            self.assertIn("packets of 1500 bytes to rank 1 are lost, and nobody says so; 1480 pass: ", lines[rank][0])
        self.assertGreater(place.hosts[1].hits(), 0)

    def test_where_large_datagrams_are_lost_silently_smaller_ones_are_sent_and_one_line_says_so(self):
        with lab.Lab(3) as place:
            self.lose_large(place, 0)

    def test_where_large_datagrams_are_lost_later_smaller_ones_are_sent_and_one_line_says_so(self):
        with lab.Lab(3) as place:
            self.lose_large(place, 0.5)

    def test_who_was_merely_stopped_gets_datagrams_again_and_nothing_is_said(self):
        self.stopped_for_a_while(20000, 1)

    def test_who_was_merely_stopped_in_large_calls_gets_datagrams_again(self):
        self.stopped_for_a_while(2_000_000, 3)  # both ends have much to send, and answer each other

    def stopped_for_a_while(self, count, times):
        with lab.Lab(3) as place:
            def stop(started):
                for _ in range(times - 1):
                    time.sleep(0.5)
                    started[1].signal(signal.SIGSTOP)
                    time.sleep(1.5)
                    started[1].signal(signal.SIGCONT)
                time.sleep(0.5)
                started[1].signal(signal.SIGSTOP)
                time.sleep(2)
                place.hosts[0].rule("output", f"ip daddr {place.hosts[1].address} meta l4proto udp meta length > 1000 counter")
                started[1].signal(signal.SIGCONT)
                self.wait_for_datagrams(place.hosts[0])
            self.assertEqual(self.all_right(place, 3, stop, count), [[], [], []])

    def test_where_udp_is_blocked_auto_stays_with_tcp_and_who_leaves_has_not_failed(self):
        with lab.Lab(3) as place:
            place.hosts[1].rule("input", "meta l4proto udp counter drop")
            started = place.start_all(3, ["join", "loop=20000,500", "leave"], environment={"TALWEG_TRANSPORT": "auto"})
            for rank in started:
                for event in ("joined", "looping", "looped", "left"):
                    rank.expect(event)
            self.assertGreater(place.hosts[1].hits(), 0)

    def sum_boundedly(self, place, ranks):
        """What ranks warn of while they make bounded sums and call them once."""
        started = place.start_all(ranks, ["join", "bounded=300000", "leave"])
        for rank in started:
            for event in ("joined", "made", "summed", "left"):
                rank.expect(event)
        return [self.warnings(rank) for rank in started]

    def test_bounded_sums_go_over_the_group_where_udp_is_blocked_and_say_so_once(self):
        with lab.Lab(3) as place:
            place.hosts[1].rule("input", "meta l4proto udp counter drop")
            for lines in self.sum_boundedly(place, 3):
                self.assertEqual(len(lines), 1, lines)
                self.assertRegex(lines[0], r"bounded: no datagram of rank 0 \(.*\) comes to rank 1 \(.*is UDP blocked between")
            self.assertGreater(place.hosts[1].hits(), 0)

    def test_bounded_sums_have_smaller_packets_where_large_datagrams_are_lost_silently(self):
        with lab.Lab(3) as place:
            sender = place.hosts[2]
            sender.run("ip", "link", "set", "eth0", "gso_max_segs", "1")  # so that rules see what is on the wire
            for host in place.hosts[:2]:
                host.rule("input", f"ip saddr {sender.address} meta l4proto udp meta length > 1420 counter drop")
            lines = self.sum_boundedly(place, 3)
            self.assertEqual([len(of_rank) for of_rank in lines], [1, 0, 0], lines)
            self.assertRegex(lines[0][0], r"bounded: from rank 2 \(.*\) to rank 0 \(.*\) 1400 bytes pass; 1500 are lost")
            self.assertGreater(place.hosts[0].hits(), 0)

    def test_bounded_sums_say_nothing_where_all_is_well(self):
        with lab.Lab(3) as place:
            self.assertEqual(self.sum_boundedly(place, 3), [[], [], []])

    def test_who_is_killed_in_bounded_sums_is_named_by_all_others(self):
        with lab.Lab(3) as place:
            started = place.start_all(3, ["join", f"bounded=300000,{FOREVER_MS}", "leave"])
            for rank in started:
                for event in ("joined", "made", "summing"):
                    rank.expect(event)
            time.sleep(0.3)
            killed = started[1].kill()
            for rank in (started[0], started[2]):
                event = rank.expect("error")
                self.assertEqual(event["code"], "peer_failed", event)
                self.assertIn("rank 1 (", event["text"])
                self.assert_soon(event, killed)
                rank.expect("left")

    def test_an_abort_ends_bounded_sums_and_the_same_processes_make_others(self):
        again = ["join", "bounded=50000", "leave"]
        with lab.Lab(3) as place:
            started = place.start_all(3, lambda r: ["join", *(["bounded=50000", "abort=enough"] if r == 0 else [f"bounded=50000,{FOREVER_MS}"]),
                                                    "leave", *again])
            for rank in started:
                for event in ("joined", "made", *(["summed"] if rank.rank == 0 else [])):
                    rank.expect(event)
                if rank.rank > 0:
                    event = rank.next()
                    if event["event"] == "summing":
                        event = rank.next()
                    self.assertEqual(event.get("code"), "aborted", event)
                    for word in ("bounded all_reduce #", f"on rank {rank.rank} (", "rank 0 (", "aborted the group: enough"):
                        self.assertIn(word, event["text"])
                for event in ("left", "joined", "made", "summed", "left"):
                    rank.expect(event)

    def over_two_interfaces(self, ranks, steps, events, before=lambda place: None, meanwhile=lambda place, started: None):
        """What ranks on hosts with two interfaces warn of, and the bytes that each host sent by either."""
        with lab.Lab(ranks) as place:
            place.add_links()
            before(place)
            steps = [step.replace("END", f"{place.folder.name}/end") for step in steps]
            started = place.start_all(ranks, ["join", *steps, "leave"],
                                      environment={"TALWEG_TRANSPORT": "udp", "TALWEG_PATHS_IFNAME": "=eth0,eth1"})
            for rank in started:
                rank.expect("joined")
            meanwhile(place, started)
            pathlib.Path(place.folder.name, "end").touch()
            for rank in started:
                for event in (*events, "left"):
                    rank.expect(event)
            return ([self.warnings(rank) for rank in started],
                    [[host.sent_bytes(device) for device in ("eth0", "eth1")] for host in place.hosts])

    def test_two_interfaces_carry_about_as_much(self):
        def slow(place):  # neither is enough
            for host in place.hosts:
                for device in ("eth0", "eth1"):
                    host.shape("200mbit", device)
        count = 4 << 20
        for steps, events in ((["bounded=%d" % count], ["made", "summed"]), (["call=all_reduce,%d,f32,sum,0" % count], ["called"])):
            with self.subTest(steps):
                lines, sent = self.over_two_interfaces(2, steps, events, before=slow)
                self.assertEqual(lines, [[], []])
                # Under sanitizers processors are the limit, and the way that answers sooner has more.
                least = count // 2 if os.environ.get("FAULT_SANITIZED") else count
                for first, second in sent:
                    self.assertGreater(min(first, second), least, "a quarter of what a rank sends, or an eighth")

    def test_a_dead_interface_is_left_and_said_to_be_by_those_who_go_there(self):
        def unplug(place, started):
            time.sleep(0.5)
            place.hosts[1].unplug("b")
            lab.wait_until(lambda: any(rank.warnings for rank in started), "a line of any rank")
            time.sleep(1)  # what else is said
        lines, _ = self.over_two_interfaces(3, [f"loop=20000,{FOREVER_MS},END", *lab.EVERY_KIND],
                                            ["looping", "looped", *["called"] * len(lab.EVERY_KIND)], meanwhile=unplug)
        said = [(rank, line.partition("net: ")[2].strip()) for rank, of_rank in enumerate(lines) for line in of_rank]
        # Each as soon as it has been in vain some times, which takes as long as it needs the second way.
        self.assertTrue(said)
        self.assertEqual(len(set(said)), len(said), "each once")
        for rank, line in said:
            self.assertIn(line, [f"1 of 2 paths to rank {other} answers nothing; it is left" for other in (0, 1, 2)
                                 if 1 in (rank, other)])

    def test_what_strangers_send_is_no_sign_of_life_of_a_host_that_is_gone(self):
        with lab.Lab(3) as place:
            started = self.loop(place, 2)
            with place.hosts[2].sending_nonsense(to=place.hosts[0]):
                time.sleep(0.5)
                since = time.monotonic_ns()
                place.hosts[1].unplug()
                for rank in started:
                    event = self.expect_error(rank, "peer_failed", f"rank {1 - rank.rank} (", "has not answered for 2 s")
                    self.assert_soon(event, since, SILENCE_S)


if __name__ == "__main__":
    lab.main()
