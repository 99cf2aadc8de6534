#include "live/join/card.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <sstream>
#include <thread>

#include "talweg/error.h"

namespace talweg::live {

namespace {

constexpr std::chrono::microseconds kShortestRest{500};  // between two looks into the store
constexpr std::chrono::microseconds kLongestRest{20'000};
constexpr std::int64_t kOldNs = 1'000'000'000;  // after so long it was not a rank 0 of the past that refused
static_assert(kFarewellNs > kOldNs, "rank 0 must not go before the others believe it");

std::string to_text(const Card& c) {
  return fmt::format("talweg {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {:x}", c.version, c.endpoint.host,
                     c.endpoint.port, c.host_id, c.unix_name, c.host_name, c.pid, c.streams, c.job,
                     c.key_origin, c.encrypt, c.secret, c.size, c.parent, c.parent_rank,
                     fmt::join(c.alike, " "));
}

Card parse_card(const std::string& text, int rank) {
  Card c;
  std::string magic;
  std::istringstream in(text);
  in >> magic >> c.version;
  if (magic != "talweg")
    throw Error(ErrorCode::version, fmt::format("rank {} published something that is not Talweg's: another "
                                                "program uses the same store and prefix",
                                                rank));
  if (c.version != wire::kProtocolVersion)
    throw Error(
        ErrorCode::version,
        fmt::format(
            "rank {} speaks protocol version {}, this rank speaks {}: install the same version everywhere",
            rank, c.version, wire::kProtocolVersion));
  if (!(in >> c.endpoint.host >> c.endpoint.port >> c.host_id >> c.unix_name >> c.host_name >> c.pid >>
        c.streams >> c.job >> c.key_origin >> c.encrypt >> c.secret >> c.size >> c.parent >> c.parent_rank))
    throw Error(ErrorCode::version,
                fmt::format("rank {} published a card that this version cannot read", rank));
  for (std::uint64_t digest = 0; in >> std::hex >> digest;) c.alike.push_back(digest);
  return c;
}

std::string key_in_words(const Card& card) {
  return card.key_origin == "job"     ? "a job key"
         : card.key_origin == "store" ? "a key from the store"
                                      : "no key";
}

void agree_on_size(int r, const Card& card, int other, const Card& others) {
  if (card.size != others.size)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("rank {} was told that there are {} ranks, rank {} that there are {}: give all "
                            "the same WORLD_SIZE",
                            r, card.size, other, others.size));
}

void agree_on_security(int r, const Card& card, const Card& first) {
  if (card.key_origin != first.key_origin)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("rank {} has {}, rank 0 has {}: give TALWEG_KEY or TALWEG_KEY_FILE to all", r,
                            key_in_words(card), key_in_words(first)));
  if (card.encrypt != first.encrypt)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("rank {} {}, rank 0 {}: set TALWEG_ENCRYPT alike on all", r,
                            card.encrypt != 0 ? "encrypts" : "does not encrypt",
                            first.encrypt != 0 ? "does" : "does not"));
}

// What rank 0 has decided: a line of its own, then the cards that it has seen, a line for each rank in turn.
struct Verdict {
  std::optional<Error> refusal;
  std::vector<std::string> cards;
};

std::string to_text(const Verdict& v) {
  const std::string first =
      v.refusal ? fmt::format("refused {} {}", static_cast<int>(v.refusal->code()), v.refusal->what())
                : "agreed";
  return fmt::format("{}\n{}", first, fmt::join(v.cards, "\n"));
}

Verdict parse_verdict(const std::string& text) {
  Verdict v;
  std::istringstream in(text);
  std::string line;
  std::getline(in, line);
  std::istringstream first(line);
  std::string word;
  if (first >> word; word == "refused") {
    int code = 0;
    first >> code;
    std::string reason;
    std::getline(first >> std::ws, reason);
    const bool known = code >= 0 && code <= static_cast<int>(ErrorCode::corrupted);
    v.refusal.emplace(known ? static_cast<ErrorCode>(code) : ErrorCode::peer_failed, reason);
  }
  while (std::getline(in, line)) v.cards.push_back(line);
  return v;
}

// A store may outlive a group that used the same prefix (torchrun keeps one through its restarts), so what
// is found there may be what the dead have left. Rank 0 draws a number; the others put into their cards
// which number they have seen; when all have seen this one, rank 0 publishes its verdict under it. A verdict
// that lacks a rank's own card is not about this rank: an agreement is an old one, and a refusal is believed
// when no other rank 0 has come for a while.
class Exchange {
 public:
  Exchange(Store& store, const ConnectOptions& options, const Card& own)
      : store_(store), options_(options), own_(own), cards_(static_cast<std::size_t>(options.size)) {
    own_.job = options.rank == 0 ? random_number() : 0;
  }

  std::vector<Card> run() {
    store_.set(key(options_.rank), to_text(own_));
    if (options_.rank == 0) {
      judge();
    } else {
      obey();
    }
    return std::move(cards_);
  }

 private:
  void judge() {
    Verdict verdict{std::nullopt, {to_text(own_)}};
    cards_[0] = own_;
    std::vector<int> missing;
    try {
      for (int r = 1; r < options_.size; ++r)
        if (!hear(r, verdict)) missing.push_back(r);
      never_came(missing);
      for (int r = 1; r < options_.size; ++r) {
        agree_on_security(r, cards_[static_cast<std::size_t>(r)], own_);
        agree_on_settings(r, cards_[static_cast<std::size_t>(r)]);
      }
    } catch (const Error& e) {
      verdict.refusal = e;
      refuse(verdict, missing);
      throw;
    }
    store_.set(verdict_key(own_.job), to_text(verdict));
  }

  // False at the deadline.
  bool hear(int r, Verdict& verdict) {
    for (;;) {
      const auto text = look_up(key(r));
      verdict.cards.resize(static_cast<std::size_t>(r) + 1);
      if (!text) return false;
      Card& card = cards_[static_cast<std::size_t>(r)];
      card = parse_card(*text, r);
      if (card.job == own_.job) {
        verdict.cards.back() = *text;
        agree_on_size(r, card, 0, own_);  // at once: who was told of fewer ranks may be the last that comes
        return true;
      }
      if (now_ns() >= options_.deadline_ns) return false;
      std::this_thread::sleep_for(kLongestRest);
    }
  }

  // Says why, and waits until all who may still come to hear it have done so: the store may go with this
  // rank.
  void refuse(const Verdict& verdict, const std::vector<int>& missing) {
    const std::int64_t until = now_ns() + kFarewellNs;
    try {
      store_.set(verdict_key(own_.job), to_text(verdict));
      for (int r = 1; r < options_.size; ++r) {
        if (std::find(missing.begin(), missing.end(), r) != missing.end()) continue;
        while (!store_.find(heard_key(r)) && now_ns() < until) std::this_thread::sleep_for(kLongestRest);
      }
    } catch (const Error&) {
      return;  // without a store there is nobody to tell; the refusal itself is what the caller must learn
    }
  }

  void obey() {
    try {
      find_verdict();
    } catch (const Error&) {
      try {
        if (own_.job != 0) store_.set(heard_key(options_.rank), "heard");
      } catch (const Error&) {  // rank 0 has gone with its store, and waits for nothing
      }
      throw;
    }
  }

  void find_verdict() {
    std::int64_t refused_ns = 0;
    auto rest = kShortestRest;
    for (;;) {
      const auto root = look_up(key(0));
      if (!root) break;
      if (const Card first = parse_card(*root, 0); first.job != own_.job) {
        own_.job = first.job;
        refused_ns = 0;
        store_.set(key(options_.rank), to_text(own_));
      }
      if (const auto text = store_.find(verdict_key(own_.job))) {
        const Verdict verdict = parse_verdict(*text);
        if (accept(verdict)) return;
        if (verdict.refusal) {
          if (refused_ns == 0) refused_ns = now_ns();
          if (now_ns() - refused_ns > kOldNs) throw Error(*verdict.refusal);
        }
      }
      if (now_ns() >= options_.deadline_ns) break;
      std::this_thread::sleep_for(rest);
      rest = std::min(2 * rest, kLongestRest);
    }
    no_verdict();
  }

  // True when it is about this rank, and all is well; throws when it is about this rank and a refusal.
  bool accept(const Verdict& verdict) {
    const auto own = static_cast<std::size_t>(options_.rank);
    if (verdict.cards.size() <= own || verdict.cards[own] != to_text(own_)) return false;
    if (verdict.refusal) throw Error(*verdict.refusal);
    if (verdict.cards.size() != cards_.size()) return false;
    for (std::size_t r = 0; r < cards_.size(); ++r)
      cards_[r] = parse_card(verdict.cards[r], static_cast<int>(r));
    return true;
  }

  [[noreturn]] void no_verdict() {
    std::vector<int> missing;
    for (int r = 0; r < options_.size; ++r) {
      if (r == options_.rank) continue;
      const auto card = store_.find(key(r));
      if (!card || parse_card(*card, r).job != own_.job)
        missing.push_back(r);  // a card of the dead does not count
    }
    never_came(missing);
    if (const auto root = store_.find(key(0))) agree_on_size(0, parse_card(*root, 0), options_.rank, own_);
    throw Error(ErrorCode::timeout,
                fmt::format("rank {} of {}: rank 0 did not say before the deadline that all "
                            "have joined",
                            options_.rank, options_.size));
  }

  // Empty at the deadline.
  std::optional<std::string> look_up(const std::string& name) {
    try {
      return store_.get(
          name, std::chrono::steady_clock::time_point{std::chrono::nanoseconds(options_.deadline_ns)});
    } catch (const Error& e) {
      if (e.code() != ErrorCode::timeout) throw;
      return std::nullopt;
    }
  }

  void never_came(const std::vector<int>& missing) const {
    if (missing.empty()) return;
    throw Error(ErrorCode::timeout,
                fmt::format("rank {} of {} waited for the others to join: {} {} never came", options_.rank,
                            options_.size, missing.size() == 1 ? "rank" : "ranks", fmt::join(missing, ", ")));
  }

  void agree_on_settings(int r, const Card& card) const {
    if (card.alike.size() != own_.alike.size())
      throw Error(ErrorCode::version, fmt::format("rank {} published a card of another version", r));
    for (std::size_t i = 0; i < own_.alike.size(); ++i)
      if (card.alike[i] != own_.alike[i])
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("rank {} and rank 0 have different values of {}: set it alike on all", r,
                                options_.alike[i].first));
  }

  std::string key(int rank) const { return fmt::format("{}rank{}", options_.prefix, rank); }
  std::string verdict_key(std::uint64_t job) const {
    return fmt::format("{}all{:016x}", options_.prefix, job);
  }
  std::string heard_key(int rank) const {
    return fmt::format("{}heard{:016x}-{}", options_.prefix, own_.job, rank);
  }

  Store& store_;
  const ConnectOptions& options_;
  Card own_;
  std::vector<Card> cards_;
};

}  // namespace

std::uint64_t random_number() {
  std::uint64_t value = 0;
  wire::fill_random(std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

std::vector<Card> exchange_cards(Store& store, const ConnectOptions& options, const Card& own) {
  return Exchange(store, options, own).run();
}

}  // namespace talweg::live
