// ASTRA-sim's analytical network: a shape, a size and a speed for each dimension.
//
//   topology: [ Ring, FullyConnected, Switch ]
//   npus_count: [ 2, 8, 4 ]                  # 64 NPUs
//   bandwidth: [ 200.0, 100.0, 50.0 ]        # GB/s of every link, each way
//   latency: [ 50.0, 500.0, 2000.0 ]         # ns of every link
//
// NPU i has the coordinates (i mod 2, i / 2 mod 8, i / 16): the first dimension runs fastest. NPUs that
// differ in one coordinate only are joined: in a ring to the two neighbours (one link where there are two of
// them), fully connected to all, or by a switch, to which each has a link.
#include <fmt/format.h>

#include <cstdint>
#include <vector>

#include "formats/builder.h"
#include "formats/import.h"
#include "text/yaml_reader.h"

namespace talweg::formats {
namespace {

struct Dimension {
  std::string shape;
  int count = 0;
  Bandwidth capacity;
  Nanoseconds latency;
  int line = 0;
};

std::vector<Dimension> read_dimensions(const text::YamlReader& document) {
  document.allow_keys({"topology", "npus_count", "bandwidth", "latency"});
  const auto shapes = document.required("topology").items();
  if (shapes.empty()) document.required("topology").fail("expected at least one dimension");
  const auto values = [&](const char* key) {
    auto items = document.required(key).items();
    if (items.size() != shapes.size())
      document.required(key).fail(
          fmt::format("expected {} values, one for each dimension, got {}", shapes.size(), items.size()));
    return items;
  };
  const auto counts = values("npus_count");
  const auto bandwidths = values("bandwidth");
  const auto latencies = values("latency");
  std::vector<Dimension> dimensions;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    Dimension d{.shape = shapes[i].text(),
                .count = static_cast<int>(counts[i].integer(1, Builder::kMostNodes)),
                .capacity = {bandwidths[i].above_zero() * 8e9},
                .latency = {},
                .line = counts[i].line()};
    if (d.shape != "Ring" && d.shape != "FullyConnected" && d.shape != "Switch")
      shapes[i].expected("Ring, FullyConnected or Switch");
    const double latency = latencies[i].at_least_zero();
    if (latency > 1e15) latencies[i].expected("less than 1e15 ns");
    d.latency = {static_cast<std::int64_t>(latency)};
    dimensions.push_back(std::move(d));
  }
  return dimensions;
}

class AstraSimImporter {
 public:
  AstraSimImporter(const text::YamlReader& document, const std::string& origin)
      : builder_(origin), dimensions_(read_dimensions(document)) {}

  Cluster build() {
    std::int64_t npus = 1;
    for (const Dimension& d : dimensions_) {
      npus *= d.count;
      if (npus > static_cast<std::int64_t>(Builder::kMostNodes))
        builder_.fail(d.line, fmt::format("npus_count: this makes more than {} NPUs", Builder::kMostNodes));
    }
    npus_ = static_cast<int>(npus);
    for (int i = 0; i < npus_; ++i) builder_.add({.name = fmt::format("npu{}", i)}, dimensions_[0].line);
    int stride = 1;
    for (std::size_t i = 0; i < dimensions_.size(); ++i) {
      connect(dimensions_[i], i, stride);
      stride *= dimensions_[i].count;
    }
    return builder_.finish();
  }

 private:
  void connect(const Dimension& d, std::size_t index, int stride) {
    int switches = 0;
    for (int first = 0; first < npus_; ++first) {
      if (first / stride % d.count != 0 || d.count == 1) continue;
      const auto npu = [&](int coordinate) { return first + coordinate * stride; };
      if (d.shape == "Switch") {
        const int hub = builder_.add(
            {.name = fmt::format("switch{}.{}", index, switches++), .kind = NodeKind::switch_}, d.line);
        for (int i = 0; i < d.count; ++i) builder_.connect(npu(i), hub, d.capacity, d.latency, d.line);
      } else if (d.shape == "Ring") {
        for (int i = 0; i + 1 < d.count; ++i)
          builder_.connect(npu(i), npu(i + 1), d.capacity, d.latency, d.line);
        if (d.count > 2) builder_.connect(npu(d.count - 1), npu(0), d.capacity, d.latency, d.line);
      } else {
        for (int i = 0; i < d.count; ++i)
          for (int j = i + 1; j < d.count; ++j)
            builder_.connect(npu(i), npu(j), d.capacity, d.latency, d.line);
      }
    }
  }

  Builder builder_;
  std::vector<Dimension> dimensions_;
  int npus_ = 0;
};

}  // namespace

Cluster import_astra_sim(const std::string& text, const std::string& origin) {
  return AstraSimImporter(text::read_document(text, origin), origin).build();
}

}  // namespace talweg::formats
