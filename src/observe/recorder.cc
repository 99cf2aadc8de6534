#include "observe/recorder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>

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

std::string json_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out;
}

namespace {

const char* state_name(const Recorder::Entry& entry, const protocol::Session::Pending* pending) {
  if (entry.state == Recorder::State::completed) return "completed";
  if (entry.state == Recorder::State::failed) return "failed";
  return pending != nullptr && pending->moving ? "moving" : "started";
}

void append(fmt::memory_buffer& out, const Recorder::Entry& entry,
            const protocol::Session::Pending* pending) {
  const CallNote& note = entry.note;
  const auto to = std::back_inserter(out);
  fmt::format_to(to, R"({{"operation":"{}")", call_name(note.kind, note.signature.op));
  if (note.kind == CallNote::Kind::collective) {
    fmt::format_to(to, R"(,"sequence":{},"root":{},"reduction":"{}","layout":"{:016x}")", note.sequence,
                   note.signature.root, name(note.signature.reduction), note.signature.layout);
  } else {
    fmt::format_to(to, R"(,"peer":{},"tag":{})", note.peer, note.tag);
  }
  fmt::format_to(to, R"(,"type":"{}","count":{},"bytes":{},"algorithm":"{}","trees":{},"state":"{}")",
                 name(note.signature.type), note.signature.count, note.bytes,
                 json_escaped(entry.algorithm.data()), note.trees, state_name(entry, pending));
  fmt::format_to(to, R"(,"started_ns":{},"deadline_ns":{})", note.started_ns, note.deadline_ns);
  if (entry.state != Recorder::State::in_flight) fmt::format_to(to, R"(,"ended_ns":{})", entry.ended_ns);
  const auto& absent = pending != nullptr ? pending->absent : entry.absent;
  const auto& silent = pending != nullptr ? pending->silent : entry.silent;
  if (!absent.empty()) fmt::format_to(to, R"(,"not_started":[{}])", fmt::join(absent, ","));
  if (!silent.empty()) fmt::format_to(to, R"(,"data_missing_from":[{}])", fmt::join(silent, ","));
  if (entry.state == Recorder::State::failed)
    fmt::format_to(to, R"(,"error":"{}","text":"{}")", name(entry.code), json_escaped(entry.error));
  fmt::format_to(to, "}}");
}

}  // namespace

std::string to_json(const RecordHead& head, const Recorder& recorder,
                    const std::vector<std::pair<std::uint64_t, protocol::Session::Pending>>& pending) {
  fmt::memory_buffer out;
  const auto to = std::back_inserter(out);
  std::vector<std::string> hosts;
  for (const std::string& host : head.hosts) hosts.push_back('"' + json_escaped(host) + '"');
  fmt::format_to(to,
                 R"({{"talweg_flight_record":1,"reason":"{}","job":"{:016x}","group":"{:08x}","rank":{},)"
                 R"("size":{},"ranks_in_job":[{}],"hosts":[{}],"monotonic_ns":{},"wall_ns":{},)",
                 json_escaped(head.reason), head.job, head.group, head.rank, head.hosts.size(),
                 fmt::join(head.members, ","), fmt::join(hosts, ","), head.monotonic_ns, head.wall_ns);
  if (head.clock.known)
    fmt::format_to(to, R"("offset_to_rank0_ns":{},"offset_error_ns":{},)", head.clock.offset_ns,
                   head.clock.round_trip_ns / 2);
  fmt::format_to(to, R"("operations_started":{},"operations":[)", recorder.started());
  for (std::uint64_t ticket = recorder.first(); ticket < recorder.started(); ++ticket) {
    const auto it =
        std::find_if(pending.begin(), pending.end(), [&](const auto& p) { return p.first == ticket; });
    fmt::format_to(to, "{}", ticket == recorder.first() ? "\n" : ",\n");
    append(out, *recorder.find(ticket), it == pending.end() ? nullptr : &it->second);
  }
  fmt::format_to(to, "\n]}}\n");
  return fmt::to_string(out);
}

}  // namespace talweg::observe
