#include "live/aggregation/switch_uplink.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/fail.h"
#include "wire/aggregation.h"

namespace talweg::live {

namespace {

// A switch that is there answers at once; its workers try again, or do without.
constexpr std::int64_t kConnectNs = 2'000 * kMillisecondNs;
// How long it connects without a look at whether it still has to.
constexpr std::int64_t kCheckEveryNs = 100 * kMillisecondNs;

}  // namespace

SwitchUplink::SwitchUplink(const Endpoint& address, const wire::Secret& key, const wire::SwitchJoin& request,
                           const FileDescriptor& wake)
    : request_(request), wake_(wake), thread_([this, address, key] { connect(address, key); }) {}

SwitchUplink::~SwitchUplink() {
  over_ = true;
  thread_.join();
}

void SwitchUplink::connect(const Endpoint& address, const wire::Secret& key) {
  const auto look = [this] {
    if (over_) throw_error(ErrorCode::aborted, "the job has ended");
  };
  const std::int64_t deadline_ns = now_ns() + kConnectNs;
  const auto reach = [&] {
    for (;;) {
      const std::int64_t until_ns = std::min(deadline_ns, now_ns() + kCheckEveryNs);
      try {
        return connect_tcp(address, until_ns);
      } catch (const Error& e) {
        if (e.code() != ErrorCode::timeout || until_ns == deadline_ns) throw;
      }
      look();
    }
  };
  wire::Introduction introduction;
  introduction.purpose = wire::Purpose::aggregation;
  introduction.encrypt = true;
  try {
    visitor_ = knock(reach, key, introduction, deadline_ns, look,
                     "give its secret to this switch in --above-key-file, or both the same one");
    tune_tcp(visitor_->socket);
  } catch (const Error& e) {
    const bool silent = e.code() == ErrorCode::timeout;
    failure_ = wire::SwitchRefused{
        e.code(),
        (silent ? fmt::format("it has not answered for {} s: ", kConnectNs / 1'000'000'000) : std::string()) +
            e.what()};
  }
  connected_ = true;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto n = ::write(wake_.get(), &one, sizeof one);
}

std::vector<wire::SwitchMessage> SwitchUplink::hear() {
  std::vector<wire::SwitchMessage> heard;
  if (ended_ || !connected_) return heard;
  if (failure_) {
    ended_ = true;
    heard.emplace_back(*failure_);
    return heard;
  }
  if (!line_) {
    line_.emplace(std::move(*visitor_), wire::kMaxSwitchReason + 64);
    line_->say(request_);
  }
  // What it has said still counts where the connection has ended since.
  const bool open = line_->receive();
  while (auto message = line_->next()) heard.push_back(std::move(*message));
  ended_ = line_->broken() || !open || !line_->flush() || stalled();
  if (ended_)
    heard.emplace_back(
        wire::SwitchRefused{ErrorCode::peer_failed, line_->broken() ? "it does not keep to the protocol"
                                                    : stalled()     ? "it does not read what it is told"
                                                                    : "it has ended the connection"});
  return heard;
}

bool SwitchUplink::may_open(const wire::SwitchOpened& o) const {
  return o.threads > 0 && o.threads <= request_.threads && o.slots > 0 && o.slots <= request_.slots &&
         o.columns > 0 && o.block > 0 && o.port > 0 && (request_.block == 0 || o.block == request_.block) &&
         wire::aggregation_payload(o.columns, o.block, 4) <= request_.payload &&
         (o.protection == wire::DatagramProtection::encrypted) == request_.encrypted &&
         o.port + o.threads <= 0x10000 && request_.workers + o.threads <= 0xffff;
}

void SwitchUplink::say(const wire::SwitchMessage& message) {
  if (!line_ || ended_ || stalled()) return;
  line_->say(message);
  line_->flush();
}

void SwitchUplink::part() {
  over_ = true;
  ended_ = true;
  if (!line_) return;
  line_->flush();
  // Unread notices must not turn the end of the connection into a reset, which would overtake what was said.
  ::shutdown(line_->socket().get(), SHUT_WR);
  line_->receive();
  line_->close();
}

}  // namespace talweg::live
