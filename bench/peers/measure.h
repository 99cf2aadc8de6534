// How every contestant is measured: one method, one loop, whoever does the summing.
//
// Isolated: fill, barrier, timed call, check; the time of an iteration is the maximum over the ranks.
// Stream: barrier, then a batch of calls back to back as nccl-tests and the OSU benchmarks do; batch time /
// calls. Both report minimum, median, 90th and 99th percentile. Every result is compared exactly: the values
// are small integers; but see may_lack().
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace talweg::bench {

// From the command line; see parse_options. Open MPI gives rank and size itself.
struct Options {
  int rank = 0;
  int size = 1;
  std::string board;            // path of the shared file, see board.h
  std::string store;            // rendezvous: a folder (gloo) or a file (Talweg)
  std::string address;          // the rank's own IP address (gloo)
  std::string interface;        // Talweg: the grammar of NCCL_SOCKET_IFNAME; empty: automatic
  std::string algorithm;        // as the contestant calls it
  std::size_t bytes = 0;        // of the float32 vector; 0: only join
  double seconds = 1;           // aimed at, for each of the two modes
  bool each_call = false;       // isolated calls alone, and the time of each of them
  std::int64_t spawned_ns = 0;  // steady clock when the launcher started; 0: unknown
};

// `--name value` pairs named as in Options. Throws std::runtime_error naming what is wrong.
Options parse_options(int argc, char** argv);

class Contestant {
 public:
  virtual ~Contestant() = default;
  // Called once before the first all_reduce; `data` stays valid.
  virtual void prepare(float* data, std::size_t count) = 0;
  // Sums the prepared buffer over all ranks, in place.
  virtual void all_reduce() = 0;
  // Of the elements of one call, what part may lack something; above 0 there are no streams, in which what is
  // lacking would grow.
  virtual double may_lack() const { return 0; }
  // Makes progress for others; called while this rank waits in the harness.
  virtual void idle() {}
};

// Measures and, on rank 0, prints one line of JSON. `join_started` is taken just before the library's own
// join. Returns the exit code: 1 when a value was wrong.
int measure(const std::string& contestant_name, const Options& options, Contestant& contestant,
            std::chrono::steady_clock::time_point join_started);

// Runs `body`, turning an exception into one line on stderr and exit code 2.
int guarded(const std::function<int()>& body);

}  // namespace talweg::bench
