#include "observe/switch_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "text/prometheus.h"

namespace talweg::observe {

namespace {

using text::prometheus_label;
using text::PrometheusPage;

void write_jobs(PrometheusPage& page, const live::SwitchStatus& status) {
  page.family("talweg_switch_jobs", "gauge", "Jobs that are here, complete or not.");
  page.sample("talweg_switch_jobs", "", status.jobs.size());
  page.family("talweg_switch_jobs_opened_total", "counter", "Jobs whose workers were all here, so far.");
  page.sample("talweg_switch_jobs_opened_total", "", status.opened);
  page.family("talweg_switch_jobs_failed_total", "counter", "Of these, jobs that ended in an error.");
  page.sample("talweg_switch_jobs_failed_total", "", status.failed);
  page.family("talweg_switch_draining", "gauge", "1: it takes no new jobs.");
  page.sample("talweg_switch_draining", "", status.draining ? 1 : 0);

  if (!status.above.empty()) {
    page.family("talweg_switch_above", "gauge",
                "Jobs that the switch above has opened with a part of this one.");
    page.sample("talweg_switch_above", prometheus_label("address", status.above),
                static_cast<std::uint64_t>(std::ranges::count_if(
                    status.jobs, [](const live::SwitchStatus::Job& job) { return job.above; })));
  }

  const auto each = [&](const char* name, const char* type, const char* help, auto&& value) {
    page.family(name, type, help);
    for (const live::SwitchStatus::Job& job : status.jobs)
      page.sample(name, prometheus_label("job", job.name), value(job));
  };
  using Job = live::SwitchStatus::Job;
  each("talweg_switch_job_workers", "gauge", "Workers that the job was announced with.",
       [](const Job& job) { return job.workers; });
  each("talweg_switch_job_workers_here", "gauge", "Of these, those that are here.",
       [](const Job& job) { return job.here; });
  each("talweg_switch_job_slots", "gauge", "Slots that the job was lent; 0: it waits for its workers.",
       [](const Job& job) { return job.slots; });
  each("talweg_switch_job_racks", "gauge", "Switches below one that have a part of the job's workers.",
       [](const Job& job) { return job.racks; });
  each("talweg_switch_job_result_rate", "gauge",
       "Bytes per second of results to its workers; 0: as they come.",
       [](const Job& job) { return static_cast<std::uint64_t>(job.result_rate); });
  each("talweg_switch_job_multicast", "gauge",
       "1: its results leave once for all of its workers, by multicast; 0: once for each.",
       [](const Job& job) { return job.by_group ? 1 : 0; });
  for (const protocol::SwitchCounterField& field : protocol::kSwitchCounters) {
    const std::string name = fmt::format("talweg_switch_{}_total", field.name);
    each(name.c_str(), "counter", field.help, [&](const Job& job) { return job.counters.*field.value; });
  }
}

void write_threads(PrometheusPage& page, const live::SwitchStatus& status) {
  using Thread = live::SwitchThreadStatus;
  const auto each = [&](const char* name, const char* type, const char* help, auto&& value) {
    page.family(name, type, help);
    for (std::size_t t = 0; t < status.threads.size(); ++t)
      page.sample(name, prometheus_label("thread", std::to_string(t)), value(status.threads[t]));
  };
  each("talweg_switch_received_datagrams_total", "counter", "Datagrams that have come.",
       [](const Thread& t) { return t.received.datagrams; });
  each("talweg_switch_received_bytes_total", "counter", "Their bytes.",
       [](const Thread& t) { return t.received.bytes; });
  each("talweg_switch_dropped_datagrams_total", "counter", "Datagrams that the kernel had no room for.",
       [](const Thread& t) { return t.dropped; });
  each("talweg_switch_sent_datagrams_total", "counter", "Datagrams that were sent.",
       [](const Thread& t) { return t.sent.datagrams; });
  each("talweg_switch_sent_bytes_total", "counter", "Their bytes.",
       [](const Thread& t) { return t.sent.bytes; });
  each("talweg_switch_unsent_datagrams_total", "counter", "Datagrams that the kernel would not send.",
       [](const Thread& t) { return t.sent.too_large + t.sent.dropped; });
  if (!status.above.empty()) {
    each("talweg_switch_above_received_datagrams_total", "counter", "Datagrams that have come from above.",
         [](const Thread& t) { return t.received_above.datagrams; });
    each("talweg_switch_above_sent_datagrams_total", "counter", "Datagrams that were sent there.",
         [](const Thread& t) { return t.sent_above.datagrams; });
  }
  page.family("talweg_switch_refused_datagrams_total", "counter", "Datagrams that were not acted upon.");
  for (std::size_t t = 0; t < status.threads.size(); ++t)
    for (int why = 1; why < static_cast<int>(wire::DatagramRefusal::count_); ++why) {
      const auto refusal = static_cast<wire::DatagramRefusal>(why);
      if (status.threads[t].refusals[refusal] == 0) continue;
      page.sample("talweg_switch_refused_datagrams_total",
                  prometheus_label("thread", std::to_string(t)) + "," +
                      prometheus_label("reason", wire::to_string(refusal)),
                  status.threads[t].refusals[refusal]);
    }
}

}  // namespace

std::string switch_metrics(const live::SwitchStatus& status) {
  PrometheusPage page;
  write_jobs(page, status);
  page.family("talweg_switch_slot_bytes", "gauge", "Memory of slots that are lent to jobs.");
  page.sample("talweg_switch_slot_bytes", "", status.memory_bytes);
  page.family("talweg_switch_slot_bytes_max", "gauge", "Memory of slots that there is to lend.");
  page.sample("talweg_switch_slot_bytes_max", "", status.memory_most);
  page.family("talweg_switch_refused_connections_total", "counter",
              "Connections that did not prove that they hold the key.");
  page.sample("talweg_switch_refused_connections_total", "", status.refused_connections);
  write_threads(page, status);
  if (status.switchml) {
    const auto total = [&](const char* name, const char* help, std::uint64_t value) {
      page.family(name, "counter", help);
      page.sample(name, "", value);
    };
    total("talweg_switch_switchml_received_total", "Packets that have come to SwitchML's ports.",
          status.switchml->received);
    total("talweg_switch_switchml_sent_total", "Packets that were sent from them.", status.switchml->sent);
    total("talweg_switch_switchml_dropped_total", "Packets that the kernel had no room for.",
          status.switchml->dropped);
    total("talweg_switch_switchml_strangers_total", "Packets of hosts that are no worker of SwitchML's.",
          status.switchml->strays.strangers);
  }
  return page.text();
}

}  // namespace talweg::observe
