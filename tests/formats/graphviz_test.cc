#include "formats/graphviz.h"

#include <gmock/gmock.h>

#include "forest/planner.h"
#include "forest/requests.h"

namespace talweg::formats {
namespace {

using testing::HasSubstr;

TEST(Graphviz, DrawsLinksOfBothWaysOnceAndWhatDiffersTwice) {
  cluster::Cluster cluster = forest::gigabit_star(2);
  cluster.nodes[0].name = "a\"b";
  cluster.links[2].capacity = {2e8};
  cluster.groups = {{"nic", {1e9}, {2}}};
  EXPECT_EQ(formats::to_dot(cluster), R"(digraph cluster {
  node [fontname="sans-serif"];
  edge [fontname="sans-serif", fontsize=9];
  "a\"b" [shape=box];
  "host1" [shape=box];
  "switch" [shape=ellipse];
  "a\"b" -> "switch" [label="1 Gbit/s\n30 us", dir=both];
  "host1" -> "switch" [label="200 Mbit/s\n30 us\nnic 1 Gbit/s", style=dashed];
  "switch" -> "host1" [label="1 Gbit/s\n30 us"];
}
)");
}

TEST(Graphviz, DrawsEveryTreeOfAForest) {
  const forest::Request request = forest::make_request(Collective::all_reduce, 3, 30);
  const std::string text =
      formats::to_dot(forest::find_planner("ring").plan(request, forest::gigabit_star(3)));
  EXPECT_THAT(text, HasSubstr("label=\"ring, all_reduce\""));
  for (const char* part : {"cluster_0", "cluster_1", "cluster_2", "elements 20 to 29", "peripheries=2",
                           "t0n1 -> t0n2;", "[style=dashed]"})
    EXPECT_THAT(text, HasSubstr(part));
}

}  // namespace
}  // namespace talweg::formats
