// How fast traces of training are read, and in how much memory. Makes a Kineto trace of so many MB (1024 if
// left out) in a temporary file, reads it, and prints one line of JSON; or reads what files it is given, and
// says what they hold.
//
//   train_bench [MB]
//   train_bench FILE ...
//   train_bench write LAYERS EVENTS FILE      a trace of so many layers a step, and at least so many events
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/temporary_folder.h"
#include "train/traces/made_trace.h"
#include "train/traces/read_job.h"

namespace {

using namespace talweg;

double cpu_seconds() {
  timespec t{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double peak_megabytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

// About as many events to an operator as PyTorch's profiler writes with stacks and shapes.
train::MadeTrace model() {
  Random random(1);
  train::MadeTrace made;
  made.cuda = true;
  made.children = 4;
  made.strangers = 4;
  for (int i = 0; i < 160; ++i) {
    train::MadeLayer l;
    l.op = i % 3 == 0 ? "aten::conv2d" : i % 3 == 1 ? "aten::batch_norm" : "aten::relu";
    l.forward = 20'000 + static_cast<std::int64_t>(random.below(200'000));
    l.backward = 2 * l.forward;
    l.forward_gap = static_cast<std::int64_t>(random.below(5000));
    if (i % 3 != 2) l.parameters = {64, 64 * static_cast<std::int64_t>(1 + random.below(2000))};
    made.layers.push_back(l);
  }
  for (int left = 160 * 4 / 3; left > 0; left -= 40)
    made.buckets.push_back(static_cast<std::size_t>(left < 40 ? left : 40));
  for (std::size_t b = 0; b < made.buckets.size(); ++b)
    made.reduced.push_back({.time = 1'000'000 + static_cast<std::int64_t>(b) * 1000});
  made.input = 100'000;
  made.copy = 50'000;
  made.update = 400'000;
  made.world = 1;
  return made;
}

std::size_t events_in(const std::string& text) {
  std::size_t count = 0;
  for (std::size_t i = text.find("\"ph\""); i != std::string::npos; i = text.find("\"ph\"", i + 1)) ++count;
  return count;
}

int write(int layers, int events, const std::string& path) {
  train::MadeTrace made = model();
  made.children = 1;
  made.strangers = 0;
  const std::vector<train::MadeLayer> first = made.layers;
  made.layers.clear();
  std::size_t parameters = 0;
  for (int i = 0; i < layers; ++i) {
    made.layers.push_back(first[static_cast<std::size_t>(i) % first.size()]);
    parameters += made.layers.back().parameters.size();
  }
  made.buckets.clear();
  made.reduced.clear();
  for (; parameters > 0; parameters -= made.buckets.back()) {
    made.buckets.push_back(std::min<std::size_t>(parameters, 40));
    made.reduced.push_back({.time = 1'000'000 + static_cast<std::int64_t>(made.buckets.size()) * 1000});
  }
  made.steps = 2;
  const auto a_step = events_in(train::kineto_text(made, 0)) / 2;
  made.steps = std::max(2, (events - 1) / static_cast<int>(a_step) + 1);
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) {
    std::perror(path.c_str());
    return 1;
  }
  const std::string text = train::kineto_text(made, 0);
  std::fwrite(text.data(), 1, text.size(), file);
  std::fclose(file);
  fmt::print("{{\"layers\": {}, \"steps\": {}, \"events\": {}}}\n", layers, made.steps, events_in(text));
  return 0;
}

int read_files(int count, char** paths) {
  const train::TraceJob read = train::read_job({paths, paths + count});
  std::fputs(to_yaml(read.job).c_str(), stdout);
  fmt::print("# {}: {} steps; busy {}, launch gaps {}, stream gaps {}, exposed {}, peer wait {}\n",
             name(read.kind), read.steps, to_string(read.busy), to_string(read.launch_gaps),
             to_string(read.stream_gaps), to_string(read.exposed), to_string(read.peer_wait));
  for (const std::string& note : read.notes) fmt::print("# {}\n", note);
  return 0;
}

int measure(double megabytes) {
  const std::string path = fmt::format("{}/train_bench.{}.json", temporary_folder(), ::getpid());
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) {
    std::perror(path.c_str());
    return 1;
  }
  train::MadeTrace made = model();
  made.steps = 2;
  const auto a_step = static_cast<double>(train::kineto_text(made, 0).size()) / made.steps;
  made.steps = static_cast<int>(megabytes * 1e6 / a_step) + 1;
  double bytes = 0;
  train::write_kineto(made, 0, [&](std::string_view text) {
    bytes += static_cast<double>(std::fwrite(text.data(), 1, text.size(), file));
  });
  std::fclose(file);
  const double before = peak_megabytes(), begun = cpu_seconds();
  const auto begun_wall = std::chrono::steady_clock::now();
  const train::TraceJob read = train::read_job({path});
  const double cpu = cpu_seconds() - begun;
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begun_wall;
  std::remove(path.c_str());
  fmt::print(
      "{{\"MB\": {:.0f}, \"steps\": {}, \"layers\": {}, \"wall_s\": {:.3f}, \"cpu_s\": {:.3f}, \"MB_per_s\": "
      "{:.0f}, "
      "\"MB_per_cpu_s\": {:.0f}, \"peak_memory_MB\": {:.1f}, \"of_which_to_make_it_MB\": {:.1f}}}\n",
      bytes / 1e6, read.steps, read.job.layers.size(), wall.count(), cpu, bytes / 1e6 / wall.count(),
      bytes / 1e6 / cpu, peak_megabytes(), before);
  return read.steps == made.steps ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc == 5 && std::string(argv[1]) == "write")
      return write(std::atoi(argv[2]), std::atoi(argv[3]), argv[4]);
    const double megabytes = argc < 2 ? 1024 : std::atof(argv[1]);
    if (argc < 2 || (argc == 2 && megabytes > 0)) return measure(megabytes);
    return read_files(argc - 1, argv + 1);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_bench: %s\n", error.what());
    return 1;
  }
}
