#include <gmock/gmock.h>

#include "forest/requests.h"
#include "talweg/error.h"

namespace talweg::forest {
namespace {

constexpr const char* kGood = R"(planner: hand
nodes: 2
request: {op: all_reduce, ranks: 2, counts: [8], element_size: 4}
trees:
  - {slice: [0, 8], root: 0, chunk: 4, contributors: [0, 1], receivers: [0, 1],
     up: [[1, 0]], down: [[1, 0]]}
)";

std::string complaint(const std::string& from, const std::string& to) {
  std::string text = kGood;
  const auto position = text.find(from);
  if (position == std::string::npos) return "the good file does not have " + from;
  try {
    parse_forest(text.replace(position, from.size(), to), "f.yaml");
  } catch (const Error& error) {
    return error.code() == ErrorCode::bad_file ? error.what() : "wrong code";
  }
  return "accepted";
}

TEST(ForestFile, ReadsWhatItSays) {
  const Forest forest = parse_forest(kGood, "f.yaml");
  EXPECT_EQ(forest.planner, "hand");
  EXPECT_EQ(forest.nodes, 2);
  EXPECT_EQ(forest.request.counts, std::vector<std::int64_t>{8});
  ASSERT_EQ(forest.trees.size(), 1u);
  EXPECT_EQ(forest.trees[0], (Tree{.slice = {0, 8},
                                   .root = 0,
                                   .contributors = {0, 1},
                                   .receivers = {0, 1},
                                   .up = {{1, 0}},
                                   .down = {{1, 0}},
                                   .chunk = 4}));
}

TEST(ForestFile, EveryForestIsReadBackTheSame) {
  for (const Planner& planner : planners()) {
    for (const Collective op : all_operations()) {
      for (const int ranks : {1, 4, 5}) {
        const Request request = make_request(op, ranks, 100, true, ranks - 1);
        if (!planner.serves(request)) continue;
        const Forest forest = planner.plan(request, gigabit_star(ranks));
        EXPECT_EQ(parse_forest(to_yaml(forest), "y"), forest) << to_yaml(forest);
        EXPECT_EQ(parse_forest(to_json(forest), "j"), forest) << to_json(forest);
      }
    }
  }
  const Forest bare{
      .planner = "null", .request = make_request(Collective::broadcast, 1, 0), .nodes = 1, .trees = {}};
  EXPECT_EQ(parse_forest(to_yaml(bare), "y"), bare);
}

TEST(ForestFile, SaysWhereItIsWrongAndWhatWasExpected) {
  EXPECT_EQ(complaint("op: all_reduce", "op: all_produce"),
            "f.yaml:3: request.op: expected a collective such as all_reduce, got \"all_produce\"");
  EXPECT_EQ(complaint("ranks: 2", "ranks: 0"),
            "f.yaml:3: request.ranks: expected an integer from 1 to 65536, got \"0\"");
  EXPECT_EQ(complaint("counts: [8]", "counts: [8, 8]"),
            "f.yaml:3: request: all_reduce: expected 1 counts, got 2");
  EXPECT_EQ(complaint("[0, 8]", "[0, 8, 1]"),
            "f.yaml:5: trees[0].slice: expected [offset, count], got a list of 3");
  EXPECT_EQ(complaint("[0, 8]", "[0, -8]"),
            "f.yaml:5: trees[0].slice[1]: expected an integer of at least 0, got \"-8\"");
  EXPECT_EQ(complaint("[[1, 0]]", "[[1, a]]"),
            "f.yaml:6: trees[0].up[0][1]: expected an integer from 0 to 65535, got \"a\"");
  EXPECT_EQ(complaint("chunk: 4", "chunk: 0"),
            "f.yaml:5: trees[0].chunk: expected an integer of at least 1, got \"0\"");
  EXPECT_EQ(complaint("chunk: 4, ", ""), "f.yaml:5: trees[0]: expected a key \"chunk\"");
  EXPECT_EQ(
      complaint("root: 0", "rot: 0"),
      "f.yaml:5: trees[0]: unknown key \"rot\": expected slice, root, chunk, contributors, receivers, up, "
      "down");
  EXPECT_EQ(complaint("planner: hand", "planner: [hand]"),
            "f.yaml:1: planner: expected a word, got a list of 1");
}

TEST(ForestFile, AFileThatIsNotThereIsAnsweredWithItsPath) {
  try {
    load_forest("/nonexistent/f.yaml");
    FAIL() << "read";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_file);
    EXPECT_THAT(error.what(), testing::HasSubstr("/nonexistent/f.yaml"));
  }
}

}  // namespace
}  // namespace talweg::forest
