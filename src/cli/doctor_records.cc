#include "cli/doctor_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "talweg/error.h"

namespace talweg::cli {

namespace {

using Json = nlohmann::json;

// nlohmann's own conversion takes 1e300 for an int, and 2^40 too.
template <class Integer>
Integer whole(const Json& value, const char* what) {
  const auto fits = [&] {
    return value.is_number_unsigned() ? std::in_range<Integer>(value.get<std::uint64_t>())
                                      : std::in_range<Integer>(value.get<std::int64_t>());
  };
  if (!value.is_number_integer() || !fits())
    throw Error(ErrorCode::bad_file,
                fmt::format("{}: expected a whole number of {} bits, got {}", what, 8 * sizeof(Integer),
                            value.dump(-1, ' ', false, Json::error_handler_t::replace)));
  return value.get<Integer>();
}

template <class Integer>
void read(const Json& json, const char* key, Integer& into) {
  into = whole<Integer>(json.at(key), key);
}

std::vector<int> ranks(const Json& json, const char* key) {
  std::vector<int> result;
  if (!json.contains(key)) return result;
  for (const Json& rank : json.at(key)) result.push_back(whole<int>(rank, key));
  return result;
}

RecordedCall read_call(const Json& json) {
  RecordedCall call;
  call.operation = json.at("operation");
  if (json.contains("sequence")) {
    read(json, "sequence", call.sequence.emplace());
    call.reduction = json.at("reduction");
    read(json, "root", call.root);
    call.layout = json.at("layout");
  } else {
    read(json, "peer", call.peer);
    read(json, "tag", call.tag);
  }
  call.type = json.at("type");
  read(json, "count", call.count);
  call.algorithm = json.at("algorithm");
  call.state = json.at("state");
  read(json, "started_ns", call.started_ns);
  if (json.contains("ended_ns")) read(json, "ended_ns", call.ended_ns);
  call.not_started = ranks(json, "not_started");
  call.data_missing_from = ranks(json, "data_missing_from");
  call.error = json.value("error", "");
  call.text = json.value("text", "");
  return call;
}

Record read_json(const Json& json) {
  if (whole<int>(json.at("talweg_flight_record"), "talweg_flight_record") != 1)
    throw Error(ErrorCode::bad_file, "it has another version: expected 1");
  Record record;
  record.reason = json.at("reason");
  record.job = json.at("job");
  record.group = json.at("group");
  read(json, "rank", record.rank);
  read(json, "size", record.size);
  record.hosts = json.at("hosts").get<std::vector<std::string>>();
  read(json, "monotonic_ns", record.monotonic_ns);
  read(json, "wall_ns", record.wall_ns);
  if (json.contains("offset_to_rank0_ns")) {
    read(json, "offset_to_rank0_ns", record.offset_ns.emplace());
    read(json, "offset_error_ns", record.offset_error_ns);
  }
  for (const Json& call : json.at("operations")) record.calls.push_back(read_call(call));
  if (record.rank < 0 || record.rank >= record.size ||
      record.hosts.size() != static_cast<std::size_t>(record.size))
    throw Error(ErrorCode::bad_file,
                fmt::format("rank {} of {} cannot be, or hosts are missing", record.rank, record.size));
  return record;
}

}  // namespace

Record read_record(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw Error(ErrorCode::bad_file, fmt::format("{}: cannot be read", path));
  try {
    Record record = read_json(Json::parse(file));
    record.file = path;
    return record;
  } catch (const std::exception& e) {
    throw Error(ErrorCode::bad_file, fmt::format("{}: expected a flight record: {}", path, e.what()));
  }
}

std::vector<std::string> find_files(const std::vector<std::string>& arguments, const std::string& prefix) {
  namespace fs = std::filesystem;
  std::vector<std::string> files;
  for (const std::string& argument : arguments) {
    if (!fs::exists(argument))
      throw Error(ErrorCode::invalid_argument, fmt::format("{}: no such file or directory", argument));
    if (!fs::is_directory(argument)) {
      files.push_back(argument);
      continue;
    }
    for (const auto& entry : fs::directory_iterator(argument)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with(prefix) && name.ends_with(".json")) files.push_back(entry.path().string());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace talweg::cli
