#include "formats/msccl.h"

#include <gmock/gmock.h>

#include <random>
#include <set>

#include "forest/planner.h"
#include "forest/requests.h"
#include "forest/trees.h"
#include "formats/msccl_chunks.h"
#include "formats/msccl_interpreter.h"
#include "sanitized.h"
#include "talweg/error.h"

namespace talweg::formats {
namespace {

using testing::HasSubstr;

const Collective kExpressible[] = {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
                                   Collective::broadcast, Collective::reduce};

// What every GPU's output must hold when the program ran; "" if it does. A slow second definition.
std::string wrong(const MscclRun& run, const forest::Request& request, std::size_t inputs) {
  if (!run.problem.empty()) return run.problem;
  const auto ranks = static_cast<std::size_t>(request.ranks);
  for (std::size_t g = 0; g < ranks; ++g) {
    if (request.op == Collective::reduce && g != static_cast<std::size_t>(request.root)) continue;
    for (std::size_t c = 0; c < run.outputs[g].size(); ++c) {
      MscclChunk expected(ranks * inputs, 0);
      switch (request.op) {
        case Collective::all_gather:
          expected[c / inputs * inputs + c % inputs] = 1;
          break;
        case Collective::broadcast:
          expected[static_cast<std::size_t>(request.root) * inputs + c] = 1;
          break;
        default: {
          const std::size_t chunk = request.op == Collective::reduce_scatter ? g * (inputs / ranks) + c : c;
          for (std::size_t from = 0; from < ranks; ++from) expected[from * inputs + chunk] = 1;
        }
      }
      if (run.outputs[g][c] != expected)
        return fmt::format("GPU {}, output chunk {} holds something else", g, c);
    }
  }
  return "";
}

// In and out of place, with small and large connections, in several orders.
void expect_computes(const Forest& forest, const MscclLimits& limits = {}) {
  const MscclProgram program = to_msccl(forest, limits);
  const std::string xml = formats::to_xml(program);
  std::size_t inputs = 0;
  for (const MscclGpu& gpu : program.gpus)
    inputs = std::max(inputs, static_cast<std::size_t>(gpu.input_chunks));
  for (const bool in_place : {false, true})
    for (const int slots : {1, 8})
      for (std::uint32_t seed = 0; seed < 3; ++seed) {
        const MscclRun run = run_msccl(xml, in_place, slots, seed);
        ASSERT_EQ(wrong(run, forest.request, inputs), "")
            << describe(forest.planner, forest.request) << (in_place ? " in place" : " out of place") << "\n"
            << xml;
        EXPECT_LE(run.blocks, static_cast<std::size_t>(limits.blocks));
        EXPECT_LE(run.channels, limits.channels);
      }
}

std::string refusal(const Forest& forest, const MscclLimits& limits = {}) {
  try {
    formats::to_msccl(forest, limits);
  } catch (const Error& error) {
    return error.code() == ErrorCode::unsupported ? error.what() : "wrong code";
  }
  return "accepted";
}

Forest plan(const std::string& planner, const forest::Request& request) {
  return forest::find_planner(planner).plan(request, forest::gigabit_star(request.ranks));
}

TEST(Msccl, EveryPlannersTreesComputeTheirCollective) {
  int programs = 0;
  for (const forest::Planner& planner : forest::planners())
    for (const Collective op : kExpressible)
      for (const int ranks : {1, 2, 3, 4, 5, 8}) {
        const forest::Request request = forest::make_request(op, ranks, 960, false, ranks / 2);
        if (!planner.serves(request)) continue;
        const Forest forest = planner.plan(request, forest::gigabit_star(ranks));
        if (forest.sums_once || planner.name == "one_hop") continue;
        expect_computes(forest);
        ++programs;
      }
  EXPECT_GT(programs, 100);
}

// A random tree over all ranks.
forest::Shape random_shape(int ranks, forest::NodeId root, std::mt19937& random) {
  forest::Shape shape(static_cast<std::size_t>(ranks));
  std::vector<forest::NodeId> order;
  for (forest::NodeId r = 0; r < ranks; ++r)
    if (r != root) order.push_back(r);
  std::shuffle(order.begin(), order.end(), random);
  shape[static_cast<std::size_t>(root)] = root;
  std::vector<forest::NodeId> placed{root};
  for (const forest::NodeId r : order) {
    shape[static_cast<std::size_t>(r)] = placed[random() % placed.size()];
    placed.push_back(r);
  }
  return shape;
}

// Trees of random shapes, roots and shares, whose ways up and down differ.
Forest random_forest(Collective op, std::uint32_t seed) {
  std::mt19937 random(seed);
  const int ranks = 2 + static_cast<int>(random() % 6);
  const forest::Request request = forest::make_request(
      op, ranks, 1000, false, static_cast<forest::NodeId>(random() % static_cast<unsigned>(ranks)));
  std::vector<forest::Slice> slices;
  if (request.counts.size() > 1) {
    slices = forest::split_by_count(request);
  } else {
    std::vector<double> weights;
    for (unsigned i = 0; i < 1 + random() % 12; ++i)
      weights.push_back(0.5 + static_cast<double>(random() % 100) / 20);
    slices = forest::split_by_weight(request, weights);
  }
  std::vector<forest::Tree> trees;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    forest::NodeId root = static_cast<forest::NodeId>(random() % static_cast<unsigned>(ranks));
    if (op == Collective::broadcast || op == Collective::reduce) root = request.root;
    if (request.counts.size() > 1) root = static_cast<forest::NodeId>(i);
    forest::Tree tree = collective_tree(request, slices[i], root, random_shape(ranks, root, random));
    const forest::Tree other = collective_tree(request, slices[i], root, random_shape(ranks, root, random));
    tree.down = other.down;
    tree.chunk = std::max<std::int64_t>(1, tree.slice.count);
    trees.push_back(std::move(tree));
  }
  return forest::useful_forest("random", request, std::move(trees));
}

TEST(Msccl, RandomForestsComputeTheirCollectiveWithManyChannelsAndWithFew) {
  for (const Collective op : kExpressible)
    for (std::uint32_t seed = 0; seed < fewer(12U); ++seed) {
      SCOPED_TRACE(fmt::format("{} seed {}", name(op), seed));
      const Forest forest = random_forest(op, seed);
      expect_computes(forest);
      expect_computes(forest, {.channels = 1});
      expect_computes(forest, {.channels = 3, .count = 2});
    }
}

TEST(Msccl, ARelayThatIsNoReceiverKeepsItsChunksInScratch) {
  forest::Request request = forest::make_request(Collective::reduce_scatter, 3, 10);
  Forest forest{.planner = "relay", .request = request, .nodes = 3, .trees = {}};
  for (forest::NodeId r = 0; r < 3; ++r) {
    // Everybody sends to rank 0, which passes the sum of part r on through rank (r + 1) % 3.
    forest::Tree tree{.slice = {10 * r, 10},
                      .root = 0,
                      .contributors = {0, 1, 2},
                      .receivers = {r},
                      .up = {{1, 0}, {2, 0}},
                      .down = {},
                      .chunk = 10};
    const forest::NodeId relay = 3 - r;
    if (r != 0) tree.down = {{relay, 0}, {r, relay}};
    forest.trees.push_back(tree);
  }
  expect_computes(forest);
  EXPECT_GT(formats::to_msccl(forest).gpus[0].scratch_chunks, 0);
  for (const MscclGpu& gpu :
       to_msccl(plan("ring", forest::make_request(Collective::reduce_scatter, 4, 10))).gpus)
    EXPECT_EQ(gpu.scratch_chunks, 0) << "what is passed on at once need not be kept";
}

TEST(Msccl, ChainsAreFusedAndNothingSeparatesReductionFromBroadcast) {
  const MscclProgram program = to_msccl(plan("chain", forest::make_request(Collective::all_reduce, 4, 64)));
  std::multiset<std::string> types;
  for (const MscclGpu& gpu : program.gpus)
    for (const MscclThreadBlock& block : gpu.blocks)
      for (const MscclStep& step : block.steps) types.insert(step.type);
  // A chain of four: the far end sends, two pass on, the root turns, two pass on, the far end receives.
  const auto trees = plan("chain", forest::make_request(Collective::all_reduce, 4, 64)).trees.size();
  EXPECT_EQ(types.count("s"), trees);
  EXPECT_EQ(types.count("r"), trees);
  EXPECT_EQ(types.count("rrs") + types.count("rcs") + types.count("rrcs") + types.count("rrc"),
            types.size() - 2 * trees);
  EXPECT_GT(types.count("rrs"), 0u);
  EXPECT_GT(types.count("rcs"), 0u);
}

TEST(Msccl, ARingBeyondTheLimitsOfChannelsAndBlocksSharesThem) {
  const MscclProgram wide = to_msccl(plan("ring", forest::make_request(Collective::all_reduce, 8, 960)));
  EXPECT_EQ(wide.channels, 8);
  expect_computes(plan("ring", forest::make_request(Collective::all_reduce, 40, 40 * 64)));
  const MscclLimits tight{.channels = 2, .blocks = 4};
  expect_computes(plan("ring", forest::make_request(Collective::all_reduce, 8, 960)), tight);
}

TEST(Msccl, SharesAreRoundedToFewChunks) {
  const forest::Request request = forest::make_request(Collective::all_reduce, 2, 1'000'000);
  const double weights[] = {0.499, 0.251, 0.25};
  std::vector<forest::Tree> trees;
  for (const forest::Slice& slice : split_by_weight(request, weights))
    trees.push_back(collective_tree(request, slice, 0, forest::star_shape(2, 0)));
  for (forest::Tree& tree : trees) tree.chunk = 64;
  const Forest chunks = formats::in_chunks(forest::useful_forest("x", request, trees), 256);
  EXPECT_EQ(chunks.request.counts[0], 4);
  EXPECT_EQ(chunks.trees[0].slice.count, 2);
  EXPECT_EQ(chunks.trees[2].slice, (forest::Slice{3, 1}));
}

TEST(Msccl, WhatItCannotExpressIsRefusedByName) {
  const auto all_reduce = forest::make_request(Collective::all_reduce, 4, 64);
  EXPECT_THAT(refusal(plan("direct", forest::make_request(Collective::all_to_all, 4, 8))),
              HasSubstr("all_to_all"));
  EXPECT_THAT(refusal(plan("one_hop", all_reduce)), HasSubstr("one_hop"));
  EXPECT_THAT(refusal(plan("recursive_doubling", all_reduce)), HasSubstr("recursive_doubling share sums"));
  EXPECT_THAT(refusal(plan("ring", forest::make_request(Collective::all_gather, 4, 64, true))),
              HasSubstr("counts differ"));
  EXPECT_THAT(refusal(plan("ring", forest::make_request(Collective::all_reduce, 4, 0))), HasSubstr("empty"));
  EXPECT_THAT(refusal(plan("ring", all_reduce), {.chunks = 3}), HasSubstr("too unequal for 3 chunks"));
  EXPECT_THAT(refusal(plan("ring", all_reduce), {.blocks = 0}),
              HasSubstr("thread blocks on GPU 0: expected at most 0"));
  Forest inner = plan("star", all_reduce);
  inner.nodes = 5;
  for (forest::Tree& tree : inner.trees) {
    tree.root = 4;
    tree.up = {{0, 4}, {1, 4}, {2, 4}, {3, 4}};
    tree.down = tree.up;
  }
  EXPECT_THAT(refusal(inner), HasSubstr("node 4 is no rank"));
}

// What is said about a good program after `change`.
template <class Change>
std::string complaint(const Change& change) {
  formats::MscclProgram program =
      formats::to_msccl(plan("binomial", forest::make_request(Collective::all_reduce, 4, 64)));
  change(program);
  try {
    formats::check_executable(program);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

MscclThreadBlock& block_that(MscclProgram& program, const char* type) {
  for (MscclGpu& gpu : program.gpus)
    for (MscclThreadBlock& block : gpu.blocks)
      if (block.steps[0].type == type) return block;
  ADD_FAILURE() << "no block does " << type;
  return program.gpus[0].blocks[0];
}

TEST(MscclCheck, FindsEveryKindOfBrokenProgram) {
  EXPECT_EQ(complaint([](MscclProgram&) {}), "accepted");
  EXPECT_THAT(complaint([](MscclProgram& p) { p.channels = 33; }), HasSubstr("33 channels"));
  EXPECT_THAT(complaint([](MscclProgram& p) { block_that(p, "s").channel = 7; }),
              HasSubstr("channel does not exist"));
  EXPECT_THAT(complaint([](MscclProgram& p) { block_that(p, "s").send = 9; }), HasSubstr("no other GPU"));
  EXPECT_THAT(complaint([](MscclProgram& p) { p.gpus[0].blocks[0].send = 0; }), HasSubstr("no other GPU"));
  EXPECT_THAT(complaint([](MscclProgram& p) { block_that(p, "s").send = -1; }),
              HasSubstr("sends without a peer"));
  EXPECT_THAT(complaint([](MscclProgram& p) { block_that(p, "r").receive = -1; }),
              HasSubstr("receives without a peer"));
  EXPECT_THAT(complaint([](MscclProgram& p) { block_that(p, "s").steps[0].type = "x"; }), HasSubstr("\"x\""));
  EXPECT_THAT(complaint([](MscclProgram& p) { block_that(p, "s").steps[0].count = 72; }),
              HasSubstr("72 chunks"));
  EXPECT_THAT(complaint([](MscclProgram& p) { block_that(p, "s").steps[0].source.offset = 64; }),
              HasSubstr("buffer"));
  EXPECT_THAT(complaint([](MscclProgram& p) { block_that(p, "s").steps.clear(); }), HasSubstr("0 steps"));
  EXPECT_THAT(complaint([](MscclProgram& p) { p.gpus[0].blocks.push_back(p.gpus[0].blocks[0]); }),
              HasSubstr("another block"));
  EXPECT_THAT(complaint([](MscclProgram& p) { block_that(p, "s").steps[0].awaited_block = 99; }),
              HasSubstr("does not exist"));
  EXPECT_THAT(complaint([](MscclProgram& p) {
                for (formats::MscclGpu& gpu : p.gpus)
                  for (formats::MscclThreadBlock& block : gpu.blocks)
                    for (formats::MscclStep& step : block.steps) step.is_awaited = false;
              }),
              HasSubstr("does not tell"));
  EXPECT_THAT(complaint([](MscclProgram& p) {
                auto& steps = block_that(p, "s").steps;
                steps.push_back(steps[0]);
                steps.push_back(steps[0]);
              }),
              testing::AnyOf(HasSubstr("waits for ever"), HasSubstr("all that is sent"),
                             HasSubstr("chunks of a message")));
}

TEST(MscclCheck, FindsADeadlockBetweenTwoGpus) {
  formats::MscclProgram program{
      .name = "stuck", .collective = "allreduce", .chunks = 1, .channels = 1, .gpus = {}};
  program.gpus.resize(2);
  for (int g = 0; g < 2; ++g) {
    formats::MscclGpu& gpu = program.gpus[static_cast<std::size_t>(g)];
    gpu.input_chunks = gpu.output_chunks = 1;
    gpu.blocks = {{.send = 1 - g,
                   .receive = 1 - g,
                   .channel = 0,
                   .steps = {{.type = "r", .source = {}, .target = {'o', 0}},
                             {.type = "s", .source = {}, .target = {}}}}};
  }
  try {
    formats::check_executable(program);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("GPU 0, block 0, step 0: waits for ever"));
  }
  std::swap(program.gpus[0].blocks[0].steps[0], program.gpus[0].blocks[0].steps[1]);
  EXPECT_NO_THROW(formats::check_executable(program));
}

TEST(Msccl, TheXmlOfASmallProgramIsThis) {
  EXPECT_EQ(
      formats::to_xml(formats::to_msccl(plan("star", forest::make_request(Collective::broadcast, 2, 8)))),
      R"(<algo name="star-broadcast" proto="Simple" nchannels="1" nchunksperloop="1" ngpus="2" coll="broadcast" inplace="1" outofplace="1" minBytes="0" maxBytes="0">
  <gpu id="0" i_chunks="1" o_chunks="1" s_chunks="0">
    <tb id="0" send="-1" recv="-1" chan="0">
      <step s="0" type="cpy" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
    <tb id="1" send="1" recv="-1" chan="0">
      <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
  </gpu>
  <gpu id="1" i_chunks="0" o_chunks="1" s_chunks="0">
    <tb id="0" send="-1" recv="0" chan="0">
      <step s="0" type="r" srcbuf="o" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
  </gpu>
</algo>
)");
}

}  // namespace
}  // namespace talweg::formats
