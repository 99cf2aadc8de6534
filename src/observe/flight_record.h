// Flight records as `talweg doctor` reads them: what recorder.cc wrote, one file a rank and group.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace talweg::observe {

struct RecordedCall {
  std::string operation;                  // "all_reduce", "send", "recv", "bounded_all_reduce", ...
  std::optional<std::uint64_t> sequence;  // none: a message. Bounded calls are counted apart from the others
  int peer = -1;                          // messages; -1: from any rank
  std::uint32_t tag = 0;
  std::string type;
  std::string reduction;
  int root = 0;
  std::int64_t count = 0;
  std::string layout;
  std::string algorithm;
  std::string state;  // "started", "moving", "completed", "failed"
  std::int64_t started_ns = 0;
  std::int64_t ended_ns = 0;
  std::vector<int> not_started;
  std::vector<int> data_missing_from;
  std::string error;
  std::string text;
  // Of a bounded call that has completed: what this rank has sent to the others, and bytes of each rank's
  // data that are missing in its sum, where there are any; and what never arrived of its own in all, and of
  // the layers of which the most did not (records of older builds do not say).
  std::int64_t sent_bytes = 0, lost_bytes = 0;
  bool by_switch = false;  // which it was sent, for all of them
  std::vector<std::pair<int, std::int64_t>> lost_of_sender, lost_of_layer;

  bool bounded() const;
  bool in_flight() const { return state == "started" || state == "moving"; }
};

struct Record {
  std::string file;
  std::string reason;
  std::string job;
  std::string group;
  int rank = 0;
  int size = 0;
  std::vector<std::string> hosts;
  std::int64_t monotonic_ns = 0;
  std::int64_t wall_ns = 0;
  std::optional<std::int64_t> offset_ns;  // this rank's clock + offset = rank 0's
  std::int64_t offset_error_ns = 0;
  std::vector<RecordedCall> calls;  // oldest first
};

// Throws Error{bad_file} naming the file and what was expected.
Record read_record(const std::string& path);

// The files that arguments stand for: a file for itself, a directory for those in it whose names begin with
// `prefix` and end in ".json"; each once. Throws Error{invalid_argument} for what does not exist.
std::vector<std::string> find_files(const std::vector<std::string>& arguments, const std::string& prefix);

}  // namespace talweg::observe
