#include "observe/merge_traces.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>

#include "base/fail.h"
#include "text/escape.h"
#include "text/json_fields.h"

namespace talweg::observe {

namespace {

using Json = nlohmann::json;

// Ranks of a second job in the same picture are numbered from here.
constexpr int kNextJob = 100'000;

struct ClockReading {
  double offset_us = 0;
  double error_us = 0;
};

struct RankTrace {
  std::string file;
  std::string job;
  int rank = 0;
  double wall_offset_us = 0;             // own clock to 1970
  std::map<double, ClockReading> clock;  // by own time: what was learned then
  double first_us = std::numeric_limits<double>::max();
  std::uint64_t left_out = 0;

  // What was learned last before `us`, or first after it.
  std::optional<ClockReading> at(double us) const {
    if (clock.empty()) return std::nullopt;
    const auto after = clock.upper_bound(us);
    return after == clock.begin() ? after->second : std::prev(after)->second;
  }
};

// Calls `use(event)` for each event: the writer puts each on a line of its own.
template <class Function>
void each_event(const std::string& path, Function&& use) {
  std::error_code problem;
  if (std::filesystem::is_other(std::filesystem::status(path, problem)))
    throw Error(ErrorCode::bad_file, "it is no regular file");
  std::ifstream file(path);
  if (!file) throw Error(ErrorCode::bad_file, "it cannot be read");
  std::string line;
  std::string before;
  for (int number = 1; std::getline(file, line); ++number) {
    while (!line.empty() && (line.back() == ',' || line.back() == '\r')) line.pop_back();
    if (line.empty() || line == "[" || line == "]") continue;
    Json event = Json::parse(line, nullptr, false);
    if (event.is_discarded() || !event.is_object()) {
      if (number > 1 && file.peek() == std::ifstream::traits_type::eof()) return;  // its process died
      throw_error(ErrorCode::bad_file, "line {} is not an event", number);
    }
    use(event);
  }
}

RankTrace survey(const std::string& path) {
  RankTrace trace;
  trace.file = path;
  bool known = false;
  try {
    each_event(path, [&](const Json& event) {
      const std::string name = text::text_field(event, "name");
      text::text_field(event, "id", "");  // refuses what is no text
      if (name == "talweg_trace") {
        const Json& args = text::field(event, "args");
        trace.job = text::text_field(args, "job");
        text::read_field(args, "rank", trace.rank);
        trace.wall_offset_us =
            (text::number_field(args, "wall_ns") - text::number_field(args, "monotonic_ns")) / 1e3;
        known = true;
      } else if (name == "talweg_clock") {
        const Json& args = text::field(event, "args");
        trace.clock[text::number_field(args, "at_us")] = {text::number_field(args, "offset_to_rank0_us"),
                                                          text::number_field(args, "round_trip_us") / 2};
      } else if (name == "talweg_events_left_out") {
        text::read_field(text::field(event, "args"), "count", trace.left_out);
      } else if (event.contains("ts")) {
        trace.first_us = std::min(trace.first_us, text::number_field(event, "ts"));
      }
    });
  } catch (const Error& e) {
    throw_error(ErrorCode::bad_file, "{}: expected a trace of talweg: {}", path, e.what());
  }
  if (!known) throw_error(ErrorCode::bad_file, "{}: expected a trace of talweg", path);
  return trace;
}

}  // namespace

MergedTrace merge_traces(const std::vector<std::string>& files, std::ostream& out) {
  std::vector<RankTrace> traces;
  MergedTrace merged;
  for (const std::string& file : files) {
    try {
      traces.push_back(survey(file));
    } catch (const Error& e) {
      merged.unreadable.emplace_back(e.what());
    }
  }
  // Without a common clock for all ranks everybody's wall clock has to do.
  const bool common = std::ranges::all_of(traces, [](const RankTrace& t) { return !t.clock.empty(); });
  const auto offset = [&](const RankTrace& t, double us) {
    return common ? t.at(us)->offset_us : t.wall_offset_us;
  };
  double zero = std::numeric_limits<double>::max();
  std::map<std::string, int> jobs;
  for (const RankTrace& t : traces) {
    jobs.try_emplace(t.job, static_cast<int>(jobs.size()));
    if (t.first_us < std::numeric_limits<double>::max())
      zero = std::min(zero, t.first_us + offset(t, t.first_us));
    for (const auto& [when, clock] : t.clock)
      if (&clock == &t.clock.rbegin()->second)
        merged.clock_error_us = std::max(merged.clock_error_us, clock.error_us);
    merged.left_out += t.left_out;
  }
  if (!common) merged.clock_error_us = -1;
  std::map<std::string, int> ends;  // of arrows
  const char* between = "[\n";
  for (const RankTrace& t : traces) {
    ++merged.ranks;
    const int pid = t.rank + kNextJob * jobs[t.job];
    each_event(t.file, [&](Json& event) {
      event["pid"] = pid;
      if (event.contains("ts")) {
        const double own = event["ts"];
        event["ts"] = std::max(0.0, own + offset(t, own) - zero);
        ++merged.events;
      }
      if (event["ph"] == "s" || event["ph"] == "f")
        if (++ends[event.value("id", "")] == 2) ++merged.arrows;
      out << between << text::json_unsteered(event.dump());
      between = ",\n";
    });
  }
  out << (merged.ranks == 0 ? "[\n]\n" : "\n]\n");
  return merged;
}

}  // namespace talweg::observe
