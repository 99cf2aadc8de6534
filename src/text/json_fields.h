// Fields of the files that `talweg doctor` reads. What is not as expected is an Error{bad_file} of one line
// that names the field and what was expected; the caller adds the file.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace talweg::text {

// Where `text` is no JSON, the error says from which byte on, or that it ends in the middle.
nlohmann::json parse_json(const std::string& text);

const nlohmann::json& field(const nlohmann::json& object, const char* key);
std::string text_field(const nlohmann::json& object, const char* key);
std::string text_field(const nlohmann::json& object, const char* key, const char* otherwise);
double number_field(const nlohmann::json& object, const char* key);
// A list that need not be there.
std::vector<int> numbers_field(const nlohmann::json& object, const char* key);
std::vector<std::string> texts_field(const nlohmann::json& object, const char* key);
// Whole numbers of the size of what they are read into.
void read_field(const nlohmann::json& object, const char* key, int& into);
void read_field(const nlohmann::json& object, const char* key, std::uint32_t& into);
void read_field(const nlohmann::json& object, const char* key, std::int64_t& into);
void read_field(const nlohmann::json& object, const char* key, std::uint64_t& into);

}  // namespace talweg::text
