// What commands write besides their tables: files, standard output, forests in the formats there are.
#pragma once

#include <string>
#include <vector>

#include "forest/forest.h"

namespace talweg::cli {

// "-" is standard output. Throws Error{invalid_argument} that names the path.
void write_text(const std::string& path, const std::string& text);

// Before long work: throws the same if it is certain that write_text() will. Leaves no file behind that was
// not there.
void check_writable(const std::string& path);

// Throws Error{invalid_argument} if one of `outputs` is one of `inputs` or another output, by whatever name.
// Empty names and "-" are none.
void check_outputs(const std::vector<std::string>& outputs, const std::vector<std::string>& inputs);

// By the ending of `path`: "yaml", "json", "dot" or "msccl"; empty if it has none of theirs.
std::string format_of_ending(const std::string& path);

// Throws Error{unsupported} where a format cannot express the forest.
std::string forest_text(const forest::Forest& forest, const std::string& format);

}  // namespace talweg::cli
