#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/at.h"
#include "base/units.h"
#include "forest/bound.h"
#include "study/plan_pictures.h"
#include "text/escape.h"

namespace talweg::study {
namespace {

using cluster::NodeKind;

constexpr double kLeastRadius = 210;
constexpr double kWorkerSpacing = 27;  // along the circle: a label's height, with air
constexpr int kMostLevelLabels = 16;   // above, labels stand along the radius
constexpr double kNodeSize = 8;
constexpr double kLabelGap = 7;
constexpr double kHalo = 17;             // of links that set the bound
constexpr double kFullWidthLinks = 256;  // more of them are drawn thinner
constexpr double kLetter = 6.6;          // width, at 11 pixels
constexpr double kLinkOffset = 3.6;      // to the right of the way it leads

struct Line {
  double x1, y1, x2, y2;
};

// Both directions of a pair, side by side and clear of the nodes.
Line line_of(const Place& from, const Place& to, double radius) {
  const double dx = (to.x - from.x) * radius, dy = (to.y - from.y) * radius;
  const double length = std::max(1.0, std::hypot(dx, dy)), ux = dx / length, uy = dy / length;
  const double gap = std::min(kNodeSize + 3, length / 3);
  const double ox = -uy * kLinkOffset, oy = ux * kLinkOffset;
  return {from.x * radius + ux * gap + ox, from.y * radius + uy * gap + oy, to.x * radius - ux * gap + ox,
          to.y * radius - uy * gap + oy};
}

std::string svg_line(const Line& line, const std::string& attributes, const std::string& inside = "") {
  const std::string text = fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}",
                                       line.x1, line.y1, line.x2, line.y2, attributes);
  return text + (inside.empty() ? "/>\n" : ">" + inside + "</line>\n");
}

std::string node_text(const cluster::Node& node, const Place& place, double radius, std::size_t index) {
  const double x = place.x * radius, y = place.y * radius, s = kNodeSize;
  const std::string common = fmt::format("class=\"node {}\" data-node=\"{}\"",
                                         node.kind == NodeKind::worker ? "worker" : "inner", index);
  const std::string title = fmt::format("><title>{}{}</title>", text::xml_escaped(node.name),
                                        node.kind == NodeKind::worker    ? fmt::format(", rank {}", index)
                                        : node.kind == NodeKind::switch_ ? ", switch"
                                                                         : ", aggregator");
  switch (node.kind) {
    case NodeKind::worker:
      return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" {}{}</circle>\n", x, y, s, common,
                         title);
    case NodeKind::switch_:
      return fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\" rx=\"3\" {}{}</rect>\n",
                         x - s, y - s, 2 * s, 2 * s, common, title);
    case NodeKind::aggregator:
      break;
  }
  return fmt::format("<path d=\"M{:.1f} {:.1f}l{} {}l{} {}l{} {}z\" {}{}</path>\n", x, y - s - 2, s + 2,
                     s + 2, -s - 2, s + 2, -s - 2, -s - 2, common, title);
}

std::string worker_label(const std::string& name, const Place& place, double radius, bool level) {
  const double away = radius + kNodeSize + kLabelGap;
  const double x = std::cos(place.angle) * away, y = std::sin(place.angle) * away;
  const bool left = std::cos(place.angle) < -1e-6;
  if (level) {
    const bool beside = std::abs(std::cos(place.angle)) > 0.3;
    return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" dy=\"{}\">{}</text>\n", x, y,
                       !beside ? "middle"
                       : left  ? "end"
                               : "start",
                       std::sin(place.angle) < -0.9  ? "-.2em"
                       : std::sin(place.angle) > 0.9 ? ".8em"
                                                     : ".35em",
                       text::xml_escaped(name));
  }
  const double degrees = place.angle * 180 / std::numbers::pi + (left ? 180 : 0);
  return fmt::format(
      "<text transform=\"translate({:.1f} {:.1f}) rotate({:.1f})\" text-anchor=\"{}\" "
      "dy=\".35em\">{}</text>\n",
      x, y, degrees, left ? "end" : "start", text::xml_escaped(name));
}

// Links that have a price in the bound's proof, or are in a group that has.
std::vector<bool> priced_links(const cluster::Cluster& network, const Study& study) {
  std::vector<bool> priced(network.links.size());
  if (!study.bound) return priced;
  const auto& proof = study.bound->certificate;
  for (std::size_t link = 0; link < proof.link_prices.size(); ++link)
    priced[link] = proof.link_prices[link] > 0;
  for (std::size_t group = 0; group < proof.group_prices.size(); ++group)
    if (proof.group_prices[group] > 0)
      for (const int link : network.groups[group].links) priced[at(link)] = true;
  return priced;
}

}  // namespace

double radius_of(const cluster::Cluster& network) {
  return std::max(kLeastRadius, kWorkerSpacing * network.workers() / (2 * std::numbers::pi));
}

std::string network_picture(const cluster::Cluster& network, const std::vector<Place>& places,
                            const Study& study) {
  const double radius = radius_of(network);
  const bool level = network.workers() <= kMostLevelLabels;
  std::size_t longest = 0;
  for (int worker = 0; worker < network.workers(); ++worker)
    longest = std::max(longest, network.nodes[at(worker)].name.size());
  const double label = kNodeSize + kLabelGap + kLetter * static_cast<double>(longest) + 6;
  const double thickness =
      std::min(1.0, std::sqrt(kFullWidthLinks / static_cast<double>(network.links.size() + 1)));
  const double half_width = radius + label, half_height = radius + (level ? 34 : label);
  std::string text = fmt::format(
      "<svg id=\"network\" data-thickness=\"{5:.3f}\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"{0:.0f} "
      "{1:.0f} {2:.0f} {3:.0f}\" "
      "style=\"max-width:{4:.0f}px\" role=\"img\" aria-label=\"the network\">\n"
      "<defs><marker id=\"up-head\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"5\" "
      "markerHeight=\"5\" "
      "orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" class=\"up-fill\"/></marker>"
      "<marker id=\"down-head\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"5\" "
      "markerHeight=\"5\" "
      "orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" class=\"down-fill\"/></marker></defs>\n",
      -half_width, -half_height, 2 * half_width, 2 * half_height, std::max(2 * half_width, 560.0), thickness);
  text += "<g id=\"bound-links\">\n";
  const auto priced = priced_links(network, study);
  for (std::size_t i = 0; i < network.links.size(); ++i)
    if (priced[i])
      text += svg_line(line_of(places[at(network.links[i].from)], places[at(network.links[i].to)], radius),
                       fmt::format("class=\"priced\" stroke-width=\"{:.1f}\"", kHalo * thickness));
  text += "</g>\n<g id=\"links\">\n";
  for (std::size_t i = 0; i < network.links.size(); ++i)
    text += svg_line(line_of(places[at(network.links[i].from)], places[at(network.links[i].to)], radius),
                     fmt::format("class=\"link\" data-link=\"{}\"", i), "<title> </title>");
  text += "</g>\n<g id=\"tree\"></g>\n<g id=\"nodes\">\n";
  for (std::size_t i = 0; i < network.nodes.size(); ++i)
    text += node_text(network.nodes[i], places[i], radius, i);
  text += "</g>\n<g class=\"labels\">\n";
  for (std::size_t i = 0; i < network.nodes.size(); ++i)
    text +=
        static_cast<int>(i) < network.workers()
            ? worker_label(network.nodes[i].name, places[i], radius, level)
            : fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", places[i].x * radius + kNodeSize + 3,
                          places[i].y * radius + kNodeSize + 8, text::xml_escaped(network.nodes[i].name));
  return text + "</g>\n</svg>\n";
}

}  // namespace talweg::study
