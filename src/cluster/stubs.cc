#include "cluster/stubs.h"

#include "base/at.h"

namespace talweg::cluster {

std::vector<Stub> find_stubs(const Cluster& cluster) {
  std::vector<int> out(cluster.nodes.size()), in(cluster.nodes.size());
  std::vector<Stub> stubs(cluster.nodes.size());
  for (std::size_t i = 0; i < cluster.links.size(); ++i) {
    const Link& link = cluster.links[i];
    ++out[at(link.from)];
    ++in[at(link.to)];
    stubs[at(link.from)].up = stubs[at(link.to)].down = static_cast<int>(i);
    stubs[at(link.from)].at = link.to;
  }
  const int workers = cluster.workers();
  for (int node = 0; node < static_cast<int>(stubs.size()); ++node) {
    Stub& stub = stubs[at(node)];
    const bool one_neighbour = node < workers && out[at(node)] == 1 && in[at(node)] == 1 &&
                               stub.at >= workers && cluster.links[at(stub.down)].from == stub.at;
    if (!one_neighbour) stub = {};
  }
  return stubs;
}

}  // namespace talweg::cluster
