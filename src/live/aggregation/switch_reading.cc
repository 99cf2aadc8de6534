// What a switch reads when it is told to, and what it says of itself.
#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>

#include "base/fail.h"
#include "live/aggregation/switch_service.h"

namespace talweg::live {

double SwitchService::result_rate(const SwitchJobs::Job& job) const {
  return result_rates_.of_job(job.name, options_.quotas.result_bytes_per_second);
}

// Jobs that are there go on with the keys that they have agreed on.
void SwitchService::reload_key() {
  std::optional<wire::Secret> key, key_above;
  if (options_.above && options_.above->key) key_above = options_.above->key().value_or(wire::Secret{});
  if (has_key_) {
    key = options_.key();
    if (!key) refuse("there is no key any more: the one that was there stays");
    key_ = *key;
    if (options_.above && !options_.above->key) key_above = key;
  }
  if (key_above) key_above_ = *key_above;
}

// The results of jobs that are there have the new rates at once.
void SwitchService::reload_rates() {
  result_rates_ = options_.result_rates();
  for (const auto& [name, job] : jobs_.jobs()) {
    if (!job.opened) continue;
    const std::size_t threads = job.opened->threads;
    for (std::size_t t = 0; t < threads; ++t)
      threads_[t]->pace_results(job.opened->job, result_rate(job) / static_cast<double>(threads));
  }
}

// Empty, or what is wrong: with the key, with the rates, or with both. What was there of it stays, and the
// other one is taken.
std::string SwitchService::reload() {
  std::string wrong, read;
  const auto add = [](std::string& to, std::string_view what) {
    if (!to.empty()) to += "; ";
    to += what;
  };
  const auto take = [&](bool there, void (SwitchService::*part)(), std::string_view done) {
    if (!there) return;
    try {
      (this->*part)();
      add(read, done);
    } catch (const Error& e) {
      add(wrong, e.what());
    }
  };
  take(reads_key(), &SwitchService::reload_key, "the key has been read again");
  take(static_cast<bool>(options_.result_rates), &SwitchService::reload_rates,
       "the rates of results have been read again");
  if (!wrong.empty() && !read.empty()) add(wrong, read);
  return wrong;
}

std::string SwitchService::what_is_read() const {
  if (options_.result_rates)
    return reads_key() ? "the key and the rates of results have been read again"
                       : "the rates of results have been read again";
  return reads_key() ? "the key has been read again" : "there is no key to read";
}

std::string SwitchService::groups() const {
  if (!groups_) return {};
  const int hops = options_.multicast->hops;
  return fmt::format("results of a job once to its group, {}, {} hop{}", groups_->describe(), hops,
                     hops == 1 ? "" : "s");
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
    out.by_group = groups_ && groups_->by_group(job.opened->job);
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
