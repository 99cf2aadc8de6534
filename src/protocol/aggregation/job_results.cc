// Results of a job that has a rate of its own for them (JobTerms::result_bytes_per_second): those beyond it
// wait.
//
// What waits takes no memory: a round keeps its sums until the round after the next one begins in its cell,
// for which all workers need this result. So a result that waits is its number, whose slot is known, and it
// is written when its time has come. Numbers are given as rounds end and results are sent in that order: what
// workers learn from numbers that are missing stays true.
//
// Who asks about such a round is told when to ask again, as by a switch that is too busy: when all that waits
// now has been sent. It takes that for no loss, and sends nothing again. Repeated results are sent at once,
// and owed by the next ones. They have a bucket of their own that refuses them: however much the results to
// all owe, who has lost one gets it while the others go on, and whoever asks for ever is held to the rate.
#include <algorithm>

#include "protocol/aggregation/job_replies.h"

namespace talweg::protocol {

using wire::AggregationReason;
using wire::AggregationType;

namespace {

// What may be sent at once: no less than a datagram of any size, and at high rates as much as is due when a
// thread wakes that has slept for as long as threads do.
constexpr double kLeastBurst = 64 << 10;
constexpr double kBurstSeconds = 2e-3;

}  // namespace

void AggregationJob::pace_results(double bytes_per_second) {
  if (bytes_per_second == result_rate_) return;
  result_rate_ = bytes_per_second;
  if (!paced()) return;
  const double burst = std::max(kLeastBurst, kBurstSeconds * bytes_per_second);
  results_bucket_ = TokenBucket(bytes_per_second, burst);
  repeats_bucket_ = TokenBucket(bytes_per_second, 2 * burst);  // a burst, and one that is owed
}

// 0: a result may be sent again to one worker, and is of the rate. Otherwise in how many nanoseconds.
std::int64_t AggregationJob::take_repeat(double bytes, std::int64_t now_ns) {
  if (!paced()) return 0;
  const std::int64_t wait_ns = repeats_bucket_.take(bytes, now_ns);
  if (wait_ns > 0) return wait_ns;
  results_bucket_.fill(now_ns);
  results_bucket_.charge(bytes);
  return 0;
}

void AggregationJob::send_once(bool once) {
  if (once == once_) return;
  once_ = once;
  waiting_bytes_ = once ? waiting_bytes_ / terms_.workers : waiting_bytes_ * terms_.workers;
}

double AggregationJob::bytes_to_all(std::size_t payload) const {
  const std::size_t copies = once_ ? 1 : terms_.workers;
  return static_cast<double>(copies * (wire::kDatagramHeaderBytes + payload));
}

std::int64_t AggregationJob::results_due_ns() const {
  if (sent_ == results_) return kNeverTime;
  return paced() ? results_bucket_.ready_ns() : 0;
}

// Rounds have ended: their result is sent, or waits behind the others.
void AggregationJob::end_with_result(Replies& replies, const wire::DatagramHeader& header,
                                     std::vector<SwitchAction>& actions) {
  // More of them than columns cannot wait, unless all workers go on without results: the first is given up,
  // and sent to who asks for it.
  if (results_ - sent_ == results_kept(terms_)) ++sent_;
  const bool first = sent_ == results_;
  slots_.slot_of_result(static_cast<std::uint16_t>(++results_)) = header.own16;
  const double bytes = bytes_to_all(replies.on.payload().size());
  results_bucket_.fill(replies.now_ns);
  if (!first || (paced() && results_bucket_.ready_ns() > replies.now_ns)) {
    ++counters_.delayed;
    counters_.delayed_bytes += static_cast<std::uint64_t>(bytes);
    waiting_bytes_ += bytes;
    return;
  }
  sent_ = results_;
  results_bucket_.charge(bytes);
  if (once_) ++counters_.multicast;
  actions.push_back(answer(SwitchAction::To::all, AggregationType::result, header, replies.on.payload()));
}

void AggregationJob::send_waiting(std::int64_t now_ns, std::vector<SwitchAction>& actions) {
  wire::DatagramHeader header;
  const std::optional<Replies> replies = result_of(++sent_, true, now_ns, header);
  if (replies) {
    const double bytes = bytes_to_all(replies->on.payload().size());
    results_bucket_.fill(now_ns);
    results_bucket_.charge(bytes);
    waiting_bytes_ = std::max(0.0, waiting_bytes_ - bytes);
    if (once_) ++counters_.multicast;
    actions.push_back(answer(SwitchAction::To::all, AggregationType::result, header, replies->on.payload()));
  }
  if (sent_ == results_) waiting_bytes_ = 0;
}

// Until all that waits now has been sent.
std::int64_t AggregationJob::wait_for_results(std::int64_t now_ns) const {
  if (!paced()) return 0;
  return std::max<std::int64_t>(0, results_bucket_.ready_ns() - now_ns) +
         results_bucket_.duration_ns(waiting_bytes_);
}

wire::AggregationRefusal AggregationJob::busy_for(std::int64_t wait_ns) {
  constexpr std::int64_t kLongestUs = 1'000'000'000;
  return {AggregationReason::busy, static_cast<std::uint32_t>(std::min(1 + wait_ns / 1000, kLongestUs))};
}

}  // namespace talweg::protocol
