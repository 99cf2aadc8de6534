// Uses everything that include/talweg declares, so that a symbol that the library hides is missed here.
#include <talweg/bounded_loss.h>
#include <talweg/error.h>
#include <talweg/group.h>
#include <talweg/sparse_rows.h>
#include <talweg/store.h>
#include <talweg/talweg.h>
#include <talweg/types.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

using talweg::DataType;
using talweg::ReduceOp;

namespace {

int wrong(const char* what) {
  std::fprintf(stderr, "consumer: %s\n", what);
  return 1;
}

bool names_are_there() {
  return talweg::size_of(DataType::f64) == 8 && std::string(talweg::name(DataType::bf16)) == "bf16" &&
         std::string(talweg::name(ReduceOp::avg)) == "avg" &&
         std::string(talweg::name(talweg::Collective::barrier)) == "barrier" &&
         std::string(talweg::name(talweg::ErrorCode::timeout)) == "timeout" &&
         talweg::parse_data_type("float") == DataType::f32 &&
         talweg::parse_reduce_op("prod") == ReduceOp::product &&
         talweg::parse_collective("allreduce") == talweg::Collective::all_reduce &&
         std::string(talweg_version()) == "0.1.0";
}

// An exception that is thrown inside the library is caught here by its own type.
bool errors_are_caught() {
  const auto soon = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
  try {
    talweg::tcp_store("127.0.0.1", 0, true, soon)->get("never set", soon);
  } catch (const talweg::Error& error) {
    return error.code() == talweg::ErrorCode::timeout;
  }
  return false;
}

bool collectives_are_there(talweg::Group& group) {
  const auto n = static_cast<std::size_t>(group.size());
  const int next = (group.rank() + 1) % group.size();
  const std::vector<std::size_t> counts(n, 1);
  std::vector<float> whole(n, 1), other(n, 0);
  float one = 1;
  group.all_reduce(&one, &one, 1, DataType::f32, ReduceOp::sum);
  group.reduce(whole.data(), other.data(), n, DataType::f32, ReduceOp::sum, 0);
  group.broadcast(whole.data(), n, DataType::f32, 0);
  group.reduce_scatter(whole.data(), other.data(), counts, DataType::f32, ReduceOp::sum);
  group.all_gather(whole.data(), other.data(), counts, DataType::f32);
  group.all_to_all(whole.data(), counts, other.data(), counts, DataType::f32);
  group.gather(whole.data(), other.data(), counts, DataType::f32, 0);
  group.scatter(whole.data(), other.data(), counts, DataType::f32, 0);
  const auto receiving = group.start_recv(other.data(), n, DataType::f32, talweg::kAnyRank);
  group.send(whole.data(), n, DataType::f32, next);
  receiving->wait();
  const auto also_receiving = group.start_send(whole.data(), n, DataType::f32, next);
  group.recv(other.data(), n, DataType::f32, talweg::kAnyRank);
  also_receiving->wait();
  group.barrier();
  float two = 2;
  talweg::BoundedSums::make(group, {.p = 0.1})->all_reduce({.in = &two, .out = &two, .count = 1});
  const std::vector<std::int64_t> keys{2, 5};
  const std::vector<float> rows(2, 1);
  const talweg::SparseRows sum =
      talweg::all_reduce_rows(group, {.keys = keys, .values = rows.data(), .limit = 10, .width = 1});
  return one == static_cast<float>(group.size()) && two == 2 * one && sum.keys == keys;
}

}  // namespace

int main(int argc, char** argv) {
  if (!names_are_there()) return wrong("a name is not what the headers say");
  if (!errors_are_caught()) return wrong("an error did not arrive as talweg::Error");
  talweg::GroupOptions options;
  if (argc > 1) options.store = talweg::file_store(argv[1]);
  const auto group = talweg::Group::join(options);
  if (!collectives_are_there(*group)) return wrong("a sum is wrong");
  if (group->rank() == 0) std::printf("consumer in C++: %d ranks\n", group->size());
}
