// Which all_reduces of a group go through a switch: those that it can sum, where it is quicker than the trees
// that were planned.
#include <fmt/format.h>

#include <optional>
#include <utility>

#include "forest/planner.h"
#include "group/group_impl.h"

namespace talweg::group {

namespace {

// Shorter vectors are not worth the votes, unless the user says that they are.
constexpr std::int64_t kLeastBytes = 16 << 10;

std::optional<wire::AggregationFormat> format_of(DataType type) {
  switch (type) {
    case DataType::f32:
      return wire::AggregationFormat::f32;
    case DataType::f16:
      return wire::AggregationFormat::f16;
    case DataType::bf16:
      return wire::AggregationFormat::bf16;
    case DataType::i32:
      return wire::AggregationFormat::i32;
    default:
      return std::nullopt;
  }
}

}  // namespace

void GroupImpl::use_switch(SwitchWish wish) {
  if (!wish.wanted || size() < 2) return;
  SwitchStream::Place place{rank(), size(), fmt::format("talweg-{:016x}", number())};
  const auto guard = world_->lock();
  switch_ = std::make_shared<SwitchStream>(std::move(wish), std::move(place), log_, [this] {
    const auto held = world_->lock();
    session_.look_again(live::now_ns());
    world_->rouse();
  });
}

std::shared_ptr<const protocol::Plan> GroupImpl::with_switch(std::shared_ptr<const protocol::Plan> trees,
                                                             DataType type, ReduceOp reduction) {
  if (switch_ == nullptr || trees == nullptr) return trees;
  const forest::Request& request = trees->forest->request;
  const auto format = format_of(type);
  const std::int64_t least = switch_->always() ? 1 : kLeastBytes;
  // All ranks find the same so far.
  if (request.op != Collective::all_reduce || !format ||
      (reduction != ReduceOp::sum && reduction != ReduceOp::avg) ||
      request.counts[0] * request.element_size < least)
    return trees;
  if (switch_lives_ != switch_->lives() || switch_for_ != chooser_.model() ||
      switch_plans_.size() >= steer::SharedPlans::kMostRequests) {
    switch_plans_.clear();
    switch_lives_ = switch_->lives();
    switch_for_ = chooser_.model();
    const forest::Request barrier = forest::even_request(Collective::barrier, size(), 0, 0, 1);
    votes_seconds_ =
        switch_for_->seconds(forest::find_planner("binomial").plan(barrier, switch_for_->network()));
  }
  auto& plan = switch_plans_[{trees.get(), *format}];
  // It shares the trees' plan, so that no other one comes to lie where that was.
  if (plan == nullptr) {
    const bool wanted = pays(*trees->forest);
    plan = protocol::make_stream_plan(std::move(trees), switch_, *format, wanted);
  }
  return plan;
}

// Votes go to all ranks and back, as in a barrier.
bool GroupImpl::pays(const forest::Forest& trees) {
  const auto cost = switch_->cost();
  if (!cost || switch_->always()) return cost.has_value();
  const double bytes = static_cast<double>(trees.request.counts[0] * trees.request.element_size);
  return cost->seconds(bytes) + votes_seconds_ < chooser_.model()->seconds(trees);
}

}  // namespace talweg::group
