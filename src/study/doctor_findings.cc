#include "study/doctor_findings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/collectives.h"
#include "base/printable.h"
#include "observe/recorder.h"

namespace talweg::study {

namespace {

using Kind = Finding::Kind;

// A straggler starts its calls this much later than the others, in the median; less is what schedulers do.
constexpr std::int64_t kLateNs = 2'000'000;
constexpr std::size_t kEnoughCalls =
    5;  // for a median that says something, and for losses that are no chance
// Of a rank's data in bounded sums so much is missing that they wait longer for the rest
// (protocol/bounded/adaptive_deadline.h), and so many times as much as of the others'.
constexpr double kMuchMissing = 0.001;
constexpr double kFarMore = 10;

std::string seconds(std::int64_t ns) {
  const double s = static_cast<double>(ns) * 1e-9;
  return s < 0.01 ? fmt::format("{:.3g} ms", s * 1e3) : fmt::format("{:.3g} s", s);
}

// What all ranks have to agree on, in words.
std::string call_text(const observe::RecordedCall& c) {
  const auto op = parse_collective(c.operation);
  const bool counts_agree =
      !op || facts(*op).knows == Knows::all;  // else ranks need not give the same number
  std::vector<std::string> parts;
  if (op && facts(*op).reduces) parts.push_back(c.reduction);
  if (op != Collective::barrier) parts.push_back(c.type);
  if (counts_agree && op != Collective::barrier) parts.push_back(fmt::format("{} elements", c.count));
  if (op && facts(*op).rooted) parts.push_back(fmt::format("root {}", c.root));
  std::string text = c.operation;
  if (!parts.empty()) text += fmt::format("({})", fmt::join(parts, ", "));
  const bool uneven = c.layout.find_first_not_of('0') != std::string::npos;
  return uneven && counts_agree ? text + " with counts " + c.layout.substr(0, 6) : text;
}

class Doctor {
 public:
  explicit Doctor(std::vector<const observe::Record*> records) : records_(std::move(records)) {
    for (const observe::Record* record : records_)
      for (const observe::RecordedCall& call : record->calls)
        if (call.sequence) calls_[number(call)][record->rank] = &call;
  }

  Diagnosis run() {
    const observe::Record& any = *records_.front();
    Diagnosis d{any.job, any.group, any.size, {}, {}};
    for (const observe::Record* record : records_) d.seen.push_back(record->rank);
    find_mismatch();
    find_waiting();
    find_messages();
    find_failures();
    find_absent(d);
    find_stragglers();
    find_losses(d.size);
    if (findings_.empty()) find_health();
    find_layers();
    d.findings = std::move(findings_);
    return d;
  }

 private:
  // Bounded calls are counted apart from the collectives of their group.
  using Number = std::pair<bool, std::uint64_t>;
  static Number number(const observe::RecordedCall& call) { return {call.bounded(), *call.sequence}; }

  const observe::Record& record_of(int rank) const {
    return **std::ranges::find_if(records_, [&](const observe::Record* r) { return r->rank == rank; });
  }
  void add(Kind kind, std::string text, std::vector<int> ranks) {
    findings_.push_back({kind, std::move(text), std::move(ranks)});
  }
  // How long the call lasts or lasted on its own rank.
  std::int64_t age(int rank, const observe::RecordedCall& call) const {
    return (call.in_flight() ? record_of(rank).monotonic_ns : call.ended_ns) - call.started_ns;
  }

  void find_mismatch() {
    std::size_t more = 0;
    for (const auto& [at, by_rank] : calls_) {
      std::map<std::string, std::vector<int>> sides;
      for (const auto& [rank, call] : by_rank) sides[call_text(*call)].push_back(rank);
      if (sides.size() < 2) continue;
      if (mismatch_++ > 0) {
        ++more;
        continue;
      }
      // The smallest side is the likeliest to be wrong.
      std::vector<std::pair<std::string, std::vector<int>>> ordered(sides.begin(), sides.end());
      std::ranges::stable_sort(
          ordered, [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
      std::vector<std::string> texts;
      for (const auto& [text, ranks] : ordered)
        texts.push_back(
            fmt::format("{} {} {}", ranks_text(ranks), ranks.size() > 1 ? "call" : "calls", text));
      add(Kind::mismatch, fmt::format("in call #{} ranks disagree: {}", at.second, fmt::join(texts, ", ")),
          ordered.back().second);
    }
    if (more > 0) findings_.back().text += fmt::format(" ({} later calls differ, too)", more);
  }

  // Where a rank is that others wait for.
  std::string whereabouts(int rank, const Number& at) const {
    const bool seen =
        std::ranges::any_of(records_, [&](const observe::Record* r) { return r->rank == rank; });
    if (!seen) return fmt::format("rank {} has left no record", rank);
    const observe::Record& record = record_of(rank);
    if (const auto here = calls_.at(at).find(rank); here != calls_.at(at).end()) {
      const observe::RecordedCall& call = *here->second;
      if (call.in_flight()) return fmt::format("rank {} is in it, too", rank);
      return fmt::format("rank {} has {} it", rank, call.state);
    }
    const observe::RecordedCall* last = nullptr;
    for (const observe::RecordedCall& call : record.calls)
      if (call.sequence && call.bounded() == at.first) last = &call;
    if (last == nullptr) return fmt::format("rank {} has made no call", rank);
    if (last->in_flight())
      return fmt::format("rank {} is in {} #{} since {}", rank, last->operation, *last->sequence,
                         seconds(age(rank, *last)));
    return fmt::format("rank {} {} {} #{} {} before its record and has not called since", rank,
                       last->state == "failed" ? "failed in" : "completed", last->operation, *last->sequence,
                       seconds(record.monotonic_ns - last->ended_ns));
  }

  void find_waiting() {
    for (const auto& [at, by_rank] : calls_) {
      std::vector<int> waiting;
      std::vector<int> absent;
      std::vector<int> silent;
      std::int64_t longest = 0;
      bool over = true;
      const observe::RecordedCall* example = nullptr;
      for (const auto& [rank, call] : by_rank) {
        if (!call->in_flight() && call->error != "timeout") continue;
        waiting.push_back(rank);
        example = call;
        over = over && !call->in_flight();
        longest = std::max(longest, age(rank, *call));
        absent.insert(absent.end(), call->not_started.begin(), call->not_started.end());
        silent.insert(silent.end(), call->data_missing_from.begin(), call->data_missing_from.end());
      }
      if (example == nullptr) continue;
      const auto unique = [](std::vector<int>& ranks) {
        std::ranges::sort(ranks);
        ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
      };
      unique(absent);
      unique(silent);
      // A rank's own record knows better than what others have heard of it: or have not, behind an
      // aggregator.
      std::erase_if(absent, [&ranks = by_rank](int r) { return ranks.contains(r); });
      if (absent.empty() && silent.empty())
        for (const observe::Record* record : records_)
          if (std::none_of(record->calls.begin(), record->calls.end(), [&at = at](const auto& call) {
                return call.sequence && call.bounded() == at.first && number(call) >= at;
              }))
            absent.push_back(record->rank);
      const char* const wait = over ? "waited" : waiting.size() > 1 ? "wait" : "waits";
      std::string text =
          fmt::format("{} {} in {} #{} {} {}", ranks_text(waiting), wait, example->operation, at.second,
                      over ? "and failed with a timeout after" : "since", seconds(longest));
      if (!absent.empty()) {
        for (const int rank : absent) text += ", " + whereabouts(rank, at);
      } else if (!silent.empty()) {
        text += fmt::format("; all have started it, data from {} are missing", ranks_text(silent));
      } else if (const auto phase = example->text.find(", phase "); phase != std::string::npos) {
        text += example->text.substr(phase);  // which names what is no rank
      }
      add(Kind::waiting, text, absent.empty() ? silent : absent);
    }
  }

  void find_messages() {
    for (const observe::Record* record : records_)
      for (const observe::RecordedCall& call : record->calls) {
        if (call.sequence || (!call.in_flight() && call.error != "timeout")) continue;
        const bool sends = call.operation == "send";
        add(Kind::message,
            fmt::format("rank {} waits {} {} of {} {} tag {} since {}", record->rank,
                        sends ? "to send" : "to receive", fmt::format("{} {}", call.count, call.type),
                        "a message",
                        call.peer < 0 ? std::string("from any rank")
                                      : fmt::format("{} rank {}", sends ? "to" : "from", call.peer),
                        call.tag, seconds(age(record->rank, call))),
            call.peer < 0 ? std::vector<int>{} : std::vector<int>{call.peer});
      }
  }

  void find_failures() {
    for (const auto& [at, by_rank] : calls_) {
      std::map<std::string, std::vector<int>> by_error;
      for (const auto& [rank, call] : by_rank)
        if (call->state == "failed" && call->error != "timeout") by_error[call->error].push_back(rank);
      for (const auto& [error, ranks] : by_error) {
        const observe::RecordedCall& call = *by_rank.at(ranks.front());
        if (!told_.insert({error, call.text}).second) continue;
        add(Kind::failed,
            fmt::format("{} #{} failed on {} ({}): {}", call.operation, at.second, ranks_text(ranks), error,
                        call.text),
            ranks);
      }
    }
  }

  void find_absent(const Diagnosis& d) {
    std::vector<int> absent;
    for (int rank = 0; rank < d.size; ++rank)
      if (std::ranges::find(d.seen, rank) == d.seen.end()) absent.push_back(rank);
    if (absent.empty()) return;
    std::vector<std::string> hosts;
    for (const int rank : absent) hosts.push_back(records_.front()->hosts[static_cast<std::size_t>(rank)]);
    add(Kind::missing,
        fmt::format("{} of {} left no record ({}): dead, or not asked, or its files are elsewhere",
                    ranks_text(absent), d.size, fmt::join(hosts, ", ")),
        absent);
  }

  void find_stragglers() {
    const bool comparable = std::ranges::all_of(
        records_, [](const observe::Record* r) { return r->offset_ns && r->offset_error_ns < kLateNs / 2; });
    if (!comparable || records_.size() < 2) return;
    std::map<int, std::vector<std::int64_t>> lateness;
    for (const auto& [at, by_rank] : calls_) {
      if (by_rank.size() != records_.size()) continue;
      std::vector<std::int64_t> times;
      for (const auto& [rank, call] : by_rank) times.push_back(call->started_ns + *record_of(rank).offset_ns);
      const std::int64_t first = *std::ranges::min_element(times);
      std::size_t i = 0;
      for (const auto& [rank, call] : by_rank) lateness[rank].push_back(times[i++] - first);
    }
    for (auto& [rank, late] : lateness) {
      if (late.size() < kEnoughCalls) continue;
      std::nth_element(late.begin(), late.begin() + static_cast<std::ptrdiff_t>(late.size() / 2), late.end());
      const std::int64_t median = late[late.size() / 2];
      if (median < kLateNs) continue;
      add(Kind::straggler,
          fmt::format("rank {} ({}) starts its calls {} after the first rank (median of {} calls)", rank,
                      record_of(rank).hosts[static_cast<std::size_t>(rank)], seconds(median), late.size()),
          {rank});
    }
  }

  // Whose data are lost far more often than those of the others: on their way out.
  void find_losses(int size) {
    struct Sender {
      double sent = 0, missing = 0;
      std::size_t losses = 0;
    };
    std::vector<Sender> senders(static_cast<std::size_t>(size));
    Sender all;
    for (const observe::Record* record : records_)
      for (const observe::RecordedCall& call : record->calls) {
        if (call.sent_bytes <= 0 || record->size != size) continue;
        // Every rank sends each other one about as much; to a switch, all of it for all.
        const double from_each = static_cast<double>(call.sent_bytes) / (call.by_switch ? 1 : size - 1);
        for (int r = 0; r < size; ++r)
          if (r != record->rank) senders[static_cast<std::size_t>(r)].sent += from_each;
        all.sent += from_each * (size - 1);
        for (const auto& [rank, bytes] : call.lost_of_sender) {
          Sender& sender = senders[static_cast<std::size_t>(rank)];
          sender.missing += static_cast<double>(bytes);
          all.missing += static_cast<double>(bytes);
          ++sender.losses;
        }
      }
    for (int r = 0; r < size; ++r) {
      const Sender& sender = senders[static_cast<std::size_t>(r)];
      if (sender.losses < kEnoughCalls || sender.sent <= 0) continue;
      const double part = sender.missing / sender.sent;
      const double rest = all.sent - sender.sent;
      const double others = rest > 0 ? (all.missing - sender.missing) / rest : 0;
      if (part < kMuchMissing || part < kFarMore * others) continue;
      add(Kind::lossy,
          fmt::format(
              "of the data of rank {} ({}) {:.2g} % are missing in bounded sums, of the others' {:.2g} %", r,
              records_.front()->hosts[static_cast<std::size_t>(r)], 100 * part, 100 * others),
          {r});
    }
  }

  // Nothing that is wrong, as it is within what may be lost: which layers have lost the most. Layers are
  // numbered in each call, and calls of one size are taken for those of one bucket.
  void find_layers() {
    using Layer = std::pair<std::string, int>;
    double all = 0;
    std::map<Layer, double> by_layer;
    for (const observe::Record* record : records_)
      for (const observe::RecordedCall& call : record->calls) {
        all += static_cast<double>(call.lost_bytes);
        for (const auto& [layer, bytes] : call.lost_of_layer)
          by_layer[{fmt::format("{} {}", call.count, call.type), layer}] += static_cast<double>(bytes);
      }
    std::vector<std::pair<Layer, double>> worst(by_layer.begin(), by_layer.end());
    if (worst.empty() || all <= 0) return;
    std::ranges::stable_sort(worst, [](const auto& a, const auto& b) { return a.second > b.second; });
    worst.resize(std::min(worst.size(), observe::Recorder::kWorstLayers));
    std::vector<std::string> said;
    for (const auto& [layer, bytes] : worst)
      said.push_back(fmt::format("{} of {} ({:.0f} bytes, {:.2g} %)", layer.second, layer.first, bytes,
                                 100 * bytes / all));
    add(Kind::layers,
        fmt::format("of {:.0f} bytes that bounded sums have lost, the most are of layers {}", all,
                    fmt::join(said, ", ")),
        {});
  }

  void find_health() {
    std::string text = "nothing is wrong in these records";
    if (!calls_.empty()) {
      const auto& [at, by_rank] = *calls_.rbegin();
      text += fmt::format(": the last call is {} #{}, completed by {}", by_rank.begin()->second->operation,
                          at.second, by_rank.size() == records_.size() ? "all of them" : "some of them");
    }
    add(Kind::healthy, text, {});
  }

  std::vector<const observe::Record*> records_;
  std::map<Number, std::map<int, const observe::RecordedCall*>> calls_;  // by number, then rank
  std::vector<Finding> findings_;
  std::set<std::pair<std::string, std::string>> told_;
  std::size_t mismatch_ = 0;
};

// What a rank of a group has left.
struct Latest {
  const observe::Record* record = nullptr;
  int files = 0;
};

std::optional<Finding> find_repeated(const std::map<int, Latest>& by_rank) {
  constexpr std::size_t kNamedFiles = 4;
  Finding finding{Kind::repeated, "", {}};
  std::vector<std::string> used;
  for (const auto& [rank, latest] : by_rank) {
    if (latest.files < 2) continue;
    finding.ranks.push_back(rank);
    if (used.size() < kNamedFiles) used.push_back(latest.record->file);
  }
  if (used.empty()) return std::nullopt;
  finding.text =
      fmt::format("{} left several records, the latest of each is used: {}{}", ranks_text(finding.ranks),
                  fmt::join(used, ", "), finding.ranks.size() > used.size() ? ", ..." : "");
  return finding;
}

}  // namespace

const char* name(Finding::Kind kind) {
  static constexpr const char* kNames[] = {"mismatch",  "waiting", "message", "failed", "missing",
                                           "straggler", "lossy",   "healthy", "layers", "repeated"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string ranks_text(std::vector<int> ranks) {
  std::ranges::sort(ranks);
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    parts.push_back(end - i == 1 ? fmt::format("{}", ranks[i])
                                 : fmt::format("{}-{}", ranks[i], ranks[end - 1]));
    i = end;
  }
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(parts, ", "));
}

std::vector<Diagnosis> diagnose(const std::vector<observe::Record>& records) {
  std::map<std::pair<std::string, std::string>, std::map<int, Latest>> groups;
  for (const observe::Record& record : records) {
    Latest& known = groups[{record.job, record.group}][record.rank];
    if (known.record == nullptr || known.record->wall_ns < record.wall_ns) known.record = &record;
    ++known.files;
  }
  std::vector<Diagnosis> list;
  for (const auto& [group, by_rank] : groups) {
    std::vector<const observe::Record*> of_group;
    for (const auto& [rank, latest] : by_rank) of_group.push_back(latest.record);
    list.push_back(Doctor(std::move(of_group)).run());
    if (auto repeated = find_repeated(by_rank)) list.back().findings.push_back(std::move(*repeated));
  }
  return list;
}

std::string to_text(const std::vector<Diagnosis>& list) {
  std::string text;
  for (const Diagnosis& d : list) {
    text += fmt::format("job {} group {}: {} of {} ranks have left a record\n", printable(d.job),
                        printable(d.group), d.seen.size(), d.size);
    for (const Finding& f : d.findings) text += fmt::format("  {}: {}\n", name(f.kind), printable(f.text));
  }
  return text;
}

nlohmann::json to_json(const std::vector<Diagnosis>& list, const std::vector<std::string>& unreadable) {
  nlohmann::json document = {{"groups", nlohmann::json::array()}, {"unreadable", unreadable}};
  for (const Diagnosis& d : list) {
    nlohmann::json group = {
        {"job", d.job}, {"group", d.group}, {"size", d.size}, {"ranks_with_record", d.seen}};
    group["findings"] = nlohmann::json::array();
    for (const Finding& f : d.findings)
      group["findings"].push_back({{"kind", name(f.kind)}, {"text", f.text}, {"ranks", f.ranks}});
    document["groups"].push_back(std::move(group));
  }
  return document;
}

}  // namespace talweg::study
