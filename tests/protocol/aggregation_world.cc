#include "protocol/aggregation_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "protocol/aggregation_world_parts.h"

namespace talweg::protocol {

namespace {

using Mutation = AggregationMutation;
constexpr std::uint64_t kBoxHosts = 1'000'000;
constexpr std::int64_t kPatience = 100'000'000'000;

template <class Change>
void rewrite(const wire::DatagramHeader& header, std::vector<std::byte>& payload, Change change) {
  wire::AggregationMessage message;
  if (wire::decode(header, payload, message) != nullptr) return;
  std::vector<std::byte> changed(payload.size() + 64);
  wire::AggregationWriter writer(changed);
  writer.begin(message.format, message.number);
  wire::for_each_entry(message, [&](AggregationEntry entry, std::span<const std::byte> data) {
    std::vector<std::byte> copy(data.begin(), data.end());
    change(entry, copy);
    std::byte* const at = writer.add(entry);
    if (entry.data) std::memcpy(at, copy.data(), copy.size());
  });
  for (std::size_t i = 0; i < wire::names_in(message); ++i) writer.add_name(wire::name_at(message, i));
  payload.assign(writer.payload().begin(), writer.payload().end());
}

}  // namespace

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
  if (jobs == 2) hit(AggregationMark::two_jobs);
}

AggregationWorld::~AggregationWorld() = default;

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
    if (member->running) take_back(job, *member, member->sum);
    member->running = false;
    WorkerTerms terms;
    terms.job = job.id;
    terms.epoch = job.epoch;
    terms.worker = member->local;
    terms.workers = static_cast<std::uint32_t>(job.members.size());
    terms.slots = job.terms.slots;
    terms.columns = job.terms.columns;
    terms.block = job.terms.block;
    terms.rack = static_cast<std::uint16_t>(member->rack);
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
  if (t.width > 0) sum = begin_rows(t, member);
  if (t.in_place && t.width == 0 && member.kept.reset(sum.out, in.size())) sum.kept = &member.kept;
  member.running = true;
  if (t.width == 0 && member.worker->slots_for(sum) < job.terms.slots) hit(AggregationMark::fewer_columns);
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

void AggregationWorld::crash(Job& job) {
  hit(AggregationMark::crash);
  Member& member = *job.members[random_.below(job.members.size())];
  ++member.life;
  if (member.running) take_back(job, member, member.sum);
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
  if (random_.uniform() < loss_) return hit(AggregationMark::lost);
  const auto delay = [&] {
    return delay_ns_ + (jitter_ns_ > 0
                            ? static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(jitter_ns_)))
                            : 0);
  };
  const std::int64_t first = delay();
  if (now_ns_ + first < last_arrival_ns_) hit(AggregationMark::overtaken);
  last_arrival_ns_ = std::max(last_arrival_ns_, now_ns_ + first);
  if (random_.uniform() < repeat_) {
    hit(AggregationMark::repeated);
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
  wire::AggregationMessage message;
  if (wire::decode(sent, bytes, message) == nullptr && message.format == AggregationFormat::pairs)
    wire::for_each_entry(message, [&](const AggregationEntry& e, std::span<const std::byte> data) {
      const wire::PairsOnWire pairs(data);
      if (e.data) said[{sent.own16, e.column}] = e.block + pairs.distance(pairs.count - 1);
    });
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
  if (from.host != kBoxHosts) {
    perform(box, box.box.on(header, payload, from, now_ns_));
    return arm(box);
  }
  if (header.type == static_cast<std::uint8_t>(AggregationType::refusal)) hit(AggregationMark::busy_above);
  perform(box, box.box.on_above(header, payload, now_ns_));
  arm(box);
}

void AggregationWorld::arm(Box& box) {
  const std::int64_t next = box.box.next_time_ns();
  if (mutation_ == Mutation::silent_timers || next >= box.armed_ns) return;
  box.armed_ns = next;
  after(std::max<std::int64_t>(0, next - now_ns_), [this, &box, next] {
    if (box.armed_ns != next) return;
    box.armed_ns = std::numeric_limits<std::int64_t>::max();
    while (box.box.next_time_ns() <= now_ns_) perform(box, box.box.on_time(now_ns_));
    arm(box);
  });
}

void AggregationWorld::perform(Box& box, std::span<const SwitchAction> actions) {
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
  if (h.epoch != job.epoch) hit(AggregationMark::other_epoch_worker);
  const bool result = h.type == static_cast<std::uint8_t>(AggregationType::result);
  if (result && mutation_ == Mutation::deaf_worker && number == 0) return;
  if (result) mutate_down(job, number, payload);
  wire::AggregationMessage message;
  const Tensor& t = job.sums[member.sum];
  const std::uint64_t step = std::uint64_t{job.terms.slots} * job.terms.columns;
  const std::uint64_t blocks = (t.sum.count + t.sum.block - 1) / t.sum.block;
  if (result && wire::decode(h, payload, message) == nullptr) {
    if (message.entries < job.terms.columns && blocks >= step) hit(AggregationMark::part_of_slot);
    wire::for_each_entry(message, [&](const AggregationEntry& e, std::span<const std::byte>) {
      if (message.format == AggregationFormat::pairs) {
        const auto last = member.said.find({h.own16, e.column});
        if (last != member.said.end() && e.next <= last->second) hit(AggregationMark::cut);
        return;
      }
      if (e.block != wire::kNoBlock && std::min(e.next, blocks) > e.block + step)
        hit(AggregationMark::passed_over);
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
  constexpr std::size_t kMostEvents = 1'100'000;
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
      hit(AggregationMark::sent_again, c->repeated);
      hit(AggregationMark::duplicate, c->duplicates);
      hit(AggregationMark::late, c->late);
      hit(AggregationMark::delayed, c->delayed);
      hit(AggregationMark::asked_for, c->missed);
      hit(AggregationMark::passed_again, c->passed_again);
      hit(AggregationMark::other_epoch, c->other_epoch);
      if (mutation_ == Mutation::none &&
          c->early + c->malformed + c->out_of_range + c->strangers + c->disagreements > 0)
        problem("a switch was sent what no worker may send");
    }
  }
  for (const auto& job : jobs_) {
    for (const auto& member : job->members) {
      const WorkerCounters& c = member->worker->counters();
      hit(AggregationMark::timeout, c.timeouts);
      hit(AggregationMark::gap, c.gaps);
      hit(AggregationMark::named, c.named);
      hit(AggregationMark::late_result, c.ignored);
      hit(AggregationMark::held_back, c.held_back);
      hit(AggregationMark::advert, c.adverts);
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
        text += fmt::format("  worker {}: at sum {}, {} results, {} timeouts, {} gaps, {} held back\n",
                            m->number, m->sum, m->worker->counters().results, m->worker->counters().timeouts,
                            m->worker->counters().gaps, m->worker->counters().held_back);
    for (const Tensor& t : job->sums)
      text += fmt::format("  {} {} elements in blocks of {}, sparse {}, in place {}\n", t.sum.count,
                          wire::name(t.sum.format), t.sum.block, t.sum.sparse, t.in_place);
  }
  return text;
}

}  // namespace talweg::protocol
