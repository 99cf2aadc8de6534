#include "cli/perf_options.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "talweg/error.h"

namespace talweg::cli {
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
  EXPECT_EQ(options.reductions.size(), 5u);
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
  EXPECT_THAT(refusal({"all_reduce", "-b", "0", "-e", "8", "-i", "2"}), HasSubstr("-b: 2 B is less"));
  EXPECT_THAT(parsed({"all_reduce", "-b", "1", "-e", "1", "-d", "int8"}).sizes, ElementsAre(1));
  EXPECT_THAT(parsed({"all_gather", "-b", "4", "-e", "4"}).sizes, ElementsAre(4));  // rounded down by ranks
  EXPECT_THAT(parsed({"all_reduce", "-b", "8", "-e", "8", "-d", "all"}).sizes, ElementsAre(8));
}

TEST(PerfOptions, BadValuesAreRefusedInOneLineThatNamesTheFlag) {
  EXPECT_THAT(refusal({"all_reduce", "-b", "2M", "-e", "1M"}), HasSubstr("-b 2M is larger than -e 1M"));
  EXPECT_THAT(refusal({"all_reduce", "-b", "many"}), HasSubstr("-b: "));
  EXPECT_THAT(refusal({"all_reduce", "-d", "float128"}),
              HasSubstr("-d: no data type is called \"float128\""));
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

}  // namespace
}  // namespace talweg::cli
