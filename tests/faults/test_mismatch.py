"""Ranks that disagree: every difference on every rank is a mismatch on all, no buffer is written, and the group goes on."""
import itertools

import lab

SAME = "all_reduce,1000,f32,sum,0"
# (what the odd rank calls, what the others call)
PAIRS = {
    "count": [(f"all_reduce,{odd},f32,sum,0", SAME) for odd in (999, 1001, 2000, 0, 300_000)],
    "type": [(f"all_reduce,1000,{odd},sum,0", SAME) for odd in ("i32", "f64", "bf16", "u8")],
    "reduction": [(f"all_reduce,1000,f32,{odd},0", SAME) for odd in ("max", "avg", "product")],
    "root": [(f"{op},1000,f32,sum,1", f"{op},1000,f32,sum,0") for op in ("broadcast", "reduce", "gather", "scatter")],
    "operation": [(f"{odd},1000,f32,sum,0", SAME)
                  for odd in ("broadcast", "reduce", "reduce_scatter", "all_gather", "all_to_all", "barrier")],
}


def steps(pairs, rank, odd):
    calls = [f"call={mine if rank == odd else others}" for mine, others in pairs]
    # After each mismatch the group must still work.
    return ["join", *itertools.chain.from_iterable((call, f"call={SAME}") for call in calls)]


class Mismatch(lab.Case):
    def disagree(self, hosts, pairs):
        ranks = 3
        for odd in range(ranks):
            with self.subTest(odd=odd), lab.Lab(hosts) as place:
                started = place.start_all(ranks, lambda rank, odd=odd: steps(pairs, rank, odd))
                for rank in started:
                    rank.expect("joined")
                    for mine, others in pairs:
                        with self.subTest(rank=rank.rank, odd_calls=mine, others_call=others):
                            rank.expect("buffer untouched")
                            event = rank.expect("error")
                            self.assertEqual(event["code"], "mismatch", event)
                            for call in (mine, others):
                                self.assertIn(call.split(",")[0], event["text"])
                            self.assertIn(f"rank {odd} (", event["text"])
                            self.assertIn("#", event["text"])
                            self.assertIn("phase ", event["text"])
                            rank.expect("called")


def add(name, hosts, pairs):
    where = "one_host" if hosts == 1 else "several_hosts"
    setattr(Mismatch, f"test_another_{name}_on_{where}", lambda self: self.disagree(hosts, pairs))


for subject, cases in PAIRS.items():
    for machines in (1, 3):
        add(subject, machines, cases)


if __name__ == "__main__":
    lab.main()
