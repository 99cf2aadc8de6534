#include "study/simulate_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "base/at.h"
#include "base/units.h"
#include "sim/report.h"
#include "study/network_picture.h"
#include "study/pages/embedded.h"
#include "study/plan_report.h"
#include "text/escape.h"
#include "text/page.h"

namespace talweg::study {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostSteps = 240;       // of time
constexpr std::size_t kLeastSteps = 24;       // fewer show nothing
constexpr std::size_t kMostTextLines = 400;   // of the table: a matrix has a line for each flow
constexpr std::size_t kMostDownLinks = 1000;  // of one change

// 0 .. 1 as one character, which pages/simulate.js reads: 51 of them, 2 % apart.
char level_character(double part) {
  constexpr const char* kCharacters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNO";
  const auto level = static_cast<int>(std::lround(std::clamp(part, 0.0, 1.0) * 50));
  return kCharacters[level == 0 && part > 0 ? 1 : level];
}

double to_three_digits(double part) {
  return std::round(part * 1000) / 1000;
}

// A sampler's samples, some of them taken together.
class Steps {
 public:
  Steps(const sim::Sampler& sampler, std::size_t most)
      : sampler_(sampler), each_(std::max<std::size_t>(1, (sampler.samples() + most - 1) / most)) {}

  std::size_t count() const { return (sampler_.samples() + each_ - 1) / each_; }
  double seconds() const { return static_cast<double>(each_) * sim::seconds(sampler_.step()); }

  double use(int link, std::size_t step) const {
    double sum = 0, n = 0;
    for (std::size_t i = step * each_; i < std::min((step + 1) * each_, sampler_.samples()); ++i, ++n)
      sum += sampler_.use(link, i);
    return sum / n;
  }
  std::int64_t queued(int link, std::size_t step) const {
    std::int64_t most = 0;
    for (std::size_t i = step * each_; i < std::min((step + 1) * each_, sampler_.samples()); ++i)
      most = std::max(most, sampler_.series(link).queued_bytes[i]);
    return most;
  }
  std::string use_text(int link) const {
    std::string text;
    for (std::size_t step = 0; step < count(); ++step) text += level_character(use(link, step));
    return text;
  }

 private:
  const sim::Sampler& sampler_;
  std::size_t each_;
};

// The links for which `weights` are greatest and not 0, in the order of the file.
std::vector<int> greatest(const std::vector<double>& weights) {
  std::vector<int> order(weights.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater<>(), [&](int link) { return weights[at(link)]; });
  while (!order.empty() && (order.size() > SimulatePage::kLinksShown || weights[at(order.back())] <= 0))
    order.pop_back();
  std::ranges::sort(order);
  return order;
}

// Links by the tiers that they lead from and to.
std::map<std::pair<int, int>, std::vector<int>> by_tiers(const cluster::Cluster& cluster,
                                                         const Layout& layout) {
  std::map<std::pair<int, int>, std::vector<int>> links;
  for (std::size_t i = 0; i < cluster.links.size(); ++i)
    links[{layout.places[at(cluster.links[i].from)].tier, layout.places[at(cluster.links[i].to)].tier}]
        .push_back(static_cast<int>(i));
  return links;
}

// [name, mean use by step, deepest queue by step] of each pair of tiers.
Json tier_curves(const cluster::Cluster& cluster, const Layout& layout, const Steps& steps) {
  Json curves = Json::array();
  for (const auto& [tiers, links] : by_tiers(cluster, layout)) {
    Json use = Json::array(), queued = Json::array();
    for (std::size_t step = 0; step < steps.count(); ++step) {
      double sum = 0;
      std::int64_t most = 0;
      for (const int link : links) {
        sum += steps.use(link, step);
        most = std::max(most, steps.queued(link, step));
      }
      use.push_back(to_three_digits(sum / static_cast<double>(links.size())));
      queued.push_back(most);
    }
    curves.push_back({fmt::format("{} \u2192 {}", tier_name(tiers.first, layout.tiers),
                                  tier_name(tiers.second, layout.tiers)),
                      std::move(use), std::move(queued)});
  }
  return curves;
}

// [name, use over time] of the links that worked most.
Json busiest_rows(const cluster::Cluster& cluster, const std::vector<double>& use, const Steps& steps) {
  Json rows = Json::array();
  for (const int link : greatest(use)) rows.push_back({sim::link_name(cluster, link), steps.use_text(link)});
  return rows;
}

// The same of the deepest queues, as parts of the deepest of all.
Json queue_rows(const cluster::Cluster& cluster, const Steps& steps) {
  std::vector<double> deepest;
  for (int link = 0; link < static_cast<int>(cluster.links.size()); ++link) {
    std::int64_t most = 0;
    for (std::size_t step = 0; step < steps.count(); ++step) most = std::max(most, steps.queued(link, step));
    deepest.push_back(static_cast<double>(most));
  }
  const double most = deepest.empty() ? 0 : *std::ranges::max_element(deepest);
  Json rows = Json::array();
  for (const int link : greatest(deepest)) {
    std::string text;
    for (std::size_t step = 0; step < steps.count(); ++step)
      text += level_character(static_cast<double>(steps.queued(link, step)) / most);
    rows.push_back({sim::link_name(cluster, link), text});
  }
  return {{"most", most}, {"rows", std::move(rows)}};
}

// [time, what, "failed" or "repaired", links] of each change.
Json changes_of(const std::vector<sim::NetworkChange>& changes, const cluster::Cluster& cluster) {
  Json list = Json::array();
  for (const sim::NetworkChange& change : changes) {
    std::vector<int> links = change.links;
    for (std::size_t i = 0; change.node >= 0 && i < cluster.links.size(); ++i)
      if (cluster.links[i].from == change.node || cluster.links[i].to == change.node)
        links.push_back(static_cast<int>(i));
    const std::string what = change.node >= 0 ? cluster.nodes[at(change.node)].name
                             : links.empty()  ? std::string()
                                              : sim::link_name(cluster, links[0]);
    if (links.size() > kMostDownLinks) links.resize(kMostDownLinks);
    list.push_back(
        {sim::seconds(sim::picoseconds(change.at)), what, change.up ? "repaired" : "failed", links});
  }
  return list;
}

Json cards_of(const PageRun& run, const sim::RunReport& report) {
  Json cards = Json::array();
  const auto card = [&](const std::string& name, const std::string& value, const std::string& note) {
    cards.push_back({{"name", name}, {"value", value}, {"note", note}});
  };
  for (const PageRun::Card& each : run.cards) card(each.name, each.value, each.note);
  const sim::NetworkSummary& n = report.network;
  if (!n.busiest_link.empty())
    card("busiest link", fmt::format("{:.1f} %", 100 * n.busiest_utilisation),
         fmt::format("{}; mean of those in use {:.1f} %", n.busiest_link, 100 * n.mean_utilisation));
  if (!n.most_queued_link.empty())
    card("longest queue", to_string(Bytes{n.most_queued_bytes}), "at " + n.most_queued_link);
  card("packets lost", std::to_string(n.dropped + n.lost),
       fmt::format("trimmed {}, sent again {}, timeouts {}", n.trimmed, report.retransmissions,
                   report.timeouts));
  return cards;
}

// The first and the last lines of a long text.
std::string abridged(const std::string& text) {
  const auto lines = static_cast<std::size_t>(std::ranges::count(text, '\n'));
  if (lines <= kMostTextLines) return text;
  std::string kept;
  std::size_t line = 0, begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    if (line < kMostTextLines / 2 || line >= lines - kMostTextLines / 2)
      kept += text.substr(begin, end - begin);
    if (line == kMostTextLines / 2)
      kept += fmt::format("... {} lines are left out here; --csv has all\n", lines - kMostTextLines);
    begin = end;
    ++line;
  }
  return kept;
}

constexpr const char* kBody =
    R"(<p class="controls" id="runs-line"><label>run <select id="run"></select></label></p>
<div class="cards" id="cards"></div>
{why_not}<h2>The network over time</h2>
<p class="controls"><button type="button" id="play">play</button>
<input type="range" id="time" min="0" value="0" aria-label="time"/> <span id="said" aria-live="polite"> </span></p>
{picture}
<p class="legend">{legend}</p>
<p id="busiest"> </p>
<div id="lanes-part"><h2>Ranks over time</h2>
<p class="about" id="lanes-said"> </p><div class="chart" id="lanes"></div>
<div id="lanes-legend"></div></div>
<div id="flows-part"><h2>Flows</h2>
<div class="pair"><div class="chart" id="completion"></div><div class="chart" id="slowdown"></div></div>
<div id="slowdown-legend"></div></div>
<div id="sizes-part"><h2>Simulated and planned times</h2>
<div class="chart" id="sizes"></div><div id="sizes-legend"></div></div>
<div id="tiers-part"><h2>Use and queues by tier</h2>
<div class="pair"><div class="chart" id="tier-use"></div><div class="chart" id="tier-queue"></div></div>
<div id="tier-legend"></div></div>
<div id="use-part"><h2>The links that worked most</h2>
<p class="about">Empty: idle. Darkest: all of the capacity.</p><div class="chart" id="use"></div></div>
<div id="queues-part"><h2>The longest queues</h2>
<p class="about" id="queues-said"> </p><div class="chart" id="queues"></div></div>
<div id="table-part"><h2>All runs</h2><div class="scroll"><table id="table"></table></div></div>
<h2>As text</h2>
<div class="scroll"><pre>{table}</pre></div>
)";

}  // namespace

void SimulatePage::add(const PageRun& run, const sim::Simulation& simulation, const sim::Sampler& sampler) {
  if (!cluster_) {
    cluster_ = simulation.network().cluster();
    layout_ = lay_out(*cluster_);
  }
  const cluster::Cluster& cluster = *cluster_;
  const sim::RunReport report = sim::report_of(simulation);
  const double all = sim::seconds(std::max<sim::Picoseconds>(1, simulation.now()));
  const Steps steps(sampler, kMostSteps);
  Json page = run.parts;
  page["title"] = run.title;
  page["cards"] = cards_of(run, report);
  page["duration"] = all;
  page["step"] = steps.seconds();
  std::vector<double> mean;
  for (std::size_t link = 0; link < cluster.links.size(); ++link)
    mean.push_back(
        to_three_digits(static_cast<double>(simulation.network().counters(static_cast<int>(link)).bytes) /
                        (cluster.links[link].capacity.bytes_per_second() * all)));
  page["tiers"] = tier_curves(cluster, layout_, steps);
  page["busiest"] = busiest_rows(cluster, mean, steps);
  page["queues"] = queue_rows(cluster, steps);
  page["ends"] = Json::array();
  for (const PageRun::Event& end : run.ends) page["ends"].push_back({sim::seconds(end.at), end.text});
  page["changes"] = changes_of(run.changes, cluster);
  if (cluster.nodes.size() <= kMostNodesToDraw) {
    page["mean"] = mean;
    const std::size_t room = (kMostCharacters - characters_) / std::max<std::size_t>(1, mean.size());
    if (room >= kLeastSteps && steps.count() > 0) {
      const Steps rough(sampler, std::min(room, kMostSteps));
      Json use = Json::array();
      for (int link = 0; link < static_cast<int>(mean.size()); ++link) use.push_back(rough.use_text(link));
      characters_ += rough.count() * mean.size();
      page["use"] = std::move(use);
      page["use_step"] = rough.seconds();
    }
  }
  runs_.push_back(std::move(page));
}

std::string SimulatePage::text(const std::string& network, const std::string& table,
                               const std::vector<std::string>& why_not) const {
  std::string picture, reasons;
  for (const std::string& why : why_not)
    reasons += fmt::format("<p class=\"about\">{}</p>\n", text::xml_escaped(why));
  if (cluster_ && cluster_->nodes.size() <= kMostNodesToDraw)
    picture = "<div class=\"scroll\">" + network_picture(*cluster_, layout_) + "</div>";
  else if (cluster_)
    picture =
        fmt::format("<p>Not drawn: {} nodes; up to {} are.</p>", cluster_->nodes.size(), kMostNodesToDraw);
  const std::string body =
      fmt::format(fmt::runtime(kBody), fmt::arg("picture", picture), fmt::arg("why_not", reasons),
                  fmt::arg("legend", use_legend("part of its capacity")),
                  fmt::arg("table", text::xml_escaped(abridged(table))));
  Json data;
  data["runs"] = runs_;
  const std::string script = std::string(page_js) + std::string(simulate_js);
  return text::to_html({.title = "Simulated: " + network,
                        .style = page_css,
                        .body = body,
                        .data = text::page_data(std::move(data)),
                        .script = script});
}

}  // namespace talweg::study
