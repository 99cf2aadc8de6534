// A peer that writes what it likes: a stream of frames. The first byte says whether headers are given a magic
// number and checksums that hold, so that what lies behind them is reached; the second, how the bytes are
// cut.
#include <sys/socket.h>

#include <algorithm>
#include <vector>

#include "fuzz/frames.h"
#include "fuzz/fuzz.h"
#include "live/tcp/stream.h"

using namespace talweg;

namespace {

class Sink : public live::FrameHandler {
 public:
  live::Place place(int, const wire::Header& header) override {
    fuzz::require(header.length <= wire::kMaxPayload);
    if (header.type != wire::FrameType::down) return {};
    into.resize(header.length);
    return {into.data(), header.group, header.sequence};
  }
  void on_frame(int, const wire::Header& header, const std::byte* payload) override {
    for (std::uint32_t i = 0; i < header.length; ++i) sum += static_cast<unsigned>(payload[i]);
  }
  void on_sent(std::uint32_t, const protocol::Token&) override {}
  void on_peer_gone(int, std::optional<ErrorCode>, const std::string&) override {}

  std::vector<std::byte> into;
  volatile unsigned sum = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const auto rest = fuzz::bytes_of(data + 2, std::min<std::size_t>(size - 2, 8U << 10));
  std::vector<std::byte> bytes(rest.begin(), rest.end());
  if (data[0] % 4 != 0) fuzz::repair_frames(bytes);
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return 0;
  const live::FileDescriptor peer(ends[1]);
  Sink sink;
  live::Stream stream(live::FileDescriptor{ends[0]}, 1, {}, sink);
  const std::size_t step = 1 + data[1] * 37U;
  for (std::size_t at = 0; at < bytes.size() && stream.open(); at += step) {
    if (::send(peer.get(), bytes.data() + at, std::min(step, bytes.size() - at), MSG_NOSIGNAL) < 0) break;
    stream.receive();
    if (data[0] % 8 == 7) stream.cancel(0, 0);
  }
  ::shutdown(peer.get(), SHUT_WR);
  while (stream.open() && stream.receive()) {
  }
  return 0;
}
