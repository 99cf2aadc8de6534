// Strategies: how the steps of a job run (when batches are read, which gradients travel together, when, and
// what waits for them), and what a step takes then.
//
//   Setting setting{.network = network_of("10 GbE", 8, linear_times(523e-6, 0.857e-9))};
//   const Prediction now = predict(job, find_strategy("ddp"), setting);
//   now.step;                     // seconds
//   now.bottleneck;               // "of 69.8 ms a step, 31.2 ms (45 %) wait for gradients: ..."
//   for (const Span& span : now.timeline) ...    // for a picture
//
// A step's DAG is built several times over, one step after the other, and run (dag.h); what is told is the
// steady state: the mean of the last steps, since steps overlap where strategies let them. Ranks are alike
// and share one picture, unless Setting::slowness says what each one's device needs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "train/dag.h"
#include "train/job.h"
#include "train/merging.h"
#include "train/transfer_times.h"

namespace talweg::train {

// Which gradients travel together.
struct Merging {
  enum class Rule {
    none,      // each alone
    all,       // one for all
    by_size,   // DistributedDataParallel's buckets: `first_cap`, then `cap`; its bucket_cap_mb sets both
    mg_wfbp,   // merge_mg_wfbp()
    exact,     // merge_in_flight(): the least there is with one transfer in flight, else the best found
    recorded,  // as Job::exchanges has them, which must say their layers; a layer may be in several
    given      // `groups`
  };
  Rule rule = Rule::by_size;
  Bytes first_cap{1 << 20};  // DistributedDataParallel's own caps, where it is given none
  Bytes cap{25 << 20};
  std::vector<std::vector<int>> groups{};  // layers; those that are in none travel alone
  bool operator==(const Merging&) const = default;
};
const char* name(Merging::Rule rule);

struct Strategy {
  // Reading and copying the next batch while a step runs.
  enum class Input { serial, read_ahead, read_and_copy_ahead };
  enum class Sending {
    after_backward,  // once the whole backward pass has ended
    as_ready,        // once all of a group is ready, groups in the order in which they become so
    by_priority,     // first what the next forward pass needs first; layers update one by one
    decoupled,       // reduce-scatter as ready, all-gather as the next forward pass comes to it (DeAR)
    sharded          // weights gathered before each use, gradients scattered (FSDP, ZeRO-3)
  };

  std::string name{};
  std::string description{};  // one sentence
  Input input = Input::read_and_copy_ahead;
  Sending sending = Sending::as_ready;
  Merging merging{};
  // by_priority: gradients are cut into pieces of at most so many bytes (0: not cut), and so many bytes may
  // be under way before a more urgent one must wait behind them (0: one piece at a time).
  Bytes partition{}, credit{};
  // decoupled: no all-gather before all reduce-scatters have ended.
  bool barrier = true;
  // decoupled, sharded: groups that are gathered ahead of the one in use. 0: decoupled gathers as soon as it
  // may, without waiting for the forward pass to come near; sharded gathers each when it is needed.
  int look_ahead = 1;
  bool operator==(const Strategy&) const = default;
};

// All that have a name: the plain ones, published schedulers, and frameworks as the DAG model's authors
// describe them.
const std::vector<Strategy>& strategies();
// Throws Error{invalid_argument} that lists the names there are.
const Strategy& find_strategy(const std::string& name);

// That a setting may scale compute, the batch, compression or a rank's compute by, and one over it.
inline constexpr double kMostScale = 1e6;

// What a job runs on. All numbers but the network's times are relative to what the job was recorded on.
struct Setting {
  NetworkTimes network{};
  double compute = 1;      // how much faster devices compute: busy times are divided by it, gaps are not
  double batch = 1;        // how many times the samples: compute, reading and copying grow with them
  double compression = 1;  // gradients are sent in bytes divided by this
  // Transfers under way at once: their start-ups overlap, their bytes share the network. NCCL's follow each
  // other on one stream; Talweg and gloo keep several in flight.
  int in_flight = 1;
  int readers = 1;         // ranks that read from one disk, one after the other
  bool peer_waits = true;  // ranks are as late as the job's exchanges recorded it
  // By rank: how many times as long its device computes. Empty: all alike.
  std::vector<double> slowness{};
  // The network between the ranks that recorded the job, where `network` was worked out from the job's own
  // exchanges: those without gradients take what they took there, times what `network` takes over this one.
  std::optional<NetworkTimes> recorded_on{};
  bool operator==(const Setting&) const = default;
};

// One task in the picture. Times are in seconds from the beginning of the window.
struct Span {
  int rank = 0;            // -1: all ranks share it
  std::string resource{};  // "device", "input", "copy", "network"
  std::string label{};     // "forward conv1", "all_reduce fc .. conv4 (1.2 MiB)"
  double start = 0;
  double end = 0;
  TaskKind kind = TaskKind::forward;
  int step = 0;               // of the window: 0, 1
  int first = -1, last = -1;  // layers; -1: none
  double bytes = 0;
  bool critical = false;  // on the critical path of the window's last step
  bool operator==(const Span&) const = default;
};

// What the slowest device does in a step, on average in the steady state; the parts add up to the step.
struct StepParts {
  double forward = 0, backward = 0, update = 0;  // busy
  double gap = 0;                                // waiting for its host or other streams
  double overhead = 0;                           // the rest of a step
  double input = 0;                              // waiting for a batch
  double exposed = 0;                            // waiting for transfers
  double peer_wait = 0;                          // waiting for ranks that are late
  double busy() const { return forward + backward + update; }
  double total() const { return busy() + gap + overhead + input + exposed + peer_wait; }
  bool operator==(const StepParts&) const = default;
};

struct PathPart {
  TaskKind kind = TaskKind::forward;
  int first = -1, last = -1;  // layers
  std::string label{};
  double seconds = 0;
  bool operator==(const PathPart&) const = default;
};

struct Prediction {
  double step = 0;  // seconds
  StepParts parts{};
  double transfers = 0;  // seconds a step that the network is busy
  double startups = 0;   // of these, start-ups
  double sent = 0;       // bytes a step, of the vectors of all calls
  int calls = 0;         // a step
  std::vector<std::vector<int>>
      groups{};                      // layers that travelled together, in the order of the backward pass
  std::vector<PathPart> critical{};  // what the last step waited for, earliest first; adds up to its time
  std::string bottleneck{};          // one or two sentences
  std::vector<Span> timeline{};      // the last two steps, by resource, then time
  bool operator==(const Prediction&) const = default;
};

// Throws Error{invalid_argument} for a job that is not valid, a setting without sense, or a strategy that the
// job cannot follow (recorded groups where none are recorded).
Prediction predict(const Job& job, const Strategy& strategy, const Setting& setting);

// The same without `critical`, `bottleneck` and `timeline`, which take longer to write than all else: for
// searches and curves.
Prediction predict_numbers(const Job& job, const Strategy& strategy, const Setting& setting);

// What the job itself recorded, played back: its groups in their order with their own times. What that misses
// of Job::step is the model's error.
Prediction replay(const Job& job);

// The gradients as a backward pass makes them ready, with their layers: what merging is told.
struct Gradients {
  std::vector<Arrival> arrivals;
  std::vector<int> layers;  // of each arrival
};
Gradients gradients_of(const Job& job, const Setting& setting);
// The groups of a rule for these, in the order in which they become ready.
std::vector<std::vector<int>> groups_of(const Job& job, const Merging& merging, const Setting& setting);

}  // namespace talweg::train
