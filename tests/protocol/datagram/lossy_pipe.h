// Two flows with everything between them that a network does to datagrams, in virtual time, from a seed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/random.h"
#include "protocol/datagram/flow.h"
#include "wire/datagram_cipher.h"

namespace talweg::protocol {

// Bytes of a channel from `at` on: nowhere the same for long, and known without having been kept.
inline void bytes_of(int side, std::size_t channel, std::uint64_t at, std::span<std::byte> to) {
  for (std::size_t i = 0; i < to.size();) {
    const std::uint64_t word = (at + i) / 8, within = (at + i) % 8, of = channel * 77 + word + 1;
    std::uint64_t x = of * 0x9E3779B97F4A7C15ULL + static_cast<std::uint64_t>(side) * 1234567;
    x = (x ^ (x >> 29)) * 0xBF58476D1CE4E5B9ULL >> (8 * within);
    std::memcpy(&to[i], &x, std::min<std::size_t>(8 - within, to.size() - i));
    i += 8 - within;
  }
}

// What happens to each datagram of one direction.
struct PipeNature {
  double loss = 0, repeated = 0, damaged = 0, marked = 0;
  std::int64_t delay_ns = 50'000;
  std::int64_t jitter_ns = 0;                        // one may overtake another by so much
  double rate = 0;                                   // bytes per second of a bottleneck; 0: none
  std::size_t queue_bytes = 1U << 20;                // in front of it; what is over it is lost
  std::int64_t dark_from_ns = 0, dark_until_ns = 0;  // nothing arrives that leaves then
  std::size_t mtu = 65535;                           // of payloads; what is larger the kernel refuses
  // One of several ways between the two ends, in both directions: path p takes way p of so many. None: all
  // take the same.
  struct Way {
    std::int64_t longer_ns = 0;  // beside delay_ns
    double loss = 0;
    double rate = 0;                                   // as above, of its own
    std::int64_t dead_from_ns = 0, dead_until_ns = 0;  // and what is on it is gone
  };
  std::vector<Way> ways;
};

// One end: a flow, its sealer and opener, and what is to be written and has been read.
struct FlowEnd {
  FlowEnd(const FlowOptions& options, std::uint16_t me, std::uint16_t other)
      : flow(options),
        sealer(wire::Secret{}, {1, 1, me, other}, {wire::DatagramProtection::checksum, {}}),
        opener(wire::Secret{}, {1, 1, other, me}, {wire::DatagramProtection::checksum, {}}) {}
  DatagramFlow flow;
  wire::DatagramSealer sealer;
  wire::DatagramOpener opener;
  wire::DatagramRefusals refusals;
};

class LossyPipe {
 public:
  LossyPipe(const FlowOptions& options, const PipeNature& nature, std::uint64_t seed)
      : ends{FlowEnd(options, 0, 1), FlowEnd(options, 1, 0)}, nature_(nature), random_(seed) {
    buffer_.resize(wire::kDatagramHeaderBytes + wire::kMaxDatagramPayload + 16);
  }

  std::int64_t now() const { return now_ns_; }
  // Neither end looks for so long.
  void pause(std::int64_t ns) { now_ns_ += ns; }

  // Everything that may leave now does.
  void send_all(int side) {
    FlowEnd& end = ends[side];
    for (;;) {
      wire::DatagramHeader header;
      std::byte* const payload = buffer_.data() + wire::kDatagramHeaderBytes;
      const std::uint64_t number = end.sealer.number();
      if (!end.flow.next(number, now_ns_, header, payload)) return;
      const std::size_t path = end.flow.path();
      const std::size_t bytes = end.sealer.seal(header, payload, buffer_.data());
      if (header.length > nature_.mtu) {
        end.flow.not_sent(number);
        end.flow.set_payload(nature_.mtu);
        continue;
      }
      carry(side, path, {buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(bytes)});
    }
  }

  // To the next moment at which something happens; false: never.
  bool step() {
    std::int64_t at = SentPackets::kNever;
    if (!on_the_way_.empty()) at = on_the_way_.begin()->first;
    for (FlowEnd& end : ends) at = std::min(at, end.flow.next_time(now_ns_));
    if (at == SentPackets::kNever) return false;
    now_ns_ = std::max(now_ns_, at);
    bool came[2] = {false, false};
    while (!on_the_way_.empty() && on_the_way_.begin()->first <= now_ns_) {
      Carried c = std::move(on_the_way_.begin()->second);
      on_the_way_.erase(on_the_way_.begin());
      FlowEnd& end = ends[c.to];
      wire::DatagramHeader header;
      const auto why = end.opener.open(c.bytes, header);
      if (why != wire::DatagramRefusal::none) {
        end.refusals.count(why);
        continue;
      }
      came[c.to] = true;
      end.flow.on_datagram(header, {c.bytes.data() + wire::kDatagramHeaderBytes, header.length}, c.marked,
                           now_ns_);
    }
    for (int side = 0; side < 2; ++side) {
      if (came[side]) ends[side].flow.end_of_batch();
      ends[side].flow.on_time(now_ns_);
    }
    return true;
  }

  // Bytes of one direction, by path.
  const std::map<std::size_t, std::uint64_t>& by_path(int side) const { return by_path_[side]; }

  FlowEnd ends[2];
  std::uint64_t lost = 0, delivered_bytes = 0, overflowed = 0;
  std::int64_t longest_queue_ns = 0;

 private:
  struct Carried {
    int to = 0;
    bool marked = false;
    std::vector<std::byte> bytes;
  };

  void carry(int side, std::size_t path, std::vector<std::byte> bytes) {
    by_path_[side][path] += bytes.size();
    const std::size_t w = nature_.ways.empty() ? 0 : path % nature_.ways.size();
    const PipeNature::Way way = nature_.ways.empty() ? PipeNature::Way{} : nature_.ways[w];
    if (random_.uniform() < nature_.loss || (way.loss > 0 && random_.uniform() < way.loss) ||
        (now_ns_ >= way.dead_from_ns && now_ns_ < way.dead_until_ns) ||
        (now_ns_ >= nature_.dark_from_ns && now_ns_ < nature_.dark_until_ns)) {
      ++lost;
      return;
    }
    std::int64_t at = now_ns_ + nature_.delay_ns + way.longer_ns;
    if (const double rate = way.rate > 0 ? way.rate : nature_.rate; rate > 0) {
      std::int64_t& busy_until_ns = busy_until_ns_[side][way.rate > 0 ? w : kMostPaths];
      const std::int64_t begin = std::max(now_ns_, busy_until_ns);
      if (static_cast<double>(begin - now_ns_) * 1e-9 * rate > static_cast<double>(nature_.queue_bytes)) {
        ++overflowed;
        return;
      }
      longest_queue_ns = std::max(longest_queue_ns, begin - now_ns_);
      busy_until_ns = begin + static_cast<std::int64_t>(static_cast<double>(bytes.size()) / rate * 1e9);
      at = busy_until_ns + nature_.delay_ns + way.longer_ns;
    }
    const bool marked = random_.uniform() < nature_.marked;
    const auto copies = random_.uniform() < nature_.repeated ? 2 : 1;
    for (int i = 0; i < copies; ++i) {
      const auto extra =
          nature_.jitter_ns > 0 ? static_cast<std::int64_t>(random_.below(nature_.jitter_ns)) : 0;
      Carried c{1 - side, marked, bytes};
      if (random_.uniform() < nature_.damaged)
        c.bytes[random_.below(c.bytes.size())] ^= static_cast<std::byte>(1 + random_.below(255));
      delivered_bytes += bytes.size();
      on_the_way_.emplace(at + extra, std::move(c));
    }
  }

  PipeNature nature_;
  Random random_;
  std::int64_t now_ns_ = 1'000'000;
  std::int64_t busy_until_ns_[2][kMostPaths + 1] = {};
  std::map<std::size_t, std::uint64_t> by_path_[2];
  std::multimap<std::int64_t, Carried> on_the_way_;
  std::vector<std::byte> buffer_;
};

}  // namespace talweg::protocol
