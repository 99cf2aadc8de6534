#include "step.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "kernel/reduce.h"

namespace talweg::soak {

namespace {

// Mostly small, sometimes everything that is allowed.
std::size_t draw_count(Random& random, std::size_t most) {
  const auto bits = static_cast<std::uint64_t>(std::bit_width(most));
  const std::uint64_t width = std::min(random.below(bits + 1), random.below(bits + 1));
  return random.below((std::uint64_t{1} << width) + 1) % (most + 1);
}

std::vector<int> draw_members(Random& random, int ranks) {
  std::vector<int> members(static_cast<std::size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  for (std::size_t i = members.size(); i > 1; --i) std::swap(members[i - 1], members[random.below(i)]);
  members.resize(2 + random.below(static_cast<std::uint64_t>(ranks) - 1));
  return members;
}

}  // namespace

Step draw(Random& random, const std::vector<int>& sizes, std::size_t max_bytes) {
  Step step;
  step.seed = random.next();
  const std::uint64_t kind = random.below(1000);
  if (kind < 4) {
    step.kind = Step::Kind::regroup;
    step.group = 1 + random.below(sizes.size() - 1);
    step.members = draw_members(random, sizes[0]);
    return step;
  }
  step.group = random.below(sizes.size());
  const int size = sizes[step.group];
  const auto n = static_cast<std::size_t>(size);
  do {
    step.type = static_cast<DataType>(random.below(kDataTypes));
    step.reduction = static_cast<ReduceOp>(random.below(kReduceOps));
  } while (kernel::reduce_function(step.type, step.reduction) == nullptr);
  step.root = static_cast<int>(random.below(n));
  step.in_place = random.below(3) == 0;
  step.at_once = random.below(4) == 0;
  step.priority = static_cast<int>(random.below(8));
  const std::size_t most = max_bytes / size_of(step.type);
  const auto op = static_cast<Collective>(random.below(kCollectives));
  if (kind < 14) {
    step.kind = Step::Kind::disagree;
    step.op = Collective::all_reduce;
    step.counts = {draw_count(random, most)};
    return step;
  }
  if (op == Collective::send_recv) {
    step.kind = Step::Kind::messages;
    step.op = op;
    step.reduction = ReduceOp::sum;
    step.shift = 1 + static_cast<int>(random.below(n - 1));
    step.any_source = random.below(4) == 0;
    step.counts = {draw_count(random, most)};
    return step;
  }
  step.op = op;
  const bool reduces =
      op == Collective::all_reduce || op == Collective::reduce || op == Collective::reduce_scatter;
  if (!reduces) step.reduction = ReduceOp::sum;
  const bool pairs = op == Collective::all_to_all;
  const bool parts = op == Collective::reduce_scatter || op == Collective::all_gather ||
                     op == Collective::gather || op == Collective::scatter;
  const std::size_t places = pairs ? n * n : (parts ? n : 1);
  const bool even = random.below(2) == 0;
  const std::size_t same = draw_count(random, most / places);
  for (std::size_t i = 0; i < places; ++i)
    step.counts.push_back(even ? same : draw_count(random, most / places));
  return step;
}

std::string to_string(const Step& step) {
  if (step.kind == Step::Kind::regroup)
    return fmt::format("group {} becomes ranks {}", step.group, fmt::join(step.members, ","));
  return fmt::format("{}{} of group {}, {}, {}, root {}, counts {}, shift {}{}{}",
                     step.kind == Step::Kind::disagree ? "disagreement in " : "", name(step.op), step.group,
                     name(step.type), name(step.reduction), step.root, fmt::join(step.counts, ","),
                     step.shift, step.in_place ? ", in place" : "", step.any_source ? ", from any rank" : "");
}

}  // namespace talweg::soak
