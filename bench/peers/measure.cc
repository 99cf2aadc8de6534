#include "measure.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <map>
#include <span>
#include <stdexcept>
#include <vector>

#include "board.h"

namespace talweg::bench {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kPeriod = 61;  // prime, so that no chunk boundary repeats the pattern
constexpr int kLeastIterations = 3;
constexpr double kSlowSeconds = 8;    // calls that take longer are measured once
constexpr double kStreamSeconds = 1;  // in calls that take longer, the pause between them does not show
constexpr int kMostIterations = 201;
constexpr int kMostWarmUps = 20;
constexpr double kWarmUpSeconds = 0.2;
constexpr std::size_t kMostStreamBytes = 16 << 20;  // above, the pause between calls no longer shows

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// What rank `rank` puts at position i: 1 .. 61 and different for every rank.
float contribution(std::size_t i, int rank) {
  return static_cast<float>((i + 7 * static_cast<std::size_t>(rank)) % kPeriod + 1);
}

void write_pattern(std::span<float> data, int rank) {
  for (std::size_t i = 0; i < data.size(); ++i) {
    if (i < kPeriod) {
      data[i] = contribution(i, rank);
    } else {
      data[i] = data[i - kPeriod];
    }
  }
}

// How many elements differ from the sum of all ranks' patterns times `factor`.
std::size_t count_wrong(std::span<const float> data, int size, float factor) {
  float expected[kPeriod] = {};
  for (std::size_t i = 0; i < kPeriod; ++i) {
    for (int r = 0; r < size; ++r) expected[i] += contribution(i, r);
    expected[i] *= factor;
  }
  std::size_t wrong = 0;
  std::size_t phase = 0;
  for (const float value : data) {
    wrong += value == expected[phase] ? 0 : 1;
    phase = phase + 1 == kPeriod ? 0 : phase + 1;
  }
  return wrong;
}

// Calls of one batch. The k-th call in place multiplies the sum by size^(k-1), which float32 holds exactly
// for powers of two (exponents only) and for other sizes while the product stays below 2^24.
int batch_calls(int size) {
  if ((size & (size - 1)) == 0) return 8;
  const double head_room = std::pow(2.0, 24) / (static_cast<double>(kPeriod) * size);
  return 1 + std::clamp(static_cast<int>(std::log(head_room) / std::log(size)), 0, 7);
}

struct Summary {
  int iterations = 0;
  double min_ms = 0;
  double median_ms = 0;
  double p90_ms = 0;
  double p99_ms = 0;
};

Summary summarise(std::vector<double> times_ms) {
  std::sort(times_ms.begin(), times_ms.end());
  const auto at = [&](double share) {
    return times_ms[static_cast<std::size_t>(share * static_cast<double>(times_ms.size() - 1))];
  };
  return {static_cast<int>(times_ms.size()), times_ms.front(), at(0.5), at(0.9), at(0.99)};
}

class Measurement {
 public:
  Measurement(const Options& options, Contestant& contestant, Board& board)
      : options_(options), contestant_(contestant), board_(board), data_(options.bytes / sizeof(float)) {
    contestant_.prepare(data_.data(), data_.size());
  }

  // Seconds per call, the same on every rank.
  double warm_up() {
    double spent = 0;
    double last = 0;
    for (int k = 0; k < kMostWarmUps && spent < kWarmUpSeconds; ++k) {
      last = board_.max_over_ranks({batch(1)})[0];
      spent += last;
    }
    return last;
  }

  // Milliseconds per call of each batch of so many, of the slowest rank.
  std::vector<double> run(int calls, double seconds_per_call) {
    const double fitting = options_.seconds / (seconds_per_call * calls);
    const int least = seconds_per_call * calls > kSlowSeconds ? 1 : kLeastIterations;
    const int iterations = static_cast<int>(std::clamp<double>(fitting, least, kMostIterations));
    std::vector<double> times;
    for (int k = 0; k < iterations; ++k) times.push_back(1e3 * batch(calls) / calls);
    return board_.max_over_ranks(times);
  }

  std::size_t wrong() const { return wrong_; }

 private:
  double batch(int calls) {
    write_pattern(data_, options_.rank);
    board_.barrier();
    const auto start = Clock::now();
    for (int k = 0; k < calls; ++k) contestant_.all_reduce();
    const double spent = seconds_since(start);
    const std::size_t wrong = count_wrong(
        data_, options_.size, std::pow(static_cast<float>(options_.size), static_cast<float>(calls - 1)));
    if (static_cast<double>(wrong) > contestant_.may_lack() * static_cast<double>(data_.size()))
      wrong_ += wrong;
    return spent;
  }

  const Options& options_;
  Contestant& contestant_;
  Board& board_;
  std::vector<float> data_;
  std::size_t wrong_ = 0;
};

void print_summary(const char* name, const Summary& s) {
  std::printf(
      ", \"%s\": {\"iterations\": %d, \"min_ms\": %.6f, \"median_ms\": %.6f, \"p90_ms\": %.6f, \"p99_ms\": "
      "%.6f}",
      name, s.iterations, s.min_ms, s.median_ms, s.p90_ms, s.p99_ms);
}

void print_calls(const std::vector<double>& calls_ms) {
  std::printf(", \"calls_ms\": [");
  for (std::size_t k = 0; k < calls_ms.size(); ++k) std::printf("%s%.6f", k == 0 ? "" : ", ", calls_ms[k]);
  std::printf("]");
}

}  // namespace

Options parse_options(int argc, char** argv) {
  Options o;
  const std::map<std::string, std::function<void(const std::string&)>> setters = {
      {"--rank", [&](const std::string& v) { o.rank = std::stoi(v); }},
      {"--size", [&](const std::string& v) { o.size = std::stoi(v); }},
      {"--board", [&](const std::string& v) { o.board = v; }},
      {"--store", [&](const std::string& v) { o.store = v; }},
      {"--address", [&](const std::string& v) { o.address = v; }},
      {"--interface", [&](const std::string& v) { o.interface = v; }},
      {"--algorithm", [&](const std::string& v) { o.algorithm = v; }},
      {"--bytes", [&](const std::string& v) { o.bytes = std::stoul(v); }},
      {"--seconds", [&](const std::string& v) { o.seconds = std::stod(v); }},
      {"--each-call", [&](const std::string& v) { o.each_call = std::stoi(v) != 0; }},
      {"--spawned-ns", [&](const std::string& v) { o.spawned_ns = std::stoll(v); }},
  };
  for (int i = 1; i < argc; i += 2) {
    const auto found = setters.find(argv[i]);
    if (found == setters.end()) throw std::runtime_error(std::string("unknown option ") + argv[i]);
    if (i + 1 == argc) throw std::runtime_error(std::string(argv[i]) + " needs a value");
    found->second(argv[i + 1]);
  }
  if (o.board.empty()) throw std::runtime_error("--board is missing");
  return o;
}

int measure(const std::string& contestant_name, const Options& options, Contestant& contestant,
            Clock::time_point join_started) {
  const double joined = seconds_since(join_started);
  const double formed =
      static_cast<double>(std::chrono::nanoseconds(Clock::now().time_since_epoch()).count() -
                          options.spawned_ns) /
      1e9;
  Board board(options.board, options.rank, options.size, [&] { contestant.idle(); });
  const auto join_times = board.max_over_ranks({joined, formed});

  std::vector<double> wrong = {0};
  std::vector<double> calls_ms;
  Summary isolated;
  Summary stream;
  if (options.bytes > 0) {
    Measurement measurement(options, contestant, board);
    const double seconds_per_call = measurement.warm_up();
    calls_ms = measurement.run(1, seconds_per_call);
    isolated = summarise(calls_ms);
    if (options.bytes <= kMostStreamBytes && seconds_per_call < kStreamSeconds &&
        contestant.may_lack() == 0 && !options.each_call)
      stream = summarise(measurement.run(batch_calls(options.size), isolated.median_ms / 1e3));
    wrong = board.max_over_ranks({static_cast<double>(measurement.wrong())});
  }
  if (options.rank == 0) {
    std::printf(
        "{\"contestant\": \"%s\", \"algorithm\": \"%s\", \"ranks\": %d, \"bytes\": %zu, \"join_ms\": %.3f",
        contestant_name.c_str(), options.algorithm.c_str(), options.size, options.bytes, 1e3 * join_times[0]);
    if (options.spawned_ns != 0) std::printf(", \"formed_ms\": %.3f", 1e3 * join_times[1]);
    if (options.bytes > 0) {
      print_summary("isolated", isolated);
      if (stream.iterations > 0) print_summary("stream", stream);
      if (options.each_call) print_calls(calls_ms);
    }
    std::printf(", \"wrong\": %.0f}\n", wrong[0]);
    std::fflush(stdout);
  }
  return wrong[0] == 0 ? 0 : 1;
}

int guarded(const std::function<int()>& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}

}  // namespace talweg::bench
