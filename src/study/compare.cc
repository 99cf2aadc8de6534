#include "study/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "base/fail.h"
#include "base/printable.h"

namespace talweg::study {
namespace {

using text::Quantity;

constexpr std::size_t kMostLines = 100;  // of a table
constexpr std::size_t kMostOnly = 3;     // measures of one file alone that are named
constexpr double kRounding = 1e-9;       // 1.05 is not above 1 by more than 5 %

// What a measure is of, its planner where that tells one from another, and which of several alike it is.
using MeasureKey = std::tuple<std::string, std::string, std::string, std::string, int>;

std::tuple<std::string, std::string, std::string> subject_of(const Measure& measure) {
  return {measure.what, measure.of, measure.where};
}

// Whether some subject has several planners.
bool has_several_planners(const std::vector<Measure>& measures) {
  std::map<std::tuple<std::string, std::string, std::string>, std::string> planners;
  return std::ranges::any_of(measures, [&](const Measure& measure) {
    return planners.try_emplace(subject_of(measure), measure.planner).first->second != measure.planner;
  });
}

std::vector<MeasureKey> keys_of(const std::vector<Measure>& measures, bool by_planner) {
  std::map<MeasureKey, int> seen;
  std::vector<MeasureKey> keys;
  for (const Measure& measure : measures) {
    const auto [what, of, where] = subject_of(measure);
    MeasureKey key{what, of, where, by_planner ? measure.planner : "", 0};
    std::get<int>(key) = seen[key]++;
    keys.push_back(std::move(key));
  }
  return keys;
}

// How far apart two values are: the larger as a multiple of the smaller one; 1: they are the same.
double apart(const Compared& pair) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (pair.a.quantity == Quantity::text) return pair.a.word == pair.b.word ? 1 : kInfinity;
  const bool both_told = !pair.a.planner.empty() && !pair.b.planner.empty();
  if (both_told && pair.a.planner != pair.b.planner) return kInfinity;
  if (!pair.a.value || !pair.b.value) return pair.a.value || pair.b.value ? kInfinity : 1;
  const double a = *pair.a.value, b = *pair.b.value;
  if (a == b) return 1;
  if (a == 0 || b == 0 || (a < 0) != (b < 0)) return kInfinity;
  return std::max(a / b, b / a);
}

Compared compared(const Measure& a, const Measure& b, double threshold) {
  Compared pair{a, b};
  if (a.quantity != Quantity::text && a.value && b.value)
    pair.ratio = *a.value == *b.value ? 1 : *b.value / *a.value;
  pair.differs = apart(pair) > 1 + threshold + kRounding;
  return pair;
}

const char* unit_name(Quantity quantity) {
  return quantity == Quantity::seconds ? "s" : quantity == Quantity::bits_per_second ? "bit/s" : "";
}

std::string planners_text(const Compared& pair) {
  if (pair.a.planner == pair.b.planner) return pair.a.planner;
  const auto named = [](const std::string& planner) { return planner.empty() ? "-" : planner; };
  return fmt::format("{} -> {}", named(pair.a.planner), named(pair.b.planner));
}

// The lines that are shown, in their order.
std::vector<const Compared*> shown_lines(std::vector<const Compared*> lines, bool wide) {
  if (wide || lines.size() <= kMostLines) return lines;
  std::vector<const Compared*> most = lines;
  std::ranges::stable_sort(most, std::ranges::greater(), [](const Compared* pair) { return apart(*pair); });
  most.resize(kMostLines);
  std::ranges::sort(most);
  std::erase_if(lines, [&](const Compared* pair) { return !std::ranges::binary_search(most, pair); });
  return lines;
}

std::string measures_table(const std::vector<const Compared*>& all, bool wide) {
  const std::vector<const Compared*> lines = shown_lines(all, wide);
  const Measure& first = all.front()->a;
  const bool words = first.quantity == Quantity::text;
  std::vector<double> values;
  for (const Compared* pair : lines)
    for (const Measure* measure : {&pair->a, &pair->b})
      if (measure->value) values.push_back(*measure->value);
  text::TableColumn value{.title = "A", .of = first.quantity, .digits = 4};
  if (!words) value.unit = text::unit_for(first.quantity, values);
  std::vector<text::TableColumn> columns{{first.what}};
  const bool planners = std::ranges::any_of(
      lines, [](const Compared* pair) { return !pair->a.planner.empty() || !pair->b.planner.empty(); });
  if (planners) columns.push_back({"planner"});
  columns.push_back(value);
  value.title = "B";
  columns.push_back(value);
  columns.push_back({.title = words ? "" : "B/A", .of = Quantity::number, .digits = 4});
  text::Table table(std::move(columns));
  for (const Compared* pair : lines) {
    const std::string mark = pair->differs ? "*" : "";
    std::vector<text::Cell> cells{pair->a.where};
    if (planners) cells.emplace_back(planners_text(*pair));
    if (words)
      cells.insert(cells.end(), {pair->a.word, pair->b.word});
    else
      cells.insert(cells.end(), {pair->a.value, pair->b.value});
    if (pair->ratio)
      cells.emplace_back(*pair->ratio, mark);
    else
      cells.emplace_back(mark);
    table.add(std::move(cells));
  }
  std::string text = table.text(wide);
  if (lines.size() < all.size())
    text += fmt::format("these differ most; --wide shows {} more\n", all.size() - lines.size());
  return text;
}

std::string only_text(const char* whose, const std::vector<Measure>& only) {
  if (only.empty()) return "";
  std::string text = fmt::format("only in {}: ", whose);
  const std::size_t named = std::min(only.size(), kMostOnly);
  for (std::size_t i = 0; i < named; ++i) text += (i == 0 ? "" : "; ") + printable(name_of(only[i]));
  if (named < only.size()) text += fmt::format(" and {} more", only.size() - named);
  return text + "\n";
}

// "a.json (talweg plan of all_reduce of 4 ranks, net.yaml) has time of 4 KiB, ring"
std::string example_of(const ResultFile& file, const std::vector<Measure>& measures) {
  return fmt::format("{} ({} of {}) has {}", file.path, file.format, file.about,
                     measures.empty() ? "nothing" : name_of(measures.front()));
}

nlohmann::json measure_json(const Measure& measure) {
  nlohmann::json document = {{"what", measure.what}, {"of", measure.of}, {"where", measure.where}};
  document["planner"] = measure.planner;
  document["unit"] = unit_name(measure.quantity);
  return document;
}

nlohmann::json value_json(const Measure& measure) {
  if (measure.quantity == Quantity::text) return measure.word;
  return measure.value ? nlohmann::json(*measure.value) : nlohmann::json();
}

nlohmann::json only_json(const std::vector<Measure>& only) {
  nlohmann::json list = nlohmann::json::array();
  for (const Measure& measure : only) {
    list.push_back(measure_json(measure));
    list.back()["value"] = value_json(measure);
  }
  return list;
}

}  // namespace

std::size_t Comparison::differing() const {
  return static_cast<std::size_t>(std::ranges::count_if(pairs, &Compared::differs));
}

bool Comparison::equal() const {
  return differing() == 0 && (a.format != b.format || (only_a.empty() && only_b.empty()));
}

Comparison compare(ResultFile a, ResultFile b, double threshold) {
  const std::vector<Measure> left = std::exchange(a.measures, {}), right = std::exchange(b.measures, {});
  const bool by_planner = has_several_planners(left) || has_several_planners(right);
  Comparison result{std::move(a), std::move(b), threshold, {}, {}, {}};
  std::map<MeasureKey, const Measure*> unmatched;
  const std::vector<MeasureKey> right_keys = keys_of(right, by_planner);
  for (std::size_t i = 0; i < right.size(); ++i) unmatched[right_keys[i]] = &right[i];
  const std::vector<MeasureKey> left_keys = keys_of(left, by_planner);
  for (std::size_t i = 0; i < left.size(); ++i) {
    const auto found = unmatched.find(left_keys[i]);
    if (found == unmatched.end() || found->second->quantity != left[i].quantity) {
      result.only_a.push_back(left[i]);
      continue;
    }
    result.pairs.push_back(compared(left[i], *found->second, threshold));
    unmatched.erase(found);
  }
  for (std::size_t i = 0; i < right.size(); ++i)
    if (unmatched.contains(right_keys[i])) result.only_b.push_back(right[i]);
  const bool predictions = !result.a.job.empty() && !result.b.job.empty();
  if (result.pairs.empty() && predictions && result.a.job != result.b.job)
    refuse("nothing in common to compare: {} and {} are predictions of different jobs, {} and {}",
           result.a.path, result.b.path, result.a.job, result.b.job);
  if (result.pairs.empty())
    refuse("nothing in common to compare: {}, and {}", example_of(result.a, left),
           example_of(result.b, right));
  return result;
}

std::string to_text(const Comparison& comparison, bool wide) {
  std::string text;
  for (const auto& [letter, file] : {std::pair{"A", &comparison.a}, std::pair{"B", &comparison.b}})
    text += fmt::format("{}  {}: {} of {}\n", letter, printable(file->path), printable(file->format),
                        printable(file->about));
  if (comparison.a.job_size != comparison.b.job_size && !comparison.a.job.empty() &&
      !comparison.b.job.empty())
    text += fmt::format("these are different jobs of one name: A has {}, B {}\n", comparison.a.job_size,
                        comparison.b.job_size);
  std::vector<std::vector<const Compared*>> tables;  // by what is measured, in the order of A
  for (const Compared& pair : comparison.pairs) {
    const auto table =
        std::ranges::find_if(tables, [&](const auto& lines) { return lines.front()->a.what == pair.a.what; });
    if (table == tables.end())
      tables.push_back({&pair});
    else
      table->push_back(&pair);
  }
  for (const auto& lines : tables) text += "\n" + measures_table(lines, wide);
  text += "\n" + only_text("A", comparison.only_a) + only_text("B", comparison.only_b);
  return text + fmt::format("{} of {} differ by more than {:.6g} %, marked *\n", comparison.differing(),
                            comparison.pairs.size(), 100 * comparison.threshold);
}

nlohmann::json to_json(const Comparison& comparison) {
  nlohmann::json document = {{"format", "talweg compare"}, {"format_version", 1}};
  for (const auto& [key, file] : {std::pair{"a", &comparison.a}, std::pair{"b", &comparison.b}})
    document[key] = {{"file", file->path}, {"format", file->format}, {"about", file->about}};
  document["threshold"] = comparison.threshold;
  document["equal"] = comparison.equal();
  document["differing"] = comparison.differing();
  document["measures"] = nlohmann::json::array();
  for (const Compared& pair : comparison.pairs) {
    nlohmann::json line = measure_json(pair.a);
    line["planner_b"] = pair.b.planner;
    line["a"] = value_json(pair.a);
    line["b"] = value_json(pair.b);
    const bool finite = pair.ratio && std::isfinite(*pair.ratio);
    line["ratio"] = finite ? nlohmann::json(*pair.ratio) : nlohmann::json();
    line["differs"] = pair.differs;
    document["measures"].push_back(std::move(line));
  }
  document["only_in_a"] = only_json(comparison.only_a);
  document["only_in_b"] = only_json(comparison.only_b);
  return document;
}

}  // namespace talweg::study
