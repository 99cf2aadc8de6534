// The smallest C++ program over Talweg:  talweg run -n 4 -- build/examples/all_reduce
#include <talweg/group.h>

#include <cstdio>
#include <vector>

int main() {
  try {
    const auto group = talweg::Group::join();  // rank, size and where to meet come from the launcher
    std::vector<float> gradient(1'000'000, static_cast<float>(group->rank()));

    const auto work =
        group->start_all_reduce(gradient.data(), gradient.data(), gradient.size(), talweg::DataType::f32,
                                talweg::ReduceOp::avg);  // in flight: compute something meanwhile
    work->wait();

    if (group->rank() == 0) std::printf("average over %d ranks: %.1f\n", group->size(), gradient[0]);
  } catch (const talweg::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
