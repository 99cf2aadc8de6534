"""What record() makes of notes taken by hand: every number of a step is known."""

import array
import json
import subprocess

import pytest
from test_programs import program

from talweg import _job, _steps, _timeline
from talweg._watching import Kind

# A container with a parameter of its own around two layers, and a layer after it.
LAYERS = [("body", 400, -1), ("body.a", 8000, 0), ("body.b", 0, 0), ("head", 40, -1)]
BODY, A, B, HEAD = range(4)
BUCKETS = [_job.Bucket(440, [HEAD, BODY]), _job.Bucket(8000, [A])]


def step(late=0, arrive=0):
    """(kind, index, us after the step before): `late` in the backward pass of a, so in sending its gradient."""
    return [
        (Kind.FORWARD, -1, 5), (Kind.LAYER_IN, BODY, 6), (Kind.LAYER_IN, A, 8), (Kind.LAYER_OUT, A, 18), (Kind.LAYER_IN, B, 19),
        (Kind.LAYER_OUT, B, 24), (Kind.LAYER_OUT, BODY, 25), (Kind.LAYER_IN, HEAD, 28), (Kind.LAYER_OUT, HEAD, 32), (Kind.FORWARD_END, -1, 33),
        (Kind.GRAD, HEAD, 40), (Kind.READY, 3, 44), (Kind.GRAD_END, HEAD, 45), (Kind.GRAD, BODY, 47), (Kind.READY, 0, 48), (Kind.SENT, 0, 50),
        (Kind.GRAD, B, 52), (Kind.GRAD, A, 55), (Kind.GRAD_END, B, 55), (Kind.READY, 1, 70 + late), (Kind.SENT, 1, 71 + late),
        (Kind.GRAD_END, A, 75 + late), (Kind.GRAD_END, BODY, 76 + late), (Kind.BACKWARD_END, -1, 77 + late),
        (Kind.ARRIVED, 0, 80 + arrive), (Kind.ARRIVED, 1, 100 + arrive),
        (Kind.SYNC_END, -1, 103 + arrive), (Kind.UPDATE, -1, 105 + arrive), (Kind.UPDATE_END, -1, 110 + arrive), (Kind.STEP, -1, 110 + arrive),
    ]  # fmt: skip


def seen(steps, clock=(0, 0), **more):
    """All in ns; every second all-reduce of the log is a step's second one."""
    log, start, sent = [], 0, 0
    for entries in steps:
        numbered = (Kind.SENT, Kind.ARRIVED)
        log += [(kind, index + sent if kind in numbered else index, 1000 * (start + us)) for kind, index, us in entries]
        start += entries[-1][2]
        sent += 2
    kinds, indices, times = zip(*log)
    values = dict(
        layers=LAYERS, parameters=["body.p", "body.a.w", "", "head.w"], owners=[BODY, A, -1, HEAD], after=[[], [], [], [BODY]], kinds=array.array("b", kinds),
        indices=array.array("i", indices), times=array.array("q", times), bytes=[440, 8000] * len(steps), buckets=BUCKETS,
        clock=[(clock[0], 0, times[0]), (clock[1], 0, times[-1])], batch=16, host="here", problem="")  # fmt: skip
    return _steps.Seen(**(values | more))


def made(*ranks):
    return _job.make("hand-made", ranks, [_steps.split(one, rank) for rank, one in enumerate(ranks)])


def layer(job, name):
    return next(row for row in job["layers"] if row["name"] == name)


def test_every_part_of_a_step_is_found():
    job, notes = made(seen([step()] * 4))
    times = {row["name"]: [row[k] for k in ("forward", "backward", "forward_gap", "backward_gap")] for row in job["layers"]}
    assert times == {"body": [4000, 6000, 3000, 1000], "body.a": [10000, 20000, 0, 0], "body.b": [5000, 3000, 0, 0],
                     "head": [4000, 5000, 8000, 2000]}  # fmt: skip
    # 5 before the forward pass and 1 in it, and from the last gradient's arrival at 100 to the optimiser at 105.
    assert (job["step"], job["update"], job["overhead"]) == (110000, 5000, 11000)
    assert [(e["bytes"], e["layers"], e["time"], e["wait"]) for e in job["exchanges"]] == [
        (440, ["head", "body"], 30000, 0), (8000, ["body.a"], 20000, 0)]  # fmt: skip
    assert (job["ranks"], job["batch"]) == (1, 16) and "after" not in job["layers"][A]
    assert job["in_flight"] == 2  # the first arrived at 80, the second was sent at 71
    assert notes == ["0.005 ms of a step passed between the optimiser and the forward pass: it is in overhead, as nothing hides it"]
    parts = sum(sum(t) for t in times.values()) + job["update"] + job["overhead"]
    assert parts + (100 - 77) * 1000 == job["step"]  # the rest is what DDP waited for


def test_a_layer_around_others_stands_where_its_own_parameters_are_used():
    def order(ready):
        """With body's gradient at another time."""
        entries = sorted([(k, i, ready if (k, i) == (Kind.READY, 0) else us) for k, i, us in step()], key=lambda entry: entry[2])
        job, _ = made(seen([entries] * 3))
        return [row["name"] for row in job["layers"]], [row["name"] for row in job["layers"] if row.get("forward_gap")]

    assert order(48) == (["body.a", "body.b", "body", "head"], ["body", "head"])
    # The gap behind all of body is behind what stands last of it.
    assert order(53) == (["body.a", "body", "body.b", "head"], ["body.b", "head"])
    assert order(76) == (["body", "body.a", "body.b", "head"], ["body.b", "head"])


def test_a_late_rank_makes_the_others_wait_and_means_are_over_ranks():
    job, _ = made(seen([step(arrive=8)] * 4), seen([step(late=8, arrive=8)] * 4))
    assert layer(job, "body.a")["backward"] == 24000 and job["step"] == 118000
    # Rank 0 sent at 71, rank 1 at 79; the one before arrived at 88, so neither waited for the other.
    assert [(e["time"], e["wait"]) for e in job["exchanges"]] == [(38000, 0), (20000, 0)]
    # Where the first has long arrived, rank 0 waits for 5 of its 29.
    early = [(k, i, 55 if (k, i) == (Kind.ARRIVED, 0) else us) for k, i, us in step()]
    late = [(k, i, 55 if (k, i) == (Kind.ARRIVED, 0) else us) for k, i, us in step(late=5)]
    job, _ = made(seen([early] * 4), seen([late] * 4))
    assert [(e["time"], e["wait"]) for e in job["exchanges"]] == [(5000, 0), (24000, 2500)]
    assert "in_flight" not in job  # one after the other


def test_passes_before_the_last_are_part_of_layers_forward_times():
    accumulated = [entry for entry in step() if entry[0] not in (Kind.SENT, Kind.ARRIVED) and entry[2] <= 77]
    twice = [*accumulated, (Kind.SYNC_END, -1, 78), *((kind, index, us + 80) for kind, index, us in step())]
    job, notes = made(seen([twice] * 4))
    times = {row["name"]: [row.get(k) for k in ("forward", "backward", "forward_gap", "backward_gap")] for row in job["layers"]}
    assert times == {"body": [14000, 6000, 7000, 1000], "body.a": [40000, 20000, 0, 0], "body.b": [13000, 3000, 0, 0],
                     "head": [13000, 5000, 18000, 2000]}  # fmt: skip
    assert (job["step"], job["update"], job["overhead"]) == (190000, 5000, 20000)  # 8 between the passes
    assert sum(sum(t) for t in times.values()) + job["update"] + job["overhead"] + (100 - 77) * 1000 == job["step"]
    assert any("a step has 2 forward passes" in note for note in notes)


def test_an_optimiser_that_is_given_the_step_updates_behind_the_exchanges():
    """It begins before the forward pass, which is where the step before is over."""
    given = step()[:-3] + [(Kind.UPDATE_END, -1, 110), (Kind.UPDATE, -1, 112), (Kind.STEP, -1, 113)]
    job, notes = made(seen([given] * 4))
    assert (job["update"], job["step"]) == (7000, 113000)
    assert not any("optimiser updated" in note for note in notes)


def test_one_slow_step_is_not_seen():
    job, _ = made(seen([step(), step(), step(late=900, arrive=900), step()]))
    assert job["step"] == 110000 and layer(job, "body.a")["backward"] == 20000


def test_parts_that_differ_from_step_to_step_add_up_to_the_step():
    # One of four equally long steps is late in a backward pass, which the median of steps would not see.
    lates = [step(late=late, arrive=12) for late in (0, 0, 12, 0)]
    job, _ = made(seen([step(), step(late=90, arrive=90), step(), *lates, step(), step(late=90, arrive=90)]))
    assert job["step"] == 122000 and layer(job, "body.a")["backward"] == 23000
    parts = sum(sum(row[k] for k in ("forward", "backward", "forward_gap", "backward_gap")) for row in job["layers"])
    exposed = 100 + 12 - (77 + 3)  # from the backward pass, which is 3 late in the mean, to the last arrival
    assert parts + job["update"] + job["overhead"] + 1000 * exposed == job["step"]


def test_an_all_reduce_has_the_network_when_those_before_it_have_arrived():
    sent = [_steps.Exchange(1, begin, end) for begin, end in ((0, 100), (10, 130), (20, 110), (200, 250))]
    assert _job.service(sent) == [100, 20, 10, 50]


@pytest.mark.parametrize(("ranks", "why"), [
    ([seen([step()])], "rank 0 saw no whole step after the warm-up"),
    ([seen([step()] * 3, problem="gone")], "rank 0: gone"),
    ([seen([step()] * 3), seen([step()] * 3, layers=LAYERS[:3] + [("tail", 40, -1)])], "rank 1 ran other layers than rank 0"),
    ([seen([step()] * 3), seen([step()] * 3, bytes=[440, 4000] * 3)], "rank 1 sent other all-reduces than rank 0"),
    ([seen([step()] * 3, bytes=[440, 8000, 440, 8000, 440, 9000])], "sent 2 all-reduces of 8440 bytes, then 2 of 9440"),
    ([seen([step()] * 3, buckets=[_job.Bucket(8000, [A]), BUCKETS[0]])], "sent 440 bytes as all-reduce 0 of a step, where its bucket has 8000"),
    ([seen([step()] * 2 + [[e for e in step() if e[0] != Kind.ARRIVED]])], "rank 0: all-reduce 4 of the window did not come to an end"),
    ([seen([step(), [e for e in step() if e[1] != B or e[0] > Kind.LAYER_OUT], step()])], "it ran body.b in one of them only"),
])  # fmt: skip
def test_what_makes_no_job_is_said(ranks, why):
    with pytest.raises(_steps.NotRecorded) as caught:
        made(*ranks)
    assert why in str(caught.value) and "\n" not in str(caught.value)


def test_the_file_form_has_units_and_leaves_out_what_is_nothing():
    job, _ = made(seen([step()] * 3))
    assert _job.to_yaml(job | {"name": 'odd: "name"'}).splitlines() == [
        r'name: "odd: \"name\""', "origin: measured", "ranks: 1", "batch: 16", "update: 5000ns", "overhead: 11000ns",
        "step: 110000ns", "in_flight: 2", "layers:",
        '  - {name: "body.a", forward: 10000ns, backward: 20000ns, gradient: 8000B}',
        '  - {name: "body.b", forward: 5000ns, backward: 3000ns}',
        '  - {name: "body", forward: 4000ns, backward: 6000ns, forward_gap: 3000ns, backward_gap: 1000ns, gradient: 400B}',
        '  - {name: "head", forward: 4000ns, backward: 5000ns, forward_gap: 8000ns, backward_gap: 2000ns, gradient: 40B}',
        "exchanges:",
        '  - {op: all_reduce, bytes: 440B, layers: ["head", "body"], time: 30000ns}',
        '  - {op: all_reduce, bytes: 8000B, layers: ["body.a"], time: 20000ns}',
    ]  # fmt: skip


def test_names_of_any_characters_can_be_read(tmp_path):
    control = "".join(map(chr, range(1, 0xa0)))
    for name, read in (("🚀 run", "🚀 run"), ("\U0010ffff\u2028\ufeff", "\U0010ffff\u2028\ufeff"), (control, control), ("\ud800", "?")):
        _job.write(made(seen([step()] * 3, layers=[*LAYERS[:3], (name, 40, -1)]))[0] | {"name": name}, tmp_path / "job.yaml")
        done = subprocess.run([program(), "predict", tmp_path / "job.yaml", "--rate", "1Gbit/s", "-n", "2", "--strategy", "wfbp", "--json",
                               "-", "-o", tmp_path / "plan.json"], capture_output=True, text=True, check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))["buckets"][0]["layers"] == [read]


def test_ranks_are_laid_on_one_clock_that_may_drift(tmp_path):
    ranks = [seen([step()] * 3), seen([step(late=4)] * 3, clock=(-1_000_000, -1_000_110))]
    _timeline.write(ranks, [_steps.split(one, 0) for one in ranks], tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())
    begins = [next(e["ts"] for e in events if e["pid"] == rank and e.get("name") == "body.a") for rank in (0, 1)]
    assert begins[0] - begins[1] == pytest.approx(1000, abs=0.06)
    arrows = [e for e in events if e["ph"] in "sf"]
    assert {(e["ph"], e["pid"]) for e in arrows} == {("s", 0), ("f", 1)}  # rank 1's clock is behind, so rank 0 is the last
    lanes = {e["tid"] for e in events if e.get("name", "").startswith("all-reduce ")}
    assert lanes == {_timeline.SENT, _timeline.SENT + 1}  # the two overlap
