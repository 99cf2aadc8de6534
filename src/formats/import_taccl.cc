// TACCL's topology of one server. Times are microseconds for a chunk of one size, which the file's name
// tells:
//
//   {"name": "NDv2_1MB", "gpus_per_node": 8, "nics_per_node": 1, "alpha": 0.3,
//    "node_betas_list": [23, 46], "node_invbws_list": [23, 46],          (invbw = alpha + beta: not read)
//    "remote_alpha": 2.6, "remote_beta": 105, "remote_invbw": 107}
//
// One beta: all GPUs hang on one switch, each by a link of this cost. Two, and 8 GPUs: the NVLink graph of
// DGX-1 and NDv2, where the first is for pairs with two links and the second for pairs with one. Or "links",
// "betas" and "invbws", three matrices with a row for each GPU: what they join costs "alpha" and its beta.
//
// TACCL asks that all costs of a file be multiplied by some factor which makes them large enough to be
// rounded; the file does not say which. Two keys that TACCL does not look at say what is missing: "chunk"
// ("1KB"; otherwise the name must end in it) and "scale" (otherwise 1).
//
// The links between servers ("remote_...", "nics_per_node") are checked but not used: how many servers there
// are and which GPU speaks to which NIC is in TACCL's sketch, another file.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <vector>

#include "formats/builder.h"
#include "formats/import.h"
#include "talweg/error.h"
#include "text/yaml_reader.h"

namespace talweg::formats {
namespace {

// NVLinks between GPUs i and j of a DGX-1 (Volta).
constexpr std::array<const char*, 8> kDgx1 = {"02112000", "20120100", "11020020", "12200001",
                                              "20000211", "01002012", "00201102", "00011220"};

class TacclImporter {
 public:
  TacclImporter(const text::YamlReader& document, const std::string& origin)
      : document_(document), builder_(origin) {}

  Cluster build() {
    document_.allow_keys({"name", "gpus_per_node", "nics_per_node", "alpha", "node_betas_list",
                          "node_invbws_list", "remote_alpha", "remote_beta", "remote_invbw", "links", "betas",
                          "invbws", "chunk", "scale"});
    constexpr int kMostGpus = 1024;
    gpus_ = static_cast<int>(document_.required("gpus_per_node").integer(1, kMostGpus));
    if (const auto scale = document_.optional("scale")) scale_ = scale->above_zero();
    chunk_ = read_chunk();
    latency_ = read_alpha();
    for (const char* key : {"remote_alpha", "remote_beta", "remote_invbw"})
      if (const auto value = document_.optional(key)) value->at_least_zero();
    if (const auto nics = document_.optional("nics_per_node")) nics->integer(0, kMostGpus);
    const int line = document_.required("gpus_per_node").line();
    for (int i = 0; i < gpus_; ++i) builder_.add({.name = fmt::format("gpu{}", i)}, line);
    if (document_.optional("links"))
      connect_matrix();
    else
      connect_preset(document_.required("node_betas_list"));
    return builder_.finish();
  }

 private:
  double read_chunk() const {
    const auto written = document_.optional("chunk");
    const text::YamlReader reader = written ? *written : document_.required("name");
    const std::string text = reader.text();
    try {
      const auto size = written ? parse_bytes(text) : parse_bytes(text.substr(text.rfind('_') + 1));
      if (size.value > 0) return static_cast<double>(size.value);
    } catch (const Error&) {
      // answered below
    }
    reader.expected(
        written ? "a size such as 1MB"
                : "the chunk size that costs are for at the end of the name, such as NDv2_1MB, or a key "
                  "\"chunk\"");
  }

  Nanoseconds read_alpha() const {
    const text::YamlReader alpha = document_.required("alpha");
    const double nanoseconds = alpha.at_least_zero() / scale_ * 1e3;
    if (!(nanoseconds < 1e15)) alpha.expected("less");
    return {std::llround(nanoseconds)};
  }

  Bandwidth capacity(const text::YamlReader& beta) const {
    const double rate = chunk_ * 8 / (beta.above_zero() / scale_ * 1e-6);
    if (!std::isfinite(rate) || rate < 1) beta.expected("a beta that makes sense");
    return {rate};
  }

  void connect_preset(const text::YamlReader& list) {
    const auto betas = list.items();
    if (betas.size() == 1) {
      const int hub = builder_.add({.name = "switch", .kind = NodeKind::switch_}, list.line());
      for (int i = 0; i < gpus_; ++i)
        builder_.connect(i, hub, capacity(betas[0]), {latency_.value / 2}, betas[0].line());
      return;
    }
    if (betas.size() != 2 || gpus_ != 8)
      list.fail(
          fmt::format("{} betas for {} GPUs: expected one (a switch), or two and 8 GPUs (DGX-1), or the "
                      "matrices \"links\" and \"betas\"",
                      betas.size(), gpus_));
    for (int i = 0; i < gpus_; ++i) {
      for (int j = i + 1; j < gpus_; ++j) {
        const char count = kDgx1[static_cast<std::size_t>(i)][j];
        if (count == '0') continue;
        const text::YamlReader& beta = betas[count == '2' ? 0 : 1];
        builder_.connect(i, j, capacity(beta), latency_, beta.line());
      }
    }
  }

  std::vector<std::vector<text::YamlReader>> matrix(const char* key) const {
    const text::YamlReader reader = document_.required(key);
    const auto size = static_cast<std::size_t>(gpus_);
    std::vector<std::vector<text::YamlReader>> rows;
    for (const text::YamlReader& row : reader.items()) {
      rows.push_back(row.items());
      if (rows.back().size() != size) row.expected(fmt::format("{} columns, one for each GPU", size));
    }
    if (rows.size() != size) reader.expected(fmt::format("{} rows, one for each GPU", size));
    return rows;
  }

  void connect_matrix() {
    const auto links = matrix("links");
    const auto betas = matrix("betas");
    // Rows are receivers, columns senders, as in TACCL's and SCCL's `links[dst][src]`.
    for (std::size_t to = 0; to < links.size(); ++to) {
      for (std::size_t from = 0; from < links.size(); ++from) {
        if (links[to][from].at_least_zero() == 0) continue;
        builder_.connect_one_way(static_cast<int>(from), static_cast<int>(to), capacity(betas[to][from]),
                                 latency_, links[to][from].line());
      }
    }
  }

  const text::YamlReader document_;
  Builder builder_;
  int gpus_ = 0;
  double scale_ = 1;
  double chunk_ = 0;  // bytes
  Nanoseconds latency_;
};

}  // namespace

Cluster import_taccl(const std::string& text, const std::string& origin) {
  return TacclImporter(text::read_document(text, origin), origin).build();
}

}  // namespace talweg::formats
