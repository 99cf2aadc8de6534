"""What can be wrong when a group forms: no room, no descriptors, another version, somebody who never comes."""
import os
import pathlib
import resource
import signal
import subprocess
import sys
import time

import lab

TIMEOUT_MS = 3000
RELAY = str(pathlib.Path(__file__).with_name("relay.py"))
CHALLENGE_AND_REFUSAL = 72 + 72  # bytes that whoever has no key is answered at most
KEY = {"TALWEG_KEY": "a key that these tests have in common"}


class Start(lab.Case):
    def test_a_full_disk_under_the_meeting_place_is_named(self):
        with lab.Lab(1) as place:
            folder = place.path("disk")
            folder.mkdir()
            # Only this test's ranks see the mount.
            host = place.hosts[0]
            host.inside = [*host.inside, "unshare", "--mount", "sh", "-c",
                           f"mount -t tmpfs -o size=4k tmpfs {folder} && "
                           f"head -c 4096 /dev/zero > {folder}/full; exec \"$@\"", "sh"]
            place.meeting = f"file:{folder}/store"
            event = place.start(0, 2, ["join"], timeout_ms=TIMEOUT_MS).expect("error")
            self.assertEqual(event["code"], "system", event)
            self.assertIn("No space left on device", event["text"])
            self.assertIn(str(folder), event["text"])

    def test_a_full_descriptor_table_is_named_and_the_others_are_told_who_is_missing(self):
        # With sanitizers the ranks may not have found each other when those without would have.
        timeout_ms = 3 * TIMEOUT_MS if os.environ.get("FAULT_SANITIZED") else TIMEOUT_MS
        for hosts in (1, 3):
            for descriptors in (4, 8, 10, 12):
                with self.subTest(hosts=hosts, descriptors=descriptors), lab.Lab(hosts) as place:
                    steps = ["join", "call=barrier,0,u8,sum,0"]
                    short = place.start(1, 3, steps, timeout_ms=timeout_ms,
                                        limits={resource.RLIMIT_NOFILE: descriptors})
                    others = [place.start(r, 3, steps, timeout_ms=timeout_ms) for r in (0, 2)]
                    event = short.next()
                    if event is None and os.environ.get("FAULT_SANITIZED"):
                        continue  # a sanitizer's own reports need descriptors as well
                    if event["event"] == "joined":
                        continue  # it was enough
                    self.assertEqual(event["code"], "system", event)
                    self.assertIn("Too many open files", event["text"])
                    for rank in others:
                        event = rank.next()
                        whom = "[1]"
                        if event["event"] == "joined":
                            # It had all its connections before rank 1 gave up, and may hear first of the other.
                            whom = "[012]"
                            rank.expect("buffer untouched")
                            event = rank.expect("error")
                        self.assertIn(event["code"], ("timeout", "peer_failed"), event)
                        self.assertRegex(event["text"], rf"rank(s 0,)? {whom}\b")

    def test_a_rank_of_another_version_is_refused_by_name(self):
        with lab.Lab(2) as place:
            key = "join1/rank1".encode().hex()
            card = "talweg 99 10.88.0.2 1 - - - 1 1 0".encode().hex()
            place.path("store").touch(0o600)  # a meeting place must be private
            place.path("store").write_text(f"talweg-store\n{key} {card}\n")
            event = place.start(0, 2, ["join"], timeout_ms=TIMEOUT_MS).expect("error")
            self.assertEqual(event["code"], "version", event)
            self.assertIn("rank 1 speaks protocol version 99", event["text"])

    def test_ranks_that_never_come_are_named_by_each_that_came(self):
        with lab.Lab(2) as place:
            started = [place.start(r, 4, ["join"], timeout_ms=TIMEOUT_MS) for r in (0, 2)]
            for rank in started:
                event = rank.expect("error")
                self.assertEqual(event["code"], "timeout", event)
                self.assertIn("ranks 1, 3 never came", event["text"])

    def test_a_rank_killed_while_the_group_forms_is_named(self):
        for hosts in (1, 3):
            with self.subTest(hosts=hosts), lab.Lab(hosts) as place:
                # Rank 1 publishes its card and then waits for rank 0, which comes when rank 1 is dead.
                doomed = place.start(1, 3, ["join"], timeout_ms=20_000)
                while "rank1".encode().hex() not in self.content(place):
                    time.sleep(0.01)
                doomed.signal(signal.SIGKILL)
                doomed.process.wait()
                for r in (0, 2):
                    place.start(r, 3, ["join"], timeout_ms=TIMEOUT_MS)
                for rank in place.ranks[1:]:
                    event = rank.expect("error")
                    self.assertIn(event["code"], ("timeout", "peer_failed"), event)
                    self.assertRegex(event["text"], r"rank 1\b")

    @staticmethod
    def content(place):
        path = place.path("store")
        return path.read_text() if path.exists() else ""

    def test_a_server_that_is_not_there_is_named_with_its_address(self):
        with lab.Lab(2) as place:
            place.meeting = f"tcp://{place.hosts[0].address}:29999"
            event = place.start(1, 2, ["join"], KEY, timeout_ms=TIMEOUT_MS).expect("error")
            self.assertEqual(event["code"], "timeout", event)
            self.assertIn(f"{place.hosts[0].address}:29999", event["text"])

    def test_a_server_that_dies_while_others_wait_is_named(self):
        with lab.Lab(2) as place:
            place.meeting = f"tcp://{place.hosts[0].address}:29999"
            server, other = (place.start(r, 3, ["join"], KEY, timeout_ms=60_000) for r in (0, 1))
            self.until_connected(place.hosts[0])
            killed = server.kill()
            event = other.expect("error")
            self.assertEqual(event["code"], "peer_failed", event)
            self.assertIn(f"{place.hosts[0].address}:29999", event["text"])
            self.assert_soon(event, killed)

    def test_what_a_member_has_said_is_refused_when_a_stranger_says_it_again(self):
        with lab.Lab(3) as place:
            server, between = place.hosts[0], place.hosts[2]
            steps = ["join", "loop=1000,200"]
            place.meeting = f"tcp://{server.address}:29999"
            first = place.start(0, 3, steps, KEY, timeout_ms=60_000)
            # Rank 1 takes the way through host 2, and tells all its own through it.
            file = str(place.path("said"))
            relay = subprocess.Popen([*between.inside, sys.executable, RELAY, "record", "29998", server.address, "29999",
                                      file], stdout=subprocess.PIPE, preexec_fn=lab.die_with_parent)
            self.addCleanup(relay.stdout.close)
            self.addCleanup(relay.wait)
            self.addCleanup(relay.kill)
            self.assertEqual(relay.stdout.readline(), b"listening\n")
            place.meeting = f"tcp://{between.address}:29998"
            second = place.start(1, 3, steps, KEY, timeout_ms=60_000)
            until = time.monotonic() + 30
            while not os.path.exists(file) or os.path.getsize(file) < 500:  # more than a greeting; it asks again and again
                self.assertLess(time.monotonic(), until, second.errors)
                time.sleep(0.02)
            for _ in range(2):
                answered = between.run(sys.executable, RELAY, "replay", server.address, "29999", file)
                self.assertLessEqual(int(answered), CHALLENGE_AND_REFUSAL)
            place.meeting = f"tcp://{server.address}:29999"
            third = place.start(2, 3, steps, KEY, timeout_ms=60_000)
            for rank in (first, second, third):
                for event in ("joined", "looping", "looped"):
                    rank.expect(event)
            address = between.address
            self.assertTrue(any(f"dropped a connection from {address}" in line for line in first.errors), first.errors)

    def until_connected(self, host):
        """Until rank 0, and the other one, are clients of the store."""
        until = time.monotonic() + 20
        while len(host.run("ss", "-Htn", "state", "established", "sport", "=", ":29999").splitlines()) < 2:
            self.assertLess(time.monotonic(), until, host.run("ss", "-tan"))
            time.sleep(0.02)
        time.sleep(0.2)


if __name__ == "__main__":
    lab.main()
