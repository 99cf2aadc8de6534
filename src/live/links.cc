#include "live/links.h"

#include "live/either/either_link.h"
#include "live/shared/shared_link.h"

namespace talweg::live {

Links make_links(int rank, Mesh mesh, const LinkOptions& options, EventLoop& loop, FrameHandler& handler) {
  Links links;
  links.by_rank.resize(mesh.connections.size());
  UdpLinkOptions datagrams;
  datagrams.host_timeout_ns = options.host_timeout_ns;
  datagrams.end.flow.paths = options.paths;
  datagrams.end.flow.share = std::make_shared<protocol::QueueShare>();
  std::shared_ptr<SharedSender> sender;
  if (mesh.segment) {
    sender = std::make_shared<SharedSender>(std::move(*mesh.segment));
    links.shared_bytes = Segment::bytes_for(mesh.local_ranks);
  }
  for (Connection& c : mesh.connections) {
    if (c.rank == rank || c.streams.empty()) continue;
    std::unique_ptr<Link>& link = links.by_rank[static_cast<std::size_t>(c.rank)];
    if (c.local)
      link = std::make_unique<SharedLink>(std::move(c), sender, mesh.local_index, loop, handler);
    else if (options.transport == LinkOptions::Transport::either)
      link = std::make_unique<EitherLink>(std::move(c), mesh.seat, options, datagrams, loop, handler);
    else if (options.transport == LinkOptions::Transport::datagrams)
      link = std::make_unique<UdpLink>(std::move(c), mesh.seat, datagrams, loop, handler);
    else
      link = std::make_unique<TcpLink>(std::move(c), options, loop, handler);
  }
  return links;
}

}  // namespace talweg::live
