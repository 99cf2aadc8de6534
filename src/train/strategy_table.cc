#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/fail.h"
#include "train/strategies.h"

namespace talweg::train {
namespace {

using enum Strategy::Input;
using enum Strategy::Sending;
using Rule = Merging::Rule;

constexpr Bytes kP3Slice{50'000 * 4};            // 50,000 parameters
constexpr Bytes kByteSchedulerPiece{8'000'000};  // what its authors advise for all-reduce
constexpr Bytes kByteSchedulerCredit{16'000'000};
constexpr Bytes kDearGroup{25'000'000};

Strategy sent(const char* name, const char* description, Strategy::Sending sending, Rule rule,
              Strategy::Input input = read_and_copy_ahead) {
  return {.name = name,
          .description = description,
          .input = input,
          .sending = sending,
          .merging = {.rule = rule}};
}

std::vector<Strategy> make_table() {
  std::vector<Strategy> table{
      sent("naive", "one thing after the other: read, copy, compute, exchange layer by layer", after_backward,
           Rule::none, serial),
      sent("io", "naive, but the next batch is read while a step runs", after_backward, Rule::none,
           read_ahead),
      sent("io-copy", "naive, but the next batch is read and copied while a step runs", after_backward,
           Rule::none),
      sent("one", "all gradients in one call behind the backward pass (SyncEASGD)", after_backward,
           Rule::all),
      sent("wfbp", "wait-free back-propagation: each gradient is sent once it is ready", as_ready,
           Rule::none),
      sent("ddp", "PyTorch's DistributedDataParallel: buckets of 1 MiB, then 25 MiB", as_ready,
           Rule::by_size),
      sent("mg-wfbp", "gradients merged by MG-WFBP's rule", as_ready, Rule::mg_wfbp),
      sent("exact", "gradients merged so that the last is exchanged as early as can be", as_ready,
           Rule::exact),
      sent("p3", "gradients cut into slices of 50,000 parameters, the next forward pass's first need first",
           by_priority, Rule::none),
      sent("bytescheduler", "pieces of 8 MB by priority, 16 MB under way", by_priority, Rule::none),
      sent("dear", "reduce-scatter behind the backward pass, all-gather behind the next forward pass",
           decoupled, Rule::by_size),
      sent("fsdp", "weights sharded over the ranks and gathered a group ahead of their use", sharded,
           Rule::by_size),
      sent("caffe-mpi", "Caffe-MPI: reads and copies ahead, each gradient sent once it is ready", as_ready,
           Rule::none),
      sent("cntk", "CNTK: reads ahead, gradients sent behind the backward pass", after_backward, Rule::none,
           read_ahead),
      sent("mxnet", "MXNet: reads ahead, each gradient sent once it is ready", as_ready, Rule::none,
           read_ahead),
      sent("tensorflow", "TensorFlow: reads ahead, each gradient sent once it is ready", as_ready, Rule::none,
           read_ahead),
  };
  for (Strategy& strategy : table) {
    if (strategy.name == "p3") strategy.partition = kP3Slice;
    if (strategy.name == "bytescheduler") {
      strategy.partition = kByteSchedulerPiece;
      strategy.credit = kByteSchedulerCredit;
    }
    if (strategy.name == "dear") strategy.merging.first_cap = strategy.merging.cap = kDearGroup;
    if (strategy.name == "fsdp") strategy.merging.first_cap = strategy.merging.cap;
  }
  return table;
}

}  // namespace

const char* name(Merging::Rule rule) {
  static constexpr const char* kNames[] = {"none", "all", "by_size", "mg_wfbp", "exact", "recorded", "given"};
  return kNames[static_cast<std::size_t>(rule)];
}

const std::vector<Strategy>& strategies() {
  static const std::vector<Strategy> kTable = make_table();
  return kTable;
}

const Strategy& find_strategy(const std::string& name) {
  std::vector<std::string> names;
  for (const Strategy& strategy : strategies()) {
    if (strategy.name == name) return strategy;
    names.push_back(strategy.name);
  }
  refuse("no strategy is called \"{}\"; there are {}", name, fmt::join(names, ", "));
}

}  // namespace talweg::train
