#include "train/traces/kineto_event.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

namespace talweg::train {
namespace {

using text::JsonStream;

constexpr std::int64_t kMostMicroseconds = 4'000'000'000'000'000;  // 126 years: sums of two stay in 64 bits
constexpr std::int64_t kMostDuration = 86'400'000'000'000;         // ns: a day, which no profiler records

EventKind kind_of(std::string_view category) {
  static constexpr std::pair<std::string_view, EventKind> kKinds[] = {
      {"cpu_op", EventKind::cpu_op},
      {"Operator", EventKind::cpu_op},
      {"user_annotation", EventKind::annotation},
      {"kernel", EventKind::kernel},
      {"Kernel", EventKind::kernel},
      {"cuda_runtime", EventKind::runtime},
      {"cuda_driver", EventKind::runtime},
      {"hip_runtime", EventKind::runtime},
      {"Runtime", EventKind::runtime},
      {"gpu_memcpy", EventKind::copy},
      {"Memcpy", EventKind::copy},
      {"gpu_memset", EventKind::kernel},
      {"Memset", EventKind::kernel}};
  for (const auto& [name, kind] : kKinds)
    if (category == name) return kind;
  return EventKind::other;
}

// pid and tid are texts where they are no process's.
std::int64_t identity(JsonStream& json) {
  if (json.kind() == JsonStream::Kind::number) return json.integer();
  json.skip();
  return -1;
}

std::int64_t time_of(JsonStream& json, const char* what) {
  if (json.kind() != JsonStream::Kind::number)
    json.fail(fmt::format("{}: expected a number of microseconds", what));
  const std::string_view text = json.number();
  const auto time = nanoseconds_of_microseconds(text);
  if (!time) json.fail(fmt::format("{}: expected microseconds of 64 bits, got {}", what, text));
  return *time;
}

std::int64_t number_or_nothing(JsonStream& json) {
  if (json.kind() == JsonStream::Kind::number) return json.integer();
  json.skip();
  return -1;
}

// [16, 2048]: their product; [[16], [2048]]: the sum over the tensors of a list.
std::int64_t elements_of(JsonStream& json) {
  std::int64_t product = 1, sum = 0;
  bool lists = false;
  json.begin_array();
  while (json.next_item()) {
    const auto kind = json.kind();
    if (kind == JsonStream::Kind::array) {
      lists = true;
      if (__builtin_add_overflow(sum, elements_of(json), &sum)) json.fail("expected a size of 64 bits");
    } else if (kind == JsonStream::Kind::number) {
      const std::int64_t size = json.integer();
      if (size < 0) json.fail(fmt::format("Input Dims: expected sizes of at least 0, got {}", size));
      if (__builtin_mul_overflow(product, size, &product)) json.fail("expected a size of 64 bits");
    } else {
      json.skip();
    }
  }
  return lists ? sum : product;
}

// Of the first item of a list; the others are passed over.
template <class Read>
void first_item(JsonStream& json, Read&& read) {
  if (json.kind() != JsonStream::Kind::array) return json.skip();
  json.begin_array();
  for (bool first = true; json.next_item(); first = false)
    if (first) {
      read();
    } else {
      json.skip();
    }
}

void read_argument(JsonStream& json, KinetoEvent& e) {
  using Kind = JsonStream::Kind;
  const std::string_view key = json.key();
  if (key == "correlation") {
    e.correlation = number_or_nothing(json);
  } else if (key == "stream") {
    e.stream = number_or_nothing(json);
  } else if (key == "Sequence number") {
    e.sequence = number_or_nothing(json);
  } else if (key == "Record function id") {
    e.function = number_or_nothing(json);
    if (e.function == 0) e.function = -1;  // ids are given out only while an execution trace is recorded
  } else if (key == "In msg nelems") {
    e.in_elements = number_or_nothing(json);
  } else if (key == "Out msg nelems") {
    e.out_elements = number_or_nothing(json);
  } else if (key == "Group size") {
    e.group_size = number_or_nothing(json);
  } else if (key == "Collective name" && json.kind() == Kind::string) {
    e.collective = json.string();
  } else if (key == "dtype" && json.kind() == Kind::string) {
    e.element_bytes = element_bytes_of(json.string());
  } else if (key == "Input type") {
    first_item(json, [&] {
      if (json.kind() != Kind::string) return json.skip();
      if (const int bytes = element_bytes_of(json.string()); bytes > 0 && e.element_bytes == 0)
        e.element_bytes = bytes;
    });
  } else if (key == "Input Dims") {
    first_item(json, [&] {
      if (json.kind() != Kind::array) return json.skip();
      e.elements = elements_of(json);
    });
  } else {
    json.skip();
  }
}

}  // namespace

std::optional<std::int64_t> nanoseconds_of_microseconds(std::string_view text) {
  const bool minus = text.starts_with('-');
  const std::string_view digits = text.substr(minus ? 1 : 0);
  if (digits.find_first_of("eE") != std::string_view::npos) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() ||
        std::abs(value) > static_cast<double>(kMostMicroseconds))
      return std::nullopt;
    return std::llround(value * 1e3);
  }
  std::int64_t whole = 0;
  const char* const last = digits.data() + digits.size();
  const auto [point, error] = std::from_chars(digits.data(), last, whole);
  if (error != std::errc() || digits.starts_with('-') || whole > kMostMicroseconds) return std::nullopt;
  std::int64_t thousandths = 0;
  if (point != last) {
    if (*point != '.' || point + 1 == last) return std::nullopt;
    std::int64_t weight = 100;
    for (const char* p = point + 1; p != last; ++p) {
      if (*p < '0' || *p > '9') return std::nullopt;
      if (p == point + 4 && *p >= '5') ++thousandths;  // rounded
      thousandths += (*p - '0') * weight;
      weight /= 10;
    }
  }
  const std::int64_t value = whole * 1000 + thousandths;
  return minus ? -value : value;
}

int element_bytes_of(std::string_view type) {
  static constexpr std::pair<std::string_view, int> kTypes[] = {
      {"float", 4},     {"Float", 4},       {"c10::Half", 2},     {"Half", 2},          {"BFloat16", 2},
      {"double", 8},    {"Double", 8},      {"c10::BFloat16", 2}, {"long int", 8},      {"long", 8},
      {"Long", 8},      {"int", 4},         {"Int", 4},           {"unsigned char", 1}, {"Byte", 1},
      {"short int", 2}, {"signed char", 1}, {"Char", 1},          {"short", 2},         {"Short", 2},
      {"bool", 1},      {"Bool", 1}};
  for (const auto& [name, bytes] : kTypes)
    if (type == name) return bytes;
  return 0;
}

std::optional<Collective> collective_of(std::string_view text) {
  std::string plain;
  for (const char c : text.substr(0, 64)) {
    if (c == '_' || c == '-') continue;
    plain += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  }
  // In this order: reducescatter is no scatter.
  static constexpr std::pair<std::string_view, Collective> kNames[] = {
      {"allreduce", Collective::all_reduce}, {"reducescatter", Collective::reduce_scatter},
      {"allgather", Collective::all_gather}, {"broadcast", Collective::broadcast},
      {"alltoall", Collective::all_to_all},  {"sendrecv", Collective::send_recv},
      {"barrier", Collective::barrier},      {"reduce", Collective::reduce},
      {"gather", Collective::gather},        {"scatter", Collective::scatter},
      {"send", Collective::send_recv},       {"recv", Collective::send_recv}};
  for (const auto& [name, op] : kNames)
    if (plain.find(name) != std::string::npos) return op;
  return std::nullopt;
}

void read_event(JsonStream& json, KinetoEvent& e) {
  e.kind = EventKind::other;
  e.complete = false;
  e.name.clear();
  e.pid = e.tid = e.correlation = e.stream = e.sequence = e.function = e.elements = e.in_elements =
      e.out_elements = e.group_size = -1;
  e.begin = e.duration = 0;
  e.element_bytes = 0;
  e.collective.clear();
  bool has_begin = false, has_duration = false;
  json.begin_object();
  while (json.next_member()) {
    const std::string_view key = json.key();
    if (key == "ph") {
      e.complete = json.string() == "X";
    } else if (key == "cat") {
      e.kind = kind_of(json.string());
    } else if (key == "name") {
      e.name = json.string();
    } else if (key == "pid") {
      e.pid = identity(json);
    } else if (key == "tid") {
      e.tid = identity(json);
    } else if (key == "ts") {
      e.begin = time_of(json, "ts");
      has_begin = true;
    } else if (key == "dur") {
      e.duration = time_of(json, "dur");
      has_duration = true;
    } else if (key == "args" && json.kind() == JsonStream::Kind::object) {
      json.begin_object();
      while (json.next_member()) read_argument(json, e);
    } else {
      json.skip();
    }
  }
  if (!e.complete) return;
  if (!has_begin) json.fail(fmt::format("expected the event \"{}\" to have a ts", e.name));
  if (!has_duration) json.fail(fmt::format("expected the event \"{}\" to have a dur", e.name));
  if (e.kind == EventKind::other) return;
  if (e.begin < 0)
    json.fail(fmt::format("expected a ts of at least 0, got {} ns for \"{}\"", e.begin, e.name));
  if (e.duration < 0 || e.duration > kMostDuration)
    json.fail(fmt::format("expected a duration of at least 0 and at most a day, got {} ns for \"{}\"",
                          e.duration, e.name));
}

}  // namespace talweg::train
