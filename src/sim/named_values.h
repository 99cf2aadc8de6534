#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "base/fail.h"

namespace talweg::sim {

// A word of the command line such as "star:hosts=8,rate=1G": a kind and its named values, each taken once.
// All that is wrong with it is refused as invalid_argument with the whole word in front.
class NamedValues {
 public:
  // `subject` stands in front of what is refused: "" or, say, "topology ".
  NamedValues(const std::string& subject, const std::string& text)
      : subject_(subject), text_(text), kind_(text.substr(0, text.find(':'))) {
    if (kind_.size() == text.size()) return;
    std::istringstream list(text.substr(kind_.size() + 1));
    for (std::string item; std::getline(list, item, ',');) {
      const std::size_t equals = item.find('=');
      if (equals == std::string::npos) refuse(fmt::format("expected name=value, got \"{}\"", item));
      if (!values_.emplace(item.substr(0, equals), item.substr(equals + 1)).second)
        refuse(fmt::format("\"{}\" is written twice", item.substr(0, equals)));
    }
  }

  const std::string& kind() const { return kind_; }
  bool has(const std::string& name) const { return values_.count(name) > 0; }

  [[noreturn]] void refuse(const std::string& why) const {
    throw_error(ErrorCode::invalid_argument, "{}{}: {}", subject_, text_, why);
  }

  // What is written for `name`, or `otherwise`.
  std::string take(const std::string& name, const std::string& otherwise) {
    known_.push_back(name);
    const auto it = values_.find(name);
    if (it == values_.end()) return otherwise;
    std::string value = it->second;
    values_.erase(it);
    if (value.empty()) refuse(fmt::format("{}: expected a value", name));
    return value;
  }

  template <typename Number>
  Number number(const std::string& name, Number otherwise, Number least, Number most) {
    return parse(name, take(name, fmt::format("{}", otherwise)), least, most);
  }

  template <typename Number>
  Number parse(const std::string& name, const std::string& word, Number least, Number most) const {
    Number value{};
    const char* const end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data(), end, value);
    if (error != std::errc{} || stop != end || value < least || value > most)
      refuse(fmt::format("{}: expected a number from {} to {}, got \"{}\"", name, least, most, word));
    return value;
  }

  // After all were taken: refuses what is left over.
  void done() const {
    if (values_.empty()) return;
    refuse(fmt::format("\"{}\" is not known here: expected {}", values_.begin()->first,
                       fmt::join(known_, ", ")));
  }

 private:
  const std::string subject_;
  const std::string text_;
  const std::string kind_;
  std::map<std::string, std::string> values_;
  std::vector<std::string> known_;
};

}  // namespace talweg::sim
