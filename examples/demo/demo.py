"""Trains the same network over gloo and over Talweg on four workers, and shows the two side by side.

    .venv/bin/python examples/demo/demo.py [--build build] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
CLUSTER = HERE.parent / "clusters" / "uneven4.yaml"
WORKERS = 4


def launcher(talweg: Path) -> tuple[list[str], str]:
    """The command that starts the workers, and in words where they run."""
    lab = [str(talweg), "lab", "run", str(CLUSTER), "--"]
    trial = subprocess.run([*lab, "true"], capture_output=True, text=True)
    if trial.returncode == 0:
        return lab, "two fast hosts (1 Gbit/s) and two slow hosts (200 Mbit/s) in an emulated network"
    reason = (trial.stderr.strip() or trial.stdout.strip() or f"exit code {trial.returncode}").splitlines()[-1]
    print(f"NOTE: the emulated network cannot be built here: {reason}")
    print("NOTE: the workers share this machine's loopback instead, which is far faster than any network; "
          "expect little difference.\n")  # fmt: skip
    return [str(talweg), "run", "-n", str(WORKERS), "--"], "loopback (no emulated network on this machine)"


def train(start: list[str], backend: str, build: Path, steps: int) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        environment = dict(os.environ)
        environment["OMP_NUM_THREADS"] = "1"  # a worker is one core's worth, on every machine
        environment["TORCH_CPP_LOG_LEVEL"] = "ERROR"  # hosts of the emulated network have no names to look up
        environment["PYTHONPATH"] = f"{build / 'python'}{os.pathsep}{environment.get('PYTHONPATH', '')}"
        command = [*start, sys.executable, str(HERE / "train.py"), "--backend", backend, "--steps", str(steps),
                   "--json", str(result)]  # fmt: skip
        done = subprocess.run(command, env=environment)
        if not result.exists():
            sys.exit(f"demo: training over {backend} failed with exit code {done.returncode}: {' '.join(command)}")
        return json.loads(result.read_text())


def table(gloo: dict, talweg: dict) -> str:
    def row(name: str, value) -> tuple[str, str, str]:
        return name, value(gloo), value(talweg)

    def predicted(result: dict) -> str:
        seconds = result["all_reduce_predicted_s"]
        return "-" if seconds is None else f"{seconds:.3f} s"

    rows = [
        ("", "gloo", "talweg"),
        row("test accuracy", lambda r: f"{r['test_accuracy']:.1%}"),
        row("test loss", lambda r: f"{r['test_loss']:.3f}"),
        row("step time (median)", lambda r: f"{r['step_s']:.3f} s"),
        row("  in synchronisation", lambda r: f"{r['sync_s']:.3f} s"),
        row("speed-up of a step", lambda r: f"{gloo['step_s'] / r['step_s']:.2f} x"),
        row(f"all-reduce of {4 * gloo['parameters'] / 1e6:.0f} MB alone", lambda r: f"{r['all_reduce_s']:.3f} s"),
        row("  as predicted", predicted),
        row("replicas bit-equal", lambda r: "yes" if r["replicas_equal"] else "NO"),
    ]
    widths = [max(len(r[column]) for r in rows) for column in range(3)]
    return "\n".join(f"  {a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}" for a, b, c in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=HERE.parent.parent / "build", help="the build folder")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--json", type=Path, help="also write both results there")
    options = parser.parse_args()
    build = options.build.resolve()
    if not (build / "talweg").exists():
        sys.exit(f"demo: {build / 'talweg'} does not exist; run make build first")

    start, where = launcher(build / "talweg")
    print(f"{WORKERS} workers on {where}\n", flush=True)
    gloo, talweg = (train(start, backend, build, options.steps) for backend in ("gloo", "talweg"))
    print(f"\n{WORKERS} workers on {where},\n{gloo['parameters'] / 1e6:.1f} million parameters, {options.steps} steps, "
          f"same seeds:\n\n{table(gloo, talweg)}\n")  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps({"where": where, "gloo": gloo, "talweg": talweg}, indent=1))
    return 0 if gloo["replicas_equal"] and talweg["replicas_equal"] else 1


if __name__ == "__main__":
    sys.exit(main())
