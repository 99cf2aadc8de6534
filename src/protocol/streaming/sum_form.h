// How a vector travels to a switch, and a choice among these forms, and trees, that all ranks come to alike:
// by how much of the vector each has, what was on any of them in the last sum of as many elements, and what
// the forms cost.
//
//   FormChooser chooser(ranks);
//   const VectorSample sample = chooser.look(task, block);             // before it is summed
//   vote(chooser.word(task, sample));                                  // for all ranks
//   const FormChooser::Choice choice = chooser.choose(task, words, seconds, trees_seconds);   // all alike
//   chooser.learn(task, sample);                                       // its sum is in task.out
//
// A vector is looked at in a sample of its blocks, so that a look takes as long for any length. Pure, and of
// one thread at a time.
//
// Source of the choice by the union's density: the cost model of OmniReduce (Fei et al., SIGCOMM 2021).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "protocol/aggregation/tensor.h"
#include "wire/aggregation.h"

namespace talweg::protocol {

enum class SumForm : std::uint8_t {
  dense,
  blocks,  // those that are zero do not travel
  pairs,   // nothing that is zero does. Of f32 alone
};
inline constexpr int kSumForms = 3;
const char* name(SumForm form);  // "dense"

struct SumTask {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;  // as many bytes; may be `in`
  std::size_t bytes = 0;
  wire::AggregationFormat format = wire::AggregationFormat::f32;  // never `pairs`
  SumForm form = SumForm::dense;
  Tolerance tolerance = {};     // without `losses`, which its QueuedSum has
  std::int64_t silence_ns = 0;  // nothing comes of it for so long: what makes it is left; 0: as that has it
  const Rows* rows = nullptr;   // of a sparse tensor by rows, whose memory is not that of a vector
};

// Shares of a vector that are not zero.
struct Held {
  double blocks = 1, elements = 1;
};

// Of a vector on this rank, and where it was looked at: `seed` draws the same blocks again.
struct VectorSample {
  std::size_t block = 0;  // elements; 0: nothing was looked at
  std::uint64_t seed = 0;
  Held held;
};
// Of kSampledBlocks of its blocks at most. Of formats but f32 and `scaled` `elements` is as `blocks`.
inline constexpr std::size_t kSampledBlocks = 256;
VectorSample look_at(const std::byte* data, std::size_t bytes, wire::AggregationFormat format,
                     std::size_t block, std::uint64_t seed);

// To 12 binary digits: what ranks whose processors round in other ways find alike, but for the rarest
// numbers.
double rounded(double value);

class FormChooser {
 public:
  struct Choice {
    std::optional<SumForm> form;  // empty: trees
    Held held;                    // what is taken to be on any rank
  };
  // What a sum takes in that form, of which so much is on any rank. The same on all ranks once rounded().
  using Seconds = std::function<double(SumForm form, const Held& held)>;
  // No form takes another one's place that is not so many times as quick.
  static constexpr double kBetter = 1.1;

  explicit FormChooser(int ranks) : ranks_(ranks) {}

  VectorSample look(const SumTask& task, std::size_t block);
  // What this rank takes to be on any rank, and what was chosen last.
  std::uint32_t word(const SumTask& task, const VectorSample& sample) const;
  // `words` of all ranks. `trees_seconds`: by trees; infinity: not at all.
  Choice choose(const SumTask& task, std::span<const std::uint32_t> words, const Seconds& seconds,
                double trees_seconds);
  // task.out holds the sum, also one by trees.
  void learn(const SumTask& task, const VectorSample& sample);

  // How often each form was chosen; the last: trees.
  const std::array<std::uint64_t, kSumForms + 1>& chosen() const { return chosen_; }

 private:
  // Of the last sums of as many elements of this format.
  struct Known {
    Held times;             // how many times as much is on any rank as is on this one
    std::uint8_t last = 0;  // what was chosen, from 1; 0: nothing yet
    bool learnt = false;
  };
  static constexpr std::size_t kMostKnown = 1024;
  using Key = std::pair<std::size_t, wire::AggregationFormat>;
  const Known* find(const SumTask& task) const;
  Known& known(const SumTask& task);

  int ranks_;
  std::uint64_t looks_ = 0;
  std::map<Key, Known> known_;
  std::array<std::uint64_t, kSumForms + 1> chosen_{};
};

}  // namespace talweg::protocol
