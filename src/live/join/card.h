// What ranks tell each other through the store before they connect, and how all of them come to the same
// answer: who the others are, or why there will be no group.
//
// Every rank publishes a card. Rank 0 collects them, is the judge of whether they fit together, and publishes
// its verdict: all the cards, or the reason of the refusal, which every rank then throws with the same text.
// Aggregators publish cards as well; one that does not fit, or not in time, is left out, with the reason.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "live/join/connect.h"
#include "live/system.h"
#include "talweg/store.h"
#include "wire/handshake.h"

namespace talweg::live {

// What a rank publishes about itself, one word each.
struct Card {
  unsigned version = wire::kProtocolVersion;
  std::string node = "-";     // an aggregator's name
  Endpoint endpoint{"-", 0};  // of its listener; none: it opens no connections
  std::string host_id = "-";
  std::string unix_name = "-";
  std::string host_name = "-";
  long pid = 0;
  int streams = 1;
  std::string transport = "tcp";
  std::uint64_t job = 0;            // rank 0's own number, or the one that this rank has seen of it
  std::string key_origin = "open";  // "job", "store", "open"
  int encrypt = 0;
  std::string secret = "-";  // rank 0's, when the origin is the store
  int size = 0;              // how many ranks it was told that there are
  std::uint64_t parent = 0;  // the group whose connections it would share, and its rank there; 0: none
  int parent_rank = 0;
  std::vector<std::uint64_t> alike;
};

std::uint64_t random_number();  // that nobody can guess

struct Meeting {
  std::vector<Card> cards;          // of all ranks, by rank, then of the aggregators that are there
  int seat = 0;                     // whose card is this one's
  std::vector<std::string> absent;  // see Mesh
};

// `own` is this one's card, and gets its job number here. Throws Error: timeout (names the ranks that never
// came), version, invalid_argument (security or settings that are not alike). Rank 0, which may be the one
// that serves the store, stays for up to kFarewellNs after a refusal, until the others have read why.
Meeting exchange_cards(Store& store, const ConnectOptions& options, const Card& own);

// Longer than the others take to believe a refusal that does not mention them (see card.cc).
inline constexpr std::int64_t kFarewellNs = 1'500'000'000;

}  // namespace talweg::live
