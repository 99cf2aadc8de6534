#include "group/bounded.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <exception>
#include <memory>
#include <numeric>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/fail.h"
#include "base/log.h"
#include "group/bell.h"
#include "group/bounded_checks.h"
#include "group/bounded_explain.h"
#include "group/bounded_lost.h"
#include "group/bounded_switch.h"
#include "group/bounded_terms.h"
#include "group/bounded_warnings.h"
#include "group/buffers.h"
#include "group/joining.h"
#include "group/kept_sizes.h"
#include "kernel/reduce.h"
#include "live/bounded/bounded_exchange.h"
#include "protocol/bounded/lossy_sum.h"

namespace talweg::group {

namespace {

constexpr std::size_t kPacketBytes = 8192;
// Sizes of vectors whose deadlines are kept, some KiB for each other rank: more than a model has of buckets,
// less than calls of ever other sizes come to.
constexpr std::size_t kMostSizes = 256;
// What is said of a missing datagram says more than that a sum has not come: it is to be said first.
constexpr std::chrono::milliseconds kGrace{1000};
constexpr std::chrono::milliseconds kLook{100};  // from one look at who has gone to the next
constexpr std::int64_t kLookNs = std::chrono::nanoseconds(kLook).count();

using Kind = observe::CallNote::Kind;

class Sums : public BoundedSums {
 public:
  // `switches`: of the group that these are made of; null: it has none.
  Sums(std::shared_ptr<GroupImpl> group, const SwitchStreams* switches, const BoundedLossOptions& options,
       const BoundedSeams& seams)
      : group_(std::move(group)),
        options_(options),
        bounds_(protocol::bounds_of(parts_of(options))),
        said_(index(size())),
        deadlines_(seams.round_trips_ns) {
    if (size() > 1) meet(switches, seams);  // of one rank, all are servers
  }

  LossReport all_reduce(const BoundedCall& call) override { return begin(Kind::bounded, call); }
  LossReport push(const BoundedCall& call) override { return begin(Kind::bounded_push, call); }
  void pull(const PullCall& call) override {
    begin(Kind::bounded_pull, {.in = call.in,
                               .out = call.out,
                               .count = call.count,
                               .type = call.type,
                               .timeout = call.timeout,
                               .priority = call.priority});
  }
  BoundedPart part_of(int rank, std::size_t count) const override;
  std::string explain(std::size_t count, DataType type) const override {
    return explain_bounded(*group_, options_, carrier_, by_switch_.get(), count, type);
  }
  std::string flight_record() const override { return group_->flight_record(); }

 private:
  LossReport begin(Kind kind, const BoundedCall& call);
  LossReport reduce_alone(const BoundedCall& call);
  // One call, in elements.
  struct Sum {
    const BoundedCall& call;
    std::size_t element = 0;
    std::vector<std::size_t> counts, offsets;  // of each rank's shard
    const std::byte* data = nullptr;           // what is sent; null: nothing
    const std::byte* own = nullptr;            // of it, this rank's shard
    std::byte* part = nullptr;                 // where its sum comes, or is
    std::int64_t begun_ns = 0;
    std::int64_t timeout_ns = 0;
  };

  int size() const { return group_->size(); }
  int rank() const { return group_->rank(); }
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  bool pushes() const { return kind_ != Kind::bounded_pull; }
  bool pulls() const { return kind_ != Kind::bounded_push; }
  // No dedicated server.
  bool adds(int rank) const { return !options_.dedicated || !std::ranges::count(servers_, rank); }
  int adders() const { return size() - (options_.dedicated ? static_cast<int>(servers_.size()) : 0); }
  // This rank has sent `r` data, and tells it that it knows what was lost of them, or has a sum that `r`
  // gets.
  bool sends_to(const Sum& sum, int r) const {
    return (pulls() && sum.counts[index(rank())] > 0) ||
           (pushes() && adds(rank()) && sum.counts[index(r)] > 0);
  }
  bool receives_from(const Sum& sum, int r) const {
    return (pulls() && sum.counts[index(r)] > 0) || (pushes() && adds(r) && sum.counts[index(rank())] > 0);
  }

  void meet(const SwitchStreams* switches, const BoundedSeams& seams);
  void check_here(const BoundedCall& call);
  bool is_copied(const BoundedCall& call) const;
  void agree(const BoundedCall& call, const std::exception_ptr& refused);
  protocol::MeasuredTransfer last_transfer(const BoundedCall& call) const;
  Sum prepare(const BoundedCall& call) const;
  void load(Sum& sum);
  LossReport reduce(Sum& sum);
  void run(const Sum& sum);
  LossReport run_exactly(const Sum& sum);
  CallOptions message_options(const Sum& sum) const;
  void start_receiving(const Sum& sum, const std::shared_ptr<Bell>& bell);
  void send_sums(const Sum& sum, const std::shared_ptr<Bell>& bell);
  LossReport run_pull(const Sum& sum);
  void check_works(const Sum& sum);
  void check_peers(const Sum& sum, bool summed);
  std::size_t tensor_of(const Sum& sum);
  void add_up(const Sum& sum);
  LossReport report(const Sum& sum) const;
  static LossReport timed(LossReport said, const Sum& sum);
  const live::BoundedExchange& exchange() const { return *exchange_; }
  const char* may_be_blocked(const protocol::BoundedFailure& failure) const;
  std::string title(const BoundedCall& call) const;
  [[noreturn]] void fail(const BoundedCall& call, ErrorCode code, const std::string& why);
  std::string who(int r) const { return fmt::format("rank {} ({})", r, group_->host_of(r)); }

  const std::shared_ptr<GroupImpl> group_;  // of its own, with the ranks of the one that was given
  const BoundedLossOptions options_;
  const protocol::LossBounds bounds_;
  std::vector<int> servers_;  // ascending; none: all
  BoundedCarrier carrier_;
  Kind kind_ = Kind::bounded;                      // of the call
  std::size_t messages_ = 0;                       // of it, that have to end
  std::unique_ptr<BoundedSwitch> by_switch_;       // null: datagrams, or connections
  std::optional<live::BoundedExchange> exchange_;  // none: one rank, or datagrams do not pass
  KeptSizes sizes_{kMostSizes};
  std::vector<CallWords> said_;               // by rank, of this call
  std::vector<std::byte> copy_;               // of an input that is the output, too
  std::vector<WorkPtr> receiving_, sending_;  // the sums, by rank
  DeadlineWarning deadlines_;
  std::uint64_t calls_ = 0;
  bool ended_well_ = false;  // a call with data
  std::optional<Error> broken_;
  std::atomic_flag in_a_call_;
};

void Sums::meet(const SwitchStreams* switches, const BoundedSeams& seams) {
  Introduction mine = introduction_of(options_, index(size()));
  mine.has_aes = wire::has_aes() ? 1 : 0;
  if (switches != nullptr) carrier_.no_switch = BoundedSwitch::complaint(*switches, options_);
  mine.by_switch = switches != nullptr && carrier_.no_switch.empty() ? 1 : 0;
  wire::fill_random(mine.secret);
  const Logger log(rank());
  std::optional<live::UdpSocket> socket;
  std::vector<live::UdpSocket> more;
  std::shared_ptr<Bell> bell;
  try {  // what is refused here is for all to know
    carrier_.paths = udp_paths();
    const live::UdpAddress usual(fmt::format("{}:0", group_->address()));
    socket.emplace(live::listening(usual, carrier_.paths), seams.socket);
    more = live::more_paths(*socket, carrier_.paths);
    bell = std::make_shared<Bell>();
    mine.address = usual.ipv4();
    mine.paths = live::packed(carrier_.paths.addresses);
    mine.port = static_cast<std::uint16_t>(socket->address().port());
    mine.credit =
        static_cast<std::uint32_t>(std::min<std::size_t>(socket->window() / index(size() - 1), 1U << 30));
    if (!socket->shortage().empty()) log.log(LogLevel::info, "bounded", "{}", socket->shortage());
  } catch (const Error& e) {
    put_text(mine.failure, e.what());
  }
  std::vector<Introduction> all(index(size()));
  group_->all_gather(&mine, all.data(), std::vector<std::size_t>(all.size(), sizeof mine), DataType::u8);
  check_alike(all);
  check_servers_alike(*group_, options_, all);
  servers_ = options_.servers;
  std::ranges::sort(servers_);
  if (std::ranges::all_of(all, [](const Introduction& i) { return i.by_switch != 0; }))
    by_switch_ = std::make_unique<BoundedSwitch>(group_, *switches, options_, seams);
  else if (mine.by_switch != 0)
    carrier_.no_switch = "another rank has options that keep it from that";

  live::BoundedExchangeOptions options;
  options.bounds = bounds_;
  options.rate.wall_ns = live::wall_ns() - live::now_ns();
  options.warm_up = seams.warm_up;
  if (options_.dedicated) options.silent = servers_;
  options.paths = carrier_.paths.count;
  options.sender.offload = seams.offload;
  options.sender.mark_priority = options_.classes.queues > 1;
  options.send = seams.send;
  options.suite.protection =
      group_->encrypts() ? wire::DatagramProtection::encrypted : wire::DatagramProtection::authenticated;
  if (std::ranges::all_of(all, [](const Introduction& i) { return i.has_aes != 0; }))
    options.suite.cipher = wire::CipherKind::aes256_gcm;
  std::vector<live::BoundedPeer> peers;
  for (const Introduction& i : all)
    peers.push_back({live::addressed(i.paths, carrier_.paths, address_of(i)), i.secret, i.credit});
  const std::size_t most = options_.packet_bytes == 0 ? kPacketBytes : options_.packet_bytes;
  {
    live::BoundedWays ways(*socket, rank(), peers, options.suite, most, options.send, std::move(more));
    carrier_.ways = try_ways(*group_, ways, bell);
    options.stride = carrier_.stride =
        live::bounded_stride(carrier_.ways.packet, socket->ipv6(), options.suite.protection, most);
    more = ways.take_more();
  }
  if (options.stride == 0) return;  // the group's connections serve
  warn_of_credits(*group_, all, servers_);
  exchange_.emplace(std::move(*socket), rank(), peers, options, std::move(more));
}

// What this rank finds wrong of a call is for all to know: whoever goes on after it is at the same call then.
void Sums::check_here(const BoundedCall& call) {
  const BoundedPart part = part_of(rank(), call.count);
  check_priority(name(kind_), call.priority);
  if (kind_ == Kind::bounded_pull) return check_pull(name(kind_), call, part);
  check_sum(name(kind_), call, options_.policy, pulls() ? BoundedPart{0, call.count} : part, adds(rank()));
  // While nobody waits for this rank.
  if (is_copied(call)) copy_.resize(std::max(copy_.size(), call.count * size_of(call.type)));
  if (!exchange_ && call.in == nullptr) copy_.assign(call.count * size_of(call.type), std::byte{0});
}

// Others' sums come to where this rank's data are still sent from, or its own sum to where its own data are.
bool Sums::is_copied(const BoundedCall& call) const {
  if (!exchange_ || call.residual != nullptr || call.in == nullptr) return false;
  const std::size_t first = pulls() ? 0 : part_of(rank(), call.count).first;
  return call.out == static_cast<const std::byte*>(call.in) + first * size_of(call.type);
}

BoundedPart Sums::part_of(int rank, std::size_t count) const {
  if (rank < 0 || rank >= size())
    refuse("bounded loss: a part of rank {}: expected 0 to {}", rank, size() - 1);
  const std::vector<std::size_t> parts = protocol::bounded_parts(count, index(size()), servers_);
  return {std::accumulate(parts.begin(), parts.begin() + rank, std::size_t{0}), parts[index(rank)]};
}

protocol::MeasuredTransfer Sums::last_transfer(const BoundedCall& call) const {
  const auto known = sizes_.look(call.count, call.type);
  return known ? exchange_->last_transfer(*known) : protocol::MeasuredTransfer{};
}

// What a call needs memory for has it before: where there is none, the others hear of that here.
void Sums::agree(const BoundedCall& call, const std::exception_ptr& refused) {
  if (size() == 1) return;
  CallWords mine{
      static_cast<std::uint64_t>(kind_),          call.count,        static_cast<std::uint64_t>(call.type),
      static_cast<std::uint64_t>(call.reduction), refused ? 1U : 0U, last_transfer(call)};
  try {
    if (by_switch_ && kind_ == Kind::bounded && !refused)
      mine.by_switch = by_switch_->line_up(call.count, call.type);
    group_->all_gather(&mine, said_.data(), std::vector<std::size_t>(said_.size(), sizeof mine / 8),
                       DataType::u64, {.timeout = call.timeout, .priority = refused ? 0 : call.priority});
  } catch (const Error& e) {
    // Of other errors it is not known who else has them. Nor are the others told: they may still be at the
    // call before, which they can end without this rank.
    if (e.code() == ErrorCode::mismatch) throw;
    const auto ms = group_->timeout_ns({.timeout = call.timeout}) / 1'000'000;
    broken_.emplace(
        e.code(),
        fmt::format("{}: before any data, while ranks told each other their calls{}: {}", title(call),
                    e.code() == ErrorCode::timeout ? fmt::format(", within {} ms", ms) : "", e.what()));
    throw Error(*broken_);
  } catch (const std::exception& e) {
    fail(call, ErrorCode::system, e.what());
  }
  if (refused) std::rethrow_exception(refused);
  check_same(*group_, kind_, said_);
}

Sums::Sum Sums::prepare(const BoundedCall& call) const {
  Sum sum{call, size_of(call.type), {}, {}};
  sum.counts = protocol::bounded_parts(call.count, index(size()), servers_);
  sum.offsets.resize(index(size()));
  std::exclusive_scan(sum.counts.begin(), sum.counts.end(), sum.offsets.begin(), std::size_t{0});
  return sum;
}

void Sums::load(Sum& sum) {
  const BoundedCall& call = sum.call;
  const std::size_t at = sum.offsets[index(rank())] * sum.element;
  // What a pull sends is only read.
  sum.part = kind_ == Kind::bounded        ? static_cast<std::byte*>(call.out) + at
             : kind_ == Kind::bounded_push ? static_cast<std::byte*>(call.out)
                                           : static_cast<std::byte*>(const_cast<void*>(call.in));
  if (pushes() && call.residual != nullptr) {
    // What is sent is what was lost and what is new, and what will have been lost of that stays there.
    kernel::reduce_function(call.type, ReduceOp::sum)(call.residual, call.residual, call.in, call.count);
    sum.data = static_cast<const std::byte*>(call.residual);
  } else if (pushes() && call.count > 0 && is_copied(call)) {
    std::memcpy(copy_.data(), call.in, call.count * sum.element);
    sum.data = copy_.data();
  } else if (pushes()) {
    sum.data = static_cast<const std::byte*>(call.in);
  }
  if (sum.data != nullptr) sum.own = sum.data + at;
  sum.begun_ns = live::now_ns();
  sum.timeout_ns = group_->timeout_ns({.timeout = call.timeout});
}

LossReport Sums::begin(Kind kind, const BoundedCall& call) {
  if (in_a_call_.test_and_set())
    refuse("{}: another thread is in a call of these sums: expected one call at a time", name(kind));
  const std::unique_ptr<std::atomic_flag, void (*)(std::atomic_flag*)> leaving(
      &in_a_call_, [](std::atomic_flag* flag) { flag->clear(); });
  kind_ = kind;
  return reduce_alone(call);
}

LossReport Sums::reduce_alone(const BoundedCall& call) {
  if (broken_) throw Error(*broken_);
  if (size() == 1)  // else it is found out where ranks agree on the call
    if (const auto aborted = group_->failure_of(rank())) throw Error(*aborted);
  ++calls_;
  std::optional<Sum> sum;
  try {
    check_here(call);
    sum.emplace(prepare(call));
    if (exchange_) deadlines_.look(*group_, group_->timeout_ns({.timeout = call.timeout}));
    group_->begin_bounded(kind_, calls_, call);
  } catch (const std::exception&) {
    if (size() == 1) throw;
    agree(call, std::current_exception());  // which throws it
  }
  try {
    agree(call, nullptr);
    LossReport report = reduce(*sum);
    group_->end_bounded(report,
                        by_switch_ && kind_ == Kind::bounded ? by_switch_->way() : protocol::SumWay::none);
    return report;
  } catch (const Error& e) {
    if (by_switch_) by_switch_->leave(e.code() == ErrorCode::mismatch);
    const std::string text = e.what() + group_->fail_bounded(e);
    if (broken_) broken_.emplace(e.code(), text);
    throw Error(e.code(), text);
  }
}

LossReport Sums::reduce(Sum& sum) {
  try {
    load(sum);
    if (by_switch_ && by_switch_->decide(said_))
      if (auto said = by_switch_->sum(sum.call, sum.data, sum.begun_ns + sum.timeout_ns))
        return timed(std::move(*said), sum);
    if (pushes() && (!exchange_ || sum.call.count == 0)) return run_exactly(sum);
    if (!pushes()) return run_pull(sum);
    run(sum);
    keep_lost(exchange(), rank(), sum.offsets, sum.call);
    ended_well_ = true;
    warn_of_datagrams(*group_, *exchange_);
    return timed(report(sum), sum);
  } catch (const Error& e) {
    if (broken_) throw;
    fail(sum.call, e.code(), e.what());
  } catch (const std::exception& e) {  // such as no memory
    fail(sum.call, ErrorCode::system, e.what());
  }
}

// Where nothing can be lost.
LossReport Sums::run_exactly(const Sum& sum) {
  const BoundedCall& call = sum.call;
  const std::size_t bytes = call.count * sum.element;
  LossReport said;
  const std::size_t shard = sum.counts[index(rank())];
  if (size() > 1 && bytes > 0) {
    const CallOptions options{.timeout = std::chrono::milliseconds(sum.timeout_ns / 1'000'000),
                              .priority = call.priority};
    const void* const data = sum.data != nullptr ? sum.data : copy_.data();  // zeros
    // The group would divide by the servers, too.
    const ReduceOp reduction = options_.dedicated ? ReduceOp::sum : call.reduction;
    if (pulls())
      group_->all_reduce(data, call.out, call.count, call.type, reduction, options);
    else
      group_->reduce_scatter(data, call.out, sum.counts, call.type, reduction, options);
    if (reduction != call.reduction)
      kernel::divide(call.type, call.out, pulls() ? call.count : shard, adders());
    if (sum.data != nullptr) said.sent_bytes = bytes - shard * sum.element;
  } else if (bytes > 0 && sum.data != call.out) {
    std::memcpy(call.out, sum.data, bytes);
  }
  if (call.residual != nullptr) std::memset(call.residual, 0, bytes);
  said.exact = true;
  said.lost_of_layer.assign(std::max<std::size_t>(call.layers.size(), 1), 0);
  said.lost_of_sender.assign(index(size()), 0);
  return timed(std::move(said), sum);
}

LossReport Sums::timed(LossReport said, const Sum& sum) {
  said.seconds = static_cast<double>(live::now_ns() - sum.begun_ns) * 1e-9;
  return said;
}

std::size_t Sums::tensor_of(const Sum& sum) {
  const BoundedCall& call = sum.call;
  if (const auto known = sizes_.use(call.count, call.type)) return *known;
  if (const auto old = sizes_.make_room()) exchange_->forget(*old);
  std::vector<std::uint64_t> bytes;
  for (const std::size_t count : sum.counts) bytes.push_back(count * sum.element);
  const std::size_t tensor = exchange_->add(bytes, call.type);
  sizes_.add(call.count, call.type, tensor);
  return tensor;
}

// Each rank's sum goes to another one when that one has said what it has lost. So who has all sums is asked
// nothing more, and may go.
void Sums::run(const Sum& sum) {
  const std::size_t tensor = tensor_of(sum);
  const auto bell = std::make_shared<Bell>();
  start_receiving(sum, bell);
  std::vector<protocol::MeasuredTransfer> told;
  for (const CallWords& words : said_) told.push_back(words.last);
  exchange_->begin(tensor, sum.data, classes_of(options_.classes, sum.call.depth), told,
                   sum.begun_ns + sum.timeout_ns, live::now_ns());
  bool summed = false;
  std::int64_t look_ns = sum.begun_ns + kLookNs;
  for (std::size_t ended = 0;;) {
    exchange_->step(live::now_ns());
    if (const auto& failure = exchange_->failure())
      fail(sum.call, failure->code,
           fmt::format("with {}: {}{}", who(failure->node), failure->text, may_be_blocked(*failure)));
    if (const std::int64_t now = live::now_ns(); now >= look_ns) {
      look_ns = now + kLookNs;
      check_peers(sum, summed);
    }
    if (!summed && exchange_->received()) {
      add_up(sum);
      summed = true;
    }
    if (summed || !pulls()) send_sums(sum, bell);
    if (const std::size_t rung = bell->rung(); rung > ended) {
      ended = rung;
      check_works(sum);
    }
    if (summed && ended == messages_) return;
    exchange_->wait(exchange_->next_time_ns(live::now_ns()), bell->fd());
    bell->silence();
  }
}

CallOptions Sums::message_options(const Sum& sum) const {
  const std::chrono::milliseconds timeout(sum.timeout_ns / 1'000'000);
  return {.timeout = pushes() ? timeout + kGrace : timeout, .priority = sum.call.priority};
}

void Sums::start_receiving(const Sum& sum, const std::shared_ptr<Bell>& bell) {
  receiving_.assign(index(size()), nullptr);
  sending_.assign(index(size()), nullptr);
  messages_ = 0;
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    messages_ += sends_to(sum, r) ? 1 : 0;
    if (!receives_from(sum, r)) continue;
    ++messages_;
    std::byte* const to =
        pulls() ? static_cast<std::byte*>(sum.call.out) + sum.offsets[index(r)] * sum.element : nullptr;
    receiving_[index(r)] =
        group_->start_recv(to, pulls() ? sum.counts[index(r)] : 0, sum.call.type, r, 0, message_options(sum));
    receiving_[index(r)]->on_done([bell] { bell->ring(); });
  }
}

void Sums::send_sums(const Sum& sum, const std::shared_ptr<Bell>& bell) {
  for (int r = 0; r < size(); ++r) {
    if (r == rank() || sending_[index(r)] || !sends_to(sum, r) || (pushes() && !exchange_->settled(r)))
      continue;
    sending_[index(r)] = group_->start_send(sum.part, pulls() ? sum.counts[index(rank())] : 0, sum.call.type,
                                            r, 0, message_options(sum));
    sending_[index(r)]->on_done([bell] { bell->ring(); });
  }
}

LossReport Sums::run_pull(const Sum& sum) {
  const std::size_t bytes = sum.counts[index(rank())] * sum.element;
  if (bytes > 0) {
    std::byte* const own = static_cast<std::byte*>(sum.call.out) + sum.offsets[index(rank())] * sum.element;
    if (own != sum.part) std::memcpy(own, sum.part, bytes);
  }
  const auto bell = std::make_shared<Bell>();
  start_receiving(sum, bell);
  send_sums(sum, bell);
  for (const auto* const works : {&receiving_, &sending_})
    for (const WorkPtr& work : *works)
      while (work && !work->wait_for(kLook)) check_peers(sum, true);
  return {};
}

void Sums::check_works(const Sum& sum) {
  for (const auto* const works : {&receiving_, &sending_})
    for (const WorkPtr& work : *works)
      if (const std::exception_ptr error = work ? work->error() : nullptr) try {
          std::rethrow_exception(error);
        } catch (const Error& e) {
          fail(sum.call, e.code(), e.what());
        }
}

// Who has not said yet what it has lost may never do so, while no sum is on its way that would fail with it.
void Sums::check_peers(const Sum& sum, bool summed) {
  std::vector<int> silent;
  for (int r = 0; r < size(); ++r)
    if (r != rank() && (summed ? (receiving_[index(r)] && !receiving_[index(r)]->test()) ||
                                     (pushes() && !exchange_->settled(r))
                               : !exchange_->ended(r)))
      silent.push_back(r);
  group_->miss_bounded(std::move(silent));
  for (int r = 0; r < size(); ++r)
    if (r != rank() && pushes() && !exchange_->settled(r))
      if (const auto failure = group_->failure_of(r)) fail(sum.call, failure->code(), failure->what());
}

// It has told its call over the group's connections a moment before.
const char* Sums::may_be_blocked(const protocol::BoundedFailure& failure) const {
  return failure.code == ErrorCode::timeout && failure.silent && !ended_well_
             ? ": is UDP blocked between the two hosts?"
             : "";
}

std::string Sums::title(const BoundedCall& call) const {
  return fmt::format("{} #{} of {} {} on {}", name(kind_), calls_, call.count, talweg::name(call.type),
                     who(rank()));
}

// Everything ends here: nothing writes to the caller's buffers any more, and the other ranks hear why.
void Sums::fail(const BoundedCall& call, ErrorCode code, const std::string& why) {
  broken_.emplace(code, fmt::format("{}: {}", title(call), why));
  group_->abort(broken_->what());
  for (auto* const works : {&receiving_, &sending_})
    for (WorkPtr& work : *works)
      if (WorkPtr ending = std::exchange(work, nullptr)) try {
          ending->wait();
        } catch (const Error&) {  // what it is, is known
        }
  throw Error(*broken_);
}

// In the order of ranks: the same bits, whoever was first.
void Sums::add_up(const Sum& sum) {
  const protocol::BoundedShape& shape = exchange_->shape(rank());
  const protocol::PacketSet nothing(shape.packets());
  protocol::LossySum adding(shape, sum.call.type);
  adding.begin(sum.part);
  for (int r = 0; r < size(); ++r) {
    if (!adds(r)) continue;
    adding.add(r == rank() ? sum.own : exchange_->arrived(r), r == rank() ? nothing : exchange_->missing(r));
  }
  adding.finish(sum.call.reduction == ReduceOp::sum      ? protocol::LossScale::none
                : options_.policy == LossPolicy::rescale ? protocol::LossScale::by_received
                                                         : protocol::LossScale::by_all,
                adders());
}

LossReport Sums::report(const Sum& sum) const {
  LossReport said;
  said.exact = bounds_.tensor_ppm == 0 || exchange().exact();
  said.lost_of_layer.assign(std::max<std::size_t>(sum.call.layers.size(), 1), 0);
  said.lost_of_sender.assign(index(size()), 0);
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    if (adds(rank())) said.sent_bytes += exchange().shape(r).bytes;
    said.lost_of_sender[index(r)] = exchange().missing_bytes(r);
    note_lost(exchange(), r, sum.call, sum.offsets[index(r)], said);
  }
  said.packets_again = exchange().sent_again();
  return said;
}

}  // namespace

std::shared_ptr<BoundedSums> make_bounded(Group& group, const BoundedLossOptions& options,
                                          const BoundedSeams& seams) {
  check_options(options, group.size());
  std::vector<int> ranks(static_cast<std::size_t>(group.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  auto* const whole = dynamic_cast<GroupImpl*>(&group);
  auto own = std::dynamic_pointer_cast<GroupImpl>(group.split(ranks));
  if (whole == nullptr || !own) refuse("bounded loss: expected a group that was joined with Group::join");
  whole->abort_too(own);
  // What datagrams do not carry is summed exactly, and not in a format of the switch.
  const auto switches = own->give_switches();
  return std::make_shared<Sums>(std::move(own), switches.get(), options, seams);
}

}  // namespace talweg::group

namespace talweg {

std::shared_ptr<BoundedSums> BoundedSums::make(Group& group, const BoundedLossOptions& options) {
  return group::make_bounded(group, options, {});
}

}  // namespace talweg
