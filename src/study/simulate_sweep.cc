#include "study/simulate_sweep.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <sstream>
#include <string_view>
#include <thread>

#include "base/fail.h"
#include "base/temporary_folder.h"
#include "forest/planner.h"
#include "group/environment.h"
#include "study/by_switch.h"
#include "study/perf_case.h"
#include "study/side_by_side.h"
#include "study/simulate_run.h"
#include "study/simulate_text.h"
#include "study/sizes.h"
#include "text/escape.h"
#include "text/output_file.h"
#include "text/table.h"

namespace talweg::study {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::optional<int> number_of(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  int value = 0;
  const char* const end = text + std::strlen(text);
  if (const auto [stop, error] = std::from_chars(text, end, value); error != std::errc{} || stop != end)
    refuse("{}: expected a whole number, got \"{}\"", variable, text);
  return value;
}

bool sweeps_over(const std::vector<std::string>& sweeps, const std::string& key,
                 const std::string& value = "") {
  return std::ranges::any_of(sweeps, [&](const std::string& s) {
    return s.starts_with(key + "=") && s.find(value) != std::string::npos;
  });
}

// One point is one line: several sizes or algorithms that were given without being swept are swept, too.
std::vector<std::string> with_lists(const SimulateRequest& base, std::vector<std::string> sweeps) {
  for (const auto& [key, text] :
       {std::pair<std::string, std::string>{"algo", base.algo}, {"bytes", base.bytes}}) {
    const bool several =
        text == "all" || text.find(',') != std::string::npos || text.find("..") != std::string::npos;
    if (several && !sweeps_over(sweeps, key)) sweeps.push_back(fmt::format("{}={}", key, text));
  }
  return sweeps;
}

std::string number_text(const json& value) {
  return value.is_number() ? fmt::format("{:.6g}", value.get<double>()) : value.get<std::string>();
}

SimulateRequest request_at(SimulateRequest request, const SweepPoint& point) {
  for (const auto& [key, value] : point) {
    const auto* field = field_called(simulate_fields(), key);
    if (field == nullptr || key == "network")
      refuse("--sweep {}={}: there is no option --{}", key, value, key);
    if (field->is<std::vector<std::string>>()) request.fail.clear();
    set(request, *field, value);
  }
  return request;
}

// Of all planners only those serve a point that serve its collective; and the switch, where there is one that
// sums what is asked for. What is wrong with a point whatever the algorithm the planners' points say.
void leave_out_what_does_not_serve(const SimulateRequest& base, std::vector<SweepPoint>& points) {
  std::erase_if(points, [&](const SweepPoint& point) {
    const SimulateRequest request = request_at(base, point);
    if (request.algo == kBySwitch) try {
        return !why_no_switch(checked(request)).empty();
      } catch (const std::exception&) {
        return true;
      }
    const Collective op = collective_called(request.op, "--op: ");
    return !serves(request.algo, forest::even_request(op, 2, 0, 0, 1));
  });
}

std::vector<SweepPoint> points_of(const SweepRequest& request) {
  if (sweeps_over(request.sweeps, "factor"))
    refuse("--sweep factor: it leads from size to size, and a point has one: expected --sweep bytes=1M..64M");
  const bool calls =
      request.base.matrix.empty() && request.base.flows.empty() && request.base.workload.empty();
  const std::vector<std::string> sweeps = calls ? with_lists(request.base, request.sweeps) : request.sweeps;
  std::vector<SweepPoint> points = sweep_points(sweeps, request.base.factor);
  for (const SweepPoint& point : points)
    if (const std::string algo = request_at(request.base, point).algo; !algo.empty()) check_algorithm(algo);
  if (sweeps_over(sweeps, "algo", "all")) leave_out_what_does_not_serve(request.base, points);
  return points;
}

json simulate_point(const SimulateRequest& request) {
  json record;
  try {
    Watchers nobody;
    SimulateOptions options = checked(request);
    options.bound = false;  // none of the numbers is of it
    const SimulateResult result = simulate_all(options, nobody, [](const PerfRow&) {});
    for (const auto& [name, value] : simulate_key_numbers(result)) {
      const json number = json::parse(value, nullptr, false);
      record["numbers"][name] = number.is_number() ? number : json(value);  // the algorithm is a word
    }
  } catch (const std::exception& error) {
    record["error"] = error.what();
  }
  return record;
}

// What tells one point from another: the fields that are not as they are by default.
json identity(const SimulateRequest& request) {
  json given = json::object();
  for (const auto& field : simulate_fields())
    if (const std::string value = value_of(request, field); value != value_of(SimulateRequest{}, field))
      given[field.name] = value;
  return given;
}

class Sweep {
 public:
  Sweep(const SweepRequest& request, SweepShare share)
      : request_(request), share_(share), points_(points_of(request)), folder_(request.folder) {
    if (folder_.empty()) {
      if (share.count > 1) refuse("--sweep in several processes: give a --sweep-folder that all of them see");
      std::string name = temporary_folder() + "/talweg-sweep-XXXXXX";
      if (::mkdtemp(name.data()) == nullptr) throw Error(ErrorCode::system, "cannot make a temporary folder");
      folder_ = name;
    }
    fs::create_directories(folder_);
  }
  ~Sweep() {
    if (!request_.folder.empty()) return;
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  Sweep(const Sweep&) = delete;
  Sweep& operator=(const Sweep&) = delete;

  // Our share, so many at once, each in a process of its own.
  void run() {
    std::vector<Work> pieces;
    std::vector<std::size_t> run_now;
    for (std::size_t p = static_cast<std::size_t>(share_.index); p < points_.size();
         p += static_cast<std::size_t>(share_.count))
      if (!record(p)) {
        run_now.push_back(p);
        pieces.emplace_back(
            [this, p](const HandOver&) { write(p, simulate_point(request_at(request_.base, points_[p]))); });
      }
    const auto results = side_by_side(pieces, std::numeric_limits<double>::infinity(), {}, jobs());
    for (std::size_t i = 0; i < results.size(); ++i)
      if (!results[i].failure.empty()) failures_[run_now[i]] = results[i].failure;
  }

  std::optional<SweepResult> merge() const {
    std::vector<json> records;
    for (std::size_t p = 0; p < points_.size(); ++p) {
      auto found = record(p);
      const auto failure = failures_.find(p);
      if (!found && share_.count > 1) {
        if (failure == failures_.end()) return std::nullopt;  // others are not done
        throw Error(ErrorCode::system, failure->second);      // they wait for what only this one has run
      }
      if (!found)
        found = json{{"error", failure == failures_.end() ? "its record is gone" : failure->second}};
      records.push_back(std::move(*found));
    }
    // The last two may see at once that all is there: the one that makes this file speaks.
    if (share_.count > 1) {
      const int fd = ::open((folder_ / "merged").c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
      if (fd < 0) return std::nullopt;
      ::close(fd);
    }
    return merged(records);
  }

 private:
  std::size_t jobs() const {
    if (request_.jobs > 0) return static_cast<std::size_t>(request_.jobs);
    if (share_.count > 1)
      return static_cast<std::size_t>(std::max(1, number_of("SLURM_CPUS_PER_TASK").value_or(1)));
    return std::max(1U, std::thread::hardware_concurrency());
  }
  fs::path file(std::size_t point) const { return folder_ / fmt::format("point-{:05}.json", point); }
  // What a point gave, if it has been run, as just this simulation.
  std::optional<json> record(std::size_t point) const {
    std::ifstream in(file(point));
    if (!in) return std::nullopt;
    json found = json::parse(in, nullptr, false);
    if (found.is_discarded() ||
        found.value("simulation", json()) != identity(request_at(request_.base, points_[point])))
      return std::nullopt;
    return found;
  }
  void write(std::size_t point, json record) const {
    record["simulation"] = identity(request_at(request_.base, points_[point]));
    text::OutputFile("--sweep-folder", file(point)).write(text::json_document(record));
  }

  SweepResult merged(const std::vector<json>& records) const {
    std::vector<std::string> columns;
    for (const auto& [key, value] : points_[0]) columns.push_back(key);
    const std::size_t keys = columns.size();
    for (const json& r : records) {
      const json numbers = r.value("numbers", json::object());
      for (const auto& [name, value] : numbers.items())
        if (std::find(columns.begin() + static_cast<std::ptrdiff_t>(keys), columns.end(), name) ==
            columns.end())
          columns.push_back(name);
    }
    columns.emplace_back("error");
    SweepResult result{{columns}, json::array(), false, keys};
    for (std::size_t p = 0; p < records.size(); ++p) {
      auto& row = result.rows.emplace_back();
      json line = records[p];
      line.erase("simulation");
      for (const auto& [key, value] : points_[p]) {
        row.push_back(value);
        line["point"][key] = value;
      }
      const json numbers = records[p].value("numbers", json::object());
      for (std::size_t c = keys; c + 1 < columns.size(); ++c)
        row.push_back(number_text(numbers.value(columns[c], json("-"))));
      row.push_back(records[p].value("error", "-"));
      result.failed = result.failed || records[p].contains("error");
      result.points.push_back(line);
    }
    return result;
  }

  const SweepRequest request_;
  const SweepShare share_;
  const std::vector<SweepPoint> points_;
  fs::path folder_;
  std::map<std::size_t, std::string> failures_;  // of our share: why a point has no record
};

// What a value stands for: "all" for the planners, 4K..16K for the sizes of that range. Where ";" parts the
// values, one may be a list.
std::vector<std::string> values_of(const std::string& key, const std::string& value, int factor) {
  if (key != "algo" && key != "bytes") return {value};
  std::vector<std::string> values;
  std::istringstream list(value);
  for (std::string part; std::getline(list, part, ',');) {
    if (key == "algo" && part == "all") {
      for (const forest::Planner& planner : forest::planners()) values.push_back(planner.name);
      values.emplace_back(kBySwitch);
    } else if (key == "bytes" && part.find("..") != std::string::npos) {
      for (const std::int64_t size : parse_sizes(part, factor)) values.push_back(std::to_string(size));
    } else {
      values.push_back(part);
    }
  }
  return values;
}

}  // namespace

std::vector<SweepPoint> sweep_points(const std::vector<std::string>& sweeps, int factor) {
  std::vector<SweepPoint> points{{}};
  for (const std::string& sweep : sweeps) {
    const std::size_t equals = sweep.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == sweep.size())
      refuse("--sweep: expected option=value,value, got \"{}\"", sweep);
    const std::string key = sweep.substr(0, equals);
    if (std::ranges::any_of(points[0], [&](const auto& known) { return known.first == key; }))
      refuse("--sweep {}: it is swept twice; give all of its values at once", key);
    const char at = sweep.find(';') != std::string::npos ? ';' : ',';
    std::istringstream list(sweep.substr(equals + 1));
    std::vector<SweepPoint> longer;
    std::vector<std::string> values;
    for (std::string value; std::getline(list, value, at);) {
      for (const std::string& meant : values_of(key, value, factor))
        if (std::ranges::find(values, meant) == values.end()) values.push_back(meant);
    }
    for (const SweepPoint& point : points)
      for (const std::string& value : values) {
        longer.push_back(point);
        longer.back().emplace_back(key, value);
      }
    points = std::move(longer);
  }
  return points;
}

SweepShare find_share() {
  if (const auto task = number_of("SLURM_ARRAY_TASK_ID")) {
    const int first = number_of("SLURM_ARRAY_TASK_MIN").value_or(0);
    const int step = std::max(1, number_of("SLURM_ARRAY_TASK_STEP").value_or(1));
    const int count = number_of("SLURM_ARRAY_TASK_COUNT").value_or(1);
    if (*task < first || (*task - first) / step >= count)
      refuse("SLURM_ARRAY_TASK_ID {}: expected one of {} tasks from {} on", *task, count, first);
    return {(*task - first) / step, count};
  }
  const group::Place place = group::find_place({});
  return {place.rank, place.size};
}

std::string to_text(const SweepResult& result, bool wide) {
  constexpr std::string_view kGoFirst[] = {"busiest_utilisation", "retransmissions", "dropped",
                                           "longest_queue_bytes"};
  std::vector<text::TableColumn> columns;
  for (const std::string& title : result.rows[0]) {
    const std::size_t index = columns.size();
    const bool words = index < result.options || title == "algorithm" || index + 1 == result.rows[0].size();
    const auto behind = std::end(kGoFirst) - std::ranges::find(kGoFirst, title);
    columns.push_back({.title = title,
                       .of = words ? text::Quantity::text : text::Quantity::number,
                       .drop = words ? 0 : static_cast<int>(behind)});
  }
  text::Table table(std::move(columns));
  for (auto row = result.rows.begin() + 1; row != result.rows.end(); ++row)
    table.add(std::vector<text::Cell>(row->begin(), row->end()));
  return table.text(wide);
}

std::optional<SweepResult> run_sweep(const SweepRequest& request) {
  Sweep sweep(request, find_share());
  sweep.run();
  return sweep.merge();
}

}  // namespace talweg::study
