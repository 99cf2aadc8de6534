#include "protocol/aggregation_loss_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include "protocol/aggregation/result_tally.h"
#include "wire/replay_window.h"

namespace talweg::protocol {

namespace {

using wire::AggregationEntry;
using wire::AggregationType;
constexpr std::int64_t kNoTime = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMostNs = 100'000'000'000;

}  // namespace

struct AggregationLossWorld::Member : DatagramSink {
  Member(AggregationLossWorld& w, std::uint16_t n, const WorkerTerms& terms)
      : world(w), number(n), worker(terms, *this) {}
  void send(const wire::DatagramHeader& header, std::span<const std::byte> payload) override {
    std::vector<std::byte> bytes(payload.begin(), payload.end());
    world.trace(fmt::format("{}>", number), bytes);
    world.carry(number, [this, header, bytes] {
      world.perform(world.box_.on(header, bytes, {number, 1}, world.now_ns_));
      world.arm_box();
    });
  }
  AggregationLossWorld& world;
  const std::uint16_t number;
  AggregationWorker worker;
  std::vector<float> in, out, residual, before;
  std::uint32_t operation = 0;
  bool running = false;
  std::int64_t armed_ns = kNoTime;
  std::int64_t stopped_until_ns = 0;
  wire::ReplayWindow of_all;
  ResultTally tally;
  std::uint32_t heard = 0;  // the attempt of which it has said so
};

AggregationLossOptions AggregationLossWorld::drawn(std::uint64_t seed) {
  Random random(seed, 7);
  AggregationLossOptions o;
  o.seed = seed;
  o.workers = static_cast<std::uint16_t>(1 + random.below(9));
  o.slots = static_cast<std::uint16_t>(1 + random.below(8));
  o.columns = static_cast<std::uint8_t>(1 + random.below(3));
  o.count = 1 + random.below(400);
  o.operations = static_cast<std::uint32_t>(2 + random.below(4));
  constexpr std::uint32_t kBounds[] = {0, 10'000, 50'000, 200'000, 500'000};
  o.ppm = kBounds[random.below(5)];
  o.ordered = random.below(3) == 0;
  o.in_place = random.below(2) == 0;
  constexpr std::int64_t kLingers[] = {1'000, 60'000, 500'000, 0};
  o.linger_ns = kLingers[random.below(4)];
  if (o.linger_ns == 0) o.operations += LingerTime::kWarmUp;
  constexpr double kLosses[] = {0, 0.01, 0.1, 0.3};
  o.loss = kLosses[random.below(4)];
  o.burst = random.below(2) == 0 ? 0 : 0.02;
  o.repeat = random.below(2) == 0 ? 0 : 0.1;
  constexpr std::int64_t kJitters[] = {0, 5'000, 200'000};
  o.jitter_ns = kJitters[random.below(3)];
  o.stop_ns = random.below(3) == 0 ? 2'000'000 : 0;
  return o;
}

AggregationLossWorld::AggregationLossWorld(const AggregationLossOptions& options)
    : options_(options),
      random_(options.seed),
      box_({64 << 20, 8, 1e11}),
      group_(options.workers, 0, options.times) {
  JobTerms terms;
  terms.job = terms.epoch = 1;
  terms.self = 900;
  terms.workers = options.workers;
  terms.slots = options.slots;
  terms.columns = options.columns;
  terms.block = options.block;
  terms.ordered = options.ordered;
  terms.tolerant = options.tolerant;
  terms.linger_ns = options.tolerant ? options.linger_ns : 0;
  terms.bytes_per_second = 1e10;
  terms.burst_bytes = 1e10;
  terms.result_bytes_per_second = options.result_rate;
  if (const auto refused = box_.open(terms)) problem(refused->text);
  bursts_.assign(std::size_t{2} * options.workers + 1, 0);  // the last is what all have in common
  for (std::uint16_t w = 0; w < options.workers; ++w) {
    const WorkerTerms own{1,
                          1,
                          w,
                          options.workers,
                          0,
                          options.slots,
                          options.columns,
                          options.block,
                          {2'000'000, 200'000, 20'000'000}};
    members_.push_back(std::make_unique<Member>(*this, w, own));
    members_.back()->residual.assign(options.count, 0);
  }
  box_armed_ns_ = kNoTime;
  for (const auto& member : members_)
    if (options.multicast && (member->number != 1 || options.deaf_from > 0))
      after(static_cast<std::int64_t>(random_.below(100'000)),
            [this, m = member.get()] { say(*m, {wire::GroupWord::joined}); });
  on_group_time();
}

AggregationLossWorld::~AggregationLossWorld() = default;

const WorkerCounters& AggregationLossWorld::worker(std::size_t number) const {
  return members_.at(number)->worker.counters();
}

float AggregationLossWorld::value(std::size_t worker, std::uint32_t operation, std::size_t i) const {
  return static_cast<float>(Random(options_.seed + worker * 1000 + operation, i).below(200)) - 100;
}

void AggregationLossWorld::start(Member& member) {
  if (member.operation == options_.operations) return;
  ++member.operation;
  member.in.resize(options_.count);
  for (std::size_t i = 0; i < options_.count; ++i) member.in[i] = value(member.number, member.operation, i);
  member.out.assign(options_.count, -12345);
  if (options_.in_place) member.out = member.in;
  member.before = member.residual;
  member.running = true;
  Sum sum;
  sum.in = reinterpret_cast<const std::byte*>(options_.in_place ? member.out.data() : member.in.data());
  sum.out = reinterpret_cast<std::byte*>(member.out.data());
  sum.count = options_.count;
  sum.format = options_.format;
  sum.block = options_.block;
  sum.tolerance.ppm = options_.ppm;
  if (options_.residual) sum.tolerance.residual = reinterpret_cast<std::byte*>(member.residual.data());
  member.worker.start(sum, member.operation, now_ns_ + kMostNs, now_ns_);
  if (options_.stop_ns > 0 && member.number == 0)
    after(100'000, [this, &member] { member.stopped_until_ns = now_ns_ + options_.stop_ns; });
  look(member);
}

void AggregationLossWorld::look(Member& member) {
  if (const auto& failure = member.worker.failure()) {
    problem(fmt::format("worker {}: {}", member.number, failure->text));
    return;
  }
  if (member.running && member.worker.done()) {
    member.running = false;
    check(member);
    after(static_cast<std::int64_t>(random_.below(30'000)), [this, &member] { start(member); });
  }
  arm(member);
}

void AggregationLossWorld::arm(Member& member) {
  const std::int64_t next = member.worker.next_time_ns();
  if (next == kNoTime || next >= member.armed_ns) return;
  member.armed_ns = next;
  after(std::max<std::int64_t>(0, next - now_ns_), [this, &member, next] {
    if (member.armed_ns != next) return;
    member.armed_ns = kNoTime;
    if (now_ns_ < member.stopped_until_ns)
      return after(member.stopped_until_ns - now_ns_, [this, &member] { arm(member); });
    member.worker.on_time(now_ns_);
    look(member);
  });
}

void AggregationLossWorld::arm_box() {
  const std::int64_t next = box_.next_time_ns();
  if (next == kNoTime || next >= box_armed_ns_) return;
  box_armed_ns_ = next;
  after(std::max<std::int64_t>(0, next - now_ns_), [this, next] {
    if (box_armed_ns_ == next) on_box_time();
  });
}

void AggregationLossWorld::on_box_time() {
  box_armed_ns_ = kNoTime;
  while (box_.next_time_ns() <= now_ns_) perform(box_.on_time(now_ns_));
  arm_box();
}

void AggregationLossWorld::perform(std::span<const SwitchAction> actions) {
  for (const SwitchAction& action : actions) {
    const std::vector<std::byte> bytes(action.payload.begin(), action.payload.end());
    record(action.header, bytes);
    if (action.header.type == static_cast<std::uint8_t>(AggregationType::result)) {
      const bool once = action.to == SwitchAction::To::all && group_.by_group();
      const std::size_t copies = once ? 1 : action.peers.size();
      result_bytes_ += static_cast<double>(copies * (wire::kDatagramHeaderBytes + bytes.size()));
      last_result_ns_ = now_ns_;
    }
    if (action.to == SwitchAction::To::all && group_.by_group()) {
      trace(">", bytes);
      bring_all(action.header, bytes);
      continue;
    }
    const std::uint64_t number = action.to == SwitchAction::To::all ? to_all_++ : 0;
    for (const Peer& peer : action.peers) {
      trace(fmt::format(">{}", peer.host), bytes);
      bring(*members_.at(peer.host), action.header, bytes, number, false);
    }
  }
}

// By the worker's own way. `number`: of the datagram, if it is to all.
void AggregationLossWorld::bring(Member& member, const wire::DatagramHeader& header,
                                 const std::vector<std::byte>& bytes, std::uint64_t number, bool by_group) {
  carry(options_.workers + member.number, [this, &member, header, bytes, number, by_group] {
    const std::int64_t wait = member.stopped_until_ns - now_ns_;
    const auto take = [this, &member, header, bytes, number, by_group] {
      if (options_.multicast) hear(member, header, bytes, number, by_group);
      if (!member.running) return;
      member.worker.on(header, bytes, now_ns_);
      look(member);
    };
    if (wait > 0)
      after(wait, take);
    else
      take();
  });
}

// To the group: lost, repeated and late for all, and then for each.
void AggregationLossWorld::bring_all(const wire::DatagramHeader& header,
                                     const std::vector<std::byte>& bytes) {
  carry(std::size_t{2} * options_.workers, [this, header, bytes, number = to_all_++] {
    for (const auto& member : members_) {
      if (!deaf(*member)) bring(*member, header, bytes, number, true);
      if (member->number == 1 && options_.brought > 0 && random_.uniform() < options_.brought)
        bring(*member, header, bytes, number, false);
    }
  });
}

bool AggregationLossWorld::deaf(const Member& member) const {
  return member.number == 1 && member.operation >= options_.deaf_from &&
         member.operation < options_.hears_from;
}

// What a worker makes of the group. No datagram counts twice: real ones have numbers that are taken once.
void AggregationLossWorld::hear(Member& member, const wire::DatagramHeader& header,
                                const std::vector<std::byte>& bytes, std::uint64_t number, bool by_group) {
  const bool to_all = (header.flags & wire::kDatagramToAll) != 0;
  const bool probe = header.type == static_cast<std::uint8_t>(AggregationType::probe);
  if (probe && !by_group) return;
  if (to_all && member.of_all.look(number) != wire::DatagramRefusal::none) return;
  if (to_all) member.of_all.accept(number);
  if (probe && header.own32 > member.heard) {
    member.heard = header.own32;
    member.tally = {};
    say(member, {wire::GroupWord::heard, member.heard});
  }
  if (header.type != static_cast<std::uint8_t>(AggregationType::result) || member.heard == 0) return;
  if (to_all && !by_group)
    member.tally.came_otherwise(wire::number_of_result(bytes));
  else
    member.tally.came(wire::number_of_result(bytes), to_all);
  if (!member.tally.too_few()) return;
  say(member, {wire::GroupWord::lost, member.heard, member.tally.missing(), member.tally.of()});
  member.tally = {};
}

// By its connection, which loses nothing.
void AggregationLossWorld::say(const Member& member, const wire::SwitchHears& word) {
  after(20'000, [this, number = member.number, word] {
    group_.says(number, word, now_ns_);
    on_group_time();
  });
}

bool AggregationLossWorld::all_over() const {
  return std::ranges::all_of(members_, [this](const auto& member) {
    return !member->running && member->operation == options_.operations;
  });
}

// Sends what is due, and comes again when the next is, as long as there are sums.
void AggregationLossWorld::on_group_time() {
  if (!options_.multicast || all_over()) return;
  if (group_.probe(now_ns_)) {
    wire::DatagramHeader header;
    header.type = static_cast<std::uint8_t>(AggregationType::probe);
    header.flags = wire::kDatagramToAll;
    header.own32 = group_.attempt();
    bring_all(header, {});
  }
  box_.send_once(1, group_.by_group());
  const std::int64_t next = group_.next_time_ns();
  if (next == kNoTime || next == group_armed_ns_) return;
  group_armed_ns_ = next;
  after(next - now_ns_, [this, next] {
    if (group_.next_time_ns() == next) on_group_time();
  });
}

// What the switch says of a round is the same each time.
void AggregationLossWorld::record(const wire::DatagramHeader& header, std::span<const std::byte> payload) {
  if (header.type != static_cast<std::uint8_t>(AggregationType::result)) return;
  wire::AggregationMessage message;
  if (const char* why = wire::decode(header, payload, message)) return problem(why);
  wire::for_each_entry(message, [&](const AggregationEntry& entry, std::span<const std::byte> data) {
    std::vector<std::uint16_t> names;
    for (std::size_t i = 0; i < entry.absent; ++i) names.push_back(wire::absent_at(data, i));
    const auto [known, is_new] = absent_.try_emplace({header.own32, entry.block}, names);
    const auto [said, first] = said_.try_emplace({header.own32, entry.block}, data.begin(), data.end());
    if (!first && !std::ranges::equal(said->second, data))
      problem(
          fmt::format("block {} of sum {} has other bytes when it is said again", entry.block, header.own32));
    if (!is_new && known->second != names)
      problem(fmt::format("block {} of sum {} has lost other workers when it is said again", entry.block,
                          header.own32));
  });
}

// Of an operation, on one worker.
void AggregationLossWorld::check(Member& member) {
  const std::uint32_t operation = member.operation;
  if (outputs_.size() < operation) outputs_.push_back(member.out);
  if (std::memcmp(outputs_[operation - 1].data(), member.out.data(), options_.count * sizeof(float)) != 0)
    problem(fmt::format("worker {} has other bits of sum {}", member.number, operation));
  std::uint64_t own = 0, own_elements = 0, all = 0;
  for (std::uint64_t b = 0; b < blocks(); ++b) {
    const std::vector<std::uint16_t>& names = absent_[{operation, b}];
    const bool missing = std::ranges::find(names, member.number) != names.end();
    own += missing ? 1 : 0;
    all += names.size();
    const std::size_t end = std::min<std::size_t>(options_.count, (b + 1) * options_.block);
    own_elements += missing ? end - b * options_.block : 0;
    for (std::size_t i = b * options_.block; i < end && options_.residual; ++i) {
      const float both = member.in[i] + member.before[i];
      const float kept = missing ? both : 0;
      contribute(operation, i, static_cast<double>(both) - static_cast<double>(member.residual[i]));
      if (member.residual[i] != kept && (missing || !wire::is_coded(options_.format)))
        return problem(fmt::format("worker {} keeps {} of element {} of sum {} and not {}", member.number,
                                   member.residual[i], i, operation, kept));
    }
  }
  if (own_elements > options_.count * options_.ppm / 1'000'000)
    problem(fmt::format("{} of {} elements of worker {} are missing in sum {}", own_elements, options_.count,
                        member.number, operation));
  const AggregationWorker::Missing& said = member.worker.missing();
  if (said.own != own || said.all != all)
    problem(fmt::format("worker {} says {} and {} blocks are missing, and not {} and {}", member.number,
                        said.own, said.all, own, all));
}

void AggregationLossWorld::contribute(std::uint32_t operation, std::size_t i, double part) {
  if (contributed_.size() < operation) contributed_.resize(operation);
  contributed_[operation - 1].resize(options_.count);
  contributed_[operation - 1][i] += part;
}

// Sums are off by less than a unit of what was contributed: the largest of its block by the largest code.
void AggregationLossWorld::check_codes() {
  const double top = options_.format == wire::AggregationFormat::block8 ? 127 : 7;
  for (std::size_t operation = 0; operation < outputs_.size(); ++operation)
    for (std::size_t first = 0; first < options_.count; first += options_.block) {
      const auto& exact = contributed_[operation];
      const std::size_t end = std::min<std::size_t>(options_.count, first + options_.block);
      double most = 0;
      for (std::size_t i = first; i < end; ++i) most = std::max(most, std::abs(exact[i]));
      for (std::size_t i = first; i < end; ++i)
        if (const double is = static_cast<double>(outputs_[operation][i]);
            !(std::abs(is - exact[i]) <= most / top + 0.01))
          return problem(fmt::format("element {} of sum {} is {}, and {} was contributed", i, operation + 1,
                                     is, exact[i]));
    }
}

// Of all operations: what has come out and what is left are what went in.
void AggregationLossWorld::check_all() {
  if (wire::is_coded(options_.format)) return check_codes();
  for (std::size_t i = 0; i < options_.count; ++i) {
    double in = 0, out = 0;
    for (const auto& member : members_) {
      for (std::uint32_t op = 1; op <= options_.operations; ++op) in += value(member->number, op, i);
      if (options_.residual) out += member->residual[i];
    }
    for (const auto& output : outputs_) out += output[i];
    if (in != out && (options_.residual || options_.ppm == 0))
      return problem(fmt::format("element {}: {} went in, and {} have come out or are left", i, in, out));
  }
}

void AggregationLossWorld::trace(const std::string& way, const std::vector<std::byte>& payload) {
  if (!options_.traced) return;
  trace_.push_back(fmt::format("{} {}", now_ns_, way));
  trace_.back().append(reinterpret_cast<const char*>(payload.data()), payload.size());
}

void AggregationLossWorld::carry(std::size_t way, std::function<void()> arrival) {
  if (bursts_[way] == 0 && random_.uniform() < options_.burst)
    bursts_[way] = 1 + random_.below(2 * options_.burst_length);
  if (bursts_[way] > 0) {
    --bursts_[way];
    return;
  }
  if (random_.uniform() < options_.loss) return;
  const std::int64_t least_ns = way == bursts_.size() - 1 ? 0 : 10'000;
  const auto delay = [&] {
    return least_ns +
           (options_.jitter_ns > 0
                ? static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(options_.jitter_ns)))
                : 0);
  };
  if (random_.uniform() < options_.repeat)
    after(delay() + static_cast<std::int64_t>(random_.below(3'000'000)), arrival);
  after(delay(), std::move(arrival));
}

void AggregationLossWorld::after(std::int64_t delay_ns, std::function<void()> event) {
  events_.emplace(std::pair(now_ns_ + delay_ns, made_++), std::move(event));
}

void AggregationLossWorld::run() {
  for (const auto& member : members_)
    after(static_cast<std::int64_t>(random_.below(100'000)), [this, m = member.get()] { start(*m); });
  std::size_t events = 0;
  while (!events_.empty() && problems_.empty() && events < 2'000'000) {
    const auto next = events_.begin();
    now_ns_ = next->first.first;
    const std::function<void()> event = std::move(next->second);
    events_.erase(next);
    event();
    ++events;
  }
  if (!problems_.empty()) return;
  for (const auto& member : members_)
    if (member->running || member->operation != options_.operations)
      return problem(fmt::format("worker {} is at sum {} for ever", member->number, member->operation));
  check_all();
  const SwitchCounters& c = counters();
  if (c.early + c.malformed + c.out_of_range + c.strangers + c.disagreements > 0)
    problem("the switch was sent what no worker may send");
}

void AggregationLossWorld::problem(std::string text) {
  problems_.push_back(fmt::format("seed {} at {} ns: {}", options_.seed, now_ns_, text));
}

}  // namespace talweg::protocol
