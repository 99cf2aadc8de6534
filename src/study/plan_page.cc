#include "study/plan_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/at.h"
#include "base/units.h"
#include "cluster/routing.h"
#include "forest/verify.h"
#include "forest/walk.h"
#include "study/by_switch.h"
#include "study/network_picture.h"
#include "study/pages/embedded.h"
#include "study/why_not.h"
#include "text/escape.h"
#include "text/page.h"

namespace talweg::study {
namespace {

using Json = nlohmann::json;

// A page that browsers still open quickly: some 20 bytes an edge.
constexpr std::size_t kMostEdges = 400'000;
constexpr std::size_t kMostTrees = 256;  // of one plan: nobody looks at more

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

// The network, and the plans for one size: what the script paints on the picture.
class NetworkData {
 public:
  NetworkData(const cluster::Cluster& network, const Layout& layout) : network_(network) {
    Json nodes = Json::array();
    for (std::size_t i = 0; i < network.nodes.size(); ++i)
      nodes.push_back({network.nodes[i].name, rounded(layout.places[i].x), rounded(layout.places[i].y)});
    document_ = {{"nodes", std::move(nodes)}, {"round", layout.round}, {"groups", Json::array()}};
    for (const auto& group : network.groups)
      document_["groups"].push_back(fmt::format("{} (shared): {}", group.name, to_string(group.capacity)));
  }

  // The plans of the last row, the one that is taken first; `left_out` names those that would make the page
  // too large.
  void add_plans(const Study& study, std::vector<std::string>& left_out) {
    const StudyRow& row = study.rows.back();
    const forest::Request request = request_of(study.op, study.root, study.ranks, row.bytes);
    routes_.emplace(network_);
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
      const int leader = routes_->leader(link);
      if (routes_->followers(link) > 1) document_["alike"][std::to_string(leader)].push_back(link);
    }
    document_["plans"] = std::move(plans_);
  }

  Json take() { return std::move(document_); }

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
    plans_.push_back(std::move(plan));
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
    if (entry.second) routes_->for_each_share(from, to, [&](int link, double) { links.push_back(link); });
  }

  const cluster::Cluster& network_;
  std::optional<cluster::Routes> routes_;  // once there are plans
  // All links that carry a part; of those that are always loaded alike, the one that leads them.
  std::map<std::pair<int, int>, std::vector<int>> used_routes_;
  std::size_t edges_ = 0;
  Json plans_ = Json::array();
  Json document_;
};

// What the script draws the curves from: by planner and size, null where there is nothing.
Json curves(const Study& study) {
  Json document = {{"planners", study.planners}, {"sizes", Json::array()}, {"bound_times", Json::array()}};
  document["taken"] = Json::array();
  document["times"] = document["rates"] = Json::array();
  for (const StudyRow& row : study.rows) {
    document["sizes"].push_back(row.bytes);
    document["taken"].push_back(row.taken);
    Json bound;
    for (std::size_t i = 0; i < row.predictions.size(); ++i)
      if (const auto part = part_of_bound(study, row, i)) bound = *part * *row.predictions[i].seconds;
    document["bound_times"].push_back(bound);
  }
  for (std::size_t i = 0; i < study.planners.size(); ++i) {
    Json times = Json::array(), rates = Json::array();
    for (const StudyRow& row : study.rows) {
      const auto rate = rate_of(study, row, i);
      times.push_back(row.predictions[i].seconds ? Json(*row.predictions[i].seconds) : Json());
      rates.push_back(rate ? Json(*rate / 8e9) : Json());
    }
    document["times"].push_back(std::move(times));
    document["rates"].push_back(std::move(rates));
  }
  if (study.rows.empty() || !study.rows.back().by_switch) return document;
  Json times = Json::array(), rates = Json::array();
  for (const StudyRow& row : study.rows) {
    times.push_back(*row.by_switch->seconds);
    rates.push_back(static_cast<double>(row.bytes) / *row.by_switch->seconds / 1e9);
  }
  document["planners"].push_back(kBySwitch);
  document["times"].push_back(std::move(times));
  document["rates"].push_back(std::move(rates));
  return document;
}

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

// A name that may go over several lines, between its words.
std::string breakable(const std::string& name) {
  std::string html = text::xml_escaped(name);
  for (std::size_t i = 0; (i = html.find('_', i)) != std::string::npos; i += 6) html.insert(i + 1, "<wbr/>");
  return html;
}

// Why a planner is taken or not.
std::string choice_text(const Study& study, const StudyRow& row, std::size_t planner) {
  const Prediction& its = row.predictions[planner];
  if (!its.seconds) return its.reason;
  if (row.taken < 0) return "not known";
  if (static_cast<int>(planner) == row.taken) return fmt::format("taken: {}", taken_text(study));
  if (const std::string why = why_not_taken(study, row, planner); !why.empty())
    return "quicker, and not taken: " + why;
  const Prediction& best = row.predictions[at(row.taken)];
  const std::string& name = study.planners[at(row.taken)];
  const double times = *its.seconds / *best.seconds;
  if (times >= 1.0005)
    return fmt::format("takes {:.{}f} times as long as {}", times, times < 1.02 ? 3 : 2, name);
  return fmt::format("takes no longer than {}, with {} flows to its {}", name, its.flows, best.flows);
}

// In which times of these rows stand under each other.
text::Unit unit_of_times(std::span<const StudyRow> rows) {
  std::vector<double> times;
  for (const StudyRow& row : rows)
    for (const Prediction& prediction : row.predictions)
      if (prediction.seconds) times.push_back(*prediction.seconds);
  for (const StudyRow& row : rows)
    if (row.by_switch) times.push_back(*row.by_switch->seconds);
  return text::unit_for(text::Quantity::seconds, std::move(times));
}

std::string planners_section(const Study& study) {
  const StudyRow& row = study.rows.back();
  std::vector<std::size_t> order(study.planners.size());
  std::iota(order.begin(), order.end(), 0);
  const auto rank = [&](std::size_t planner) {
    const auto& seconds = row.predictions[planner].seconds;
    return static_cast<int>(planner) == row.taken ? -1.0 : seconds ? *seconds : HUGE_VAL;
  };
  std::ranges::stable_sort(order, {}, rank);
  const text::Unit unit = unit_of_times(std::span(&row, 1));
  std::string html = fmt::format(
      "<h2>The plans{}</h2>\n<div class=\"scroll\"><table id=\"plans\">\n<tr><th>planner</th><th>time, "
      "{}</th>"
      "<th>GB/s</th><th>of bound</th><th class=\"words\">what limits it</th><th "
      "class=\"words\">choice</th></tr>\n",
      study.op == Collective::barrier ? "" : " for " + size_text(study, row), unit.name);
  for (const std::size_t i : order) {
    const Prediction& its = row.predictions[i];
    const auto rate = rate_of(study, row, i);
    const auto part = part_of_bound(study, row, i);
    html += fmt::format(
        "<tr{}><th>{}</th><td>{}</td><td>{}</td><td>{}</td><td class=\"words\">{}</td><td "
        "class=\"words\">{}</td></tr>\n",
        static_cast<int>(i) == row.taken ? " class=\"taken\"" : "", breakable(study.planners[i]),
        time_in(unit, its.seconds), rate ? fmt::format("{:.4g}", *rate / 8e9) : "-",
        part ? fmt::format("{:.1f} %", 100 * *part) : "-",
        text::xml_escaped(its.seconds ? its.breakdown.reason : ""),
        text::xml_escaped(choice_text(study, row, i)));
  }
  if (row.by_switch)
    html += fmt::format(
        "<tr><th>{}</th><td>{}</td><td>{:.4g}</td><td>-</td><td class=\"words\">{}</td><td "
        "class=\"words\">{}</td></tr>\n",
        kBySwitch, time_in(unit, row.by_switch->seconds),
        static_cast<double>(row.bytes) / *row.by_switch->seconds / 1e9,
        text::xml_escaped(row.by_switch->breakdown.reason), text::xml_escaped(switch_text(*row.by_switch)));
  return html + "</table></div>\n";
}

constexpr const char* kControls = R"(<p class="controls">
<label>plan <select id="plan"></select></label>
<label>tree <select id="one-tree"></select></label>
<span id="steps"><button type="button" id="back" aria-label="a step back">&#9664;</button>
<input type="range" id="step" min="0" value="0" aria-label="step"/>
<button type="button" id="next" aria-label="a step on">&#9654;</button> <button type="button" id="play">play</button>
<span class="up-text">up (summing)</span> and <span class="down-text">down (result)</span></span></p>
<p id="said" aria-live="polite"> </p>
)";

std::string legend(const Study& study) {
  std::string html = "<p class=\"legend\">" + use_legend("part of the predicted time");
  if (study.bound)
    html +=
        "<label class=\"entry\"><input type=\"checkbox\" id=\"show-bound\" checked=\"checked\"/> <svg "
        "width=\"26\" height=\"12\"><path class=\"priced\" stroke-width=\"12\" d=\"M1 6L25 6\"/></svg> sets "
        "the "
        "bound</label>\n";
  return html + "</p>\n";
}

// Leaves what the script needs in `data`.
std::string network_section(const cluster::Cluster& network, const Study& study, Json& data) {
  std::string html = "<h2>The network, its loads and trees</h2>\n";
  if (network.nodes.size() > kMostNodesToDraw)
    return html +
           fmt::format("<p>Not drawn: {} nodes; up to {} are.</p>\n", network.nodes.size(), kMostNodesToDraw);
  const Layout layout = lay_out(network);
  NetworkData its(network, layout);
  std::vector<std::string> left_out;
  if (!study.rows.empty()) {
    its.add_plans(study, left_out);
    html += fmt::format("<p>Plans for {}. Loads count payload only, by the cluster's routes.</p>\n{}",
                        size_text(study, study.rows.back()), kControls);
    for (const std::string& planner : left_out)
      html += fmt::format("<p>{} has too many edges for this page.</p>\n", text::xml_escaped(planner));
  }
  data = its.take();
  return html + "<div class=\"scroll\">" + network_picture(network, layout, priced_links(network, study)) +
         "</div>\n" + legend(study) + "<p id=\"busiest\"> </p>\n";
}

std::string curves_section(const Study& study) {
  std::string html = "<h2>Times and rates against size</h2>\n";
  if (study.op == Collective::barrier) return html + "<p>no rates: a barrier moves no bytes</p>\n";
  html +=
      "<div class=\"pair\"><div class=\"chart\" id=\"times\"></div><div class=\"chart\" "
      "id=\"rates\"></div></div>\n<div id=\"curves-legend\"></div>\n";
  return html;
}

std::string table_section(const Study& study) {
  const text::Unit unit = unit_of_times(study.rows);  // one for all: planners are compared along rows
  std::string html = fmt::format(
      "<h2>Predicted times, in {}</h2>\n<div class=\"scroll\"><table "
      "id=\"predicted\">\n<tr><th>size</th>",
      unit.name);
  for (const std::string& planner : study.planners) html += fmt::format("<th>{}</th>", breakable(planner));
  const bool by_switch = study.rows.back().by_switch.has_value();
  if (by_switch) html += fmt::format("<th>{}</th>", kBySwitch);
  html += "<th>taken, GB/s</th><th>of bound</th></tr>\n";
  for (const StudyRow& row : study.rows) {
    html += fmt::format("<tr><th>{}</th>", size_text(study, row));
    for (std::size_t i = 0; i < row.predictions.size(); ++i) {
      const Prediction& prediction = row.predictions[i];
      html += fmt::format(
          "<td{}{}>{}</td>", static_cast<int>(i) == row.taken ? " class=\"taken\"" : "",
          prediction.seconds ? "" : fmt::format(" title=\"{}\"", text::xml_escaped(prediction.reason)),
          time_in(unit, prediction.seconds));
    }
    if (by_switch) html += fmt::format("<td>{}</td>", time_in(unit, row.by_switch->seconds));
    const auto rate = row.taken < 0 ? std::nullopt : rate_of(study, row, at(row.taken));
    const auto part = row.taken < 0 ? std::nullopt : part_of_bound(study, row, at(row.taken));
    html += fmt::format("<td>{}</td><td>{}</td></tr>\n", rate ? fmt::format("{:.4g}", *rate / 8e9) : "-",
                        part ? fmt::format("{:.1f} %", 100 * *part) : "-");
  }
  html += fmt::format("</table></div>\n<p class=\"legend\">* {}</p>\n", taken_text(study));
  for (const std::string& why : why_not(study)) html += fmt::format("<p>{}</p>\n", text::xml_escaped(why));
  return html;
}

}  // namespace

std::string plan_page(const cluster::Cluster& network, const NetworkSource& source, const Study& study) {
  Json data = Json::object();
  const std::string picture = network_section(network, study, data);
  data["taken_text"] = taken_text(study);
  data["curves"] = curves(study);
  std::string body = facts(network, source, study);
  if (!study.rows.empty()) body += planners_section(study);
  body += picture;
  if (!study.rows.empty()) body += curves_section(study) + table_section(study);
  const std::string script = std::string(page_js) + std::string(plan_js);
  return text::to_html({.title = fmt::format("{} on {}", name(study.op), source.path),
                        .style = page_css,
                        .body = body,
                        .data = text::page_data(std::move(data)),
                        .script = script});
}

}  // namespace talweg::study
