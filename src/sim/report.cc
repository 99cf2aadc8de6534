#include "sim/report.h"

namespace talweg::sim {

std::string link_name(const cluster::Cluster& cluster, int link) {
  const cluster::Link& l = cluster.links[static_cast<std::size_t>(link)];
  return cluster.nodes[static_cast<std::size_t>(l.from)].name + "->" +
         cluster.nodes[static_cast<std::size_t>(l.to)].name;
}

NetworkSummary summarise(const Network& network, Picoseconds duration) {
  const cluster::Cluster& cluster = network.cluster();
  NetworkSummary s;
  double sum = 0;
  int used = 0;
  for (std::size_t l = 0; l < cluster.links.size(); ++l) {
    const cluster::Link& link = cluster.links[l];
    const LinkCounters c = network.counters(static_cast<int>(l));
    const double could = link.capacity.bytes_per_second() * seconds(duration);
    const double utilisation = could > 0 ? static_cast<double>(c.bytes) / could : 0;
    if (c.packets > 0) {
      sum += utilisation;
      ++used;
    }
    if (utilisation > s.busiest_utilisation) {
      s.busiest_utilisation = utilisation;
      s.busiest_link = link_name(cluster, static_cast<int>(l));
    }
    if (c.most_queued_bytes > s.most_queued_bytes) {
      s.most_queued_bytes = c.most_queued_bytes;
      s.most_queued_link = link_name(cluster, static_cast<int>(l));
    }
    for (std::size_t p = 0; p < kPriorities; ++p) {
      s.dropped_by_priority[p] += c.dropped[p];
      s.marked_by_priority[p] += c.marked[p];
      s.dropped += c.dropped[p];
      s.marked += c.marked[p];
    }
    s.trimmed += c.trimmed;
    s.lost += c.lost;
  }
  s.mean_utilisation = used > 0 ? sum / used : 0;
  return s;
}

RunReport report_of(const Simulation& simulation) {
  RunReport r;
  r.runs = 1;
  r.duration = simulation.now();
  r.events = simulation.events();
  r.link_hops = simulation.network().counters().link_hops;
  r.unroutable = simulation.network().counters().unroutable;
  for (FlowId flow = 0; flow < simulation.transport().flows(); ++flow) {
    const FlowCounters c = simulation.transport().counters(flow);
    r.segments += c.segments;
    r.retransmissions += c.retransmissions;
    r.timeouts += c.timeouts;
  }
  r.network = summarise(simulation.network(), r.duration);
  return r;
}

void RunReport::add(const RunReport& other) {
  NetworkSummary& n = network;
  const NetworkSummary& o = other.network;
  n.mean_utilisation =
      runs + other.runs == 0
          ? 0
          : (n.mean_utilisation * runs + o.mean_utilisation * other.runs) / (runs + other.runs);
  runs += other.runs;
  duration += other.duration;
  events += other.events;
  link_hops += other.link_hops;
  unroutable += other.unroutable;
  segments += other.segments;
  retransmissions += other.retransmissions;
  timeouts += other.timeouts;
  if (o.busiest_utilisation > n.busiest_utilisation) {
    n.busiest_utilisation = o.busiest_utilisation;
    n.busiest_link = o.busiest_link;
  }
  if (o.most_queued_bytes > n.most_queued_bytes) {
    n.most_queued_bytes = o.most_queued_bytes;
    n.most_queued_link = o.most_queued_link;
  }
  n.dropped += o.dropped;
  n.marked += o.marked;
  n.trimmed += o.trimmed;
  n.lost += o.lost;
  for (std::size_t p = 0; p < kPriorities; ++p) {
    n.dropped_by_priority[p] += o.dropped_by_priority[p];
    n.marked_by_priority[p] += o.marked_by_priority[p];
  }
}

}  // namespace talweg::sim
