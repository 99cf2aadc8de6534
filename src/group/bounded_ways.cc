#include "group/bounded_ways.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "base/log.h"
#include "live/system.h"

namespace talweg::group {

namespace {

// Of what came all ranks come to the same minimum: the packet first, then the way.
struct Words {
  std::array<std::uint64_t, 2> least;  // what came, and what may leave as far as kernels know
};

std::uint64_t word(std::size_t packet, int from, int to) {
  return std::uint64_t{packet} << 32 | std::uint64_t{static_cast<std::uint16_t>(from)} << 16 |
         static_cast<std::uint16_t>(to);
}

Words words_of(const Group& group, live::BoundedWays& ways) {
  Words words{{~std::uint64_t{0}, ways.wanted()}};
  for (int r = 0; r < group.size(); ++r)
    if (r != group.rank())
      words.least[0] = std::min(words.least[0], word(ways.trial().came(r), r, group.rank()));
  return words;
}

PassingWays ways_of(const Words& words) {
  const auto [came, wanted] = words.least;
  return {came >> 32, static_cast<int>(came >> 16 & 0xffff), static_cast<int>(came & 0xffff), wanted};
}

void warn(const Group& group, const PassingWays& ways, std::size_t least) {
  const auto who = [&](int r) { return fmt::format("rank {} ({})", r, group.host_of(r)); };
  const std::string from = who(ways.from), to = who(ways.to);
  const std::size_t packet = ways.packet, wanted = ways.wanted;
  const Logger log(group.rank());
  if (packet == 0)
    log.log(LogLevel::warn, "bounded",
            "no datagram of {} comes to {}, not even one of {} bytes: is UDP blocked between the two hosts? "
            "bounded sums go over the group's connections, and lose nothing",
            from, to, least);
  else if (packet < wanted && group.rank() == 0)
    log.log(LogLevel::warn, "bounded",
            "from {} to {} {} bytes pass; {} are lost: no packet of bounded sums is larger. "
            "Give all that is between the two the hosts' MTU, or the hosts {}",
            from, to, packet, wanted, packet);
}

}  // namespace

// While ranks tell each other what has come they go on sending: to some of them it may not have.
PassingWays try_ways(Group& group, live::BoundedWays& ways, const std::shared_ptr<Bell>& bell) {
  const auto words = std::make_shared<Words>();
  ways.step(live::now_ns());
  const WorkPtr begun = group.start_barrier();
  begun->on_done([bell] { bell->ring(); });
  WorkPtr told;
  for (bool all_have_begun = false; !(told && told->test());) {
    ways.step(live::now_ns());
    if (!told && !all_have_begun && begun->test()) {
      begun->wait();  // which throws what went wrong
      all_have_begun = true;
      ways.trial().all_have_begun(live::now_ns());
    }
    if (!told && ways.trial().ended(live::now_ns())) {
      *words = words_of(group, ways);
      told = group.start_all_reduce(words->least.data(), words->least.data(), words->least.size(),
                                    DataType::u64, ReduceOp::min);
      told->on_done([bell, words] { bell->ring(); });  // it writes there, whatever becomes of this call
    }
    ways.wait(ways.trial().next_time_ns(live::now_ns()), bell->fd());
    bell->silence();
  }
  told->wait();
  const PassingWays found = ways_of(*words);
  warn(group, found, ways.least());
  return found;
}

}  // namespace talweg::group
