// A group of one rank whose all-reduce copies, and can be told to do it wrong: what measure() must notice.
#pragma once

#include <cstring>
#include <memory>

#include "talweg/group.h"

namespace talweg::study {

class LonelyGroup : public Group {
 public:
  int calls = 0;
  bool flips_a_bit = false;       // in the output
  bool forgets_to_write = false;  // the output
  bool scribbles_on_input = false;

  int rank() const override { return 0; }
  int size() const override { return 1; }

  WorkPtr start_all_reduce(const void* in, void* out, std::size_t count, DataType type, ReduceOp op,
                           const CallOptions&) override {
    ++calls;
    const std::size_t bytes = count * size_of(type);
    if (in != out && !(forgets_to_write && type == DataType::f32)) std::memcpy(out, in, bytes);
    // Only what is measured goes wrong: the agreement about times and wrong elements uses other types.
    if (type != DataType::f32 || op != ReduceOp::sum || bytes == 0) return done();
    if (flips_a_bit) *static_cast<unsigned char*>(out) ^= 1;
    if (scribbles_on_input && in != out) *static_cast<unsigned char*>(const_cast<void*>(in)) ^= 1;
    return done();
  }
  WorkPtr start_broadcast(void*, std::size_t, DataType, int, const CallOptions&) override { return done(); }
  WorkPtr start_barrier(const CallOptions&) override { return done(); }

  WorkPtr start_reduce(const void*, void*, std::size_t, DataType, ReduceOp, int,
                       const CallOptions&) override {
    return unexpected();
  }
  WorkPtr start_reduce_scatter(const void*, void*, std::span<const std::size_t>, DataType, ReduceOp,
                               const CallOptions&) override {
    return unexpected();
  }
  WorkPtr start_all_gather(const void*, void*, std::span<const std::size_t>, DataType,
                           const CallOptions&) override {
    return unexpected();
  }
  WorkPtr start_all_to_all(const void*, std::span<const std::size_t>, void*, std::span<const std::size_t>,
                           DataType, const CallOptions&) override {
    return unexpected();
  }
  WorkPtr start_gather(const void*, void*, std::span<const std::size_t>, DataType, int,
                       const CallOptions&) override {
    return unexpected();
  }
  WorkPtr start_scatter(const void*, void*, std::span<const std::size_t>, DataType, int,
                        const CallOptions&) override {
    return unexpected();
  }
  WorkPtr start_send(const void*, std::size_t, DataType, int, std::uint32_t, const CallOptions&) override {
    return unexpected();
  }
  WorkPtr start_recv(void*, std::size_t, DataType, int, std::uint32_t, const CallOptions&) override {
    return unexpected();
  }
  std::shared_ptr<Group> split(std::span<const int>) override { return nullptr; }
  std::string probe(const ProbeOptions&) override { return {}; }
  void abort(const std::string&) override {}
  void set_timeout(std::chrono::milliseconds) override {}
  GroupStatistics statistics() const override { return {}; }
  std::string describe() const override { return {}; }
  std::string explain(Collective, std::size_t, DataType) const override { return {}; }
  std::string flight_record() const override { return {}; }
  std::string host_of(int) const override { return "here 1"; }

 private:
  struct Done : Work {
    bool test() override { return true; }
    void wait() override {}
    bool wait_for(std::chrono::milliseconds) override { return true; }
    std::exception_ptr error() override { return nullptr; }
    void on_done(std::function<void()> callback) override { callback(); }
    std::uint64_t sequence() const override { return 0; }
    int source_rank() const override { return -1; }
  };
  static WorkPtr done() { return std::make_shared<Done>(); }
  static WorkPtr unexpected() { throw std::logic_error("a call that these tests do not make"); }
};

}  // namespace talweg::study
