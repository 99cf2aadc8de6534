#include "study/predict_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "base/at.h"
#include "study/pages/embedded.h"
#include "study/plan_report.h"
#include "study/predict_report.h"
#include "text/escape.h"
#include "text/page.h"

namespace talweg::study {
namespace {

using Json = nlohmann::json;
using train::TaskKind;

// That browsers still draw quickly: some 30 bytes each. Of strategies for which there is no more room only
// numbers are shown.
constexpr std::size_t kMostSpans = 150'000;

// What the script calls a kind of task and paints it as, and what its number is of.
struct KindOnPage {
  TaskKind kind;
  const char* name;
  const char* style;
  const char* of;  // "layer", "bucket" or ""
};
constexpr KindOnPage kKindsOnPage[] = {
    {TaskKind::input, "reading a batch", "k-input", ""},
    {TaskKind::copy, "copying it to the device", "k-copy", ""},
    {TaskKind::forward, "forward", "k-forward", "layer"},
    {TaskKind::backward, "backward", "k-backward", "layer"},
    {TaskKind::gap, "waiting for the host", "k-gap", "layer"},
    {TaskKind::update, "update", "k-update", "layer"},
    {TaskKind::overhead, "rest of the step", "k-rest", ""},
    {TaskKind::all_reduce, "all-reduce", "k-send", "bucket"},
    {TaskKind::reduce_scatter, "reduce-scatter", "k-scatter", "bucket"},
    {TaskKind::all_gather, "all-gather", "k-gather", "bucket"},
    {TaskKind::collective, "collective without gradients", "k-gather", "bucket"},
    {TaskKind::peer_wait, "waiting for late ranks", "k-wait", "bucket"},
};

int kind_on_page(TaskKind kind) {
  for (int i = 0; i < static_cast<int>(std::size(kKindsOnPage)); ++i)
    if (kKindsOnPage[i].kind == kind) return i;
  return 0;
}

std::int64_t whole_ns(double seconds) {
  return std::llround(seconds * 1e9);
}

// Lanes from above: what feeds the device, the device, what it sends.
constexpr std::array<const char*, 4> kLanesOnPage{"input", "copy", "device", "network"};

int lane_on_page(const std::string& resource) {
  const auto found = std::ranges::find(kLanesOnPage, resource);
  return found == kLanesOnPage.end() ? 3 : static_cast<int>(found - kLanesOnPage.begin());
}

// The picture of a strategy: its last step begins at 0, the one before it lies below.
class StrategyPicture {
 public:
  StrategyPicture(const StepQuestion& question, const StepRow& row)
      : row_(row), bucket_of_(question.job.layers.size(), -1) {
    for (std::size_t k = 0; k < row.buckets.size(); ++k)
      for (const int layer : row.buckets[k].layers) bucket_of_[at(layer)] = static_cast<int>(k);
    double begin = 0;
    for (const train::Span& span : row.prediction.timeline)
      if (span.step == 0 && span.resource == "device") begin = std::max(begin, span.end);
    origin_ = begin;
  }

  Json data() const {
    Json spans = Json::array(), path = Json::array();
    double begin = 0, end = 0, device_end = 0;
    std::vector<train::Span> timeline = row_.prediction.timeline;
    std::ranges::stable_sort(timeline, {}, &train::Span::start);
    for (const train::Span& span : timeline) {
      if (span.end <= span.start) continue;
      if (span.critical) path.push_back(spans.size());
      spans.push_back({lane_on_page(span.resource), kind_on_page(span.kind), whole_ns(span.start - origin_),
                       whole_ns(span.end - origin_), item_of(span)});
      begin = std::min(begin, span.start - origin_);
      end = std::max(end, span.end - origin_);
      if (span.resource == "device") device_end = std::max(device_end, span.end - origin_);
    }
    Json ready = Json::array();
    for (const double seconds : ready_times()) ready.push_back(whole_ns(seconds));
    return {{"begin", whole_ns(begin)},  {"end", whole_ns(end)},    {"device_end", whole_ns(device_end)},
            {"spans", std::move(spans)}, {"path", std::move(path)}, {"bucket_of", bucket_of_},
            {"ready", std::move(ready)}};
  }

 private:
  int item_of(const train::Span& span) const {
    if (span.first < 0) return -1;
    return train::is_transfer(span.kind) || span.kind == TaskKind::peer_wait ? bucket_of_[at(span.first)]
                                                                             : span.first;
  }

  // By layer, from the beginning of a step: when its gradient is there.
  std::vector<double> ready_times() const {
    std::vector<double> ready(bucket_of_.size());
    for (const train::Span& span : row_.prediction.timeline)
      if (span.step == 1 && span.kind == TaskKind::backward && span.first >= 0)
        ready[at(span.first)] = std::max(0.0, span.end - origin_);
    return ready;
  }

  const StepRow& row_;
  std::vector<int> bucket_of_;
  double origin_ = 0;
};

Json buckets_data(const StepRow& row) {
  Json buckets = Json::array();
  for (const Bucket& bucket : row.buckets)
    buckets.push_back({{"layers", bucket.layers},
                       {"bytes", bucket.bytes},
                       {"sent", whole_ns(bucket.sent)},
                       {"arrived", whole_ns(bucket.arrived)}});
  return buckets;
}

// What a bar is made of: forward, backward, transfers that nothing hides, all else.
Json bar_parts(const train::StepParts& parts) {
  const double rest = parts.total() - parts.forward - parts.backward - parts.exposed;
  return {whole_ns(parts.forward), whole_ns(parts.backward), whole_ns(parts.exposed),
          whole_ns(std::max(0.0, rest))};
}

// Of those that suit: the numbers of all, and the pictures of as many as there is room for, the best and
// PyTorch's own first. `shown`: by number on the page, the row of the study.
Json strategies_data(const StepQuestion& question, const StepStudy& study,
                     const std::vector<std::size_t>& shown) {
  std::vector<std::size_t> order(shown.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](std::size_t i) {
    return shown[i] == study.best ? 0 : study.baseline && shown[i] == *study.baseline ? 1 : 2;
  });
  Json list = Json::array();
  for (const std::size_t i : shown) {
    const StepRow& row = study.rows[i];
    list.push_back({{"name", row.strategy.name},
                    {"what", row.strategy.description},
                    {"step", whole_ns(row.prediction.step)},
                    {"parts", bar_parts(row.prediction.parts)},
                    {"said", "Critical path: " + critical_path_text(question.job, row.prediction)},
                    {"limit", row.prediction.bottleneck},
                    {"buckets", buckets_data(row)},
                    {"spans", nullptr}});
  }
  std::size_t spans = 0;
  for (const std::size_t i : order) {
    const StepRow& row = study.rows[shown[i]];
    spans += row.prediction.timeline.size();
    if (spans > kMostSpans && i != order.front()) continue;
    list[i].update(StrategyPicture(question, row).data());
  }
  return list;
}

Json layers_data(const train::Job& job) {
  Json layers = Json::array();
  for (const train::Layer& layer : job.layers)
    layers.push_back({layer.name, layer.forward.value, layer.forward_gap.value, layer.backward.value,
                      layer.backward_gap.value, layer.gradient.value});
  return layers;
}

Json curves_data(const std::optional<StepCurves>& curves, const std::vector<std::size_t>& shown) {
  if (!curves) return {};
  Json times = Json::array(), floor = Json::array();
  for (const std::size_t i : shown) {
    times.push_back(Json::array());
    for (const double step : curves->steps[i]) times.back().push_back(whole_ns(step));
  }
  for (const double step : curves->alone) floor.push_back(whole_ns(step));
  return {{"x", curves->x}, {"times", std::move(times)}, {"floor", std::move(floor)}};
}

Json cards_data(const StepQuestion& question, const StepStudy& study) {
  Json cards = Json::array();
  const auto card = [&](const std::string& name, const std::string& value, const std::string& note) {
    cards.push_back({{"name", name}, {"value", value}, {"note", note}});
  };
  const StepRow& best = study.best_row();
  const train::Prediction& its = best.prediction;
  const int ranks = question.ranks.back();
  card("least step", duration_text(its.step), fmt::format("{}, on {} ranks", best.strategy.name, ranks));
  card("exposed communication", duration_text(its.parts.exposed),
       fmt::format("{:.0f} % of the step; the network is busy for {}",
                   its.step > 0 ? 100 * its.parts.exposed / its.step : 0, duration_text(its.transfers)));
  if (study.plan && study.baseline && study.plan != study.baseline) {
    const double before = study.rows[*study.baseline].prediction.step;
    const StepRow& plan = study.rows[*study.plan];
    card("plan for PyTorch", fmt::format("{:.2f} x", times_as_quick(before, plan.prediction.step)),
         fmt::format("{}, {} buckets, over its own: {}", plan.strategy.name, plan.buckets.size(),
                     duration_text(before)));
  }
  const double speed_up = speed_up_of(question, study, best);
  card("speed-up", fmt::format("{:.3g} of {}", speed_up, ranks),
       fmt::format("{:.0f} % of linear; one rank: {}", 100 * speed_up / ranks, duration_text(study.alone)));
  card("start-ups", fmt::format("{:.0f} %", its.transfers > 0 ? 100 * its.startups / its.transfers : 0),
       fmt::format("of the time on the network, in {} calls a step", its.calls));
  if (study.measured) {
    const std::string note = study.replayed ? fmt::format("on {} ranks; played back: {} ({:+.1f} %)",
                                                          question.job.ranks, duration_text(*study.replayed),
                                                          100 * (*study.replayed / *study.measured - 1))
                                            : fmt::format("on {} ranks", question.job.ranks);
    card("measured", duration_text(*study.measured), note);
  }
  return cards;
}

std::string facts_on_page(const StepQuestion& question, const StepStudy& study) {
  std::string html = "<dl>\n";
  const auto fact = [&](const char* what, const std::string& text) {
    html += fmt::format("<dt>{}</dt><dd>{}</dd>\n", what, text::xml_escaped(text));
  };
  fact("job", job_line(question));
  fact("network", network_line(question));
  for (const auto& [what, line] :
       {std::pair{"gaps", gaps_line(question)}, {"buckets", buckets_line(question)}})
    if (!line.empty()) fact(what, line);
  fact("bottleneck", study.best_row().strategy.name + ": " + study.best_row().prediction.bottleneck);
  fact("bandwidth", bandwidth_line(study));
  fact("plan", plan_line(study));
  for (const std::string& note : question.notes) fact("note", note);
  return html + "</dl>\n";
}

std::string strategies_on_page(const StepQuestion& question, const StepStudy& study,
                               const std::vector<std::size_t>& shown) {
  std::vector<double> steps;
  for (const std::size_t i : shown) steps.push_back(study.rows[i].prediction.step);
  const text::Unit unit = text::unit_for(text::Quantity::seconds, std::move(steps));
  std::string html = fmt::format(
      "<div class=\"scroll\"><table id=\"strategies\">\n<tr><th class=\"words\">strategy</th><th>step, "
      "{0}</th>"
      "<th>exposed, {0}</th><th>speed-up</th><th>network busy, {0}</th><th>calls</th><th>buckets</th>",
      unit.name);
  const bool off = std::ranges::any_of(study.rows, [](const StepRow& row) { return row.off_by.has_value(); });
  if (off) html += "<th>against measured</th>";
  html += "<th class=\"words\">what it does</th></tr>\n";
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const StepRow& row = study.rows[shown[i]];
    const train::Prediction& its = row.prediction;
    html += fmt::format(
        "<tr data-strategy=\"{}\"{}><th "
        "class=\"words\">{}</th><td>{}</td><td>{}</td><td>{:.3g}</td><td>{}</td><td>{}</td>"
        "<td>{}</td>",
        i, shown[i] == study.best ? " class=\"taken\"" : "", text::xml_escaped(row.strategy.name),
        time_in(unit, its.step), time_in(unit, its.parts.exposed), speed_up_of(question, study, row),
        time_in(unit, its.transfers), its.calls, row.buckets.size());
    if (off) html += row.off_by ? fmt::format("<td>{:+.1f} %</td>", 100 * *row.off_by) : "<td>-</td>";
    html += fmt::format("<td class=\"words\">{}</td></tr>\n", text::xml_escaped(row.strategy.description));
  }
  html += "</table></div>\n";
  for (const StepRow& row : study.rows)
    if (!row.suits())
      html += fmt::format("<p class=\"about\">{}: {}</p>\n", text::xml_escaped(row.strategy.name),
                          text::xml_escaped(row.unsuited));
  return html;
}

std::string what_if_on_page(const StepStudy& study) {
  std::vector<double> steps;
  for (const WhatIf& change : study.what_ifs)
    if (matters(change)) steps.push_back(change.step);
  const text::Unit unit = text::unit_for(text::Quantity::seconds, std::move(steps));
  std::string html = fmt::format(
      "<div class=\"scroll\"><table id=\"what-if\">\n<tr><th class=\"words\">what "
      "if</th><th>step, {}</th><th>samples "
      "a second</th></tr>\n",
      unit.name);
  for (const WhatIf& change : study.what_ifs)
    if (matters(change))
      html += fmt::format("<tr><th class=\"words\">{}</th><td>{}</td><td>{}</td></tr>\n",
                          text::xml_escaped(change.words), time_in(unit, change.step),
                          std::isnan(change.speed_up) ? "-" : fmt::format("{:.2f} x", change.speed_up));
  return html + "</table></div>\n";
}

constexpr const char* kPredictBody = R"(<div class="cards" id="cards"></div>
{facts}<h2>Strategies side by side</h2>
<div class="chart" id="bars"></div><div id="bars-legend"></div>
{strategies}<h2>A step over time</h2>
<p class="controls"><label>strategy <select id="strategy"></select></label> <label>beside it <select id="beside"><option value="">none</option></select></label>
<span id="zoom"><button type="button" id="earlier" aria-label="earlier">&#9664;</button>
<button type="button" id="farther" aria-label="see more of it">&#8722;</button> <button type="button" id="nearer" aria-label="see less of it">+</button>
<button type="button" id="later" aria-label="later">&#9654;</button> <button type="button" id="whole">one step</button>
<button type="button" id="both">and the one before</button> <span id="zoomed"> </span></span></p>
<div class="chart" id="timeline"></div>
<div id="timeline-legend"></div>
<p id="said" aria-live="polite"> </p>
<p class="about">Drag over the lanes to look closer; choose a box to see its bucket and layers. Numbers on the network are buckets.</p>
<h2>What if</h2>
{what_if}<div class="pair"><div id="over-ranks-part"><h2>A step over ranks</h2><div class="chart" id="over-ranks"></div></div>
<div id="over-bandwidth-part"><h2>A step over bandwidth</h2><div class="chart" id="over-bandwidth"></div></div></div>
<div id="curves-legend"></div>
<h2>Layers</h2>
<p class="about" id="layers-said"> </p>
<div class="scroll"><table id="layers"></table></div>
<p><button type="button" id="more-layers"> </button></p>
<h2>As text</h2>
<div class="scroll"><pre>{text}</pre></div>
)";

}  // namespace

std::string predict_page(const StepQuestion& question, const StepStudy& study) {
  std::vector<std::size_t> shown;
  for (std::size_t i = 0; i < study.rows.size(); ++i)
    if (study.rows[i].suits()) shown.push_back(i);
  const auto number_of = [&](std::optional<std::size_t> row) {
    if (!row) return Json();
    return Json(std::ranges::find(shown, *row) - shown.begin());
  };
  Json data = {{"cards", cards_data(question, study)},
               {"layers", layers_data(question.job)},
               {"lanes", kLanesOnPage},
               {"kinds", Json::array()},
               {"strategies", strategies_data(question, study, shown)},
               {"best", number_of(study.best)},
               {"baseline", number_of(study.baseline)},
               {"ranks", question.ranks.back()},
               {"measured", 0},
               {"over_ranks", curves_data(study.over_ranks, shown)},
               {"over_bandwidth", curves_data(study.over_bandwidth, shown)}};
  for (const KindOnPage& kind : kKindsOnPage)
    data["kinds"].push_back({{"name", kind.name}, {"style", kind.style}, {"of", kind.of}});
  if (study.measured && question.ranks.back() == question.job.ranks)
    data["measured"] = whole_ns(*study.measured);
  const std::string body =
      fmt::format(fmt::runtime(kPredictBody), fmt::arg("facts", facts_on_page(question, study)),
                  fmt::arg("strategies", strategies_on_page(question, study, shown)),
                  fmt::arg("what_if", what_if_on_page(study)),
                  fmt::arg("text", text::xml_escaped(to_text(question, study, true))));
  const std::string script = std::string(page_js) + std::string(predict_js);
  return text::to_html(
      {.title = fmt::format("A step of {} on {} ranks", question.job.name, question.ranks.back()),
       .style = page_css,
       .body = body,
       .data = text::page_data(std::move(data)),
       .script = script});
}

}  // namespace talweg::study
