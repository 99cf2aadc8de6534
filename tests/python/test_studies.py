"""talweg.plan(), talweg.predict() and talweg.simulate() return what the commands of these names write as JSON."""

import gzip
import json
import keyword
import os
import pathlib
import re
import signal
import subprocess

import pytest
import talweg

PROGRAM = os.environ["TALWEG_PROGRAM"]
CLUSTERS = pathlib.Path(os.environ["TALWEG_CLUSTERS"])
UNEVEN = CLUSTERS / "uneven4.yaml"
VGG = CLUSTERS.parent / "jobs" / "vgg16.yaml"


def command(*arguments):
    done = subprocess.run([PROGRAM, *map(str, arguments), "--json", "-"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_plan_is_what_the_command_writes():
    assert talweg.plan(UNEVEN, bytes="64K,1M") == command("plan", UNEVEN, "--bytes", "64K,1M")
    found = talweg.plan(UNEVEN, op="broadcast", root=2, bytes=65536, algo=["ring", "star", "chain"][1:])
    assert found == command("plan", UNEVEN, "--op", "broadcast", "--root", 2, "--bytes", 65536, "--algo", "star,chain")
    assert found["collective"] == "broadcast" and found["root"] == 2


def test_plan_is_told_the_format_of_a_file():
    told = talweg.plan(UNEVEN, bytes="64K", format="talweg")
    assert told == talweg.plan(UNEVEN, bytes="64K") == command("plan", UNEVEN, "--bytes", "64K", "--from", "talweg")


def test_predict_is_what_the_command_writes():
    found = talweg.predict(VGG, cluster=UNEVEN)
    assert found == command("predict", VGG, "--cluster", UNEVEN)
    assert found["ranks"] == 4 and found["plan"]["buckets"]
    some = talweg.predict([VGG], alpha_beta="523us,0.857ns/B", ranks=[4, 8], strategy=["ddp", "exact"], bucket_cap="8M", faster=2)
    assert some == command("predict", VGG, "--alpha-beta", "523us,0.857ns/B", "-n", "4,8", "--strategy", "ddp,exact",
                           "--bucket-cap", "8M", "--faster", 2)
    assert [row["name"] for row in some["strategies"]] == ["exact", "ddp"]
    simulated = talweg.predict(VGG, cluster=UNEVEN, times="simulated", strategy=["ddp"])
    assert simulated == command("predict", VGG, "--cluster", UNEVEN, "--times", "simulated", "--strategy", "ddp")
    assert simulated["network"]["times"] == "simulated"


def test_reading_a_trace_is_interrupted(tmp_path):
    # Gigabytes of blanks, which unpack for seconds, behind the beginning of a trace.
    path = tmp_path / "endless.json.gz"
    blanks = gzip.compress(b" " * (64 << 20), 1)
    path.write_bytes(gzip.compress(b'{"schemaVersion": 1, "traceEvents": [') + blanks * 64)

    def interrupt(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt) as raised:
            talweg.predict(path, rate="1Gbit/s", ranks=2)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert raised.value.__context__ is None  # it is not that the file was read to its end, and refused


def test_simulate_is_what_the_command_writes():
    assert talweg.simulate(str(UNEVEN), bytes="64K..256K", loss=0.001, seed=7, trim=False) == command(
        "simulate", UNEVEN, "--bytes", "64K..256K", "--loss", 0.001, "--seed", 7)
    assert talweg.simulate(topology="star:hosts=4", fail=["h1@1ms..2ms"], least_rto="5ms", iters=1) == command(
        "simulate", "--topology", "star:hosts=4", "--fail", "h1@1ms..2ms", "--least-rto", "5ms", "--iters", 1)


@pytest.mark.parametrize("call, code, text", [
    (lambda: talweg.plan("/nowhere.yaml"), "bad_file", "/nowhere.yaml"),
    (lambda: talweg.plan(UNEVEN, op="juggle"), "invalid_argument", 'no collective is called "juggle"'),
    (lambda: talweg.plan(UNEVEN, format="xml"), "invalid_argument", 'format: expected '),
    (lambda: talweg.plan(UNEVEN, format="nccl"), "bad_file", "uneven4.yaml"),
    (lambda: talweg.predict(VGG, ranks=4), "invalid_argument", "on which network?"),
    (lambda: talweg.predict(VGG, rate="fast", ranks=2), "invalid_argument", 'rate: bandwidth "fast": expected '),
    (lambda: talweg.predict(VGG, rate="1Gbit/s", ranks=1), "invalid_argument", "ranks: expected a whole number from 2"),
    (lambda: talweg.predict(UNEVEN, rate="1Gbit/s", ranks=2), "bad_file", "uneven4.yaml"),
    (lambda: talweg.simulate(topology="star:hosts=4", least_rto="soon"), "invalid_argument", 'least_rto: time "soon": expected '),
    (lambda: talweg.simulate(UNEVEN, iters=0), "invalid_argument", "iters: expected a whole number from 1"),
    (lambda: talweg.simulate(), "invalid_argument", "expected a file of the network"),
])
def test_what_cannot_be_is_a_talweg_error(call, code, text):
    with pytest.raises(talweg.Error) as raised:
        call()
    assert raised.value.code == code
    assert text in str(raised.value) and not str(raised.value).startswith("-")


def test_names_are_checked():
    with pytest.raises(TypeError, match="no argument is called sizes"):
        talweg.simulate(UNEVEN, sizes="1M")
    with pytest.raises(TypeError, match="one argument is taken without a name, 2 were given"):
        talweg.plan(UNEVEN, "ring")


@pytest.mark.parametrize("call, text", [
    (lambda: talweg.predict(b"x"), "predict: job: expected a str or a path, or several, got b'x' (bytes)"),
    (lambda: talweg.predict(["a.yaml", b"x"]), "predict: job: expected a str or a path, or several, got ['a.yaml', b'x'] (list)"),
    (lambda: talweg.predict(5), "predict: job: expected a str or a path, or several, got 5 (int)"),
    (lambda: talweg.predict(object), "predict: job: expected a str or a path, or several, got <class 'object'> (type)"),
    (lambda: talweg.predict(VGG, rate=b"1"), "predict: rate: expected a str, a path or a number, or several, got b'1' (bytes)"),
    (lambda: talweg.predict(VGG, ranks={2: 4}), "predict: ranks: expected a str, a path or a number, or several, got {2: 4} (dict)"),
    (lambda: talweg.plan(b"x"), "plan: cluster: expected a str, a path or a number, or several, got b'x' (bytes)"),
    (lambda: talweg.simulate(UNEVEN, pacing="no"), "simulate: pacing: expected True or False, got 'no' (str)"),
])
def test_what_is_of_another_type_is_said_in_one_line(call, text):
    with pytest.raises(TypeError) as raised:
        call()
    assert str(raised.value) == text


def test_the_arguments_are_in_the_docstrings():
    for function, names in ((talweg.plan, ("patience=20s", "algo", "format")), (talweg.predict, ("job", "strategy=all", "alpha_beta")),
                            (talweg.simulate, ("least_rto=auto", "bytes=1M"))):
        for name in names:
            assert f"\n    {name}: " in function.__doc__
        for name in re.findall(r"^    (\w+)[=:]", function.__doc__.split("Arguments:")[1], re.MULTILINE):
            assert name.isidentifier() and not keyword.iskeyword(name)
