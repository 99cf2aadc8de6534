#include "group/bounded_switch.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include "base/log.h"
#include "group/bounded_checks.h"
#include "group/bounded_lost.h"
#include "group/switch_vote.h"
#include "kernel/reduce.h"
#include "live/system.h"
#include "protocol/bounded/loss_budget.h"
#include "steer/bounded_plan.h"

namespace talweg::group {

namespace {

using protocol::SumWay;

constexpr std::size_t kMostPredicted = 256;  // sizes of vectors

// The limits beside p are of more than one call, or of all ranks: none is exceeded where each rank keeps the
// least of them in each call.
std::uint32_t least_ppm(const BoundedLossOptions& options) {
  const protocol::LossBounds bounds = protocol::bounds_of(parts_of(options));
  return std::min({bounds.tensor_ppm, bounds.sender_ppm, bounds.iteration_ppm});
}

SwitchWish tolerant(SwitchWish wish, const BoundedSeams& seams) {
  wish.tolerant = true;
  wish.floats_as.reset();  // what rounding takes would have to be in residuals, too
  wish.sparse = SwitchSparse::none;
  wish.sender.offload = seams.offload;
  wish.send = seams.send_to_switch;
  return wish;
}

SwitchStream::Place job_of_its_own(SwitchStream::Place place) {
  place.job += "-bounded";
  place.switches.clear();  // all are at the same ones
  place.speaks_for_host = false;
  place.part = false;
  return place;
}

}  // namespace

std::string BoundedSwitch::complaint(const SwitchStreams& switches, const BoundedLossOptions& options) {
  const auto& racks = switches.place().switches;
  if (std::ranges::any_of(racks, [&](std::uint64_t at) { return at != racks.front(); }))
    return "ranks are at several switches below another one, whose sums lose nothing";
  if (switches.wish().exact) return "sums of TALWEG_SWITCH_EXACT lose nothing";
  if (!options.servers.empty()) return "servers are named, which sum";
  if (options.classes.keep_important) return "no switch keeps important packets (keep_important)";
  return {};
}

BoundedSwitch::BoundedSwitch(std::shared_ptr<GroupImpl> group, const SwitchStreams& switches,
                             const BoundedLossOptions& options, const BoundedSeams& seams)
    : group_(std::move(group)),
      ppm_(least_ppm(options)),
      policy_(options.policy),
      bell_(std::make_shared<Bell>()),
      streams_(std::make_shared<SwitchStreams>(tolerant(switches.wish(), seams),
                                               job_of_its_own(switches.place()), Logger(group_->rank()),
                                               [bell = bell_] { bell->ring(); })) {
  group_->keep_bounded(streams_);
}

BoundedSwitch::Prices BoundedSwitch::prices_of(std::size_t count, std::size_t element_bytes) const {
  const std::shared_ptr<const forest::CostModel> model = group_->model();
  const std::lock_guard guard(mutex_);
  if (prices_for_ != model || prices_.size() >= kMostPredicted) prices_.clear();
  prices_for_ = model;
  const auto [at, is_new] = prices_.try_emplace({count, element_bytes});
  if (!is_new) return at->second;
  forest::PackingMemo memo;
  const steer::BoundedPlan plan = steer::plan_bounded(
      forest::even_request(Collective::all_reduce, group_->size(), 0, static_cast<std::int64_t>(count),
                           static_cast<std::int64_t>(element_bytes)),
      *model, {}, memo);
  const double words = model->seconds(plan.words, true);
  return at->second = {words, words + model->seconds(plan.push, true) + model->seconds(plan.pull, true)};
}

// Empty: no switch is there.
std::optional<double> BoundedSwitch::seconds_of(std::size_t count, DataType type) const {
  const std::size_t element_bytes = size_of(type);
  const auto estimate = streams_->estimate(count, streams_->format_of(type).value());
  if (!estimate) return std::nullopt;
  double seconds = estimate->seconds;
  // Each alone was measured; all together have the ranks' own links in common.
  if (estimate->switches > 1)
    seconds = std::max(seconds, seconds_on_links(*group_->model(), group_->size(),
                                                 static_cast<double>(count * element_bytes)));
  return seconds + 2 * prices_of(count, element_bytes).words;
}

BoundedSwitch::Expected BoundedSwitch::expect(std::size_t count, DataType type) const {
  Expected expected;
  expected.ppm = ppm_;
  expected.where = streams_->describe();
  const std::size_t element = size_of(type);
  const auto bytes = static_cast<std::int64_t>(count * element);
  if (!streams_->format_of(type)) {
    expected.why_not = fmt::format("it sums no {}", name(type));
  } else if (bytes < streams_->wish().least_bytes()) {
    expected.why_not = fmt::format("{} bytes are less than {}", bytes, streams_->wish().least_bytes());
  } else if (streams_->always()) {
    if (!streams_->estimate(count, *streams_->format_of(type))) expected.why_not = "none is there now";
  } else if (expected.seconds = seconds_of(count, type); !expected.seconds) {
    expected.why_not = "none is there now";
  } else if (const double otherwise = prices_of(count, element).otherwise; *expected.seconds >= otherwise) {
    expected.why_not = fmt::format("predicted {:.4g} ms", *expected.seconds * 1e3);
  }
  if (!expected.why_not.empty()) return expected;
  expected.most_missing = streams_->most_missing(count, ppm_);
  expected.exact_sums = streams_->exact_sums();
  return expected;
}

// What fails here alone, such as no memory, is as if the switch were not there: the others wait for a word.
std::uint64_t BoundedSwitch::line_up(std::size_t count, DataType type) {
  way_ = SumWay::none;
  try {
    return word_of(count, type);
  } catch (const std::exception&) {
    leave(true);
    return 0;
  }
}

std::uint64_t BoundedSwitch::word_of(std::size_t count, DataType type) {
  const std::size_t element = size_of(type);
  if (!streams_->format_of(type) ||
      static_cast<std::int64_t>(count * element) < std::max<std::int64_t>(streams_->wish().least_bytes(), 1))
    return 0;
  if (!streams_->always()) {
    const auto seconds = seconds_of(count, type);
    if (seconds && *seconds >= prices_of(count, element).otherwise) return 0;
  }
  way_ = SumWay::fallback;
  sum_ = streams_->line_up(false);
  if (sum_ == nullptr) return 0;
  task_ = {};
  task_.format = *streams_->format_of(type);
  task_.bytes = count * element;
  task_.tolerance.ppm = ppm_;
  task_.tolerance.rescale = policy_ == LossPolicy::rescale;
  // Never 0, and what may be missing is the same on all ranks.
  return std::uint64_t{1} << 63 | std::uint64_t{task_.tolerance.rescale} << 62 | std::uint64_t{ppm_} << 32 |
         sum_->life;
}

bool BoundedSwitch::decide(std::span<const CallWords> said) {
  if (sum_ == nullptr) return false;
  if (std::ranges::all_of(said, [&](const CallWords& w) { return w.by_switch == said[0].by_switch; }))
    return true;
  leave(true);
  return false;
}

void BoundedSwitch::leave(bool all) {
  if (sum_ == nullptr) return;
  all ? streams_->pass(*sum_) : streams_->abandon(*sum_);
  sum_.reset();
}

std::optional<LossReport> BoundedSwitch::sum(const BoundedCall& call, const std::byte* data,
                                             std::int64_t deadline_ns) {
  task_.in = data;
  task_.out = static_cast<std::byte*>(call.out);
  // What is left of the call's time is for datagrams.
  task_.silence_ns = std::max<std::int64_t>((deadline_ns - live::now_ns()) / 2, 1);
  try {
    streams_->go(*sum_, task_);
    if (!all_have(*group_, *streams_, *sum_, *bell_, deadline_ns, call.priority,
                  [this] { group_->miss_bounded({}); })) {
      leave(false);
      return std::nullopt;
    }
  } catch (...) {  // what the others do with it is not known
    leave(false);
    throw;
  }
  protocol::SumLosses losses = SwitchStreams::losses(*sum_);
  sum_.reset();
  way_ = SumWay::dense;
  std::ranges::sort(losses.own, {}, &protocol::SumLosses::Range::first);
  if (call.reduction == ReduceOp::avg) kernel::divide(call.type, call.out, call.count, group_->size());
  keep_lost(losses.own, call);
  return report(call, losses);
}

LossReport BoundedSwitch::report(const BoundedCall& call, const protocol::SumLosses& losses) const {
  const std::size_t element = size_of(call.type);
  LossReport said;
  said.by_switch = true;
  said.exact = losses.allowance == 0;
  said.sent_bytes = call.count * element;
  said.packets_again = losses.again;
  said.lost_of_layer.assign(std::max<std::size_t>(call.layers.size(), 1), 0);
  said.lost_of_sender.assign(static_cast<std::size_t>(group_->size()), 0);
  for (std::size_t r = 0; r < std::min(losses.of_worker.size(), said.lost_of_sender.size()); ++r)
    if (static_cast<int>(r) != group_->rank()) said.lost_of_sender[r] = losses.of_worker[r] * element;
  note_lost(losses.own, call, said);
  return said;
}

}  // namespace talweg::group
