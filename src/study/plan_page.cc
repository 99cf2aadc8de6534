#include "study/plan_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>
#include <vector>

#include "base/at.h"
#include "base/printable.h"
#include "base/units.h"
#include "cluster/routing.h"
#include "forest/verify.h"
#include "forest/walk.h"
#include "study/pages/embedded.h"
#include "study/plan_pictures.h"
#include "study/why_not.h"
#include "text/escape.h"
#include "text/page.h"

namespace talweg::study {
namespace {

using Json = nlohmann::json;

// A page that browsers still open quickly: some 20 bytes an edge.
constexpr std::size_t kMostEdges = 400'000;
constexpr std::size_t kMostTrees = 256;  // of one plan: nobody looks at more
constexpr std::size_t kMostNodesToDraw = 2000;

// [from, to, step] of each edge: what goes up starts at the leaves, what comes down at the root.
Json edges_up(const forest::Tree& tree, int nodes) {
  std::vector<int> height(at(nodes));
  const auto edges = forest::outward(tree.up, tree.root, nodes);
  Json list = Json::array();
  for (auto edge = edges.rbegin(); edge != edges.rend(); ++edge) {
    const int step = height[at(edge->child)] + 1;
    height[at(edge->parent)] = std::max(height[at(edge->parent)], step);
    list.push_back({edge->child, edge->parent, step});
  }
  return list;
}

Json edges_down(const forest::Tree& tree, int nodes) {
  std::vector<int> depth(at(nodes));
  Json list = Json::array();
  for (const forest::Edge& edge : forest::outward(tree.down, tree.root, nodes)) {
    depth[at(edge.child)] = depth[at(edge.parent)] + 1;
    list.push_back({edge.parent, edge.child, depth[at(edge.child)]});
  }
  return list;
}

// Of those trees that are shown.
std::size_t edge_count(const forest::Forest& forest) {
  std::size_t edges = 0;
  for (std::size_t i = 0; i < std::min(kMostTrees, forest.trees.size()); ++i)
    edges += forest.trees[i].up.size() + forest.trees[i].down.size();
  return edges;
}

// The script puts these texts into the page as they are.
void make_printable(Json& value) {
  if (value.is_string()) value = printable(value.get_ref<const std::string&>());
  if (value.is_structured())
    for (Json& each : value) make_printable(each);
}

// What the script paints from: the network, and the plans for one size.
class PageData {
 public:
  PageData(const cluster::Cluster& network, const std::vector<Place>& places) : network_(network) {
    const double radius = radius_of(network);
    Json nodes = Json::array(), links = Json::array();
    for (std::size_t i = 0; i < network.nodes.size(); ++i)
      nodes.push_back({network.nodes[i].name, rounded(places[i].x * radius), rounded(places[i].y * radius)});
    for (const cluster::Link& link : network.links)
      links.push_back(fmt::format("{} \u2192 {}: {}, {}", network.nodes[at(link.from)].name,
                                  network.nodes[at(link.to)].name, to_string(link.capacity),
                                  to_string(link.latency)));
    document_ = {{"nodes", std::move(nodes)}, {"links", std::move(links)}, {"plans", Json::array()}};
    document_["groups"] = Json::array();
    for (const auto& group : network.groups)
      document_["groups"].push_back(fmt::format("{} (shared): {}", group.name, to_string(group.capacity)));
  }

  // The plans of the last row, the one that is taken first; `left_out` names those that would make the page
  // too large.
  void add_plans(const Study& study, std::vector<std::string>& left_out) {
    document_["taken"] = taken_text(study);
    const StudyRow& row = study.rows.back();
    const forest::Request request = request_of(study.op, study.root, study.ranks, row.bytes);
    routes_.emplace_back(network_);
    std::vector<std::size_t> order(study.planners.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
      return (static_cast<int>(a) == row.taken) > (static_cast<int>(b) == row.taken);
    });
    for (const std::size_t planner : order) {
      const auto& seconds = row.predictions[planner].seconds;
      if (!seconds) continue;
      const forest::Forest forest = plan_for(network_, request, study.planners[planner]);
      const std::size_t edges = edge_count(forest);
      if (edges_ + edges > kMostEdges) {
        left_out.push_back(study.planners[planner]);
        continue;
      }
      edges_ += edges;
      add_plan(forest, *seconds, static_cast<int>(planner) == row.taken);
    }
    Json routes = Json::object();
    for (const auto& [ends, path] : used_routes_)
      routes[fmt::format("{},{}", ends.first, ends.second)] = path;
    document_["routes"] = std::move(routes);
    document_["alike"] = Json::object();
    for (int link = 0; link < static_cast<int>(network_.links.size()); ++link) {
      const int leader = routes_.front().leader(link);
      if (routes_.front().followers(link) > 1) document_["alike"][std::to_string(leader)].push_back(link);
    }
  }

  std::string text() {
    make_printable(document_);
    return document_.dump(-1, ' ', true);
  }

 private:
  static double rounded(double pixels) { return std::round(pixels * 10) / 10; }

  void add_plan(const forest::Forest& forest, double seconds, bool taken) {
    const forest::Verification load = forest::verify(forest, &network_);
    const auto busy = [&](Bytes bytes, Bandwidth capacity) {
      const double part = static_cast<double>(bytes.value) / capacity.bytes_per_second() / seconds;
      return std::round(part * 1000) / 1000;
    };
    Json plan = {{"name", forest.planner}, {"taken", taken}, {"time", duration_text(seconds)}};
    plan["busy"] = plan["bytes"] = plan["group_busy"] = plan["trees"] = Json::array();
    for (std::size_t i = 0; i < network_.links.size(); ++i) {
      plan["busy"].push_back(busy(load.link_bytes[i], network_.links[i].capacity));
      plan["bytes"].push_back(to_string(shortened(load.link_bytes[i])));
    }
    for (std::size_t i = 0; i < network_.groups.size(); ++i)
      plan["group_busy"].push_back(busy(load.group_bytes[i], network_.groups[i].capacity));
    const auto whole = static_cast<double>(std::max<std::int64_t>(1, request_bytes(forest.request)));
    plan["tree_count"] = forest.trees.size();
    for (std::size_t i = 0; i < std::min(kMostTrees, forest.trees.size()); ++i) {
      const forest::Tree& tree = forest.trees[i];
      const std::int64_t bytes = tree.slice.count * forest.request.element_size;
      plan["trees"].push_back({{"root", tree.root},
                               {"part", static_cast<double>(bytes) / whole},
                               {"bytes", to_string(shortened(Bytes{bytes}))},
                               {"chunk", to_string(shortened(Bytes{std::min(tree.chunk, tree.slice.count) *
                                                                   forest.request.element_size}))},
                               {"up", edges_up(tree, forest.nodes)},
                               {"down", edges_down(tree, forest.nodes)}});
      for (const forest::Edge& edge : tree.up) note_route(edge.child, edge.parent);
      for (const forest::Edge& edge : tree.down) note_route(edge.parent, edge.child);
    }
    document_["plans"].push_back(std::move(plan));
  }

  // To three digits: exact bytes of large sizes are long to read.
  static Bytes shortened(Bytes bytes) {
    std::int64_t unit = 1;
    while (bytes.value / unit >= 8192) unit *= 1024;
    return {bytes.value / unit * unit};
  }

  void note_route(int from, int to) {
    const auto entry = used_routes_.try_emplace({from, to});
    auto& links = entry.first->second;
    if (entry.second)
      routes_.front().for_each_share(from, to, [&](int link, double) { links.push_back(link); });
  }

  const cluster::Cluster& network_;
  std::vector<cluster::Routes> routes_;  // one, once there are plans
  // All links that carry a part; of those that are always loaded alike, the one that leads them.
  std::map<std::pair<int, int>, std::vector<int>> used_routes_;
  std::size_t edges_ = 0;
  Json document_;
};

std::string facts(const cluster::Cluster& network, const NetworkSource& source, const Study& study) {
  std::string html = "<dl>\n";
  const auto fact = [&](const char* what, const std::string& text) {
    html += fmt::format("<dt>{}</dt><dd>{}</dd>\n", what, text::xml_escaped(text));
  };
  fact("network", network_line(network, source));
  fact("bound", bound_line(network, study));
  for (const std::string& note : study.notes) fact("note", note);
  return html + "</dl>\n";
}

std::string load_legend(const Study& study) {
  constexpr const char* kLevels[] = {"unused", "up to 25 %", "25-50 %", "50-75 %", "75-90 %", "above 90 %"};
  std::string html = "<p class=\"legend\">link busy, part of the predicted time:\n";
  for (std::size_t i = 0; i < std::size(kLevels); ++i)
    html += fmt::format(
        "<span class=\"entry\"><svg width=\"26\" height=\"10\"><line class=\"link u{}\" x1=\"1\" x2=\"25\" "
        "y1=\"5\" "
        "y2=\"5\" stroke-width=\"{:.1f}\"/></svg> {}</span>\n",
        i, 1.2 + 0.9 * static_cast<double>(i), kLevels[i]);
  if (study.bound)
    html +=
        "<label class=\"entry\"><input type=\"checkbox\" id=\"show-bound\" checked=\"checked\"/> <svg "
        "width=\"26\" "
        "height=\"12\"><line class=\"priced\" stroke-width=\"12\" x1=\"1\" x2=\"25\" y1=\"6\" "
        "y2=\"6\"/></svg> sets the "
        "bound</label>\n";
  return html + "</p>\n";
}

constexpr const char* kControls = R"(<p class="controls">
<label>plan <select id="plan"></select></label>
<label>tree <select id="one-tree"></select></label>
<span id="steps"><button type="button" id="back">&#9664;</button>
<input type="range" id="step" min="0" value="0"/>
<button type="button" id="next">&#9654;</button> <button type="button" id="play">play</button>
<span class="up-text">up (summing)</span> and <span class="down-text">down (result)</span></span></p>
<p id="said" aria-live="polite"> </p>
)";

std::string network_section(const cluster::Cluster& network, const Study& study, std::string& data) {
  std::string html = "<h2>The network, its loads and trees</h2>\n";
  if (network.nodes.size() > kMostNodesToDraw)
    return html +
           fmt::format("<p>Not drawn: {} nodes; up to {} are.</p>\n", network.nodes.size(), kMostNodesToDraw);
  const auto places = lay_out(network);
  PageData page(network, places);
  std::vector<std::string> left_out;
  if (!study.rows.empty()) {
    page.add_plans(study, left_out);
    html += fmt::format("<p>Plans for {}. Loads count payload only, by the cluster's routes.</p>\n{}",
                        size_text(study, study.rows.back()), kControls);
    for (const std::string& planner : left_out)
      html += fmt::format("<p>{} has too many edges for this page.</p>\n", text::xml_escaped(planner));
  }
  data = page.text();
  return html + network_picture(network, places, study) + load_legend(study) + "<p id=\"busiest\"> </p>\n";
}

std::string table_section(const Study& study) {
  std::string html = "<h2>Predicted times</h2>\n<div class=\"scroll\"><table>\n<tr><th>size</th>";
  for (const std::string& planner : study.planners)
    html += fmt::format("<th>{}</th>", text::xml_escaped(planner));
  html += "<th>taken, GB/s</th><th>of bound</th></tr>\n";
  for (const StudyRow& row : study.rows) {
    html += fmt::format("<tr><th>{}</th>", size_text(study, row));
    for (std::size_t i = 0; i < row.predictions.size(); ++i) {
      const Prediction& prediction = row.predictions[i];
      html += fmt::format(
          "<td{}{}>{}</td>", static_cast<int>(i) == row.taken ? " class=\"taken\"" : "",
          prediction.seconds ? "" : fmt::format(" title=\"{}\"", text::xml_escaped(prediction.reason)),
          prediction.seconds ? duration_text(*prediction.seconds) : "-");
    }
    const auto rate = row.taken < 0 ? std::nullopt : rate_of(study, row, at(row.taken));
    const auto part = row.taken < 0 ? std::nullopt : part_of_bound(study, row, at(row.taken));
    html += fmt::format("<td>{}</td><td>{}</td></tr>\n", rate ? fmt::format("{:.4g}", *rate / 8e9) : "-",
                        part ? fmt::format("{:.1f} %", 100 * *part) : "-");
  }
  html += "</table></div>\n";
  for (const std::string& why : why_not(study)) html += fmt::format("<p>{}</p>\n", text::xml_escaped(why));
  return html;
}

}  // namespace

std::string plan_page(const cluster::Cluster& network, const NetworkSource& source, const Study& study) {
  text::Page page{
      .title = fmt::format("{} on {}", name(study.op), source.path), .style = plan_css, .script = plan_js};
  page.body = facts(network, source, study) + network_section(network, study, page.data);
  if (!study.rows.empty())
    page.body +=
        "<h2>Rate against size</h2>\n" + rate_picture(study) + rate_legend(study) + table_section(study);
  return to_html(page);
}

}  // namespace talweg::study
