#include "text/json_fields.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/fail.h"

namespace talweg::text {

namespace {

using Json = nlohmann::json;

constexpr std::size_t kShownBytes = 40;  // of a value that is not as expected

[[noreturn]] void unexpected(const char* what, const std::string& expected, const Json& value) {
  std::string shown = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (shown.size() > kShownBytes) shown = fmt::format("{} of {} bytes", value.type_name(), shown.size());
  throw_error(ErrorCode::bad_file, "{}: expected {}, got {}", what, expected, shown);
}

// nlohmann's own conversion takes 1e300 for an int, and 2^40 too.
template <class Integer>
Integer whole_of(const Json& value, const char* what) {
  const auto fits = [&] {
    return value.is_number_unsigned() ? std::in_range<Integer>(value.get<std::uint64_t>())
                                      : std::in_range<Integer>(value.get<std::int64_t>());
  };
  if (!value.is_number_integer() || !fits())
    unexpected(what, fmt::format("a whole number of {} bits", 8 * sizeof(Integer)), value);
  return value.get<Integer>();
}

std::string text_of(const Json& value, const char* what) {
  if (!value.is_string()) unexpected(what, "text", value);
  return value.get<std::string>();
}

const Json& list_of(const Json& value, const char* what) {
  if (!value.is_array()) unexpected(what, "a list", value);
  return value;
}

}  // namespace

Json parse_json(const std::string& text) {
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& e) {
    if (e.byte > text.size()) throw Error(ErrorCode::bad_file, "it is empty or ends in the middle");
    throw_error(ErrorCode::bad_file, "it is not JSON from byte {} on", e.byte);
  } catch (const Json::out_of_range&) {
    throw Error(ErrorCode::bad_file, "a number in it is larger than any that can be");
  }
}

const Json& field(const Json& object, const char* key) {
  if (!object.is_object())
    throw_error(ErrorCode::bad_file, "{} belongs in an object, not in this {}", key, object.type_name());
  const auto it = object.find(key);
  if (it == object.end()) throw_error(ErrorCode::bad_file, "{} is missing", key);
  return *it;
}

std::string text_field(const Json& object, const char* key) {
  return text_of(field(object, key), key);
}

std::string text_field(const Json& object, const char* key, const char* otherwise) {
  return object.contains(key) ? text_of(object[key], key) : otherwise;
}

double number_field(const Json& object, const char* key) {
  const Json& value = field(object, key);
  if (!value.is_number()) unexpected(key, "a number", value);
  return value.get<double>();
}

std::vector<int> numbers_field(const Json& object, const char* key) {
  std::vector<int> result;
  if (!object.contains(key)) return result;
  for (const Json& value : list_of(object[key], key)) result.push_back(whole_of<int>(value, key));
  return result;
}

std::vector<std::string> texts_field(const Json& object, const char* key) {
  std::vector<std::string> result;
  for (const Json& value : list_of(field(object, key), key)) result.push_back(text_of(value, key));
  return result;
}

void read_field(const Json& object, const char* key, int& into) {
  into = whole_of<int>(field(object, key), key);
}
void read_field(const Json& object, const char* key, std::uint32_t& into) {
  into = whole_of<std::uint32_t>(field(object, key), key);
}
void read_field(const Json& object, const char* key, std::int64_t& into) {
  into = whole_of<std::int64_t>(field(object, key), key);
}
void read_field(const Json& object, const char* key, std::uint64_t& into) {
  into = whole_of<std::uint64_t>(field(object, key), key);
}

}  // namespace talweg::text
