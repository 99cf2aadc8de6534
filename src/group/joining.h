// What it takes to meet the others, for ranks and aggregators alike: the store, the own address, the key, and
// the settings of connections.
#pragma once

#include <memory>
#include <string>

#include "group/environment.h"
#include "live/engine.h"
#include "live/join/connect.h"
#include "talweg/store.h"

namespace talweg::group {

struct Joining {
  Meeting meeting{"", "", 0, "given by the caller"};
  std::shared_ptr<Store> store;  // none for a rank that is alone
  std::string address_from;      // where the address was found, for people
  live::ConnectOptions connect;  // rank, size, prefix, address, key, deadline
  live::EngineOptions engine;
};

// Of rank `place.rank`; or, with a name, of that aggregator. Checks the settings, then blocks until the store
// answers. Throws Error as Group::join does.
Joining prepare_joining(const GroupOptions& options, const Place& place, std::chrono::milliseconds timeout,
                        const std::string& aggregator = {});

}  // namespace talweg::group
