#include "protocol/aggregation/switch.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <new>

namespace talweg::protocol {

namespace {

OpenRefusal no_memory(std::uint32_t job, std::size_t bytes) {
  return {true, fmt::format("job {}: the system has no memory for its {} bytes of slots", job, bytes)};
}

}  // namespace

AggregationSwitch::AggregationSwitch(const SwitchLimits& limits, std::pmr::memory_resource* memory)
    : limits_(limits), memory_(*memory) {
  actions_.reserve(kMaxSwitchActions);
}

std::optional<OpenRefusal> AggregationSwitch::admit(std::uint32_t job, std::size_t memory, double rate,
                                                    bool replaces) {
  if (!replaces && jobs() >= limits_.jobs)
    return OpenRefusal{true,
                       fmt::format("job {}: all {} jobs that this switch takes are open", job, limits_.jobs)};
  if (memory > limits_.memory_bytes - memory_bytes_)
    return OpenRefusal{true, fmt::format("job {}: it needs {} bytes of slots, and {} of {} are left", job,
                                         memory, limits_.memory_bytes - memory_bytes_, limits_.memory_bytes)};
  if (rate > limits_.bytes_per_second - bytes_per_second_)
    return OpenRefusal{
        true, fmt::format("job {}: it asks for {:.0f} bytes per second, and {:.0f} of {:.0f} are left", job,
                          rate, limits_.bytes_per_second - bytes_per_second_, limits_.bytes_per_second)};
  return std::nullopt;
}

std::optional<OpenRefusal> AggregationSwitch::open(const JobTerms& terms) {
  if (const char* const wrong = check(terms))
    return OpenRefusal{false, fmt::format("job {}: {}", terms.job, wrong)};
  if (switchml_.contains(terms.job))
    return OpenRefusal{false, fmt::format("job {} is open for SwitchML's workers", terms.job)};
  const auto open = jobs_.find(terms.job);
  const bool replaces = open != jobs_.end();
  if (replaces && terms.epoch <= open->second->terms().epoch)
    return OpenRefusal{
        false, fmt::format("job {} is open with epoch {}: the next one has a higher epoch than {}", terms.job,
                           open->second->terms().epoch, terms.epoch)};
  // What the job has now goes back first, or it could not be opened anew where there is room for one alone.
  // If the new terms are refused the job keeps what it has.
  const std::size_t memory = memory_of(terms).total;
  const std::size_t had = replaces ? memory_of(open->second->terms()).total : 0;
  const double had_rate = replaces ? open->second->terms().bytes_per_second : 0;
  memory_bytes_ -= had;
  bytes_per_second_ -= had_rate;
  if (auto refusal = admit(terms.job, memory, terms.bytes_per_second, replaces)) {
    memory_bytes_ += had;
    bytes_per_second_ += had_rate;
    return refusal;
  }
  if (replaces) jobs_.erase(open);
  try {
    jobs_.emplace(terms.job, std::make_unique<AggregationJob>(terms, memory_));
  } catch (const std::bad_alloc&) {
    return no_memory(terms.job, memory);
  }
  memory_bytes_ += memory;
  bytes_per_second_ += terms.bytes_per_second;
  return std::nullopt;
}

std::optional<OpenRefusal> AggregationSwitch::open(const SwitchmlTerms& terms) {
  if (const char* const wrong = check(terms))
    return OpenRefusal{false, fmt::format("job {}: {}", terms.job, wrong)};
  if (jobs_.contains(terms.job) || switchml_.contains(terms.job))
    return OpenRefusal{false, fmt::format("job {} is open already", terms.job)};
  for (const std::uint64_t host : terms.hosts)
    if (members_.contains(host))
      return OpenRefusal{false,
                         fmt::format("job {}: one of its hosts is a worker of another job of SwitchML's, and "
                                     "nothing else tells their packets apart",
                                     terms.job)};
  const std::size_t memory = memory_of(terms).total;
  if (auto refusal = admit(terms.job, memory, terms.bytes_per_second, false)) return refusal;
  std::unique_ptr<SwitchmlSlots> slots;
  try {
    slots = std::make_unique<SwitchmlSlots>(terms, memory_);
  } catch (const std::bad_alloc&) {
    return no_memory(terms.job, memory);
  }
  for (std::size_t worker = 0; worker < terms.hosts.size(); ++worker)
    members_[terms.hosts[worker]] = {slots.get(), worker};
  switchml_.emplace(terms.job, std::move(slots));
  memory_bytes_ += memory;
  bytes_per_second_ += terms.bytes_per_second;
  return std::nullopt;
}

void AggregationSwitch::close(std::uint32_t job) {
  if (const auto found = jobs_.find(job); found != jobs_.end()) {
    memory_bytes_ -= memory_of(found->second->terms()).total;
    bytes_per_second_ -= found->second->terms().bytes_per_second;
    jobs_.erase(found);
  }
  if (const auto found = switchml_.find(job); found != switchml_.end()) {
    memory_bytes_ -= memory_of(found->second->terms()).total;
    bytes_per_second_ -= found->second->terms().bytes_per_second;
    for (const std::uint64_t host : found->second->terms().hosts) members_.erase(host);
    switchml_.erase(found);
  }
  if (jobs() == 0) bytes_per_second_ = 0;  // or what rounding has left would add up over the years
}

void AggregationSwitch::pace_results(std::uint32_t job, double bytes_per_second) {
  if (const auto found = jobs_.find(job); found != jobs_.end()) found->second->pace_results(bytes_per_second);
}

void AggregationSwitch::send_once(std::uint32_t job, bool once) {
  if (const auto found = jobs_.find(job); found != jobs_.end()) found->second->send_once(once);
}

std::span<const SwitchAction> AggregationSwitch::on(const wire::DatagramHeader& header,
                                                    std::span<const std::byte> payload, Peer from,
                                                    std::int64_t now_ns) {
  actions_.clear();
  if (const auto found = jobs_.find(header.job); found != jobs_.end()) {
    found->second->on(header, payload, from, now_ns, actions_);
    return actions_;
  }
  ++strays_.unknown_job;
  stray_ = from;
  wire::encode(wire::AggregationRefusal{wire::AggregationReason::unknown_job, 0}, refusal_);
  SwitchAction refusal{SwitchAction::To::one, {&stray_, 1}, header, refusal_};
  refusal.header.type = static_cast<std::uint8_t>(wire::AggregationType::refusal);
  refusal.header.length = wire::kRefusalBytes;
  refusal.header.flags = 0;
  actions_.push_back(refusal);
  return actions_;
}

std::span<const SwitchAction> AggregationSwitch::on_above(const wire::DatagramHeader& header,
                                                          std::span<const std::byte> payload,
                                                          std::int64_t now_ns) {
  actions_.clear();
  const auto found = jobs_.find(header.job);
  if (found == jobs_.end() || !found->second->terms().above)
    ++strays_.unknown_job;
  else
    found->second->on_above(header, payload, now_ns, actions_);
  return actions_;
}

std::int64_t AggregationSwitch::next_time_ns() const {
  std::int64_t next = std::numeric_limits<std::int64_t>::max();
  for (const auto& [number, job] : jobs_) next = std::min(next, job->next_time_ns());
  return next;
}

std::span<const SwitchAction> AggregationSwitch::on_time(std::int64_t now_ns) {
  actions_.clear();
  for (const auto& [number, job] : jobs_) {
    if (job->next_time_ns() > now_ns) continue;
    job->on_time(now_ns, actions_);
    break;
  }
  return actions_;
}

std::span<const SwitchAction> AggregationSwitch::on_switchml(std::span<const std::byte> packet, Peer from,
                                                             std::int64_t now_ns) {
  actions_.clear();
  if (const auto found = members_.find(from.host); found != members_.end())
    found->second.job->on(found->second.worker, packet, from, now_ns, actions_);
  else
    ++strays_.strangers;
  return actions_;
}

const SwitchCounters* AggregationSwitch::counters(std::uint32_t job) const {
  if (const auto found = jobs_.find(job); found != jobs_.end()) return &found->second->counters();
  if (const auto found = switchml_.find(job); found != switchml_.end()) return &found->second->counters();
  return nullptr;
}

}  // namespace talweg::protocol
