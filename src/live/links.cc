#include "live/links.h"

#include "live/either/either_link.h"
#include "live/shared/shared_link.h"

namespace talweg::live {

Links make_links(int rank, Mesh mesh, const LinkOptions& options, EventLoop& loop, FrameHandler& handler) {
  Links links;
  links.by_rank.resize(mesh.connections.size());
  UdpLinkOptions datagrams;
  datagrams.host_timeout_ns = options.host_timeout_ns;
  datagrams.end.flow.paths = options.paths.count;
  datagrams.end.sender.paths = options.paths;
  datagrams.end.flow.share = std::make_shared<protocol::QueueShare>();
  const bool prefers = options.transport == LinkOptions::Transport::datagrams;
  const EitherLinkOptions either{
      prefers ? Preference::datagrams : Preference::the_quicker,
      std::make_shared<SilentRanks>(mesh.seat, prefers ? "TALWEG_TRANSPORT=udp" : "TALWEG_TRANSPORT=auto")};
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
    else if (options.transport != LinkOptions::Transport::tcp)
      link = std::make_unique<EitherLink>(std::move(c), mesh.seat, either, options, datagrams, loop, handler);
    else
      link = std::make_unique<TcpLink>(std::move(c), options, loop, handler);
  }
  return links;
}

}  // namespace talweg::live
