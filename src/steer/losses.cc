#include "steer/losses.h"

#include <algorithm>

namespace talweg::steer {

bool Losses::complete(const Loss& loss) {
  return std::all_of(loss.heard.begin(), loss.heard.end(), [](bool heard) { return heard; });
}

bool Losses::knows(int node) const {
  return std::any_of(losses_.begin(), losses_.end(), [&](const Loss& l) { return l.agreed.node == node; });
}

void Losses::lose(int node, std::uint64_t next) {
  losses_.push_back({{node, next}, std::vector<bool>(ranks_, false), false});
  std::vector<bool>& heard = losses_.back().heard;
  heard[static_cast<std::size_t>(rank_)] = true;
  for (const int rank : gone_) heard[static_cast<std::size_t>(rank)] = true;
}

void Losses::hear(int from, int node, std::uint64_t next) {
  for (Loss& loss : losses_) {
    if (loss.agreed.node != node) continue;
    loss.heard[static_cast<std::size_t>(from)] = true;
    loss.agreed.from = std::max(loss.agreed.from, next);
  }
}

void Losses::gone(int rank) {
  gone_.push_back(rank);
  for (Loss& loss : losses_) loss.heard[static_cast<std::size_t>(rank)] = true;
}

std::vector<int> Losses::missing() const {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < ranks_; ++rank)
    if (std::any_of(losses_.begin(), losses_.end(), [&](const Loss& l) { return !l.heard[rank]; }))
      ranks.push_back(static_cast<int>(rank));
  return ranks;
}

std::vector<Losses::Agreed> Losses::take() {
  std::vector<Agreed> agreed;
  for (Loss& loss : losses_) {
    if (loss.taken || !complete(loss)) continue;
    loss.taken = true;
    agreed.push_back(loss.agreed);
  }
  return agreed;
}

}  // namespace talweg::steer
