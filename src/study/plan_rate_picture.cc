#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "study/plan_pictures.h"
#include "study/plan_report.h"
#include "text/escape.h"

namespace talweg::study {
namespace {

constexpr double kWidth = 760, kHeight = 380;
constexpr double kLeft = 64, kRight = 20, kTop = 16, kBottom = 48;
constexpr std::size_t kMostSizeLabels = 12;

// 1, 2 or 5 times a power of ten: about five of them up to `most`.
double tick_step(double most) {
  const double rough = most / 5, power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (rough <= factor * power) return factor * power;
  return 10 * power;
}

class Chart {
 public:
  explicit Chart(const Study& study) : study_(study) {
    for (const StudyRow& row : study.rows)
      for (std::size_t i = 0; i < study.planners.size(); ++i)
        most_ = std::max(most_, rate_of(study, row, i).value_or(0));
    if (const auto rate = bound()) most_ = std::max(most_, *rate);
    most_ *= 1.06;
  }

  bool empty() const { return most_ <= 0 || !std::isfinite(most_); }

  std::string text() const {
    std::string svg = fmt::format(
        "<svg id=\"rates\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" "
        "style=\"max-width:{}px\" role=\"img\" "
        "aria-label=\"rate against size\">\n",
        kWidth, kHeight, kWidth);
    svg += axes();
    if (const auto rate = bound())
      svg += fmt::format(
          "<line class=\"bound-line\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"><title>bound: {:.4g} "
          "GB/s</title></line>\n",
          kLeft, kWidth - kRight, y(*rate), y(*rate), *rate / 8e9);
    for (std::size_t i = 0; i < study_.planners.size(); ++i) svg += line(i);
    for (std::size_t i = 0; i < study_.planners.size(); ++i) svg += points(i);
    return svg + "</svg>\n";
  }

 private:
  std::optional<double> bound() const {
    if (!study_.bound || study_.bound->rate.denominator == 0) return {};
    return study_.bound->rate.value();
  }

  double x(std::int64_t bytes) const {
    const double first = std::log2(static_cast<double>(study_.rows.front().bytes));
    const double last = std::log2(static_cast<double>(study_.rows.back().bytes));
    const double part = last > first ? (std::log2(static_cast<double>(bytes)) - first) / (last - first) : 0.5;
    return kLeft + 14 + part * (kWidth - kLeft - kRight - 28);
  }
  double y(double rate) const { return kHeight - kBottom - rate / most_ * (kHeight - kTop - kBottom); }

  std::string axes() const {
    std::string svg = "<g class=\"axes\">\n";
    const double step = tick_step(most_ / 8e9);
    for (int i = 0; i * step <= most_ / 8e9; ++i) {
      const double level = y(i * step * 8e9);
      svg += fmt::format("<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>", kLeft, kWidth - kRight,
                         level, level);
      svg += fmt::format("<text x=\"{}\" y=\"{:.1f}\" dy=\".35em\" text-anchor=\"end\">{:.4g}</text>\n",
                         kLeft - 8, level, i * step);
    }
    const std::size_t every = (study_.rows.size() + kMostSizeLabels - 1) / kMostSizeLabels;
    for (std::size_t i = 0; i < study_.rows.size(); i += every)
      svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                         x(study_.rows[i].bytes), kHeight - kBottom + 18, size_text(study_, study_.rows[i]));
    svg += fmt::format(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">size of the vector (logarithmic)</text>\n",
        (kLeft + kWidth - kRight) / 2, kHeight - 8);
    svg += fmt::format(
        "<text transform=\"translate(14 {}) rotate(-90)\" text-anchor=\"middle\">algbw, GB/s</text>\n",
        (kTop + kHeight - kBottom) / 2);
    return svg + "</g>\n";
  }

  std::string line(std::size_t planner) const {
    std::string svg;
    bool open = false;
    for (const StudyRow& row : study_.rows) {
      const auto rate = rate_of(study_, row, planner);
      if (rate) svg += fmt::format("{}{:.1f} {:.1f}", open ? "L" : "M", x(row.bytes), y(*rate));
      open = rate.has_value();
    }
    return svg.empty() ? "" : fmt::format("<path class=\"series c{}\" d=\"{}\"/>\n", planner % 12, svg);
  }

  std::string points(std::size_t planner) const {
    std::string svg;
    for (const StudyRow& row : study_.rows) {
      const auto rate = rate_of(study_, row, planner);
      if (!rate) continue;
      const bool taken = static_cast<int>(planner) == row.taken;
      const auto part = part_of_bound(study_, row, planner);
      svg += fmt::format(
          "<circle class=\"point c{} {}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"><title>{}, {}: {}, {:.4g} "
          "GB/s{}{}"
          "</title></circle>\n",
          planner % 12, taken ? "taken" : "", x(row.bytes), y(*rate), taken ? 5 : 3,
          text::xml_escaped(study_.planners[planner]), size_text(study_, row),
          duration_text(*row.predictions[planner].seconds), *rate / 8e9,
          part ? fmt::format(", {:.1f} % of the bound", 100 * *part) : "", taken ? ", taken" : "");
    }
    return svg;
  }

  const Study& study_;
  double most_ = 0;
};

}  // namespace

std::string rate_picture(const Study& study) {
  if (study.op == Collective::barrier) return "<p>no rates: a barrier moves no bytes</p>\n";
  const Chart chart(study);
  return chart.empty() ? "<p>no rates: nothing was predicted</p>\n" : chart.text();
}

std::string rate_legend(const Study& study) {
  const auto entry = [](const std::string& shape, const std::string& label) {
    return fmt::format("<span class=\"entry\"><svg width=\"26\" height=\"10\">{}</svg> {}</span>\n", shape,
                       text::xml_escaped(label));
  };
  std::string html = "<p class=\"legend\">";
  for (std::size_t i = 0; i < study.planners.size(); ++i)
    html += entry(fmt::format("<path class=\"series c{}\" d=\"M1 5L25 5\"/>", i % 12), study.planners[i]);
  if (study.bound)
    html += entry("<line class=\"bound-line\" x1=\"1\" x2=\"25\" y1=\"5\" y2=\"5\"/>", "bound");
  html += entry("<circle class=\"point taken c0\" cx=\"13\" cy=\"5\" r=\"4.5\"/>", taken_text(study));
  return html + "</p>\n";
}

}  // namespace talweg::study
