#include "observe/observer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <limits>
#include <utility>

#include "base/fail.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/temporary_folder.h"
#include "live/system.h"
#include "observe/dump_signal.h"
#include "text/draft.h"

namespace talweg::observe {

namespace {

// Rank 0 is asked this often at first, for the fastest answer of several, and now and then later: clocks
// drift.
constexpr int kFirstQuestions = 16;
constexpr std::int64_t kFirstPauseNs = 1'000'000;
constexpr std::int64_t kLaterPauseNs = 10'000'000'000;

std::string directory(const char* setting) {
  std::string path = resolve(setting).value;
  if (path.empty()) return path;
  std::error_code why;
  std::filesystem::create_directories(path, why);
  if (!std::filesystem::is_directory(path))
    throw_error(ErrorCode::system, "{}={}: no such directory, and it cannot be made: {}", setting, path,
                why.message());
  return path;
}

// As the file of that rank and job is called.
std::string metrics_file(const std::string& pattern, int rank, std::uint64_t job) {
  std::string path = expand_file_name(pattern, rank);
  if (const auto at = path.find("%j"); at != std::string::npos)
    path.replace(at, 2, fmt::format("{:016x}", job));
  return path;
}

// What is there and no file, such as a device, is not replaced; a link stays, and leads to the new file.
std::string why_not_replaced(const std::string& path) {
  std::error_code ignored;
  const auto there = std::filesystem::status(path, ignored);
  if (exists(there) && !is_regular_file(there)) return "it is there, and no file";
  if (!exists(there) && is_symlink(std::filesystem::symlink_status(path, ignored)))
    return "it is a link that leads nowhere";
  return {};
}

}  // namespace

void check_metrics_file(const std::string& pattern, int rank) {
  if (pattern.empty()) return;
  const std::string path = metrics_file(pattern, rank, 0);
  std::string why = why_not_replaced(path);
  std::error_code unknown;
  const std::filesystem::path folder = std::filesystem::weakly_canonical(path, unknown).parent_path() / ".";
  if (why.empty() && unknown) why = unknown.message();
  if (why.empty() && ::access(folder.c_str(), W_OK | X_OK) != 0) why = std::strerror(errno);
  if (!why.empty()) throw_error(ErrorCode::system, "TALWEG_METRICS_FILE: cannot write {}: {}", path, why);
}

ObserverOptions find_observer_options(int rank) {
  ObserverOptions o;
  o.recorded = static_cast<std::size_t>(whole_number_of("TALWEG_RECORDER"));
  o.record_dir = directory("TALWEG_RECORDER_DIR");
  o.dump_signal = parse_dump_signal(resolve("TALWEG_DUMP_SIGNAL").value);
  o.stall_ns = wait_of("TALWEG_STALL_WARNING").value;
  o.metrics_file = resolve("TALWEG_METRICS_FILE").value;
  o.metrics_period_ns = wait_of("TALWEG_METRICS_PERIOD").value;
  o.trace_dir = directory("TALWEG_TRACE");
  o.trace_limit = static_cast<std::uint64_t>(whole_number_of("TALWEG_TRACE_LIMIT"));
  check_metrics_file(o.metrics_file, rank);  // which may be in a folder that was made for the others
  return o;
}

std::uint64_t job_number(std::uint64_t drawn) {
  const std::array<std::int64_t, 3> words{static_cast<std::int64_t>(drawn), drawn == 0 ? ::getpid() : 0,
                                          drawn == 0 ? live::now_ns() : 0};
  return wire::layout_digest(words.data(), words.size());
}

namespace {
ObserverOptions with_names(ObserverOptions options) {
  options.metrics_file = metrics_file(options.metrics_file, options.rank, options.job);
  return options;
}
}  // namespace

Observer::~Observer() = default;

Observer::Observer(ObserverOptions options)
    : options_(with_names(std::move(options))), dumps_seen_(dump_signals()) {
  if (!options_.metrics_file.empty()) metrics_ = std::make_unique<Metrics>();
  if (!options_.trace_dir.empty())
    trace_ = std::make_unique<Trace>(
        fmt::format("{}/trace-{:016x}-rank{}.json", options_.trace_dir, options_.job, options_.rank),
        Trace::Who{options_.job, options_.rank, options_.size,
                   options_.hosts[static_cast<std::size_t>(options_.rank)]},
        options_.trace_limit);
  if (options_.dump_signal != 0) catch_dump_signal(options_.dump_signal);
  const bool somebody_compares = trace_ || !options_.record_dir.empty();
  if (options_.clock_shared) clock_.learn(0, 0, 0);
  next_question_ns_ =
      somebody_compares && !options_.clock_shared ? 0 : std::numeric_limits<std::int64_t>::max();
  if (trace_ && clock_.known) trace_->clock(clock_, live::now_ns());
}

std::int64_t Observer::end_time() const {
  if (metrics_ || trace_) return live::now_ns();
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

bool Observer::ask(std::int64_t now_ns) {
  next_question_ns_ = now_ns + (++questions_ < kFirstQuestions ? kFirstPauseNs : kLaterPauseNs);
  return true;
}

void Observer::learn_time(std::int64_t asked_ns, std::int64_t theirs_ns, std::int64_t now_ns) {
  if (clock_.learn(asked_ns, theirs_ns, now_ns) && trace_) trace_->clock(clock_, now_ns);
}

bool Observer::dump_asked() {
  const unsigned seen = std::exchange(dumps_seen_, dump_signals());
  return options_.dump_signal != 0 && seen != dumps_seen_;
}

bool Observer::metrics_due(std::int64_t now_ns) {
  if (!metrics_ || now_ns < next_metrics_ns_) return false;
  next_metrics_ns_ = now_ns + options_.metrics_period_ns;
  return true;
}

std::string Observer::record_path(std::uint32_t group) const {
  const std::string dir = options_.record_dir.empty() ? temporary_folder() : options_.record_dir;
  return fmt::format("{}/record-{:016x}-group{:08x}-rank{}.json", dir, options_.job, group, options_.rank);
}

std::string write_atomically(const std::string& path, const std::string& text) {
  if (std::string why = why_not_replaced(path); !why.empty()) return why;
  text::Draft draft(path);
  if (draft.failed()) return draft.failed().message();
  std::FILE* file = std::fopen(draft.name().c_str(), "we");
  if (file == nullptr) return std::strerror(errno);
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const int why = errno;
  if (std::fclose(file) != 0 || !written) return std::strerror(written ? errno : why);
  const std::error_code failed = draft.replace();
  return failed ? failed.message() : std::string();
}

}  // namespace talweg::observe
