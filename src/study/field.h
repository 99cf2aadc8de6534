// Fields of a request, by the names by which the command line, Python and sweeps know them: one table for
// each kind of request says what may be set, to what, and what it means.
//
//   constexpr Field<SimulateRequest> kFields[] = {{"iters", "-n", &SimulateRequest::iters, "timed calls", 1,
//   1 << 20}}; set(request, *field_called(kFields, "iters"), "5");
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "base/fail.h"

namespace talweg::study {

// Whole decimal numbers from `least` to `most`: "" if the text is one, else what was expected.
std::string whole_number_complaint(std::string_view text, std::uint64_t least, std::uint64_t most);
// The same with a fraction or an exponent, as in 0.001 and 1e-3; NaN is none.
std::string real_number_complaint(std::string_view text, double least, double most);
// One of `words`, which have commas between them.
std::string word_complaint(std::string_view text, std::string_view words);

template <class Request>
struct Field {
  template <class Value>
  using Of = Value Request::*;
  using Member = std::variant<Of<std::string>, Of<bool>, Of<int>, Of<std::uint64_t>, Of<double>,
                              Of<std::vector<std::string>>>;

  const char* name;     // without dashes
  const char* letters;  // "-n"; or empty; ".": an argument without a name
  Member member;
  const char* help;  // one line
  double least = 0;  // of numbers
  double most = static_cast<double>(std::numeric_limits<std::uint64_t>::max());
  const char* words = "";  // with commas: the only ones there are
  const char* group = "";  // under which --help lists it

  template <class Value>
  bool is() const {
    return std::holds_alternative<Of<Value>>(member);
  }
  // "" if it can be this, else what was expected.
  std::string complaint(std::string_view text) const {
    constexpr auto kAll = std::numeric_limits<std::uint64_t>::max();
    if (*words != '\0') return word_complaint(text, words);
    if (is<double>()) return real_number_complaint(text, least, most);
    if (!is<int>() && !is<std::uint64_t>()) return {};
    return whole_number_complaint(
        text, static_cast<std::uint64_t>(least),
        most >= static_cast<double>(kAll) ? kAll : static_cast<std::uint64_t>(most));
  }
};

// Of several texts, one more. Throws Error{invalid_argument}: "--iters: expected a whole number from ..., got
// "x"".
template <class Request>
void set(Request& request, const Field<Request>& field, std::string_view text) {
  if (const std::string wrong = field.complaint(text); !wrong.empty()) refuse("--{}: {}", field.name, wrong);
  const auto into = [&](auto& value) {
    using Value = std::remove_reference_t<decltype(value)>;
    if constexpr (std::is_same_v<Value, std::string>)
      value = text;
    else if constexpr (std::is_same_v<Value, std::vector<std::string>>)
      value.emplace_back(text);
    else if constexpr (std::is_same_v<Value, bool>)
      value = text == "true";
    else
      std::from_chars(text.data(), text.data() + text.size(), value);
  };
  std::visit([&](auto member) { into(request.*member); }, field.member);
}

// As set() reads it; of several texts, with blanks between them.
template <class Request>
std::string value_of(const Request& request, const Field<Request>& field) {
  const auto text_of = [](const auto& value) {
    if constexpr (std::is_same_v<decltype(value), const std::vector<std::string>&>)
      return fmt::format("{}", fmt::join(value, " "));
    else
      return fmt::format("{}", value);
  };
  return std::visit([&](auto member) { return text_of(request.*member); }, field.member);
}

// The value that a user could set to what `request` has; empty where that only stands for nothing said.
template <class Request>
std::string default_of(const Request& request, const Field<Request>& field) {
  std::string value = value_of(request, field);
  return field.complaint(value).empty() ? value : "";
}

// nullptr if there is none.
template <class Request>
const Field<Request>* field_called(std::span<const Field<Request>> fields, std::string_view name) {
  for (const auto& field : fields)
    if (name == field.name) return &field;
  return nullptr;
}

}  // namespace talweg::study
