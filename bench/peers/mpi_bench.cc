// MPI_Allreduce in place. The algorithm is chosen from outside, through the launcher's MCA settings;
// --algorithm only names it in the output.
#include <mpi.h>

#include "measure.h"

namespace {

class Mpi : public talweg::bench::Contestant {
 public:
  void prepare(float* data, std::size_t count) override {
    data_ = data;
    count_ = static_cast<int>(count);
  }
  void all_reduce() override {
    MPI_Allreduce(MPI_IN_PLACE, data_, count_, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  // MPI moves data only inside its own calls, and another rank may still wait for what this one has queued.
  void idle() override {
    int found = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
  }

 private:
  float* data_ = nullptr;
  int count_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  return talweg::bench::guarded([&] {
    talweg::bench::Options options = talweg::bench::parse_options(argc, argv);
    const auto started = std::chrono::steady_clock::now();
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &options.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &options.size);
    Mpi contestant;
    const int code = talweg::bench::measure("ompi", options, contestant, started);
    MPI_Finalize();
    return code;
  });
}
