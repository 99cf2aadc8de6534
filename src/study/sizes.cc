#include "study/sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <sstream>

#include "base/fail.h"
#include "base/units.h"
#include "study/field.h"
#include "talweg/error.h"

namespace talweg::study {
namespace {

// What an option says of numbers that it calls by this name.
struct ListGrammar {
  const char* option;
  const char* one;       // "size"
  const char* examples;  // "sizes such as 4K..1G or 64K,1M"
  std::function<std::int64_t(const std::string&)> parse;
};

void add_range(const ListGrammar& grammar, const std::string& text, int factor, std::int64_t least,
               std::vector<std::int64_t>& numbers) {
  const auto dots = text.find("..");
  if (dots == std::string::npos) return numbers.push_back(grammar.parse(text));
  const std::int64_t first = grammar.parse(text.substr(0, dots)), last = grammar.parse(text.substr(dots + 2));
  if (first > last) refuse("{}: {}: the first {} is larger than the last", grammar.option, text, grammar.one);
  if (first == 0 && last > 0) refuse("{}: a {} of 0 never grows by a factor", grammar.option, grammar.one);
  for (std::int64_t number = first; number < last; number *= factor) {
    if (number >= least) numbers.push_back(number);
    if (number > last / factor) break;
  }
  numbers.push_back(last);
}

std::vector<std::int64_t> parse_list(const ListGrammar& grammar, const std::string& text, int factor,
                                     std::int64_t least) {
  std::vector<std::int64_t> numbers;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) add_range(grammar, part, factor, least, numbers);
  if (numbers.empty()) refuse("{}: expected {}", grammar.option, grammar.examples);
  std::ranges::sort(numbers);
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  if (numbers.size() > kMostSizes)
    refuse("{}: {} {}s: expected at most {}", grammar.option, numbers.size(), grammar.one, kMostSizes);
  return numbers;
}

}  // namespace

std::vector<std::int64_t> parse_sizes(const std::string& text, int factor, std::int64_t least) {
  const auto bytes_of = [](const std::string& one) {
    try {
      return parse_bytes(one).value;
    } catch (const Error& error) {
      refuse("--bytes: {}", error.what());
    }
  };
  return parse_list({"--bytes", "size", "sizes such as 4K..1G or 64K,1M", bytes_of}, text, factor, least);
}

std::vector<int> parse_ranks(const std::string& text, int most) {
  const auto ranks_of = [&](const std::string& one) -> std::int64_t {
    if (const std::string wrong = whole_number_complaint(one, 2, static_cast<std::uint64_t>(most));
        !wrong.empty())
      refuse("--ranks: {}", wrong);
    return std::stoll(one);
  };
  std::vector<int> ranks;
  for (const std::int64_t number :
       parse_list({"--ranks", "number", "numbers such as 8, 2,4,8 or 2..64", ranks_of}, text, 2, 2))
    ranks.push_back(static_cast<int>(number));
  return ranks;
}

}  // namespace talweg::study
