// Which all_reduces of a group go through a switch: those that it can sum, where it is quicker than the trees
// that were planned.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "forest/planner.h"
#include "group/group_impl.h"
#include "group/rows_switch.h"

namespace talweg::group {

namespace {

// Of a vector as it travels to a switch.
double bytes_of(const forest::Forest& trees, wire::AggregationFormat format) {
  return static_cast<double>(trees.request.counts[0]) * wire::mean_bytes(format);
}

// Trees are compared with what is left to do once the ranks have voted.
std::string if_dense(std::optional<double> seconds, double votes_seconds) {
  return seconds ? fmt::format("{:.4g} ms where nothing is", (*seconds + votes_seconds) * 1e3)
                 : std::string("by trees where nothing is");
}

}  // namespace

void GroupImpl::use_switch(const SwitchWish& wish) {
  if (!wish.wanted || size() < 2) return;
  SwitchStream::Place place{rank(), size(), fmt::format("talweg-{:016x}", number())};
  const std::vector<int>& hosts = machines();
  const int host = hosts[static_cast<std::size_t>(rank())];
  place.speaks_for_host = std::ranges::find(hosts, host) - hosts.begin() == rank();
  if (wish.of_rack) {
    const std::uint64_t own = live::switch_number(wish.at[0].address, std::to_string(host));
    place.switches.resize(static_cast<std::size_t>(size()));
    const std::vector<std::size_t> ones(place.switches.size(), 1);
    all_gather(&own, place.switches.data(), ones, DataType::u64);
  }
  auto streams = std::make_shared<SwitchStreams>(wish, place, log_, when_sums_change());
  const auto guard = world_->lock();
  switch_ = std::move(streams);
}

// Its job is called after what no two groups of these connections have in common: their ids differ where they
// share a rank, and their ranks where they share none.
void GroupImpl::use_switch_of(const GroupImpl& parent, std::span<const int> ranks) {
  const auto guard = world_->lock();
  if (parent.switch_ == nullptr || size() < 2) return;
  std::vector<std::int64_t> words{static_cast<std::int64_t>(world_->observer().options().job), identity_.id};
  words.insert(words.end(), identity_.members.begin(), identity_.members.end());
  switch_ = parent.switch_->of_part(
      ranks, rank(), fmt::format("talweg-{:016x}", wire::layout_digest(words.data(), words.size())), log_,
      when_sums_change());
}

std::function<void()> GroupImpl::when_sums_change() {
  return [this] {
    const auto held = world_->lock();
    session_.look_again(live::now_ns());
    world_->rouse();
  };
}

RowsSwitch* GroupImpl::rows_switch() {
  const auto guard = world_->lock();
  if (rows_switch_ == nullptr && switch_ != nullptr) rows_switch_ = std::make_unique<RowsSwitch>(*this);
  return rows_switch_.get();
}

std::shared_ptr<const protocol::Plan> GroupImpl::with_switch(std::shared_ptr<const protocol::Plan> trees,
                                                             DataType type, ReduceOp reduction,
                                                             int priority) {
  if (switch_ == nullptr || trees == nullptr) return trees;
  const auto format = switch_->format_of(type);
  // All ranks find the same so far.
  if (!switch_serves(trees->forest->request, type) ||
      (reduction != ReduceOp::sum && reduction != ReduceOp::avg))
    return trees;
  switch_->open();
  if (switch_lives_ != switch_->lives() || switch_for_ != chooser_.model() ||
      switch_plans_.size() >= steer::SharedPlans::kMostRequests) {
    switch_plans_.clear();
    switch_lives_ = switch_->lives();
    switch_for_ = chooser_.model();
    votes_seconds_ = find_votes_seconds(*switch_for_);
  }
  auto& plan = switch_plans_[{trees.get(), *format, priority > 0}];
  // It shares the trees' plan, so that no other one comes to lie where that was.
  if (plan == nullptr) {
    const bool wanted =
        seconds_by_switch(*trees->forest, *format, votes_seconds_, *switch_for_, true).has_value();
    const protocol::SumPrices prices =
        wanted ? prices_of(*trees->forest, *format, *switch_for_) : protocol::SumPrices{};
    const forest::Request& request = trees->forest->request;
    const bool absent = !wanted && !switch_->estimate(static_cast<std::size_t>(request.counts[0]), *format);
    plan =
        protocol::make_stream_plan(std::move(trees), switch_, *format, wanted, prices, absent, priority > 0);
  }
  return plan;
}

bool GroupImpl::switch_serves(const forest::Request& request, DataType type) const {
  return switch_ != nullptr && request.op == Collective::all_reduce && switch_->format_of(type) &&
         request.counts[0] * request.element_size >= switch_->wish().least_bytes();
}

// Votes go to all ranks and back, as in a barrier.
double GroupImpl::find_votes_seconds(const forest::CostModel& model) const {
  const forest::Request barrier = forest::even_request(Collective::barrier, size(), 0, 0, 1);
  return model.seconds(forest::find_planner("binomial").plan(barrier, model.network()));
}

// Of what a sum is compared with once the ranks have voted.
protocol::SumPrices GroupImpl::prices_of(const forest::Forest& trees, wire::AggregationFormat format,
                                         const forest::CostModel& model) const {
  protocol::SumPrices prices;
  if (!switch_->chooses_forms()) return prices;
  if (!switch_->always()) prices.trees_seconds = protocol::rounded(model.seconds(trees));
  prices.links_seconds = protocol::rounded(seconds_on_links(model, size(), bytes_of(trees, format)));
  return prices;
}

std::optional<double> GroupImpl::seconds_by_switch(const forest::Forest& trees,
                                                   wire::AggregationFormat format, double votes_seconds,
                                                   const forest::CostModel& model, bool least) const {
  const auto estimate = switch_->estimate(static_cast<std::size_t>(trees.request.counts[0]), format, least);
  if (!estimate) return std::nullopt;
  double seconds = estimate->seconds;
  // Each alone was measured; all together have the ranks' own links in common.
  if (estimate->switches > 1 && !(least && switch_->chooses_forms()))
    seconds = std::max(seconds, seconds_on_links(model, size(), bytes_of(trees, format)));
  seconds += votes_seconds;
  if (!switch_->always() && seconds >= model.seconds(trees)) return std::nullopt;
  return seconds;
}

std::string GroupImpl::explain(Collective op, std::size_t count, DataType type) const {
  const forest::Request request = forest::even_request(op, size(), 0, static_cast<std::int64_t>(count),
                                                       static_cast<std::int64_t>(size_of(type)));
  auto guard = world_->lock();
  const auto plan = chooser_.best(request);
  const std::shared_ptr<const forest::CostModel> model = chooser_.model();
  guard.unlock();
  const forest::Forest trees = plan();  // which may take minutes: calls go on meanwhile
  guard = world_->lock();
  std::string by_trees = steer::describe(trees, *model);
  if (!switch_serves(request, type)) return by_trees;
  if (!switch_->opened())
    return fmt::format("switch{}, once it is joined for the first all_reduce; until then {}",
                       switch_->always() ? "" : " where it is quicker", by_trees);
  const double votes_seconds = find_votes_seconds(*model);
  const wire::AggregationFormat format = *switch_->format_of(type);
  const auto least = seconds_by_switch(trees, format, votes_seconds, *model, true);
  if (!least) return by_trees;
  if (switch_->chooses_forms())
    return fmt::format(
        "switch, in the form that is quickest: predicted {:.4g} ms where all is zero, {}; without it {}",
        *least * 1e3, if_dense(seconds_by_switch(trees, format, 0, *model), votes_seconds), by_trees);
  if (switch_->always()) return "switch, not measured; without it " + by_trees;
  return fmt::format("switch, predicted {:.4g} ms; without it {}", *least * 1e3, by_trees);
}

}  // namespace talweg::group
