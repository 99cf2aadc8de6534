"""`talweg perf --switch` on ranks in their namespaces, and the `talweg switch` that sums for them. No group is on the way: what is timed
is a call of the switch's client until its result is there, of calls back to back."""
import json
import os
import pathlib
import re
import secrets
import subprocess
import tempfile
import time

import contestants
import places

ADDRESS, PORT = "10.77.0.254", 4711  # of a switch where the links of a star meet
PATIENCE_SECONDS = 120


def at_the_bridge(program, place, folder, *options):
    """A Switch where the links of the star meet."""
    places.sh("ip", "-n", place.switch, "addr", "replace", f"{ADDRESS}/24", "dev", "br0")
    return Switch(program, ["ip", "netns", "exec", place.switch], ADDRESS, folder, *options)


class Switch:
    """`talweg switch` while the context lasts. `prefix` goes before its command; `folder` keeps its key, None: it has none."""

    def __init__(self, program, prefix, address, folder, *options):
        self.program, self.prefix, self.at, self.options, self.key = program, prefix, f"{address}:{PORT}", options, None
        if folder:
            self.key = pathlib.Path(folder) / "key"
            self.key.touch(mode=0o600)
            self.key.write_text(secrets.token_hex(32), encoding="utf-8")

    def command(self, *words):
        return [*self.prefix, str(self.program), "switch", *words, "--listen", self.at, *(("--key-file", str(self.key)) if self.key else ())]

    def __enter__(self):
        self.process = subprocess.Popen([*self.command(), *map(str, self.options)], stdout=subprocess.PIPE, text=True)
        if not self.process.stdout.readline().startswith("switch at"):
            self.__exit__()
            raise SystemExit("bench: talweg switch did not start")
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def jobs_opened(self):
        return int(re.search(r"(?m)^talweg_switch_jobs_opened_total (\d+)", places.sh(*self.command("status")))[1])

    def processor_seconds(self):
        """That it has taken so far."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def perf(switch, place, size, *options, pin=()):
    """What `talweg perf` writes of an all-reduce of so many bytes by this switch, a rank on each host of the place; {"error": line} when
    it failed or a value was wrong. `pin` goes before each rank's command."""
    with places.workspace() as folder:
        result = pathlib.Path(folder) / "result.json"
        words = [*pin, switch.program, "perf", "all_reduce", "--switch", switch.at, "-b", size, "-e", size, "-a", "max", "--json", result,
                 *(("--switch-key-file", switch.key) if switch.key else ()), *options]
        environment = os.environ | {"TALWEG_STORE": f"file:{folder}/store", "TALWEG_SOCKET_IFNAME": f"={place.interface}",
                                    "WORLD_SIZE": str(place.ranks)}
        error = finish([([*place.prefix(rank), *map(str, words)], environment | {"RANK": str(rank)}) for rank in range(place.ranks)])
        return {"error": error} if error else json.loads(result.read_text(encoding="utf-8"))


def finish(commands):
    """Runs these (words, environment) side by side; what the first that fails says last, or "". """
    processes = []
    with tempfile.TemporaryFile("w+") as errors:
        try:
            for words, environment in commands:
                processes.append(subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True))
            deadline = time.monotonic() + PATIENCE_SECONDS
            while any(process.poll() is None for process in processes):
                if any(process.poll() for process in processes) or time.monotonic() > deadline:
                    time.sleep(0.2)  # the others' words about it
                    break
                time.sleep(0.01)
            if all(process.poll() == 0 for process in processes):
                return ""
        finally:
            for process in processes:
                contestants.stop(process)
        errors.seek(0)
        said = [line.strip() for line in errors if line.strip()]
        return said[0] if said else "wrong values, or no result in time"
