#include "protocol/streaming/sum_form.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/random.h"
#include "kernel/blocks.h"

namespace talweg::protocol {

namespace {

// A word: what was chosen last, and both shares in units of the last place that there is room for, rounded up
// so that little is not nothing.
constexpr unsigned kLastBits = 3, kBlockBits = 14, kElementBits = 15;
static_assert(kLastBits + kBlockBits + kElementBits == 32 && kSumForms + 1 < 1 << kLastBits);
std::uint32_t to_units(double share, unsigned bits) {
  const auto most = static_cast<double>((1U << bits) - 1);
  return static_cast<std::uint32_t>(std::clamp(std::ceil(share * most), 0.0, most));
}
double from_units(std::uint32_t units, unsigned bits) {
  const std::uint32_t most = (1U << bits) - 1;
  return static_cast<double>(units & most) / most;
}

// Where nothing is known of them, ranks hold what they do independently of each other.
double on_any(double own, int ranks) {
  return 1 - std::pow(1 - own, ranks);
}

std::size_t nonzero_count(const std::byte* data, std::size_t count) {
  constexpr std::size_t kAtATime = 64;
  std::size_t all = 0;
  for (std::size_t i = 0; i < count; i += kAtATime)
    all += static_cast<std::size_t>(
        std::popcount(kernel::nonzero_elements(data + i * sizeof(float), std::min(kAtATime, count - i))));
  return all;
}

}  // namespace

const char* name(SumForm form) {
  constexpr const char* kNames[] = {"dense", "blocks", "pairs"};
  return kNames[static_cast<std::size_t>(form)];
}

VectorSample look_at(const std::byte* data, std::size_t bytes, wire::AggregationFormat format,
                     std::size_t block, std::uint64_t seed) {
  VectorSample sample{block, seed, {}};
  const std::size_t element = wire::bytes_in_memory(format);
  const std::size_t count = bytes / element;
  const std::size_t blocks = (count + block - 1) / block;
  if (blocks == 0) return sample;
  const DataType type = wire::type_in_memory(format);
  Random random(seed);
  // One of each of so many equal parts of the vector.
  const std::size_t parts = std::min(blocks, kSampledBlocks);
  std::size_t held_blocks = 0, held_elements = 0, looked_at = 0;
  for (std::size_t part = 0; part < parts; ++part) {
    const std::size_t begin = blocks * part / parts, end = blocks * (part + 1) / parts;
    const std::size_t at = (begin + random.below(end - begin)) * block;
    const std::size_t here = std::min(block, count - at);
    const std::byte* const from = data + at * element;
    looked_at += here;
    if (kernel::is_zero(type, from, here)) continue;
    ++held_blocks;
    held_elements += type == DataType::f32 ? nonzero_count(from, here) : here;
  }
  sample.held = {static_cast<double>(held_blocks) / static_cast<double>(parts),
                 static_cast<double>(held_elements) / static_cast<double>(looked_at)};
  return sample;
}

double rounded(double value) {
  constexpr double kDigits = 1 << 12;
  int exponent = 0;
  const double mantissa = std::frexp(value, &exponent);
  return std::ldexp(std::nearbyint(mantissa * kDigits) / kDigits, exponent);
}

const FormChooser::Known* FormChooser::find(const SumTask& task) const {
  const auto found = known_.find({task.bytes, task.format});
  return found == known_.end() ? nullptr : &found->second;
}

// Ranks make the same calls, so that they forget at the same ones; where they do not, they only have no last
// choice in common.
FormChooser::Known& FormChooser::known(const SumTask& task) {
  if (known_.size() >= kMostKnown && find(task) == nullptr) known_.clear();
  return known_[{task.bytes, task.format}];
}

VectorSample FormChooser::look(const SumTask& task, std::size_t block) {
  return look_at(task.in, task.bytes, task.format, block, ++looks_);
}

std::uint32_t FormChooser::word(const SumTask& task, const VectorSample& sample) const {
  const Known* const of = find(task);
  const bool learnt = of != nullptr && of->learnt;
  const auto expected = [&](double own, double times) {
    return learnt ? std::min(1.0, own * times) : on_any(own, ranks_);
  };
  const Held times = learnt ? of->times : Held{};
  return (of == nullptr ? 0U : std::uint32_t{of->last}) << (kBlockBits + kElementBits) |
         to_units(expected(sample.held.blocks, times.blocks), kBlockBits) << kElementBits |
         to_units(expected(sample.held.elements, times.elements), kElementBits);
}

FormChooser::Choice FormChooser::choose(const SumTask& task, std::span<const std::uint32_t> words,
                                        const Seconds& seconds, double trees_seconds) {
  // Who has the most of it knows best how much there is.
  Held held{0, 0};
  std::uint32_t last = words[0] >> (kBlockBits + kElementBits);
  for (const std::uint32_t word : words) {
    held.blocks = std::max(held.blocks, from_units(word >> kElementBits, kBlockBits));
    held.elements = std::max(held.elements, from_units(word, kElementBits));
    if (word >> (kBlockBits + kElementBits) != last) last = 0;
  }
  std::array<double, kSumForms + 1> takes{};
  for (int form = 0; form < kSumForms; ++form)
    takes[static_cast<std::size_t>(form)] = rounded(seconds(static_cast<SumForm>(form), held));
  takes[kSumForms] = rounded(trees_seconds);
  std::size_t best = static_cast<std::size_t>(std::ranges::min_element(takes) - takes.begin());
  if (last > 0 && last <= takes.size() && takes[last - 1] <= rounded(takes[best] * kBetter)) best = last - 1;
  known(task).last = static_cast<std::uint8_t>(best + 1);
  ++chosen_[best];
  if (best == kSumForms) return {std::nullopt, held};
  return {static_cast<SumForm>(best), held};
}

void FormChooser::learn(const SumTask& task, const VectorSample& sample) {
  // Of who has nothing of it there are no times as much.
  if (sample.block == 0 || sample.held.blocks == 0) return;
  const Held sum = look_at(task.out, task.bytes, task.format, sample.block, sample.seed).held;
  Known& of = known(task);
  of.learnt = true;
  of.times = {std::max(1.0, sum.blocks / sample.held.blocks),
              std::max(1.0, sum.elements / sample.held.elements)};
}

}  // namespace talweg::protocol
