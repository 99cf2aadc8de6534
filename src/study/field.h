// Fields of a request, by the names by which the command line, Python and sweeps know them: one table for
// each kind of request says what may be set, to what, and what it means.
//
//   constexpr Field<SimulateRequest> kFields[] = {{"iters", "-n", &SimulateRequest::iters, "timed calls", 1,
//   1 << 20}}; set(request, field_called(kFields, "iters"), "5");
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace talweg::study {

// Whole decimal numbers from `least` to `most`: "" if the text is one, else what was expected.
std::string whole_number_complaint(std::string_view text, std::uint64_t least, std::uint64_t most);
// The same with a fraction or an exponent, as in 0.001 and 1e-3.
std::string real_number_complaint(std::string_view text, double least, double most);
std::string word_complaint(std::string_view text, std::string_view words);

template <class Request>
struct Field {
  using Member =
      std::variant<std::string Request::*, bool Request::*, int Request::*, std::uint64_t Request::*,
                   double Request::*, std::vector<std::string> Request::*>;

  const char* name;     // without dashes
  const char* letters;  // "-n"; or empty
  Member member;
  const char* help;  // one line
  double least = 0;  // of numbers
  double most = static_cast<double>(std::numeric_limits<std::uint64_t>::max());
  const char* words = "";  // with commas: the only ones there are
  const char* group = "";  // under which --help lists it
};

namespace internal {
[[noreturn]] void refuse_field(const char* name, const std::string& complaint);
void read(std::string_view text, std::string& into);
void read(std::string_view text, bool& into);
void read(std::string_view text, int& into);
void read(std::string_view text, std::uint64_t& into);
void read(std::string_view text, double& into);
void read(std::string_view text, std::vector<std::string>& into);  // one more
std::string text_of(const std::string& value);
std::string text_of(bool value);
std::string text_of(int value);
std::string text_of(std::uint64_t value);
std::string text_of(double value);
std::string text_of(const std::vector<std::string>& value);  // with blanks
}  // namespace internal

// "" if the field can be this, else what was expected.
template <class Request>
std::string complaint(const Field<Request>& field, std::string_view text) {
  if (*field.words != '\0') return word_complaint(text, field.words);
  if (std::holds_alternative<double Request::*>(field.member))
    return real_number_complaint(text, field.least, field.most);
  if (!std::holds_alternative<int Request::*>(field.member) &&
      !std::holds_alternative<std::uint64_t Request::*>(field.member))
    return {};
  constexpr auto kAll = std::numeric_limits<std::uint64_t>::max();
  const bool unbounded = field.most >= static_cast<double>(kAll);
  return whole_number_complaint(text, static_cast<std::uint64_t>(field.least),
                                unbounded ? kAll : static_cast<std::uint64_t>(field.most));
}

// Throws Error{invalid_argument}: "--iters: expected a whole number from 1 to 1048576, got "x"".
template <class Request>
void set(Request& request, const Field<Request>& field, std::string_view text) {
  if (const std::string wrong = complaint(field, text); !wrong.empty())
    internal::refuse_field(field.name, wrong);
  std::visit([&](auto member) { internal::read(text, request.*member); }, field.member);
}

template <class Request>
std::string value_of(const Request& request, const Field<Request>& field) {
  return std::visit([&](auto member) { return internal::text_of(request.*member); }, field.member);
}

// nullptr if there is none.
template <class Request>
const Field<Request>* field_called(std::span<const Field<Request>> fields, std::string_view name) {
  for (const auto& field : fields)
    if (name == field.name) return &field;
  return nullptr;
}

}  // namespace talweg::study
