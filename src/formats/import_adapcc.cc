// AdapCC's logical graph: which GPU hangs on which NIC of which server.
//
//   <graph version="two servers">
//     <server id="0" ip="10.0.0.1"> <nic id="0"> <gpu id="0"/> <gpu id="1"/> </nic> </server>
//     <server id="1" ip="10.0.0.2"> <nic id="1"> <gpu id="2"/> <gpu id="3"/> </nic> </server>
//   </graph>
//
// It says nothing about rates: AdapCC measures them. What stands here are assumptions to be replaced in the
// cluster file that this is converted to: 10 Gbit/s and 50 us between servers, 100 Gbit/s and 2 us inside
// one. GPUs are workers in the order of their ids; all NICs meet in one switch.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "formats/builder.h"
#include "formats/import.h"
#include "text/xml_reader.h"

namespace talweg::formats {
namespace {

constexpr Bandwidth kBetweenServers{10e9};
constexpr Nanoseconds kHalfBetweenServers{25'000};
constexpr Bandwidth kInsideServer{100e9};
constexpr Nanoseconds kHalfInsideServer{1'000};
constexpr std::int64_t kMostId = 1 << 20;

struct Gpu {
  std::int64_t id = 0;
  int line = 0;
  std::size_t nic = 0;
};

}  // namespace

Cluster import_adapcc(const std::string& text, const std::string& origin) {
  const text::XmlDocument document(text, origin);
  const text::XmlReader root = document.root();
  if (root.name() != "graph") root.fail("expected <graph>");
  Builder builder(origin);
  std::vector<Gpu> gpus;
  std::vector<std::pair<text::XmlReader, std::size_t>> nics;  // with the server they are in
  const auto servers = root.children({"server"});
  for (std::size_t s = 0; s < servers.size(); ++s) {
    for (const text::XmlReader& nic : servers[s].children({"nic"})) {
      for (const text::XmlReader& gpu : nic.children({"gpu"})) {
        if (!gpu.children({}).empty()) continue;
        gpus.push_back({gpu.integer("id", 0, kMostId), gpu.line(), nics.size()});
      }
      nics.emplace_back(nic, s);
    }
  }
  std::ranges::stable_sort(gpus, [](const Gpu& a, const Gpu& b) { return a.id < b.id; });
  for (const Gpu& gpu : gpus) builder.add({.name = fmt::format("gpu{}", gpu.id)}, gpu.line);

  const auto inner = [&](const char* kind, const text::XmlReader& element) {
    return builder.add(
        {.name = fmt::format("{}{}", kind, element.integer("id", 0, kMostId)), .kind = NodeKind::switch_},
        element.line());
  };
  std::vector<int> server_nodes, nic_nodes;
  for (const text::XmlReader& server : servers) server_nodes.push_back(inner("server", server));
  for (const auto& [nic, server] : nics) nic_nodes.push_back(inner("nic", nic));
  const int network = builder.add({.name = "network", .kind = NodeKind::switch_}, root.line());
  // GPUs behind one NIC meet there, those of one server inside it, all in the network.
  for (std::size_t i = 0; i < gpus.size(); ++i)
    builder.connect(static_cast<int>(i), nic_nodes[gpus[i].nic], kInsideServer, kHalfInsideServer,
                    gpus[i].line);
  for (std::size_t i = 0; i < nics.size(); ++i) {
    const int line = nics[i].first.line();
    builder.connect(nic_nodes[i], server_nodes[nics[i].second], kInsideServer, {0}, line);
    builder.connect(nic_nodes[i], network, kBetweenServers, kHalfBetweenServers, line);
  }
  builder.drop_dead_ends();
  return builder.finish();
}

}  // namespace talweg::formats
