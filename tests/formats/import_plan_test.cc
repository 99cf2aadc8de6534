// Networks that were imported are networks like any other: planners work on them.
#include <gmock/gmock.h>

#include "forest/cost.h"
#include "forest/planner.h"
#include "forest/requests.h"
#include "forest/verify.h"
#include "formats/import.h"

namespace talweg::formats {
namespace {

TEST(ImportedNetworks, ArePlannedOn) {
  const std::string folder = std::string(TALWEG_SOURCE_DIR) + "/examples/clusters/";
  for (const char* file : {"four_gpus.nccl.xml", "dgx1_1MB.taccl.json", "two_servers.adapcc.xml",
                           "torus_switch.astra_sim.yml", "rack8.topo"}) {
    SCOPED_TRACE(file);
    const cluster::Cluster network = formats::load_any(folder + file);
    for (const std::int64_t count : {16, 1 << 22}) {
      const forest::Forest forest =
          forest::plan_best(forest::make_request(Collective::all_reduce, network.workers(), count), network);
      EXPECT_NO_THROW(forest::verify(forest, &network));
      EXPECT_GT(forest::predict_seconds(forest, network), 0);
    }
  }
}

}  // namespace
}  // namespace talweg::formats
