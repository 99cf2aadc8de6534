// Talweg's all-reduce through its public interface. --algorithm is GroupOptions::algorithm; "auto" leaves the
// choice to the cost model. --store may be tcp://host:port: rank 0 then serves there, under TALWEG_KEY, until
// the end of the measurement. With the algorithm "switch" nothing is measured before sums go through the
// switch. With "bounded" a twentieth of what each rank sends another one may be missing.
#include <talweg/bounded_loss.h>
#include <talweg/group.h>

#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "measure.h"

namespace {

class Talweg : public talweg::bench::Contestant {
 public:
  explicit Talweg(std::shared_ptr<talweg::Group> group) : group_(std::move(group)) {}
  void prepare(float* data, std::size_t count) override {
    data_ = data;
    count_ = count;
  }
  void all_reduce() override {
    group_->all_reduce(data_, data_, count_, talweg::DataType::f32, talweg::ReduceOp::sum);
  }

 private:
  std::shared_ptr<talweg::Group> group_;
  float* data_ = nullptr;
  std::size_t count_ = 0;
};

class Bounded : public talweg::bench::Contestant {
 public:
  static constexpr double kP = 0.05;
  static constexpr int kExactCalls = 20;  // the first ones, from which it learns how long one takes

  explicit Bounded(std::shared_ptr<talweg::Group> group)
      : group_(std::move(group)), sums_(talweg::BoundedSums::make(*group_, {.p = kP})) {}
  void prepare(float* data, std::size_t count) override {
    data_ = data;
    in_.resize(count);
    for (int i = 0; i < kExactCalls; ++i) all_reduce();
  }
  void all_reduce() override {
    in_.assign(data_, data_ + in_.size());
    sums_->all_reduce({.in = in_.data(), .out = data_, .count = in_.size()});
  }
  double may_lack() const override { return kP * (group_->size() - 1); }

 private:
  std::shared_ptr<talweg::Group> group_;
  std::shared_ptr<talweg::BoundedSums> sums_;
  float* data_ = nullptr;
  std::vector<float> in_;
};

// The ranks go by trees until all have joined the switch.
void await_switch(talweg::Group& group, std::size_t count) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (std::int64_t through = 0; through == 0;) {
    const std::string plan = group.explain(talweg::Collective::all_reduce, count, talweg::DataType::f32);
    through = plan.rfind("switch", 0) == 0 ? 1 : 0;
    group.all_reduce(&through, &through, 1, talweg::DataType::i64, talweg::ReduceOp::min);
    if (through == 0 && std::chrono::steady_clock::now() > until)
      throw std::runtime_error("sums do not go through the switch: " + group.describe());
  }
}

std::shared_ptr<talweg::Store> open_store(const std::string& where, int rank) {
  const std::string tcp = "tcp://";
  if (where.rfind(tcp, 0) != 0) return talweg::file_store(where);
  const std::size_t colon = where.rfind(':');
  const char* key = std::getenv("TALWEG_KEY");
  return talweg::tcp_store(where.substr(tcp.size(), colon - tcp.size()), std::stoi(where.substr(colon + 1)),
                           rank == 0, std::chrono::steady_clock::now() + std::chrono::seconds(20),
                           key != nullptr ? key : "");
}

}  // namespace

int main(int argc, char** argv) {
  return talweg::bench::guarded([&] {
    const talweg::bench::Options options = talweg::bench::parse_options(argc, argv);
    talweg::GroupOptions join;
    join.rank = options.rank;
    join.size = options.size;
    join.interface = options.interface;
    const bool bounded = options.algorithm == "bounded";
    if (options.algorithm != "auto" && !bounded) join.algorithm = options.algorithm;
    const auto started = std::chrono::steady_clock::now();
    join.store = open_store(options.store, options.rank);
    const std::shared_ptr<talweg::Group> group = talweg::Group::join(join);
    if (options.algorithm == "switch") await_switch(*group, options.bytes / sizeof(float));
    if (bounded) {
      Bounded contestant(group);
      return talweg::bench::measure("talweg", options, contestant, started);
    }
    Talweg contestant(group);
    return talweg::bench::measure("talweg", options, contestant, started);
  });
}
