// A group of one rank whose all-reduce copies, and can be told to do it wrong: what measure() must notice.
#pragma once

#include <cstring>
#include <memory>

#include "talweg/group.h"

namespace talweg::cli {

class LonelyGroup : public Group {
 public:
  int calls = 0;
  bool flips_a_bit = false;       // in the output
  bool forgets_to_write = false;  // the output
  bool scribbles_on_input = false;

  int rank() const override { return 0; }
  int size() const override { return 1; }

  WorkPtr start(const Call& call) override {
    if (call.op == Collective::broadcast || call.op == Collective::barrier) return done();
    if (call.op != Collective::all_reduce) throw std::logic_error("a call that these tests do not make");
    ++calls;
    const std::size_t bytes = call.count * size_of(call.type);
    const bool in_place = call.in == call.out;
    if (!in_place && !(forgets_to_write && call.type == DataType::f32)) std::memcpy(call.out, call.in, bytes);
    // Only what is measured goes wrong: the agreement about times and wrong elements uses other types.
    if (call.type != DataType::f32 || call.reduction != ReduceOp::sum || bytes == 0) return done();
    if (flips_a_bit) *static_cast<unsigned char*>(call.out) ^= 1;
    if (scribbles_on_input && !in_place) *static_cast<unsigned char*>(const_cast<void*>(call.in)) ^= 1;
    return done();
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
};

}  // namespace talweg::cli
