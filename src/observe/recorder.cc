#include "observe/recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "text/escape.h"

namespace talweg::observe {

const char* call_name(CallNote::Kind kind, Collective op) {
  if (kind == CallNote::Kind::send) return "send";
  if (kind == CallNote::Kind::receive) return "recv";
  if (kind == CallNote::Kind::bounded) return "bounded_all_reduce";
  if (kind == CallNote::Kind::bounded_push) return "bounded_push";
  if (kind == CallNote::Kind::bounded_pull) return "bounded_pull";
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
  entry = {note};
  if (!failures_.empty()) failures_.erase(ticket - kept_);
  if (!losses_.empty()) losses_.erase(ticket - kept_);
  const auto* next = reinterpret_cast<const std::byte*>(&entries_[next_ & (kept_ - 1)]);
  __builtin_prefetch(next, 1);
  __builtin_prefetch(next + sizeof(Entry) / 2, 1);
  return ticket;
}

const Recorder::Entry* Recorder::find(std::uint64_t ticket) const {
  return ticket >= first() && ticket < next_ ? &entries_[ticket & (kept_ - 1)] : nullptr;
}

const Recorder::Failure* Recorder::failure(std::uint64_t ticket) const {
  const auto it = failures_.find(ticket);
  return it == failures_.end() ? nullptr : &it->second;
}

const Recorder::Losses* Recorder::losses(std::uint64_t ticket) const {
  const auto it = losses_.find(ticket);
  return it == losses_.end() ? nullptr : &it->second;
}

Recorder::Entry* Recorder::change(std::uint64_t ticket) {
  return const_cast<Entry*>(find(ticket));
}

void Recorder::end(std::uint64_t ticket, std::int64_t now_ns, protocol::SumWay way) {
  Entry* entry = change(ticket);
  if (entry == nullptr) return;
  entry->state = State::completed;
  entry->way = way;
  entry->ended_ns = std::max(now_ns, entry->note.started_ns);
}

void Recorder::fail(std::uint64_t ticket, std::int64_t now_ns, ErrorCode code, const std::string& text) {
  Entry* entry = change(ticket);
  if (entry == nullptr) return;
  entry->state = State::failed;
  entry->ended_ns = std::max(now_ns, entry->note.started_ns);
  Failure& failure = failures_[ticket];
  failure.code = code;
  failure.text = text;
}

void Recorder::miss(std::uint64_t ticket, const protocol::Session::Pending& pending) {
  if (find(ticket) == nullptr) return;
  Failure& failure = failures_[ticket];
  failure.absent = pending.absent;
  failure.silent = pending.silent;
}

void Recorder::lose(std::uint64_t ticket, const LossReport& report) {
  if (find(ticket) == nullptr) return;
  Losses kept{report, {}};
  kept.report.lost_of_layer = {};
  const std::size_t layers = report.lost_of_layer.size();
  for (std::size_t layer = 0; layer < layers && layers > 1; ++layer)  // of one it is what was lost in all
    if (report.lost_of_layer[layer] > 0) kept.worst_layers.emplace_back(layer, report.lost_of_layer[layer]);
  std::ranges::stable_sort(kept.worst_layers,
                           [](const auto& a, const auto& b) { return a.second > b.second; });
  if (kept.worst_layers.size() > kWorstLayers) kept.worst_layers.resize(kWorstLayers);
  losses_[ticket] = std::move(kept);
}

namespace {

using OrderedJson = nlohmann::ordered_json;

const char* state_name(const Recorder::Entry& entry, const protocol::Session::Pending* pending) {
  if (entry.state == Recorder::State::completed) return "completed";
  if (entry.state == Recorder::State::failed) return "failed";
  return pending != nullptr && pending->moving ? "moving" : "started";
}

void add_losses(OrderedJson& call, const Recorder::Losses& losses) {
  const LossReport& report = losses.report;
  call["sent_bytes"] = report.sent_bytes;
  call["lost_bytes"] = report.lost_bytes;
  call["packets_again"] = report.packets_again;
  if (report.by_switch) call["by_switch"] = true;
  OrderedJson senders = OrderedJson::array();
  for (std::size_t r = 0; r < report.lost_of_sender.size(); ++r)
    if (report.lost_of_sender[r] > 0) senders.push_back({{"rank", r}, {"bytes", report.lost_of_sender[r]}});
  call["lost_of_sender"] = std::move(senders);
  OrderedJson layers = OrderedJson::array();
  for (const auto& [layer, bytes] : losses.worst_layers)
    layers.push_back({{"layer", layer}, {"bytes", bytes}});
  call["lost_of_layer"] = std::move(layers);
}

OrderedJson call_json(const Recorder::Entry& entry, const Recorder::Failure* failure,
                      const Recorder::Losses* losses, const protocol::Session::Pending* pending) {
  const CallNote& note = entry.note;
  OrderedJson call = {{"operation", call_name(note.kind, note.signature.op)}};
  if (note.kind == CallNote::Kind::collective || is_bounded(note.kind)) {
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
  call["algorithm"] = note.algorithm.data();
  call["trees"] = note.trees;
  if (entry.way != protocol::SumWay::none) call["way"] = protocol::name(entry.way);
  call["state"] = state_name(entry, pending);
  call["started_ns"] = note.started_ns;
  call["deadline_ns"] = note.deadline_ns;
  if (entry.state != Recorder::State::in_flight) call["ended_ns"] = entry.ended_ns;
  const auto add_missing = [&](const auto& of) {
    if (!of.absent.empty()) call["not_started"] = of.absent;
    if (!of.silent.empty()) call["data_missing_from"] = of.silent;
  };
  if (pending != nullptr) {
    add_missing(*pending);
    call["text"] = pending->text;
  } else if (failure != nullptr) {
    add_missing(*failure);
  }
  if (entry.state == Recorder::State::failed) {
    call["error"] = name(failure->code);
    call["text"] = failure->text;
  }
  if (losses != nullptr) add_losses(call, *losses);
  return call;
}

std::string dumped(const OrderedJson& json) {
  return text::json_unsteered(json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
}

}  // namespace

std::string to_json(const RecordHead& head, const Recorder& recorder,
                    const std::vector<std::pair<std::uint64_t, protocol::Session::Pending>>& pending) {
  OrderedJson document = {{"talweg_flight_record", kRecordVersion},
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
    text += dumped(call_json(*recorder.find(ticket), recorder.failure(ticket), recorder.losses(ticket),
                             it == pending.end() ? nullptr : &it->second));
  }
  return text + "\n]}\n";
}

}  // namespace talweg::observe
