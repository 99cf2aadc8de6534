#include "cli/perf_flags.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "talweg/error.h"

namespace talweg::cli {

using namespace study;

namespace {

using testing::ElementsAre;
using testing::HasSubstr;

PerfOptions parsed(std::vector<std::string> arguments) {
  CLI::App app;
  PerfFlags flags;
  flags.add_to(app);
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes a vector back to front
  app.parse(arguments);
  return flags.checked();
}

std::string refusal(const std::vector<std::string>& arguments) {
  try {
    parsed(arguments);
  } catch (const CLI::ParseError& error) {
    return error.what();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "not refused";
}

TEST(PerfOptions, TheColumnsAreThoseOfNcclTestsUnlessAllAreAskedFor) {
  EXPECT_EQ(parsed({"all_reduce"}).columns, PerfColumns::nccl);
  EXPECT_EQ(parsed({"all_reduce", "--wide"}).columns, PerfColumns::all);
}

TEST(PerfOptions, DefaultsAreThoseOfNcclTests) {
  const auto options = parsed({"all_reduce"});
  EXPECT_THAT(options.sizes, ElementsAre(32u << 20));
  EXPECT_EQ(options.iterations, 20);
  EXPECT_EQ(options.warmup, 1);
  EXPECT_EQ(options.check, 1);
  EXPECT_EQ(options.average, Average::mean);
  EXPECT_THAT(options.types, ElementsAre(DataType::f32));
  EXPECT_THAT(options.reductions, ElementsAre(ReduceOp::sum));
}

TEST(PerfOptions, CollectivesMayBeWrittenWithUnderscoresHyphensOrNeither) {
  EXPECT_EQ(parsed({"reduce_scatter"}).op, Collective::reduce_scatter);
  EXPECT_EQ(parsed({"reduce-scatter"}).op, Collective::reduce_scatter);
  EXPECT_EQ(parsed({"reducescatter"}).op, Collective::reduce_scatter);
  EXPECT_EQ(parsed({"alltoall"}).op, Collective::all_to_all);
  EXPECT_EQ(parsed({"sendrecv"}).op, Collective::send_recv);
}

TEST(PerfOptions, SizesTakeBinarySuffixesAndAFactor) {
  EXPECT_THAT(parsed({"all_reduce", "-b", "4K", "-e", "64K", "-f", "4"}).sizes,
              ElementsAre(4096, 16384, 65536));
  EXPECT_THAT(parsed({"all_reduce", "-b", "1M", "-e", "3M"}).sizes, ElementsAre(1 << 20, 2 << 20, 3 << 20));
}

TEST(PerfOptions, OneBoundAloneMovesTheOthersDefaultOutOfItsWay) {
  EXPECT_THAT(parsed({"all_reduce", "-e", "1M"}).sizes, ElementsAre(1 << 20));
  EXPECT_THAT(parsed({"all_reduce", "-b", "64M"}).sizes, ElementsAre(64 << 20));
}

TEST(PerfOptions, AllMeansEveryTypeReductionAndRoot) {
  const auto options = parsed({"reduce", "-d", "all", "-o", "all", "-r", "all"});
  EXPECT_EQ(options.types.size(), static_cast<std::size_t>(kDataTypes));
  EXPECT_EQ(options.reductions.size(), static_cast<std::size_t>(kReduceOps));
  EXPECT_TRUE(options.all_roots);
}

TEST(PerfOptions, ABarrierHasOneLineAndNothingToCheck) {
  const auto options = parsed({"barrier", "-b", "4", "-e", "1M", "-f", "2"});
  EXPECT_THAT(options.sizes, ElementsAre(0));
  EXPECT_EQ(options.check, 0);
}

TEST(PerfOptions, ASizeHoldsAtLeastOneElement) {
  EXPECT_EQ(refusal({"all_reduce", "-b", "1", "-e", "1"}), "-b: 1 B is less than one element of float (4 B)");
  EXPECT_EQ(refusal({"all_reduce", "-e", "7", "-d", "double"}),
            "-e: 7 B is less than one element of double (8 B)");
  EXPECT_EQ(refusal({"all_reduce", "-b", "0", "-e", "0"}), "-b: 0 B is less than one element of float (4 B)");
  EXPECT_EQ(refusal({"all_reduce", "-b", "1", "-e", "3", "-i", "1"}),
            "-e: 3 B is less than one element of float (4 B)");
  EXPECT_THAT(parsed({"all_reduce", "-b", "1", "-e", "1", "-d", "int8"}).sizes, ElementsAre(1));
}

TEST(PerfOptions, ALineHoldsAtLeastOneElementOfEachRanksPart) {
  const auto sizes = [](const std::vector<std::string>& arguments) {
    std::vector<std::size_t> all;
    for (const PerfCase& c : perf_cases(parsed(arguments), 4)) all.push_back(vector_bytes(c));
    return all;
  };
  EXPECT_THAT(sizes({"all_gather", "-b", "4", "-e", "64", "-f", "2"}), ElementsAre(16, 32, 64));
  EXPECT_THAT(sizes({"all_reduce", "-b", "1", "-e", "16", "-f", "2"}), ElementsAre(4, 8, 16));
  EXPECT_THAT(sizes({"barrier"}), ElementsAre(0));
  for (const PerfCase& c : perf_cases(parsed({"all_reduce", "-b", "4", "-e", "4", "-d", "all"}), 4))
    EXPECT_LE(size_of(c.type), 4u);
  const auto too_small = [](const std::vector<std::string>& arguments) -> std::string {
    try {
      perf_cases(parsed(arguments), 4);
    } catch (const Error& error) {
      return error.what();
    }
    return "not refused";
  };
  EXPECT_EQ(too_small({"all_gather", "-b", "12", "-e", "12"}),
            "-b: 12 B is less than one element of float (4 B) for each of 4 ranks, 16 B");
  EXPECT_EQ(too_small({"all_to_all", "-b", "4", "-e", "15", "-i", "1", "-d", "all"}), "not refused");
  EXPECT_THAT(too_small({"reduce_scatter", "-b", "3", "-e", "3", "-d", "int8"}), HasSubstr("4 ranks, 4 B"));
  EXPECT_THAT(too_small({"gather", "-b", "3", "-e", "3", "-d", "all"}), HasSubstr("uint8 (1 B)"));
}

TEST(PerfOptions, NumbersAreNumbersAndFitTheirType) {
  for (const char* bad : {"nan", "inf", "-1", "soon"})
    EXPECT_THAT(refusal({"all_reduce", "-T", bad}), HasSubstr("-T: expected a time such as")) << bad;
  EXPECT_EQ(parsed({"all_reduce", "--timeout", "250ms"}).timeout.count(), 250);
  EXPECT_THAT(refusal({"all_reduce", "-T", "1e-9"}), HasSubstr("-T 1e-9: expected 0 (off), or at least"));
  EXPECT_EQ(parsed({"all_reduce", "-T", "1e-3"}).timeout.count(), 1);
  EXPECT_EQ(parsed({"all_reduce", "-T", "0"}).timeout.count(), 0);
  for (const char* wrong :
       {"18446744073709551617", "4294967297", "010", "0x10", "nan", "1.5", "", " 1", "-1"})
    EXPECT_THAT(refusal({"all_reduce", std::string("--iters=") + wrong}), HasSubstr("--iters: ")) << wrong;
  EXPECT_THAT(refusal({"all_reduce", "-n", "010"}),
              HasSubstr("expected a whole number from 1 to 1073741824, got \"010\""));
}

TEST(PerfOptions, BadValuesAreRefusedInOneLineThatNamesTheFlag) {
  EXPECT_THAT(refusal({"all_reduce", "-b", "2M", "-e", "1M"}), HasSubstr("-b 2M is larger than -e 1M"));
  EXPECT_THAT(refusal({"all_reduce", "-b", "many"}), HasSubstr("-b: "));
  EXPECT_THAT(refusal({"all_reduce", "-d", "float128"}),
              HasSubstr("-d: no data type is called \"float128\": expected uint8, int8, uint16, "));
  EXPECT_THAT(refusal({"all_reduce", "-o", "median"}), HasSubstr("-o: no reduction is called \"median\""));
  EXPECT_THAT(refusal({"all_reduce", "-o", "bit_and", "-d", "float"}), HasSubstr("no meaning for -d float"));
  EXPECT_THAT(refusal({"broadcast", "-r", "first"}), HasSubstr("-r: expected a rank or all"));
  EXPECT_THAT(refusal({"all_everything"}), HasSubstr("no collective is called \"all_everything\""));
  EXPECT_THAT(refusal({"all_reduce", "-n", "0"}), HasSubstr("--iters"));
  EXPECT_THAT(refusal({"all_reduce", "-n", "5", "-K", "5"}), HasSubstr("-K 5 leaves none"));
  EXPECT_THAT(refusal({"all_reduce", "-b", "0", "-f", "2"}), HasSubstr("never grows"));
}

TEST(PerfOptions, FlagsThatOnlyAGpuHasAreRefusedByName) {
  EXPECT_THAT(refusal({"all_reduce", "-g", "8"}), HasSubstr("no GPUs"));
  EXPECT_THAT(refusal({"all_reduce", "-t", "2"}), HasSubstr("a rank is a process"));
  EXPECT_THAT(refusal({"all_reduce", "-G", "1"}), HasSubstr("CUDA graphs"));
  EXPECT_THAT(refusal({"all_reduce", "--ngpus", "1"}), HasSubstr("--ngpus"));
}

TEST(PerfOptions, SizesAndCollectivesAreSpelledAsInAllCommands) {
  const PerfOptions options =
      parsed({"--op", "broadcast", "--bytes", "4K..16K,1M", "--type", "half", "--reduction", "max"});
  EXPECT_EQ(options.op, Collective::broadcast);
  EXPECT_THAT(options.sizes, ElementsAre(4 << 10, 8 << 10, 16 << 10, 1 << 20));
  EXPECT_THAT(options.types, ElementsAre(DataType::f16));
  EXPECT_THAT(parsed({"all_reduce", "--bytes", "4K..64K", "--factor", "4"}).sizes,
              ElementsAre(4 << 10, 16 << 10, 64 << 10));
  EXPECT_THAT(refusal({"all_reduce", "--bytes", "4K", "-e", "8K"}),
              HasSubstr("--bytes says the same as -b and -e"));
  EXPECT_THAT(refusal({"all_reduce", "--op", "broadcast"}),
              HasSubstr("--op broadcast: the collective is all_reduce already"));
  EXPECT_THAT(refusal({"-b", "4K"}), HasSubstr("which collective? expected all_reduce, "));
}

TEST(PerfOptions, AnAverageIsAWordOrTheNumberOfNcclTests) {
  EXPECT_EQ(parsed({"all_reduce", "-a", "3"}).average, Average::max);
  EXPECT_EQ(parsed({"all_reduce", "--average", "max"}).average, Average::max);
  EXPECT_EQ(parsed({"all_reduce", "--average", "rank0"}).average, Average::rank0);
  EXPECT_THAT(refusal({"all_reduce", "-a", "4"}), HasSubstr("-a: expected rank0, mean, min, max"));
}

}  // namespace
}  // namespace talweg::cli
