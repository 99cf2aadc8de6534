// What this machine offers to a group, for `talweg info`.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/settings.h"

namespace talweg::study {

struct MachineFacts {
  std::string host;
  std::string kernel;  // "Linux 6.1.0"
  int cpus = 0;        // that this process may use
  std::uint64_t memory_bytes = 0;
  std::uint64_t memory_available_bytes = 0;
  std::string congestion_control;  // of new TCP connections
  std::string congestion_controls_available;
  std::uint64_t shared_memory_bytes = 0;  // free in /dev/shm; 0: there is none
  std::string namespaces;                 // "yes", or why not
};

// Never throws: what cannot be read is empty or 0.
MachineFacts machine_facts();

// What a group would say that joined now, of a value that it would refuse; empty of one that is good.
std::string complaint_about(const Setting& setting);

// With this build and every setting, its value, its origin and the complaint about it.
std::string to_text(const MachineFacts& facts);
nlohmann::json to_json(const MachineFacts& facts);

// "file /etc/talweg.conf:3"
std::string origin_text(const ResolvedSetting& setting);

}  // namespace talweg::study
