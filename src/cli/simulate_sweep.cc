#include "cli/simulate_sweep.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

#include "cli/perf_case.h"
#include "cli/simulate_options.h"
#include "cli/simulate_run.h"
#include "cli/simulate_text.h"
#include "forest/planner.h"
#include "group/environment.h"
#include "talweg/error.h"

namespace talweg::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

[[noreturn]] void refuse_sweep(const std::string& text) {
  throw Error(ErrorCode::invalid_argument, text);
}

std::optional<int> number_of(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  int value = 0;
  const char* const end = text + std::strlen(text);
  if (const auto [stop, error] = std::from_chars(text, end, value); error != std::errc{} || stop != end)
    refuse_sweep(fmt::format("{}: expected a whole number, got \"{}\"", variable, text));
  return value;
}

// The command line of one point: what was given but for the sweep itself, and the point's own values.
std::vector<std::string> arguments_of(const CLI::App& sub, const SweepPoint& point) {
  static const std::set<std::string> kOfSweep{"sweep", "sweep-folder", "jobs", "json", "csv"};
  std::set<std::string> swept;
  std::vector<std::string> arguments;
  for (const auto& [key, value] : point) {
    swept.insert(key);
    arguments.push_back(fmt::format("--{}={}", key, value));
  }
  for (const CLI::Option* option : sub.get_options()) {
    if (option->count() == 0) continue;
    const std::string name = option->get_lnames().empty() ? "" : option->get_lnames()[0];
    if (kOfSweep.contains(name) || swept.contains(name)) continue;
    if (name == "trace" || name == "html") refuse_sweep(fmt::format("--{}: not with --sweep", name));
    for (const std::string& result : option->results())
      arguments.push_back(name.empty() ? result : fmt::format("--{}={}", name, result));
  }
  return arguments;
}

std::string given(const CLI::App& sub, const std::string& key) {
  const CLI::Option* option = sub.get_option("--" + key);
  return option->empty() ? "" : option->as<std::string>();
}

bool sweeps_over(const std::vector<std::string>& sweeps, const std::string& key,
                 const std::string& value = "") {
  return std::any_of(sweeps.begin(), sweeps.end(), [&](const std::string& s) {
    return s.starts_with(key + "=") && s.find(value) != std::string::npos;
  });
}

// One point is one line: several sizes or algorithms that were given without --sweep are swept, too.
std::vector<std::string> with_lists(const CLI::App& sub, std::vector<std::string> sweeps) {
  for (const std::string key : {"algo", "bytes"}) {
    const std::string text = given(sub, key);
    const bool several =
        text == "all" || text.find(',') != std::string::npos || text.find("..") != std::string::npos;
    if (several && !sweeps_over(sweeps, key)) sweeps.push_back(fmt::format("{}={}", key, text));
  }
  return sweeps;
}

// Of all planners only those serve a point that serve its collective.
void leave_out_what_does_not_serve(const CLI::App& sub, std::vector<SweepPoint>& points) {
  const std::string same = given(sub, "op").empty() ? "all_reduce" : given(sub, "op");
  std::erase_if(points, [&](const SweepPoint& point) {
    std::string op = same, algorithm;
    for (const auto& [key, value] : point) {
      if (key == "op") op = value;
      if (key == "algo") algorithm = value;
    }
    const auto parsed = parse_collective(op);
    if (!parsed) refuse_sweep(fmt::format("--op: no collective is called \"{}\"", op));
    return !forest::find_planner(algorithm).serves(forest::even_request(*parsed, 2, 0, 0, 1));
  });
}

std::vector<SweepPoint> points_of(const CLI::App& sub, const std::vector<std::string>& given_sweeps) {
  if (sweeps_over(given_sweeps, "factor"))
    refuse_sweep(
        "--sweep factor: it leads from size to size, and a point has one: expected --sweep bytes=1M..64M");
  const bool calls = given(sub, "cm").empty() && given(sub, "workload").empty();
  const std::vector<std::string> sweeps = calls ? with_lists(sub, given_sweeps) : given_sweeps;
  std::vector<SweepPoint> points = sweep_points(sweeps, sub.get_option("--factor")->as<int>());
  if (sweeps_over(sweeps, "algo", "all")) leave_out_what_does_not_serve(sub, points);
  return points;
}

json simulate_point(std::vector<std::string> arguments) {
  json record;
  try {
    CLI::App app;
    SimulateFlags flags;
    flags.add_to(app);
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes a vector back to front
    app.parse(arguments);
    Watchers nobody;
    const SimulateResult result = simulate_all(flags.checked(), nobody, [](const PerfRow&) {});
    for (const auto& [name, value] : simulate_key_numbers(result)) record["numbers"][name] = value;
  } catch (const std::exception& error) {
    record["error"] = error.what();
  }
  return record;
}

class Sweep {
 public:
  Sweep(const CLI::App& sub, const SweepOptions& options, SweepShare share)
      : options_(options), share_(share), points_(points_of(sub, options.sweeps)), folder_(options.folder) {
    for (const SweepPoint& point : points_) {
      for (const auto& [key, value] : point)
        if (sub.get_option_no_throw("--" + key) == nullptr || key == "sweep")
          refuse_sweep(fmt::format("--sweep {}={}: there is no option --{}", key, value, key));
      arguments_.push_back(arguments_of(sub, point));
    }
    if (folder_.empty()) {
      if (share.count > 1)
        refuse_sweep("--sweep in several processes: give a --sweep-folder that all of them see");
      std::string name = (fs::temp_directory_path() / "talweg-sweep-XXXXXX").string();
      if (::mkdtemp(name.data()) == nullptr) throw Error(ErrorCode::system, "cannot make a temporary folder");
      folder_ = name;
    }
    fs::create_directories(folder_);
  }
  ~Sweep() {
    if (!options_.folder.empty()) return;
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  Sweep(const Sweep&) = delete;
  Sweep& operator=(const Sweep&) = delete;

  // Our share, so many at once, each in a process of its own.
  void run() {
    std::size_t running = 0;
    const auto reap = [&] {
      int status = 0;
      if (::wait(&status) > 0) --running;
    };
    for (std::size_t p = static_cast<std::size_t>(share_.index); p < points_.size();
         p += static_cast<std::size_t>(share_.count)) {
      if (record(p)) continue;
      while (running >= jobs()) reap();
      const pid_t child = ::fork();
      if (child < 0) throw Error(ErrorCode::system, "cannot start a process for a point of the sweep");
      if (child == 0) {
        write(p, simulate_point(arguments_[p]));
        ::_exit(0);
      }
      ++running;
    }
    while (running > 0) reap();
  }

  // -1: others are not done; else the exit code.
  int merge() const {
    std::vector<json> records;
    for (std::size_t p = 0; p < points_.size(); ++p) {
      const auto found = record(p);
      if (!found) {
        if (share_.count > 1) return -1;
        records.push_back({{"error", "the simulation died"}});
      } else {
        records.push_back(*found);
      }
    }
    // The last two may see at once that all is there: the one that makes this file speaks.
    if (share_.count > 1) {
      const int fd = ::open((folder_ / "merged").c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
      if (fd < 0) return -1;
      ::close(fd);
    }
    output(records);
    return std::any_of(records.begin(), records.end(), [](const json& r) { return r.contains("error"); }) ? 1
                                                                                                          : 0;
  }

 private:
  std::size_t jobs() const {
    if (options_.jobs > 0) return static_cast<std::size_t>(options_.jobs);
    if (share_.count > 1)
      return static_cast<std::size_t>(std::max(1, number_of("SLURM_CPUS_PER_TASK").value_or(1)));
    return std::max(1U, std::thread::hardware_concurrency());
  }
  fs::path file(std::size_t point) const { return folder_ / fmt::format("point-{:05}.json", point); }
  // What a point gave, if it has been run, with just these arguments.
  std::optional<json> record(std::size_t point) const {
    std::ifstream in(file(point));
    if (!in) return std::nullopt;
    json found = json::parse(in, nullptr, false);
    if (found.is_discarded() || found.value("arguments", json()) != json(arguments_[point]))
      return std::nullopt;
    return found;
  }
  void write(std::size_t point, json record) const {
    record["arguments"] = arguments_[point];
    const fs::path half = file(point).string() + fmt::format(".{}", ::getpid());
    std::ofstream(half) << record.dump(1) << "\n";
    fs::rename(half, file(point));
  }

  void output(const std::vector<json>& records) const {
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
    std::vector<std::vector<std::string>> rows{columns};
    json all = json::array();
    for (std::size_t p = 0; p < records.size(); ++p) {
      auto& row = rows.emplace_back();
      json line = records[p];
      line.erase("arguments");
      for (const auto& [key, value] : points_[p]) {
        row.push_back(value);
        line["point"][key] = value;
      }
      const json numbers = records[p].value("numbers", json::object());
      for (std::size_t c = keys; c + 1 < columns.size(); ++c) row.push_back(numbers.value(columns[c], "-"));
      row.push_back(records[p].value("error", "-"));
      all.push_back(line);
    }
    if (options_.csv != "-" && options_.json != "-") fmt::print("{}", table_text(rows));
    save(options_.csv, "--csv", csv_text(rows));
    if (!options_.json.empty())
      save(options_.json, "--json",
           json{{"format", "talweg simulate sweep"}, {"format_version", 1}, {"points", all}}.dump(2) + "\n");
  }
  static void save(const std::string& path, const char* flag, const std::string& text) {
    if (path.empty()) return;
    if (path == "-") {
      fmt::print("{}", text);
      return;
    }
    std::ofstream out(path);
    out << text;
    out.close();
    if (!out) throw Error(ErrorCode::system, fmt::format("{}: cannot write {}", flag, path));
  }
  static std::string csv_text(const std::vector<std::vector<std::string>>& rows) {
    std::string text;
    for (const auto& row : rows) {
      for (std::size_t c = 0; c < row.size(); ++c) {
        const bool quoted = row[c].find_first_of(",\"") != std::string::npos;
        std::string cell = row[c];
        for (std::size_t q = 0; quoted && (q = cell.find('"', q)) != std::string::npos; q += 2)
          cell.insert(q, 1, '"');
        text += (c == 0 ? "" : ",") + (quoted ? "\"" + cell + "\"" : cell);
      }
      text += "\n";
    }
    return text;
  }
  static std::string table_text(const std::vector<std::vector<std::string>>& rows) {
    std::vector<std::size_t> widths(rows[0].size());
    for (const auto& row : rows)
      for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
    std::string text;
    for (const auto& row : rows) {
      for (std::size_t c = 0; c + 1 < row.size(); ++c) text += fmt::format("{:>{}}  ", row[c], widths[c]);
      text += row.back() + "\n";
    }
    return text;
  }

  const SweepOptions options_;
  const SweepShare share_;
  const std::vector<SweepPoint> points_;
  std::vector<std::vector<std::string>> arguments_;
  fs::path folder_;
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
    } else if (key == "bytes" && part.find("..") != std::string::npos) {
      for (const std::size_t size : scanned_sizes(part, factor, 1)) values.push_back(std::to_string(size));
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
      refuse_sweep(fmt::format("--sweep: expected option=value,value, got \"{}\"", sweep));
    const std::string key = sweep.substr(0, equals);
    const char at = sweep.find(';') != std::string::npos ? ';' : ',';
    std::istringstream list(sweep.substr(equals + 1));
    std::vector<SweepPoint> longer;
    std::vector<std::string> values;
    for (std::string value; std::getline(list, value, at);) {
      for (const std::string& meant : values_of(key, value, factor))
        if (std::find(values.begin(), values.end(), meant) == values.end()) values.push_back(meant);
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
      refuse_sweep(
          fmt::format("SLURM_ARRAY_TASK_ID {}: expected one of {} tasks from {} on", *task, count, first));
    return {(*task - first) / step, count};
  }
  const group::Place place = group::find_place({});
  return {place.rank, place.size};
}

int run_sweep(const CLI::App& sub, const SweepOptions& options) {
  Sweep sweep(sub, options, find_share());
  sweep.run();
  return std::max(0, sweep.merge());
}

}  // namespace talweg::cli
