"""Who is measured, and how one measurement is started: a fresh set of processes each time."""
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

import places

# What `coll_tuned_allreduce_algorithm` calls them.
OPEN_MPI_ALGORITHMS = {"default": 0, "linear": 1, "nonoverlapping": 2, "doubling": 3, "ring": 4, "segmented": 5,
                       "rabenseifner": 6}
PATIENCE_SECONDS = 150


@dataclasses.dataclass(frozen=True)
class Contestant:
    library: str  # gloo, ompi, talweg, or beside: another build of Talweg
    algorithm: str

    @property
    def label(self):
        return "talweg" if self == TALWEG else f"{self.library} {self.algorithm}"


TALWEG = Contestant("talweg", "auto")
SWITCH = Contestant("talweg", "switch")  # its environment says which
BESIDE = Contestant("beside", "talweg")
GLOO = [Contestant("gloo", a) for a in ("ring", "ring_chunked", "bcube", "halving_doubling")]
OPEN_MPI = [Contestant("ompi", a) for a in OPEN_MPI_ALGORITHMS]


class Runner:
    """Starts measurements with the programs found in `programs`, and in `beside` those of another build of Talweg."""

    def __init__(self, programs, beside=None):
        self.programs = pathlib.Path(programs)
        self.programs_beside = beside

    def has(self, contestant):
        if contestant == BESIDE:
            return self.programs_beside is not None
        program = {"gloo": "gloo_bench", "ompi": "mpi_bench", "talweg": "talweg_bench"}[contestant.library]
        return (self.programs / program).exists()

    def available(self, contestants):
        return [c for c in contestants if self.has(c)]

    def measure(self, contestant, place, size_bytes, seconds, environment=None, store=None, each_call=False):
        """The program's JSON as a dict; {"error": line} when it failed, named after what failed first.

        `environment` and `store` ("tcp://host:port" in place of a file) are Talweg's only. each_call: isolated calls alone, with the
        times of all of them as "calls_ms".
        """
        with places.workspace() as folder:
            options = ["--board", f"{folder}/board", "--size", str(place.ranks), "--bytes", str(size_bytes),
                       "--seconds", str(seconds), "--algorithm", contestant.algorithm,
                       "--spawned-ns", str(time.monotonic_ns()), "--each-call", str(int(each_call))]
            if contestant.library == "ompi":
                return run_all([self.open_mpi(place, contestant, options, folder)], open_mpi_environment())
            if contestant.library == "talweg":
                commands, own = self.talweg(place, options, folder, store)
            elif contestant == BESIDE:
                options[options.index("--algorithm") + 1] = TALWEG.algorithm
                commands, own = Runner(self.programs_beside).talweg(place, options, folder, store)
            else:
                commands, own = getattr(self, contestant.library)(place, options, folder)
            return run_all(commands, own | (environment or {}))

    def gloo(self, place, options, folder):
        store = f"{folder}/store"
        os.mkdir(store)
        return [place.prefix(r) + [str(self.programs / "gloo_bench"), "--rank", str(r), "--store", store,
                                   "--address", place.address(r)] + options for r in range(place.ranks)], {}

    def talweg(self, place, options, folder, store=None):
        if place.rates:
            options = options + ["--interface", place.interface]
        return ([place.prefix(r) + [str(self.programs / "talweg_bench"), "--rank", str(r), "--store",
                                    store or f"{folder}/store"] + options for r in range(place.ranks)],
                talweg_environment(place, folder))

    def open_mpi(self, place, contestant, options, folder):
        mca = {"pml": "ob1", "oob_tcp_if_include": place.interface}
        number = OPEN_MPI_ALGORITHMS[contestant.algorithm]
        if number:
            mca |= {"coll_tuned_use_dynamic_rules": 1, "coll_tuned_allreduce_algorithm": number}
        # Spinning is Open MPI's best while every rank has a core, and its ruin when not; inside namespaces it
        # cannot see that ranks share the cores.
        if place.ranks > os.cpu_count():
            mca["mpi_yield_when_idle"] = 1
        if place.rates:
            mca |= {"btl": "tcp,self", "btl_tcp_if_include": place.interface, "plm_rsh_agent": agent(place, folder),
                    "plm_rsh_no_tree_spawn": 1, "orte_keep_fqdn_hostnames": 1}
            where = ["--host", ",".join(place.address(r) + ":1" for r in range(place.ranks)), "--map-by", "node"]
        else:
            mca["btl"] = "vader,self"
            where = ["--oversubscribe"]
        settings = [word for key, value in mca.items() for word in ("--mca", key, str(value))]
        launch = ["mpirun", "-np", str(place.ranks), *where, "--bind-to", "none", *settings,
                  str(self.programs / "mpi_bench"), *options]
        # A UTS namespace per node: Open MPI tells nodes apart by host name.
        return place.prefix(0) + ["unshare", "--uts", "sh", "-c", f'hostname {place.names[0]}; exec "$@"', "sh",
                                  *launch]


def agent(place, folder):
    """What Open MPI calls instead of ssh: `agent HOST COMMAND` runs the command in that host's namespace."""
    path = pathlib.Path(folder) / "agent.sh"
    base = place.names[0][:-1]
    path.write_text(f"""#!/bin/bash
while [[ $1 == -* ]]; do shift; done
name={base}$((${{1##*.}} - 1)); shift
exec ip netns exec "$name" unshare --uts sh -c "hostname $name; $*"
""")
    path.chmod(0o755)
    return str(path)


def open_mpi_environment():
    return {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def talweg_environment(place, folder):
    cluster = place.cluster_yaml()
    if not cluster:
        return {}
    path = pathlib.Path(folder) / "cluster.yaml"
    path.write_text(cluster)
    return {"TALWEG_CLUSTER": str(path)}


def run_all(commands, environment, patience=PATIENCE_SECONDS):
    """Runs the ranks side by side, for so many seconds at most. The first line that looks like JSON is the result."""
    processes = []
    with tempfile.TemporaryFile("w+") as errors:
        try:
            for command in commands:
                processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True,
                                                  env=os.environ | environment, start_new_session=True))
            return collect(processes, errors, patience)
        finally:
            for process in processes:
                stop(process)


def collect(processes, errors, patience):
    deadline = time.monotonic() + patience
    failed = None
    while any(p.poll() is None for p in processes):
        failed = next((p for p in processes if p.poll()), None)
        if failed or time.monotonic() > deadline:
            time.sleep(0.2)  # the others' words about it
            break
        time.sleep(0.01)
    for process in processes:
        stop(process)
    for process in processes:
        for line in process.stdout:
            if line.startswith("{"):
                return json.loads(line)
    if not failed and time.monotonic() > deadline:
        return {"error": f"no result in {patience} s"}
    errors.seek(0)
    said = [line.strip() for line in errors if line.strip()]
    # A Python program says what went wrong in the first line that is not indented below "Traceback".
    telling = [line for line in said if "Error" in line.split(":")[0]] or said
    return {"error": telling[0] if telling else "no result in time"}


def stop(process):
    for sig in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        try:
            os.killpg(process.pid, sig)
            process.wait(timeout=3)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass


def open_mpi_version():
    if not shutil.which("mpirun"):
        return "absent"
    return subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout.split("\n")[0].split()[-1]
