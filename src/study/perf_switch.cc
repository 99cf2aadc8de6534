#include "study/perf_switch.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/fail.h"
#include "base/host_port.h"
#include "base/settings.h"
#include "kernel/reduce.h"
#include "live/join/job_key.h"
#include "protocol/aggregation/tolerance.h"
#include "protocol/bounded/loss_budget.h"
#include "study/coded_check.h"
#include "study/perf_check.h"
#include "study/perf_times.h"

namespace talweg::study {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kUsualDeadlineNs = 60'000'000'000;  // of one sum, where -T does not say
constexpr std::int64_t kJoinNs = 30'000'000'000;
constexpr int kPoisonByte = 0xa5;

// `type` is one that a switch sums: requests are checked.
wire::AggregationFormat format_of(DataType type, const SwitchPerfOptions& how) {
  if (how.sparse.by_pairs()) return wire::AggregationFormat::pairs;
  if (how.floats_as) return *how.floats_as;
  const wire::AggregationFormat format =
      wire::aggregation_format(type).value_or(wire::AggregationFormat::f32);
  return how.exact && format == wire::AggregationFormat::f32 ? wire::AggregationFormat::scaled : format;
}

// The vectors of one rank, and what they are to come to.
class SwitchVectors {
 public:
  SwitchVectors(const PerfCase& c, const SwitchPerfOptions& how, std::uint16_t block, bool residual)
      : c_(c),
        how_(how),
        block_(block),
        in_(vector_bytes(c)),
        out_(vector_bytes(c)),
        residual_(residual ? vector_bytes(c) : 0) {}

  std::byte* in() { return in_.data(); }
  std::byte* out() { return out_.data(); }
  std::byte* residual() { return residual_.empty() ? nullptr : residual_.data(); }
  // Of all ranks.
  std::vector<std::byte> residuals(Group& group) const {
    std::vector<std::byte> all(residual_.size());
    if (!all.empty()) group.all_reduce(residual_.data(), all.data(), c_.count, c_.type, ReduceOp::sum);
    return all;
  }
  void add(std::byte* to, const std::vector<std::byte>& more) const {
    if (!more.empty()) kernel::reduce_function(c_.type, ReduceOp::sum)(to, to, more.data(), c_.count);
  }
  std::size_t bytes() const { return in_.size(); }

  std::vector<std::byte> input_of(int rank, std::uint64_t seed) const {
    std::vector<std::byte> data(in_.size());
    Pattern::of_rank(c_, rank, seed).write(data.data(), 0, c_.count);
    clear_what_is_not_held(how_.sparse, rank, c_.ranks, block_ * size_of(c_.type), size_of(c_.type), data);
    return data;
  }
  std::vector<std::byte> sum(std::uint64_t seed) const {
    std::vector<std::byte> all = input_of(0, seed);
    const auto add = kernel::reduce_function(c_.type, ReduceOp::sum);
    for (int rank = 1; rank < c_.ranks; ++rank)
      add(all.data(), all.data(), input_of(rank, seed).data(), c_.count);
    return all;
  }
  std::uint64_t count_wrong(const std::byte* data, const std::vector<std::byte>& expected) const {
    const std::size_t element = size_of(c_.type);
    std::uint64_t wrong = 0;
    for (std::size_t at = 0; at < expected.size(); at += element)
      wrong += std::memcmp(data + at, expected.data() + at, element) != 0 ? 1 : 0;
    return wrong;
  }

 private:
  const PerfCase& c_;
  const SwitchPerfOptions& how_;
  std::size_t block_;
  std::vector<std::byte> in_, out_, residual_;
};

}  // namespace

LostPart MissingBlocks::part() const {
  return {all > 0 ? static_cast<double>(missing) / static_cast<double>(all) : 0, 0, true};
}

void check_switch_perf(const SwitchPerfOptions& how, const PerfOptions& perf, int ranks) {
  if (perf.op != Collective::all_reduce) refuse("--switch: a switch does all_reduce, not {}", name(perf.op));
  for (const ReduceOp reduce : perf.reductions)
    if (reduce != ReduceOp::sum) refuse("--switch: a switch sums: -o must be sum");
  for (const DataType type : perf.types) {
    if (type != DataType::f32 && type != DataType::f16 && type != DataType::bf16 && type != DataType::i32)
      refuse("--switch: a switch sums float, half, bfloat16 and int32, not {}", name(type));
    if (how.exact && type != DataType::f32)
      refuse("--exact is for -d float: int32 is exact, {} is not", name(type));
    if (perf.may_lose && type != DataType::f32)
      refuse("--may-lose: with --switch a part may be missing of float, not of {}", table_name(type));
  }
  if (perf.aggregate != 1) refuse("--switch: -m must be 1: a worker has one sum at a time");
  if (perf.blocking == Blocking::enqueue)
    refuse("--switch: -z must not be 0: a worker has one sum at a time");
  if (perf.misaligned) refuse("--switch: -u has no meaning for it");
  if (perf.may_lose && (how.exact || how.sparse.by_blocks() || how.sparse.by_pairs()))
    refuse("--may-lose: nothing may be missing of {}: all workers agree on what comes next",
           how.exact ? "sums of --exact" : "sparse sums");
  if (perf.may_lose && (perf.may_lose_sender || perf.may_lose_call || !perf.servers.empty()))
    refuse("--may-lose-sender, --may-lose-call and --servers are of the ranks' own sums, without --switch");
  if (const std::string wrong = live::wrong_block(how.block); !wrong.empty())
    refuse("--switch-block: {}", wrong);
  if (how.ordered && how.exact)
    refuse("--ordered: sums of --exact are the same in any order: expected only one of them");
  check_sparse(how.sparse, perf.types, ranks);
  check_floats_as(how.floats_as, how.sparse, perf.types);
  if (how.floats_as && how.exact)
    refuse("--exact: codes of --switch-format {} are rounded, and not exact: expected only one of them",
           wire::name(*how.floats_as));
  if (how.exact && how.sparse.by_pairs())
    refuse("--exact: pairs are summed as they come, and not exactly: expected --sparse-as blocks");
}

live::SwitchClientOptions switch_client_options(const SwitchPerfOptions& how, const PerfOptions& perf,
                                                Group& group) {
  const auto place = parse_host_port(how.address);
  if (!place)
    refuse("--switch: expected an address and a port, such as 127.0.0.1:4711, got \"{}\"", how.address);
  live::SwitchClientOptions options;
  options.address = {place->host, place->port};
  options.job = how.job;
  const std::string seat = group.host_of(group.rank());  // its host's name, and " pid " and so on
  const std::uint64_t own = live::switch_number(options.address, seat.substr(0, seat.find(' ')));
  std::vector<std::uint64_t> all(static_cast<std::size_t>(group.size()));
  const std::vector<std::size_t> ones(all.size(), 1);
  group.all_gather(&own, all.data(), ones, DataType::u64);
  live::sit_down(options, static_cast<std::size_t>(group.rank()), all);
  options.join_deadline_ns =
      live::now_ns() + (perf.timeout.count() > 0 ? perf.timeout.count() * live::kMillisecondNs : kJoinNs);
  options.ordered = how.ordered;
  options.block = static_cast<std::uint16_t>(how.block);
  options.tolerant = perf.may_lose.value_or(0) > 0;
  options.key_from = "--switch-key-file";
  if (!how.key_file.empty())
    options.key = wire::secret_from_text(live::read_job_key("--switch-key-file", how.key_file).text);
  options.encrypted = options.key && switch_of("TALWEG_ENCRYPT");
  return options;
}

std::string describe(const wire::SwitchOpened& terms, int racks) {
  constexpr const char* kProtected[] = {"with a checksum", "with a tag", "encrypted"};
  return fmt::format("switch: {}{} thread{} x {} slots x {} columns of {} elements, datagrams {}",
                     racks == 1 ? "" : fmt::format("one for each of {} racks, and one above: ", racks),
                     terms.threads, terms.threads == 1 ? "" : "s", terms.slots, terms.columns, terms.block,
                     kProtected[static_cast<std::size_t>(terms.protection)]);
}

Timing measure_switch(Group& group, live::SwitchClient& client, const PerfCase& c, const PerfOptions& options,
                      const SwitchPerfOptions& how, bool in_place, MissingBlocks& missing, int racks) {
  const double may_lose = options.may_lose.value_or(0);
  SwitchVectors vectors(c, how, client.terms().block, may_lose > 0 || how.floats_as.has_value());
  const std::int64_t test_ns =
      options.timeout.count() > 0 ? live::now_ns() + options.timeout.count() * live::kMillisecondNs : 0;
  live::SwitchVector call{vectors.in(),           in_place ? vectors.in() : vectors.out(),
                          vectors.bytes(),        vectors.bytes(),
                          format_of(c.type, how), how.sparse.by_blocks()};
  const protocol::Tolerance tolerance{protocol::millionths(may_lose), vectors.residual()};
  std::uint64_t blocks[3] = {};  // of this rank, missing of these, and above what may be
  const auto run = [&] {
    client.all_reduce(call, test_ns != 0 ? test_ns : live::now_ns() + kUsualDeadlineNs);
    const auto its = client.missing();
    blocks[0] += its.blocks;
    blocks[1] += its.own;
    blocks[2] += its.own - std::min(its.own, its.blocks * call.tolerance.ppm / 1'000'000);
  };
  const auto fresh = vectors.input_of(group.rank(), 0);
  const auto refill = [&] { std::memcpy(vectors.in(), fresh.data(), fresh.size()); };
  refill();
  // In place is the second side: the switch knows already how long it waits for who is late.
  const int exact = options.may_lose && !in_place ? static_cast<int>(protocol::LingerTime::kWarmUp) : 0;
  for (int i = 0; i < exact + options.warmup; ++i) {
    if (i == exact || how.floats_as) call.tolerance = tolerance;
    if (i < exact) call.tolerance.ppm = 0;
    run();
    if (in_place) refill();
  }
  call.tolerance = tolerance;
  group.barrier();
  blocks[0] = blocks[1] = 0;
  // In place a sum is the next one's input, and other blocks of it would hold something: each is given its
  // vector again, in time that is not counted.
  std::vector<double> times;
  double total = 0;
  for (int i = 0; i < options.iterations; ++i) {
    if (options.blocking == Blocking::barrier_outside || in_place) {
      if (in_place) refill();
      group.barrier();
    }
    const auto begin = Clock::now();
    run();
    if (options.blocking == Blocking::wait_barrier) group.barrier();
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    total += times.back();
  }
  group.barrier();
  Timing timing = timing_of(group, options, std::move(times), total);
  group.all_reduce(blocks, blocks, 2, DataType::u64, ReduceOp::sum);
  missing.all += blocks[0];
  missing.missing += blocks[1];
  if (options.check == 0) return timing;
  std::uint64_t wrong = 0;
  for (int i = 0; i < options.check; ++i) {
    const auto seed = static_cast<std::uint64_t>(i) + 1;
    const auto input = vectors.input_of(group.rank(), seed);
    std::memset(vectors.out(), kPoisonByte, vectors.bytes());
    std::memcpy(vectors.in(), input.data(), input.size());
    if (how.floats_as) {
      const CodedCheck coded(c, *how.floats_as, client.terms().block, vectors.residual(), input);
      run();
      wrong += coded.count_wrong(group, call.out, racks);
    } else {
      std::vector<std::byte> expected = vectors.sum(seed);
      vectors.add(expected.data(), vectors.residuals(group));
      run();
      vectors.add(call.out, vectors.residuals(group));
      wrong += vectors.count_wrong(call.out, expected);
    }
    if (!in_place) wrong += vectors.count_wrong(vectors.in(), input);
  }
  wrong += blocks[2] * client.terms().block;
  group.all_reduce(&wrong, &wrong, 1, DataType::u64, ReduceOp::sum);
  timing.wrong = wrong;
  return timing;
}

}  // namespace talweg::study
