"""Real ranks on hosts that are network namespaces, and the faults that can happen to them.

A namespace belongs to a process that holds it and dies with this one, so nothing needs to be cleaned up however a test
ends. Faults of links are nftables rules with counters: `hits` proves that a rule met packets.
"""
import contextlib
import ctypes
import json
import os
import pathlib
import queue
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

PROGRAM = os.environ["FAULT_RANK"]
PATIENCE_S = 250  # of the harness: longer than any deadline that a test gives to ranks
SKIPPED = 77  # as CMakeLists.txt says
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)
# A call of every kind, small and large: fault_rank checks what each rank gets.
EVERY_KIND = [f"call={op},{count},{types},{root}" for count, types in ((1000, "i32,max"), (70_001, "f32,sum"))
              for op, root in (("all_reduce", 0), ("reduce", 1), ("broadcast", 2), ("reduce_scatter", 0), ("all_gather", 0),
                               ("all_to_all", 0), ("gather", 1), ("scatter", 2), ("barrier", 0))]


def run(*command, stdin=None):
    done = subprocess.run(command, capture_output=True, text=True, input=stdin)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def die_with_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def why_not():
    """Why this machine cannot run these tests; empty when it can."""
    done = subprocess.run(["unshare", "--net", "sh", "-c", "nft add table t && ip link add veth0 type veth peer name veth1"],
                          capture_output=True, text=True)
    return done.stderr.strip() if done.returncode else ""


class Namespace:
    """A network namespace of its own, held by a process that sleeps."""

    def __init__(self):
        self.holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"], preexec_fn=die_with_parent)
        ours = os.readlink("/proc/self/ns/net")
        while os.readlink(f"/proc/{self.holder.pid}/ns/net") == ours:
            time.sleep(0.005)
        self.inside = ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net"]
        self.run("ip", "link", "set", "lo", "up")

    def run(self, *command, stdin=None):
        return run(*self.inside, *command, stdin=stdin)

    def close(self):
        self.holder.kill()
        self.holder.wait()


class Host(Namespace):
    """A machine at `address` with one link, eth0."""

    def __init__(self, switch, number):
        super().__init__()
        self.switch, self.port = switch, f"p{number}"
        self.address = f"10.88.0.{number + 1}"
        self.run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", self.port, "netns",
                 str(switch.holder.pid))
        self.run("ip", "addr", "add", f"{self.address}/24", "dev", "eth0")
        self.run("ip", "link", "set", "eth0", "up")
        switch.run("ip", "link", "set", self.port, "master", "br0", "up")
        self.run("nft", "-f", "-", stdin="""table ip faults {
            chain input { type filter hook input priority 0; }
            chain output { type filter hook output priority 0; }
            chain late { type filter hook postrouting priority 300; }
        }""")

    def add_link(self):
        """A second interface, eth1, in a network of its own."""
        self.run("ip", "link", "add", "eth1", "type", "veth", "peer", "name", self.port + "b", "netns",
                 str(self.switch.holder.pid))
        self.run("ip", "addr", "add", self.address.replace("10.88.", "10.89.") + "/24", "dev", "eth1")
        self.run("ip", "link", "set", "eth1", "up")
        self.switch.run("ip", "link", "set", self.port + "b", "master", "br1", "up")

    def sent_bytes(self, device):
        return json.loads(self.run("ip", "-s", "-j", "link", "show", device))[0]["stats64"]["tx"]["bytes"]

    def rule(self, chain, text):
        """Adds what happens to packets on their way in (input) or out (output, late)."""
        self.run("nft", "add", "rule", "ip", "faults", chain, *text.split())

    def udp_ports(self):
        """On which something here waits for datagrams."""
        return [int(line.split()[3].rpartition(":")[2]) for line in self.run("ss", "-uanH").splitlines()]

    @contextlib.contextmanager
    def sending_nonsense(self, to):
        """A stranger: datagrams that nobody has asked for, to all ports of another host."""
        program = ("import socket, sys, time\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nwhile True:\n"
                   "    for port in sys.argv[2:]:\n        s.sendto(b'TD' + bytes(70), (sys.argv[1], int(port)))\n"
                   "    time.sleep(0.02)")
        ports = to.udp_ports()
        assert ports, "nothing waits for datagrams there"
        stranger = subprocess.Popen([*self.inside, sys.executable, "-c", program, to.address, *map(str, ports)],
                                    preexec_fn=die_with_parent)
        try:
            yield
        finally:
            stranger.kill()
            stranger.wait()

    def heal(self):
        self.run("nft", "flush", "table", "ip", "faults")

    def hits(self):
        """Packets that rules with a counter have met."""
        listing = json.loads(self.run("nft", "-j", "list", "table", "ip", "faults"))["nftables"]
        return sum(part["counter"]["packets"] for entry in listing if "rule" in entry
                   for part in entry["rule"]["expr"] if "counter" in part)

    def queued_out_of_order(self):
        """Segments that TCP here has received before earlier ones."""
        names, values = (line.split() for line in self.run("cat", "/proc/net/netstat").splitlines()[:2])
        return int(values[names.index("TCPOFOQueue")])

    def overtake(self, one_in):
        """One packet in so many leaves through a class of its own, where it waits longer than others."""
        self.rule("output", f"numgen random mod {one_in} < 1 meta priority set 1:2 counter")
        self.run("tc", *"qdisc replace dev eth0 root handle 1: htb default 1".split())
        for number, rate in ((1, "2gbit"), (2, "50mbit")):
            self.run("tc", *f"class add dev eth0 parent 1: classid 1:{number} htb rate {rate}".split())

    def unplug(self, which=""):
        self.switch.run("ip", "link", "set", self.port + which, "down")

    def plug(self):
        self.switch.run("ip", "link", "set", self.port, "up")

    def shape(self, rate, device="eth0"):
        for place, device in ((self, device), (self.switch, self.port + ("b" if device == "eth1" else ""))):
            place.run("tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", rate, "burst", "64kb", "limit",
                      "256kb")


class Rank:
    """A running process of rank.cc. What it says arrives in `events`, in order."""

    def __init__(self, lab, rank, size, host, steps, environment, timeout_ms, limits, meeting):
        self.rank, self.host, self.events = rank, host, []
        self.incoming = queue.Queue()

        def prepare():
            die_with_parent()
            for limit, value in limits.items():
                resource.setrlimit(limit, (value, value))

        interface = "=eth0" if lab.hosts[1:] else "lo"
        steps = ["join=" + interface if step == "join" else step for step in steps]
        self.process = subprocess.Popen(
            [*host.inside, PROGRAM, str(rank), str(size), meeting, str(timeout_ms), *steps],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=prepare,
            env=os.environ | {"TALWEG_DEBUG": "WARN"} | environment)
        self.errors = []
        self.readers = [threading.Thread(target=self.read, daemon=True),
                        threading.Thread(target=self.read_errors, daemon=True)]
        for reader in self.readers:
            reader.start()

    def read(self):
        for line in self.process.stdout:
            self.incoming.put(json.loads(line) if line.startswith("{") else {"event": line.strip()})
        self.incoming.put(None)

    def read_errors(self):
        for line in self.process.stderr:
            self.errors.append(line)

    @property
    def warnings(self):
        """So far."""
        return [line for line in self.errors if " WARN " in line]

    @property
    def name(self):
        return f"rank {self.rank}"

    def expect(self, name):
        """The next event, which must have this name."""
        event = self.next()
        assert event is not None and event["event"] == name, \
            f"{self.name}: expected '{name}', got {event}; before: {self.events[:-1]}; stderr: {''.join(self.errors)}"
        return event

    def next(self):
        try:
            event = self.incoming.get(timeout=PATIENCE_S)
        except queue.Empty:
            raise AssertionError(f"{self.name} says nothing; so far: {self.events}") from None
        self.events.append(event)
        return event

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        """Returns the moment of death, on the clock of the events."""
        now = time.monotonic_ns()
        self.process.kill()
        self.process.wait()
        return now


class Quota:
    """A twentieth of a core for a process, by a control group of its own."""

    PERIOD_US = 100_000

    def __init__(self, rank):
        v2 = pathlib.Path("/sys/fs/cgroup/cgroup.controllers")
        root = v2.parent if v2.exists() else v2.parent / "cpu"
        self.rank, self.folder = rank, root / f"talweg-faults-{os.getpid()}-{rank.process.pid}"
        self.folder.mkdir()
        try:
            if v2.exists():
                (self.folder / "cpu.max").write_text(f"{self.PERIOD_US // 20} {self.PERIOD_US}")
            else:
                (self.folder / "cpu.cfs_period_us").write_text(f"{self.PERIOD_US}")
                (self.folder / "cpu.cfs_quota_us").write_text(f"{self.PERIOD_US // 20}")
            (self.folder / "cgroup.procs").write_text(str(rank.process.pid))
        except OSError:
            self.folder.rmdir()
            raise

    def close(self):
        if self.rank.process.poll() is None:  # a test has failed
            self.rank.kill()
        self.folder.rmdir()


class Stutter:
    """The same where control groups cannot be made: stopped most of the time."""

    RUNS_S, STOPS_S = 0.005, 0.095

    def __init__(self, rank):
        self.rank, self.ended = rank, threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.ended.wait(self.RUNS_S) and self.rank.process.poll() is None:
            self.rank.signal(signal.SIGSTOP)
            self.ended.wait(self.STOPS_S)
            self.rank.signal(signal.SIGCONT)

    def close(self):
        self.ended.set()
        self.thread.join()


def wait_until(there, what):
    """Returns once `there()`, which a machine under load takes longer to be."""
    until = time.monotonic() + PATIENCE_S
    while not there():
        assert time.monotonic() < until, f"waited {PATIENCE_S} s in vain for {what}"
        time.sleep(0.02)


def processor_seconds(rank):
    """What a rank has worked, also one that has ended and was not waited for."""
    user, system = pathlib.Path(f"/proc/{rank.process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def slowed(rank):
    """Lets a rank have a twentieth of a core."""
    try:
        brake = Quota(rank)
    except OSError:
        brake = Stutter(rank)
    try:
        yield
    finally:
        brake.close()


class Lab:
    """`hosts` machines on one switch. With one host ranks share memory, with several they use TCP between them."""

    def __init__(self, hosts):
        self.ranks, self.hosts, self.switch = [], [], None
        self.folder = tempfile.TemporaryDirectory(prefix="talweg-faults-")
        self.meeting = f"file:{self.folder.name}/store"
        self.switch = Namespace()
        self.switch.run("ip", "link", "add", "br0", "type", "bridge")
        self.switch.run("ip", "link", "set", "br0", "up")
        for number in range(hosts):
            self.hosts.append(Host(self.switch, number))

    def add_links(self):
        self.switch.run("ip", "link", "add", "br1", "type", "bridge")
        self.switch.run("ip", "link", "set", "br1", "up")
        for host in self.hosts:
            host.add_link()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for rank in self.ranks:
            if rank.process.poll() is None:
                rank.signal(signal.SIGCONT)
                rank.kill()
            for reader, pipe in zip(rank.readers, (rank.process.stdout, rank.process.stderr)):
                reader.join(5)
                if not reader.is_alive():  # a child of the rank may hold the pipe
                    pipe.close()
        for place in [*self.hosts, self.switch]:
            place.close()
        self.folder.cleanup()

    def start(self, rank, size, steps, environment=None, timeout_ms=200_000, limits=None, host=None, meeting=None):
        """Starts one rank; ranks are dealt to hosts in turn, where no host is given, and meet each other in one file."""
        started = Rank(self, rank, size, host or self.hosts[rank % len(self.hosts)], steps, environment or {}, timeout_ms,
                       limits or {}, meeting or self.meeting)
        self.ranks.append(started)
        return started

    def start_all(self, size, steps, **options):
        """`steps`: a list for all ranks, or a function of the rank."""
        return [self.start(r, size, steps(r) if callable(steps) else steps, **options) for r in range(size)]

    def path(self, name):
        return pathlib.Path(self.folder.name) / name


class Heartbeat:
    """What a process meets on this machine that does next to nothing, every 10 ms: what others do to it shows in how
    late it is. `limit_s()` is what may pass between a fault and the word of it where a second is the bar: the second,
    and as much again as the worst beat was late for each of the few processes that take part in turn. Processes under a
    sanitizer have much to do, which does not show in who has nothing to: they have three seconds."""

    BEAT_S, HANDS, BAR_S = 0.01, 5, 3 if os.environ.get("FAULT_SANITIZED") else 1

    def __init__(self):
        self.late_s, self.ended = 0.0, threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        due = time.monotonic() + self.BEAT_S
        while not self.ended.wait(max(0.0, due - time.monotonic())):
            now = time.monotonic()
            self.late_s, due = max(self.late_s, now - due), now + self.BEAT_S

    def limit_s(self):
        return self.BAR_S + self.HANDS * self.late_s

    def close(self):
        self.ended.set()
        self.thread.join()


class Case(unittest.TestCase):
    def setUp(self):
        self.heartbeat = Heartbeat()
        self.addCleanup(self.heartbeat.close)

    def assert_soon(self, event, since_ns, after_s=0.0):
        """Within a second after `after_s`, on a machine that is not loaded, without a sanitizer."""
        took = (event["ns"] - since_ns) / 1e9
        self.assertLess(took, after_s + self.heartbeat.limit_s(), f"a heartbeat was {self.heartbeat.late_s:.3f} s late")

    def expect_error(self, rank, code, *words):
        """The next event is an error that names the operation, its number, this rank and its phase, and `words`."""
        event = rank.expect("error")
        self.assertEqual(event["code"], code, event)
        for word in (f"on rank {rank.rank} (", "#", "phase ", *words):
            self.assertIn(word, event["text"])
        return event


def main():
    reason = why_not()
    if reason:
        print(f"skipped: no network namespaces here: {reason}")
        sys.exit(SKIPPED)
    unittest.main(module="__main__", verbosity=2)
