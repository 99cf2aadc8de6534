#include "study/simulate_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include "sim/report.h"
#include "study/pages/embedded.h"
#include "text/escape.h"
#include "text/page.h"

namespace talweg::study {
namespace {

constexpr int kAxisWidth = 900;  // of the time axis, in pixels
constexpr int kLabel = 170;
constexpr int kRow = 14;
constexpr int kShades = 10;

// White where nothing is, then from light to dark.
std::string colour(int shade, int hue) {
  return shade == 0 ? "#fff" : fmt::format("hsl({},70%,{}%)", hue, 92 - 6 * shade);
}

struct Row {
  std::string name;
  std::vector<double> values;  // 0 .. 1
};

// One line for each row, one shade for each step; equal neighbours become one box.
std::string heat_map(const std::vector<Row>& rows, sim::Picoseconds duration, int hue) {
  const int height = static_cast<int>(rows.size()) * kRow;
  std::string svg =
      fmt::format(R"(<svg width="{}" height="{}" role="img">)", kLabel + kAxisWidth + 20, height + 24);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const int y = static_cast<int>(r) * kRow;
    svg += fmt::format(R"(<text x="{}" y="{}" text-anchor="end">{}</text>)", kLabel - 6, y + kRow - 3,
                       text::xml_escaped(rows[r].name));
    const auto& values = rows[r].values;
    const double step =
        static_cast<double>(kAxisWidth) / static_cast<double>(std::max<std::size_t>(values.size(), 1));
    const auto shade = [&](std::size_t i) {
      return std::clamp(static_cast<int>(values[i] * kShades + (values[i] > 0 ? 0.999 : 0)), 0, kShades);
    };
    for (std::size_t i = 0; i < values.size();) {
      std::size_t end = i + 1;
      while (end < values.size() && shade(end) == shade(i)) ++end;
      if (shade(i) > 0)
        svg += fmt::format(R"(<rect x="{:.1f}" y="{}" width="{:.1f}" height="{}" fill="{}"/>)",
                           kLabel + static_cast<double>(i) * step, y, static_cast<double>(end - i) * step,
                           kRow - 1, colour(shade(i), hue));
      i = end;
    }
  }
  for (int i = 0; i <= 4; ++i)
    svg += fmt::format(R"(<text x="{}" y="{}" text-anchor="{}">{}</text>)", kLabel + kAxisWidth * i / 4,
                       height + 16,
                       i == 4   ? "end"
                       : i == 0 ? "start"
                                : "middle",
                       to_string(Nanoseconds{duration / 4 * i / 1000}));
  return svg + "</svg>";
}

// The links for which `weight` is greatest and not 0, in the order of the file.
std::vector<int> greatest(std::size_t links, const std::function<double(int)>& weight) {
  std::vector<int> order(links);
  std::iota(order.begin(), order.end(), 0);
  std::vector<double> weights;
  for (const int l : order) weights.push_back(weight(l));
  const auto heavy = [&](int l) { return weights[static_cast<std::size_t>(l)]; };
  std::ranges::stable_sort(order, [&](int a, int b) { return heavy(a) > heavy(b); });
  while (!order.empty() && (order.size() > SimulatePage::kLinksShown || heavy(order.back()) <= 0))
    order.pop_back();
  std::ranges::sort(order);
  return order;
}

}  // namespace

void SimulatePage::add(const std::string& title, const sim::Simulation& simulation,
                       const sim::Sampler& sampler) {
  const cluster::Cluster& cluster = simulation.network().cluster();
  const sim::Picoseconds duration = static_cast<sim::Picoseconds>(sampler.samples()) * sampler.step();
  const auto rows = [&](const std::vector<int>& links, auto&& value) {
    std::vector<Row> all;
    for (const int l : links) {
      Row& row = all.emplace_back();
      row.name = sim::link_name(cluster, l);
      for (std::size_t i = 0; i < sampler.samples(); ++i) row.values.push_back(value(l, i));
    }
    return all;
  };
  const std::size_t links = cluster.links.size();
  const auto used = greatest(links, [&](int l) {
    return static_cast<double>(simulation.network().counters(l).bytes) /
           cluster.links[static_cast<std::size_t>(l)].capacity.bytes_per_second();
  });
  double most = 0;
  const auto queued = greatest(links, [&](int l) {
    const auto& q = sampler.series(l).queued_bytes;
    const auto deepest = q.empty() ? 0.0 : static_cast<double>(*std::ranges::max_element(q));
    most = std::max(most, deepest);
    return deepest;
  });
  sections_ += fmt::format("<h2>{}</h2>\n", text::xml_escaped(title));
  sections_ += fmt::format(
      "<h3>Use of links</h3><p>White: idle. Darkest: all of the capacity. The {} of {} "
      "links that worked most.</p>\n{}\n",
      used.size(), links,
      heat_map(rows(used, [&](int l, std::size_t i) { return sampler.use(l, i); }), duration, 210));
  sections_ += fmt::format(
      "<h3>Queues</h3><p>Bytes that waited in front of a link or were being sent. Darkest: {}.</p>\n{}\n",
      to_string(Bytes{static_cast<std::int64_t>(most)}),
      heat_map(rows(queued,
                    [&](int l, std::size_t i) {
                      return static_cast<double>(sampler.series(l).queued_bytes[i]) / std::max(most, 1.0);
                    }),
               duration, 15));
}

std::string SimulatePage::text(const std::string& network, const std::string& table) const {
  return text::to_html({.title = "Simulated: " + network,
                        .style = simulate_css,
                        .body = fmt::format("<pre>{}</pre>\n{}", text::xml_escaped(table), sections_)});
}

}  // namespace talweg::study
