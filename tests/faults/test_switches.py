"""Groups whose sums go through `talweg switch`, and from a seed what happens to both: killed, stopped, restarted,
drained, told to read their keys again, with a stranger at their ports and links that lose datagrams.

Three groups: A at a switch without a key, on one host, where `talweg perf` sums, too; B at one with a key, which is also
above the switches of C's two racks. What is promised: a sum that ends is right; only a rank that died lets a group's
sums fail, and is named; a switch answers, outlives all that is sent to it and takes no more memory than it says; when
all is well again sums go through it again, and when the groups have left it has nothing of them any more.

FAULT_SEED=N begins with another seed, FAULT_SEEDS=N takes so many.
"""
import contextlib
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import threading
import time
import unittest

import lab

TALWEG = os.environ["TALWEG_PROGRAM"]
FIRST, SEEDS = int(os.environ.get("FAULT_SEED", "1")), int(os.environ.get("FAULT_SEEDS", "1"))
FAULTS_S = 7.0  # of each seed
LOSS_PERCENT = 3
SLOTS_MIB = 16  # of a switch, which some jobs have at a time, and none in the end
SANITIZED = os.environ["FAULT_SANITIZED"]  # which takes time and memory of its own
FOREVER_MS = 300_000
CALL_MS = 180_000 if SANITIZED else 60_000  # what hangs fails by then


class Daemon:
    """A `talweg switch` that is started again where it was."""

    def __init__(self, place, host, listen, *flags):
        self.place, self.host, self.listen, self.flags = place, host, listen, flags
        self.key = flags[flags.index("--key-file") + 1] if "--key-file" in flags else None
        self.said = place.path(f"switch-{listen}")
        self.start()
        self.fresh = self.holds()  # nobody has joined it yet

    def start(self):
        with open(self.said, "a", encoding="utf-8") as said:
            self.begins = said.tell()
            self.process = subprocess.Popen(
                [*self.host.inside, TALWEG, "switch", "--listen", self.listen, "--threads", "2", "--memory", f"{SLOTS_MIB}M",
                 "--max-jobs", "4", "--workers", "16", *self.flags],
                stdout=said, stderr=said, preexec_fn=lab.die_with_parent)
        while "memory: " not in self.words():
            assert self.process.poll() is None, f"{self}: {self.words()}"
            time.sleep(0.01)

    def words(self):
        return self.said.read_text(encoding="utf-8")[self.begins:]

    def __str__(self):
        return f"the switch at {self.listen}"

    def holds(self):
        """Descriptors and threads."""
        return tuple(len(os.listdir(f"/proc/{self.process.pid}/{what}")) for what in ("fd", "task"))

    def has_nothing(self):
        """Of jobs; what it has in their place is no more than at its start."""
        status, holds = self.status(), self.holds()
        return (status["talweg_switch_jobs"] == status["talweg_switch_slot_bytes"] == 0 and
                all(now <= then for now, then in zip(holds, self.fresh)))

    def memory_mib(self):
        """What it has, and what it has said that it will take at most."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        return (int(re.search(r"RssAnon:\s+(\d+) kB", status)[1]) / 1024,
                float(re.search(r"memory: at most ([\d.]+) MiB", self.words())[1]))

    def order(self, what):
        key = ["--key-file", self.key] if self.key else []
        return lab.run(*self.host.inside, TALWEG, "switch", what, "--listen", self.listen, "-T", "60s", *key)

    def status(self):
        """Its counters by name."""
        lines = [line.rpartition(" ") for line in self.order("status").splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in lines}

    def counted(self, what):
        return sum(value for name, value in self.status().items() if name.startswith(f"talweg_switch_{what}_total"))

    def end(self, *signals):
        for number in signals:
            self.process.send_signal(number)
        return self.process.wait(lab.PATIENCE_S)


class Crowd:
    """The ranks of one job, which are started again when one of them has died."""

    def __init__(self, chaos, name, seats):
        self.chaos, self.name, self.seats, self.life = chaos, name, seats, 0  # seats: host and switch of each rank
        self.start()

    def start(self):
        place, draw = self.chaos.place, self.chaos.random
        self.life += 1
        environment = {"TALWEG_ALGO": "switch", "TALWEG_SWITCH_EXACT": str(draw.randrange(2)),
                       "TALWEG_SWITCH_SPARSE": draw.choice(["0", "1", "auto"])}
        steps = ["join", f"sums={draw.randrange(1 << 32)},{self.chaos.healed}", "leave"]
        self.ranks = []
        for rank, (host, switch) in enumerate(self.seats):
            key = {"TALWEG_SWITCH_KEY_FILE": switch.key} if switch.key else {}
            self.ranks.append(place.start(rank, len(self.seats), steps, host=host, timeout_ms=CALL_MS,
                                          meeting=f"file:{place.path(f'{self.name}{self.life}')}",
                                          environment={**environment, **key, "TALWEG_SWITCH": switch.listen}))
        for event in ("joined", "summing"):
            for rank in self.ranks:
                rank.expect(event)

    def lose(self, number):
        """Kills one of them, which the others know, and begins anew."""
        self.ranks[number].kill()
        for rank in self.ranks[:number] + self.ranks[number + 1:]:
            event = rank.expect("error")
            assert event["code"] == "peer_failed" and f"rank {number} (" in event["text"], event
            rank.expect("left")
            assert rank.process.wait(lab.PATIENCE_S) == 0
        self.start()


class Direct:
    """`talweg perf` at a switch alone, again and again: with no trees to go by it ends with right sums or an error."""

    def __init__(self, place, host, switch):
        self.command = [*host.inside, TALWEG, "run", "-n", "2", "--no-tag-output", "--timeout", f"{2 * CALL_MS}ms", "--",
                        TALWEG, "perf", "all_reduce", "--switch", switch.listen, "--switch-job", "direct", "-b", "4", "-e",
                        "1M", "-f", "16", "-n", "20", "--timeout", f"{CALL_MS // 2}ms"]
        self.outcomes, self.ended = [], threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def once(self):
        self.outcomes.append(subprocess.run(self.command, capture_output=True, text=True, check=False,
                                            preexec_fn=lab.die_with_parent))

    def run(self):
        while not self.ended.is_set():
            self.once()

    def close(self):
        self.ended.set()
        self.thread.join()

    def check_end(self):
        """How many were right, as the last one is; the others have an error, and none has hung or is wrong."""
        self.close()
        self.once()
        assert self.outcomes[-1].returncode == 0, self.outcomes[-1]
        right = 0
        for outcome in self.outcomes:
            if outcome.returncode == 0:
                assert "# Out of bounds values : 0 OK" in outcome.stdout, outcome
                right += 1
            else:
                assert outcome.returncode == 1 and "switch" in outcome.stderr and "FAILED" not in outcome.stdout, outcome
        return right


class Chaos:
    def __init__(self, place, seed):
        self.place, self.random, self.healed = place, random.Random(seed), place.path("healed")
        self.log, self.sleepers, self.strangers, self.begun = [], [], [], time.monotonic()
        self.stopped = set()
        key = place.path("key")
        key.touch(0o600)
        key.write_text("a secret of switches and of their workers", encoding="utf-8")
        keyed = ["--key-file", str(key)]
        for host in place.hosts:  # rules see each datagram by itself
            for device in ("eth0", "lo"):
                host.run("ip", "link", "set", device, "gso_max_segs", "1")
        one, two, three = place.hosts
        alone = Daemon(place, one, "127.0.0.1:4711")
        top = Daemon(place, three, f"{three.address}:4711", *keyed)
        racks = [Daemon(place, host, f"{host.address}:4721", "--above", top.listen, *keyed) for host in (one, two)]
        self.daemons = [alone, top, *racks]
        self.crowds = [Crowd(self, "A", [(one, alone)] * 3), Crowd(self, "B", [(one, top), (two, top)]),
                       Crowd(self, "C", [(one, racks[0])] * 2 + [(two, racks[1])] * 2)]
        self.direct = Direct(place, one, alone)
        for number, host in enumerate(place.hosts):
            self.strangers.append(subprocess.Popen(
                [*host.inside, sys.executable, "-B", pathlib.Path(__file__).with_name("stranger.py"), f"{seed}{number}",
                 *(daemon.listen for daemon in self.daemons if daemon.host is host)],
                stdout=subprocess.PIPE, text=True, preexec_fn=lab.die_with_parent))

    def note(self, what):
        self.log.append(f"{time.monotonic() - self.begun:.2f} {what}")

    def awake(self):
        """A switch that is not stopped; there is always one."""
        return self.random.choice([daemon for daemon in self.daemons if daemon.process.pid not in self.stopped])

    def pause(self, process):
        """Stops a process for a while, in which other things happen."""
        seconds = self.random.uniform(0.1, 3)
        process.send_signal(signal.SIGSTOP)
        self.stopped.add(process.pid)

        def go_on():
            time.sleep(seconds)
            process.send_signal(signal.SIGCONT)
            self.stopped.discard(process.pid)
        self.sleepers.append(threading.Thread(target=go_on))
        self.sleepers[-1].start()
        return f"for {seconds:.1f} s"

    def kill_switch(self):
        daemon = self.awake()
        self.note(f"{daemon} is killed")
        daemon.end(signal.SIGKILL)
        time.sleep(self.random.uniform(0, 1))
        daemon.start()

    def stop_switch(self):
        if len(self.stopped & {daemon.process.pid for daemon in self.daemons}) < 2:
            daemon = self.awake()
            self.note(f"{daemon} is stopped {self.pause(daemon.process)}")

    def restart_switch(self):
        daemon = self.awake()
        self.note(f"{daemon} is restarted")
        assert daemon.end(signal.SIGTERM, signal.SIGINT) == 0, daemon.words()
        daemon.start()

    def drain_switch(self):
        daemon = self.awake()
        self.note(f"{daemon} is drained: {daemon.order('drain').strip()}")
        time.sleep(self.random.uniform(0, 1))
        assert daemon.end(signal.SIGINT) == 0, daemon.words()
        daemon.start()

    def ask_switch(self):
        daemon = self.awake()
        self.note(f"{daemon} has {daemon.status()['talweg_switch_jobs']:.0f} jobs")

    def reload_switch(self):
        daemon = self.awake()
        self.note(f"{daemon} reloads: {daemon.order('reload').strip()}")

    def kill_rank(self):
        crowd = self.random.choice(self.crowds)
        number = self.random.randrange(len(crowd.ranks))
        self.note(f"rank {number} of {crowd.name} is killed")
        crowd.lose(number)

    def stop_rank(self):
        crowd = self.random.choice(self.crowds)
        number = self.random.randrange(len(crowd.ranks))
        self.note(f"rank {number} of {crowd.name} is stopped {self.pause(crowd.ranks[number].process)}")

    def lose_datagrams(self):
        host = self.random.choice(self.place.hosts)
        self.note(f"{host.address} loses datagrams")
        host.rule("input", f"meta l4proto udp numgen random mod 100 < {LOSS_PERCENT} counter drop")

    def heal_links(self):
        self.note("no link loses datagrams")
        for host in self.place.hosts:
            host.heal()

    ACTIONS = {kill_switch: 4, stop_switch: 4, restart_switch: 2, drain_switch: 2, ask_switch: 3, reload_switch: 1,
               kill_rank: 2, stop_rank: 3, lose_datagrams: 3, heal_links: 1}

    def wait_for(self, what, holds):
        until = time.monotonic() + CALL_MS / 1000
        while not holds():
            assert time.monotonic() < until, what
            time.sleep(0.05)

    def begin_faults(self):
        """The faults that go on beside all others are met before these begin."""
        for daemon in self.daemons:
            for counter in ("rounds", "refused_datagrams"):
                self.wait_for(f"{daemon} counts no {counter}", lambda: daemon.counted(counter) > 0)
        self.lose_datagrams()
        self.wait_for("no datagram is lost", lambda: any(host.hits() for host in self.place.hosts))

    def run(self):
        until = time.monotonic() + FAULTS_S
        while time.monotonic() < until:
            time.sleep(self.random.uniform(0.02, 0.6))
            self.random.choices(list(self.ACTIONS), list(self.ACTIONS.values()))[0](self)
            self.check_alive()

    def check_alive(self):
        for daemon in self.daemons:
            assert daemon.process.poll() is None, f"{daemon} has ended with {daemon.process.poll()}: {daemon.words()}"
            has, most = daemon.memory_mib()
            assert has <= most or SANITIZED, f"{daemon} has {has:.1f} MiB and said at most {most} MiB"

    def end_faults(self):
        for sleeper in self.sleepers:
            sleeper.join()
        for stranger in self.strangers:
            stranger.send_signal(signal.SIGTERM)
            said = stranger.communicate(timeout=lab.PATIENCE_S)[0]
            assert int(said) > 0, "the stranger has heard nothing"
        self.heal_links()
        self.healed.touch()
        self.note("all is well")

    def check_end(self):
        right = self.direct.check_end()
        self.note(f"{right} of {len(self.direct.outcomes)} runs at a switch alone were right")
        for crowd in self.crowds:
            for rank in crowd.ranks:
                event = rank.expect("summed")
                self.note(f"{crowd.name} {rank.name}: {event}")
                assert event["since"] > 10, f"{crowd.name}: the switch is not taken back: {event}"
            for rank in crowd.ranks:
                rank.expect("left")
                assert rank.process.wait(lab.PATIENCE_S) == 0
        self.check_alive()
        for daemon in self.daemons:
            self.wait_for(f"{daemon} still has something of those that have left", daemon.has_nothing)
            has, most = daemon.memory_mib()
            assert has <= most - SLOTS_MIB or SANITIZED, f"{daemon} keeps {has:.1f} MiB"
            self.note(f"{daemon} has {has:.1f} of {most} MiB")
            assert daemon.end(signal.SIGTERM) == 0, daemon.words()

    def close(self):
        self.direct.close()
        for sleeper in self.sleepers:
            sleeper.join()
        for process in [*(daemon.process for daemon in self.daemons), *self.strangers]:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()


class Switches(lab.Case):
    def test_whatever_happens_sums_are_right_and_go_through_the_switch_again(self):
        for seed in range(FIRST, FIRST + SEEDS):
            with lab.Lab(3) as place:
                chaos = None
                try:
                    chaos = Chaos(place, seed)
                    chaos.begin_faults()
                    chaos.run()
                    chaos.end_faults()
                    chaos.check_end()
                except BaseException:
                    print(f"\nagain: FAULT_SEED={seed} ctest --test-dir build -R '^faults.switches$' -V\n", flush=True)
                    raise
                finally:
                    if chaos is not None:
                        chaos.close()
                        if "FAULT_SEED" in os.environ or sys.exc_info()[0]:
                            print("\n".join(chaos.log), flush=True)

    def sum_without(self, rule):
        """What two ranks warn of whose switch, on a third host, gets not all of their datagrams: they have tried twice."""
        with lab.Lab(3) as place:
            for host in place.hosts:  # so that rules see what is on the wire
                host.run("ip", "link", "set", "eth0", "gso_max_segs", "1")
            key, end, away = place.path("key"), place.path("end"), place.hosts[2]
            key.touch(0o600)
            key.write_text("a secret of a switch and of its workers", encoding="utf-8")
            switch = Daemon(place, away, f"{away.address}:4711", "--key-file", str(key))
            try:
                away.rule("input", f"meta l4proto udp {rule} counter drop")
                started = place.start_all(2, ["join", f"loop=20000,{FOREVER_MS},{end}", "leave"],
                                          environment={"TALWEG_SWITCH": switch.listen, "TALWEG_SWITCH_KEY_FILE": str(key)})
                for rank in started:
                    rank.expect("joined")
                    rank.expect("looping")
                lab.wait_until(lambda: switch.counted("jobs_failed") > 1, "a second try")
                end.touch()
                for rank in started:
                    rank.expect("looped")
                    rank.expect("left")
                    rank.process.wait()
                    rank.readers[1].join()
                self.assertGreater(away.hits(), 0)
            finally:
                switch.process.kill()
                switch.process.wait()
            lines, others = (rank.warnings for rank in started)
            self.assertEqual((len(lines), others), (1, []), lines)
            self.assertIn(f"no sums by the switch at {switch.listen}, the group does without until it is there", lines[0])
            return lines[0]

    def test_where_udp_is_blocked_sums_go_by_trees_and_one_line_says_so(self):
        self.assertRegex(self.sum_without(""), "no datagram has come from its UDP ports 4711 to 4712: is UDP blocked on the way, or the MTU")

    def test_where_large_datagrams_are_lost_silently_one_line_names_the_sizes(self):
        sizes = re.search(r"packets of (\d+) bytes to it are lost, and nobody says so; those of (\d+) pass",
                          self.sum_without("meta length > 1000"))
        self.assertGreater(int(sizes[1]), 1000)
        self.assertLessEqual(int(sizes[2]), 1000)


if __name__ == "__main__":
    lab.main()
