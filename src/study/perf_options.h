// What a measurement of a collective is to be: sizes, types, iterations, in the terms of nccl-tests.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "study/perf_case.h"
#include "talweg/types.h"

namespace talweg::study {

enum class Average { rank0 = 0, mean = 1, min = 2, max = 3 };

// A CPU has no stream that would run enqueued calls one after the other, so the mode that measures the same
// as nccl-tests' default is `wait`, and it is the default here.
enum class Blocking {
  enqueue = 0,          // many calls in flight, each on its own buffers; then wait for all
  wait = 1,             // the next call starts when this rank has finished the last one
  wait_barrier = 2,     // and a barrier after each call is part of the time
  barrier_outside = 3,  // a barrier before each call that is not part of the time
};

// Of the table, whose lines have at most 120 characters unless they are to have all columns.
enum class PerfColumns {
  nccl,  // those of nccl-tests, which fill a line
  once,  // out of place, the median and the algorithm: where in place is the same run
  all,
};

struct PerfOptions {
  Collective op = Collective::all_reduce;
  std::vector<std::size_t>
      sizes;                     // bytes, ascending; perf_cases() leaves out what is too small for any ranks
  const char* last_flag = "-e";  // that said the last of them
  std::vector<DataType> types;
  std::vector<ReduceOp> reductions;
  int root = 0;
  bool all_roots = false;
  std::string size_text;  // "minBytes 8 maxBytes 1024 step: 2(factor)" of the header
  int iterations = 20;
  int warmup = 1;
  int check = 1;
  int aggregate = 1;
  int cycles = 1;  // 0: for ever
  int skip = 0;    // iterations at the start that percentiles leave out
  Blocking blocking = Blocking::wait;
  Average average = Average::mean;
  std::chrono::milliseconds timeout{0};  // of one size of one side; 0: the group's own deadline of each call
  bool misaligned = false;
  bool timestamps = false;
  PerfColumns columns = PerfColumns::nccl;
  std::optional<double>
      may_lose{};  // such a part of each rank's data (talweg/bounded_loss.h); empty: nothing
  std::optional<double> may_lose_sender{}, may_lose_call{};  // BoundedLossOptions::p_sender and p_call
  std::vector<int> servers{};                                // which sum then; empty: all
};

// The lines of one run, in the order of nccl-tests: size within root within reduction within type. Sizes that
// hold less than an element for each rank are left out; throws Error{invalid_argument} when none is left.
std::vector<PerfCase> perf_cases(const PerfOptions& options, int ranks);

// Throws Error{invalid_argument} where the collective has a root and there is no such rank.
void check_root(const PerfOptions& options, int ranks);

}  // namespace talweg::study
