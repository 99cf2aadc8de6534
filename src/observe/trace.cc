#include "observe/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "live/system.h"
#include "text/escape.h"

namespace talweg::observe {

namespace {

// Events collected before they are written: some hundred microseconds of writing at a time.
constexpr std::size_t kCollected = 8192;

// Rows of a rank in the picture.
constexpr int kCalls = 1;
constexpr int kSends = 2;
constexpr int kReceives = 3;

double microseconds(std::int64_t ns) {
  return static_cast<double>(ns) / 1e3;
}

// Sender and receiver work out the same number for a chunk, and no other chunk of the job has it.
std::uint64_t flow_number(std::uint64_t job, const wire::Header& h, int from, int to) {
  const std::array<std::int64_t, 8> words{static_cast<std::int64_t>(job),
                                          h.group,
                                          static_cast<std::int64_t>(h.sequence),
                                          h.tree,
                                          h.chunk,
                                          static_cast<std::int64_t>(h.type),
                                          from,
                                          to};
  return wire::layout_digest(words.data(), words.size());
}

}  // namespace

Trace::Trace(const std::string& path, Who who, std::uint64_t limit)
    : who_(std::move(who)), limit_(limit), file_(path, "TALWEG_TRACE") {
  events_.reserve(kCollected);
  const int pid = who_.rank;
  file_.note(pid, "talweg_trace",
             fmt::format(R"("job":"{:016x}","rank":{},"size":{},"host":"{}","monotonic_ns":{},"wall_ns":{})",
                         who_.job, who_.rank, who_.size, text::json_escaped(who_.host), live::now_ns(),
                         live::wall_ns()));
  file_.name_process(pid, fmt::format("rank {} ({})", who_.rank, who_.host));
  file_.name_row(pid, kCalls, "calls");
  file_.name_row(pid, kSends, "chunks sent");
  file_.name_row(pid, kReceives, "chunks received");
}

Trace::~Trace() {
  flush();
  file_.note_left_out(who_.rank, seen_ > limit_ ? seen_ - limit_ : 0);
}

Trace::Event* Trace::next() {
  if (++seen_ > limit_) return nullptr;
  if (events_.size() == kCollected) flush();
  return &events_.emplace_back();
}

std::uint64_t Trace::begin(const CallNote& note, std::uint32_t group) {
  const std::uint64_t call = ++calls_;
  if (Event* e = next(); e != nullptr) {
    e->kind = Event::Kind::begin;
    e->call_kind = note.kind;
    e->to = note.peer;
    e->begin_ns = note.started_ns;
    e->number = call;
    e->trees = note.trees;
    e->algorithm = note.algorithm;
    wire::set_signature(e->header, note.signature);
    e->header.group = group;
    e->header.sequence = note.sequence;
    e->header.tree = note.tag;
  }
  return call;
}

void Trace::end(std::uint64_t call, CallNote::Kind kind, Collective op, std::int64_t now_ns, bool ok) {
  Event* e = next();
  if (e == nullptr) return;
  e->kind = Event::Kind::end;
  e->ok = ok;
  e->call_kind = kind;
  e->begin_ns = now_ns;
  e->number = call;
  e->header.op = op;
}

void Trace::chunk(bool sent, const wire::Header& header, int from, int to, std::int64_t begin_ns,
                  std::int64_t end_ns) {
  Event* e = next();
  if (e == nullptr) return;
  e->kind = sent ? Event::Kind::sent : Event::Kind::received;
  e->from = from;
  e->to = to;
  e->begin_ns = begin_ns;
  e->end_ns = end_ns;
  e->header = header;
}

void Trace::clock(const ClockOffset& offset, std::int64_t now_ns) {
  Event* e = next();
  if (e == nullptr) return;
  e->kind = Event::Kind::clock;
  e->begin_ns = offset.offset_ns;
  e->end_ns = offset.round_trip_ns;
  e->number = static_cast<std::uint64_t>(now_ns);
}

void Trace::flush() {
  for (const Event& event : events_) write(event);
  events_.clear();
  file_.flush();
}

void Trace::write(const Event& e) {
  const wire::Header& h = e.header;
  const int pid = who_.rank;
  const double ts = microseconds(e.begin_ns);
  switch (e.kind) {
    case Event::Kind::begin: {
      std::string more;
      if (e.call_kind == CallNote::Kind::collective || is_bounded(e.call_kind)) {
        more =
            fmt::format(R"("sequence":{},"reduction":"{}","root":{},"algorithm":"{}","trees":{})", h.sequence,
                        name(h.reduction), h.root, text::json_escaped(e.algorithm.data()), e.trees);
      } else {
        more = fmt::format(R"("peer":{},"tag":{})", e.to, h.tree);
      }
      // Calls overlap: asynchronous events may, bars on a row may not.
      file_.event(
          fmt::format(R"("ph":"b","cat":"call","id2":{{"local":"0x{:x}"}},"pid":{},"tid":{},"ts":{:.3f},)"
                      R"("name":"{}","args":{{"group":"{:08x}","type":"{}","count":{},"bytes":{},{}}})",
                      e.number, pid, kCalls, ts, call_name(e.call_kind, h.op), h.group, name(h.data_type),
                      h.count, h.count * static_cast<std::int64_t>(size_of(h.data_type)), more));
      return;
    }
    case Event::Kind::end:
      file_.event(
          fmt::format(R"("ph":"e","cat":"call","id2":{{"local":"0x{:x}"}},"pid":{},"tid":{},"ts":{:.3f},)"
                      R"("name":"{}","args":{{"ok":{}}})",
                      e.number, pid, kCalls, ts, call_name(e.call_kind, h.op), e.ok));
      return;
    case Event::Kind::clock:
      file_.event(fmt::format(R"("ph":"M","pid":{},"name":"talweg_clock","args":{{"at_us":{:.3f},)"
                              R"("offset_to_rank0_us":{:.3f},"round_trip_us":{:.3f}}})",
                              pid, microseconds(static_cast<std::int64_t>(e.number)), ts,
                              microseconds(e.end_ns)));
      return;
    case Event::Kind::sent:
    case Event::Kind::received: {
      const bool sent = e.kind == Event::Kind::sent;
      const int tid = sent ? kSends : kReceives;
      const char* direction = h.type == wire::FrameType::up     ? "up"
                              : h.type == wire::FrameType::down ? "down"
                                                                : "own";
      file_.event(fmt::format(
          R"("ph":"X","cat":"chunk","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},)"
          R"("name":"{} {} {}","args":{{"group":"{:08x}","operation":"{}","sequence":{},"tree":{},)"
          R"("chunk":{},"bytes":{},"from":{},"to":{}}})",
          pid, tid, ts, microseconds(std::max<std::int64_t>(e.end_ns - e.begin_ns, 1)), direction,
          sent ? "to" : "from", sent ? e.to : e.from, h.group, name(h.op), h.sequence, h.tree, h.chunk,
          h.length, e.from, e.to));
      file_.event(fmt::format(
          R"("ph":"{}","cat":"chunk","id":"0x{:x}","pid":{},"tid":{},"ts":{:.3f},"name":"chunk"{})",
          sent ? "s" : "f", flow_number(who_.job, h, e.from, e.to), pid, tid, ts,
          sent ? "" : R"(,"bp":"e")"));
      return;
    }
  }
}

}  // namespace talweg::observe
