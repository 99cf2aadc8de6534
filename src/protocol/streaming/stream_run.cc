#include "protocol/streaming/stream_run.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

namespace talweg::protocol {

const char* name(SumWay way) {
  constexpr const char* kNames[] = {"", "dense", "blocks", "pairs", "trees", "fallback"};
  static_assert(std::size(kNames) == kSumWays);
  return kNames[static_cast<std::size_t>(way)];
}

std::unique_ptr<Transfer> StreamPlan::make_transfer(BufferPool& pool) const {
  return std::make_unique<StreamRun>(pool);
}

std::shared_ptr<const StreamPlan> make_stream_plan(std::shared_ptr<const Plan> trees,
                                                   std::shared_ptr<SumStream> stream,
                                                   wire::AggregationFormat format, bool wanted,
                                                   const SumPrices& prices, bool absent, bool urgent) {
  auto plan = std::make_shared<StreamPlan>();
  static_cast<Plan&>(*plan) = *trees;
  // Votes tell all ranks.
  plan->announce_to.clear();
  if (wanted) plan->name = "switch";
  plan->trees = std::move(trees);
  plan->stream = std::move(stream);
  plan->format = format;
  plan->wanted = wanted;
  plan->prices = prices;
  plan->absent = absent;
  plan->urgent = urgent;
  return plan;
}

void StreamRun::reset(std::shared_ptr<const Plan> plan, const Operands& operands) {
  plan_ = std::static_pointer_cast<const StreamPlan>(std::move(plan));
  operands_ = operands;
  const forest::Request& request = plan_->forest->request;
  heard_.assign(static_cast<std::size_t>(request.ranks), {});
  task_ = {operands.in, operands.out,
           static_cast<std::size_t>(request.counts[0]) * wire::bytes_in_memory(plan_->format), plan_->format};
  said_ = {};
  chosen_ = chose_trees_ = false;
}

void StreamRun::begin(Actions& actions) {
  phase_ = Phase::line;
  if (plan_->wanted) sum_ = plan_->stream->line_up(plan_->urgent);
  if (sum_ == nullptr) {
    vote(vote_failed, 0, actions);
    go_by_trees(actions);
    return;
  }
  said_ = plan_->stream->say(*sum_, task_, plan_->prices);
  vote(vote_ready, said_.terms, actions);
  decide(actions);
}

void StreamRun::vote(Vote vote, std::uint32_t of, Actions& actions) {
  const auto ranks = static_cast<NodeId>(heard_.size());
  for (NodeId i = 1; i < ranks; ++i) {
    const NodeId to = (plan_->self + i) % ranks;
    actions.tell(to, wire::encode(actions.call(to), wire::Own{vote, said_.word, of, 0}));
  }
  Heard& own = heard_[static_cast<std::size_t>(plan_->self)];
  if (vote == vote_ready) own = {true, false, of, 0, said_.word};
  if (vote == vote_done) own = {true, true, own.terms, of, said_.word};
}

const char* StreamRun::on_frame(NodeId from, const wire::Header& header, const std::byte* payload,
                                Actions& actions) {
  if (static_cast<unsigned>(header.type) >= wire::kOwnTypes)
    return on_vote(from, wire::own_of(header), actions);
  if (phase_ != Phase::trees) go_by_trees(actions);
  return trees_->on_frame(from, header, payload, actions);
}

const char* StreamRun::on_vote(NodeId from, const wire::Own& own, Actions& actions) {
  if (static_cast<std::size_t>(from) >= heard_.size() || from == plan_->self || own.kind >= vote_kinds ||
      own.bytes != 0)
    return "no vote on a sum";
  Heard& heard = heard_[static_cast<std::size_t>(from)];
  if (own.kind == vote_ready) {
    if (heard.ready) return "a second vote that it is ready";
    heard.ready = true;
    heard.terms = own.chunk;
    heard.word = own.tree;
  } else if (own.kind == vote_done) {
    if (!heard.ready || heard.done) return "a vote that a sum is done before one that it is ready";
    heard.done = true;
    heard.sum = own.chunk;
  }
  if (phase_ == Phase::trees) {
    // Others may have chosen trees and have begun: what was chosen is remembered here as there.
    if (sum_ != nullptr && !chosen_ && all_ready() && on_same_terms()) choose();
    if (own.kind == vote_done)
      actions.tell(from, wire::encode(actions.call(from), wire::Own{vote_failed, said_.word, 0, 0}));
    return nullptr;
  }
  if (own.kind == vote_failed)
    go_by_trees(actions);
  else
    decide(actions);
  return nullptr;
}

// What has been heard of all is the same on all ranks.
void StreamRun::decide(Actions& actions) {
  const Heard& first = heard_.front();
  if (phase_ == Phase::line && all_ready()) {
    const auto form = on_same_terms() ? choose() : std::nullopt;
    if (form)
      start(*form, actions);
    else
      go_by_trees(actions);
    return;
  }
  if (phase_ != Phase::voted || !std::ranges::all_of(heard_, &Heard::done)) return;
  if (!std::ranges::all_of(heard_, [&](const Heard& h) { return h.sum == first.sum; })) {
    go_by_trees(actions);
    return;
  }
  learn();
  if (operands_.divisor > 1)
    kernel::divide(operands_.type, operands_.out, static_cast<std::size_t>(plan_->forest->request.counts[0]),
                   operands_.divisor);
  phase_ = Phase::agreed;
}

bool StreamRun::all_ready() const {
  return std::ranges::all_of(heard_, &Heard::ready);
}

bool StreamRun::on_same_terms() const {
  return std::ranges::all_of(heard_, [&](const Heard& h) { return h.terms == heard_.front().terms; });
}

std::optional<SumForm> StreamRun::choose() {
  words_.clear();
  for (const Heard& heard : heard_) words_.push_back(heard.word);
  chosen_ = true;
  const auto form = plan_->stream->choose(*sum_, task_, words_, plan_->prices);
  chose_trees_ = !form;
  return form;
}

void StreamRun::start(SumForm form, Actions& actions) {
  phase_ = Phase::sum;
  task_.form = form;
  plan_->stream->go(*sum_, task_);
  on_time(0, actions);
}

void StreamRun::learn() {
  plan_->stream->learn(task_, std::exchange(said_, {}).sample);
}

void StreamRun::on_time(std::int64_t now_ns, Actions& actions) {
  if (phase_ == Phase::trees) trees_->on_time(now_ns, actions);
  if (phase_ != Phase::sum) return;
  const auto [state, number] = plan_->stream->look(*sum_);
  if (state == QueuedSum::State::failed) {
    vote(vote_failed, 0, actions);
    go_by_trees(actions);
  } else if (state == QueuedSum::State::done) {
    vote(vote_done, number, actions);
    phase_ = Phase::voted;
    decide(actions);
  }
}

void StreamRun::go_by_trees(Actions& actions) {
  if (sum_ != nullptr) {
    // While it is in line here no rank has all votes, or all choose trees: it will not start anywhere, or
    // only to fail.
    if (phase_ == Phase::line)
      plan_->stream->pass(*sum_);
    else
      plan_->stream->abandon(*sum_);
  }
  phase_ = Phase::trees;
  const Plan& trees = *plan_->trees;
  if (trees_ == nullptr || made_for_ != typeid(trees)) {
    trees_ = trees.make_transfer(pool_);
    made_for_ = typeid(trees);
  }
  trees_->reset(plan_->trees, operands_);
  trees_->begin(actions);
}

void StreamRun::on_ready(NodeId node, Actions& actions) {
  if (phase_ == Phase::trees) trees_->on_ready(node, actions);
}

std::byte* StreamRun::place(NodeId from, const wire::Header& header) const {
  return phase_ == Phase::trees ? trees_->place(from, header) : nullptr;
}

void StreamRun::on_sent(std::uint32_t piece, std::byte* buffer, Actions* actions) {
  if (phase_ == Phase::trees) trees_->on_sent(piece, buffer, actions);
}

std::int64_t StreamRun::next_time_ns() const {
  return phase_ == Phase::trees ? trees_->next_time_ns() : std::numeric_limits<std::int64_t>::max();
}

bool StreamRun::done() {
  if (phase_ != Phase::trees) return phase_ == Phase::agreed;
  if (!trees_->done()) return false;
  // Of integers little is left of a mean.
  if (operands_.divisor <= 1 || operands_.type != DataType::i32) learn();
  return true;
}

SumWay StreamRun::way() const {
  static_assert(static_cast<int>(SumWay::pairs) == static_cast<int>(SumWay::dense) + kSumForms - 1);
  if (phase_ == Phase::agreed)
    return static_cast<SumWay>(static_cast<int>(SumWay::dense) + static_cast<int>(task_.form));
  if (!plan_->wanted && !plan_->absent) return SumWay::none;
  return chose_trees_ ? SumWay::trees : SumWay::fallback;
}

std::vector<NodeId> StreamRun::waiting_for() const {
  if (phase_ == Phase::trees) return trees_->waiting_for();
  std::vector<NodeId> nodes;
  for (std::size_t r = 0; r < heard_.size(); ++r)
    if (phase_ == Phase::line ? !heard_[r].ready : !heard_[r].done)
      if (static_cast<NodeId>(r) != plan_->self) nodes.push_back(static_cast<NodeId>(r));
  return nodes;
}

bool StreamRun::depends_on(NodeId node) const {
  if (phase_ == Phase::trees) return trees_->depends_on(node);
  const auto n = static_cast<std::size_t>(node);
  return n < heard_.size() && node != plan_->self && !heard_[n].done;
}

void StreamRun::release() {
  if (phase_ == Phase::trees) trees_->release();
  // The call has failed here, and what the others do with the sum is not known.
  if (phase_ == Phase::line || phase_ == Phase::sum || phase_ == Phase::voted) plan_->stream->abandon(*sum_);
  phase_ = Phase::idle;
  sum_.reset();
}

}  // namespace talweg::protocol
