// What one rank did and when, as a file in Chrome's trace format that ui.perfetto.dev opens: a bar for each
// call, one for each chunk sent or received, and the ends of the arrows from sender to receiver. Times are
// this process's own; `talweg doctor --trace` lays the files of all ranks on one clock.
//
// Events are collected in memory taken once and written out when it is full, so tracing costs a write now and
// then, and the file is of use even if the process dies. Everything under the World's lock.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "observe/clock_offset.h"
#include "observe/recorder.h"
#include "wire/frame.h"

namespace talweg::observe {

class Trace {
 public:
  struct Who {
    std::uint64_t job = 0;
    int rank = 0;
    int size = 1;
    std::string host;
  };
  // Past `limit` events the rest is only counted. Throws Error{system}.
  Trace(const std::string& path, Who who, std::uint64_t limit);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // A call begins; its number for `end`.
  std::uint64_t begin(const CallNote& note, std::uint32_t group);
  void end(std::uint64_t call, CallNote::Kind kind, Collective op, std::int64_t now_ns, bool ok);
  // A frame with a payload was handed over (sent) or taken in (received) between these times. Ranks are the
  // group's.
  void chunk(bool sent, const wire::Header& header, int from, int to, std::int64_t begin_ns,
             std::int64_t end_ns);
  void clock(const ClockOffset& offset, std::int64_t now_ns);
  void flush();

 private:
  struct Event {
    enum class Kind : std::uint8_t { begin, end, sent, received, clock };
    Kind kind = Kind::begin;
    bool ok = true;
    CallNote::Kind call_kind = CallNote::Kind::collective;
    std::int32_t from = 0;
    std::int32_t to = 0;  // of a call: the peer
    std::int64_t begin_ns = 0;
    std::int64_t end_ns = 0;
    std::uint64_t number = 0;  // of a call
    std::uint32_t trees = 0;
    ShortName algorithm{};
    wire::Header header;  // of a chunk; of a call: its signature
  };
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  Event* next();
  void line(const std::string& text);
  void write(const Event& event);

  const Who who_;
  const std::uint64_t limit_;
  std::unique_ptr<std::FILE, Close> file_;
  std::vector<Event> events_;
  std::uint64_t seen_ = 0;
  std::uint64_t calls_ = 0;
  bool first_ = true;
};

}  // namespace talweg::observe
