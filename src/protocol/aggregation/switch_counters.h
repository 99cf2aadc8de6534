// What became of the datagrams that a switch was handed, for one job or for those of no job.
#pragma once

#include <cstdint>
#include <iterator>

namespace talweg::protocol {

struct SwitchCounters {
  std::uint64_t contributions = 0;  // entries that were summed
  std::uint64_t adverts = 0;        // entries without data that counted
  std::uint64_t rounds = 0;         // results that were sent to all
  std::uint64_t multicast = 0;      // datagrams with some of these that were sent once, for all
  std::uint64_t absences = 0;       // parts of workers that rounds have ended without
  std::uint64_t repeated = 0;       // results that were sent again, to one
  std::uint64_t duplicates = 0;     // contributions that had been heard, to rounds that still fill
  std::uint64_t late = 0;           // of rounds that are over
  std::uint64_t early = 0;  // of rounds that cannot have begun: somebody does not keep to the protocol
  std::uint64_t queries = 0;
  std::uint64_t missed = 0;         // contributions that a worker which asked was told to send
  std::uint64_t gaps = 0;           // datagrams that had not been taken when later ones of their worker were
  std::uint64_t passed_up = 0;      // contributions to the switch above
  std::uint64_t passed_again = 0;   // of these, once more
  std::uint64_t busy = 0;           // datagrams beyond the job's rate
  std::uint64_t delayed = 0;        // results that were sent later, as results have a rate
  std::uint64_t delayed_bytes = 0;  // of these, to all workers
  std::uint64_t unknown_job = 0;
  std::uint64_t other_epoch = 0;
  std::uint64_t strangers = 0;
  std::uint64_t disagreements = 0;
  std::uint64_t malformed = 0;
  std::uint64_t out_of_range = 0;  // slots, columns and blocks that the job was not lent
  bool operator==(const SwitchCounters&) const = default;
  SwitchCounters& operator+=(const SwitchCounters& other);
};

// What each is called, for those who print them all.
struct SwitchCounterField {
  const char* name;
  std::uint64_t SwitchCounters::*value;
  const char* help;
};
inline constexpr SwitchCounterField kSwitchCounters[] = {
    {"contributions", &SwitchCounters::contributions, "Blocks that were summed."},
    {"adverts", &SwitchCounters::adverts, "Parts of rounds without data."},
    {"rounds", &SwitchCounters::rounds, "Results that were sent to all workers."},
    {"multicast", &SwitchCounters::multicast, "Datagrams with results that were sent once for all workers."},
    {"absences", &SwitchCounters::absences, "Parts of workers that rounds have ended without."},
    {"repeated", &SwitchCounters::repeated, "Results that were sent again, to one."},
    {"duplicates", &SwitchCounters::duplicates, "Contributions that had been heard."},
    {"late", &SwitchCounters::late, "Contributions to rounds that were over."},
    {"early", &SwitchCounters::early, "Contributions to rounds that could not have begun."},
    {"queries", &SwitchCounters::queries, "Questions of workers that missed results."},
    {"missed", &SwitchCounters::missed, "Contributions that a worker which asked was told to send."},
    {"gaps", &SwitchCounters::gaps,
     "Datagrams that had not been taken when later ones of their worker were."},
    {"passed_up", &SwitchCounters::passed_up, "Contributions to the switch above."},
    {"passed_again", &SwitchCounters::passed_again, "Of these, those that were sent again."},
    {"busy", &SwitchCounters::busy, "Datagrams beyond the rate of their job."},
    {"delayed", &SwitchCounters::delayed, "Results that were sent later, by the rate of results."},
    {"delayed_bytes", &SwitchCounters::delayed_bytes, "Their bytes, to all workers together."},
    {"unknown_job", &SwitchCounters::unknown_job, "Datagrams of no job."},
    {"other_epoch", &SwitchCounters::other_epoch, "Datagrams of another epoch of their job."},
    {"strangers", &SwitchCounters::strangers, "Datagrams of workers that their job does not have."},
    {"disagreements", &SwitchCounters::disagreements, "Contributions that did not fit those of others."},
    {"malformed", &SwitchCounters::malformed, "Datagrams that were none of the protocol."},
    {"out_of_range", &SwitchCounters::out_of_range, "Datagrams to slots that their job was not lent."},
};
static_assert(sizeof(SwitchCounters) == std::size(kSwitchCounters) * sizeof(std::uint64_t));

inline SwitchCounters& SwitchCounters::operator+=(const SwitchCounters& other) {
  for (const SwitchCounterField& field : kSwitchCounters) this->*field.value += other.*field.value;
  return *this;
}

}  // namespace talweg::protocol
