// What became of the datagrams that a switch was handed, for one job or for those of no job.
#pragma once

#include <cstdint>

namespace talweg::protocol {

struct SwitchCounters {
  std::uint64_t contributions = 0;  // entries that were summed
  std::uint64_t adverts = 0;        // entries without data that counted
  std::uint64_t rounds = 0;         // results that were sent to all
  std::uint64_t repeated = 0;       // results that were sent again, to one
  std::uint64_t duplicates = 0;     // contributions that had been heard, to rounds that still fill
  std::uint64_t late = 0;           // of rounds that are over
  std::uint64_t early = 0;  // of rounds that cannot have begun: somebody does not keep to the protocol
  std::uint64_t queries = 0;
  std::uint64_t missed = 0;        // contributions that a switch asked for
  std::uint64_t passed_up = 0;     // contributions to the switch above
  std::uint64_t passed_again = 0;  // of these, once more
  std::uint64_t busy = 0;          // datagrams beyond the job's rate
  std::uint64_t unknown_job = 0;
  std::uint64_t other_epoch = 0;
  std::uint64_t strangers = 0;
  std::uint64_t disagreements = 0;
  std::uint64_t malformed = 0;
  std::uint64_t out_of_range = 0;  // slots, columns and blocks that the job was not lent
  bool operator==(const SwitchCounters&) const = default;
};

}  // namespace talweg::protocol
