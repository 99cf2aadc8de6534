// What a switch reads when it is told to, and what it says of itself.
#include <utility>

#include "live/aggregation/switch_service.h"

namespace talweg::live {

double SwitchService::result_rate(const SwitchJobs::Job& job) const {
  return result_rates_.of_job(job.name, options_.quotas.result_bytes_per_second);
}

// Empty, or why what was there stays. Jobs that are there go on with the keys that they have agreed on; their
// results have the new rates at once.
std::string SwitchService::reload() {
  try {
    ResultRates rates = options_.result_rates ? options_.result_rates() : ResultRates{};
    std::optional<wire::Secret> key, key_above;
    if (options_.above && options_.above->key) key_above = options_.above->key().value_or(wire::Secret{});
    if (has_key_) {
      key = options_.key();
      if (!key) return "there is no key any more: the one that was there stays";
      key_ = *key;
      if (options_.above && !options_.above->key) key_above = key;
    }
    if (key_above) key_above_ = *key_above;
    result_rates_ = std::move(rates);
  } catch (const Error& e) {
    return e.what();
  }
  if (!options_.result_rates) return {};
  for (const auto& [name, job] : jobs_.jobs()) {
    if (!job.opened) continue;
    const std::size_t threads = job.opened->threads;
    for (std::size_t t = 0; t < threads; ++t)
      threads_[t]->pace_results(job.opened->job, result_rate(job) / static_cast<double>(threads));
  }
  return {};
}

std::string SwitchService::what_is_read() const {
  const bool key = has_key_ || (options_.above && options_.above->key);
  if (options_.result_rates)
    return key ? "the key and the rates of results have been read again"
               : "the rates of results have been read again";
  return key ? "the key has been read again" : "there is no key to read";
}

SwitchStatus SwitchService::status() {
  SwitchStatus status;
  for (const auto& thread : threads_) status.threads.push_back(thread->status());
  for (const auto& [name, job] : jobs_.jobs()) {
    SwitchStatus::Job& out = status.jobs.emplace_back();
    out.name = name;
    out.workers = job.workers.size();
    out.here = job.here();
    out.racks = job.first.racks;
    if (!job.opened) continue;
    out.above = job.above.has_value();
    out.slots = std::size_t{job.opened->slots} * job.opened->threads;
    out.result_rate = result_rate(job);
    for (const SwitchThreadStatus& thread : status.threads)
      if (const auto found = thread.jobs.find(job.opened->job); found != thread.jobs.end())
        out.counters += found->second;
  }
  for (const SwitchThreadStatus& thread : status.threads) status.memory_bytes += thread.memory_bytes;
  status.memory_most = options_.memory_bytes;
  if (switchml_) {
    status.switchml = switchml_->status();
    SwitchStatus::Job& out = status.jobs.emplace_back();
    out.name = "SwitchML's workers";  // no job is called that: it has a blank
    out.workers = status.switchml->workers;
    out.here = status.switchml->here;
    out.slots = status.switchml->slots;
    out.counters = status.switchml->counters;
    status.memory_bytes += status.switchml->memory_bytes;
    status.memory_most += options_.switchml->memory_bytes;
  }
  status.opened = jobs_.opened();
  status.failed = jobs_.failed();
  status.draining = jobs_.draining();
  if (options_.above) status.above = to_string(address_above_);
  status.refused_connections = gate_->counts().strangers();
  return status;
}

}  // namespace talweg::live
