// Collectives on simulated ranks: forests turned into operations, and calls one behind the other.
#pragma once

#include <cstdlib>
#include <memory>
#include <vector>

#include "forest/forest.h"
#include "sim/ranks.h"
#include "sim/trace.h"

namespace talweg::sim {

// What one rank passes to its session for its part of a forest. `sums`: null for payloads that are not
// carried, then nothing is added up.
protocol::Operation operation_for(const std::shared_ptr<const forest::Forest>& forest, int rank,
                                  DataType type, ReduceOp reduction, const std::byte* in, std::byte* out,
                                  bool carry_payloads);

// Operands of payloads that are not carried: never read or written but by address arithmetic and copies of
// zeros, so all ranks share them.
class SharedOperands {
 public:
  explicit SharedOperands(const forest::Forest& forest);
  const std::byte* in() const { return in_.get(); }
  std::byte* out() const { return out_.get(); }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> in_, out_;
};

// How `calls` collectives of one forest went, each rank starting the next when it has ended the last.
// Payloads are not carried. `warm_up` calls before are not counted.
struct CallTimes {
  std::vector<Picoseconds> of_call;               // mean over the ranks of what each call took
  std::vector<std::vector<Picoseconds>> of_rank;  // by call and rank
  Picoseconds total = 0;                          // of all calls, mean over the ranks
};
// Throws what the operations ended in; Error{timeout} that names the ranks when the horizon comes first.
CallTimes run_calls(Simulation& simulation, Ranks& ranks, const std::shared_ptr<const forest::Forest>& forest,
                    DataType type, int warm_up, int calls, Picoseconds horizon, Trace* trace = nullptr);

}  // namespace talweg::sim
