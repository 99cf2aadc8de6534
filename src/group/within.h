// Joining over connections that are there already: ranks that all bring the same group along need neither
// sockets nor threads of their own.
#pragma once

#include <chrono>
#include <memory>

#include "group/environment.h"
#include "group/group_impl.h"
#include "talweg/group.h"

namespace talweg::group {

// The new group shares the connections of `options.within`. Null on every rank when one of them has brought
// another group, one that has lost a rank, or one whose plans
// follow the network: then they must join afresh. A group of one needs no store.
// Throws as Group::join does.
std::shared_ptr<Group> join_within(const GroupOptions& options, const Place& place, Store* store,
                                   std::chrono::milliseconds timeout, std::int64_t deadline_ns);

}  // namespace talweg::group
