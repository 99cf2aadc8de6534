#include "group/group_impl.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <new>
#include <numeric>
#include <utility>

#include "base/units.h"
#include "group/buffers.h"

namespace talweg::group {

namespace {

// All elements of a group's vector, and so all byte counts, stay far inside 63 bits.
constexpr std::int64_t kMaxElements = std::int64_t{1} << 56;

// Before a call's deadline: long enough for every rank that lives to answer.
constexpr std::int64_t kQuestionNs = 1'000'000'000;

forest::Request request_of(Collective op, int size, int root, DataType type,
                           std::vector<std::int64_t> counts) {
  forest::Request r;
  r.op = op;
  r.ranks = size;
  r.root = root;
  r.counts = std::move(counts);
  r.element_size = static_cast<std::int64_t>(size_of(type));
  return r;
}

int checked_priority(const CallOptions& options) {
  if (options.priority >= 0 && options.priority < protocol::kPriorities) return options.priority;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("priority {}: expected 0 .. {}", options.priority, protocol::kPriorities - 1));
}

// A number for a new group that its members agree on and that no other group of theirs is likely to have.
std::uint32_t child_id(std::uint32_t parent, std::uint32_t index, std::span<const int> ranks) {
  std::vector<std::int64_t> words{parent, index};
  words.insert(words.end(), ranks.begin(), ranks.end());
  const std::uint64_t digest = wire::layout_digest(words.data(), words.size());
  return static_cast<std::uint32_t>(digest ^ (digest >> 32)) | 1U;  // 0 is the world
}

}  // namespace

GroupImpl::GroupImpl(std::shared_ptr<World> world, Identity identity, cluster::Cluster network,
                     std::string algorithm, std::chrono::milliseconds timeout, std::string description)
    : world_(std::move(world)),
      identity_(std::move(identity)),
      algorithm_(std::move(algorithm)),
      description_(std::move(description)),
      log_(identity_.rank),
      plans_(identity_.rank, std::move(network), algorithm_, log_),
      session_(identity_.rank, identity_.hosts, identity_.id, *this, world_->pool(),
               [this](int source, int destination, std::int64_t count, DataType type) {
                 forest::Request r = request_of(Collective::send_recv, this->size(), source, type, {count});
                 r.peer = destination;
                 return plans_.find(r);
               }),
      timeout_ns_(std::chrono::nanoseconds(timeout).count()),
      recorder_(world_->observer().options().recorded) {
  group_rank_.assign(
      static_cast<std::size_t>(*std::max_element(identity_.members.begin(), identity_.members.end())) + 1,
      -1);
  for (int r = 0; r < this->size(); ++r)
    group_rank_[static_cast<std::size_t>(identity_.members[static_cast<std::size_t>(r)])] = r;
  const auto guard = world_->lock();
  world_->add(identity_.id, this);
}

GroupImpl::~GroupImpl() {
  if (world_->inherited()) {
    // A forked child has no part in it, and its copy can neither be stopped (the threads are not here) nor
    // taken apart (destroying what a thread waited for when the process was copied would wait for it).
    static_cast<void>(new (std::nothrow) std::shared_ptr<World>(std::move(world_)));
    return;
  }
  {
    const auto guard = world_->lock();
    leaving_ = true;
    follows_ = false;  // whoever drives meanwhile begins no further exchange
  }
  exchange_.reset();
  auto guard = world_->lock();
  if (undecided_) begin_held();
  // An exchange of measurements is nobody's own business: it ends with its group.
  for (int r = 0; r < size() && adapting_ == nullptr; ++r)
    if (r != rank()) session_.leave(r);
  session_.close();
  world_->remove(identity_.id);
  world_->submit(std::move(guard), true);
  // A callback may let go of the last group: its thread cannot wait for itself to end.
  if (world_->on_progress_thread())
    std::thread([last = std::move(world_)]() mutable { last.reset(); }).detach();
}

void GroupImpl::check_rank(int rank, const char* what) const {
  if (rank < 0 || rank >= size())
    throw Error(ErrorCode::invalid_argument, fmt::format("{} {}: expected 0 .. {}", what, rank, size() - 1));
}

std::vector<std::int64_t> GroupImpl::checked(std::span<const std::size_t> counts, const char* what) const {
  if (counts.size() != static_cast<std::size_t>(size()))
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("{}: expected one count for each of {} ranks, got {}", what, size(), counts.size()));
  std::int64_t total = 0;
  std::vector<std::int64_t> out;
  for (const std::size_t c : counts) {
    if (c > static_cast<std::size_t>(kMaxElements) || (total += static_cast<std::int64_t>(c)) > kMaxElements)
      throw Error(ErrorCode::invalid_argument, fmt::format("{}: a count is out of range", what));
    out.push_back(static_cast<std::int64_t>(c));
  }
  return out;
}

std::int64_t GroupImpl::timeout_ns(const CallOptions& options) const {
  // Longer than anybody waits, shorter than what nanoseconds can hold.
  constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 365 * 30);
  return options.timeout.count() > 0 ? std::chrono::nanoseconds(std::min(options.timeout, kLongest)).count()
                                     : timeout_ns_.load(std::memory_order_relaxed);
}

GroupImpl::Start GroupImpl::prepare(Call call, const CallOptions& options) {
  const Collective op = call.request.op;
  const bool reduces =
      op == Collective::all_reduce || op == Collective::reduce || op == Collective::reduce_scatter;
  protocol::Operation operation;
  operation.operands.in = static_cast<const std::byte*>(call.in);
  operation.operands.out = static_cast<std::byte*>(call.out);
  operation.operands.type = call.type;
  if (reduces || op == Collective::barrier) {
    operation.operands.reduce = kernel::reduce_function(call.type, call.op);
    if (operation.operands.reduce == nullptr)
      throw Error(ErrorCode::unsupported, fmt::format("{}: no reduction {} for elements of type {}", name(op),
                                                      name(call.op), name(call.type)));
    if (call.op == ReduceOp::avg) operation.operands.divisor = size();
  }
  for (const std::int64_t count : call.request.counts)
    if (count < 0 || count > kMaxElements)
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{}: {} elements are out of range", name(op), count));
  operation.signature = {op, call.type, call.op, call.request.root, call.shown_count, call.layout};
  operation.tell = std::move(call.tell);
  operation.expect = std::move(call.expect);
  operation.all_contribute = call.all_contribute;
  const std::int64_t timeout = timeout_ns(options);
  const std::int64_t now = live::now_ns();
  operation.deadline_ns = now + timeout;
  operation.question_ns = operation.deadline_ns - std::min(timeout / 4, kQuestionNs);
  operation.priority = checked_priority(options);
  auto work = std::make_shared<WorkImpl>(world_);
  operation.user = work.get();
  return {std::move(call.request), std::move(operation), std::move(work), now, call.shown_count};
}

WorkPtr GroupImpl::start(Call call, const CallOptions& options) {
  Start start = prepare(std::move(call), options);
  WorkPtr work = start.work;
  auto guard = world_->lock();
  enter(std::move(start));
  world_->submit(std::move(guard), options.will_wait);
  return work;
}

void GroupImpl::enter(Start start) {
  // What has no plan is refused before it is counted or has a number: as if it had never been called.
  if (!undecided_) start.operation.plan = plans_.find(start.request);
  start.work->keep(start.work);
  start.work->set_sequence(session_.next_sequence() + held_.size());
  world_->started(start.operation.question_ns, start.called_ns);
  if (!undecided_) {
    begin(std::move(start));
    return;
  }
  next_held_ns_ = std::min(next_held_ns_, start.operation.deadline_ns);
  held_.push_back(std::move(start));
}

void GroupImpl::begin(Start start) {
  protocol::Operation& operation = start.operation;
  // Ranks whose plans have changed a different number of times must not take each other's chunks for theirs.
  if (adaptation_ && adaptation_->changes() > 0) operation.signature.layout ^= ~adaptation_->changes();
  note_start(*start.work, {CallNote::Kind::collective, operation.signature, session_.next_sequence(), -1, 0,
                           start.shown_count * static_cast<std::int64_t>(size_of(operation.operands.type)),
                           start.called_ns, operation.deadline_ns, operation.plan->forest->planner,
                           static_cast<std::uint32_t>(operation.plan->forest->trees.size())});
  session_.start(std::move(operation));
  if (follows_ && adaptation_->count(start.request)) end_epoch();
}

WorkPtr GroupImpl::start_all_reduce(const void* in, void* out, std::size_t count, DataType type, ReduceOp op,
                                    const CallOptions& options) {
  const auto n = static_cast<std::int64_t>(count);
  check_buffer(in, n, "all_reduce: the input");
  check_buffer(out, n, "all_reduce: the output");
  check_sharing(in, n, out, n, type, 0, "all_reduce");
  // Nothing to sum, nothing that would carry the agreement.
  Call call{
      request_of(Collective::all_reduce, size(), 0, type, {n}), type, op, in, out, {}, {}, count > 0, 0, n};
  return start(std::move(call), options);
}

WorkPtr GroupImpl::start_reduce(const void* in, void* out, std::size_t count, DataType type, ReduceOp op,
                                int root, const CallOptions& options) {
  check_rank(root, "reduce: root");
  const auto n = static_cast<std::int64_t>(count);
  check_buffer(in, n, "reduce: the input");
  if (root == rank()) {
    check_buffer(out, n, "reduce: the root's output");
    check_sharing(in, n, out, n, type, 0, "reduce");
  }
  Call call{request_of(Collective::reduce, size(), root, type, {n}), type, op, in, out, {}, {}, false, 0, n};
  return start(std::move(call), options);
}

WorkPtr GroupImpl::start_broadcast(void* data, std::size_t count, DataType type, int root,
                                   const CallOptions& options) {
  check_rank(root, "broadcast: root");
  const auto n = static_cast<std::int64_t>(count);
  check_buffer(data, n, "broadcast: the buffer");
  Call call{request_of(Collective::broadcast, size(), root, type, {n}),
            type,
            ReduceOp::sum,
            data,
            data,
            {},
            {},
            false,
            0,
            n};
  return start(std::move(call), options);
}

WorkPtr GroupImpl::start_reduce_scatter(const void* in, void* out, std::span<const std::size_t> counts,
                                        DataType type, ReduceOp op, const CallOptions& options) {
  std::vector<std::int64_t> n = checked(counts, "reduce_scatter");
  const std::int64_t total = std::accumulate(n.begin(), n.end(), std::int64_t{0});
  check_buffer(in, total, "reduce_scatter: the input");
  const std::int64_t own = n[static_cast<std::size_t>(rank())];
  check_buffer(out, own, "reduce_scatter: the output");
  check_sharing(in, total, out, own, type, sum_before(n, rank()), "reduce_scatter");
  // A rank that receives nothing would not hear from all.
  const bool all_receive = std::all_of(n.begin(), n.end(), [](std::int64_t c) { return c > 0; });
  const std::uint64_t layout = wire::layout_digest(n.data(), n.size());
  Call call{request_of(Collective::reduce_scatter, size(), 0, type, std::move(n)),
            type,
            op,
            in,
            out,
            {},
            {},
            all_receive,
            layout,
            total};
  return start(std::move(call), options);
}

GroupImpl::Call GroupImpl::gather_call(const void* in, void* out, std::span<const std::size_t> counts,
                                       DataType type) const {
  std::vector<std::int64_t> n = checked(counts, "all_gather");
  const std::int64_t total = std::accumulate(n.begin(), n.end(), std::int64_t{0});
  const std::int64_t own = n[static_cast<std::size_t>(rank())];
  check_buffer(in, own, "all_gather: the input");
  check_buffer(out, total, "all_gather: the output");
  check_sharing(in, own, out, total, type, sum_before(n, rank()), "all_gather");
  const std::uint64_t layout = wire::layout_digest(n.data(), n.size());
  return {request_of(Collective::all_gather, size(), 0, type, std::move(n)),
          type,
          ReduceOp::sum,
          in,
          out,
          {},
          {},
          false,
          layout,
          total};
}

WorkPtr GroupImpl::start_all_gather(const void* in, void* out, std::span<const std::size_t> counts,
                                    DataType type, const CallOptions& options) {
  return start(gather_call(in, out, counts, type), options);
}

WorkPtr GroupImpl::start_all_to_all(const void* in, std::span<const std::size_t> in_counts, void* out,
                                    std::span<const std::size_t> out_counts, DataType type,
                                    const CallOptions& options) {
  Call call;
  call.tell = checked(in_counts, "all_to_all: input counts");
  call.expect = checked(out_counts, "all_to_all: output counts");
  const auto me = static_cast<std::size_t>(rank());
  const auto n = static_cast<std::size_t>(size());
  if (call.tell[me] != call.expect[me])
    throw Error(ErrorCode::invalid_argument,
                fmt::format("all_to_all: rank {} sends itself {} elements but expects {}", rank(),
                            call.tell[me], call.expect[me]));
  const std::int64_t total_in = std::accumulate(call.tell.begin(), call.tell.end(), std::int64_t{0});
  check_buffer(in, total_in, "all_to_all: the input");
  const std::int64_t total_out = std::accumulate(call.expect.begin(), call.expect.end(), std::int64_t{0});
  check_buffer(out, total_out, "all_to_all: the output");
  const auto in_place = size() > 1 ? std::nullopt : std::optional<std::int64_t>(0);
  check_sharing(in, total_in, out, total_out, type, in_place, "all_to_all");
  std::vector<std::int64_t> blocks(n * n, 0);
  for (std::size_t r = 0; r < n; ++r) {
    blocks[me * n + r] = call.tell[r];
    blocks[r * n + me] = call.expect[r];
  }
  call.request = request_of(Collective::all_to_all, size(), 0, type, std::move(blocks));
  call.type = type;
  call.in = in;
  call.out = out;
  call.shown_count = total_in;
  return start(std::move(call), options);
}

// gather and scatter: only the root knows every count, and a pair without the root has nothing to agree on.
GroupImpl::Call GroupImpl::rooted_call(Collective op, const void* in, void* out,
                                       std::span<const std::size_t> counts, DataType type, int root) const {
  check_rank(root, op == Collective::gather ? "gather: root" : "scatter: root");
  std::vector<std::int64_t> n = checked(counts, name(op));
  const std::int64_t own = n[static_cast<std::size_t>(rank())];
  const std::int64_t total = std::accumulate(n.begin(), n.end(), std::int64_t{0});
  const std::int64_t before = sum_before(n, rank());
  const bool is_root = rank() == root;
  Call call;
  std::vector<std::int64_t> unknown(n.size(), protocol::kUnknownCount);
  call.tell = call.expect = unknown;
  const auto r = static_cast<std::size_t>(root);
  if (op == Collective::gather) {
    if (is_root) call.expect = n;
    if (!is_root) call.tell[r] = own;
    check_buffer(in, own, "gather: the input");
    if (is_root) {
      check_buffer(out, total, "gather: the root's output");
      check_sharing(in, own, out, total, type, before, "gather");
    }
  } else {
    if (is_root) call.tell = n;
    if (!is_root) call.expect[r] = own;
    check_buffer(out, own, "scatter: the output");
    if (is_root) {
      check_buffer(in, total, "scatter: the root's input");
      check_sharing(in, total, out, own, type, before, "scatter");
    }
  }
  // Offsets depend on the counts before ours, which only the root must know: elsewhere only our part has a
  // place.
  if (!is_root)
    for (std::size_t i = 0; i < n.size(); ++i)
      if (static_cast<int>(i) != rank()) n[i] = 0;
  call.request = request_of(op, size(), root, type, std::move(n));
  call.type = type;
  call.in = in;
  call.out = out;
  call.shown_count = is_root ? total : own;
  return call;
}

WorkPtr GroupImpl::start_gather(const void* in, void* out, std::span<const std::size_t> counts, DataType type,
                                int root, const CallOptions& options) {
  return start(rooted_call(Collective::gather, in, out, counts, type, root), options);
}

WorkPtr GroupImpl::start_scatter(const void* in, void* out, std::span<const std::size_t> counts,
                                 DataType type, int root, const CallOptions& options) {
  return start(rooted_call(Collective::scatter, in, out, counts, type, root), options);
}

WorkPtr GroupImpl::start_barrier(const CallOptions& options) {
  Call call{request_of(Collective::barrier, size(), 0, DataType::u8, {0}),
            DataType::u8,
            ReduceOp::sum,
            nullptr,
            nullptr,
            {},
            {},
            true,
            0,
            0};
  return start(std::move(call), options);
}

WorkPtr GroupImpl::start_message(bool sends, void* data, std::size_t count, DataType type, int peer,
                                 std::uint32_t tag, const CallOptions& options) {
  const auto n = static_cast<std::int64_t>(count);
  if (count > static_cast<std::size_t>(kMaxElements))
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: {} elements are out of range", sends ? "send" : "recv", count));
  check_buffer(data, n, sends ? "send: the buffer" : "recv: the buffer");
  if (sends || peer != kAnyRank) check_rank(peer, sends ? "send: destination" : "recv: source");
  if (peer == rank())
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: rank {} is this rank itself", sends ? "send" : "recv", peer));
  auto work = std::make_shared<WorkImpl>(world_);
  protocol::Message message;
  message.peer = peer;
  message.tag = tag;
  message.signature = {Collective::send_recv, type, ReduceOp::sum, 0, n, 0};
  message.send = sends ? static_cast<const std::byte*>(data) : nullptr;
  message.receive = sends ? nullptr : static_cast<std::byte*>(data);
  const std::int64_t now = live::now_ns();
  message.deadline_ns = now + timeout_ns(options);
  message.priority = checked_priority(options);
  message.user = work.get();
  auto guard = world_->lock();
  work->keep(work);
  world_->started(message.deadline_ns, now);
  note_start(*work, {sends ? CallNote::Kind::send : CallNote::Kind::receive, message.signature, 0, peer, tag,
                     n * static_cast<std::int64_t>(size_of(type)), now, message.deadline_ns, "", 0});
  if (sends) {
    session_.send(message);
  } else {
    // What a sender has announced and given up again while nothing was in flight here must not be received.
    world_->engine().poll();
    session_.receive(message);
  }
  world_->submit(std::move(guard), options.will_wait);
  return work;
}

WorkPtr GroupImpl::start_send(const void* data, std::size_t count, DataType type, int destination,
                              std::uint32_t tag, const CallOptions& options) {
  return start_message(true, const_cast<void*>(data), count, type, destination, tag, options);
}

WorkPtr GroupImpl::start_recv(void* data, std::size_t count, DataType type, int source, std::uint32_t tag,
                              const CallOptions& options) {
  return start_message(false, data, count, type, source, tag, options);
}

std::uint64_t GroupImpl::number() const {
  const std::array<std::int64_t, 2> words{static_cast<std::int64_t>(world_->observer().options().job),
                                          identity_.id};
  return wire::layout_digest(words.data(), words.size());
}

bool GroupImpl::can_be_shared() const {
  if (world_->inherited()) return false;
  const auto guard = world_->lock();
  return !adaptation_ && session_.whole() && world_->engine().whole();
}

std::shared_ptr<GroupImpl> GroupImpl::part(std::span<const int> ranks, std::uint32_t id,
                                           std::chrono::milliseconds timeout) {
  Identity child;
  child.id = id;
  child.rank = -1;
  for (const int r : ranks) {
    check_rank(r, "split: rank");
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
  {
    const auto guard = world_->lock();
    network = cluster::restrict_to(plans_.network(), ranks);
  }
  return std::make_shared<GroupImpl>(world_, std::move(child), network, algorithm_, timeout, description_);
}

std::shared_ptr<Group> GroupImpl::split(std::span<const int> ranks) {
  // Every rank must see the network of the same epoch.
  if (adaptation_) barrier();
  std::shared_ptr<Group> group = part(ranks, child_id(identity_.id, splits_++, ranks),
                                      std::chrono::milliseconds(timeout_ns_.load() / 1'000'000));
  // Everybody knows the new group before anybody sends to it.
  barrier();
  return group;
}

void GroupImpl::abort(const std::string& why) {
  auto guard = world_->lock();
  session_.abort(why);
  if (std::exchange(follows_, false)) exchange_->session_.abort(why);
  if (undecided_) next_held_ns_ = 0;  // what is held fails as well
  world_->look_at(next_held_ns_);
  world_->submit(std::move(guard), true);
}

void GroupImpl::set_timeout(std::chrono::milliseconds timeout) {
  if (timeout.count() < 1) throw Error(ErrorCode::invalid_argument, "set_timeout: expected at least 1 ms");
  constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 365 * 30);
  timeout_ns_ = std::chrono::nanoseconds(std::min(timeout, kLongest)).count();
}

GroupStatistics GroupImpl::statistics() const {
  const auto guard = world_->lock();
  const live::EngineStatistics engine = world_->engine().statistics();
  return {engine.bytes_sent, engine.bytes_received, world_->pool().peak_bytes(), engine.shared_bytes};
}

std::string GroupImpl::describe() const {
  return description_;
}

std::string GroupImpl::explain(Collective op, std::size_t count, DataType type) const {
  const auto n = static_cast<std::int64_t>(count);
  const auto ranks = static_cast<std::size_t>(size());
  std::vector<std::int64_t> counts{n};
  const bool by_rank = op == Collective::reduce_scatter || op == Collective::all_gather ||
                       op == Collective::gather || op == Collective::scatter;
  if (by_rank) counts.assign(ranks, n / size());
  if (op == Collective::all_to_all) counts.assign(ranks * ranks, n / size());
  if (op == Collective::barrier) counts = {0};
  forest::Request request = request_of(op, size(), 0, type, std::move(counts));
  if (op == Collective::send_recv) request.peer = size() > 1 ? 1 : 0;
  const auto guard = world_->lock();
  return plans_.explain(request);
}

std::string GroupImpl::host_of(int r) const {
  check_rank(r, "host_of: rank");
  return identity_.hosts[static_cast<std::size_t>(r)];
}

live::Place GroupImpl::place(int world_rank, const wire::Header& header) {
  const auto w = static_cast<std::size_t>(world_rank);
  if (w >= group_rank_.size() || group_rank_[w] < 0) return {};
  const protocol::Session::Placement placement = session_.place(group_rank_[w], header);
  return {placement.data, identity_.id, placement.run};
}

void GroupImpl::on_frame(int world_rank, const wire::Header& header, const std::byte* payload) {
  const auto w = static_cast<std::size_t>(world_rank);
  if (w >= group_rank_.size() || group_rank_[w] < 0) return;
  Trace* trace = header.length == 0 ? nullptr : world_->observer().trace();
  if (trace == nullptr) {
    session_.on_frame(group_rank_[w], header, payload);
    return;
  }
  const std::int64_t begin_ns = live::now_ns();
  session_.on_frame(group_rank_[w], header, payload);
  if (wire::is_chunk(header))
    trace->chunk(false, header, group_rank_[w], identity_.rank, begin_ns, live::now_ns());
}

void GroupImpl::on_peer_gone(int world_rank, std::optional<ErrorCode> failure, const std::string& why) {
  const auto w = static_cast<std::size_t>(world_rank);
  if (w >= group_rank_.size() || group_rank_[w] < 0) return;
  note_missing();
  session_.on_peer_gone(group_rank_[w], failure, why);
}

bool GroupImpl::send(int to, const wire::Header& header, const std::byte* payload,
                     const protocol::Token& token, int priority, bool stable) {
  live::OutFrame frame;
  frame.header = header;
  frame.payload = payload;
  frame.token = token;
  frame.priority = priority;
  frame.stable = stable;
  frame.reported = !wire::is_chunk(header);
  const int peer = identity_.members[static_cast<std::size_t>(to)];
  Trace* trace = payload == nullptr ? nullptr : world_->observer().trace();
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
  world_->engine().send(identity_.members[static_cast<std::size_t>(to)], std::move(frame));
}

void GroupImpl::cancel(std::uint64_t run) {
  world_->engine().cancel(identity_.id, run);
}

void GroupImpl::completed(void* user, const protocol::Outcome& outcome) {
  auto& work = *static_cast<WorkImpl*>(user);
  if (adapting_ != nullptr) adapting_->exchanged(outcome.ok, outcome.text);
  const std::string more = note_end(work, outcome);
  if (more.empty()) {
    world_->completed(work, outcome);
  } else {
    protocol::Outcome longer = outcome;
    longer.text += more;
    world_->completed(work, longer);
  }
}

}  // namespace talweg::group
