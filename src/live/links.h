// The links of one process, made from what joining has left. A new kind of link is a line here.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "live/join/connect.h"
#include "live/link.h"
#include "live/tcp/tcp_link.h"
#include "live/udp/udp_link.h"

namespace talweg::live {

struct LinkOptions : TcpOptions {
  // What frames to other hosts travel over: TCP; datagrams where they pass; or either, the quicker one. But
  // for TCP one more of each connection's streams is needed.
  enum class Transport : std::uint8_t { tcp, datagrams, either } transport = Transport::tcp;
  UdpPaths paths;  // of datagrams
};

struct Links {
  std::vector<std::unique_ptr<Link>> by_rank;  // by seat; null: this one itself, and who has died already
  std::size_t shared_bytes = 0;                // of memory that this rank shares with others
};

// `loop` and `handler` must outlive the links. Throws Error{system}.
Links make_links(int rank, Mesh mesh, const LinkOptions& options, EventLoop& loop, FrameHandler& handler);

}  // namespace talweg::live
