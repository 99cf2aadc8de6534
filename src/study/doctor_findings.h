// What the flight records of a group's ranks say together.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "observe/flight_record.h"

namespace talweg::study {

struct Finding {
  enum class Kind {
    mismatch,
    waiting,
    message,
    failed,
    missing,
    straggler,
    lossy,
    healthy,
    layers,
    repeated
  };
  Kind kind = Kind::healthy;
  std::string text;        // a sentence
  std::vector<int> ranks;  // that it is about: those who are the trouble, where that is known
};
const char* name(Finding::Kind kind);

struct Diagnosis {
  std::string job;
  std::string group;
  int size = 0;
  std::vector<int> seen;          // ranks with a record
  std::vector<Finding> findings;  // the likeliest cause first
};

// One diagnosis for each group there are records of. A rank with several records of a group counts with its
// latest, and a finding says so.
std::vector<Diagnosis> diagnose(const std::vector<observe::Record>& records);

std::string to_text(const std::vector<Diagnosis>& list);
// `unreadable`: what was wrong with records that could not be read.
nlohmann::json to_json(const std::vector<Diagnosis>& list, const std::vector<std::string>& unreadable);

// "rank 7", "ranks 0-6", "ranks 0, 2-3".
std::string ranks_text(std::vector<int> ranks);

}  // namespace talweg::study
