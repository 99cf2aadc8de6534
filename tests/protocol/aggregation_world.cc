#include "protocol/aggregation_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernel/half.h"

namespace talweg::protocol {

using wire::AggregationEntry;
using wire::AggregationFormat;
using wire::AggregationType;

namespace {

using Mutation = AggregationMutation;
using Mark = AggregationMark;
constexpr std::uint64_t kBoxHosts = 1'000'000;
constexpr std::size_t kGuard = 16;  // bytes in front of and behind an output that nobody may touch
constexpr std::byte kGuardByte{0xa5};
constexpr std::int64_t kPatience = 100'000'000'000;

template <typename T>
void put(std::vector<std::byte>& bytes, std::size_t i, T value) {
  std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
}
template <typename T>
T get(const std::byte* bytes, std::size_t i) {
  T value;
  std::memcpy(&value, bytes + i * sizeof value, sizeof value);
  return value;
}

double number_at(AggregationFormat format, const std::byte* bytes, std::size_t i) {
  switch (format) {
    case AggregationFormat::f16:
      return static_cast<double>(kernel::f16_to_f32(get<std::uint16_t>(bytes, i)));
    case AggregationFormat::bf16:
      return static_cast<double>(kernel::bf16_to_f32(get<std::uint16_t>(bytes, i)));
    case AggregationFormat::i32:
      return get<std::int32_t>(bytes, i);
    case AggregationFormat::f32:
    case AggregationFormat::scaled:
      break;
  }
  return static_cast<double>(get<float>(bytes, i));
}

template <class Change>
void rewrite(const wire::DatagramHeader& header, std::vector<std::byte>& payload, Change change) {
  wire::AggregationMessage message;
  if (wire::decode(header, payload, message) != nullptr) return;
  std::vector<std::byte> changed(payload.size() + 64);
  wire::AggregationWriter writer(changed);
  writer.begin(message.format);
  wire::for_each_entry(message, [&](AggregationEntry entry, std::span<const std::byte> data) {
    std::vector<std::byte> copy(data.begin(), data.end());
    change(entry, copy);
    std::byte* const at = writer.add(entry);
    if (entry.data) std::memcpy(at, copy.data(), copy.size());
  });
  for (std::size_t i = 0; i < message.workers.size() / 2; ++i)
    writer.add_worker(wire::missing_worker(message, i));
  payload.assign(writer.payload().begin(), writer.payload().end());
}

}  // namespace

struct AggregationWorld::Tensor {
  Sum sum;  // without pointers
  bool in_place = false;
  std::vector<std::vector<std::byte>> inputs;
  std::vector<double> expected;      // by element; NaN where it is none
  std::vector<std::byte> first_out;  // of who was done first: all others have the same bits
};

struct AggregationWorld::Member : DatagramSink {
  AggregationWorld* world = nullptr;
  Job* job = nullptr;
  std::size_t number = 0;
  std::size_t rack = 0;
  std::uint16_t local = 0;  // its number at its switch
  std::uint64_t life = 0;
  std::unique_ptr<AggregationWorker> worker;
  std::vector<std::byte> in, out;
  std::size_t sum = 0;  // that it is at, or will be
  bool running = false;
  std::int64_t armed_ns = std::numeric_limits<std::int64_t>::max();

  void send(const wire::DatagramHeader& header, std::span<const std::byte> payload) override;
};

struct AggregationWorld::Job {
  std::uint32_t id = 0;
  std::uint32_t epoch = 1;
  std::size_t racks = 1;  // 1: all at the switch at the root
  JobTerms terms;         // of the root; of a rack's switch with the numbers below
  std::vector<std::uint16_t> in_rack;
  std::vector<std::unique_ptr<Member>> members;
  std::vector<Tensor> sums;
  std::int64_t crash_ns = -1;
};

struct AggregationWorld::Box {
  std::size_t number = 0;
  AggregationSwitch box{SwitchLimits{}};
};

AggregationWorld::AggregationWorld(std::uint64_t seed, Mutation mutation)
    : seed_(seed), mutation_(mutation), random_(seed) {
  constexpr double kLosses[] = {0, 0, 0.01, 0.05, 0.2};
  loss_ = kLosses[random_.below(5)];
  repeat_ = random_.below(2) == 0 ? 0 : 0.1;
  delay_ns_ = 5'000 + static_cast<std::int64_t>(random_.below(20'000));
  constexpr std::int64_t kJitters[] = {0, 5'000, 50'000, 1'000'000};
  jitter_ns_ = kJitters[random_.below(4)];
  for (std::size_t b = 0; b < 4; ++b) {
    boxes_.push_back(std::make_unique<Box>());
    boxes_.back()->number = b;
  }
  const std::size_t jobs = random_.below(4) == 0 ? 2 : 1;
  for (std::size_t j = 0; j < jobs; ++j) plan_job(j);
  if (jobs == 2) hit(Mark::two_jobs);
}

AggregationWorld::~AggregationWorld() = default;

void AggregationWorld::plan_job(std::size_t number) {
  auto job = std::make_unique<Job>();
  job->id = static_cast<std::uint32_t>(7 + number);
  const bool many = random_.below(40) == 0;
  const std::size_t workers = many ? 65 + random_.below(8) : 1 + random_.below(6);
  job->racks =
      workers >= 2 && random_.below(3) == 0 ? 2 + random_.below(std::min<std::size_t>(2, workers - 1)) : 1;
  JobTerms& t = job->terms;
  t.job = job->id;
  t.epoch = job->epoch;
  t.self = 999;
  t.slots = static_cast<std::uint16_t>(1 + random_.below(4));
  t.columns = static_cast<std::uint8_t>(1 + random_.below(4));
  t.block = static_cast<std::uint16_t>(1 + random_.below(32));
  t.ordered = random_.below(4) == 0;
  const bool tight = random_.below(5) == 0;
  t.bytes_per_second = tight ? 1e6 * static_cast<double>(1 + workers) : 1e9;
  t.burst_bytes = tight ? static_cast<double>(packet_bytes(t) * 4) : 1e6;
  job->in_rack.assign(job->racks, 0);
  for (std::size_t m = 0; m < workers; ++m) {
    auto member = std::make_unique<Member>();
    member->world = this;
    member->job = job.get();
    member->number = m;
    member->rack = m < job->racks ? m : random_.below(job->racks);
    member->local = job->in_rack[member->rack]++;
    job->members.push_back(std::move(member));
  }
  t.workers = static_cast<std::uint16_t>(job->racks > 1 ? job->racks : workers);
  if (many) hit(Mark::many_workers);
  if (workers == 1) hit(Mark::alone);
  if (job->racks > 1) hit(Mark::tree);
  if (random_.below(4) == 0) job->crash_ns = 20'000 + static_cast<std::int64_t>(random_.below(1'000'000));
  plan_sums(*job);
  jobs_.push_back(std::move(job));
}

void AggregationWorld::plan_sums(Job& job) {
  const std::size_t sums = 1 + random_.below(4);
  for (std::size_t s = 0; s < sums; ++s) {
    Tensor t;
    t.sum.format = static_cast<AggregationFormat>(random_.below(wire::kAggregationFormats));
    t.sum.block = static_cast<std::uint16_t>(1 + random_.below(job.terms.block));
    const std::size_t width = std::size_t{job.terms.slots} * job.terms.columns * t.sum.block;
    t.sum.count = random_.below(12) == 0 ? 0 : random_.below(width * 5) + 1;
    t.sum.sparse = random_.below(2) == 0;
    t.in_place = random_.below(2) == 0;
    const double density = random_.below(2) == 0 ? 0.1 : random_.uniform();
    const bool same_blocks = random_.below(3) == 0;
    const std::uint64_t special = random_.below(6);  // 0: some blocks with no number, 1: with tiny ones
    const std::size_t blocks = (t.sum.count + t.sum.block - 1) / t.sum.block;
    std::vector<bool> shared(blocks);
    for (std::size_t b = 0; b < blocks; ++b) shared[b] = random_.uniform() < density;
    const std::size_t bytes = wire::element_bytes(t.sum.format);
    for (std::size_t m = 0; m < job.members.size(); ++m) {
      std::vector<std::byte> in(t.sum.count * bytes);
      for (std::size_t b = 0; b < blocks; ++b) {
        const bool holds = !t.sum.sparse || (same_blocks ? shared[b] : random_.uniform() < density);
        const float scale = std::ldexp(1.0F, static_cast<int>(random_.below(40)) - 20);
        for (std::size_t i = b * t.sum.block;
             holds && i < std::min<std::size_t>(t.sum.count, (b + 1) * t.sum.block); ++i) {
          const auto small = static_cast<float>(static_cast<int>(random_.below(7)) - 3);
          float real = static_cast<float>(random_.uniform() * 2 - 1) * scale;
          if (t.sum.format == AggregationFormat::scaled && special == 0 && random_.below(60) == 0)
            real = random_.below(2) == 0 ? std::numeric_limits<float>::infinity() : std::nanf("");
          if (t.sum.format == AggregationFormat::scaled && special == 1 && b % 2 == 0)
            real = std::ldexp(real, -120);
          switch (t.sum.format) {
            case AggregationFormat::i32:
              put(in, i, static_cast<std::uint32_t>(random_.next()));
              break;
            case AggregationFormat::f16:
              put(in, i, kernel::f32_to_f16(small));
              break;
            case AggregationFormat::bf16:
              put(in, i, kernel::f32_to_bf16(small));
              break;
            case AggregationFormat::f32:
              put(in, i, job.terms.ordered ? real : small);
              break;
            case AggregationFormat::scaled:
              put(in, i, real);
              break;
          }
        }
      }
      t.inputs.push_back(std::move(in));
    }
    if (t.sum.count == 0) hit(Mark::empty);
    if (blocks > 0 && blocks < std::size_t{job.terms.slots} * job.terms.columns) hit(Mark::short_tensor);
    if (t.in_place && t.sum.count > 0) hit(Mark::in_place);
    if (job.terms.ordered && t.sum.format == AggregationFormat::f32) hit(Mark::ordered);
    job.sums.push_back(std::move(t));
    expect(job, s);
  }
}

// One worker after the other, in the order of ranks at each switch.
void AggregationWorld::expect(Job& job, std::size_t number) {
  Tensor& t = job.sums[number];
  const auto workers = static_cast<int>(job.members.size());
  const int carry = static_cast<int>(std::ceil(std::log2(workers)));
  for (std::size_t i = 0; i < t.sum.count; ++i) {
    if (t.sum.format == AggregationFormat::i32) {
      std::uint32_t sum = 0;
      for (const auto& in : t.inputs) sum += get<std::uint32_t>(in.data(), i);
      t.expected.push_back(static_cast<std::int32_t>(sum));
    } else if (t.sum.format == AggregationFormat::scaled) {
      const std::size_t first = i / t.sum.block * t.sum.block;
      const std::size_t end = std::min<std::size_t>(t.sum.count, first + t.sum.block);
      bool finite = true;
      int most = -1000;  // 2^most is above all
      for (const auto& in : t.inputs)
        for (std::size_t k = first; k < end; ++k) {
          const double x = static_cast<double>(get<float>(in.data(), k));
          finite = finite && std::isfinite(x);
          int exponent = -1000;
          if (std::isfinite(x) && x != 0) std::frexp(x, &exponent);
          most = std::max(most, exponent);
        }
      const int shift = 31 - carry - most;
      if (!finite) {
        if (i == first) hit(Mark::not_finite);
        t.expected.push_back(std::nan(""));
      } else if (shift > 126) {
        if (i == first && most > -1000) hit(Mark::flushed);
        t.expected.push_back(0);
      } else {
        std::int64_t sum = 0;
        for (const auto& in : t.inputs)
          sum += static_cast<std::int64_t>(
              std::nearbyint(std::ldexp(static_cast<double>(get<float>(in.data(), i)), shift)));
        if (std::abs(sum) > std::numeric_limits<std::int32_t>::max()) problem("the reference itself wraps");
        const auto rounded = static_cast<float>(sum);
        t.expected.push_back(static_cast<double>(std::ldexp(rounded, -shift)));
      }
    } else {
      std::vector<float> racks(job.racks, 0.0F);
      for (std::size_t m = 0; m < t.inputs.size(); ++m)
        racks[job.members[m]->rack] += static_cast<float>(number_at(t.sum.format, t.inputs[m].data(), i));
      float sum = 0;
      for (const float part : racks) sum += part;
      t.expected.push_back(static_cast<double>(sum));
    }
  }
}

AggregationWorld::Box& AggregationWorld::box_of(const Job& job, std::size_t member) {
  return *boxes_[job.racks > 1 ? 1 + job.members[member]->rack : 0];
}

void AggregationWorld::open(Job& job) {
  job.terms.epoch = job.epoch;
  const auto opened = [&](std::size_t box, const JobTerms& terms) {
    if (const auto refused = boxes_[box]->box.open(terms)) problem(refused->text);
  };
  opened(0, job.terms);
  for (std::size_t rack = 0; job.racks > 1 && rack < job.racks; ++rack) {
    JobTerms leaf = job.terms;
    leaf.workers = job.in_rack[rack];
    leaf.above = SwitchAbove{static_cast<std::uint16_t>(rack), 150'000};
    opened(1 + rack, leaf);
  }
  std::size_t begin = job.sums.size();
  for (const auto& member : job.members) begin = std::min(begin, member->sum);
  for (const auto& member : job.members) {
    ++member->life;
    member->running = false;
    WorkerTerms terms;
    terms.job = job.id;
    terms.epoch = job.epoch;
    terms.worker = member->local;
    terms.workers = static_cast<std::uint32_t>(job.members.size());
    terms.slots = job.terms.slots;
    terms.columns = job.terms.columns;
    terms.block = job.terms.block;
    terms.times = {2'000'000, 200'000, 20'000'000};
    member->worker = std::make_unique<AggregationWorker>(terms, *member);
    member->sum = begin;
    member->armed_ns = std::numeric_limits<std::int64_t>::max();
    after(static_cast<std::int64_t>(random_.below(100'000)),
          [this, &job, m = member.get(), life = member->life] {
            if (m->life == life) next_sum(job, *m);
          });
  }
}

void AggregationWorld::next_sum(Job& job, Member& member) {
  if (member.sum >= job.sums.size()) return;
  const Tensor& t = job.sums[member.sum];
  const std::vector<std::byte>& in = t.inputs[member.number];
  member.in = in;
  member.out.assign(in.size() + 2 * kGuard, kGuardByte);
  if (t.in_place && !in.empty()) std::memcpy(member.out.data() + kGuard, in.data(), in.size());
  Sum sum = t.sum;
  sum.out = member.out.data() + kGuard;
  sum.in = t.in_place ? sum.out : member.in.data();
  member.running = true;
  member.worker->start(sum, static_cast<std::uint32_t>(member.sum), now_ns_ + kPatience, now_ns_);
  arm(job, member);
}

void AggregationWorld::arm(Job& job, Member& member) {
  if (const auto& failure = member.worker->failure()) {
    if (member.running) problem("worker " + std::to_string(member.number) + " failed: " + failure->text);
    member.running = false;
    return;
  }
  if (member.running && member.worker->done()) {
    member.running = false;
    check(job, member, member.sum++);
    after(static_cast<std::int64_t>(random_.below(30'000)), [this, &job, &member, life = member.life] {
      if (member.life == life) next_sum(job, member);
    });
    return;
  }
  const std::int64_t next = member.worker->next_time_ns();
  if (mutation_ == Mutation::silent_timers || next >= member.armed_ns ||
      next == std::numeric_limits<std::int64_t>::max())
    return;
  member.armed_ns = next;
  after(std::max<std::int64_t>(0, next - now_ns_), [this, &job, &member, life = member.life] {
    if (member.life != life) return;
    member.armed_ns = std::numeric_limits<std::int64_t>::max();
    member.worker->on_time(now_ns_);
    arm(job, member);
  });
}

void AggregationWorld::check(Job& job, Member& member, std::size_t number) {
  Tensor& t = job.sums[number];
  const std::byte* const out = member.out.data() + kGuard;
  const std::string where =
      fmt::format("job {} sum {} ({}) worker {}", job.id, number, wire::name(t.sum.format), member.number);
  for (std::size_t i = 0; i < t.sum.count; ++i) {
    const double is = number_at(t.sum.format, out, i);
    const double expected = t.expected[i];
    if (is != expected && !(std::isnan(is) && std::isnan(expected))) {
      problem(fmt::format("{}: element {} of {} is {}, expected {}", where, i, t.sum.count, is, expected));
      break;
    }
  }
  const std::vector<std::byte> bits(out, out + t.inputs[member.number].size());
  if (t.first_out.empty()) t.first_out = bits;
  if (t.first_out != bits) problem(where + ": not the bits that another worker, or an earlier epoch, has");
  if (!t.in_place && member.in != t.inputs[member.number]) problem(where + ": the input was written to");
  for (std::size_t i = 0; i < kGuard; ++i)
    if (member.out[i] != kGuardByte || member.out[member.out.size() - 1 - i] != kGuardByte)
      problem(where + ": memory beside the output was written to");
}

void AggregationWorld::crash(Job& job) {
  hit(Mark::crash);
  Member& member = *job.members[random_.below(job.members.size())];
  ++member.life;
  member.running = false;
  after(static_cast<std::int64_t>(random_.below(3'000'000)), [this, &job] {
    ++job.epoch;
    open(job);
  });
}

void AggregationWorld::after(std::int64_t delay_ns, std::function<void()> event) {
  events_.emplace(std::pair(now_ns_ + delay_ns, events_made_++), std::move(event));
}

void AggregationWorld::carry(std::function<void()> arrival) {
  if (random_.uniform() < loss_) return hit(Mark::lost);
  const auto delay = [&] {
    return delay_ns_ + (jitter_ns_ > 0
                            ? static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(jitter_ns_)))
                            : 0);
  };
  const std::int64_t first = delay();
  if (now_ns_ + first < last_arrival_ns_) hit(Mark::overtaken);
  last_arrival_ns_ = std::max(last_arrival_ns_, now_ns_ + first);
  if (random_.uniform() < repeat_) {
    hit(Mark::repeated);
    // The copy may come when much has happened since.
    after(delay() + static_cast<std::int64_t>(random_.below(random_.below(2) == 0 ? 10'000 : 5'000'000)),
          arrival);
  }
  after(first, std::move(arrival));
}

void AggregationWorld::mutate_up(Job& job, wire::DatagramHeader& header, std::vector<std::byte>& payload) {
  const bool strikes = random_.below(20) == 0;
  if (mutation_ == Mutation::flip_versions && strikes)
    rewrite(header, payload, [](AggregationEntry& e, auto&) { e.version = !e.version; });
  if (mutation_ == Mutation::swap_workers && strikes)
    header.sender = static_cast<std::uint16_t>((header.sender + 1) % job.members.size());
  if (mutation_ == Mutation::lose_data && strikes)
    rewrite(header, payload, [](AggregationEntry& e, auto&) {
      e.data = false;
      e.count = 0;
    });
}

void AggregationWorld::mutate_down(Job& job, std::size_t member, std::vector<std::byte>& payload) {
  wire::DatagramHeader header;
  header.type = static_cast<std::uint8_t>(AggregationType::result);
  const bool strikes = random_.below(20) == 0;
  const std::uint64_t blind = random_.next();
  if (mutation_ == Mutation::pass_over && strikes)
    rewrite(header, payload, [](AggregationEntry& e, auto&) {
      e.next = wire::kNeverNext;
      e.exponent = wire::kZeroExponent;
    });
  if (mutation_ == Mutation::raise_exponents && member == 0 && job.members.size() > 1)
    rewrite(header, payload, [](AggregationEntry& e, auto&) {
      if (e.exponent >= wire::kLeastExponent && e.exponent < 100) ++e.exponent;
    });
  if (mutation_ == Mutation::damage_sums && strikes)
    rewrite(header, payload, [&](AggregationEntry&, std::vector<std::byte>& data) {
      if (!data.empty()) data[blind % data.size()] ^= std::byte{0x10};
    });
}

void AggregationWorld::Member::send(const wire::DatagramHeader& header, std::span<const std::byte> payload) {
  AggregationWorld& w = *world;
  wire::DatagramHeader sent = header;
  std::vector<std::byte> bytes(payload.begin(), payload.end());
  w.mutate_up(*job, sent, bytes);
  auto arrivals = std::make_shared<int>(0);
  w.carry([&w, j = job, m = number, sent, bytes, arrivals]() mutable {
    wire::DatagramHeader h = sent;
    std::vector<std::byte> p = bytes;
    if (w.mutation_ == Mutation::forget_epochs) h.epoch = j->epoch;
    if (w.mutation_ == Mutation::forget_operations)
      h.own32 = static_cast<std::uint32_t>(std::min(j->members[m]->sum, j->sums.size() - 1));
    if (w.mutation_ == Mutation::forget_blocks && (*arrivals)++ > 0)
      rewrite(h, p, [](AggregationEntry& e, auto&) {
        if (e.next == wire::kNeverNext || e.block == wire::kNoBlock) return;
        e.block = e.next++;
        e.version = !e.version;
      });
    w.deliver_to_box(w.box_of(*j, m), h, p, Peer{1000 * j->id + m, 1});
  });
}

void AggregationWorld::deliver_to_box(Box& box, const wire::DatagramHeader& header,
                                      const std::vector<std::byte>& payload, Peer from) {
  std::span<const SwitchAction> actions;
  if (from.host == kBoxHosts)
    actions = box.box.on_above(header, payload, now_ns_);
  else
    actions = box.box.on(header, payload, from, now_ns_);
  for (const SwitchAction& action : actions) {
    const std::vector<std::byte> bytes(action.payload.begin(), action.payload.end());
    if (action.to == SwitchAction::To::above) {
      carry([this, h = action.header, bytes, number = box.number] {
        deliver_to_box(*boxes_[0], h, bytes, Peer{kBoxHosts + number, 1});
      });
      continue;
    }
    for (const Peer& peer : action.peers) {
      if (peer.host > kBoxHosts) {
        carry([this, h = action.header, bytes, number = peer.host - kBoxHosts] {
          deliver_to_box(*boxes_[number], h, bytes, Peer{kBoxHosts, 1});
        });
        continue;
      }
      Job& job = *jobs_[peer.host / 1000 - jobs_[0]->id];
      carry([this, &job, h = action.header, bytes, m = peer.host % 1000] {
        deliver_to_member(job, m, job.members[m]->life, h, bytes);
      });
    }
  }
}

void AggregationWorld::deliver_to_member(Job& job, std::size_t number, std::uint64_t, wire::DatagramHeader h,
                                         std::vector<std::byte> payload) {
  Member& member = *job.members[number];
  if (!member.worker || !member.running) return;
  if (h.epoch != job.epoch) hit(Mark::other_epoch_worker);
  const bool result = h.type == static_cast<std::uint8_t>(AggregationType::result);
  if (result && mutation_ == Mutation::deaf_worker && number == 0) return;
  if (result) mutate_down(job, number, payload);
  wire::AggregationMessage message;
  const Tensor& t = job.sums[member.sum];
  const std::uint64_t step = std::uint64_t{job.terms.slots} * job.terms.columns;
  const std::uint64_t blocks = (t.sum.count + t.sum.block - 1) / t.sum.block;
  if (result && wire::decode(h, payload, message) == nullptr) {
    if (message.entries < job.terms.columns && blocks >= step) hit(Mark::part_of_slot);
    wire::for_each_entry(message, [&](const AggregationEntry& e, std::span<const std::byte>) {
      if (e.block != wire::kNoBlock && std::min(e.next, blocks) > e.block + step) hit(Mark::passed_over);
    });
  }
  member.worker->on(h, payload, now_ns_);
  arm(job, member);
}

bool AggregationWorld::finished() const {
  return std::all_of(jobs_.begin(), jobs_.end(), [](const auto& job) {
    return job->crash_ns < 0 && std::all_of(job->members.begin(), job->members.end(),
                                            [&](const auto& m) { return m->sum == job->sums.size(); });
  });
}

void AggregationWorld::run() {
  for (const auto& job : jobs_) open(*job);
  for (const auto& job : jobs_) {
    if (job->crash_ns < 0) continue;
    after(job->crash_ns, [this, j = job.get()] {
      j->crash_ns = -1;
      // One that has ended everything has nothing to die in.
      if (std::any_of(j->members.begin(), j->members.end(),
                      [&](const auto& m) { return m->sum < j->sums.size(); }))
        crash(*j);
    });
  }
  std::size_t events = 0;
  constexpr std::size_t kMostEvents = 1'000'000;
  while (!events_.empty() && problems_.empty() && events < kMostEvents) {
    const auto next = events_.begin();
    now_ns_ = next->first.first;
    const std::function<void()> event = std::move(next->second);
    events_.erase(next);
    event();
    ++events;
  }
  if (problems_.empty() && !finished())
    problem(events < kMostEvents ? "the network fell silent before all was summed" : "there is no end to it");
  count();
}

void AggregationWorld::count() {
  for (const auto& box : boxes_) {
    for (const auto& job : jobs_) {
      const SwitchCounters* const c = box->box.counters(job->id);
      if (c == nullptr) continue;
      hit(Mark::sent_again, c->repeated);
      hit(Mark::duplicate, c->duplicates);
      hit(Mark::late, c->late);
      hit(Mark::asked_for, c->missed);
      hit(Mark::passed_again, c->passed_again);
      hit(Mark::other_epoch, c->other_epoch);
      if (mutation_ == Mutation::none &&
          c->early + c->malformed + c->out_of_range + c->strangers + c->disagreements > 0)
        problem("a switch was sent what no worker may send");
    }
  }
  for (const auto& job : jobs_) {
    for (const auto& member : job->members) {
      const WorkerCounters& c = member->worker->counters();
      hit(Mark::timeout, c.timeouts);
      hit(Mark::query, c.queries);
      hit(Mark::late_result, c.ignored);
      hit(Mark::held_back, c.held_back);
      hit(Mark::advert, c.adverts);
      if (mutation_ == Mutation::none && c.malformed > 0)
        problem("a worker was sent what no switch may send");
    }
  }
}

void AggregationWorld::problem(std::string text) {
  problems_.push_back(fmt::format("seed {} at {} ns: {}", seed_, now_ns_, text));
}

std::string AggregationWorld::describe() const {
  std::string text =
      fmt::format("loss {}, repeated {}, delay {} + {} ns\n", loss_, repeat_, delay_ns_, jitter_ns_);
  for (const auto& job : jobs_) {
    text += fmt::format("job {}: {} workers in {} racks, {} slots x {} columns x {} elements, ordered {}\n",
                        job->id, job->members.size(), job->racks, job->terms.slots, job->terms.columns,
                        job->terms.block, job->terms.ordered);
    for (const auto& box : boxes_)
      if (const SwitchCounters* const c = box->box.counters(job->id))
        text += fmt::format(
            "  switch {}: {} contributions, {} adverts, {} rounds, {} repeated, {} duplicates, {} late, {} "
            "early, {} queries, "
            "{} missed, {} passed up, {} again, {} busy\n",
            box->number, c->contributions, c->adverts, c->rounds, c->repeated, c->duplicates, c->late,
            c->early, c->queries, c->missed, c->passed_up, c->passed_again, c->busy);
    for (const auto& m : job->members)
      if (m->worker)
        text += fmt::format("  worker {}: at sum {}, {} results, {} timeouts, {} queries, {} held back\n",
                            m->number, m->sum, m->worker->counters().results, m->worker->counters().timeouts,
                            m->worker->counters().queries, m->worker->counters().held_back);
    for (const Tensor& t : job->sums)
      text += fmt::format("  {} {} elements in blocks of {}, sparse {}, in place {}\n", t.sum.count,
                          wire::name(t.sum.format), t.sum.block, t.sum.sparse, t.in_place);
  }
  return text;
}

}  // namespace talweg::protocol
