"""A star whose packets the simulator carries, by the wall clock (`talweg lab run --simulate`): what places.py cannot emulate, such as
links that lose packets in bursts. Every packet goes through one process, so rates are low: see docs/clusters-and-plans.md."""
import errno
import json
import os
import pathlib
import subprocess
import time

import places

PATIENCE_SECONDS = 20


class Relayed(places.Place):
    """As places.star(), each rank with `mbit` both ways. `options` are of `talweg lab run`; `said` is what its JSON says at the end."""

    def __init__(self, program, ranks, mbit, options):
        super().__init__(ranks, [mbit] * ranks)
        self.program, self.options = program, options
        self.lab, self.said, self.addresses = None, {}, []

    def address(self, rank):
        return self.addresses[rank]

    def build(self):
        """The lab's ranks do nothing but keep the hosts there, until somebody has opened `end` for writing."""
        self.workspace = places.workspace()
        self.folder = pathlib.Path(self.workspace.name)
        os.mkfifo(self.folder / "end")
        cluster = self.folder / "network.yaml"
        cluster.write_text(self.cluster_yaml())
        keep = f"echo $$ > {self.folder}/$RANK.new; mv {self.folder}/$RANK.new {self.folder}/$RANK; exec cat {self.folder}/end"
        with open(self.folder / "errors", "w") as errors:
            self.lab = subprocess.Popen(["setpriv", "--pdeathsig", "TERM", self.program, "lab", "run", cluster, "--simulate", *self.options, "--json", self.folder / "links.json",
                                         "--", "sh", "-c", keep], stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True)
        for rank, name in enumerate(self.names):
            places.sh("ip", "netns", "attach", name, self.process(rank))
            line = places.sh("ip", "-n", name, "-4", "-o", "addr", "show", "dev", self.interface)
            self.addresses.append(line.split(" inet ")[1].split("/")[0])

    def process(self, rank):
        """That of the rank, as a word."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (self.folder / str(rank)).exists():
            if self.lab.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"bench: talweg lab run: {(self.folder / 'errors').read_text().strip() or 'no host after a while'}")
            time.sleep(0.02)
        return (self.folder / str(rank)).read_text().strip()

    def __exit__(self, *_):
        try:
            if self.lab:
                self.end()
        finally:
            super().__exit__()
            if self.lab:
                self.workspace.cleanup()

    def end(self):
        try:
            os.close(os.open(self.folder / "end", os.O_WRONLY | os.O_NONBLOCK))
        except OSError as error:
            if error.errno != errno.ENXIO:  # nobody waits for it: the lab has failed
                raise
        try:
            self.lab.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.lab.terminate()
            self.lab.wait()
        try:
            self.said = json.loads((self.folder / "links.json").read_text())
        except (OSError, ValueError):
            self.said = {}

    def links_yaml(self):
        return ["  - {name: switch, kind: switch}", "links:"] + [
            f"  - {{between: [host{r}, switch], capacity: {rate}Mbit/s, latency: {places.LATENCY}}}" for r, rate in enumerate(self.rates)]
