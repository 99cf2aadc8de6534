#include "steer/plan_word.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "forest/forest_bytes.h"

namespace talweg::steer {

namespace {

constexpr std::uint64_t kForget = 1, kReport = 2, kTurn = 4, kRequest = 8, kForest = 16, kLast = 32;  // flags
constexpr std::size_t kMostWordBytes = std::size_t{1} << 28;  // far above the forests of the largest groups

// A call that is not before `call`.
std::uint64_t later(ByteReader& in, std::uint64_t call) {
  return call + in.number(kNever - call);
}

}  // namespace

std::vector<std::byte> to_bytes(const PlanWord& word) {
  ByteWriter out;
  const bool last = word.next == kNever;
  out.number((word.forget ? kForget : 0) | (word.report ? kReport : 0) | (word.next_turn ? kTurn : 0) |
             (word.request ? kRequest : 0) | (word.forest ? kForest : 0) | (last ? kLast : 0));
  out.number(word.call);
  out.number(word.rates.size());
  out.bytes(std::as_bytes(std::span(word.rates)));
  if (word.next_turn) out.number(*word.next_turn - word.call);
  if (!last) out.number(word.next - word.call);
  if (word.forest) {
    out.number(word.digest);
    out.bytes(forest::to_bytes(*word.forest));
  } else if (word.request) {
    forest::write(out, *word.request);
  }
  return out.take();
}

PlanWord word_from_bytes(std::span<const std::byte> bytes) {
  ByteReader in(bytes, "what rank 0 says of plans");
  PlanWord word;
  const std::uint64_t flags = in.number(2 * kLast - 1);
  word.forget = (flags & kForget) != 0;
  word.report = (flags & kReport) != 0;
  word.call = in.number(kNever - 1);
  const std::uint64_t rates = in.number(in.left() / sizeof(double));
  word.rates.resize(rates);
  const auto raw = in.bytes(rates * sizeof(double));
  std::copy(raw.begin(), raw.end(), std::as_writable_bytes(std::span(word.rates)).begin());
  for (const double rate : word.rates)
    if (!(rate > 0 && rate < std::numeric_limits<double>::infinity())) in.fail("a link's rate is none");
  if ((flags & kTurn) != 0) word.next_turn = later(in, word.call);
  if ((flags & kLast) == 0) word.next = later(in, word.call);
  if ((flags & kForest) != 0) {
    word.digest = static_cast<std::uint32_t>(in.number(std::numeric_limits<std::uint32_t>::max()));
    if (word.digest == 0) in.fail("a plan without a digest");
    word.forest = std::make_shared<forest::Forest>(forest::forest_from_bytes(in.bytes(in.left())));
    word.request = word.forest->request;
  } else if ((flags & kRequest) != 0) {
    word.request = forest::request_from(in);
  }
  in.expect_end();
  return word;
}

std::optional<PlanWord> WordParts::add(std::span<const std::byte> part, bool last) {
  if (bytes_.size() + part.size() > kMostWordBytes)
    throw Error(ErrorCode::corrupted, "it speaks of a plan that is longer than any");
  bytes_.insert(bytes_.end(), part.begin(), part.end());
  if (!last) return std::nullopt;
  return word_from_bytes(std::exchange(bytes_, {}));
}

}  // namespace talweg::steer
