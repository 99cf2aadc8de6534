// Job: a training job as it stands in one step: layers with times and gradients, and what it sent. Written by
// the recorder, by importers of traces, by hand or by models.h; read by merging, the model of a step (dag.h)
// and what-if questions.
//
//   const Job job = load_job("resnet50.yaml");
//   const Prediction now = predict(job, find_strategy("ddp"), {.network = times});   // strategies.h
//
// File form (YAML; JSON is the same tree), every key that is not shown here is an error:
//   name: tiny
//   origin: measured             # measured | estimated (times worked out, not taken)
//   ranks: 2                     # that it was recorded on; 1 if left out
//   batch: 64                    # samples that a rank takes in one step
//   input: 3ms                   # reading the next batch, on the host
//   copy: 400us                  # of that batch to the device
//   update: 0ns                  # of the optimiser, for all that no layer's own update says
//   overhead: 200us              # the rest of a step, which nothing overlaps
//   step: 17.8ms                 # one step took, measured
//   in_flight: 2                 # transfers under way at once; 1 if left out
//   backend: talweg              # that sent them, as PyTorch calls it
//   layers:                      # in the order of the forward pass
//     - {name: conv1, forward: 2ms, backward: 4ms, update: 10us, gradient: 1.5 MiB}
//     - {name: conv2, forward: 1ms, backward: 2ms, forward_gap: 80us, backward_gap: 120us}   # then idle
//     - {name: fc, forward: 500us, backward: 1ms, gradient: 4000B, after: [conv1, conv2]}    # reads both
//   exchanges:                   # as recorded, in the order they were sent
//     - {op: all_reduce, layers: [fc, conv1], bytes: 1576864B, time: 3ms, wait: 500us}
//   probes:                      # what calls of a size took besides, one behind the other
//     - {op: all_reduce, bytes: 4B, time: 110us}
// All but name, origin and layers may be left out, and of a layer all but its name; no gap, gradient or time
// is 0. Times are those of one step on one rank; where ranks were recorded together, means over the ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "talweg/types.h"

namespace talweg::train {

// Busy times are those during which the device computes. A gap is time after the layer's work in which the
// device waits for the host (launches, synchronisation) or for another stream: it delays what follows, but a
// faster device does not shorten it.
struct Layer {
  std::string name;
  Nanoseconds forward{}, backward{}, update{};
  Nanoseconds forward_gap{}, backward_gap{};
  Bytes gradient{};          // 0: nothing to exchange
  std::vector<int> after{};  // earlier layers whose output it reads; empty: the one before
  bool operator==(const Layer&) const = default;
};

// One collective as it was recorded.
struct Exchange {
  Collective op = Collective::all_reduce;
  std::vector<int> layers{};  // whose gradients it carried; empty: not known
  Bytes bytes{};              // of the vector, as in the call
  // On the wire: the least over the ranks, since the last to arrive waits for nobody. Of those that were
  // under way together, each counts from the end of the one that ended before it, as if they had been sent in
  // turn.
  Nanoseconds time{};
  Nanoseconds wait{};  // for peers: what the ranks spent in it beyond that, their mean
  bool operator==(const Exchange&) const = default;
};

// What a call of so many bytes took in turn, where as many were under way together as the backend takes,
// while nothing was computed: what exchanges of a few sizes cannot tell.
struct Probe {
  Collective op = Collective::all_reduce;
  Bytes bytes{};
  Nanoseconds time{};
  bool operator==(const Probe&) const = default;
};

// Whether times were taken or worked out.
enum class Origin { measured, estimated };
const char* name(Origin origin);

struct Job {
  std::string name;
  Origin origin = Origin::measured;
  int ranks = 1;           // that it was recorded on
  int batch = 0;           // samples that a rank takes in one step; 0: not known
  Nanoseconds input{};     // reading a batch
  Nanoseconds copy{};      // of a batch from host to device
  Nanoseconds update{};    // of the optimiser, for what no layer's own update says
  Nanoseconds overhead{};  // the rest of a step, which nothing overlaps
  std::vector<Layer>
      layers{};  // in the order of the forward pass; the backward pass visits them from last to first
  std::vector<Exchange> exchanges{};
  Nanoseconds step{};     // measured; 0: not known
  int in_flight = 1;      // transfers under way at once (strategies.h)
  std::string backend{};  // that sent them; empty: not known
  std::vector<Probe> probes{};
  bool operator==(const Job&) const = default;

  // Sums over the layers: busy, and gaps.
  Nanoseconds forward() const;
  Nanoseconds backward() const;
  Nanoseconds forward_gaps() const;
  Nanoseconds backward_gaps() const;
  // The optimiser's time: the layers' own and the rest.
  Nanoseconds all_updates() const;
  Bytes gradients() const;
};

// What is wrong with a job, if anything: which entry of which list, and one sentence.
enum class JobSection { job, layers, exchanges, probes };
struct JobProblem {
  JobSection section = JobSection::job;
  int index = 0;
  std::string text;
};
// The first of: no name; less than one rank, more than kMostRanks or a negative batch; less than one transfer
// in flight, or more than kMostInFlight; no layer, or more than kMostLayers; a layer without a name, or with
// one that is taken; a time or size that is negative or above kLongest or kLargest; a layer that reads
// itself, a later one or one twice; an exchange of a layer that does not exist or that it names twice; a
// probe without bytes or time, or more than kMostProbes.
std::optional<JobProblem> find_problem(const Job& job);
// Throws Error{invalid_argument} when there is one.
void validate(const Job& job);

inline constexpr int kMostLayers = 1 << 16;  // a file of so many is near what the reader takes, 8 MiB
inline constexpr int kMostRanks = 1 << 20;
inline constexpr int kMostProbes = 1 << 10;
inline constexpr int kMostInFlight = 1 << 16;              // as many as there may be gradients
inline constexpr Nanoseconds kLongest{3'600'000'000'000};  // an hour: sums over all layers stay in 64 bits
inline constexpr Bytes kLargest{std::int64_t{1} << 42};    // 4 TiB, likewise

// Throws Error{bad_file}: "job.yaml:7: layers[2].forward: expected a time such as 2ms, got \"fast\"".
// `origin` is what the text is called in messages.
Job parse_job(const std::string& text, const std::string& origin);
Job load_job(const std::string& path);
std::string to_yaml(const Job& job);
std::string to_json(const Job& job);

}  // namespace talweg::train
