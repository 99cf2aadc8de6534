// Talweg's all-reduce through its public interface. --algorithm is GroupOptions::algorithm; "auto" leaves the
// choice to the cost model.
#include <talweg/group.h>

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

}  // namespace

int main(int argc, char** argv) {
  return talweg::bench::guarded([&] {
    const talweg::bench::Options options = talweg::bench::parse_options(argc, argv);
    talweg::GroupOptions join;
    join.rank = options.rank;
    join.size = options.size;
    join.interface = options.interface;
    if (options.algorithm != "auto") join.algorithm = options.algorithm;
    const auto started = std::chrono::steady_clock::now();
    join.store = talweg::file_store(options.store);
    Talweg contestant(talweg::Group::join(join));
    return talweg::bench::measure("talweg", options, contestant, started);
  });
}
