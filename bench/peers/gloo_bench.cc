// gloo's all-reduce. Algorithms: ring (what PyTorch calls), bcube, ring_chunked, halving_doubling.
//
// One fresh process set per algorithm and size: gloo's older algorithm classes, the last two, leave a tiny
// SO_SNDBUF on the context's sockets, and whatever runs there next stalls on delayed acknowledgements.
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <memory>
#include <stdexcept>

#include "measure.h"

namespace {

using talweg::bench::Contestant;
using talweg::bench::Options;

std::shared_ptr<gloo::rendezvous::Context> join(const Options& options) {
  gloo::transport::tcp::attr attr;
  attr.hostname = options.address;
  attr.ai_family = AF_INET;
  auto device = gloo::transport::tcp::CreateDevice(attr);
  auto context = std::make_shared<gloo::rendezvous::Context>(options.rank, options.size);
  gloo::rendezvous::FileStore store(options.store);
  context->connectFullMesh(store, device);
  return context;
}

class NewInterface : public Contestant {
 public:
  NewInterface(const std::shared_ptr<gloo::Context>& context, gloo::AllreduceOptions::Algorithm algorithm)
      : options_(context) {
    options_.setAlgorithm(algorithm);
    options_.setReduceFunction(
        [](void* out, const void* a, const void* b, std::size_t n) { gloo::sum<float>(out, a, b, n); });
  }
  void prepare(float* data, std::size_t count) override { options_.setOutput(data, count); }
  void all_reduce() override { gloo::allreduce(options_); }

 private:
  gloo::AllreduceOptions options_;
};

template <typename Algorithm>
class OldInterface : public Contestant {
 public:
  explicit OldInterface(std::shared_ptr<gloo::Context> context) : context_(std::move(context)) {}
  void prepare(float* data, std::size_t count) override {
    algorithm_ = std::make_unique<Algorithm>(context_, std::vector<float*>{data}, static_cast<int>(count));
  }
  void all_reduce() override { algorithm_->run(); }

 private:
  std::shared_ptr<gloo::Context> context_;
  std::unique_ptr<Algorithm> algorithm_;
};

std::unique_ptr<Contestant> make(const std::shared_ptr<gloo::Context>& context,
                                 const std::string& algorithm) {
  using Algorithm = gloo::AllreduceOptions::Algorithm;
  if (algorithm == "ring") return std::make_unique<NewInterface>(context, Algorithm::RING);
  if (algorithm == "bcube") return std::make_unique<NewInterface>(context, Algorithm::BCUBE);
  if (algorithm == "ring_chunked")
    return std::make_unique<OldInterface<gloo::AllreduceRingChunked<float>>>(context);
  if (algorithm == "halving_doubling")
    return std::make_unique<OldInterface<gloo::AllreduceHalvingDoubling<float>>>(context);
  throw std::runtime_error("gloo_bench: unknown algorithm '" + algorithm + "'");
}

}  // namespace

int main(int argc, char** argv) {
  return talweg::bench::guarded([&] {
    const Options options = talweg::bench::parse_options(argc, argv);
    const auto started = std::chrono::steady_clock::now();
    const auto context = join(options);
    const auto contestant = make(context, options.algorithm);
    return talweg::bench::measure("gloo", options, *contestant, started);
  });
}
