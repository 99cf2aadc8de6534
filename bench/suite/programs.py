"""Programs of bench/ that measure by themselves and print an object of JSON a line."""
import json
import subprocess


def built(settings, scenario, name):
    """Where the program is; None, and said so, where it is not built."""
    program = settings.build / "bench" / name
    if program.exists():
        return program
    print(f"# {scenario}: left out, {name} is not built")
    return None


def lines_of(program, *words):
    done = subprocess.run([program, *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"bench: {program}: {done.stderr.strip() or 'what it measured is wrong'}")
    return [json.loads(line) for line in done.stdout.splitlines()]
