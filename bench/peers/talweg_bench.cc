// Talweg's all-reduce through its public interface. --algorithm is GroupOptions::algorithm; "auto" leaves the
// choice to the cost model. --store may be tcp://host:port: rank 0 then serves there, under TALWEG_KEY, until
// the end of the measurement.
#include <talweg/group.h>

#include <cstdlib>
#include <string>

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
    if (options.algorithm != "auto") join.algorithm = options.algorithm;
    const auto started = std::chrono::steady_clock::now();
    join.store = open_store(options.store, options.rank);
    Talweg contestant(talweg::Group::join(join));
    return talweg::bench::measure("talweg", options, contestant, started);
  });
}
