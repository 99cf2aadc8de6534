#include "group/group_impl.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <numeric>
#include <utility>

#include "base/units.h"
#include "group/buffers.h"
#include "group/rows_switch.h"

namespace talweg::group {

namespace {

int checked_priority(const CallOptions& options) {
  if (options.priority >= 0 && options.priority < protocol::kPriorities) return options.priority;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("priority {}: expected 0 .. {}", options.priority, protocol::kPriorities - 1));
}

std::vector<int> seats_of(const GroupImpl::Identity& identity) {
  std::vector<int> seats = identity.members;
  for (const auto& helper : identity.helpers) seats.push_back(helper.seat);
  return seats;
}

protocol::Members members_of(const GroupImpl::Identity& identity) {
  protocol::Members members = protocol::ranks_only(identity.rank, identity.hosts);
  for (const auto& helper : identity.helpers)
    members.names.push_back(fmt::format("aggregator {} ({})", helper.name, helper.host));
  return members;
}

// A number for a new group that its members agree on and that no other group of theirs is likely to have.
std::uint32_t child_id(std::uint32_t parent, std::uint32_t index, std::span<const int> ranks) {
  std::vector<std::int64_t> words{parent, index};
  words.insert(words.end(), ranks.begin(), ranks.end());
  const std::uint64_t digest = wire::layout_digest(words.data(), words.size());
  return static_cast<std::uint32_t>(digest ^ (digest >> 32)) | 1U;  // 0 is the world
}

}  // namespace

GroupImpl::GroupImpl(std::shared_ptr<World> world, Identity identity, const cluster::Cluster& network,
                     std::string algorithm, std::chrono::milliseconds timeout, std::string description)
    : world_(std::move(world)),
      identity_(std::move(identity)),
      seats_(seats_of(identity_)),
      algorithm_(std::move(algorithm)),
      description_(std::move(description)),
      log_(identity_.rank),
      chooser_(network, algorithm_, &world_->background()),
      own_plans_(identity_.rank, chooser_),
      shared_plans_(identity_.rank, this->size(), static_cast<int>(seats_.size())),
      session_(
          members_of(identity_), identity_.id, *this, world_->pool(),
          [this](int source, int destination, std::int64_t count, DataType type) {
            return own_plans_.find(protocol::message_request(source, destination, this->size(), count, type));
          }),
      timeout_ns_(std::chrono::nanoseconds(timeout).count()),
      recorder_(world_->observer().options().recorded),
      meter_(this->size()),
      losses_(this->size(), this->rank()) {
  nodes_.assign(static_cast<std::size_t>(*std::max_element(seats_.begin(), seats_.end())) + 1, -1);
  if (this->rank() == protocol::kPlanner)
    leader_ = std::make_unique<steer::PlanLeader>(shared_plans_, chooser_, nullptr);
  for (std::size_t node = 0; node < seats_.size(); ++node)
    nodes_[static_cast<std::size_t>(seats_[node])] = static_cast<int>(node);
  const auto guard = world_->lock();
  world_->add(identity_.id, this);
  for (const auto& helper : identity_.helpers)
    if (helper.lost) on_peer_gone(helper.seat, ErrorCode::peer_failed, "it never connected");
}

GroupImpl::~GroupImpl() {
  if (world_->inherited()) {
    // A forked child has no part in it, and its copy can neither be stopped (the threads are not here) nor
    // taken apart (destroying what a thread waited for when the process was copied would wait for it).
    static_cast<void>(new (std::nothrow) std::shared_ptr<World>(std::move(world_)));
    for (auto* const streams : {&switch_, &bounded_switch_, &rows_streams_})
      static_cast<void>(new (std::nothrow) std::shared_ptr<SwitchStreams>(std::move(*streams)));
    return;
  }
  auto guard = world_->lock();
  leaving_ = true;
  for (int node = 0; node < static_cast<int>(seats_.size()); ++node) session_.leave(node);
  session_.close();
  add_traffic(world_->observer().switched());
  world_->remove(identity_.id);
  world_->submit(std::move(guard), true);
  for (const auto& streams : {switch_, bounded_switch_, rows_streams_})
    if (streams) streams->stop();
  // A callback may let go of the last group: its thread cannot wait for itself to end.
  if (world_->on_progress_thread())
    std::thread([last = std::move(world_)]() mutable { last.reset(); }).detach();
}

std::int64_t GroupImpl::timeout_ns(const CallOptions& options) const {
  // Longer than anybody waits, shorter than what nanoseconds can hold.
  constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 365 * 30);
  return options.timeout.count() > 0 ? std::chrono::nanoseconds(std::min(options.timeout, kLongest)).count()
                                     : timeout_ns_.load(std::memory_order_relaxed);
}

GroupImpl::Start::Start(const Call& call, int rank, int size)
    : request(checked_request(call, rank, size)), operation(protocol::make_operation(call, rank, request)) {}

GroupImpl::Start GroupImpl::prepare(const Call& call) {
  Start start(call, rank(), size());
  start.operation.priority = checked_priority(call.options);
  start.called_ns = live::now_ns();
  start.operation.set_deadline(start.called_ns, timeout_ns(call.options));
  start.work = std::make_shared<WorkImpl>(world_);
  start.operation.user = start.work.get();
  return start;
}

WorkPtr GroupImpl::start(const Call& call, std::shared_ptr<const protocol::Plan> plan) {
  if (call.op == Collective::send_recv) return start_message(call);
  Start start = prepare(call);
  start.operation.plan = std::move(plan);
  auto guard = world_->lock();
  enter(start);
  world_->submit(std::move(guard), call.options.will_wait);
  return std::move(start.work);
}

void GroupImpl::enter(Start& start) {
  protocol::Operation& operation = start.operation;
  const bool given = operation.plan != nullptr;
  const bool shared = !given && steer::is_shared(start.request);
  // What has no plan is refused before it has a number: as if it had never been called.
  if (!given && !shared) operation.plan = own_plans_.find(start.request);
  start.work->keep(start.work);
  world_->started(operation.question_ns, start.called_ns);
  const std::uint64_t call = session_.next_sequence();
  start.work->set_sequence(call);
  plan_held();  // those that have failed hold up nothing
  std::string refusal;
  if (shared && held_.empty() && !losses_.open()) try {
      operation.plan = with_switch(plan_for(call, start.request), operation.operands.type,
                                   operation.signature.reduction, operation.priority);
    } catch (const std::exception& e) {  // also what the system refuses: the others wait for this rank
      refusal = e.what();
    }
  const bool known = operation.plan != nullptr;
  note_start(start.work->watched(),
             {observe::CallNote::Kind::collective, operation.signature, call, -1, 0,
              operation.signature.count * static_cast<std::int64_t>(size_of(operation.operands.type)),
              start.called_ns, operation.deadline_ns,
              known ? observe::short_name(operation.plan->name) : observe::ShortName{},
              known ? operation.plan->trees_in_all : 0});
  if (!refusal.empty()) {
    session_.refuse(std::move(operation), ErrorCode::unsupported, refusal);
    return;
  }
  if (known && shared) begin_paced(*start.work, *operation.plan);
  const DataType type = operation.operands.type;
  const ReduceOp reduction = operation.signature.reduction;
  const int priority = operation.priority;
  session_.start(std::move(operation));
  if (adaptation_) adaptation_->count(start.request);
  if (!known && session_.waits_for_plan(call))
    held_.push_back({call, std::move(start.request), start.work, type, reduction, priority});
}

WorkPtr GroupImpl::start_message(const Call& call) {
  check_message(call, rank(), size());
  auto work = std::make_shared<WorkImpl>(world_);
  protocol::Message message = protocol::make_message(call, rank());
  const bool sends = call.root == rank();
  const std::int64_t now = live::now_ns();
  message.priority = checked_priority(call.options);
  message.deadline_ns = now + timeout_ns(call.options);
  message.user = work.get();
  auto guard = world_->lock();
  work->keep(work);
  world_->started(message.deadline_ns, now);
  note_start(work->watched(), {sends ? observe::CallNote::Kind::send : observe::CallNote::Kind::receive,
                               message.signature,
                               0,
                               message.peer,
                               message.tag,
                               message.signature.count * static_cast<std::int64_t>(size_of(call.type)),
                               now,
                               message.deadline_ns,
                               {},
                               0});
  if (sends) {
    session_.send(message);
  } else {
    // What a sender has announced and given up again while nothing was in flight here must not be received.
    world_->engine().poll(true);
    session_.receive(message);
  }
  world_->submit(std::move(guard), call.options.will_wait);
  return work;
}

std::uint64_t GroupImpl::number() const {
  const std::array<std::int64_t, 2> words{static_cast<std::int64_t>(world_->observer().options().job),
                                          identity_.id};
  return wire::layout_digest(words.data(), words.size());
}

bool GroupImpl::can_be_shared() const {
  if (world_->inherited()) return false;
  const auto guard = world_->lock();
  return !follows_ && session_.whole() && world_->engine().whole(world_->observer().options().size);
}

std::shared_ptr<GroupImpl> GroupImpl::part(std::span<const int> ranks, std::uint32_t id,
                                           std::chrono::milliseconds timeout) {
  Identity child;
  child.id = id;
  child.rank = -1;
  for (const int r : ranks) {
    check_rank(r, size(), "split: rank");
    if (r == rank()) child.rank = static_cast<int>(child.members.size());
    const int member = identity_.members[static_cast<std::size_t>(r)];
    if (std::find(child.members.begin(), child.members.end(), member) != child.members.end())
      throw Error(ErrorCode::invalid_argument, fmt::format("split: rank {} is listed twice", r));
    child.members.push_back(member);
    child.hosts.push_back(identity_.hosts[static_cast<std::size_t>(r)]);
    child.machines.push_back(identity_.machines[static_cast<std::size_t>(r)]);
  }
  if (child.rank < 0) return nullptr;
  cluster::Cluster network;
  bool paced = false, described = false;
  {
    const auto guard = world_->lock();
    network = cluster::staffed(cluster::restrict_to(chooser_.network(), ranks), {});
    paced = paced_;
    described = described_;
  }
  auto group =
      std::make_shared<GroupImpl>(world_, std::move(child), network, algorithm_, timeout, description_);
  if (paced) group->pace(described);
  group->use_switch_of(*this, ranks);
  return group;
}

std::shared_ptr<Group> GroupImpl::split(std::span<const int> ranks) {
  const std::uint32_t id = child_id(identity_.id, splits_++, ranks);
  std::shared_ptr<Group> group = part(ranks, id, std::chrono::milliseconds(timeout_ns_.load() / 1'000'000));
  // After this everybody knows the new group, so that anybody may send to it.
  agree_on(ranks, id);
  return group;
}

// Throws on every rank alike unless all that some rank has listed have given the list that it gave: one that
// was given another would compute in another group, or alone.
void GroupImpl::agree_on(std::span<const int> ranks, std::uint32_t id) {
  const auto n = static_cast<std::size_t>(size());
  const std::size_t bytes = sizeof id + (n + 7) / 8;
  std::vector<std::uint8_t> mine(bytes);
  std::memcpy(mine.data(), &id, sizeof id);
  for (const int r : ranks) mine[sizeof id + static_cast<std::size_t>(r) / 8] |= 1U << (r % 8);
  std::vector<std::uint8_t> all(n * bytes);
  all_gather(mine.data(), all.data(), std::vector<std::size_t>(n, bytes), DataType::u8);
  for (std::size_t a = 0; a < n; ++a)
    for (std::size_t b = 0; b < n; ++b) {
      const std::uint8_t* const theirs = all.data() + a * bytes;
      const bool listed = (theirs[sizeof id + b / 8] & (1U << (b % 8))) != 0;
      if (listed && std::memcmp(theirs, all.data() + b * bytes, bytes) != 0)
        throw Error(
            ErrorCode::mismatch,
            fmt::format("split: rank {} lists rank {}, which lists other ranks, or in another order, or "
                        "has split this group another number of times",
                        a, b));
    }
}

void GroupImpl::abort(const std::string& why) {
  std::vector<std::shared_ptr<GroupImpl>> others;  // the last of one is let go of without the lock
  auto guard = world_->lock();
  session_.abort(why);
  for (const auto& other : aborted_too_)
    if (others.push_back(other.lock()); others.back()) others.back()->session_.abort(why);
  world_->submit(std::move(guard), true);
}

void GroupImpl::abort_too(const std::shared_ptr<GroupImpl>& other) {
  auto guard = world_->lock();
  std::erase_if(aborted_too_, [](const auto& known) { return known.expired(); });
  aborted_too_.push_back(other);
  // Where that was aborted a moment ago, who is in a call of the other one would wait in vain.
  if (const auto& broken = session_.broken()) other->session_.abort(broken->text);
  world_->submit(std::move(guard), true);
}

std::optional<Error> GroupImpl::failure_of(int rank) const {
  world_->progress();  // nobody else reads frames while no operation is in flight
  const auto guard = world_->lock();
  if (const auto& broken = session_.broken()) return Error(broken->code, broken->text);
  if (!session_.has_gone(rank)) return std::nullopt;
  return Error(ErrorCode::peer_failed, fmt::format("rank {} ({}) has left the group", rank,
                                                   identity_.hosts[static_cast<std::size_t>(rank)]));
}

std::vector<std::int64_t> GroupImpl::least_round_trips_ns() const {
  std::vector<std::int64_t> trips(identity_.hosts.size());
  const auto guard = world_->lock();
  for (const live::PeerStatistics& peer : world_->engine().peer_statistics())
    if (const int node = node_at(peer.rank); node >= 0 && node < size())
      trips[static_cast<std::size_t>(node)] = std::int64_t{peer.least_round_trip_us} * 1000;
  return trips;
}

void GroupImpl::set_timeout(std::chrono::milliseconds timeout) {
  if (timeout.count() < 1) throw Error(ErrorCode::invalid_argument, "set_timeout: expected at least 1 ms");
  constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 365 * 30);
  timeout_ns_ = std::chrono::nanoseconds(std::min(timeout, kLongest)).count();
}

GroupStatistics GroupImpl::statistics() const {
  const auto guard = world_->lock();
  const live::EngineStatistics engine = world_->engine().statistics();
  const observe::BoundedTotals& bounded = world_->observer().bounded();
  return {engine.bytes_sent, engine.bytes_received, world_->pool().peak_bytes(), engine.shared_bytes,
          bounded.calls,     bounded.sent_bytes,    bounded.lost_bytes,          bounded.packets_again};
}

std::string GroupImpl::describe() const {
  const auto guard = world_->lock();
  std::vector<std::string> helping = cluster::aggregator_names(chooser_.network());
  for (int node = size(); node < static_cast<int>(seats_.size()); ++node)
    if (losses_.knows(node))
      std::erase(helping, identity_.helpers[static_cast<std::size_t>(node - size())].name);
  return fmt::format("{}aggregators: {}\nswitch: {}{}\n", description_,
                     helping.empty() ? "none" : fmt::format("{}", fmt::join(helping, ", ")),
                     switch_ ? switch_->describe() : "none",
                     rows_streams_ ? "; of sparse tensors: " + rows_streams_->describe() : "");
}

std::string GroupImpl::host_of(int r) const {
  check_rank(r, size(), "host_of: rank");
  return identity_.hosts[static_cast<std::size_t>(r)];
}

live::Place GroupImpl::place(int seat, const wire::Header& header) {
  const int from = node_at(seat);
  if (from < 0) return {};
  const protocol::Session::Placement placement = session_.place(from, header);
  return {placement.data, identity_.id, placement.run};
}

void GroupImpl::on_frame(int seat, const wire::Header& header, const std::byte* payload) {
  const int from = node_at(seat);
  if (from < 0) return;
  if (header.type == wire::FrameType::lost) {
    on_lost(from, wire::lost_of(header), payload);
    return;
  }
  if (header.type == wire::FrameType::plan || header.type == wire::FrameType::report) {
    hear(from, header, payload);
    return;
  }
  if (header.type == wire::FrameType::group_failure && from >= size()) {
    session_.on_frame(from, header, payload);
    lose_helper(from);
    agree_on_losses();
    return;
  }
  const bool data = header.length > 0 && wire::is_chunk(header);
  observe::Trace* const trace = data ? world_->observer().trace() : nullptr;
  const std::int64_t begin_ns = trace == nullptr ? 0 : live::now_ns();
  session_.on_frame(from, header, payload);
  plan_held();
  if (trace != nullptr) trace->chunk(false, header, from, identity_.rank, begin_ns, live::now_ns());
}

void GroupImpl::on_peer_gone(int seat, std::optional<ErrorCode> failure, const std::string& why) {
  const int node = node_at(seat);
  if (node < 0) return;
  note_missing();
  session_.on_peer_gone(node, failure, why);
  if (node >= size()) {
    lose_helper(node);
  } else {  // who says no more
    losses_.gone(node);
  }
  agree_on_losses();
}

bool GroupImpl::send(int to, const wire::Header& header, const std::byte* payload,
                     const protocol::Token& token, int priority, bool stable) {
  live::OutFrame frame;
  frame.header = header;
  frame.payload = payload;
  frame.token = token;
  frame.priority = priority;
  frame.stable = stable;
  frame.reported = !token.data;
  const int peer = seats_[static_cast<std::size_t>(to)];
  observe::Trace* trace = payload == nullptr ? nullptr : world_->observer().trace();
  if (trace == nullptr) return world_->engine().send(peer, std::move(frame));
  const std::int64_t begin_ns = live::now_ns();
  const bool taken = world_->engine().send(peer, std::move(frame));
  trace->chunk(true, header, identity_.rank, to, begin_ns, live::now_ns());
  return taken;
}

void GroupImpl::send_text(int to, const wire::Header& header, const std::string& text) {
  live::OutFrame frame;
  frame.header = header;
  frame.text = text;
  frame.priority = protocol::kUrgent;  // bad news travels first
  world_->engine().send(seats_[static_cast<std::size_t>(to)], std::move(frame));
}

void GroupImpl::cancel(std::uint64_t run) {
  world_->engine().cancel(identity_.id, run);
}

void GroupImpl::completed(void* user, const protocol::Outcome& outcome) {
  auto& work = *static_cast<WorkImpl*>(user);
  if (const auto& needed = work.paced()) world_->pacer().end(outcome.ok ? *needed : 0, live::now_ns());
  const std::string more = note_end(work.watched(), outcome);
  if (more.empty()) {
    world_->completed(work, outcome);
  } else {
    protocol::Outcome longer = outcome;
    longer.text += more;
    world_->completed(work, longer);
  }
}

}  // namespace talweg::group
