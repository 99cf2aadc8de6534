// What is done with a group and the switches that sum for it: sums that are checked, and what it says of
// them.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/data_types.h"
#include "base/file_descriptor.h"
#include "base/log.h"
#include "group/switch_wish.h"
#include "live/served_switch.h"
#include "ranks.h"

namespace talweg {

inline constexpr int kRanks = 3;

inline std::string at(const live::Served& served) {
  return to_string(served.service().address());
}
inline std::function<void(GroupOptions&)> through(const std::string& address,
                                                  const std::string& algorithm = "switch") {
  return [=](GroupOptions& options) {
    options.switch_address = address;
    options.algorithm = algorithm;
  };
}

// Of a SwitchStream without a group: all goes by this one.
inline group::SwitchWish always_by(const live::Served& served) {
  group::SwitchWish wish;
  wish.wanted = wish.always = true;
  wish.at = {{served.service().address(), at(served)}};
  return wish;
}

// What is warned of by whoever has its logger.
class Warnings {
 public:
  Logger logger() const { return {0, LogSettings{LogLevel::warn, LogFilter(), file_.get(), {}}}; }
  std::vector<std::string> lines() const {
    std::ifstream in(said_.path());
    std::vector<std::string> found;
    for (std::string line; std::getline(in, line);) found.push_back(line);
    return found;
  }

 private:
  const TemporaryFile said_;
  const FileDescriptor file_{::open(said_.path().c_str(), O_WRONLY | O_APPEND | O_CLOEXEC)};
};

// "switch: 127.0.0.1:4711 (option), 12 sums"
inline std::string switch_line(const Group& group) {
  const std::string text = group.describe();
  const std::size_t begin = text.find("switch: ");
  return text.substr(begin, text.find('\n', begin) - begin);
}
inline int sums(const Group& group) {
  const std::string line = switch_line(group);
  const std::size_t comma = line.find("), ");
  return comma == std::string::npos ? -1 : std::stoi(line.substr(comma + 3));
}

// By which way the last call went, as the group's flight record has it.
inline std::string last_way(const Group& group) {
  const std::string record = group.flight_record();
  const std::size_t call = record.rfind("\n{");
  const std::size_t way = record.find("\"way\":\"", call);
  if (way == std::string::npos) return "";
  const std::size_t begin = way + 7;
  return record.substr(begin, record.find('"', begin) - begin);
}

// Multiples of the number of ranks, which every type holds and adds without rounding.
inline int value(int rank, std::size_t i) {
  return kRanks * (static_cast<int>((i * 7 + static_cast<std::size_t>(rank) * 5) % 11) - 5);
}
template <typename T>
void reduce_and_check(Group& group, std::size_t count, DataType type, ReduceOp op, bool in_place,
                      T (*of)(float)) {
  std::vector<T> in(count), out(count), expected(count);
  for (std::size_t i = 0; i < count; ++i) {
    int sum = 0, most = value(0, i);
    for (int r = 0; r < kRanks; ++r) {
      sum += value(r, i);
      most = std::max(most, value(r, i));
    }
    in[i] = of(static_cast<float>(value(group.rank(), i)));
    expected[i] = of(static_cast<float>(op == ReduceOp::max   ? most
                                        : op == ReduceOp::avg ? sum / kRanks
                                                              : sum));
  }
  if (in_place) out = in;
  group.all_reduce(in_place ? out.data() : in.data(), out.data(), count, type, op);
  ASSERT_TRUE(out == expected) << name(type) << " " << name(op) << ", " << count << " elements";
}
inline void check_floats(Group& group, std::size_t count, bool in_place) {
  reduce_and_check<float>(group, count, DataType::f32, ReduceOp::sum, in_place, [](float x) { return x; });
}

// Sums until all ranks find `holds`, which they look at after the same calls.
inline void sum_until(Group& group, std::size_t count, const std::function<bool()>& holds) {
  const std::int64_t deadline_ns = live::soon();
  for (bool in_place = false;; in_place = !in_place) {
    check_floats(group, count, in_place);
    std::int64_t state = holds() ? 2 : live::now_ns() > deadline_ns ? 0 : 1;
    const std::int64_t own = state;
    group.all_reduce(&own, &state, 1, DataType::i64, ReduceOp::min);
    if (state == 2) return;
    ASSERT_EQ(state, 1) << "what was waited for has not come: " << switch_line(group);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}
inline void sum_until_there(Group& group) {
  const int before = sums(group);
  sum_until(group, 1000, [&] { return sums(group) > before; });
}

// How many sums each of them has made, as the group says: "127.0.0.1:4711 (option), 12 sums; ...".
inline std::vector<int> sums_of_each(const Group& group) {
  std::vector<int> found;
  const std::string line = switch_line(group);
  for (std::size_t at = line.find("), "); at != std::string::npos; at = line.find("), ", at + 1))
    found.push_back(std::stoi(line.substr(at + 3)));
  return found;
}

// Sums until all of them have had a part in one, on all ranks.
inline void sum_until_all(Group& group, std::size_t switches) {
  const std::vector<int> before = sums_of_each(group);
  sum_until(group, 100'000, [&] {
    const std::vector<int> now = sums_of_each(group);
    bool all = now.size() == switches;
    for (std::size_t i = 0; all && i < switches; ++i) all = now[i] > before[i];
    return all;
  });
}

}  // namespace talweg
