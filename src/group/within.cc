#include "group/within.h"

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "live/join/card.h"

namespace talweg::group {

namespace {

live::ConnectOptions meeting_of(const GroupOptions& options, const Place& place, const char* what,
                                std::int64_t deadline_ns) {
  live::ConnectOptions meeting;
  meeting.rank = place.rank;
  meeting.size = place.size;
  meeting.prefix = options.prefix + what;
  meeting.deadline_ns = deadline_ns;
  return meeting;
}

// What a group is called on the wire: not the number itself, which strangers have no business to know.
std::uint32_t wire_number(std::uint64_t drawn) {
  const auto word = static_cast<std::int64_t>(drawn);
  const std::uint64_t digest = wire::layout_digest(&word, 1);
  return static_cast<std::uint32_t>(digest ^ (digest >> 32)) | 1U;  // 0 is the group that was joined first
}

}  // namespace

std::shared_ptr<Group> join_within(const GroupOptions& options, const Place& place, Store* store,
                                   std::chrono::milliseconds timeout, std::int64_t deadline_ns) {
  const auto parent = std::dynamic_pointer_cast<GroupImpl>(options.within);
  const bool usable = parent && parent->can_be_shared();
  if (place.size == 1) {
    const std::array<int, 1> alone{parent ? parent->rank() : 0};
    return usable ? parent->part(alone, wire_number(live::random_number()), timeout) : nullptr;
  }
  live::Card own;
  own.size = place.size;
  own.parent = usable ? parent->number() : 0;
  own.parent_rank = parent ? parent->rank() : 0;
  const std::vector<live::Card> cards =
      live::exchange_cards(*store, meeting_of(options, place, "within/", deadline_ns), own).cards;
  std::vector<int> members;
  for (const live::Card& card : cards) {
    if (card.parent == 0 || card.parent != cards[0].parent) return nullptr;
    members.push_back(card.parent_rank);
  }
  if (std::set<int>(members.begin(), members.end()).size() != members.size()) return nullptr;
  std::shared_ptr<Group> group = parent->part(members, wire_number(cards[0].job), timeout);
  // Frames for a group that a rank does not know yet are dropped: nobody sends before all know it.
  live::exchange_cards(*store, meeting_of(options, place, "within-ready/", deadline_ns), own);
  return group;
}

}  // namespace talweg::group
