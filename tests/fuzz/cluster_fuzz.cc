// Cluster files, in YAML and JSON: refused with an Error, or read, and then the same after a round trip.
#include "cluster/cluster.h"
#include "fuzz/fuzz.h"

using namespace talweg;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::may_refuse([&] {
    const std::string text(reinterpret_cast<const char*>(data), size);
    const cluster::Cluster cluster = cluster::parse_cluster(text, "f.yaml");
    fuzz::require(cluster::parse_cluster(to_yaml(cluster), "again.yaml") == cluster);
  });
  return 0;
}
