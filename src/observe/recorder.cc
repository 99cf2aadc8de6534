#include "observe/recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>

namespace talweg::observe {

const char* call_name(CallNote::Kind kind, Collective op) {
  if (kind == CallNote::Kind::send) return "send";
  if (kind == CallNote::Kind::receive) return "recv";
  return name(op);
}

ShortName short_name(std::string_view text) {
  ShortName out{};
  std::memcpy(out.data(), text.data(), std::min(text.size(), out.size() - 1));
  return out;
}

constexpr std::size_t kFirstEntries = 16;

std::uint64_t Recorder::start(const CallNote& note) {
  const std::uint64_t ticket = next_;
  if (most_ == 0) return ticket;
  if (ticket == kept_ && kept_ < most_) {
    kept_ = std::min(most_, std::max(kFirstEntries, 2 * kept_));
    entries_.resize(kept_);
  }
  ++next_;
  Entry& entry = entries_[ticket & (kept_ - 1)];
  entry.note = note;
  entry.algorithm = short_name(note.algorithm);
  entry.note.algorithm = {};  // the plan may go away before the record does
  entry.state = State::in_flight;
  entry.ended_ns = 0;
  if (entry.detailed) {
    entry.detailed = false;
    entry.error.clear();
    entry.absent.clear();
    entry.silent.clear();
  }
  return ticket;
}

const Recorder::Entry* Recorder::find(std::uint64_t ticket) const {
  return ticket >= first() && ticket < next_ ? &entries_[ticket & (kept_ - 1)] : nullptr;
}

Recorder::Entry* Recorder::change(std::uint64_t ticket) {
  return const_cast<Entry*>(find(ticket));
}

void Recorder::end(std::uint64_t ticket, std::int64_t now_ns) {
  Entry* entry = change(ticket);
  if (entry == nullptr) return;
  entry->state = State::completed;
  entry->ended_ns = std::max(now_ns, entry->note.started_ns);
}

void Recorder::fail(std::uint64_t ticket, std::int64_t now_ns, ErrorCode code, const std::string& text) {
  Entry* entry = change(ticket);
  if (entry == nullptr) return;
  entry->state = State::failed;
  entry->ended_ns = std::max(now_ns, entry->note.started_ns);
  entry->detailed = true;
  entry->code = code;
  entry->error = text;
}

void Recorder::miss(std::uint64_t ticket, const protocol::Session::Pending& pending) {
  Entry* entry = change(ticket);
  if (entry == nullptr) return;
  entry->detailed = true;
  entry->absent = pending.absent;
  entry->silent = pending.silent;
}

std::int64_t wall_ns() {
  using std::chrono::system_clock;
  return std::chrono::nanoseconds(system_clock::now().time_since_epoch()).count();
}

namespace {

using OrderedJson = nlohmann::ordered_json;

const char* state_name(const Recorder::Entry& entry, const protocol::Session::Pending* pending) {
  if (entry.state == Recorder::State::completed) return "completed";
  if (entry.state == Recorder::State::failed) return "failed";
  return pending != nullptr && pending->moving ? "moving" : "started";
}

OrderedJson call_json(const Recorder::Entry& entry, const protocol::Session::Pending* pending) {
  const CallNote& note = entry.note;
  OrderedJson call = {{"operation", call_name(note.kind, note.signature.op)}};
  if (note.kind == CallNote::Kind::collective) {
    call["sequence"] = note.sequence;
    call["root"] = note.signature.root;
    call["reduction"] = name(note.signature.reduction);
    call["layout"] = fmt::format("{:016x}", note.signature.layout);
  } else {
    call["peer"] = note.peer;
    call["tag"] = note.tag;
  }
  call["type"] = name(note.signature.type);
  call["count"] = note.signature.count;
  call["bytes"] = note.bytes;
  call["algorithm"] = entry.algorithm.data();
  call["trees"] = note.trees;
  call["state"] = state_name(entry, pending);
  call["started_ns"] = note.started_ns;
  call["deadline_ns"] = note.deadline_ns;
  if (entry.state != Recorder::State::in_flight) call["ended_ns"] = entry.ended_ns;
  const auto& absent = pending != nullptr ? pending->absent : entry.absent;
  const auto& silent = pending != nullptr ? pending->silent : entry.silent;
  if (!absent.empty()) call["not_started"] = absent;
  if (!silent.empty()) call["data_missing_from"] = silent;
  if (pending != nullptr) call["text"] = pending->text;
  if (entry.state == Recorder::State::failed) {
    call["error"] = name(entry.code);
    call["text"] = entry.error;
  }
  return call;
}

std::string dumped(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace

std::string to_json(const RecordHead& head, const Recorder& recorder,
                    const std::vector<std::pair<std::uint64_t, protocol::Session::Pending>>& pending) {
  OrderedJson document = {{"talweg_flight_record", 1},
                          {"reason", head.reason},
                          {"job", fmt::format("{:016x}", head.job)},
                          {"group", fmt::format("{:08x}", head.group)},
                          {"rank", head.rank},
                          {"size", head.hosts.size()},
                          {"ranks_in_job", head.members},
                          {"hosts", head.hosts},
                          {"monotonic_ns", head.monotonic_ns},
                          {"wall_ns", head.wall_ns}};
  if (head.clock.known) {
    document["offset_to_rank0_ns"] = head.clock.offset_ns;
    document["offset_error_ns"] = head.clock.round_trip_ns / 2;
  }
  document["operations_started"] = recorder.started();
  // One call a line, so that people find theirs.
  std::string text = dumped(document);
  text.replace(text.size() - 1, 1, ",\"operations\":[");
  for (std::uint64_t ticket = recorder.first(); ticket < recorder.started(); ++ticket) {
    const auto it = std::ranges::find_if(pending, [&](const auto& p) { return p.first == ticket; });
    text += ticket == recorder.first() ? "\n" : ",\n";
    text += dumped(call_json(*recorder.find(ticket), it == pending.end() ? nullptr : &it->second));
  }
  return text + "\n]}\n";
}

}  // namespace talweg::observe
