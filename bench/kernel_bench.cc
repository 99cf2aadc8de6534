// How fast one core sums and checksums, from a chunk in the cache to a tensor in memory. For a sum, bytes per
// second count one operand: the memory moves three times as much.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <vector>

#include "base/crc32c.h"
#include "kernel/reduce.h"

namespace {

using talweg::DataType;

template <DataType type>
void sum_in_place(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  std::vector<unsigned char> a(bytes), b(bytes);
  const auto sum = talweg::kernel::reduce_function(type, talweg::ReduceOp::sum);
  for (auto _ : state) {
    sum(a.data(), a.data(), b.data(), bytes / talweg::size_of(type));
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
  state.SetLabel(talweg::kernel::target_name());
}

void checksum(benchmark::State& state) {
  const std::vector<unsigned char> data(static_cast<std::size_t>(state.range(0)), 1);
  for (auto _ : state) benchmark::DoNotOptimize(talweg::crc32c(data.data(), data.size()));
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Arg(4 << 10)->Arg(256 << 10)->Arg(64 << 20);
}

BENCHMARK(sum_in_place<DataType::f32>)->Name("sum/f32")->Apply(sizes);
BENCHMARK(sum_in_place<DataType::bf16>)->Name("sum/bf16")->Apply(sizes);
BENCHMARK(sum_in_place<DataType::f16>)->Name("sum/f16")->Apply(sizes);
BENCHMARK(checksum)->Name("crc32c")->Apply(sizes)->Arg(64 << 10);

}  // namespace

BENCHMARK_MAIN();
