// How a group's plans follow the network: the steps at the end of an epoch.
#include "base/units.h"
#include "group/group_impl.h"

namespace talweg::group {

namespace {
// Of an exchange: a rank may be busy with its own work for longer than calls usually wait. What is held for
// it has deadlines of its own.
constexpr std::chrono::milliseconds kPatience = std::chrono::hours(24);
}  // namespace

void GroupImpl::adapt() {
  // Between ranks of one host there is no network to follow.
  if (size() < 2 || world_->engine().all_local()) return;
  Identity identity = identity_;
  identity.id = ~identity_.id;
  exchange_ = std::make_shared<GroupImpl>(world_, std::move(identity), plans_.network(), "",
                                          std::chrono::milliseconds(timeout_ns_.load() / 1'000'000), "");
  exchange_->adapting_ = this;
  adaptation_ = std::make_unique<steer::Adaptation>(rank(), plans_.network());
  follows_ = true;
}

void GroupImpl::end_epoch() {
  if (exchange_state_ == Exchange::running) {
    undecided_ = true;
  } else {
    turn_epoch();
  }
}

// Called while somebody else's call begins, or by whoever drives: neither has asked for new plans.
void GroupImpl::turn_epoch() {
  try {
    try_to_turn_epoch();
  } catch (const Error& e) {
    stop_following(e.what());
  }
}

void GroupImpl::try_to_turn_epoch() {
  const bool change = exchange_state_ == Exchange::done && adaptation_->decide();
  if (adaptation_->disagreed()) {
    stop_following("ranks have made different calls");
    return;
  }
  if (change) {
    log_.log(LogLevel::info, "plan", "the network has changed: other plans, predicted to take {:.0f} % less",
             adaptation_->gain() * 100);
    plans_.change_to(adaptation_->network());
  }
  adaptation_->take(world_->engine().peer_statistics(), live::now_ns());
  exchange_state_ = Exchange::running;
  const std::vector<std::size_t> counts(static_cast<std::size_t>(size()), adaptation_->row());
  exchange_->enter(exchange_->prepare({.op = Collective::all_gather,
                                       .type = DataType::f64,
                                       .in = adaptation_->own(),
                                       .out = adaptation_->all(),
                                       .counts = counts,
                                       .options = {.timeout = kPatience, .priority = protocol::kUrgent}}));
}

// Called inside the exchange's own session: what follows is done by on_time, a moment later.
void GroupImpl::exchanged(bool ok, const std::string& why) {
  exchange_state_ = Exchange::done;
  if (!ok) stop_following(why);
  if (!undecided_) return;
  next_held_ns_ = 0;
  world_->look_at(0);
}

// Where other ranks go on, what this one calls is answered with a mismatch as soon as they change their
// plans.
void GroupImpl::stop_following(const std::string& why) {
  if (follows_ && !leaving_) log_.log(LogLevel::warn, "plan", "plans no longer follow the network: {}", why);
  follows_ = false;
}

// The call has returned long ago, and whoever drives is not the one to tell: its work fails.
void GroupImpl::begin_or_refuse(Start start) {
  try {
    start.operation.plan = plans_.find(start.request);
  } catch (const Error& e) {
    world_->completed(*start.work, {false, e.code(), e.what(), -1});
    return;
  }
  start.work->set_sequence(session_.next_sequence());
  begin(std::move(start));
}

void GroupImpl::begin_held() {
  if (exchange_state_ == Exchange::running && follows_) {
    stop_following("a call's deadline has passed before the ranks had agreed");
    exchange_->session_.abort("plans no longer follow the network there");
  }
  undecided_ = false;
  next_held_ns_ = std::numeric_limits<std::int64_t>::max();
  if (follows_) turn_epoch();
  while (!undecided_ && !held_.empty()) {
    Start start = std::move(held_.front());
    held_.pop_front();
    begin_or_refuse(std::move(start));
  }
  for (const Start& start : held_) next_held_ns_ = std::min(next_held_ns_, start.operation.deadline_ns);
}

}  // namespace talweg::group
