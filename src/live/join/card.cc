#include "live/join/card.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <sstream>
#include <thread>

#include "base/fail.h"
#include "base/log.h"

namespace talweg::live {

namespace {

constexpr std::chrono::microseconds kShortestRest{250};  // between two looks into the store
constexpr std::chrono::microseconds kLongestRest{20'000};
constexpr int kPartOfWait = 8;                  // a rest makes a wait longer by no more than this part of it
constexpr std::int64_t kOldNs = 1'000'000'000;  // after so long it was not a rank 0 of the past that refused
static_assert(kFarewellNs > kOldNs, "rank 0 must not go before the others believe it");

std::string to_text(const Card& c) {
  return fmt::format("talweg {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {:x}", c.version,
                     c.endpoint.host, c.endpoint.port, c.node, c.host_id, c.unix_name, c.host_name, c.pid,
                     c.streams, c.transport, c.job, c.key_origin, c.encrypt, c.secret, c.size, c.parent,
                     c.parent_rank, fmt::join(c.alike, " "));
}

// Rests between looks for what is sooner there the sooner all begin.
class Looking {
 public:
  void rest() const {
    const std::chrono::nanoseconds part{(now_ns() - begin_ns_) / kPartOfWait};
    std::this_thread::sleep_for(std::clamp<std::chrono::nanoseconds>(part, kShortestRest, kLongestRest));
  }

 private:
  const std::int64_t begin_ns_ = now_ns();
};

std::string rank_name(int r) {
  return fmt::format("rank {}", r);
}
std::string aggregator_name(const std::string& node) {
  return "aggregator " + node;
}

// `who` published it.
Card parse_card(const std::string& text, const std::string& who) {
  Card c;
  std::string magic;
  std::istringstream in(text);
  in >> magic >> c.version;
  if (magic != "talweg")
    throw_error(ErrorCode::version,
                "{} published something that is not Talweg's: another "
                "program uses the same store and prefix",
                who);
  if (c.version != wire::kProtocolVersion)
    throw_error(ErrorCode::version,
                "{} speaks protocol version {}, the others speak {}: install the same version everywhere",
                who, c.version, wire::kProtocolVersion);
  if (!(in >> c.endpoint.host >> c.endpoint.port >> c.node >> c.host_id >> c.unix_name >> c.host_name >>
        c.pid >> c.streams >> c.transport >> c.job >> c.key_origin >> c.encrypt >> c.secret >> c.size >>
        c.parent >> c.parent_rank))
    throw_error(ErrorCode::version, "{} published a card that this version cannot read", who);
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
    throw_error(ErrorCode::invalid_argument,
                "rank {} was told that there are {} ranks, rank {} that there are {}: give all "
                "the same WORLD_SIZE",
                r, card.size, other, others.size);
}

void agree_on_security(const std::string& who, const Card& card, const Card& first) {
  if (card.key_origin != first.key_origin)
    throw_error(ErrorCode::invalid_argument,
                "{} has {}, rank 0 has {}: give TALWEG_KEY or TALWEG_KEY_FILE to all", who,
                key_in_words(card), key_in_words(first));
  if (card.encrypt != first.encrypt)
    throw_error(ErrorCode::invalid_argument, "{} {}, rank 0 {}: set TALWEG_ENCRYPT alike on all", who,
                card.encrypt != 0 ? "encrypts" : "does not encrypt",
                first.encrypt != 0 ? "does" : "does not");
}

// Ranks agree on this as on other settings.
void agree_on_transport(const std::string& who, const Card& card, const Card& first) {
  if (card.transport != first.transport)
    throw_error(ErrorCode::invalid_argument, "{} has TALWEG_TRANSPORT={}, rank 0 has {}: set it alike on all",
                who, card.transport, first.transport);
}

// An aggregator that rank 0 has left out, and why.
struct Absent {
  std::string node;
  ErrorCode code = ErrorCode::timeout;  // it was not there in time
  std::string why;
};

// What rank 0 has decided: a line of its own, then a line for each aggregator that is left out, then the
// cards that it has seen, a line for each rank in turn and for each aggregator.
struct Verdict {
  std::optional<Error> refusal;
  std::vector<Absent> absent;
  std::vector<std::string> cards;
};

constexpr const char* kWithout = "without ";
constexpr const char* kNode = "node/";

std::string to_text(const Verdict& v) {
  std::string text =
      v.refusal ? fmt::format("refused {} {}", static_cast<int>(v.refusal->code()), v.refusal->what())
                : "agreed";
  for (const Absent& absent : v.absent)
    text += fmt::format("\n{}{} {} {}", kWithout, absent.node, static_cast<int>(absent.code), absent.why);
  return fmt::format("{}\n{}", text, fmt::join(v.cards, "\n"));
}

ErrorCode code_of(int number) {
  const bool known = number >= 0 && number <= static_cast<int>(ErrorCode::corrupted);
  return known ? static_cast<ErrorCode>(number) : ErrorCode::peer_failed;
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
    v.refusal.emplace(code_of(code), reason);
  }
  while (std::getline(in, line)) {
    if (!line.starts_with(kWithout)) {
      v.cards.push_back(line);
      continue;
    }
    Absent absent;
    int code = 0;
    std::istringstream words(line);
    words >> word >> absent.node >> code;
    absent.code = code_of(code);
    std::getline(words >> std::ws, absent.why);
    v.absent.push_back(std::move(absent));
  }
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
    own_.job = judges() ? random_number() : 0;
  }

  Meeting run() {
    if (aggregates()) look_for_namesake();
    // With its number in the first card already, rank 0 need not wait for a second one.
    if (!judges()) own_.job = number_of_rank_0().value_or(0);
    store_.set(own_key(), to_text(own_));
    if (aggregates())
      Logger().log(LogLevel::info, "aggregator", "{}: it waits for a group", options_.aggregator);
    if (judges()) {
      if (aside() != nullptr) aside()->set(rank_key(0), to_text(own_));
      judge();
    } else {
      obey();
    }
    return {std::move(cards_), seat_, std::move(absent_)};
  }

 private:
  bool aggregates() const { return !options_.aggregator.empty(); }
  bool judges() const { return !aggregates() && options_.rank == 0; }
  std::string own_name() const {
    return aggregates() ? aggregator_name(options_.aggregator)
                        : fmt::format("rank {} of {}", options_.rank, options_.size);
  }

  void judge() {
    Verdict verdict{std::nullopt, {}, {to_text(own_)}};
    cards_[0] = own_;
    std::vector<int> missing;
    try {
      for (int r = 1; r < options_.size; ++r)
        if (!hear(r, verdict)) missing.push_back(r);
      never_came(missing);
      for (int r = 1; r < options_.size; ++r) {
        agree_on_security(rank_name(r), cards_[static_cast<std::size_t>(r)], own_);
        agree_on_settings(r, cards_[static_cast<std::size_t>(r)]);
      }
    } catch (const Error& e) {
      verdict.refusal = e;
      refuse(verdict, missing);
      throw;
    }
    const std::int64_t patience_ns = std::chrono::nanoseconds(options_.patience).count();
    const std::int64_t until = std::min(options_.deadline_ns, now_ns() + patience_ns);
    for (const std::string& node : options_.aggregators) admit(node, until, verdict);
    note_absent(verdict);
    publish(verdict);
  }

  void publish(const Verdict& verdict) {
    if (aside() != nullptr) aside()->set(job_key(own_.job), to_text(verdict));
    store_.set(verdict_key(own_.job), to_text(verdict));
  }

  // The group does not depend on them: whoever does not fit is told why, and left out.
  void admit(const std::string& node, std::int64_t until, Verdict& verdict) {
    if (!options_.no_aggregators.empty()) {
      verdict.absent.push_back({node, ErrorCode::unsupported, options_.no_aggregators});
      return;
    }
    try {
      for (;;) {
        if (const auto text =
                aside() != nullptr ? aside()->find(kNode + node) : store_.find(node_key(node))) {
          const Card card = parse_card(*text, aggregator_name(node));
          if (card.job == own_.job) {
            agree_on_security(aggregator_name(node), card, own_);
            agree_on_transport(aggregator_name(node), card, own_);
            verdict.cards.push_back(*text);
            cards_.push_back(card);
            return;
          }
        }
        if (now_ns() >= until) break;
        std::this_thread::sleep_for(kShortestRest);
      }
      verdict.absent.push_back(
          {node, ErrorCode::timeout, fmt::format("it was not there when all {} ranks were", options_.size)});
    } catch (const Error& e) {
      verdict.absent.push_back({node, e.code(), e.what()});
    }
  }

  void note_absent(const Verdict& verdict) {
    absent_.clear();
    for (const Absent& absent : verdict.absent) absent_.push_back(absent.node + ": " + absent.why);
  }

  // Of a card that is there and can be read.
  std::optional<std::uint64_t> number_of_rank_0() {
    const auto root = store_.find(key(0));
    if (!root) return std::nullopt;
    try {
      return parse_card(*root, rank_name(0)).job;
    } catch (const Error&) {  // whoever waits for it will say so
      return std::nullopt;
    }
  }

  // False at the deadline.
  bool hear(int r, Verdict& verdict) {
    for (const Looking looking;; looking.rest()) {
      const auto text = look_up(key(r));
      verdict.cards.resize(static_cast<std::size_t>(r) + 1);
      if (!text) return false;
      Card& card = cards_[static_cast<std::size_t>(r)];
      card = parse_card(*text, rank_name(r));
      if (card.job == own_.job) {
        verdict.cards.back() = *text;
        agree_on_size(r, card, 0, own_);  // at once: who was told of fewer ranks may be the last that comes
        return true;
      }
      if (now_ns() >= options_.deadline_ns) return false;
    }
  }

  // Says why, and waits until all who may still come to hear it have done so: the store may go with this
  // rank.
  void refuse(const Verdict& verdict, const std::vector<int>& missing) {
    const std::int64_t until = now_ns() + kFarewellNs;
    try {
      publish(verdict);
      for (int r = 1; r < options_.size; ++r) {
        if (std::ranges::find(missing, r) != missing.end()) continue;
        while (!store_.find(heard_key(r)) && now_ns() < until) std::this_thread::sleep_for(kLongestRest);
      }
    } catch (const Error&) {
      return;  // without a store there is nobody to tell; the refusal itself is what the caller must learn
    }
  }

  void obey() {
    try {
      find_verdict();
    } catch (const Error& e) {
      if (aggregates()) turned_away(e);
      try {
        if (own_.job != 0) store_.set(heard_key(options_.rank), "heard");
      } catch (const Error&) {  // rank 0 has gone with its store, and waits for nothing
      }
      throw;
    }
  }

  void find_verdict() {
    std::int64_t refused_ns = 0;
    for (const Looking looking;; looking.rest()) {
      if (aggregates()) look_for_namesake();
      const auto root = look_up(key(0));
      if (!root) break;
      if (const Card first = parse_card(*root, rank_name(0)); first.job != own_.job) {
        own_.job = first.job;
        refused_ns = 0;
        refusal_.reset();
        without_.clear();
        store_.set(own_key(), to_text(own_));
      }
      // A store that closes has answered those who were asking: an aggregator, for whom nobody waits, asks.
      const std::int64_t asks_ns = std::chrono::nanoseconds(kLongestRest).count();
      if (const auto text = aggregates() ? look_up(verdict_key(own_.job), now_ns() + asks_ns)
                                         : store_.find(verdict_key(own_.job))) {
        Verdict verdict = parse_verdict(*text);
        if (aggregates() ? accept_aggregator(verdict) : accept(verdict)) return;
        if (verdict.refusal) {
          if (refused_ns == 0) refused_ns = now_ns();
          if (now_ns() - refused_ns > kOldNs) throw Error(*verdict.refusal);
        }
      }
      if (now_ns() >= options_.deadline_ns) break;
    }
    no_verdict();
  }

  // True when it is about this rank, and all is well; throws when it is about this rank and a refusal.
  bool accept(const Verdict& verdict) {
    const auto own = static_cast<std::size_t>(options_.rank);
    if (verdict.cards.size() <= own || verdict.cards[own] != to_text(own_)) return false;
    if (verdict.refusal) throw Error(*verdict.refusal);
    if (verdict.cards.size() < cards_.size()) return false;
    seat_ = options_.rank;
    take(verdict);
    return true;
  }

  void take(const Verdict& verdict) {
    cards_.clear();
    for (const std::string& card : verdict.cards)
      cards_.push_back(parse_card(card, rank_name(static_cast<int>(cards_.size()))));
    note_absent(verdict);
  }

  // An agreement without it may be an old one, or that of a group which did not wait: another may follow. So
  // may one after a group in which it has no place, which it then takes for a refusal.
  bool accept_aggregator(Verdict& verdict) {
    if (verdict.refusal) return false;
    take(verdict);
    without_ = "a group formed whose network has no aggregator of that name";
    for (std::size_t i = 0; i < cards_.size(); ++i) {
      if (cards_[i].node != options_.aggregator) continue;
      seat_ = static_cast<int>(i);
      if (verdict.cards[i] == to_text(own_)) return true;
      verdict.refusal.emplace(
          ErrorCode::invalid_argument,
          fmt::format("{} pid {} is aggregator {} of this group already: start one of each name",
                      cards_[i].host_name, cards_[i].pid, options_.aggregator));
    }
    for (const Absent& absent : verdict.absent) {
      if (absent.node != options_.aggregator) continue;
      without_ = "a group formed without it";
      if (absent.code != ErrorCode::timeout) verdict.refusal.emplace(absent.code, absent.why);
    }
    refusal_ = verdict.refusal;
    return false;
  }

  // Of two with one name a group takes whose card it reads; the store may be gone before the other has heard.
  void look_for_namesake() {
    const auto text = store_.find(own_key());
    if (!text || *text == to_text(own_)) return;
    try {
      const Card card = parse_card(*text, own_name());
      if (card.pid != own_.pid || card.endpoint.port != own_.endpoint.port)
        namesake_ = fmt::format("{} pid {}", card.host_name, card.pid);
    } catch (const Error&) {  // left by who knows whom
    }
  }

  // What `e` did not know.
  [[noreturn]] void turned_away(const Error& e) const {
    if (refusal_) throw Error(*refusal_);
    if (!namesake_.empty())
      throw_error(ErrorCode::invalid_argument,
                  "{}: no group took it, and {} has the same name: start one of each name", own_name(),
                  namesake_);
    if (!without_.empty()) throw_error(e.code(), "{}: {}, and no other came", own_name(), without_);
    if (e.code() != ErrorCode::peer_failed) throw Error(e);
    throw_error(e.code(), "{}: no group took it; has the ranks' network an aggregator of that name? {}",
                own_name(), e.what());
  }

  [[noreturn]] void no_verdict() {
    if (aggregates())
      throw Error(ErrorCode::timeout, own_name() + ": no group that it could join has formed");
    std::vector<int> missing;
    for (int r = 0; r < options_.size; ++r) {
      if (r == options_.rank) continue;
      const auto card = store_.find(key(r));
      if (!card || parse_card(*card, rank_name(r)).job != own_.job)
        missing.push_back(r);  // a card of the dead does not count
    }
    never_came(missing);
    if (const auto root = store_.find(key(0)))
      agree_on_size(0, parse_card(*root, rank_name(0)), options_.rank, own_);
    throw Error(ErrorCode::timeout,
                own_name() + ": rank 0 did not say before the deadline that all have joined");
  }

  // Empty at the deadline.
  std::optional<std::string> look_up(const std::string& name) { return look_up(name, options_.deadline_ns); }
  std::optional<std::string> look_up(const std::string& name, std::int64_t until_ns) {
    try {
      return store_.get(name, std::chrono::steady_clock::time_point{std::chrono::nanoseconds(until_ns)});
    } catch (const Error& e) {
      if (e.code() != ErrorCode::timeout) throw;
      return std::nullopt;
    }
  }

  void never_came(const std::vector<int>& missing) const {
    if (missing.empty()) return;
    throw_error(ErrorCode::timeout, "{} waited for the others to join: {} {} never came", own_name(),
                missing.size() == 1 ? "rank" : "ranks", fmt::join(missing, ", "));
  }

  void agree_on_settings(int r, const Card& card) const {
    if (card.alike.size() != own_.alike.size())
      throw_error(ErrorCode::version, "rank {} published a card of another version", r);
    for (std::size_t i = 0; i < own_.alike.size(); ++i)
      if (card.alike[i] != own_.alike[i])
        throw_error(ErrorCode::invalid_argument,
                    "rank {} and rank 0 have different values of {}: set it alike on all", r,
                    options_.alike[i].first);
  }

  // Where aggregators look, if not where the ranks meet.
  Store* aside() const { return options_.aggregators.empty() ? nullptr : options_.aggregator_store; }

  static std::string rank_key(int rank) { return fmt::format("rank{}", rank); }
  static std::string job_key(std::uint64_t job) { return fmt::format("all{:016x}", job); }
  std::string key(int rank) const { return options_.prefix + rank_key(rank); }
  std::string node_key(const std::string& node) const { return options_.prefix + kNode + node; }
  std::string own_key() const { return aggregates() ? node_key(options_.aggregator) : key(options_.rank); }
  std::string verdict_key(std::uint64_t job) const { return options_.prefix + job_key(job); }
  std::string heard_key(int rank) const {
    return fmt::format("{}heard{:016x}-{}", options_.prefix, own_.job, rank);
  }

  Store& store_;
  const ConnectOptions& options_;
  Card own_;
  std::vector<Card> cards_;
  int seat_ = 0;
  std::optional<Error> refusal_;  // these of an aggregator: by a group that has formed
  std::string without_;           // what is known of that group otherwise
  std::string namesake_;          // who else has its name, or had it
  std::vector<std::string> absent_;
};

}  // namespace

std::uint64_t random_number() {
  std::uint64_t value = 0;
  wire::fill_random(std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

Meeting exchange_cards(Store& store, const ConnectOptions& options, const Card& own) {
  return Exchange(store, options, own).run();
}

}  // namespace talweg::live
