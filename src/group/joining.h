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
  live::LinkOptions engine;
  std::shared_ptr<Store> aggregator_store;  // of rank 0, where that is not `store`
};

// Of TALWEG_PATHS and TALWEG_PATHS_IFNAME. Throws Error{invalid_argument}, where no such interface is there,
// too.
live::UdpPaths udp_paths();

// Of rank `place.rank`; or, with a name, of that aggregator. Checks the settings, then blocks until the store
// answers. Throws Error as Group::join does.
Joining prepare_joining(const GroupOptions& options, const Place& place, std::chrono::milliseconds timeout,
                        const std::string& aggregator = {});

// To be called before a group with aggregators connects. These may come; unless it is known `why_not`, which
// is said to them as well.
void expect_aggregators(Joining& joining, std::vector<std::string> names, const std::string& why_not);

}  // namespace talweg::group
