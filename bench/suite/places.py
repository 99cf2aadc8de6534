"""Where ranks run: network namespaces that this process makes, names after itself, and removes.

`one_host(n)`: every rank in one namespace that has only loopback.
`star(rates)`: every rank in a namespace of its own, joined by veth pairs to a bridge in another one; rates[r] in
Mbit/s shapes rank r's link both ways with a token bucket. 0: not shaped.
`mesh(rates)`: the same namespaces and bridge, but what shapes is each pair's link, rates[a, b] in Mbit/s each way.
Every route says cubic, whatever the machine's default is: all contestants must have the same, and a namespace may
not set its own default to what the machine has not allowed.
"""
import os
import shutil
import signal
import subprocess
import tempfile
import time

PREFIX = "twbench"
SHARED = "/dev/shm"
BURST_KIB = 128  # whole GSO packets pass the bucket; it would cut bigger ones
MESH_BURST, MESH_BURST_TEXT = "16kb", "16KiB"  # a tenth of a second of the slowest of its links is 60 KB
LIMIT_BYTES = 512 << 10
LATENCY = "3us"  # half of what a veth, a bridge and a wake-up cost; only Talweg's planner reads it and the bursts


def sh(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def own_name():
    """What everything is named after that outlives a bench that is killed; also the prefix of `workspace()`."""
    return f"{PREFIX}{os.getpid()}x"


def workspace():
    """A folder that all ranks reach, as a context manager; in memory, because ranks map files in it."""
    return tempfile.TemporaryDirectory(prefix=own_name(), dir=SHARED)


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as words:
            return words.read() != b""  # a zombie has none
    except OSError:
        return False


def remove_stale():
    """Namespaces and folders of earlier benches that were killed before they could clean up."""
    def is_stale(name):
        owner = name.removeprefix(PREFIX).split("x")[0]
        return name.startswith(PREFIX) and owner.isdigit() and not is_alive(owner)

    for line in sh("ip", "netns", "list").splitlines():
        if line.split() and is_stale(line.split()[0]):
            remove_namespace(line.split()[0])
    for name in filter(is_stale, os.listdir(SHARED)):
        shutil.rmtree(f"{SHARED}/{name}", ignore_errors=True)


def remove_namespace(name):
    for sig in (signal.SIGTERM, signal.SIGKILL):
        pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split()
        for pid in pids:
            try:
                os.kill(int(pid), sig)
            except ProcessLookupError:
                pass
        if pids:
            time.sleep(0.3)
    subprocess.run(["ip", "netns", "del", name], capture_output=True)


class Place:
    """A context manager. `names[r]`, `address(r)`, `interface` tell how rank r is reached."""

    def __init__(self, ranks, rates=None, burst_kib=BURST_KIB):
        self.ranks = ranks
        self.rates = rates
        self.burst_kib = burst_kib
        self.processor = ""  # what its processors cost, as a cluster file says it
        base = own_name()
        self.switch = base + "sw"
        self.names = [f"{base}{r}" for r in range(ranks)] if rates else [base + "0"] * ranks
        self.interface = "eth0" if rates else "lo"

    def address(self, rank):
        return f"10.77.0.{rank + 1}" if self.rates else "127.0.0.1"

    def prefix(self, rank):
        return ["ip", "netns", "exec", self.names[rank]]

    def __enter__(self):
        try:
            self.build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in {*self.names, self.switch}:
            remove_namespace(name)

    def build(self):
        for name in dict.fromkeys(self.names):
            sh("ip", "netns", "add", name)
            sh("ip", "-n", name, "link", "set", "lo", "up")
            for prefix in ("127.0.0.0/8", "127.0.0.1"):
                sh("ip", "-n", name, "route", "replace", "local", prefix, "dev", "lo", "proto", "kernel", "scope",
                   "host", "src", "127.0.0.1", "table", "local", "congctl", "cubic")
        if self.rates:
            self.build_star()

    def build_star(self):
        sh("ip", "netns", "add", self.switch)
        sh("ip", "-n", self.switch, "link", "add", "br0", "type", "bridge")
        # Bridged frames would otherwise walk iptables; the key is absent where the module is not loaded.
        subprocess.run(["ip", "netns", "exec", self.switch, "sysctl", "-qw", "net.bridge.bridge-nf-call-iptables=0"],
                       capture_output=True)
        sh("ip", "-n", self.switch, "link", "set", "br0", "up")
        for r, name in enumerate(self.names):
            sh("ip", "-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", f"p{r}", "netns", self.switch)
            sh("ip", "-n", name, "addr", "add", f"{self.address(r)}/24", "dev", "eth0")
            sh("ip", "-n", name, "link", "set", "eth0", "up")
            sh("ip", "-n", name, "route", "replace", "10.77.0.0/24", "dev", "eth0", "proto", "kernel", "scope", "link",
               "src", self.address(r), "congctl", "cubic")
            sh("ip", "-n", self.switch, "link", "set", f"p{r}", "master", "br0", "up")
            if self.rates[r]:
                self.shape(name, "eth0", self.rates[r])
                self.shape(self.switch, f"p{r}", self.rates[r])

    def shape(self, namespace, device, mbit):
        sh("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf", "rate", f"{mbit}mbit",
           "burst", f"{self.burst_kib}kb", "limit", f"{LIMIT_BYTES}b")

    def devices(self):
        """[(namespace, both ends of ranks' links in it)]"""
        return [(name, ["eth0"]) for name in self.names] + [(self.switch, [f"p{r}" for r in range(self.ranks)])]

    def send_apart(self, apart):
        """Whether packets of one sender pass the links one by one, as on a wire, from now on; or as up to 64 KiB in one, which costs
        less, and is lost as one."""
        for namespace, devices in self.devices():
            for device in devices:
                sh("ip", "-n", namespace, "link", "set", "dev", device, "gso_max_segs", "1" if apart else "65535")

    def lose(self, percent):
        """Every rank's link loses so many of a hundred packets each way from now on."""
        for namespace, devices in self.devices():
            rules = "add table netdev loss; delete table netdev loss;"
            if percent:
                rules += "add table netdev loss;" + "".join(
                    f'add chain netdev loss {device} {{ type filter hook ingress device "{device}" priority 0; }};'
                    f"add rule netdev loss {device} numgen random mod 10000 < {round(100 * percent)} drop;" for device in devices)
            sh("ip", "netns", "exec", namespace, "nft", rules)

    def cluster_yaml(self):
        """The network as Talweg reads it; empty where nothing is shaped and Talweg's own defaults hold."""
        if not self.rates or self.rates == [0] * self.ranks:
            return ""
        lines = ["nodes:"]
        lines += [f"  - {{name: host{r}, kind: worker}}" for r in range(self.ranks)]
        lines += self.links_yaml()
        if self.processor:
            lines.append(f"processor: {self.processor}")
        return "\n".join(lines) + "\n"


    def links_yaml(self):
        return ["  - {name: switch, kind: switch}", "links:"] + [
            f"  - {{between: [host{r}, switch], capacity: {self.rates[r]}Mbit/s, latency: {LATENCY}, burst: {self.burst_kib}KiB}}"
            for r in range(self.ranks)]


class Mesh(Place):
    """Every pair of hosts has a link of its own: a class per destination in each host, none at the bridge."""

    def __init__(self, rates):
        super().__init__(1 + max(a for a, _ in rates), rates)

    def build(self):
        shaped, self.rates = self.rates, [0] * self.ranks
        try:
            super().build()
        finally:
            self.rates = shaped
        for a, name in enumerate(self.names):
            tc = ["tc", "-n", name]
            sh(*tc, "qdisc", "replace", "dev", "eth0", "root", "handle", "1:", "htb")
            for b in range(self.ranks):
                if a == b:
                    continue
                rate, this = f"{self.rates[a, b]}mbit", f"1:{b + 1}"
                sh(*tc, "class", "add", "dev", "eth0", "parent", "1:", "classid", this, "htb", "rate", rate, "ceil", rate,
                   "burst", MESH_BURST, "cburst", MESH_BURST, "quantum", "1514")
                sh(*tc, "qdisc", "add", "dev", "eth0", "parent", this, "bfifo", "limit", f"{LIMIT_BYTES}b")
                sh(*tc, "filter", "add", "dev", "eth0", "parent", "1:", "protocol", "ip", "prio", "1", "u32", "match", "ip",
                   "dst", f"{self.address(b)}/32", "flowid", this)

    def links_yaml(self):
        return ["links:"] + [
            f"  - {{from: host{a}, to: host{b}, capacity: {rate}Mbit/s, latency: {LATENCY}, burst: {MESH_BURST_TEXT}}}"
            for (a, b), rate in self.rates.items()]


class Reordered:
    """A view of a place: its rank r is at the place's position order[r]. For peers that go by rank order."""

    def __init__(self, place, order):
        self.place, self.order = place, order
        self.ranks, self.rates, self.interface = place.ranks, place.rates, place.interface
        self.names = [place.names[at] for at in order]

    def address(self, rank):
        return self.place.address(self.order[rank])

    def prefix(self, rank):
        return self.place.prefix(self.order[rank])


def one_host(ranks):
    return Place(ranks)


def star(rates, burst_kib=BURST_KIB):
    return Place(len(rates), rates, burst_kib)


def mesh(rates):
    return Mesh(rates)
