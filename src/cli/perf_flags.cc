#include "cli/perf_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "base/fail.h"
#include "base/units.h"
#include "cli/fields.h"
#include "kernel/reduce.h"
#include "study/by_bounded_loss.h"
#include "study/perf_bounded.h"
#include "study/sizes.h"

namespace talweg::cli {

using namespace study;

namespace {

constexpr std::int64_t kDefaultBytes = 32 << 20;

std::size_t bytes_of(const char* flag, const std::string& text) {
  try {
    return static_cast<std::size_t>(parse_bytes(text).value);
  } catch (const Error& error) {
    refuse("{}: {}", flag, error.what());
  }
}

Average average_of(const std::string& text) {
  constexpr const char* kNames[] = {"rank0", "mean", "min", "max"};
  for (int i = 0; i < 4; ++i)
    if (text == kNames[i] || text == std::to_string(i)) return static_cast<Average>(i);
  refuse("-a: expected rank0, mean, min, max or a number from 0 to 3, got \"{}\"", text);
}

// Flags of nccl-tests that steer what only a GPU has.
struct GpuFlag {
  const char* names;
  const char* why;
};
constexpr GpuFlag kGpuFlags[] = {
    {"-g,--ngpus", "there are no GPUs per thread here: start more ranks with talweg run -n"},
    {"-t,--nthreads", "a rank is a process here: start more ranks with talweg run -n"},
    {"-p,--parallel_init", "a process joins one group: there is nothing to initialise in parallel"},
    {"-G,--cudagraph", "there are no CUDA graphs on a CPU"},
    {"-y,--stream_null", "there are no CUDA streams on a CPU"},
    {"-C,--report_cputime", "all time is CPU time here"},
    {"-R,--local_register", "CPU buffers need no registration"},
    {"-x,--cta_policy", "there are no thread blocks on a CPU"},
};

}  // namespace

void PerfFlags::add_to(CLI::App& app) {
  const auto raw = raw_;
  const auto positive = whole_number(1, 1 << 30);
  const auto count = whole_number(0, 1 << 30);
  app.add_option("collective", raw->collective, "what is measured, by its name below");
  app.add_option("--op", raw->op, "the same");
  app.add_option("--bytes", raw->bytes, "sizes: a list, or FIRST..LAST in steps of -f (2)");
  app.add_option("-b,--minbytes", raw->min_bytes, "smallest size in bytes; K, M, G are binary (32M)");
  app.add_option("-e,--maxbytes", raw->max_bytes, "largest size (32M)");
  app.add_option("-i,--stepbytes", raw->step_bytes, "from size to size: add this")->capture_default_str();
  app.add_option("-f,--factor,--stepfactor", raw->step_factor, "or multiply by this")
      ->check(whole_number(2, 1 << 20));
  app.add_option("-n,--iters", raw->options.iterations, "timed iterations")
      ->check(positive)
      ->capture_default_str();
  app.add_option("-w,--warmup,--warmup_iters", raw->options.warmup, "iterations before those")
      ->check(count)
      ->capture_default_str();
  app.add_option("-m,--agg_iters", raw->options.aggregate, "calls started together in each iteration")
      ->check(whole_number(1, 4096))
      ->capture_default_str();
  app.add_option("-c,--check", raw->options.check, "iterations whose result is checked; 0: none")
      ->check(count)
      ->capture_default_str();
  app.add_option("-N,--run_cycles", raw->options.cycles, "times the whole table is run; 0: for ever")
      ->check(count)
      ->capture_default_str();
  app.add_option("-o,--reduction", raw->reduction,
                 "sum, prod, min, max, avg, bit_and, bit_or, bit_xor or all that the type has")
      ->capture_default_str();
  app.add_option("-d,--type,--datatype", raw->type, "data type, as docs/commands.md lists them, or all")
      ->capture_default_str();
  app.add_option("-r,--root", raw->root, "root rank, or all")->capture_default_str();
  app.add_option("-a,--average", raw->average, "time shown: rank0, mean, min or max of the ranks, or 0 to 3")
      ->capture_default_str();
  app.add_option("-z,--blocking", raw->blocking,
                 "0 enqueue all, wait; 1 wait after each; 2 and a barrier; 3 untimed barrier before each")
      ->check(whole_number(0, 3))
      ->capture_default_str();
  app.add_option("-T,--timeout", raw->timeout, "time that one test (size) may take, such as 30s (off)");
  app.add_option("-u,--unalign", raw->misaligned, "1: buffers begin one element off alignment")
      ->check(whole_number(0, 1));
  app.add_option("-S,--report_timestamps", raw->timestamps, "1: a time stamp ends each line")
      ->check(whole_number(0, 1));
  app.add_option("-K,--skip", raw->options.skip, "first iterations that the percentiles leave out")
      ->check(count);
  app.add_option("-I,--percentiles", raw->percentiles, "accepted: --wide shows the percentiles");
  app.add_option("-M,--memory_report", raw->memory, "accepted: memory is always shown");
  app.add_option("-J,--json,--output_file", raw->json,
                 "write results as JSON to this file; - for standard output");
  add_wide(app, raw->wide);
  app.add_option("--sim", raw->sim, "simulate it on the network of this file instead; no ranks are needed");
  app.add_option(
         "--may-lose", raw->may_lose,
         "all_reduces of which so large a part of each rank's data may be lost (BoundedSums, --switch)")
      ->check(real_number(0, 0.5));
  app.add_option("--may-lose-sender", raw->may_lose_sender,
                 "the same on average over calls, less than --may-lose (default: no less)");
  app.add_option("--may-lose-call", raw->may_lose_call,
                 "with --may-lose: such a part of what all others send a rank (default: --may-lose)");
  app.add_option("--servers", raw->servers,
                 "with --may-lose: the ranks that sum, with commas (default: all)");
  app.add_option("--switch", raw->switch_address, "let the switch at this address:port sum (talweg switch)");
  app.add_option("--switch-job", raw->switch_job, "the job's name at the switch (perf)");
  app.add_option("--switch-key-file", raw->switch_key, "a file of mode 600 with the switch's key (none)");
  app.add_option("--sparse-density", raw->density,
                 "with --switch or --sparse-rows: share of blocks or rows that hold something (1)")
      ->check(real_number(0, 1));
  app.add_option("--sparse-run", raw->run, "elements that hold something together (those of a block)")
      ->check(positive);
  app.add_option("--sparse-as", raw->sparse_as,
                 "what travels of these: blocks, pairs of key and value, or all (dense) (blocks)");
  app.add_option("--overlap", raw->overlap,
                 "of the ranks' blocks or rows: random, all or none in common (random)");
  app.add_option("--sparse-rows", raw->rows,
                 "sums of sparse tensors (all_reduce_rows) of rows with so many elements")
      ->check(positive);
  app.add_flag("--exact", raw->exact,
               "with --switch: float as integers of a common scale, in any order the same");
  app.add_flag("--ordered", raw->ordered, "with --switch: float is summed in the order of ranks");
  app.add_option("--switch-format", raw->switch_format,
                 "how float travels: type (as it is), block8 or block4 (codes of 8 or 4 bits) (type)");
  app.add_option("--switch-block", raw->block,
                 "elements of a block, a multiple of 8 (as the switch finds best)")
      ->check(positive);
  for (const GpuFlag& flag : kGpuFlags) {
    const std::string names = flag.names;
    const std::string why = flag.why;
    app.add_option_function<std::string>(
           names, [names, why](const std::string&) { throw CLI::ValidationError(names, why); },
           "not on a CPU")
        ->expected(0, 1)
        ->group("");
  }
}

study::SwitchPerfOptions PerfFlags::switched() const {
  const Raw& raw = *raw_;
  SwitchPerfOptions how;
  how.address = raw.switch_address;
  how.exact = raw.exact;
  how.ordered = raw.ordered;
  how.block = raw.block;
  how.floats_as = parse_floats_as(raw.switch_format);
  how.key_file = raw.switch_key;
  if (!raw.switch_job.empty()) how.job = raw.switch_job;
  if (!raw.density.empty()) how.sparse.density = std::stod(raw.density);
  how.sparse.run = raw.run;
  how.sparse.overlap = parse_overlap(raw.overlap);
  how.sparse.form = parse_sparse_form(raw.sparse_as);
  const bool some_sparse = raw.rows == 0 && (!raw.density.empty() || !raw.overlap.empty() ||
                                             !raw.sparse_as.empty() || raw.run > 0);
  if (raw.rows > 0) refuse_beside_rows();
  if (how.address.empty() && (!raw.switch_job.empty() || !raw.switch_key.empty() || some_sparse ||
                              raw.exact || raw.ordered || raw.block > 0 || !raw.switch_format.empty()))
    refuse(
        "--switch-job, --switch-block, --switch-format, --sparse-density, --sparse-run, --sparse-as, "
        "--overlap, --exact and --ordered are about sums of a switch: which --switch?");
  if (!how.address.empty() && !raw.sim.empty()) refuse("--switch: there is no switch in --sim");
  return how;
}

void PerfFlags::refuse_beside_rows() const {
  const Raw& raw = *raw_;
  if (!raw.switch_address.empty())
    refuse(
        "--sparse-rows: rows go by the group's own switch, which TALWEG_SWITCH names: expected no --switch");
  if (!raw.sim.empty()) refuse("--sparse-rows: there are no sums of rows in --sim");
  for (const auto& [flag, given] :
       {std::pair{"--switch-job", !raw.switch_job.empty()},
        std::pair{"--switch-key-file", !raw.switch_key.empty()}, std::pair{"--switch-block", raw.block > 0},
        std::pair{"--switch-format", !raw.switch_format.empty()}, std::pair{"--sparse-run", raw.run > 0},
        std::pair{"--sparse-as", !raw.sparse_as.empty()}, std::pair{"--exact", raw.exact},
        std::pair{"--ordered", raw.ordered}})
    if (given)
      refuse(
          "--sparse-rows: expected no {}: rows go by the group's own switch, of which TALWEG_SWITCH and its "
          "settings say all",
          flag);
}

study::RowsPerfOptions PerfFlags::rows() const {
  const Raw& raw = *raw_;
  if (raw.rows == 0) return {};
  const SwitchPerfOptions how = switched();
  return {raw.rows, how.sparse};
}

study::PerfOptions PerfFlags::checked() const {
  const Raw& raw = *raw_;
  PerfOptions options = raw.options;
  if (!raw.collective.empty() && !raw.op.empty() && raw.collective != raw.op)
    refuse("--op {}: the collective is {} already: expected only one of them", raw.op, raw.collective);
  options.op = collective_called(raw.collective.empty() ? raw.op : raw.collective);

  if (!raw.bytes.empty() && (!raw.min_bytes.empty() || !raw.max_bytes.empty()))
    refuse("--bytes says the same as -b and -e: expected only one of them");
  // One bound given alone moves the other one's default out of its way.
  const auto given_min = raw.min_bytes.empty() ? kDefaultBytes : bytes_of("-b", raw.min_bytes);
  const auto given_max = raw.max_bytes.empty() ? kDefaultBytes : bytes_of("-e", raw.max_bytes);
  const auto min = raw.min_bytes.empty() ? std::min(given_min, given_max) : given_min;
  const auto max = raw.max_bytes.empty() ? std::max(given_min, given_max) : given_max;
  if (min > max) refuse("-b {} is larger than -e {}", raw.min_bytes, raw.max_bytes);
  const auto step = bytes_of("-i", raw.step_bytes);
  const auto factor = static_cast<std::size_t>(raw.step_factor);
  if (step == 0 && factor == 0 && min != max) refuse("-i 0: sizes would never grow");
  if (min == 0 && factor > 1) refuse("-b 0: a size of 0 never grows by the factor -f");
  options.sizes =
      options.op == Collective::barrier ? std::vector<std::size_t>{0} : sizes_to_scan(min, max, step, factor);
  options.size_text =
      fmt::format("minBytes {} maxBytes {} step: {}", min, max,
                  factor > 1 ? fmt::format("{}(factor)", factor) : fmt::format("{}(bytes)", step));
  if (!raw.bytes.empty() && options.op != Collective::barrier) {
    options.sizes.clear();
    for (const std::int64_t size : parse_sizes(raw.bytes, std::max(2, raw.step_factor)))
      options.sizes.push_back(static_cast<std::size_t>(size));
    options.size_text = fmt::format("bytes {}", raw.bytes);
  }

  if (raw.type == "all") {
    for (int i = 0; i < kDataTypes; ++i) options.types.push_back(static_cast<DataType>(i));
  } else if (const auto type = parse_data_type(raw.type)) {
    options.types = {*type};
  } else {
    refuse("-d: no data type is called \"{}\": expected {} or all", raw.type, data_type_names());
  }
  options.last_flag = !raw.bytes.empty()                                      ? "--bytes"
                      : options.sizes.back() == min && !raw.min_bytes.empty() ? "-b"
                                                                              : "-e";
  // How many parts there are is not known here yet. Of -d all, lines of types too large for it are left out.
  if (options.types.size() == 1)
    check_holds_element(options.last_flag, options.sizes.back(), options.op, options.types[0], 1);
  if (raw.reduction == "all") {
    for (int i = 0; i < kReduceOps; ++i) options.reductions.push_back(static_cast<ReduceOp>(i));
  } else if (const auto reduce = parse_reduce_op(raw.reduction)) {
    options.reductions = {*reduce};
  } else {
    refuse(
        "-o: no reduction is called \"{}\": expected sum, prod, min, max, avg, bit_and, bit_or, "
        "bit_xor or all",
        raw.reduction);
  }
  if (!has_reduction(options.op)) options.reductions = {ReduceOp::sum};
  if (has_reduction(options.op) && raw.type != "all" && raw.reduction != "all" &&
      !kernel::reduce_function(options.types[0], options.reductions[0]))
    refuse("-o {} has no meaning for -d {}", raw.reduction, raw.type);

  options.all_roots = raw.root == "all";
  if (!options.all_roots) {
    if (raw.root.empty() || raw.root.size() > 6 ||
        raw.root.find_first_not_of("0123456789") != std::string::npos)
      refuse("-r: expected a rank or all, got \"{}\"", raw.root);
    options.root = std::stoi(raw.root);
  }
  if (options.skip >= options.iterations)
    refuse("-K {} leaves none of the -n {} iterations", options.skip, options.iterations);
  if (options.op == Collective::barrier) options.check = 0;
  options.blocking = static_cast<Blocking>(raw.blocking);
  options.average = average_of(raw.average);
  if (!raw.timeout.empty()) {
    const std::int64_t ns = parse_wait("-T", raw.timeout).value;
    if (ns > 0 && ns < 1'000'000) refuse("-T {}: expected 0 (off), or at least 0.001 s", raw.timeout);
    options.timeout = std::chrono::milliseconds(ns / 1'000'000);
  }
  options.misaligned = raw.misaligned != 0;
  options.timestamps = raw.timestamps != 0;
  if (raw.wide) options.columns = PerfColumns::all;
  if (!raw.may_lose.empty()) {
    options.may_lose = std::stod(raw.may_lose);
    check_bounded_perf(options);
  }
  for (const auto& [flag, text, limit] :
       {std::tuple{"--may-lose-sender", &raw.may_lose_sender, &options.may_lose_sender},
        std::tuple{"--may-lose-call", &raw.may_lose_call, &options.may_lose_call}}) {
    if (!text->empty() && !options.may_lose)
      refuse("{}: a limit beside --may-lose, which is not given", flag);
    *limit = parse_limit(flag, *text, options.may_lose.value_or(0));
  }
  options.servers = parse_servers(raw.servers, 0);
  if (!options.servers.empty() && !options.may_lose)
    refuse("--servers: they sum with --may-lose, which is not given");
  if (!raw.sim.empty()) {
    const auto only = [](bool holds, const char* text) {
      if (!holds) refuse("--sim: {}", text);
    };
    only(raw.blocking == 1, "-z must be 1: a simulated rank starts a call when its last one has ended");
    only(options.aggregate == 1, "-m must be 1: a simulated rank has one call in flight");
    only(options.cycles == 1, "-N must be 1: every cycle would be the same");
    options.check = 0;  // no payloads are carried
  }
  return options;
}

}  // namespace talweg::cli
