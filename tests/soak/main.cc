// Soak: a long stream of mixed collectives of every kind, type and size, from several threads of every rank,
// in groups that come and go. Every result is held against a serial reference; at the end nothing may have
// grown.
//
//   soak [--ranks 4] [--threads 2] [--steps 4000] [--seed 1] [--bytes 4194304] [--processes] [--tcp]
//        [--replan]
//
// Ranks are threads of this process, or processes of their own. With --replan plans follow the network, over
// TCP. A failure prints the line that repeats it.
#include <fmt/format.h>
#include <malloc.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "player.h"

namespace talweg::soak {
namespace {

struct Options {
  int ranks = 4;
  int threads = 2;
  long steps = 4000;  // of all threads of a rank together
  std::uint64_t seed = 1;
  std::size_t bytes = 4U << 20;
  bool processes = false;
  bool tcp = false;
  bool replan = false;
};

std::string replay_line(const Options& o, const char* program) {
  return fmt::format("{} --ranks {} --threads {} --steps {} --seed {} --bytes {}{}{}{}", program, o.ranks,
                     o.threads, o.steps, o.seed, o.bytes, o.processes ? " --processes" : "",
                     o.tcp ? " --tcp" : "", o.replan ? " --replan" : "");
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--processes" || word == "--tcp" || word == "--replan") {
      (word == "--tcp" ? o.tcp : word == "--replan" ? o.replan : o.processes) = true;
      continue;
    }
    if (i + 1 == argc) throw std::runtime_error("no value after " + word);
    const long value = std::stol(argv[++i]);
    if (word == "--ranks") {
      o.ranks = static_cast<int>(value);
    } else if (word == "--threads") {
      o.threads = static_cast<int>(value);
    } else if (word == "--steps") {
      o.steps = value;
    } else if (word == "--seed") {
      o.seed = static_cast<std::uint64_t>(value);
    } else if (word == "--bytes") {
      o.bytes = static_cast<std::size_t>(value);
    } else {
      throw std::runtime_error("no option is called " + word);
    }
  }
  return o;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMemoryTells = false;  // sanitizers keep memory of their own
#else
constexpr bool kMemoryTells = true;
#endif
// Per rank, between two moments at which nothing is in flight and all groups but one of each thread are new.
// That one has then seen more shapes than it keeps plans of, if the soak is long: what it holds differs only
// by which plans these are, and 40 bytes lost in each step would be seen. Before that, it is still filling
// up.
constexpr long kMayGrowKib = 512;
constexpr long kMayFillKib = 4096;
constexpr long kStepsUntilFull = 5000;  // of one thread: a third of them are for the group that stays

struct Usage {
  long kib = 0;
  long descriptors = 0;
  long threads = 0;
};

long entries(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
}

Usage usage() {
  // A joined thread leaves the process's list a moment later.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  // What has been allocated and not freed. The pages that the process holds for it go on growing for long, by
  // the holes between what lives: the soak allocates and frees buffers of every size from many threads.
  const struct mallinfo2 heap = ::mallinfo2();
  return {static_cast<long>((heap.uordblks + heap.hblkhd) >> 10), entries("/proc/self/fd"),
          entries("/proc/self/task")};
}

void hold(const Usage& before, const Usage& after, long may_grow_kib, const char* when) {
  const long grown = after.kib - before.kib;
  fmt::print("{}: memory {:+} KiB, descriptors {:+}, threads {:+}\n", when, grown,
             after.descriptors - before.descriptors, after.threads - before.threads);
  if ((kMemoryTells && grown > may_grow_kib) || after.descriptors > before.descriptors ||
      after.threads > before.threads)
    throw std::runtime_error(fmt::format("something has grown {}", when));
}

// The players of one rank, each with a group of its own.
class Rank {
 public:
  Rank(const Options& o, int rank, const std::string& meeting) {
    GroupOptions join;
    join.rank = rank;
    join.size = o.ranks;
    join.rendezvous = "file:" + meeting;
    join.interface = "lo";
    join.timeout = std::chrono::minutes(5);
    group_ = Group::join(join);
    std::vector<int> all;
    for (int r = 0; r < o.ranks; ++r) all.push_back(r);
    for (int t = 0; t < o.threads; ++t) {
      join.prefix = fmt::format("thread{}/", t);
      // Only of a group that was joined do plans follow the network.
      const auto own = o.replan ? Group::join(join) : group_->split(all);
      if (o.replan && own->describe().find("plans: follow the network") == std::string::npos)
        throw std::runtime_error("plans do not follow the network");
      players_.push_back(std::make_unique<Player>(own, o.seed, static_cast<std::uint64_t>(t), o.bytes));
    }
  }

  void play(long steps) {
    std::vector<std::exception_ptr> errors(players_.size());
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < players_.size(); ++t)
      threads.emplace_back([&, t] {
        try {
          players_[t]->play(steps / static_cast<long>(players_.size()));
          players_[t]->start_afresh();
        } catch (const std::exception& e) {
          errors[t] = std::current_exception();
          fmt::print(stderr, "soak: {}\n", e.what());
          players_[t]->abort(e.what());
        }
      });
    for (auto& thread : threads) thread.join();
    for (const auto& error : errors)
      if (error) std::rethrow_exception(error);
  }

 private:
  std::shared_ptr<Group> group_;
  std::vector<std::unique_ptr<Player>> players_;
};

// Runs `work` for every rank of this process, at the same time.
template <class Work>
void for_each_rank(int first, int end, Work work) {
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(end - first));
  std::vector<std::thread> threads;
  for (int r = first; r < end; ++r)
    threads.emplace_back([&, r] {
      try {
        work(r - first);
      } catch (...) {
        errors[static_cast<std::size_t>(r - first)] = std::current_exception();
      }
    });
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
}

// Ranks first .. end-1, as threads.
void soak(const Options& o, int first, int end, const std::string& meeting) {
  std::thread([] {}).join();  // with its first thread ThreadSanitizer starts one of its own
  const Usage empty = usage();
  std::vector<std::unique_ptr<Rank>> ranks(static_cast<std::size_t>(end - first));
  for_each_rank(first, end, [&](int i) {
    ranks[static_cast<std::size_t>(i)] = std::make_unique<Rank>(o, first + i, meeting);
  });
  for_each_rank(first, end, [&](int i) { ranks[static_cast<std::size_t>(i)]->play(o.steps / 2); });
  const Usage warm = usage();
  for_each_rank(first, end, [&](int i) { ranks[static_cast<std::size_t>(i)]->play(o.steps - o.steps / 2); });
  const bool full = o.steps / 2 / o.threads >= kStepsUntilFull;
  hold(warm, usage(), (end - first) * (full ? kMayGrowKib : kMayFillKib), "while it ran");
  for_each_rank(first, end, [&](int i) { ranks[static_cast<std::size_t>(i)].reset(); });
  const Usage left = usage();
  // Of memory only what the process keeps for next time: names of time zones, buffers of streams.
  hold(empty, left, kMayGrowKib, "after all groups were gone");
}

bool soak_in_processes(const Options& o, const std::string& meeting) {
  std::vector<pid_t> children;
  for (int r = 0; r < o.ranks; ++r) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      try {
        soak(o, r, r + 1, meeting);
        fflush(stdout);
        ::_exit(0);
      } catch (const std::exception& e) {
        fmt::print(stderr, "soak: {}\n", e.what());
        ::_exit(1);
      }
    }
    children.push_back(pid);
  }
  bool good = true;
  for (const pid_t pid : children) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    good = good && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  return good;
}

// What is said of the network is wrong, so that plans have a reason to change.
void mislead(int ranks, const std::string& path) {
  std::ofstream file(path);
  file << "nodes:\n";
  for (int r = 0; r < ranks; ++r) file << "  - {name: h" << r << ", kind: worker}\n";
  file << "  - {name: sw, kind: switch}\nlinks:\n";
  for (int r = 0; r < ranks; ++r)
    file << "  - {between: [h" << r << ", sw], capacity: " << (r == 1 ? 100 : 1000)
         << "Mbit/s, latency: 30us}\n";
  ::setenv("TALWEG_CLUSTER", path.c_str(), 1);
}

int run(int argc, char** argv) {
  const Options o = parse(argc, argv);
  ::setenv("TALWEG_SHM", o.tcp || o.replan ? "0" : "1", 1);
  ::setenv("TALWEG_REPLAN", o.replan ? "1" : "0", 1);
  std::string folder = "/tmp/talweg-soak-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) throw std::runtime_error("cannot make a folder in /tmp");
  if (o.replan) mislead(o.ranks, folder + "/cluster.yaml");
  bool good = true;
  try {
    if (o.processes) {
      good = soak_in_processes(o, folder + "/meeting");
    } else {
      soak(o, 0, o.ranks, folder + "/meeting");
    }
  } catch (const std::exception& e) {
    fmt::print(stderr, "soak: {}\n", e.what());
    good = false;
  }
  std::filesystem::remove_all(folder);
  if (!good) {
    fmt::print(stderr, "soak: repeat it by: {}\n", replay_line(o, argv[0]));
    return 1;
  }
  fmt::print("soak: {} steps on {} ranks from {} threads each, seed {}: every result right\n", o.steps,
             o.ranks, o.threads, o.seed);
  return 0;
}

}  // namespace
}  // namespace talweg::soak

int main(int argc, char** argv) {
  try {
    return talweg::soak::run(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "soak: {}\n", e.what());
    return 2;
  }
}
