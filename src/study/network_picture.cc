#include "study/network_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>

#include "base/at.h"
#include "base/units.h"
#include "text/escape.h"

namespace talweg::study {
namespace {

using cluster::NodeKind;

constexpr int kMostLevelNames = 16;  // around a circle: above, names stand along the radius
constexpr double kNodeSize = 8;
constexpr double kNameGap = 7;
constexpr double kNameHeight = 14;  // height of a name
constexpr double kMargin = 8;
constexpr double kHalo = 17;             // of links that set the bound
constexpr double kFullWidthLinks = 256;  // more of them are drawn thinner
constexpr double kLinkOffset = 3.6;      // to the right of the way it leads
constexpr double kArc = 0.18;      // of the way between two nodes of a tier: how high the link between them
constexpr double kReadable = 640;  // width below which a wide picture is not made smaller, but scrolled

class NetworkPicture {
 public:
  NetworkPicture(const cluster::Cluster& network, const Layout& layout, const std::vector<bool>& priced)
      : network_(network),
        layout_(layout),
        priced_(priced),
        workers_(network.workers()),
        thickness_(
            std::min(1.0, std::sqrt(kFullWidthLinks / static_cast<double>(network.links.size() + 1)))) {
    for (int host = 0; host < workers_; ++host)
      widest_host_ = std::max(widest_host_, name_width(network.nodes[at(host)]));
  }

  std::string text() {
    std::string body = "<g id=\"bound-links\">\n";
    for (std::size_t i = 0; i < priced_.size(); ++i)
      if (priced_[i])
        body += fmt::format("<path class=\"priced\" stroke-width=\"{:.1f}\" d=\"{}\"/>\n", kHalo * thickness_,
                            way_of(network_.links[i]));
    body += "</g>\n<g id=\"links\">\n";
    for (const cluster::Link& link : network_.links)
      body += fmt::format("<path class=\"link\" d=\"{}\"><title>{}</title></path>\n", way_of(link),
                          text::xml_escaped(title_of(link)));
    body += "</g>\n<g id=\"tree\"></g>\n<g id=\"nodes\">\n";
    for (std::size_t i = 0; i < network_.nodes.size(); ++i) body += node_text(i);
    body += "</g>\n<g class=\"labels\">\n";
    for (std::size_t i = 0; i < network_.nodes.size(); ++i)
      body += layout_.round ? name_around(i) : name_in_row(i);
    return head() + body + "</g>\n</svg>\n";
  }

 private:
  std::string head() const {
    const double width = right_ - left_ + 2 * kMargin, height = bottom_ - top_ + 2 * kMargin;
    return fmt::format(
        "<svg id=\"network\" data-thickness=\"{:.3f}\" xmlns=\"http://www.w3.org/2000/svg\" "
        "viewBox=\"{:.0f} {:.0f} {:.0f} {:.0f}\" style=\"max-width:{:.0f}px;min-width:{:.0f}px\" "
        "role=\"img\" "
        "aria-label=\"the network\">\n"
        "<defs><marker id=\"up-head\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"5\" "
        "markerHeight=\"5\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" class=\"up-fill\"/></marker>"
        "<marker id=\"down-head\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"5\" "
        "markerHeight=\"5\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" "
        "class=\"down-fill\"/></marker></defs>\n",
        thickness_, left_ - kMargin, top_ - kMargin, width, height, width, std::min(width, kReadable));
  }

  void keep(double x, double y) {
    left_ = std::min(left_, x);
    right_ = std::max(right_, x);
    top_ = std::min(top_, y);
    bottom_ = std::max(bottom_, y);
  }

  std::string title_of(const cluster::Link& link) const {
    return fmt::format("{} \u2192 {}: {}, {}", network_.nodes[at(link.from)].name,
                       network_.nodes[at(link.to)].name, to_string(link.capacity), to_string(link.latency));
  }

  // Both directions of a pair, side by side and clear of the nodes.
  std::string way_of(const cluster::Link& link) {
    const Place &from = layout_.places[at(link.from)], &to = layout_.places[at(link.to)];
    const double dx = to.x - from.x, dy = to.y - from.y;
    const double length = std::max(1.0, std::hypot(dx, dy)), ux = dx / length, uy = dy / length;
    if (!layout_.round && from.tier == to.tier) return arc(from, to, dx);
    const double gap = std::min(kNodeSize + 3, length / 3);
    const double ox = -uy * kLinkOffset, oy = ux * kLinkOffset;
    return fmt::format("M{:.1f} {:.1f}L{:.1f} {:.1f}", from.x + ux * gap + ox, from.y + uy * gap + oy,
                       to.x - ux * gap + ox, to.y - uy * gap + oy);
  }

  // Over what stands between the two.
  std::string arc(const Place& from, const Place& to, double dx) {
    const double height = 2 * kNodeSize + kArc * std::abs(dx) + (dx > 0 ? kLinkOffset : -kLinkOffset);
    const double y = std::min(from.y, to.y) - 2 * height;
    keep((from.x + to.x) / 2, y + height);
    return fmt::format("M{:.1f} {:.1f}Q{:.1f} {:.1f} {:.1f} {:.1f}", from.x, from.y - kNodeSize,
                       (from.x + to.x) / 2, y, to.x, to.y - kNodeSize);
  }

  std::string node_text(std::size_t index) {
    const cluster::Node& node = network_.nodes[index];
    const Place& place = layout_.places[index];
    const double s = std::clamp(0.36 * layout_.steps[at(place.tier)], 3.0, kNodeSize);
    keep(place.x - s - 2, place.y - s - 2);
    keep(place.x + s + 2, place.y + s + 2);
    const char* what = node.kind == NodeKind::worker    ? "rank"
                       : node.kind == NodeKind::switch_ ? "switch"
                                                        : "aggregator";
    const std::string rest =
        fmt::format("class=\"node {}\"><title>{}, {}{}</title>",
                    node.kind == NodeKind::worker ? "worker" : "inner", text::xml_escaped(node.name), what,
                    node.kind == NodeKind::worker ? fmt::format(" {}", index) : std::string());
    switch (node.kind) {
      case NodeKind::worker:
        return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\" {}</circle>\n", place.x, place.y,
                           s, rest);
      case NodeKind::switch_:
        return fmt::format(
            "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"3\" {}</rect>\n",
            place.x - s, place.y - s, 2 * s, 2 * s, rest);
      case NodeKind::aggregator:
        break;
    }
    const double d = s + 2;
    return fmt::format("<path d=\"M{:.1f} {:.1f}l{} {}l{} {}l{} {}z\" {}</path>\n", place.x, place.y - d, d,
                       d, -d, d, -d, -d, rest);
  }

  std::string name_at(std::size_t index, double x, double y, const char* anchor) {
    const cluster::Node& node = network_.nodes[index];
    const double width = name_width(node), begin = *anchor == 's'   ? x
                                                   : *anchor == 'e' ? x - width
                                                                    : x - width / 2;
    keep(begin, y - kNameHeight);
    keep(begin + width, y + 4);
    return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                       text::xml_escaped(short_name(node)));
  }

  // Along a line that leaves (x, y) at an angle.
  std::string name_along(std::size_t index, double x, double y, double degrees, const char* anchor) {
    const cluster::Node& node = network_.nodes[index];
    const double away = (*anchor == 'e' ? -1 : 1) * name_width(node),
                 angle = degrees * std::numbers::pi / 180;
    const double x2 = x + away * std::cos(angle), y2 = y + away * std::sin(angle);
    keep(std::min(x, x2) - kNameHeight / 2, std::min(y, y2) - kNameHeight / 2);
    keep(std::max(x, x2) + kNameHeight / 2, std::max(y, y2) + kNameHeight / 2);
    return fmt::format(
        "<text transform=\"translate({:.1f} {:.1f}) rotate({:.1f})\" text-anchor=\"{}\" "
        "dy=\".35em\">{}</text>\n",
        x, y, degrees, anchor, text::xml_escaped(short_name(node)));
  }

  // Hosts' below them, on their side where they are close; switches' beside them, or above. None where there
  // is no room: titles say them.
  std::string name_in_row(std::size_t index) {
    const Place& place = layout_.places[index];
    const double step = layout_.steps[at(place.tier)], width = name_width(network_.nodes[index]);
    if (place.tier == 0) {
      if (layout_.host_rows > 1) return "";
      const double y = place.y + kNodeSize + kNameGap;
      return widest_host_ + 6 <= step ? name_at(index, place.x, y + kNameHeight / 2, "middle")
                                      : name_along(index, place.x, y, 90, "start");
    }
    if (width + 2 * kNodeSize + 14 <= step)
      return name_at(index, place.x + kNodeSize + 5, place.y + 4, "start");
    if (width + 4 <= step) return name_at(index, place.x, place.y - kNodeSize - 5, "middle");
    return "";
  }

  std::string name_around(std::size_t index) {
    const Place& place = layout_.places[index];
    if (place.tier > 0) return name_at(index, place.x + kNodeSize + 3, place.y + kNodeSize + 8, "start");
    const double away = layout_.radius + kNodeSize + kNameGap;
    const double across = std::cos(place.angle), down = std::sin(place.angle);
    const bool left = across < -1e-6;
    const char* anchor = left ? "end" : "start";
    if (workers_ > kMostLevelNames)
      return name_along(index, away * across, away * down,
                        place.angle * 180 / std::numbers::pi + (left ? 180 : 0), anchor);
    const double lower = down < -0.9 ? 0 : down > 0.9 ? kNameHeight / 2 + 2 : 4;
    return name_at(index, away * across, away * down + lower, std::abs(across) > 0.3 ? anchor : "middle");
  }

  const cluster::Cluster& network_;
  const Layout& layout_;
  const std::vector<bool>& priced_;
  const int workers_;
  const double thickness_;
  double widest_host_ = 0;
  double left_ = 0, right_ = 0, top_ = 0, bottom_ = 0;  // of all that was drawn
};

}  // namespace

std::string network_picture(const cluster::Cluster& network, const Layout& layout,
                            const std::vector<bool>& priced) {
  return NetworkPicture(network, layout, priced).text();
}

std::string use_legend(const std::string& what) {
  constexpr const char* kLevels[] = {"unused", "up to 25 %", "25-50 %", "50-75 %", "75-90 %", "above 90 %"};
  std::string html = fmt::format("link busy, {}:\n", text::xml_escaped(what));
  for (std::size_t i = 0; i < std::size(kLevels); ++i)
    html += fmt::format(
        "<span class=\"entry\"><svg width=\"26\" height=\"10\"><path class=\"link u{}\" d=\"M1 5L25 5\" "
        "stroke-width=\"{:.1f}\"/></svg> {}</span>\n",
        i, 1.2 + 0.9 * static_cast<double>(i), kLevels[i]);
  return html;
}

}  // namespace talweg::study
