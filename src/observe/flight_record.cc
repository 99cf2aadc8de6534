#include "observe/flight_record.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

#include "base/fail.h"
#include "observe/recorder.h"
#include "text/json_fields.h"

namespace talweg::observe {

namespace {

using Json = nlohmann::json;

// Bytes by whose or of what they are.
std::vector<std::pair<int, std::int64_t>> read_bytes_by(const Json& json, const char* list, const char* key) {
  const Json& items = text::field(json, list);
  if (!items.is_array()) throw_error(ErrorCode::bad_file, "{}: expected a list", list);
  std::vector<std::pair<int, std::int64_t>> all;
  for (const Json& item : items) {
    auto& [number, bytes] = all.emplace_back();
    text::read_field(item, key, number);
    text::read_field(item, "bytes", bytes);
    if (bytes < 0) throw_error(ErrorCode::bad_file, "{}: expected bytes of at least 0", list);
    if (number < 0) throw_error(ErrorCode::bad_file, "{}: there is no {} {}", list, key, number);
  }
  return all;
}

void read_losses(const Json& json, RecordedCall& call) {
  text::read_field(json, "sent_bytes", call.sent_bytes);
  if (json.contains("lost_bytes")) text::read_field(json, "lost_bytes", call.lost_bytes);
  if (json.contains("by_switch")) {
    const Json& by_switch = text::field(json, "by_switch");
    if (!by_switch.is_boolean()) throw_error(ErrorCode::bad_file, "by_switch: expected true or false");
    call.by_switch = by_switch.get<bool>();
  }
  call.lost_of_sender = read_bytes_by(json, "lost_of_sender", "rank");
  if (json.contains("lost_of_layer")) call.lost_of_layer = read_bytes_by(json, "lost_of_layer", "layer");
}

RecordedCall read_call(const Json& json) {
  RecordedCall call;
  call.operation = text::text_field(json, "operation");
  if (json.contains("sequence")) {
    text::read_field(json, "sequence", call.sequence.emplace());
    call.reduction = text::text_field(json, "reduction");
    text::read_field(json, "root", call.root);
    call.layout = text::text_field(json, "layout");
  } else {
    text::read_field(json, "peer", call.peer);
    text::read_field(json, "tag", call.tag);
  }
  call.type = text::text_field(json, "type");
  text::read_field(json, "count", call.count);
  call.algorithm = text::text_field(json, "algorithm");
  call.state = text::text_field(json, "state");
  if (call.state != "started" && call.state != "moving" && call.state != "completed" &&
      call.state != "failed")
    throw_error(ErrorCode::bad_file, "state: expected started, moving, completed or failed, got {}",
                call.state);
  text::read_field(json, "started_ns", call.started_ns);
  if (json.contains("ended_ns")) text::read_field(json, "ended_ns", call.ended_ns);
  call.not_started = text::numbers_field(json, "not_started");
  call.data_missing_from = text::numbers_field(json, "data_missing_from");
  call.error = text::text_field(json, "error", "");
  call.text = text::text_field(json, "text", "");
  if (json.contains("lost_of_sender")) read_losses(json, call);
  return call;
}

void check_ranks(const std::vector<int>& ranks, int size, const char* what) {
  for (const int rank : ranks)
    if (rank < 0 || rank >= size)
      throw_error(ErrorCode::bad_file, "{}: there is no rank {} of {}", what, rank, size);
}

Record read_json(const Json& json) {
  int version = 0;
  text::read_field(json, "talweg_flight_record", version);
  if (version < 1 || version > kRecordVersion)
    throw_error(ErrorCode::bad_file, "it has version {}: expected 1 to {}", version, kRecordVersion);
  Record record;
  record.reason = text::text_field(json, "reason");
  record.job = text::text_field(json, "job");
  record.group = text::text_field(json, "group");
  text::read_field(json, "rank", record.rank);
  text::read_field(json, "size", record.size);
  record.hosts = text::texts_field(json, "hosts");
  text::read_field(json, "monotonic_ns", record.monotonic_ns);
  text::read_field(json, "wall_ns", record.wall_ns);
  if (json.contains("offset_to_rank0_ns")) {
    text::read_field(json, "offset_to_rank0_ns", record.offset_ns.emplace());
    text::read_field(json, "offset_error_ns", record.offset_error_ns);
  }
  const Json& calls = text::field(json, "operations");
  if (!calls.is_array()) throw Error(ErrorCode::bad_file, "operations: expected a list");
  for (const Json& call : calls) {
    record.calls.push_back(read_call(call));
    check_ranks(record.calls.back().not_started, record.size, "not_started");
    check_ranks(record.calls.back().data_missing_from, record.size, "data_missing_from");
    for (const auto& [sender, bytes] : record.calls.back().lost_of_sender)
      if (check_ranks({sender}, record.size, "lost_of_sender"); sender == record.rank)
        throw Error(ErrorCode::bad_file, "lost_of_sender: a rank loses nothing of its own");
  }
  if (record.rank < 0 || record.rank >= record.size ||
      record.hosts.size() != static_cast<std::size_t>(record.size))
    throw_error(ErrorCode::bad_file, "rank {} of {} cannot be, or hosts are missing", record.rank,
                record.size);
  return record;
}

std::string content_of(const std::string& path) {
  std::ostringstream text;
  std::error_code problem;
  // A pipe would be waited for.
  if (std::filesystem::is_other(std::filesystem::status(path, problem)))
    throw_error(ErrorCode::bad_file, "{}: cannot be read: it is no regular file", path);
  const std::ifstream file(path);
  if (!file || std::filesystem::is_directory(path, problem))
    throw_error(ErrorCode::bad_file, "{}: cannot be read", path);
  text << file.rdbuf();
  return text.str();
}

}  // namespace

bool RecordedCall::bounded() const {
  using enum CallNote::Kind;
  return std::ranges::any_of(std::array{bounded, bounded_push, bounded_pull}, [this](CallNote::Kind kind) {
    return operation == call_name(kind, Collective::all_reduce);
  });
}

Record read_record(const std::string& path) {
  const std::string text = content_of(path);
  try {
    Record record = read_json(text::parse_json(text));
    record.file = path;
    return record;
  } catch (const Error& e) {
    throw_error(ErrorCode::bad_file, "{}: expected a flight record: {}", path, e.what());
  }
}

std::vector<std::string> find_files(const std::vector<std::string>& arguments, const std::string& prefix) {
  namespace fs = std::filesystem;
  std::vector<std::string> files;
  for (const std::string& argument : arguments) {
    std::error_code problem;
    if (!fs::exists(argument, problem)) refuse("{}: no such file or directory", argument);
    if (!fs::is_directory(argument)) {
      files.push_back(argument);
      continue;
    }
    const fs::directory_iterator entries(argument, problem);
    if (problem) refuse("{}: {}", argument, problem.message());
    for (const auto& entry : entries) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with(prefix) && name.ends_with(".json")) files.push_back(entry.path().string());
    }
  }
  std::ranges::sort(files);
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

}  // namespace talweg::observe
