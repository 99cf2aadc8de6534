// PrometheusPage: counters as Prometheus' text format has them, for its textfile collector.
//
//   page.family("talweg_jobs", "gauge", "Jobs that are open.");
//   page.sample("talweg_jobs", prometheus_label("switch", name), 3);    // labels joined with commas, or ""
#pragma once

#include <fmt/format.h>

#include <iterator>
#include <string>

#include "text/escape.h"

namespace talweg::text {

inline std::string prometheus_label(const char* name, const std::string& value) {
  return fmt::format("{}=\"{}\"", name, backslashed(value));
}

class PrometheusPage {
 public:
  void family(const char* name, const char* type, const char* help) {
    fmt::format_to(std::back_inserter(text_), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  template <class Value>
  void sample(const std::string& name, const std::string& labels, Value value) {
    if (labels.empty()) {
      fmt::format_to(std::back_inserter(text_), "{} {}\n", name, value);
    } else {
      fmt::format_to(std::back_inserter(text_), "{}{{{}}} {}\n", name, labels, value);
    }
  }
  std::string text() const { return fmt::to_string(text_); }

 private:
  fmt::memory_buffer text_;
};

}  // namespace talweg::text
