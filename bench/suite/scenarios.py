"""All scenarios: what each is called, for how many ranks it is measured, and what makes its rows."""
import functools

import aggregator
import all_reduce
import baselines
import bursts
import datagrams
import density
import drawn
import fabric
import faults
import loss
import mesh
import planning
import predict
import probe
import replay
import recommender
import security
import seeing
import simulator
import startup
import streaming
import switching
import traces
import training
import transport
import unseen

# Name: (title, ranks, rows).
SCENARIOS = {
    "host": ("Ranks on one host", [2, 4, 8], functools.partial(all_reduce.rows_of, "host")),
    "net": ("A network on which all are equal", [2, 4, 8], functools.partial(all_reduce.rows_of, "net")),
    "uneven": ("Odd ranks on slower links", [4, 8], functools.partial(all_reduce.rows_of, "uneven")),
    "mesh": ("A link of its own between every two", [8], mesh.rows),
    "fabric": ("Racks on uplinks that differ", [16, 32], fabric.rows),
    "aggregator": ("A machine that sums for the ranks", [4, 8], aggregator.rows),
    "streaming": ("A switch that sums for the ranks", [4, 8], streaming.rows),
    "density": ("A switch that sums sparse vectors", [2, 4, 8], density.rows),
    "switching": ("A switch where it is hard", [4, 8], switching.rows),
    "startup": ("Joining", [16], startup.rows),
    "faults": ("A rank that is killed", [8], faults.rows),
    "torch": ("PyTorch's all-reduce", [4], training.torch_rows),
    "collectives": ("PyTorch's collectives", [8], training.collectives_rows),
    "ddp": ("PyTorch's DDP", [4], training.ddp_rows),
    "recommender": ("A model with embeddings", [4], recommender.rows),
    "transport": ("Frames over datagrams", [2, 4, 8], transport.rows),
    "loss": ("Sums that may lose a part", [8], loss.rows),
    "bursts": ("Sums that may lose a part, where programs' packets are lost in bursts", [8], bursts.rows),
    "baselines": ("Training beside bursts of others", [8], baselines.rows),
    "datagrams": ("Datagrams", [2], datagrams.rows),
    "security": ("Checksums, encryption, handshakes", [4], security.security_rows),
    "seeing": ("Recorder and metrics", [2, 4], seeing.rows),
    "strangers": ("Strange connections", [4], security.strangers_rows),
    "sim": ("The packet simulator", [1], simulator.rows),
    "predict": ("Predicted times", [2, 4, 6, 8], predict.rows),
    "drawn": ("Predicted and simulated times", [3, 8, 16, 32], drawn.rows),
    "unseen": ("Predicted, simulated and measured times", [4, 8, 16, 32], unseen.rows),
    "traces": ("Reading traces of training", [1], traces.rows),
    "replay": ("Recorded steps, played back", [2, 4], replay.rows),
    "probe": ("Finding a network out", [4, 8], probe.rows),
    "plan": ("Planning", [1024], planning.rows),
}
RANKS = {name: ranks for name, (_, ranks, _) in SCENARIOS.items()}


def rows_of(scenario, records):
    """The rows that these records fill, and every other of the scenario that has a target as not measured."""
    _, ranks, rows = SCENARIOS[scenario]
    return list(rows(records, sorted({*ranks, *(record["ranks"] for record in records if "ranks" in record)} if scenario != "plan"
                                     else ranks)))
