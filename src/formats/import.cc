#include "formats/import.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "base/fail.h"
#include "text/xml_reader.h"
#include "text/yaml_reader.h"

namespace talweg::formats {
namespace {

struct Importer {
  Format format;
  const char* name;
  Cluster (*read)(const std::string& text, const std::string& origin);
};

constexpr Importer kImporters[] = {{Format::talweg, "talweg", cluster::parse_cluster},
                                   {Format::nccl, "nccl", import_nccl},
                                   {Format::taccl, "taccl", import_taccl},
                                   {Format::adapcc, "adapcc", import_adapcc},
                                   {Format::astra_sim, "astra_sim", import_astra_sim},
                                   {Format::htsim, "htsim", import_htsim}};

const Importer& importer(Format format) {
  return *std::find_if(std::begin(kImporters), std::end(kImporters),
                       [&](const Importer& i) { return i.format == format; });
}

std::string known_formats() {
  std::string known;
  for (const Importer& i : kImporters) known += (known.empty() ? "" : ", ") + std::string(i.name);
  return known;
}

bool is_space(char c) {
  return std::isspace(static_cast<unsigned char>(c)) != 0;
}

// The first word of a line that is not empty and no comment, in small letters.
std::string first_word(std::string_view text) {
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    while (!line.empty() && is_space(line.front())) line.remove_prefix(1);
    if (line.empty() || line.front() == '#') continue;
    std::string word;
    for (std::size_t i = 0; i < line.size() && !is_space(line[i]); ++i)
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(line[i])));
    return word;
  }
  return "";
}

Format recognise_xml(const std::string& text, const std::string& origin) {
  const text::XmlDocument document(text, origin);
  const text::XmlReader root = document.root();
  const std::string kind = root.name();
  if (kind == "system") return Format::nccl;
  if (kind == "graph") return Format::adapcc;
  if (kind == "graphs")
    root.fail("these are rings and trees that NCCL found, not a network: expected <system>");
  if (kind == "trees") root.fail("this is a strategy of AdapCC's, not a network: expected <graph>");
  if (kind == "algo") root.fail("this is a program for MSCCL, not a network");
  root.fail("expected <system> (NCCL) or <graph> (AdapCC)");
}

}  // namespace

const char* name(Format format) {
  return importer(format).name;
}

const std::vector<Format>& formats() {
  static const std::vector<Format> all = [] {
    std::vector<Format> result;
    for (const Importer& i : kImporters) result.push_back(i.format);
    return result;
  }();
  return all;
}

Format parse_format(const std::string& text) {
  for (const Importer& i : kImporters)
    if (text == i.name) return i.format;
  refuse("format \"{}\": expected one of {}", text, known_formats());
}

bool has_key(std::string_view text, std::string_view key) {
  for (auto at = text.find(key); at != std::string_view::npos; at = text.find(key, at + 1)) {
    std::size_t before = at, after = at + key.size();
    if (before > 0 && (text[before - 1] == '"' || text[before - 1] == '\'')) --before;
    if (before > 0 && !is_space(text[before - 1]) && text[before - 1] != '{' && text[before - 1] != ',')
      continue;
    if (after < text.size() && (text[after] == '"' || text[after] == '\'')) ++after;
    while (after < text.size() && is_space(text[after])) ++after;
    if (after < text.size() && text[after] == ':') return true;
  }
  return false;
}

Format recognise(const std::string& text, const std::string& origin) {
  const std::string word = first_word(text);
  const auto not_recognised = [&] {
    throw_error(ErrorCode::bad_file, "{}: no known format was recognised: expected a network as {} write it",
                origin, known_formats());
  };
  const std::string head = text.substr(0, 1024);
  if (head.find("<html>") != std::string::npos || head.find("<html ") != std::string::npos) not_recognised();
  if (word.starts_with('<') || word.starts_with("\xef\xbb\xbf<")) return recognise_xml(text, origin);
  if (origin.ends_with(".topo") || word == "nodes" || word == "tiers" || word == "podsize" || word == "tier")
    return Format::htsim;
  if (has_key(text, "nodes")) return Format::talweg;
  if (has_key(text, "gpus_per_node")) return Format::taccl;
  if (has_key(text, "npus_count")) return Format::astra_sim;
  const bool is_map = origin.ends_with(".yaml") || origin.ends_with(".yml") || origin.ends_with(".json");
  if (!is_map && !has_key(text, "links")) not_recognised();
  return Format::talweg;
}

Cluster import_text(Format format, const std::string& text, const std::string& origin) {
  return importer(format).read(text, origin);
}

Cluster load_any(const std::string& path) {
  const std::string text = text::read_file(path);
  return import_text(recognise(text, path), text, path);
}

Cluster load(Format format, const std::string& path) {
  return import_text(format, text::read_file(path), path);
}

}  // namespace talweg::formats
